/// Private to checkpoint/: what the ranks of a save tell rank 0, in binary, and the manifest that
/// it makes of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "weft/base/error.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/manifest.h"

namespace weft::checkpoint {

/// Numbers and texts as bytes, for a reader of the same build.
class ByteWriter {
 public:
  template <typename T>
  void put(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  void put(const std::string& text) {
    put(text.size());
    bytes_ += text;
  }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads what a ByteWriter has put, in its order.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T take() {
    if constexpr (std::is_same_v<T, std::string>) {
      return std::string(cut(take<std::size_t>()));
    } else {
      T value{};
      cut(sizeof value).copy(reinterpret_cast<char*>(&value), sizeof value);
      return value;
    }
  }

  [[nodiscard]] bool is_at_end() const { return bytes_.empty(); }

 private:
  std::string_view cut(std::size_t size) {
    WEFT_CHECK(size <= bytes_.size(), "a message of a rank is cut");
    const std::string_view out = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return out;
  }

  std::string_view bytes_;
};

/// Rows of one shard that a rank has written; files that are linked have more.
struct RankRows {
  std::uint64_t key = 0;  ///< stream_key()
  RowSet rows;            ///< of the shard
  std::int64_t written = 0;
};

/// What one rank has written.
struct RankTable {
  std::int64_t file_bytes = 0;      ///< of its data file; 0 = it has none
  std::vector<StoredItem> items;    ///< their blocks are in this file
  std::vector<StoredTable> tables;  ///< one for each shard that has row 0, with its stream
  std::vector<RankRows> rows;       ///< of each shard
  std::vector<SegmentFile> segments;
  std::int64_t segment_rows = 0;  ///< in them

  [[nodiscard]] std::string encode() const;
  static RankTable decode(std::string_view bytes);
};

/// The name of a rank's data file.
std::string data_file_name(std::int64_t rank);

/// Options of merge().
struct MergeOptions {
  Metadata metadata;
  std::string prefix;              ///< of the names of new segments; empty = there are no tables
  std::optional<Manifest> parent;  ///< whose segments come before the new ones; none = full
};

/// The manifest of what the ranks, whose number is in the metadata, have written. Throws where they
/// disagree; whether blocks cover their items is left to find_fault().
Manifest merge(const MergeOptions& options, const Gathered& tables);

}  // namespace weft::checkpoint
