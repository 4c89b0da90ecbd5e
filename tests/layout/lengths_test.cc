// Lengths of buffers: of exact counts against owners on a device, of expected ones by hand.
#include "weft/layout/lengths.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "weft/kernels/coalesce.h"
#include "weft/layout/feature_vectors.h"
#include "weft/layout/relays.h"
#include "weft/layout/replicas.h"
#include "weft/layout/row_gradients.h"
#include "weft/layout/tables.h"
#include "weft/tensor/device.h"

namespace weft::layout {
namespace {

TEST(Lengths, OfRunsAreWhatTheirBuffersTake) {
  for (const std::int64_t weights : {0, 1000}) {
    const auto device = make_device({.threads = 1});
    kernels::RunBuffers runs(*device);
    runs.resize(1000, weights);
    EXPECT_EQ(device->memory_use(), total_bytes(run_lengths<std::int64_t>(1000, weights)));
    const auto expected = run_lengths(Expected{1000.0}, Expected{static_cast<double>(weights)});
    EXPECT_EQ(held_bytes(expected), static_cast<double>(device->memory_use()));
    runs.resize(1001, weights > 0 ? 1001 : 0);
    const auto varying =
        run_lengths(Expected{1000.0, true}, Expected{static_cast<double>(weights), true});
    EXPECT_NEAR(held_bytes(varying), static_cast<double>(device->memory_use()), 6.0);
  }
}

// 40 columns of bf16 rows with one number of state each: 80 + 4 bytes, and 41 numbers.
TEST(Lengths, OfReplicasAreThoseOfTheirRows) {
  spec::Table table;
  table.dtype = spec::RowDType::kBf16;
  table.optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
  const SyncRow row = sync_row(table, 40);
  EXPECT_EQ(total_bytes(sync_copy_lengths<std::int64_t>(100, row, row.floats(40))),
            100 * (84 + 4 * 41));
  EXPECT_EQ(total_bytes(sync_copy_lengths<std::int64_t>(100, row, 0)), 100 * 84);
  table.optimizer.type = SparseOptimizerKind::kAdam;
  table.dtype = spec::RowDType::kSplitBf16;
  EXPECT_EQ(sync_row(table, 40).floats(40), 120);
  EXPECT_EQ(sync_row(table, 40).weight_bytes, 160);
  // With 4 groups 250 bytes are own and 750 go away; changes of 3 others come, then 3 means.
  EXPECT_EQ(total_bytes(sync_round_lengths(SyncRound<std::int64_t>{250, 750, 4, true})), 1000);
  EXPECT_EQ(total_bytes(sync_round_lengths(SyncRound<std::int64_t>{250, 750, 4, false})), 1750);
  EXPECT_EQ(sync_round_lengths(SyncRound<std::int64_t>{300, 700, 4, false}).received.count, 900);
  EXPECT_EQ(total_bytes(touched_lengths<std::int64_t>(10, 7, 5, 3)), 80 + 56 + 80 + 20);
}

TEST(Lengths, VaryWhereOneOfTheirTermsDoes) {
  const Expected fixed{10.0};
  const Expected varying{5.0, true};
  EXPECT_FALSE((fixed + fixed).varies);
  EXPECT_TRUE((fixed + varying).varies);
  EXPECT_FALSE((fixed + Expected{0.0, true}).varies) << "nothing does not vary";
  EXPECT_TRUE((varying * 3 + 1).varies);
  EXPECT_EQ((varying * 3 + 1).value, 16.0);
  EXPECT_EQ(larger(fixed, varying).value, 10.0);
  EXPECT_FALSE(larger(fixed, varying).varies);
  EXPECT_EQ(held_bytes(Expected{1000.0, true}, 0.5), 1500.0);
  EXPECT_EQ(held_bytes(Expected{1000.0, false}, 0.5), 1000.0);
}

TEST(Lengths, OfPartialRowsKeepPiecesAligned) {
  const auto lengths = partial_row_lengths<std::int64_t>(3, 5);
  EXPECT_EQ(lengths.rows.bytes(), 24);
  EXPECT_EQ(lengths.vectors.bytes(), 60);
  EXPECT_EQ(lengths.nodes.bytes(), 12);
  EXPECT_EQ(piece_room(lengths.vectors.bytes()), 64);
  EXPECT_EQ(total_bytes(partial_cut_lengths<std::int64_t>(3)), 24 + 12 + 32);
}

TEST(Lengths, OfStatisticsHaveABlockPer16Columns) {
  EXPECT_EQ(column_blocks(16), 1);
  EXPECT_EQ(column_blocks(17), 2);
  EXPECT_EQ(total_bytes(statistic_lengths<std::int64_t>(10, 2, 3)), 4 * 10 * (2 + 1 + 3));
}

TEST(Lengths, OfServedVectorsAreTheLongerWay) {
  ServedFloats<std::int64_t> served;
  served.add(3, 5, 16);  // rows that are fetched: more gradients come than vectors go
  served.add(2, 2, 8);
  EXPECT_EQ(served.buffer().bytes(), 4 * (5 * 16 + 2 * 8));
}

TEST(Lengths, OfRelaysHaveACheckWordPerMessage) {
  RelayBlocks<std::int64_t> blocks;
  blocks.add_crossing(100, 0);
  blocks.add_crossing(10, 20);
  EXPECT_EQ(blocks.crossing, 130 + 4 * 8);
  blocks.cover({.crossing = 10, .out = 7, .in = 0});
  EXPECT_EQ(blocks.crossing, 162);
  EXPECT_EQ(blocks.out, 7);
}

TEST(Paths, SayWhatMoves) {
  const auto block = [](Path path, bool own, bool sequence) {
    return PathBlock{.path = path, .own = own, .sequence = sequence};
  };
  EXPECT_FALSE(block(Path::kWholeBags, true, false).moves_vectors());
  EXPECT_FALSE(block(Path::kWholeBags, true, true).moves_gradients());
  EXPECT_TRUE(block(Path::kWholeBags, false, false).moves_gradients());
  EXPECT_TRUE(block(Path::kSplitBags, true, false).moves_vectors());
  EXPECT_FALSE(block(Path::kSplitBags, true, false).moves_gradients()) << "read in the matrix";
  EXPECT_TRUE(block(Path::kSplitBags, true, true).moves_gradients());
  EXPECT_TRUE(block(Path::kSplitBags, false, false).gets_partial_sums());
  EXPECT_FALSE(block(Path::kUniqueRows, true, true).gets_partial_sums());
  EXPECT_TRUE(block(Path::kUniqueRows, true, true).moves_gradients());
}

}  // namespace
}  // namespace weft::layout
