/// Where two checkpoints differ: to the row and column.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/checkpoint/checkpoint_reader.h"

namespace weft::checkpoint {

/// A value that is not the same in both, as texts.
struct ValueDifference {
  std::string name;
  std::string a;
  std::string b;
};

/// The first element of an item that differs, both as "0.5 (3f000000)": the value and its bits.
struct ElementDifference {
  std::int64_t row = 0;
  std::int64_t col = 0;
  std::string a;
  std::string b;
};

/// An item that is not the same in both.
struct ItemDifference {
  std::string item;   ///< item_name()
  std::string shape;  ///< "only in A", or both shapes where they differ; then nothing is compared
  std::int64_t rows = 0;  ///< with a difference
  std::int64_t rows_compared = 0;
  std::int64_t rows_only_a = 0;  ///< of listed rows: stored in one alone, and counted in `rows` too
  std::int64_t rows_only_b = 0;
  std::optional<ElementDifference> first = {};  ///< none where no row is stored in both and differs
};

/// All differences of two checkpoints.
struct Difference {
  std::vector<ValueDifference> metadata;  ///< what decides results or belongs to them
  std::vector<ValueDifference> notes;     ///< what does not: job, ranks, plan, writer
  std::vector<ItemDifference> items;      ///< in the order of A, then those that only B has
  std::int64_t items_compared = 0;
  std::int64_t bytes_compared = 0;  ///< of A

  /// Whether a job would go on from both with the same bits. Notes do not count.
  [[nodiscard]] bool is_equal() const { return metadata.empty() && items.empty(); }
};

/// The differences of their items. A row that one alone has stored counts as different: it has its
/// initial value in the other, which nothing here can make, so a checkpoint of all rows differs
/// from one of those that have changed, also where both load to the same state. Bits are compared,
/// so 0 and -0 differ and two NaN of the same bits do not. Memory: two streams.
void compare_items(const ItemSource& a, const ItemSource& b, Difference& out);

/// Metadata, blobs (by their checksums), rules of initial values where neither has all rows of a
/// table, and items. Throws Error(kCheckpoint) where either is
/// damaged, whatever else was found.
Difference compare(const CheckpointReader& a, const CheckpointReader& b);

/// For people: names, values, the first difference, and counts of rows by item. Ends with a line's
/// end.
std::string to_text(const Difference& difference, const std::string& a, const std::string& b);

}  // namespace weft::checkpoint
