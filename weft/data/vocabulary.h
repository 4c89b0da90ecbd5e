/// Vocabularies: the mapping of raw ids to rows that is built from the training data.
///
/// One per table that a `mapping: vocabulary` feature reads; features that share a table share its
/// vocabulary, and their counts are added. Rows 1, 2, .. go to the ids by descending count, then
/// ascending id; row 0 is that of every rare or unknown id.
///
/// Determinism  depends on the samples only, not on their order.
/// Source       the frequency threshold is that of MLPerf's Criteo preprocessing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/thread_pool.h"
#include "weft/base/work_progress.h"
#include "weft/spec/config.h"

namespace weft::data {

class Source;

/// The ids of one table. Immutable.
class Vocabulary {
 public:
  /// ids[k] gets row k + 1. Throws Error(kData) where an id appears twice.
  Vocabulary(std::string table, std::vector<std::int64_t> ids);

  [[nodiscard]] const std::string& table() const { return table_; }

  /// Ids in row order, from row 1.
  [[nodiscard]] std::span<const std::int64_t> ids() const { return ids_; }

  /// ids + 1: the rows the table must have at least.
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(ids_.size()) + 1; }

  /// Row of an id, 0 where it has none. O(1), no allocation.
  [[nodiscard]] std::int64_t row(std::int64_t id) const;

  /// rows[i] = row(ids[i]). Faster than one by one: the places of the next are fetched meanwhile.
  void rows_of(std::span<const std::int64_t> ids, std::span<std::int64_t> rows) const;

  friend bool operator==(const Vocabulary& a, const Vocabulary& b) {
    return a.table_ == b.table_ && a.ids_ == b.ids_;
  }

 private:
  std::string table_;

  struct Slot {
    std::int64_t id = 0;
    std::int64_t row = 0;  ///< 0 = free
  };

  std::vector<std::int64_t> ids_;
  std::vector<Slot> slots_;  ///< open addressing
  std::uint64_t mask_ = 0;
};

/// The vocabularies of a configuration, in the order of its tables.
class Vocabularies {
 public:
  Vocabularies() = default;
  explicit Vocabularies(std::vector<Vocabulary> items);

  /// Null where the table has none.
  [[nodiscard]] const Vocabulary* find(std::string_view table) const;

  [[nodiscard]] std::span<const Vocabulary> items() const { return items_; }

  [[nodiscard]] bool empty() const { return items_.empty(); }

  /// Version, contents and checksum, little-endian; parse(serialize()) == *this.
  [[nodiscard]] std::vector<std::byte> serialize() const;

  /// Throws Error(kData) for a cut, damaged or newer image; `name` is where it came from.
  static Vocabularies parse(std::span<const std::byte> bytes, std::string_view name);

  friend bool operator==(const Vocabularies&, const Vocabularies&) = default;

 private:
  std::vector<Vocabulary> items_;
};

/// True where some feature maps by vocabulary.
bool needs_vocabularies(const spec::Config& config);

/// Counts the ids of all vocabulary features in one pass over `train` (rewound before; its column
/// selection changes) and keeps those seen at least min_count times. Where more remain than the
/// table has rows, the most frequent are kept and a warning names the size needed.
/// Throws Error(kConfig) where features of one table differ in min_count.
/// Cost: 16 to 32 bytes per distinct id while counting, and about 10 ns per id. `pool`, where
/// given, decodes and counts; `progress` moves with the bytes and blocks that are read.
Vocabularies build_vocabularies(Source& train,
                                const spec::Config& config,
                                ThreadPool* pool = nullptr,
                                WorkProgress* progress = nullptr);

/// Throws Error(kConfig) naming a table whose vocabulary is missing or larger than the table.
void check_vocabularies(const Vocabularies& vocabularies, const spec::Config& config);

}  // namespace weft::data
