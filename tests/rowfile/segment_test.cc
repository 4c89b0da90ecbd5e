// Segments that are written and read again: layouts, streams, tombstones, rows in memory.
#include <limits>

#include "tests/rowfile/segment_support.h"
#include "weft/rowfile/block.h"

namespace weft::rowfile {
namespace {

using io::FaultyFileSystem;

TEST(SegmentLayout, RowsAndBlocksOfAGroup) {
  EXPECT_EQ(rows_per_group(1), 4080);
  EXPECT_EQ(rows_per_group(68), 60);
  EXPECT_EQ(rows_per_group(260), 15);
  EXPECT_EQ(rows_per_group(4080), 1);
  EXPECT_EQ(rows_per_group(4081), 1);
  EXPECT_EQ(blocks_per_group(1), 1);
  EXPECT_EQ(blocks_per_group(2040), 1);
  EXPECT_EQ(blocks_per_group(4080), 1);
  EXPECT_EQ(blocks_per_group(4081), 2);
  EXPECT_EQ(blocks_per_group(8176), 2);
  EXPECT_EQ(blocks_per_group(8177), 3);
  EXPECT_EQ(offset_of({3, 2}, 260), 3 * 4096 + 16 + 2 * 260);
  EXPECT_EQ(offset_of({std::numeric_limits<std::uint32_t>::max(), 0}, 8),
            std::int64_t{0xffffffff} * 4096 + 16);
}

class RowLengths : public testing::TestWithParam<std::int64_t> {};

TEST_P(RowLengths, ComeBackAsTheyWereWritten) {
  const std::int64_t row_bytes = GetParam();
  FaultyFileSystem files;
  State wanted;
  std::vector<Place> places;
  const std::vector<RowId> ids = range(100, 100 + 3 * rows_per_group(row_bytes) / 2 + 4);
  {
    SegmentWriter writer(files, kPath, {{42, row_bytes}});
    places.resize(ids.size());
    writer.append(0, ids, rows_of(ids, row_bytes), places);
    EXPECT_EQ(writer.rows(), static_cast<std::int64_t>(ids.size()));
    const std::int64_t bytes = writer.bytes();
    writer.seal();
    EXPECT_EQ(writer.bytes(), bytes);
    EXPECT_EQ(files.status(kPath).bytes, bytes);
  }
  for (const RowId id : ids) {
    wanted[{0, id}] = row_of(id, row_bytes);
  }
  EXPECT_EQ(state_of(files), wanted);
  const SegmentReader reader(files, kPath);
  EXPECT_EQ(reader.streams(), (std::vector<Stream>{{42, row_bytes}}));
  EXPECT_EQ(reader.rows(), static_cast<std::int64_t>(ids.size()));
  Bytes group(static_cast<std::size_t>(group_bytes(row_bytes)));
  const std::string all = load(files);
  for (std::size_t i = 0; i < ids.size(); i += 1 + ids.size() / 7) {
    const Bytes row = row_of(ids[i], row_bytes);
    EXPECT_GT(reader.read_group(0, places[i].block, group), places[i].row);
    const auto offset = static_cast<std::size_t>(offset_in_group(places[i].row, row_bytes));
    EXPECT_TRUE(std::equal(row.begin(), row.end(), group.begin() + static_cast<long>(offset)));
    EXPECT_EQ(std::memcmp(all.data() + offset_of(places[i], row_bytes), row.data(), row.size()), 0);
    EXPECT_EQ(find_group_fault(group, places[i].block, 0, row_bytes), "");
    EXPECT_NE(find_group_fault(group, places[i].block + 1, 0, row_bytes), "") << "another place";
    EXPECT_NE(find_group_fault(group, places[i].block, 1, row_bytes), "") << "another stream";
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths,
                         RowLengths,
                         testing::Values(1, 4, 68, 260, 4080, 4081, 10000, 3 << 20));

TEST(Segment, MayBeEmpty) {
  FaultyFileSystem files;
  SegmentWriter writer(files, kPath, {{1, 4}});
  writer.seal();
  EXPECT_EQ(writer.bytes(), 2 * kBlockBytes);
  EXPECT_TRUE(state_of(files).empty());
}

TEST(Segment, EveryIdOf64BitsIsPossible) {
  FaultyFileSystem files;
  const std::vector<RowId> ids = {0, ~RowId{0}, RowId{1} << 63, 0xffffffff, 0x100000000};
  SegmentWriter writer(files, kPath, {{~std::uint64_t{0}, 8}});
  writer.append(0, ids, rows_of(ids, 8));
  writer.remove(0, std::vector<RowId>{~RowId{0}});
  writer.seal();
  const State state = state_of(files);
  ASSERT_EQ(state.size(), ids.size());
  EXPECT_TRUE(state.at({0, ~RowId{0}}).empty());
  EXPECT_EQ(state.at({0, RowId{1} << 63}), row_of(RowId{1} << 63, 8));
}

TEST(Segment, LaterOfAnIdHolds) {
  FaultyFileSystem files;
  const std::vector<RowId> five = {5};
  const std::vector<RowId> six = {6};
  {
    SegmentWriter writer(files, kPath, {{1, 100}});
    writer.remove(0, five);
    writer.append(0, five, rows_of(five, 100, 1));
    writer.append(0, five, rows_of(five, 100, 2));
    writer.append(0, six, rows_of(six, 100));
    writer.remove(0, six);
    writer.append(0, range(7, 100), rows_of(range(7, 100), 100));
    writer.remove(0, range(7, 9));
    writer.append(0, range(8, 9), rows_of(range(8, 9), 100, 3));
    writer.seal();
  }
  const State state = state_of(files);
  EXPECT_EQ(state.at({0, 5}), row_of(5, 100, 2));
  EXPECT_TRUE(state.at({0, 6}).empty());
  EXPECT_TRUE(state.at({0, 7}).empty());
  EXPECT_EQ(state.at({0, 8}), row_of(8, 100, 3));
}

TEST(Segment, ManyStreamsHaveAHeaderOfSeveralBlocks) {
  FaultyFileSystem files;
  std::vector<Stream> streams;
  for (std::uint64_t i = 0; i < 856; ++i) {
    streams.push_back({i << 40, static_cast<std::int64_t>(4 + i)});
  }
  SegmentWriter writer(files, kPath, streams);
  State wanted;
  for (std::uint64_t round = 0; round < 40; ++round) {
    for (std::size_t s = 0; s < streams.size(); s += 1 + s % 3) {
      const std::vector<RowId> ids = {round % 13 + s};
      writer.append(s, ids, rows_of(ids, streams[s].row_bytes, round));
      wanted[{s, ids[0]}] = row_of(ids[0], streams[s].row_bytes, round);
    }
  }
  writer.seal();
  EXPECT_EQ(SegmentReader(files, kPath).streams(), streams);
  EXPECT_EQ(state_of(files), wanted);
}

/// What is not in memory must lie in the file, whole, while the segment is not sealed yet.
TEST(Segment, RowsAreReadBeforeTheSeal) {
  FaultyFileSystem files;
  const std::vector<Stream> streams = {{1, 300}, {2, 12}, {3, 700'000}};
  SegmentWriter writer(files, kPath, streams);
  std::vector<std::pair<std::size_t, Place>> places;
  for (RowId id = 0; id < 4000; ++id) {
    const std::size_t stream = id % 500 == 7 ? 2 : id % 400 == 3 ? 1 : 0;
    const std::vector<RowId> ids = {id};
    std::vector<Place> place(1);
    writer.append(stream, ids, rows_of(ids, streams[stream].row_bytes), place);
    places.emplace_back(stream, place[0]);
    for (RowId back = id > 5 ? id - 5 : 0; back <= id; back += 1 + id % 2) {
      const auto [s, at] = places[back];
      const auto row = writer.buffered_row(s, at);
      ASSERT_EQ(Bytes(row.begin(), row.end()), row_of(back, streams[s].row_bytes));
    }
  }
  const std::string written = load(files);
  EXPECT_GT(written.size(), std::size_t{1} << 20);
  EXPECT_EQ(written.size() % (std::size_t{1} << 20), 0U) << "writes have 1 MiB";
  std::int64_t in_file = 0;
  for (RowId id = 0; id < places.size(); ++id) {
    const auto [s, place] = places[id];
    const auto row_bytes = streams[s].row_bytes;
    if (!writer.buffered_row(s, place).empty()) {
      continue;
    }
    ++in_file;
    const std::int64_t begin = place.block * kBlockBytes;
    ASSERT_LE(static_cast<std::size_t>(begin + group_bytes(row_bytes)), written.size());
    const auto group = std::as_bytes(std::span(written))
                           .subspan(static_cast<std::size_t>(begin),
                                    static_cast<std::size_t>(group_bytes(row_bytes)));
    ASSERT_EQ(find_group_fault(group, place.block, static_cast<std::int64_t>(s), row_bytes), "");
  }
  EXPECT_GT(in_file, 1000);
  writer.seal();
  EXPECT_TRUE(writer.buffered_row(0, places.back().second).empty());
  EXPECT_EQ(refusal(files), "");
}

/// More than one chunk of the footer, and of the walk's window.
TEST(Segment, LargeFootersAreReadInPieces) {
  FaultyFileSystem files;
  constexpr RowId kRows = 400'000;
  SegmentWriter writer(files, kPath, {{1, 4}, {2, 16}});
  for (RowId id = 0; id < kRows; id += 1000) {
    writer.append(id / 1000 % 2, range(id, id + 1000),
                  rows_of(range(id, id + 1000), id / 1000 % 2 == 0 ? 4 : 16));
  }
  writer.remove(1, range(0, 100'000));
  writer.seal();
  const SegmentReader reader(files, kPath);
  EXPECT_EQ(reader.rows(), static_cast<std::int64_t>(kRows));
  EXPECT_EQ(reader.tombstones(), 100'000);
  reader.verify();
  RowId found = 0;
  reader.for_each_group([&](const GroupIds& group) {
    for (const RowId id : group.ids) {
      found += id / 1000 % 2 == group.stream ? 1 : 0;
    }
  });
  EXPECT_EQ(found, kRows);
  RowId next = 0;
  reader.for_each_tombstone([&](std::size_t stream, std::span<const Tombstone> tombstones) {
    EXPECT_EQ(stream, 1U);
    for (const Tombstone& tombstone : tombstones) {
      EXPECT_EQ(tombstone.id, next++);
    }
  });
  EXPECT_EQ(next, 100'000U);
}

TEST(Segment, MisuseIsAnErrorOfOurs) {
  FaultyFileSystem files;
  EXPECT_THROW(SegmentWriter(files, kPath, {}), Error);
  EXPECT_THROW(SegmentWriter(files, kPath, {{1, 0}}), Error);
  EXPECT_THROW(SegmentWriter(files, kPath, {{1, kMaxRowBytes + 1}}), Error);
  EXPECT_THROW(SegmentWriter(files, kPath, {{1, 4}, {1, 8}}), Error);
  SegmentWriter writer(files, kPath, {{1, 4}});
  EXPECT_THROW(writer.append(1, {}, {}), Error);
  EXPECT_THROW(writer.append(0, range(0, 2), Bytes(7)), Error);
  writer.seal();
  EXPECT_THROW(writer.append(0, {}, {}), Error);
  EXPECT_THROW(writer.seal(), Error);
  EXPECT_THROW(SegmentWriter(files, kPath, {{1, 4}}), Error) << "the name is taken";
  const SegmentReader reader(files, kPath);
  Bytes group(4096);
  EXPECT_THROW(static_cast<void>(reader.read_group(0, 0, group)), Error);
  EXPECT_THROW(static_cast<void>(reader.read_group(0, 1, group)), Error);
}

}  // namespace
}  // namespace weft::rowfile
