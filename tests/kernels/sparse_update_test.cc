// Row gradients, statistics and optimizers against plain loops, bit by bit.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

#include "tests/kernels/row_gradients_parity.h"
#include "tests/kernels/sparse_update_parity.h"
#include "weft/kernels/cpu/sparse_update_blocks.h"

namespace weft::kernels::test {
namespace {

TEST(UpdateRows, PassesItsParityListOnEveryTarget) {
  on_every_target(expect_update_rows_parity);
  on_every_target(expect_padding_parity);
  on_every_target(expect_overflow_parity);
  on_every_target(expect_overflow_over_tasks);
}

TEST(StatisticUpdate, PassesItsParityListOnEveryTarget) {
  on_every_target(expect_statistic_update_parity);
  on_every_target(expect_row_blocks_parity);
}

TEST(RowGradients, PassTheirParityListsOnEveryTarget) {
  on_every_target(expect_sum_gradients_parity);
  on_every_target(expect_partial_sums_parity);
}

TEST(RowOverflow, MergesInAnyOrder) {
  const RowOverflow parts[] = {{}, {2, 40, 7}, {1, 5, 8}, {3, 12, 7}};
  std::vector<int> order = {0, 1, 2, 3};
  do {
    RowOverflow sum;
    for (const int part : order) {
      sum.merge(parts[part]);
    }
    EXPECT_EQ(sum.count, 6);
    EXPECT_EQ(sum.first_row, 12) << "the lowest of the first step";
    EXPECT_EQ(sum.first_step, 7U);
  } while (std::next_permutation(order.begin(), order.end()));
}

/// One row that every sample hits among many that few do.
TEST(UpdateTasks, CoverRowsOnceAndKeepHotOnesApart) {
  Random random(6);
  for (const Skew skew : {Skew::kUniform, Skew::kHot, Skew::kOneRow}) {
    const RunsCase step(random, {.bags = 900, .longest = 5, .rows = 700, .cols = 1, .skew = skew});
    const RowRuns& runs = step.host();
    std::int64_t rows = 0;
    std::int64_t most = 0;
    for (std::int64_t task = 0; task < update_tasks(runs); ++task) {
      const Range range = update_task(runs, task);
      EXPECT_EQ(range.begin, rows);
      EXPECT_LE(range.begin, range.end);
      rows = range.end;
      const auto entries = [&](std::int64_t row) {
        return runs.segment_entries[runs.row_segments[row]];
      };
      // All but the last row of a task, whose entries it cannot give away.
      if (!range.empty()) {
        most = std::max(most, range.size() - 1 + entries(range.end - 1) - entries(range.begin));
      }
    }
    EXPECT_EQ(rows, runs.num_rows);
    EXPECT_LE(most, 2 * kRowsPerTask);
    EXPECT_GE(update_tasks(runs), row_tasks(runs.num_rows));
  }
}

TEST(RowStatistics, TheTreeIsThatOfParts) {
  const float blocks[] = {1.0F, 0x1.0p-24F, 0x1.0p-24F, 0x1.0p-24F, 0x1.0p-25F};
  // ((1 + e) + (e + e)) + e/2: the first e is lost to rounding, the pair is not, the last is.
  EXPECT_EQ(block_tree_sum(blocks, 5), 1.0F + 0x1.0p-23F);
  EXPECT_EQ(block_tree_sum(blocks, 1), 1.0F);
  EXPECT_EQ(block_tree_sum(blocks, 2, 4), 1.0F);
}

/// A bag of one id for each row of a table, without gradients yet.
BagsCase one_bag_per_row(std::int64_t rows, std::int64_t cols) {
  BagsCase bags;
  bags.cols = cols;
  for (std::int64_t row = 0; row < rows; ++row) {
    bags.ids.push_back(row);
    bags.offsets.push_back(row + 1);
    bags.parts.push_back(0);
  }
  return bags;
}

/// Every size of number: results of all exponents, subnormal halves and beyond the largest.
void expect_scalar_conversions(std::int64_t rows, std::int64_t cols, DrawRule rule) {
  Random random(9);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    TableCase table(random, rows, cols, dtype, SparseOptimizerKind::kSgd);
    std::fill(table.weights.begin(), table.weights.end(), std::byte{0});
    BagsCase bags = one_bag_per_row(rows, cols);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < cols; ++i) {
        const auto exponent =
            static_cast<std::uint32_t>(row % 2 == 0 ? below(random, 255) : 95 + below(random, 50));
        const auto bits = (exponent << 23) | (static_cast<std::uint32_t>(random()) & 0x807FFFFFU);
        bags.grads.push_back(std::bit_cast<float>(bits));
      }
    }
    UpdateParams params = make_params(SparseOptimizerKind::kSgd, WeightDecay::kNone, 0.0F);
    params.learning_rate = 1.0F;
    params.draws.rule = rule;
    for (const std::uint64_t step : {1ULL, 4095ULL, 4096ULL, 1ULL << 33}) {
      params.step = step;
      table.view.first_row = step == 1 ? 0 : (std::int64_t{1} << 33) + 5;
      table.view.first_col = step == 1 ? 0 : 48;
      on_every_target([&](Device& device) {
        RunsCase runs(bags, rows, 1);
        expect_update_parity(device, table, runs, params, 1);
      });
    }
  }
}

/// Rows with code for their width and others, a number of them that is no multiple of what is in
/// hand at a time, and all rules of draws.
TEST(StochasticRounding, EqualsTheScalarConversions) {
  expect_scalar_conversions(2000, 64, DrawRule::kHalfWordOfSevenRounds);
  expect_scalar_conversions(301, 64, DrawRule::kHalfWord);
  expect_scalar_conversions(301, 64, DrawRule::kWord);
  for (const std::int64_t cols : {1, 16, 24, 32, 100, 128, 1040}) {
    for (const DrawRule rule :
         {DrawRule::kWord, DrawRule::kHalfWord, DrawRule::kHalfWordOfSevenRounds}) {
      expect_scalar_conversions(cols == 1040 ? 11 : 141, cols, rule);
    }
  }
}

/// Rows in which every column has one value, or every other column has 1 beside it: values where a
/// conversion has an edge, of both signs, and a row of -0 that stays.
void expect_edges(DType dtype, std::int64_t cols, DrawRule rule) {
  constexpr std::uint32_t kEdges[] = {
      0x00000000, 0x00000001, 0x007FFFFF, 0x00800000,              // subnormal floats
      0x2EFFFFFF, 0x2F7FFFFF, 0x2F800000, 0x33000000, 0x33800000,  // 2^-32, 2^-25, 2^-24
      0x387FFFFF, 0x38800000, 0x38801FFF,                          // 2^-14
      0x477FC000, 0x477FDFFF, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x477FFFFF, 0x47800000,  // 2^16
      0x7F7E0000, 0x7F7EFFFF, 0x7F7F0000, 0x7F7FFFFF};
  constexpr std::int64_t kTimes = 8;  // with other draws
  const auto rows = static_cast<std::int64_t>(4 * kTimes * std::size(kEdges));
  Random random(11);
  TableCase table(random, rows, cols, dtype, SparseOptimizerKind::kSgd);
  std::fill(table.weights.begin(), table.weights.end(), std::byte{0});
  BagsCase bags = one_bag_per_row(rows, cols);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint32_t edge = kEdges[static_cast<std::size_t>(row / (4 * kTimes))];
    const auto sign = static_cast<std::uint32_t>(row % 2) << 31;
    const bool alone = row % 4 < 2;
    for (std::int64_t i = 0; i < cols; ++i) {
      bags.grads.push_back(alone || i % 2 == 0 ? std::bit_cast<float>(edge | sign) : 1.0F);
    }
    if (edge == 0 && alone) {  // the row is -0, and its gradient 0 of either sign
      auto* const at =
          reinterpret_cast<std::uint16_t*>(table.weights.data() + row * table.view.weight_stride);
      std::fill_n(at, cols, std::uint16_t{0x8000});
    }
  }
  UpdateParams params = make_params(SparseOptimizerKind::kSgd, WeightDecay::kNone, 0.0F);
  params.learning_rate = 1.0F;
  params.draws.rule = rule;
  on_every_target([&](Device& device) {
    RunsCase runs(bags, rows, 1);
    expect_update_parity(device, table, runs, params, 1);
  });
}

TEST(StochasticRounding, EqualsTheScalarConversionsAtTheirEdges) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const DrawRule rule : {DrawRule::kWord, DrawRule::kHalfWordOfSevenRounds}) {
      for (const std::int64_t cols : {16, 24, 64}) {
        expect_edges(dtype, cols, rule);
      }
    }
  }
}

/// The word of a row's column, whichever way it is kept.
float word_at(const TableCase& table, std::int64_t row, std::int64_t col) {
  const std::byte* const at = table.weights.data() + row * table.view.weight_stride;
  return table.view.dtype == DType::kFloat32
             ? reinterpret_cast<const float*>(at)[col]
             : to_float(SplitBFloat16{reinterpret_cast<const BFloat16*>(at)[col],
                                      table.low_at(row)[col]});
}

TEST(SplitRows, HaveTheBitsOfFp32Rows) {
  constexpr std::int64_t kRows = 20;
  for (const std::int64_t cols : {3, 16, 32, 33, 64}) {
    Random random(static_cast<std::uint64_t>(cols));
    const RunsCase step(random, {.bags = 24, .rows = kRows, .cols = cols});
    for (const SparseOptimizerKind rule : kRules) {
      const Random start = random;
      Random again = start;
      TableCase whole(random, kRows, cols, DType::kFloat32, rule);
      TableCase split(again, kRows, cols, DType::kSplitBFloat16, rule);
      for (int i = 0; i < 3; ++i) {
        // Rows without the decay that few use have code of their own.
        const WeightDecay decay = i == 1 ? WeightDecay::kNone : WeightDecay::kL2;
        const UpdateParams params = make_params(rule, decay, 0.5F);
        for (const TableCase* const table : {&whole, &split}) {
          RowOverflow overflow;
          const SparseUpdate update{.table = table->view,
                                    .params = params,
                                    .runs = step.host(),
                                    .parts = 8,
                                    .overflow = &overflow};
          Context ctx;
          update_rows(ctx, std::span(&update, 1));
          EXPECT_EQ(overflow.count, 0);
        }
      }
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t i = 0; i < cols; ++i) {
          ASSERT_EQ(word_at(split, row, i), word_at(whole, row, i)) << row << ", " << i;
        }
        for (std::int64_t i = 0; i < state_floats(rule, cols); ++i) {
          ASSERT_EQ(split.state_at(row)[i], whole.state_at(row)[i]) << row << ", " << i;
        }
      }
    }
  }
}

/// The largest numbers whose high half is finite, and the first ones beyond.
TEST(SplitRows, AWeightWithoutAFiniteHighHalfIsAnOverflow) {
  const float limit = std::bit_cast<float>(kSplitLimit);
  for (const std::int64_t cols : {3, 16}) {
    Random random(2);
    TableCase table(random, 2, cols, DType::kSplitBFloat16, SparseOptimizerKind::kSgd);
    BagsCase bags;
    bags.cols = cols;
    bags.ids = {0, 1};
    bags.offsets = {0, 1, 2};
    bags.parts = {0, 0};
    bags.grads.assign(static_cast<std::size_t>(2 * cols), 0.0F);
    for (std::int64_t row = 0; row < 2; ++row) {
      for (std::int64_t i = 0; i < cols; ++i) {
        table.set(row, i, 0.0F);
      }
    }
    bags.grads[1] = -std::nextafter(limit, 0.0F);
    bags.grads[static_cast<std::size_t>(cols) + 1] = -limit;
    UpdateParams params = make_params(SparseOptimizerKind::kSgd, WeightDecay::kNone, 0.0F);
    params.learning_rate = 1.0F;
    on_every_target([&](Device& device) {
      RunsCase runs(bags, 2, 1);
      EXPECT_GT(expect_update_parity(device, table, runs, params, 1), 0);
    });
    const RunsCase runs(bags, 2, 1);
    RowOverflow overflow;
    const SparseUpdate update{.table = table.view,
                              .params = params,
                              .runs = runs.host(),
                              .parts = 1,
                              .overflow = &overflow};
    Context ctx;
    update_rows(ctx, std::span(&update, 1));
    EXPECT_EQ(overflow.count, 1);
    EXPECT_EQ(overflow.first_row, 1);
    EXPECT_EQ(word_at(table, 0, 1), std::nextafter(limit, 0.0F));
    EXPECT_EQ(word_at(table, 1, 1), 0.0F);
  }
}

}  // namespace
}  // namespace weft::kernels::test
