/// What a manifest says of tables whose rows are in segments: docs/checkpoint_format.md, "Rows".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/cut.h"
#include "weft/base/parts.h"
#include "weft/tensor/row_streams.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// What the ids of a table's rows are.
enum class RowIds : std::uint8_t {
  kNumbers,  ///< numbers of rows, below the table's rows
  kRaw,      ///< any 64 bits, of a table that grows; it has no number of rows
};

/// A table whose rows lie in segments. A row that is in none of them has its initial value.
struct StoredTable {
  std::string parameter;
  RowIds ids = RowIds::kNumbers;
  std::int64_t rows = 0;       ///< 0 of raw ids
  bool has_all_rows = false;   ///< each of them is in some segment
  InitialRule initial;         ///< of rows that are in none
  std::vector<RowItem> items;  ///< in the order of a packed row; the first is the weights
  std::vector<RowStream> streams;

  friend bool operator==(const StoredTable&, const StoredTable&) = default;
};

/// Which ranks wrote which rows of a stream.
struct StreamCut {
  std::int64_t table = 0;   ///< index into Manifest::tables
  std::int64_t stream = 0;  ///< index into its streams, whose columns are the rule's
  CutRule rule;

  friend bool operator==(const StreamCut&, const StreamCut&) = default;
};

/// Who wrote what in one save. For each table the blocks cover it exactly once.
using RowLayout = std::vector<StreamCut>;

/// One segment of a save.
struct SegmentFile {
  std::int64_t rank = 0;    ///< that wrote it
  std::int64_t number = 0;  ///< of the rank's segments of the save, which come in this order
  std::int64_t bytes = 0;
  /// Of its first stream, where the file was made under another name than it has here, by a store
  /// of rows; 0: name_key() of its name.
  std::uint64_t key = 0;

  friend bool operator==(const SegmentFile&, const SegmentFile&) = default;
};

/// The segments of one save.
struct SegmentSet {
  std::string prefix;           ///< of their names
  std::int64_t layout = 0;      ///< index into Manifest::layouts
  std::int64_t rows = 0;        ///< in all of them
  std::int64_t tombstones = 0;  ///< in all of them
  std::vector<SegmentFile> files;

  /// Bytes of all its files.
  [[nodiscard]] std::int64_t bytes() const;

  friend bool operator==(const SegmentSet&, const SegmentSet&) = default;
};

/// The directory of segments, beside the checkpoints.
inline constexpr std::string_view kRowsName = "rows";

/// The name of a file of a set: PREFIX-RANK-NUMBER.rows.
std::string segment_name(const std::string& prefix, const SegmentFile& file);

/// The columns of item `index` of the table in the packed rows of `stream`.
Range item_cols(const StoredTable& table, const RowStream& stream, std::size_t index);

/// Bytes of a packed row.
std::int64_t packed_bytes(const StoredTable& table, const RowStream& stream);

/// The key of a stream in segments: a hash of what its rows are.
std::uint64_t stream_key(const StoredTable& table, const RowStream& stream);

/// The key of the first stream, which has no rows, of a segment that was made under this name: a
/// segment in another's place is found by it.
std::uint64_t name_key(std::string_view name);

/// A hash of the table without its streams and without has_all_rows: what must be equal for rows of
/// two saves to be of one table.
std::uint64_t table_key(const StoredTable& table);

}  // namespace weft::checkpoint
