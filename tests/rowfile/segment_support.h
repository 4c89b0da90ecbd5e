/// Rows that a test can make again, operations on segments, and what a segment holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/io/faulty_file_system.h"
#include "weft/base/hash.h"
#include "weft/rowfile/segment_reader.h"
#include "weft/rowfile/segment_writer.h"

namespace weft::rowfile {

using Bytes = std::vector<std::byte>;

inline constexpr const char* kPath = "/one.rows";

/// The row of an id; `life` makes later ones of the same id differ.
inline Bytes row_of(RowId id, std::int64_t row_bytes, std::uint64_t life = 0) {
  Bytes row(static_cast<std::size_t>(row_bytes));
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<std::byte>(mix64(id + 0x9e3779b97f4a7c15ULL * (i / 8 + 1) + life) >>
                                    (i % 8 * 8));
  }
  return row;
}

/// The rows of several ids back to back.
inline Bytes rows_of(const std::vector<RowId>& ids,
                     std::int64_t row_bytes,
                     std::uint64_t life = 0) {
  Bytes rows;
  for (const RowId id : ids) {
    const Bytes row = row_of(id, row_bytes, life);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

inline std::vector<RowId> range(RowId begin, RowId end) {
  std::vector<RowId> ids;
  for (RowId id = begin; id < end; ++id) {
    ids.push_back(id);
  }
  return ids;
}

/// The latest row of each id of each stream; an empty one is a tombstone.
using State = std::map<std::pair<std::size_t, RowId>, Bytes>;

/// Brings a state up to what a segment says, as a store would after a start.
inline void replay(const SegmentReader& reader, State& state) {
  std::map<std::pair<std::size_t, RowId>, Place> places;
  reader.for_each_row([&](const GroupRows& found) {
    const GroupIds& group = found.group;
    const auto row_bytes = static_cast<std::size_t>(reader.streams()[group.stream].row_bytes);
    ASSERT_EQ(found.rows.size(), group.ids.size() * row_bytes);
    for (std::size_t i = 0; i < group.ids.size(); ++i) {
      const auto row = found.rows.subspan(i * row_bytes, row_bytes);
      state[{group.stream, group.ids[i]}] = Bytes(row.begin(), row.end());
      places[{group.stream, group.ids[i]}] = {group.block, static_cast<std::uint32_t>(i)};
    }
  });
  reader.for_each_tombstone([&](std::size_t stream, std::span<const Tombstone> tombstones) {
    for (const Tombstone& tombstone : tombstones) {
      const auto place = places.find({stream, tombstone.id});
      if (place == places.end() || place->second < tombstone.before) {
        state[{stream, tombstone.id}] = {};
      }
    }
  });
}

inline State state_of(io::FileSystem& files, const std::string& path = kPath) {
  State state;
  const SegmentReader reader(files, path);
  reader.verify();
  replay(reader, state);
  return state;
}

/// The bytes of a file.
inline std::string load(io::FileSystem& files, const std::string& path = kPath) {
  std::string bytes;
  EXPECT_FALSE(io::read_file(files, path, std::int64_t{1} << 30, bytes));
  return bytes;
}

inline void store(io::FileSystem& files, const std::string& bytes) {
  EXPECT_FALSE(io::write_file(files, kPath, bytes));
}

/// The message with which a file is refused when it is opened or, if not then, verified; empty if
/// it is not.
inline std::string refusal(io::FileSystem& files, const std::string& path = kPath) {
  try {
    SegmentReader(files, path).verify();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
    return error.what();
  }
}

/// Two streams, a few blocks of each, an id that comes twice, one that is removed.
inline void write_small(io::FileSystem& files) {
  SegmentWriter writer(files, kPath, {{7, 260}, {9, 5000}});
  writer.append(0, range(0, 20), rows_of(range(0, 20), 260));
  writer.append(1, range(0, 2), rows_of(range(0, 2), 5000));
  writer.append(0, range(3, 5), rows_of(range(3, 5), 260, 1));
  writer.remove(0, range(6, 7));
  writer.seal();
}

}  // namespace weft::rowfile
