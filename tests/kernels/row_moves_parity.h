// The parity lists of pack_rows and unpack_rows: every backend passes them
// (tests/kernels/parity.h).
#pragma once

#include <numeric>
#include <vector>

#include "tests/kernels/row_cases.h"
#include "weft/kernels/row_moves.h"

namespace weft::kernels::test {

/// A table, slots of it, and packed rows of garbage.
struct MoveCase {
  TableCase table;
  std::vector<std::int64_t> slots;
  std::int64_t state_floats = 0;
  std::vector<std::byte> packed;

  /// `count` slots that follow each other in steps, modulo the table's rows.
  MoveCase(
      Random& random, std::int64_t count, std::int64_t cols, DType dtype, SparseOptimizerKind rule)
      : table(random, 2 * count + 3, cols, dtype, rule),
        state_floats(weft::state_floats(rule, cols)) {
    std::int64_t step = count + 1;
    while (std::gcd(step, table.rows) != 1) {
      ++step;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      slots.push_back((5 + i * step) % table.rows);
    }
    const std::int64_t bytes = count * packed_row(table.view, state_floats).bytes();
    for (std::int64_t i = 0; i < bytes; ++i) {
      packed.push_back(static_cast<std::byte>(random()));
    }
  }
};

/// Calls body(case) for every row type, layout and width, with no row and with some; for more rows
/// than a task has, and for rows wider than a task.
template <typename Body>
void for_row_moves(const Body& body) {
  Random random(4);
  const auto run = [&](std::int64_t count, std::int64_t cols, DType dtype,
                       SparseOptimizerKind rule) {
    MoveCase one(random, count, cols, dtype, rule);
    body(one);
  };
  for (const DType dtype : kRowTypes) {
    for (const SparseOptimizerKind rule :
         {SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad,
          SparseOptimizerKind::kAdam, SparseOptimizerKind::kRowWiseAdam}) {
      for (const std::int64_t cols : kDims) {
        run(40, cols, dtype, rule);
      }
      run(0, 16, dtype, rule);
      run(1, 17, dtype, rule);
    }
    run(1500, 17, dtype, SparseOptimizerKind::kRowWiseAdagrad);
    run(300, 64, dtype, SparseOptimizerKind::kAdam);
    run(2, 20001, dtype, SparseOptimizerKind::kRowWiseAdagrad);
  }
}

/// Runs both forms of an operation on one case: host memory against the device's.
template <typename Operation, typename Reference>
void expect_move_parity(Device& device,
                        MoveCase& one,
                        const Operation& operation,
                        const Reference& reference) {
  run_on(device, [&](Context& ctx) {
    TableCopies rows(one.table);
    Copied<std::int64_t> slots(one.slots);
    Copied<std::byte> packed(one.packed);
    RowMove tested{
        .table = rows.place(ctx), .state_floats = one.state_floats, .count = std::ssize(one.slots)};
    RowMove plain = tested;
    tested.slots = slots.place(ctx);
    tested.packed = packed.place(ctx);
    plain.table = rows.host();
    plain.slots = slots.host();
    plain.packed = packed.host();
    operation(ctx, std::span(&tested, 1));
    EXPECT_EQ(rows.same_bits(ctx) && packed.same_bits(ctx), one.slots.empty())
        << "rows are written, and nothing where there are none";
    reference(ctx, std::span(&plain, 1));
    EXPECT_TRUE(rows.same_bits(ctx) && packed.same_bits(ctx))
        << to_string(one.table.view.dtype) << " D " << one.table.view.cols << ", state "
        << one.state_floats << ", rows " << one.slots.size();
  });
}

inline void expect_pack_rows_parity(Device& device) {
  for_row_moves(
      [&](MoveCase& one) { expect_move_parity(device, one, pack_rows, reference::pack_rows); });
}

inline void expect_unpack_rows_parity(Device& device) {
  for_row_moves(
      [&](MoveCase& one) { expect_move_parity(device, one, unpack_rows, reference::unpack_rows); });
}

}  // namespace weft::kernels::test
