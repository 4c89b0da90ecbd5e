// Checkpoints of a table of which few rows exist and fewer have changed: how long a save takes by
// the rows that changed, beside a table that has no other rows and beside a file of as many bytes;
// how long steps wait for a save that is written beside them; how long a resume takes by the
// length of the chain; and what a save costs over a tier on the disk, with files that are linked
// and with rows that are copied.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/disk_probe.h"
#include "bench/report.h"
#include "weft/base/at.h"
#include "weft/checkpoint/background_save.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/comm/local/local.h"
#include "weft/embedding/table_shard.h"
#include "weft/io/file_system.h"
#include "weft/layout/tables.h"
#include "weft/storage/segment_store.h"

namespace weft::bench {
namespace {

using Parameters = std::map<std::string, std::string>;

struct Options {
  std::string out;
  std::string directory = "build/bench/save";
  int rounds = 5;
  std::int64_t rows = 1'000'000'000;
  std::int64_t dim = 16;
  std::int64_t existing = 8'000'000;
  std::int64_t batch = 16384;  ///< rows that a step changes
  std::vector<std::int64_t> changed = {10'000, 100'000, 1'000'000, 4'000'000};
  std::vector<std::int64_t> chains = {1, 2, 4, 8, 16, 32};
  std::int64_t on_disk = 2'000'000;  ///< rows over the tier on the disk, of which all exist
  std::vector<std::int64_t> changed_on_disk = {20'000, 200'000, 1'000'000};
  bool only_on_disk = false;
};

constexpr std::uint64_t kSeed = 11;

/// A slot of a cache takes about so many bytes beside its row.
constexpr std::int64_t kSlotBytes = 24;

/// An eighth of a table's rows has room in its cache.
constexpr std::int64_t kRowsPerSlot = 8;

/// A table on one rank, row-wise Adagrad, with steps that change rows drawn evenly. With a folder
/// rows that have no room in a cache lie there; else all that exist in memory.
class Job {
 public:
  Job(std::int64_t rows, std::int64_t dim, std::int64_t batch, const std::string& folder = "")
      : device_(make_device({})), context_{.device = device_.get()}, batch_(batch) {
    table_.name = "t";
    table_.num_embeddings = rows;
    table_.embedding_dim = dim;
    table_.optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
    table_.optimizer.learning_rate = 0.01;
    table_.memory.tier = folder.empty() ? spec::MemoryTier::kLazy : spec::MemoryTier::kSsd;
    embedding::TableShardOptions options;
    if (!folder.empty()) {
      storage::SegmentStoreOptions on_disk;
      on_disk.directories = {folder};
      store_ = std::make_unique<storage::SegmentStore>(io::real_file_system(), on_disk);
      const std::int64_t row_bytes = layout::packed_row(table_, dim).bytes();
      options.backing =
          &store_->add_shard({.key = embedding::TableShard::stream_key(table_, {0, dim}),
                              .rows = {0, rows},
                              .row_bytes = row_bytes,
                              .table = table_.name});
      options.cache_bytes = rows / kRowsPerSlot * (row_bytes + kSlotBytes);
    }
    shard_ = std::make_unique<embedding::TableShard>(*device_, table_, RowSet{0, rows},
                                                     Range{0, dim}, kSeed, options);
    gradients_ = std::make_unique<embedding::RowGradients>(*device_, *shard_);
    resident_ = shard_->tier()->make_batch();
    increments_.rows = {shard_->row_sink()};
    values_.resize(at(batch * dim), 0.01F);
    offsets_.resize(at(batch + 1));
    parts_.resize(at(batch));
    for (std::int64_t i = 0; i <= batch; ++i) {
      offsets_[at(i)] = i;
    }
  }

  /// A step that changes the given rows, at most a batch. Returns its seconds.
  double step(std::span<const std::int64_t> rows) {
    const Stopwatch watch;
    const kernels::Bags bags{rows.data(), offsets_.data(), nullptr, std::ssize(rows)};
    const kernels::GradientBlock block{bags, true, values_.data(), table_.embedding_dim,
                                       parts_.data()};
    resident_->fetch(context_, std::span(&bags, 1));
    resident_->fetch_late(context_);
    gradients_->coalesce(context_, std::span(&block, 1));
    gradients_->use_slots(
        resident_
            ->resolve(context_, std::span(gradients_->unique_rows(), at(gradients_->num_unique())))
            .data());
    shard_->update(context_, *gradients_, {.step = ++steps_, .seed = kSeed});
    resident_->release(storage::Release::kUpdated);
    return watch.spent().wall_s;
  }

  /// Steps that change `rows`.
  void change(std::span<const std::int64_t> rows) {
    for (std::int64_t first = 0; first < std::ssize(rows); first += batch_) {
      step(rows.subspan(at(first), at(std::min(batch_, std::ssize(rows) - first))));
    }
  }

  /// How the last save has stored rows.
  [[nodiscard]] const checkpoint::SavedRows& saved() const { return increments_.saved; }

  checkpoint::SaveOptions options(const std::string& directory, double increment_share) {
    checkpoint::SaveOptions options;
    options.directory = directory;
    options.metadata.step = steps_;
    options.keep = 1;
    options.increments = &increments_;
    options.increment_share = increment_share;
    options.increment_count = 1000;
    return options;
  }

  std::string save(comm::Communicator& comm, const checkpoint::SaveOptions& options) {
    const StateSource* const source = shard_.get();
    return checkpoint::save(comm, context_, options, std::span(&source, 1));
  }

  std::unique_ptr<checkpoint::BackgroundSave> begin_save(comm::Communicator& comm,
                                                         const checkpoint::SaveOptions& options) {
    return std::make_unique<checkpoint::BackgroundSave>(
        comm, *device_, options, std::vector<const StateSource*>{shard_.get()});
  }

  void load(comm::Communicator& comm, const std::string& path) {
    StateSink* const sink = shard_.get();
    checkpoint::load(comm, context_, {.path = path}, std::span(&sink, 1));
  }

 private:
  std::unique_ptr<Device> device_;
  Context context_;
  std::int64_t batch_;
  spec::Table table_;
  std::unique_ptr<storage::SegmentStore> store_;
  std::unique_ptr<embedding::TableShard> shard_;
  std::unique_ptr<embedding::RowGradients> gradients_;
  std::unique_ptr<storage::ResidentRows> resident_;
  checkpoint::Increments increments_;
  std::vector<float> values_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int32_t> parts_;
  std::int64_t steps_ = 0;
};

class Bench {
 public:
  Bench(const Options& options, comm::Communicator& comm) : o_(options), comm_(comm) {}

  std::vector<Figure> run() {
    std::filesystem::remove_all(o_.directory);
    std::filesystem::create_directories(o_.directory);
    if (o_.only_on_disk) {
      measure_on_disk();
      std::filesystem::remove_all(o_.directory);
      return std::move(figures_);
    }
    for (std::int64_t i = 0; i < o_.existing; ++i) {
      existing_.push_back(
          static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(o_.rows)));
    }
    measure_alone();
    {
      Job job(o_.rows, o_.dim, o_.batch);
      job.change(existing_);
      measure_all(job);
      for (const std::int64_t changed : o_.changed) {
        measure_changed(job, changed);
      }
      measure_background(job);
    }
    measure_chains();
    measure_on_disk();
    std::filesystem::remove_all(o_.directory);
    return std::move(figures_);
  }

 private:
  std::string folder() const { return o_.directory + "/ck"; }

  /// Bytes of the newest save's segments.
  std::int64_t saved_bytes(const std::string& path) const {
    return checkpoint::read_manifest(path).segments.back().bytes();
  }

  std::vector<std::int64_t> some(std::int64_t count) {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < count; ++i) {
      rows.push_back(existing_[random_() % existing_.size()]);
    }
    return rows;
  }

  struct Saves {
    std::vector<double> seconds, limit, bytes;
  };

  void save_once(Job& job, double increment_share, Saves& saves) {
    const Stopwatch watch;
    const std::string path = job.save(comm_, job.options(folder(), increment_share));
    saves.seconds.push_back(watch.spent().wall_s);
    saves.bytes.push_back(static_cast<double>(saved_bytes(path)));
    saves.limit.push_back(write_file_once(o_.directory + "/limit", saved_bytes(path)).wall_s);
  }

  void add_saves(const std::string& what, std::int64_t changed, const Saves& saves) {
    const Parameters parameters = {{"what", what}, {"changed", std::to_string(changed)}};
    add({.name = "save_s",
         .parameters = parameters,
         .unit = "s",
         .better = Better::kLower,
         .values = saves.seconds,
         .limit = Limit{"a file of as many bytes, written and synced", saves.limit}});
    add({.name = "save_bytes",
         .parameters = parameters,
         .unit = "bytes",
         .better = Better::kLower,
         .values = saves.bytes,
         .limit = {}});
  }

  /// The yardstick: a table that has no rows but those that others have changed.
  void measure_alone() {
    for (const std::int64_t changed : o_.changed) {
      Job job(changed, o_.dim, o_.batch);
      std::vector<std::int64_t> rows;
      for (std::int64_t row = 0; row < changed; ++row) {
        rows.push_back(row);
      }
      job.change(rows);
      Saves saves;
      for (int round = 0; round < o_.rounds; ++round) {
        job.step(std::span(rows).first(1));
        save_once(job, 0.0, saves);
      }
      add_saves("a table of so many rows, all of them", changed, saves);
      std::filesystem::remove_all(folder());
    }
  }

  void measure_all(Job& job) {
    Saves saves;
    for (int round = 0; round < o_.rounds; ++round) {
      job.step(std::span(existing_).first(1));
      save_once(job, 0.0, saves);
    }
    add_saves("all rows that exist", o_.existing, saves);
  }

  void measure_changed(Job& job, std::int64_t changed) {
    Saves saves;
    for (int round = 0; round < o_.rounds; ++round) {
      job.change(some(changed));
      save_once(job, 1e9, saves);
    }
    add_saves("rows that have changed", changed, saves);
  }

  /// Steps beside a save, and without one.
  void measure_background(Job& job) {
    for (const bool of_all : {false, true}) {
      std::vector<double> cut, updates, total, alone, beside, longest, copies;
      for (int round = 0; round < o_.rounds; ++round) {
        const std::int64_t changed = std::min<std::int64_t>(o_.existing / 8, 1'000'000);
        job.change(some(changed));
        for (int i = 0; i < 10; ++i) {
          alone.push_back(job.step(some(o_.batch)));
        }
        auto save = job.begin_save(comm_, job.options(folder(), of_all ? 0.0 : 1e9));
        double slowest = 0.0;
        for (int i = 0; i < 10; ++i) {
          beside.push_back(job.step(some(o_.batch)));
          slowest = std::max(slowest, beside.back());
        }
        longest.push_back(slowest);
        save->finish();
        cut.push_back(save->costs().cut_s);
        updates.push_back(save->costs().updates_s);
        total.push_back(save->costs().total_s);
        copies.push_back(static_cast<double>(save->costs().copy_bytes));
      }
      const Parameters parameters = {{"what", of_all ? "all rows" : "changed rows"}};
      const auto plain = [&](const char* name, const char* unit, std::vector<double> values) {
        add_plain(name, unit, parameters, std::move(values));
      };
      plain("background_cut_s", "s", cut);
      plain("background_updates_s", "s", updates);
      plain("background_total_s", "s", total);
      plain("background_copy_bytes", "bytes", copies);
      plain("step_alone_s", "s", alone);
      plain("step_beside_s", "s", beside);
      plain("step_beside_longest_s", "s", longest);
    }
  }

  void measure_chains() {
    Job job(o_.rows, o_.dim, o_.batch);
    std::filesystem::remove_all(folder());
    const std::int64_t changed = o_.existing / 100;
    job.change(existing_);
    std::int64_t length = 0;
    for (const std::int64_t chain : o_.chains) {
      std::string path;
      while (length < chain) {
        if (length > 0) {
          job.change(some(changed));
        }
        path = job.save(comm_, job.options(folder(), length++ == 0 ? 0.0 : 1e9));
      }
      std::vector<double> seconds;
      for (int round = 0; round < std::min(o_.rounds, 3); ++round) {
        Job resumed(o_.rows, o_.dim, o_.batch);
        const Stopwatch watch;
        resumed.load(comm_, path);
        seconds.push_back(watch.spent().wall_s);
      }
      add({.name = "load_s",
           .parameters = {{"chain", std::to_string(chain)}},
           .unit = "s",
           .better = Better::kLower,
           .values = seconds,
           .limit = {}});
    }
  }

  /// Jobs that save alike, one with links.
  void measure_on_disk() {
    std::filesystem::remove_all(folder());
    std::vector<std::int64_t> all(at(o_.on_disk));
    std::iota(all.begin(), all.end(), 0);
    for (const auto links : {checkpoint::RowLinks::kNever, checkpoint::RowLinks::kWherePossible}) {
      const bool is_linked = links == checkpoint::RowLinks::kWherePossible;
      const std::string checkpoints = folder() + (is_linked ? "-linked" : "-copied");
      Job job(o_.on_disk, o_.dim, o_.batch, o_.directory + "/store");
      std::shuffle(all.begin(), all.end(), random_);
      job.change(all);
      for (const double share : {0.0, 1e9}) {
        for (const std::int64_t changed : o_.changed_on_disk) {
          std::vector<double> seconds, written, named;
          for (int round = 0; round < o_.rounds; ++round) {
            std::shuffle(all.begin(), all.end(), random_);
            job.change(std::span(all).first(at(std::min(changed, o_.on_disk))));
            checkpoint::SaveOptions options = job.options(checkpoints, share);
            options.links = links;
            const Stopwatch watch;
            const std::string path = job.save(comm_, options);
            seconds.push_back(watch.spent().wall_s);
            const checkpoint::SavedRows& saved = job.saved();
            written.push_back(static_cast<double>(saved.written_bytes + saved.copied_bytes));
            named.push_back(static_cast<double>(saved_bytes(path)));
          }
          const Parameters parameters = {{"what", share == 0.0 ? "all rows" : "changed rows"},
                                         {"changed", std::to_string(changed)},
                                         {"how", is_linked ? "linked" : "copied"}};
          add_plain("disk_save_s", "s", parameters, std::move(seconds));
          add_plain("disk_save_written_bytes", "bytes", parameters, std::move(written));
          add_plain("disk_save_named_bytes", "bytes", parameters, std::move(named));
        }
      }
      std::filesystem::remove_all(checkpoints);
    }
  }

  void add_plain(const char* name,
                 const char* unit,
                 const Parameters& parameters,
                 std::vector<double> values) {
    add({.name = name,
         .parameters = parameters,
         .unit = unit,
         .better = Better::kLower,
         .values = std::move(values),
         .limit = {}});
  }

  void add(Figure figure) {
    fmt::print("{}", to_text({figure}));
    std::fflush(stdout);
    figures_.push_back(std::move(figure));
  }

  Options o_;
  comm::Communicator& comm_;
  std::mt19937_64 random_{7};
  std::vector<std::int64_t> existing_;
  std::vector<Figure> figures_;
};

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  bool quick = false;
  weft::bench::Arguments arguments("Measures checkpoints by the rows that have changed");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--directory", options.directory, "A folder on the disk");
  arguments.add("--rounds", options.rounds, "Repetitions").within(1, 1000);
  arguments.add("--rows", options.rows, "Rows of the table").positive();
  arguments.add("--existing", options.existing, "Rows that exist").positive();
  arguments.add("--changed", options.changed, "Rows that change").positive();
  arguments.add("--on-disk", options.on_disk, "Rows over the tier on the disk").positive();
  arguments.add("--changed-on-disk", options.changed_on_disk, "Of these, rows that change")
      .positive();
  arguments.add_flag("--only-on-disk", options.only_on_disk, "Measure these alone");
  arguments.add("--chain", options.chains, "Saves of a chain, ascending").positive();
  arguments.add_flag("--quick", quick, "Only show that everything runs");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  if (quick) {
    options.rounds = 1;
    options.rows = 1'000'000;
    options.existing = 20'000;
    options.changed = {1000};
    options.chains = {1, 2};
    options.batch = 512;
    options.on_disk = 20'000;
    options.changed_on_disk = {1000};
  }
  try {
    weft::comm::run_local(1, {}, [&](weft::comm::Communicator& comm) {
      const auto figures = weft::bench::Bench(options, comm).run();
      if (!options.out.empty()) {
        weft::bench::write_json(options.out, "save", figures);
      }
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "save_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
