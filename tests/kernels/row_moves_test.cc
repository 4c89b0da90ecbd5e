// Moves of whole rows against plain loops, byte by byte, and against bytes by hand.

#include "weft/kernels/row_moves.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "tests/kernels/row_moves_parity.h"

namespace weft::kernels::test {
namespace {

TEST(RowMoves, PassTheirParityListsOnEveryTarget) {
  on_every_target(expect_pack_rows_parity);
  on_every_target(expect_unpack_rows_parity);
}

/// High halves, low halves, state; whatever lies where in the store.
TEST(RowMoves, PackedRowsHaveTheirBytesInOrder) {
  std::uint16_t highs[][2] = {{0x0201, 0x0403}, {0x1211, 0x1413}};
  std::uint16_t lows[][2] = {{0x0605, 0x0807}, {0x1615, 0x1817}};
  std::uint32_t states[] = {0x0C0B0A09, 0x1C1B1A19};
  const std::int64_t slots[] = {1, 0};
  std::vector<std::byte> packed(24);
  const RowMove job{.table = {.weights = highs,
                              .weight_stride = 4,
                              .state = states,
                              .state_stride = 4,
                              .low = lows,
                              .low_stride = 4,
                              .dtype = DType::kSplitBFloat16,
                              .cols = 2,
                              .dim = 2},
                    .state_floats = 1,
                    .count = 2,
                    .slots = slots,
                    .packed = packed.data()};
  Context ctx;
  pack_rows(ctx, std::span(&job, 1));
  for (std::size_t b = 0; b < 12; ++b) {
    EXPECT_EQ(packed[b], static_cast<std::byte>(0x11 + b)) << b;
    EXPECT_EQ(packed[12 + b], static_cast<std::byte>(0x01 + b)) << b;
  }
}

/// Rows that leave their slots and come back to others are whole: no field stays behind.
TEST(RowMoves, RowsComeBackWhole) {
  Random random(9);
  const std::unique_ptr<Device> device = make_device({.threads = 2});
  run_on(*device, [&](Context& ctx) {
    for (const DType dtype : kRowTypes) {
      for (const SparseOptimizerKind rule :
           {SparseOptimizerKind::kRowWiseAdagrad, SparseOptimizerKind::kAdam}) {
        MoveCase from(random, 40, 33, dtype, rule);
        MoveCase to(random, 40, 33, dtype, rule);
        std::reverse(to.slots.begin(), to.slots.end());
        std::vector<std::byte> again(from.packed.size());
        const auto move = [&](MoveCase& one, std::vector<std::byte>& packed) {
          return RowMove{.table = one.table.view,
                         .state_floats = one.state_floats,
                         .count = std::ssize(one.slots),
                         .slots = one.slots.data(),
                         .packed = packed.data()};
        };
        const RowMove out = move(from, from.packed);
        const RowMove in = move(to, from.packed);
        const RowMove check = move(to, again);
        pack_rows(ctx, std::span(&out, 1));
        unpack_rows(ctx, std::span(&in, 1));
        pack_rows(ctx, std::span(&check, 1));
        EXPECT_EQ(again, from.packed) << to_string(dtype);
        for (std::int64_t i = 0; i < out.count; ++i) {
          EXPECT_EQ(std::memcmp(from.table.state_at(from.slots[static_cast<std::size_t>(i)]),
                                to.table.state_at(to.slots[static_cast<std::size_t>(i)]),
                                static_cast<std::size_t>(4 * from.state_floats)),
                    0);
        }
      }
    }
  });
}

}  // namespace
}  // namespace weft::kernels::test
