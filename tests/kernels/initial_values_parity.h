// The parity list of set_initial_rows: every backend passes it (tests/kernels/parity.h).
#pragma once

#include <vector>

#include "tests/kernels/row_cases.h"
#include "weft/kernels/initial_values.h"

namespace weft::kernels::test {

inline constexpr InitialRule kInitialRules[] = {InitialRule::kZero, InitialRule::kUniform,
                                                InitialRule::kNormal};
inline constexpr std::uint64_t kInitialKey = 0xFEDCBA9876543210ULL;

/// Compares what both write into one table, from equal garbage; `initial` has no bases yet.
inline void expect_initial_parity(Device& device, TableCase& table, InitialRows initial) {
  run_on(device, [&](Context& ctx) {
    TableCopies copies(table);
    const auto on = [&](const RowTable& view) {
      InitialRows job = initial;
      job.table.weights = view.weights;
      job.table.state = view.state;
      job.table.low = view.low;
      return job;
    };
    const InitialRows tested = on(copies.place(ctx));
    const InitialRows plain = on(copies.host());
    const bool changes = !initial.rows.empty() && initial.rule != InitialRule::kZero;
    reference::set_initial_rows(ctx, std::span(&plain, 1));
    EXPECT_FALSE(changes && copies.same_bits(ctx));
    set_initial_rows(ctx, std::span(&tested, 1));
    EXPECT_TRUE(copies.same_bits(ctx))
        << "rule " << static_cast<int>(initial.rule) << " " << to_string(initial.table.dtype)
        << " D " << initial.table.cols << " from row " << initial.table.first_row << " column "
        << initial.table.first_col;
  });
}

/// Every row type, width, rule and layout; ranges of rows and lists; numbers beyond 32 bits; rows
/// wider than any scratch.
inline void expect_initial_values_parity(Device& device) {
  Random random(1);
  for (const DType dtype : kRowTypes) {
    for (const std::int64_t cols : kDims) {
      for (const SparseOptimizerKind update :
           {SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad,
            SparseOptimizerKind::kAdam}) {
        TableCase table(random, 67, cols, dtype, update);
        InitialRows initial{.table = table.view,
                            .rows = {0, 67},
                            .key = kInitialKey,
                            .scale = 0.3F,
                            .state = 0.25F,
                            .state_floats = state_floats(update, cols)};
        for (const InitialRule rule : kInitialRules) {
          initial.rule = rule;
          initial.table.first_row = 0;
          initial.table.row_step = 1;
          initial.table.first_col = 0;
          initial.rows = {0, 67};
          expect_initial_parity(device, table, initial);
          initial.rows = {2, 66};  // whole vectors
          expect_initial_parity(device, table, initial);
          initial.table.first_row = (std::int64_t{1} << 32) - 40;
          initial.table.row_step = 3;
          initial.table.first_col = 48;
          initial.rows = {3, 61};
          expect_initial_parity(device, table, initial);
        }
      }
    }
  }
  for (const std::int64_t cols : {4095, 4096, 4097, 9001}) {
    TableCase table(random, 3, cols, DType::kFloat32, SparseOptimizerKind::kSgd);
    expect_initial_parity(
        device, table,
        {.table = table.view, .rows = {0, 3}, .rule = InitialRule::kNormal, .key = kInitialKey});
    expect_initial_parity(
        device, table,
        {.table = table.view, .rows = {1, 1}, .rule = InitialRule::kUniform, .key = kInitialKey});
  }
}

/// Rows that are a list.
inline void expect_listed_rows_parity(Device& device) {
  Random random(3);
  for (const DType dtype : kRowTypes) {
    TableCase table(random, 5, 33, dtype, SparseOptimizerKind::kSgd);
    run_on(device, [&](Context& ctx) {
      Copied<std::int64_t> list({7, 8, 1000, std::int64_t{1} << 33, (std::int64_t{1} << 33) + 9});
      TableCopies copies(table);
      InitialRows tested{.table = copies.place(ctx), .rows = {0, 5}, .key = kInitialKey};
      InitialRows plain{.table = copies.host(), .rows = {0, 5}, .key = kInitialKey};
      tested.table.row_list = list.place(ctx);
      plain.table.row_list = list.host();
      set_initial_rows(ctx, std::span(&tested, 1));
      reference::set_initial_rows(ctx, std::span(&plain, 1));
      EXPECT_TRUE(copies.same_bits(ctx)) << to_string(dtype);
    });
  }
}

}  // namespace weft::kernels::test
