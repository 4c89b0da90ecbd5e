// Tables whose rows are in segments: any layout to any other, chains of increments, what they cost.
#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/memory_rows.h"
#include "tests/io/faulty_file_system.h"

namespace weft::checkpoint {
namespace {

/// How a test holds the tables.
struct Cut {
  std::uint32_t seed = 1;
  int ranks = 1;
  Holding holding = Holding::kDrawn;
};

/// Saves tables with these values, and a few dense matrices.
void save_versions(const SaveOptions& options,
                   const std::vector<Table>& tables,
                   const Versions& versions,
                   const Cut& cut) {
  comm::run_local(cut.ranks, {}, [&](comm::Communicator& world) {
    Context ctx;
    const RankTables own = make_tables(tables, cut.seed, cut.ranks, world.rank(), cut.holding);
    apply(own, {}, versions);
    MemoryState dense = make_state(small_matrices(), cut.seed, cut.ranks, world.rank());
    dense.fill();
    auto sources = sources_of(own);
    sources.push_back(&dense);
    save(world, ctx, options, sources);
  });
}

/// Loads them in another cut; returns how many rows and bytes differ.
std::int64_t load_versions(const std::string& path,
                           const std::vector<Table>& tables,
                           const Versions& versions,
                           const Cut& cut) {
  std::atomic<std::int64_t> sum = 0;
  comm::run_local(cut.ranks, {}, [&](comm::Communicator& world) {
    Context ctx;
    const RankTables own = make_tables(tables, cut.seed, cut.ranks, world.rank(), cut.holding);
    MemoryState dense = make_state(small_matrices(), cut.seed, cut.ranks, world.rank());
    auto sinks = sinks_of(own);
    sinks.push_back(&dense);
    load(world, ctx, {path}, sinks);
    sum += differences(own, versions) + dense.differences();
  });
  return sum;
}

std::vector<Table> without_halves(std::vector<Table> tables) {
  for (Table& table : tables) {
    table.dtype = table.dtype == DType::kSplitBFloat16 ? DType::kFloat32 : table.dtype;
  }
  return tables;
}

TEST(Rows, AnyRanksAndLayoutToAnyOther) {
  const auto tables = small_tables();
  std::uint32_t seed = 100;
  for (const int writers : {1, 2, 3, 4}) {
    for (const Holding holding : {Holding::kDense, Holding::kSparse, Holding::kDrawn}) {
      const TemporaryDirectory directory;
      Versions versions;
      draw_updates(tables, ++seed, 30, versions);
      save_versions(save_options(directory.path(), 10), tables, versions,
                    {++seed, writers, holding});
      for (const int readers : {1, 2, 4}) {
        for (const Holding to : {Holding::kDense, Holding::kSparse}) {
          const Cut cut{++seed, readers, to};
          EXPECT_EQ(load_versions(directory.path(), tables, versions, cut), 0)
              << writers << " to " << readers << ", seed " << seed;
        }
      }
      // Halves and words are one type of item.
      EXPECT_EQ(load_versions(directory.path(), without_halves(tables), versions,
                              {++seed, 3, Holding::kSparse}),
                0);
    }
  }
}

TEST(Rows, OfASparseTableOnlyThoseThatExist) {
  const std::vector<Table> tables = {{"rows.a", 1000, 8}};
  const TemporaryDirectory directory;
  Versions versions;
  for (const std::int64_t row : {3, 500, 999}) {
    versions[{"rows.a", row}] = 1;
  }
  save_versions(save_options(directory.path(), 10), tables, versions, {1, 2, Holding::kSparse});
  const Manifest manifest = read_manifest(directory.path());
  ASSERT_EQ(manifest.tables.size(), 1U);
  EXPECT_FALSE(manifest.tables[0].has_all_rows);
  ASSERT_EQ(manifest.segments.size(), 1U);
  EXPECT_EQ(manifest.segments[0].rows, 3);
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryRows rows(tables[0], {.rows = {0, 1000}, .cols = {0, 8}, .sparse = true});
    StateSink* sink = &rows;
    load(world, ctx, {directory.path(), ExtraItems::kIgnore}, std::span(&sink, 1));
    EXPECT_EQ(rows.existing(), 3);
    EXPECT_EQ(rows.differences(versions), 0);
  });
}

/// Rows that are not there are made anew: not by another rule.
TEST(Rows, AnotherRuleOfInitialValuesIsRefusedByName) {
  std::vector<Table> tables = {{"rows.a", 50, 8}};
  const TemporaryDirectory directory;
  const Versions versions{{{"rows.a", 3}, 1}};
  save_versions(save_options(directory.path(), 10), tables, versions, {1, 2, Holding::kSparse});
  tables[0].initial.key = 78;
  EXPECT_TRUE(says(checkpoint_error([&] {
                     load_versions(directory.path(), tables, versions, {1, 2, Holding::kDense});
                   }),
                   {"rows of rows.a that were never changed are not in the checkpoint"}));
  // Where all rows are there it does not matter.
  const TemporaryDirectory whole;
  tables[0].initial.key = 77;
  save_versions(save_options(whole.path(), 10), tables, versions, {1, 2, Holding::kDense});
  EXPECT_TRUE(read_manifest(whole.path()).tables[0].has_all_rows);
  tables[0].initial.key = 78;
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryRows rows(tables[0], {.rows = {0, 50}, .cols = {0, 8}, .sparse = true});
    StateSink* sink = &rows;
    load(world, ctx, {whole.path(), ExtraItems::kIgnore}, std::span(&sink, 1));
    EXPECT_EQ(rows.existing(), 50);
  });
}

TEST(Rows, ManyWritersAndSegments) {
  const std::vector<Table> tables = {{"rows.a", 30'000, 4, DType::kFloat32, RowExtra::kOfRow},
                                     {"rows.b", 9'000, 2}};
  const TemporaryDirectory directory;
  Versions versions;
  draw_updates(tables, 5, 100, versions);
  SaveOptions options = save_options(directory.path(), 10);
  options.writers = 3;
  options.writer_bytes = 50'000;
  options.segment_bytes = 100'000;
  save_versions(options, tables, versions, {1, 2, Holding::kDense});
  const SegmentSet set = read_manifest(directory.path()).segments.at(0);
  EXPECT_GT(set.files.size(), 6U);
  EXPECT_EQ(set.rows, 39'000);
  EXPECT_EQ(load_versions(directory.path(), tables, versions, {3, 3, Holding::kSparse}), 0);
}

/// Segments of ranks that have no row of the reader's are not opened, and of a segment only groups
/// are read that have some.
TEST(Rows, OnlyWhatMayHaveRowsOfTheRankIsRead) {
  const Table table{"rows.a", 80'000, 16};
  io::FaultyFileSystem files;
  comm::run_local(4, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryRows rows(table, {.rows = piece(table.rows, 4, world.rank()), .cols = {0, 16}});
    const StateSource* source = &rows;
    SaveOptions options = save_options("/ck", 1);
    options.files = &files;
    save(world, ctx, options, std::span(&source, 1));
  });
  const std::int64_t bytes = read_manifest("/ck", files).segments[0].bytes();

  struct Read {
    RowSet rows;
    std::string segments;
    std::int64_t most_blocks;  ///< of rows and footers, in blocks of 64 KiB
  };

  for (const Read& one : {Read{{0, 20'000}, "0", 0}, Read{{0, 30'000}, "01", 0},
                          Read{{45'000, 45'010}, "2", 12}, Read{{3, 80'000, 16'000}, "0123", 0}}) {
    files.set_hook([](const io::Call&) { return io::Verdict{}; });
    comm::run_local(1, {}, [&](comm::Communicator& world) {
      Context ctx;
      MemoryRows rows(table, {.rows = one.rows, .cols = {0, 16}});
      StateSink* sink = &rows;
      LoadOptions options{.path = "/ck"};
      options.files = &files;
      load(world, ctx, options, std::span(&sink, 1));
      EXPECT_EQ(rows.differences({}), 0);
    });
    std::string opened;
    std::int64_t reads = 0;
    for (const io::Call& call : files.calls()) {
      if (call.path.ends_with("-0.rows")) {
        reads += call.kind == io::CallKind::kRead ? 1 : 0;
        opened +=
            call.kind == io::CallKind::kOpen ? std::string(1, call.path[call.path.size() - 8]) : "";
      }
    }
    files.set_hook({});
    EXPECT_EQ(opened, one.segments);
    EXPECT_TRUE(one.most_blocks == 0 || reads <= one.most_blocks) << reads;
  }
  EXPECT_GT(bytes, 80'000 * 64);
}

}  // namespace
}  // namespace weft::checkpoint
