#include "weft/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/parts.h"
#include "weft/base/philox.h"
#include "weft/data/cluster.h"
#include "weft/data/feature_mapper.h"

namespace weft::data {
namespace {

/// Samples permuted together where a source cannot be read at random: 16 MiB of Criteo text.
constexpr std::int64_t kSequentialWindow = 65536;

/// Positions that are loaded together.
std::int64_t window_of(const Source& source, const LoaderOptions& options) {
  return options.shuffle ? shuffle_window(source, options) : options.batch_size;
}

void check_options(const LoaderOptions& o) {
  WEFT_CHECK(o.ranks >= 1 && o.rank >= 0 && o.rank < o.ranks && o.parts >= o.ranks,
             "rank {} of {} with {} parts", o.rank, o.ranks, o.parts);
  if (o.batch_size < 1 || o.read_ahead < 1 || o.window < 0 || o.epochs < 0 || o.start.epoch < 0 ||
      o.start.sample < 0) {
    fail(ErrorCode::kConfig,
         "the loader cannot run with batch_size {}, data.read_ahead {}, data.shuffle.window {}, "
         "train.epochs {} from epoch {}, sample {}",
         o.batch_size, o.read_ahead, o.window, o.epochs, o.start.epoch, o.start.sample);
  }
  spec::check_cluster_parts({.cluster_parts = o.cluster_parts}, o.parts, o.ranks);
}

std::optional<SampleClusterer> make_clusterer(const spec::Config& config, const LoaderOptions& o) {
  if (o.cluster_parts == 0) {
    return std::nullopt;
  }
  return SampleClusterer(config, {.parts = o.parts,
                                  .cluster_parts = o.cluster_parts,
                                  .own = rank_parts(o.parts, o.ranks, o.rank)});
}

/// Position of an epoch -> sample id, for positions inside a loaded run of windows.
class Order {
 public:
  Order(std::uint64_t seed, const LoaderOptions& options, std::int64_t window)
      : seed_key_(random_key(seed, RandomPurpose::kShuffle)),
        shuffle_(options.shuffle),
        window_(window) {}

  /// The windows from `first` on, of which samples up to `end` exist.
  void set_run(std::int64_t epoch, std::int64_t first_window, std::int64_t end) {
    first_window_ = first_window;
    permutations_.clear();
    const std::uint64_t epoch_key = hash_combine(seed_key_, static_cast<std::uint64_t>(epoch));
    for (std::int64_t w = first_window; shuffle_ && w * window_ < end; ++w) {
      permutations_.emplace_back(static_cast<std::uint64_t>(std::min(window_, end - w * window_)),
                                 hash_combine(epoch_key, static_cast<std::uint64_t>(w)));
    }
  }

  /// The samples at positions [begin, begin + out.size()).
  void samples(std::int64_t begin, std::span<std::int64_t> out) const {
    if (!shuffle_) {
      std::iota(out.begin(), out.end(), begin);
      return;
    }
    while (!out.empty()) {
      const std::int64_t w = begin / window_;
      const std::int64_t inside = begin - w * window_;
      const auto run = out.first(std::min(out.size(), at(window_ - inside)));
      permutations_[at(w - first_window_)].map(static_cast<std::uint64_t>(inside), run);
      for (std::int64_t& sample : run) {
        sample += w * window_;
      }
      out = out.subspan(run.size());
      begin += static_cast<std::int64_t>(run.size());
    }
  }

 private:
  std::uint64_t seed_key_;
  bool shuffle_;
  std::int64_t window_;
  std::int64_t first_window_ = 0;
  std::vector<Permutation> permutations_;
};

}  // namespace

std::int64_t shuffle_window(const Source& source, const LoaderOptions& options) {
  if (!options.shuffle || options.window > 0) {
    return options.shuffle ? options.window : 0;
  }
  return source.random_access() && source.size() > 0 ? source.size() : kSequentialWindow;
}

LoaderOptions LoaderOptions::train(const spec::Config& config,
                                   std::int64_t rank,
                                   std::int64_t ranks,
                                   std::int64_t parts) {
  LoaderOptions options;
  options.rank = rank;
  options.ranks = ranks;
  options.parts = parts;
  options.cluster_parts = config.pipeline.cluster_parts;
  options.epochs = config.train.steps > 0 ? 0 : config.train.epochs;
  options.shuffle = config.data.shuffle.enabled;
  options.window = config.data.shuffle.window;
  options.batch_size = config.batch_size;
  options.read_ahead = config.data.read_ahead;
  return options;
}

LoaderOptions LoaderOptions::eval(const spec::Config& config,
                                  std::int64_t rank,
                                  std::int64_t ranks,
                                  std::int64_t parts) {
  LoaderOptions options = train(config, rank, ranks, parts);
  options.cluster_parts = 0;
  options.epochs = 1;
  options.shuffle = false;
  return options;
}

/// A ring of batches between the reader's thread, which fills free slots, and the caller, who swaps
/// with ready ones. The source, the mapper, the clusterer and `at_` belong to the reader's thread.
class Loader::Impl {
 public:
  Impl(std::unique_ptr<Source> source,
       const spec::Config& config,
       const Vocabularies& vocabularies,
       const LoaderOptions& options)
      : source_(std::move(source)),
        described_(source_->describe()),
        mapper_(config, source_->schema(), vocabularies, described_),
        clusterer_(make_clusterer(config, options)),
        options_(options),
        window_(window_of(*source_, options)),
        order_(config.seed, options, window_),
        at_(options.start),
        step_(options.first_step),
        known_samples_(source_->random_access() ? source_->size() : -1),
        returned_(options.start),
        returned_samples_(known_samples_),
        slots_(at(options.read_ahead)) {
    source_->select(mapper_.columns());
    source_->report_to(&progress_);
    free_.reserve(slots_.size());
    ready_.reserve(slots_.size());
    for (Slot& slot : slots_) {
      free_.push_back(&slot);
    }
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  bool next(Batch& out) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_next(); });
    return take(out);
  }

  Next next_within(Batch& out, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [this] { return has_next(); })) {
      return Next::kNotYet;
    }
    return take(out) ? Next::kBatch : Next::kEnd;
  }

  [[nodiscard]] const WorkProgress& progress() const { return progress_; }

  [[nodiscard]] ReaderPosition position() const { return returned_; }

  [[nodiscard]] std::int64_t epoch_samples() const { return returned_samples_; }

  [[nodiscard]] const Source& source() const { return *source_; }

 private:
  struct Slot {
    Batch batch;
    ReaderPosition after;
    std::int64_t samples = -1;  ///< of an epoch, as known then
  };

  [[nodiscard]] bool has_next() const { return !ready_.empty() || finished_; }

  /// Under the mutex. False after the last batch.
  bool take(Batch& out) {
    if (ready_.empty()) {
      if (error_ != nullptr) {
        std::rethrow_exception(error_);
      }
      returned_samples_ = known_samples_;  // the reader has ended
      return false;
    }
    Slot* const slot = take_first(ready_);
    std::swap(out, slot->batch);
    returned_ = slot->after;
    returned_samples_ = slot->samples;
    free_.push_back(slot);
    changed_.notify_all();
    return true;
  }

  static Slot* take_first(std::vector<Slot*>& slots) {
    Slot* const slot = slots.front();
    slots.erase(slots.begin());
    return slot;
  }

  void run(const std::stop_token& stop) {
    std::exception_ptr error;
    try {
      while (Slot* const slot = take_free(stop)) {
        if (!produce(stop, *slot)) {
          break;
        }
        const std::lock_guard lock(mutex_);
        ready_.push_back(slot);
        changed_.notify_all();
      }
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    error_ = error;
    finished_ = true;
    changed_.notify_all();
  }

  /// Null when the loader is being destroyed.
  Slot* take_free(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [this] { return !free_.empty(); })) {
      return nullptr;
    }
    return take_first(free_);
  }

  /// Fills `slot` with the next batch of this or a later epoch; false after the last.
  bool produce(const std::stop_token& stop, Slot& slot) {
    const trace::Scope scope(options_.track, "read_batch", trace::Kind::kIo);
    while (options_.epochs == 0 || at_.epoch < options_.epochs) {
      const std::int64_t size = load_batch(stop);
      if (stop.stop_requested()) {
        return false;
      }
      if (size > 0) {
        fill(size, slot.batch);
        at_.sample += size;
        slot.after = at_;
        slot.samples = known_samples_;
        return true;
      }
      end_epoch();
      at_ = {at_.epoch + 1, 0};
      loaded_ = 0;
      source_->begin_epoch();
    }
    return false;
  }

  /// No sample follows at_.
  void end_epoch() {
    if (at_.sample == 0) {
      fail(ErrorCode::kData, "{} holds no samples", source_->describe());
    }
    const std::int64_t size = known_samples_ >= 0 ? known_samples_ : source_->size();
    if (size >= 0) {
      if (at_.sample > size) {
        fail(ErrorCode::kData,
             "reading is to go on at sample {} of epoch {}, and {} has {}: it is not what was read "
             "before; give those data, or begin these at their start (--resume-data from-start)",
             at_.sample, at_.epoch, source_->describe(), size);
      }
      known_samples_ = size;
    }
  }

  /// Loads the windows of the next batch and returns how many samples it has: fewer than
  /// batch_size only at the end of the epoch, 0 after it.
  std::int64_t load_batch(const std::stop_token& stop) {
    const std::int64_t first_window = at_.sample / window_;
    const std::int64_t last_window = (at_.sample + options_.batch_size - 1) / window_;
    // Without shuffling the window is the batch, and may begin where the batch does.
    const std::int64_t first = options_.shuffle ? first_window * window_ : at_.sample;
    const std::int64_t end =
        options_.shuffle ? (last_window + 1) * window_ : at_.sample + options_.batch_size;
    skip_to(stop, first);
    report("reading samples of", -1, first);
    const std::int64_t existing = first + source_->load(first, end - first);
    if (first < existing && existing < end) {
      known_samples_ = existing;
    }
    order_.set_run(at_.epoch, first_window, existing);
    return std::clamp<std::int64_t>(existing - at_.sample, 0, options_.batch_size);
  }

  /// A sequential source reads what it skips: in runs, so that the loader can be stopped.
  void skip_to(const std::stop_token& stop, std::int64_t first) {
    if (!source_->random_access() && loaded_ + kSequentialWindow < first) {
      report("skipping samples of", first, loaded_);
      while (loaded_ + kSequentialWindow < first && !stop.stop_requested()) {
        loaded_ += kSequentialWindow;
        source_->load(loaded_, 0);
        progress_.add(kSequentialWindow);
      }
    }
    loaded_ = first;
  }

  void report(std::string_view activity, std::int64_t total, std::int64_t done) {
    progress_.begin({.activity = activity,
                     .place = described_,
                     .total = total,
                     .unit = WorkProgress::Unit::kSamples,
                     .done = done});
  }

  void fill(std::int64_t size, Batch& batch) {
    batch.epoch = at_.epoch;
    batch.step = step_++;
    batch.global_size = size;
    batch.positions = rank_samples(size, options_.parts, options_.ranks, options_.rank);
    sample_ids_.resize(at(batch.positions.size()));
    order_.samples(at_.sample + batch.positions.begin, sample_ids_);
    source_->read(sample_ids_, block_);
    mapper_.map(block_, batch);
    if (clusterer_) {
      clusterer_->cluster(batch);
    }
  }

  WorkProgress progress_;
  std::unique_ptr<Source> source_;
  std::string described_;  ///< the source
  FeatureMapper mapper_;
  std::optional<SampleClusterer> clusterer_;
  LoaderOptions options_;
  std::int64_t window_;
  Order order_;
  ReaderPosition at_;  ///< of the next batch read
  std::int64_t step_;
  std::int64_t loaded_ = 0;  ///< first of the last load
  std::int64_t known_samples_;
  std::vector<std::int64_t> sample_ids_;
  RawBlock block_;

  ReaderPosition returned_;
  std::int64_t returned_samples_;

  std::mutex mutex_;  ///< of all below
  std::condition_variable_any changed_;
  std::vector<Slot> slots_;
  std::vector<Slot*> free_;   ///< oldest first; there are few
  std::vector<Slot*> ready_;  ///< likewise
  bool finished_ = false;
  std::exception_ptr error_;

  std::jthread thread_;  ///< last, so that it ends before what it uses
};

Loader::Loader(std::unique_ptr<Source> source,
               const spec::Config& config,
               const Vocabularies& vocabularies,
               const LoaderOptions& options) {
  WEFT_CHECK(source != nullptr, "a loader needs a source");
  check_options(options);
  impl_ = std::make_unique<Impl>(std::move(source), config, vocabularies, options);
}

Loader::~Loader() = default;

bool Loader::next(Batch& out) {
  return impl_->next(out);
}

Loader::Next Loader::next_within(Batch& out, std::chrono::milliseconds limit) {
  return impl_->next_within(out, limit);
}

const WorkProgress& Loader::progress() const {
  return impl_->progress();
}

ReaderPosition Loader::position() const {
  return impl_->position();
}

std::int64_t Loader::epoch_samples() const {
  return impl_->epoch_samples();
}

const Source& Loader::source() const {
  return impl_->source();
}

}  // namespace weft::data
