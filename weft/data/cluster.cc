#include "weft/data/cluster.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/data/grow.h"

namespace weft::data {
namespace {

constexpr std::int64_t kWhole = std::int64_t{1} << 30;  ///< the share of a part that has all keys
constexpr std::size_t kBlock = 64;

/// Rows of `width` values in another order.
template <typename T>
void permute_rows(std::span<const std::int64_t> order, std::vector<T>& rows, std::vector<T>& out) {
  if (order.empty()) {
    return;
  }
  resize_with_room(out, rows.size());
  const std::size_t width = rows.size() / order.size();
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(at(order[i]) * width), width,
                out.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  std::swap(rows, out);
}

}  // namespace

SampleClusterer::SampleClusterer(const spec::Config& config, const ClusterRuns& runs)
    : runs_(runs), table_(std::size_t{1} << table_bits_) {
  const std::int64_t c = runs.cluster_parts;
  WEFT_CHECK(
      c >= 1 && runs.own.begin % c == 0 && (runs.own.end % c == 0 || runs.own.end == runs.parts),
      "parts [{}, {}) of {} are no runs of {}", runs.own.begin, runs.own.end, runs.parts, c);
  std::vector<std::int64_t> first_keys(config.tables.size());
  std::int64_t next = 0;
  for (std::size_t t = 0; t < first_keys.size(); ++t) {
    first_keys[t] = next;
    next += config.tables[t].num_embeddings;
  }
  for (const spec::SparseFeature& feature : config.sparse_features) {
    first_keys_.push_back(first_keys[at(spec::table_index(config, feature))]);
  }
}

void SampleClusterer::cluster(Batch& batch) {
  find_order(batch);
  if (!std::is_sorted(order_.begin(), order_.end())) {
    apply_order(batch);
  }
}

/// Run by run: order_.
void SampleClusterer::find_order(const Batch& batch) {
  resize_with_room(order_, at(batch.size()));
  for (std::int64_t first = runs_.own.begin; first < runs_.own.end; first += runs_.cluster_parts) {
    const Range parts{first, std::min(first + runs_.cluster_parts, runs_.own.end)};
    const std::int64_t begin = part_samples(batch.global_size, runs_.parts, parts.begin).begin;
    const std::int64_t end = part_samples(batch.global_size, runs_.parts, parts.end - 1).end;
    const Range samples{begin - batch.positions.begin, end - batch.positions.begin};
    find_keys(batch, samples);
    fill_parts(batch, parts, samples);
  }
}

// ---- keys ------------------------------------------------------------------------------------

void SampleClusterer::begin_run() {
  keys_.clear();
  key_counts_.clear();
  key_marks_.clear();
  sample_keys_.clear();
  sample_begins_.clear();
  sample_begins_.push_back(0);
  if (++run_ == 0) {
    std::fill(table_.begin(), table_.end(), HashSlot{});
    run_ = 1;
  }
}

/// Which keys each sample has, each once, and which samples have a key.
void SampleClusterer::find_keys(const Batch& batch, Range samples) {
  begin_run();
  const KeyedJaggedTensor& sparse = batch.sparse;
  for (std::int64_t s = samples.begin; s < samples.end; ++s) {
    const auto sample = static_cast<std::int32_t>(s - samples.begin);
    for (std::size_t f = 0; f < first_keys_.size(); ++f) {
      const std::size_t bag = f * at(sparse.batch) + at(s);
      for (std::int64_t i = sparse.offsets[bag]; i < sparse.offsets[bag + 1]; ++i) {
        const std::int32_t key = index_of(first_keys_[f] + sparse.values[at(i)]);
        if (key_marks_[at(key)] != sample) {
          key_marks_[at(key)] = sample;
          ++key_counts_[at(key)];
          sample_keys_.push_back(key);
        }
      }
    }
    sample_begins_.push_back(static_cast<std::int64_t>(sample_keys_.size()));
  }
  drop_unshared_keys();
  list_samples_of_keys();
}

std::size_t SampleClusterer::first_slot(std::int64_t key) const {
  return at((static_cast<std::uint64_t>(key) * 0x9E3779B97F4A7C15U) >> (64 - table_bits_));
}

std::int32_t SampleClusterer::index_of(std::int64_t key) {
  const std::size_t mask = table_.size() - 1;
  std::size_t i = first_slot(key);
  for (; table_[i].run == run_; i = (i + 1) & mask) {
    if (table_[i].key == key) {
      return table_[i].index;
    }
  }
  const auto index = static_cast<std::int32_t>(keys_.size());
  table_[i] = {.key = key, .index = index, .run = run_};
  keys_.push_back(key);
  key_counts_.push_back(0);
  key_marks_.push_back(-1);
  if (2 * keys_.size() > table_.size()) {
    grow_table();
  }
  return index;
}

void SampleClusterer::grow_table() {
  ++table_bits_;
  table_.assign(std::size_t{1} << table_bits_, HashSlot{});
  const std::size_t mask = table_.size() - 1;
  for (std::size_t k = 0; k < keys_.size(); ++k) {
    std::size_t i = first_slot(keys_[k]);
    while (table_[i].run == run_) {
      i = (i + 1) & mask;
    }
    table_[i] = {.key = keys_[k], .index = static_cast<std::int32_t>(k), .run = run_};
  }
}

/// Wherever its one sample goes, such a key is in one part.
void SampleClusterer::drop_unshared_keys() {
  std::size_t kept = 0;
  std::size_t i = 0;
  for (std::size_t s = 1; s < sample_begins_.size(); ++s) {
    for (; i < at(sample_begins_[s]); ++i) {
      if (key_counts_[at(sample_keys_[i])] > 1) {
        sample_keys_[kept++] = sample_keys_[i];
      }
    }
    sample_begins_[s] = static_cast<std::int64_t>(kept);
  }
  sample_keys_.resize(kept);
}

void SampleClusterer::list_samples_of_keys() {
  resize_with_room(key_begins_, keys_.size() + 1);
  std::int64_t next = 0;
  for (std::size_t k = 0; k < keys_.size(); ++k) {
    key_begins_[k] = next;
    next += key_counts_[k] > 1 ? key_counts_[k] : 0;
  }
  key_begins_.back() = next;
  resize_with_room(key_samples_, at(next));
  for (std::size_t s = 0; s + 1 < sample_begins_.size(); ++s) {
    for (std::int64_t i = sample_begins_[s]; i < sample_begins_[s + 1]; ++i) {
      key_samples_[at(key_begins_[at(sample_keys_[at(i)])]++)] = static_cast<std::int32_t>(s);
    }
  }
  // Each begin has moved to its key's end.
  for (std::size_t k = keys_.size(); k > 0; --k) {
    key_begins_[k] = key_begins_[k - 1];
  }
  key_begins_.front() = 0;
}

// ---- parts -----------------------------------------------------------------------------------

/// Chooses the samples of every part; then each sample goes to the next place of its part.
void SampleClusterer::fill_parts(const Batch& batch, Range parts, Range samples) {
  const std::size_t count = at(samples.size());
  resize_with_room(units_, count);
  resize_with_room(shares_, count);
  resize_with_room(sample_parts_, count);
  resize_with_room(block_shares_, (count + kBlock - 1) / kBlock);
  resize_with_room(next_, at(parts.size()));
  for (std::size_t s = 0; s < count; ++s) {
    const std::int64_t keys = sample_begins_[s + 1] - sample_begins_[s];
    units_[s] = keys == 0 ? 0 : static_cast<std::int32_t>(kWhole / keys);
    shares_[s] = 0;
  }
  // What no other part has taken is left to the last.
  std::fill(sample_parts_.begin(), sample_parts_.end(),
            static_cast<std::int32_t>(parts.size() - 1));
  std::fill(key_marks_.begin(), key_marks_.end(), -1);
  forget_shares();
  for (std::int64_t p = 0; p < parts.size(); ++p) {
    const Range own = part_samples(batch.global_size, runs_.parts, parts.begin + p);
    next_[at(p)] = own.begin - batch.positions.begin;
    if (p + 1 < parts.size() && !own.empty()) {
      fill_part(static_cast<std::int32_t>(p), own.size());
    }
  }
  for (std::size_t s = 0; s < count; ++s) {
    order_[at(next_[at(sample_parts_[s])]++)] = samples.begin + static_cast<std::int64_t>(s);
  }
}

/// It begins with what the part before would have taken next.
void SampleClusterer::fill_part(std::int32_t part, std::int64_t size) {
  const std::int64_t first = best_sample();
  forget_shares();
  take(first, part);
  for (std::int64_t i = 1; i < size; ++i) {
    take(best_sample(), part);
  }
}

/// As of a part that has no key yet.
void SampleClusterer::forget_shares() {
  for (std::int32_t& share : shares_) {
    share = std::min(share, 0);
  }
  for (std::size_t b = 0; b < block_shares_.size(); ++b) {
    set_block(b);
  }
}

void SampleClusterer::set_block(std::size_t block) {
  const std::size_t end = std::min((block + 1) * kBlock, shares_.size());
  std::int32_t most = -1;
  for (std::size_t s = block * kBlock; s < end; ++s) {
    most = std::max(most, shares_[s]);
  }
  block_shares_[block] = most;
}

/// The first of those with the largest share.
std::int64_t SampleClusterer::best_sample() const {
  std::int32_t most = -1;
  for (const std::int32_t share : block_shares_) {
    most = std::max(most, share);
  }
  std::size_t s = 0;
  while (block_shares_[s / kBlock] < most) {
    s += kBlock;
  }
  while (shares_[s] < most) {
    ++s;
  }
  return static_cast<std::int64_t>(s);
}

void SampleClusterer::take(std::int64_t sample, std::int32_t part) {
  sample_parts_[at(sample)] = part;
  shares_[at(sample)] = -1;
  set_block(at(sample) / kBlock);
  for (std::int64_t i = sample_begins_[at(sample)]; i < sample_begins_[at(sample) + 1]; ++i) {
    const std::size_t key = at(sample_keys_[at(i)]);
    if (key_marks_[key] == part) {
      continue;
    }
    key_marks_[key] = part;
    raise_shares(key);
  }
}

/// Of the samples that have the key and are in no part; those that are leave its list.
void SampleClusterer::raise_shares(std::size_t key) {
  std::int32_t* const first = key_samples_.data() + key_begins_[key];
  std::int32_t left = key_counts_[key];
  for (std::int32_t k = 0; k < left;) {
    const std::size_t sample = at(first[k]);
    if (shares_[sample] < 0) {
      first[k] = first[--left];
      continue;
    }
    shares_[sample] += units_[sample];
    std::int32_t& block = block_shares_[sample / kBlock];
    block = std::max(block, shares_[sample]);
    ++k;
  }
  key_counts_[key] = left;
}

// ---- samples ---------------------------------------------------------------------------------

void SampleClusterer::apply_order(Batch& batch) {
  permute_rows(order_, batch.sample_ids, spare_.sample_ids);
  permute_rows(order_, batch.dense, spare_.dense);
  permute_rows(order_, batch.labels, spare_.labels);
  permute_rows(order_, batch.label_weights, spare_.label_weights);
  permute_bags(batch.sparse);
}

void SampleClusterer::permute_bags(KeyedJaggedTensor& sparse) {
  KeyedJaggedTensor& out = spare_.sparse;
  resize_with_room(out.offsets, sparse.offsets.size());
  resize_with_room(out.values, sparse.values.size());
  resize_with_room(out.weights, sparse.weights.size());
  out.offsets.front() = 0;
  std::size_t bag = 0;
  for (std::int64_t f = 0; f < sparse.num_features(); ++f) {
    for (const std::int64_t sample : order_) {
      const auto begin = static_cast<std::ptrdiff_t>(sparse.offsets[at(f * sparse.batch + sample)]);
      const std::int64_t length = sparse.offsets[at(f * sparse.batch + sample) + 1] - begin;
      const std::ptrdiff_t to = out.offsets[bag];
      std::copy_n(sparse.values.begin() + begin, length, out.values.begin() + to);
      if (!sparse.weights.empty()) {
        std::copy_n(sparse.weights.begin() + begin, length, out.weights.begin() + to);
      }
      out.offsets[++bag] = to + length;
    }
  }
  std::swap(sparse.offsets, out.offsets);
  std::swap(sparse.values, out.values);
  std::swap(sparse.weights, out.weights);
}

}  // namespace weft::data
