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

/// Runs a job with lists, which `initial` lacks, on the device and by the plain loops.
inline void expect_lists_parity(Device& device,
                                TableCase& table,
                                InitialRows initial,
                                const std::vector<std::int64_t>& numbers,
                                const std::vector<std::int64_t>& slots) {
  run_on(device, [&](Context& ctx) {
    Copied<std::int64_t> number_list(numbers);
    Copied<std::int64_t> slot_list(slots);
    TableCopies copies(table);
    InitialRows tested = initial;
    InitialRows plain = initial;
    tested.table = copies.place(ctx);
    plain.table = copies.host();
    if (slots.empty()) {
      tested.table.row_list = number_list.place(ctx);
      plain.table.row_list = number_list.host();
    } else {
      tested.numbers = number_list.place(ctx);
      tested.slots = slot_list.place(ctx);
      plain.numbers = number_list.host();
      plain.slots = slot_list.host();
    }
    tested.table.first_col = plain.table.first_col = initial.table.first_col;
    set_initial_rows(ctx, std::span(&tested, 1));
    EXPECT_FALSE(copies.same_bits(ctx)) << "nothing has been written";
    reference::set_initial_rows(ctx, std::span(&plain, 1));
    EXPECT_TRUE(copies.same_bits(ctx))
        << "rule " << static_cast<int>(initial.rule) << " " << to_string(table.view.dtype) << " D "
        << table.view.cols << ", " << slots.size() << " slots";
  });
}

/// Rows that are a list, in order and in slots of their own: numbers beyond 32 bits, raw ids of any
/// sign, in no order; places from the middle of the lists; more rows than a task has.
inline void expect_listed_rows_parity(Device& device) {
  constexpr std::int64_t kFar = std::int64_t{1} << 33;
  Random random(3);
  for (const DType dtype : kRowTypes) {
    for (const std::int64_t cols : kDims) {
      TableCase table(random, 70, cols, dtype, SparseOptimizerKind::kRowWiseAdam);
      std::vector<std::int64_t> numbers = {7, 8, 1000, kFar, kFar + 9, -1, 0, -kFar, 1000003};
      std::vector<std::int64_t> slots = {69, 0, 4, 33, 5, 6, 12, 68, 1};
      for (std::int64_t slot = 34; slot < 60; ++slot) {
        numbers.push_back(static_cast<std::int64_t>(random()));
        slots.push_back(34 + (slot - 34) * 7 % 26);
      }
      const std::int64_t rows = std::ssize(slots);
      InitialRows initial{.table = {.first_col = 32},
                          .rows = {0, rows},
                          .key = kInitialKey,
                          .scale = 0.3F,
                          .state = 0.25F,
                          .state_floats = state_floats(SparseOptimizerKind::kRowWiseAdam, cols)};
      for (const InitialRule rule : kInitialRules) {
        initial.rule = rule;
        initial.rows = {0, rows};
        expect_lists_parity(device, table, initial, numbers, {});
        expect_lists_parity(device, table, initial, numbers, slots);
        initial.rows = {3, 8};
        expect_lists_parity(device, table, initial, numbers, slots);
      }
    }
  }
  TableCase table(random, 3000, 64, DType::kFloat32, SparseOptimizerKind::kSgd);
  std::vector<std::int64_t> numbers;
  std::vector<std::int64_t> slots;
  for (std::int64_t row = 0; row < 1500; ++row) {
    numbers.push_back(row * row * row);
    slots.push_back((row * 1999 + 7) % 3000);
  }
  const InitialRows initial{.table = {}, .rows = {0, 1500}, .key = kInitialKey};
  expect_lists_parity(device, table, initial, numbers, slots);
}

}  // namespace weft::kernels::test
