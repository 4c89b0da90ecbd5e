// Row gradients, statistics and optimizers against plain loops, bit by bit.

#include "weft/kernels/sparse_update.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

#include "tests/kernels/sparse_cases.h"
#include "weft/kernels/coalesce.h"
#include "weft/kernels/row_statistics.h"

namespace weft::kernels::test {
namespace {

constexpr SparseOptimizerKind kRules[] = {
    SparseOptimizerKind::kSgd, SparseOptimizerKind::kAdagrad, SparseOptimizerKind::kRowWiseAdagrad,
    SparseOptimizerKind::kAdam, SparseOptimizerKind::kRowWiseAdam};
constexpr WeightDecay kDecays[] = {WeightDecay::kNone, WeightDecay::kL2, WeightDecay::kDecoupled};

UpdateParams make_params(SparseOptimizerKind rule, WeightDecay decay, float max_norm) {
  UpdateParams p;
  p.rule = rule;
  p.decay = decay;
  p.learning_rate = 0.05F;
  p.weight_decay = 0.01F;
  p.keep = decay == WeightDecay::kDecoupled ? 0.995F : 1.0F;
  p.eps = 1e-8F;
  p.beta1 = 0.9F;
  p.one_minus_beta1 = 0.1F;
  p.beta2 = 0.999F;
  p.one_minus_beta2 = 0.001F;
  p.correction1 = 5.263158F;
  p.correction2 = 500.25F;
  p.max_norm = max_norm;
  p.random_key = 0x123456789ABCDEFULL;
  p.step = 2;
  return p;
}

/// A step's entries, coalesced.
struct Step {
  std::unique_ptr<Device> device = make_device({});
  Coalescer coalescer{*device};
  std::vector<BagsCase> cases;
  std::vector<GradientBlock> blocks;
  RowRuns runs;

  Step(Random& random, const BagsShape& shape) {
    cases.push_back(make_bags(random, shape));
    cases.push_back(make_bags(random, shape));
    for (const BagsCase& one : cases) {
      blocks.push_back(one.block());
    }
    runs = coalescer.run(blocks, shape.rows, shape.parts);
  }
};

struct Result {
  RowOverflow overflow;
  std::vector<std::byte> bytes;
};

using Update = RowOverflow (*)(const SparseUpdate&, Range, const float*);

/// Two steps from the table's first bytes.
Result run_update(TableCase& table,
                  const std::vector<std::byte>& start,
                  SparseUpdate update,
                  Update function) {
  table.restore(start);
  Result result;
  for (int step = 0; step < 2; ++step) {
    result.overflow.merge(function(update, {0, update.runs.num_rows}, nullptr));
    ++update.params.step;
  }
  result.bytes = table.bytes();
  return result;
}

void expect_parity(TableCase& table, const SparseUpdate& update, const std::string& what) {
  const std::vector<std::byte> start = table.bytes();
  const Result expected = run_update(table, start, update, reference::update_rows);
  for (const std::int64_t target : targets()) {
    const OnTarget on(target);
    const Result got = run_update(table, start, update, update_rows);
    EXPECT_EQ(got.overflow.count, expected.overflow.count) << what;
    EXPECT_EQ(got.overflow.first_row, expected.overflow.first_row) << what;
    EXPECT_TRUE(got.bytes == expected.bytes) << what << " on " << hwy::TargetName(target);
  }
  table.restore(start);
}

class Parity : public testing::TestWithParam<std::int64_t> {};

TEST_P(Parity, EveryOptimizerOnEveryTarget) {
  const std::int64_t cols = GetParam();
  Random random(static_cast<std::uint64_t>(cols));
  const std::int64_t parts = cols % 3 == 0 ? 3 : cols % 2 == 0 ? 8 : 1;
  const Step step(random, {.bags = 24, .rows = 20, .cols = cols, .parts = parts});
  for (const DType dtype : kRowTypes) {
    for (const SparseOptimizerKind rule : kRules) {
      TableCase table(random, 20, cols, dtype, rule);
      table.view.first_row = 1000;
      table.view.row_step = 3;
      table.view.first_col = 32;
      for (const WeightDecay decay : kDecays) {
        for (const float max_norm : {0.0F, 0.5F}) {
          const SparseUpdate update{table.view, make_params(rule, decay, max_norm), step.runs,
                                    parts};
          expect_parity(table, update,
                        "rule " + std::to_string(static_cast<int>(rule)) + " decay " +
                            std::to_string(static_cast<int>(decay)) + " norm " +
                            std::to_string(max_norm) + " " + std::string(to_string(dtype)));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dims, Parity, testing::ValuesIn(kDims));

/// Without eps a padded column would be 0 / 0.
TEST(ParityWithoutEps, PaddingIsNoOverflow) {
  for (const std::int64_t cols : {3, 16, 33}) {
    Random random(14);
    const Step step(random, {.bags = 24, .rows = 20, .cols = cols});
    for (const SparseOptimizerKind rule : kRules) {
      TableCase table(random, 20, cols, DType::kFloat32, rule);
      UpdateParams params = make_params(rule, WeightDecay::kNone, 0.0F);
      params.eps = 0.0F;
      const SparseUpdate update{table.view, params, step.runs, 8};
      expect_parity(table, update, std::to_string(cols));
      EXPECT_EQ(update_rows(update, {0, step.runs.num_rows}).count, 0);
    }
  }
}

TEST(RowGradient, EveryShapeOfRunsAndParts) {
  Random random(3);
  for (const std::int64_t cols : {1, 16, 17, 130}) {
    for (const std::int64_t parts : {1, 3, 8, 13}) {
      for (const Skew skew : {Skew::kUniform, Skew::kHot, Skew::kOneRow}) {
        for (const bool pooled : {true, false}) {
          for (const bool weighted : {true, false}) {
            const Step step(random, {.bags = 60,
                                     .rows = 40,
                                     .cols = cols,
                                     .parts = parts,
                                     .skew = skew,
                                     .pooled = pooled,
                                     .weighted = weighted});
            const SparseUpdate update{{.cols = cols, .dim = cols}, {}, step.runs, parts};
            std::vector<float> expected(static_cast<std::size_t>(step.runs.num_rows * cols));
            reference::sum_gradients(update, {0, step.runs.num_rows}, expected.data());
            for (const std::int64_t target : targets()) {
              const OnTarget on(target);
              std::vector<float> got(expected.size());
              sum_gradients(update, {0, step.runs.num_rows}, got.data());
              EXPECT_TRUE(std::memcmp(got.data(), expected.data(), got.size() * 4) == 0)
                  << cols << " columns, " << parts << " parts";
            }
          }
        }
      }
    }
  }
}

/// One row that every sample hits among many that few do.
TEST(UpdateTasks, CoverRowsOnceAndKeepHotOnesApart) {
  Random random(6);
  for (const Skew skew : {Skew::kUniform, Skew::kHot, Skew::kOneRow}) {
    const Step step(random, {.bags = 900, .longest = 5, .rows = 700, .cols = 1, .skew = skew});
    std::int64_t rows = 0;
    std::int64_t most = 0;
    for (std::int64_t task = 0; task < update_tasks(step.runs); ++task) {
      const Range range = update_task(step.runs, task);
      EXPECT_EQ(range.begin, rows);
      EXPECT_LE(range.begin, range.end);
      rows = range.end;
      const auto entries = [&](std::int64_t row) {
        return step.runs.segment_entries[step.runs.row_segments[row]];
      };
      // All but the last row of a task, whose entries it cannot give away.
      if (!range.empty()) {
        most = std::max(most, range.size() - 1 + entries(range.end - 1) - entries(range.begin));
      }
    }
    EXPECT_EQ(rows, step.runs.num_rows);
    EXPECT_LE(most, 2 * kRowsPerTask);
    EXPECT_GE(update_tasks(step.runs), update_blocks(step.runs.num_rows));
  }
}

TEST(RowStatistics, BlocksEqualPlainLoopsAndTheTreeIsThatOfParts) {
  Random random(4);
  for (const std::int64_t cols : kDims) {
    const Step step(random, {.rows = 20, .cols = cols});
    const TableCase table(random, 20, cols, DType::kBFloat16, SparseOptimizerKind::kSgd);
    std::vector<float> gradients(static_cast<std::size_t>(step.runs.num_rows * cols));
    for (const WeightDecay decay : kDecays) {
      const SparseUpdate update{
          table.view, make_params(SparseOptimizerKind::kRowWiseAdagrad, decay, 0.0F), step.runs, 8};
      const Range all{0, step.runs.num_rows};
      sum_gradients(update, all, gradients.data());
      std::vector<float> expected(static_cast<std::size_t>(all.end * statistic_blocks(cols)));
      std::vector<float> got(expected.size());
      reference::gradient_block_squares(update, all, gradients.data(), expected.data());
      for (const std::int64_t target : targets()) {
        const OnTarget on(target);
        gradient_block_squares(update, all, gradients.data(), got.data());
        EXPECT_EQ(got, expected) << cols;
      }
    }
  }
  const float blocks[] = {1.0F, 0x1.0p-24F, 0x1.0p-24F, 0x1.0p-24F, 0x1.0p-25F};
  // ((1 + e) + (e + e)) + e/2: the first e is lost to rounding, the pair is not, the last is.
  EXPECT_EQ(block_tree_sum(blocks, 5), 1.0F + 0x1.0p-23F);
  EXPECT_EQ(block_tree_sum(blocks, 1), 1.0F);
  EXPECT_EQ(block_tree_sum(blocks, 2, 4), 1.0F);
}

/// Every size of number: results of all exponents, subnormal halves and beyond the largest.
TEST(StochasticRounding, EqualsTheScalarConversions) {
  constexpr std::int64_t kCols = 64;
  constexpr std::int64_t kRows = 2000;
  Random random(9);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    TableCase table(random, kRows, kCols, dtype, SparseOptimizerKind::kSgd);
    std::fill(table.weights.begin(), table.weights.end(), std::byte{0});
    BagsCase bags;
    bags.cols = kCols;
    for (std::int64_t row = 0; row < kRows; ++row) {
      bags.ids.push_back(row);
      bags.offsets.push_back(row + 1);
      bags.parts.push_back(0);
      for (std::int64_t i = 0; i < kCols; ++i) {
        const auto exponent =
            static_cast<std::uint32_t>(row % 2 == 0 ? below(random, 255) : 95 + below(random, 50));
        const auto bits = (exponent << 23) | (static_cast<std::uint32_t>(random()) & 0x807FFFFFU);
        bags.grads.push_back(std::bit_cast<float>(bits));
      }
    }
    const std::unique_ptr<Device> device = make_device({});
    Coalescer coalescer(*device);
    const GradientBlock block = bags.block();
    UpdateParams params = make_params(SparseOptimizerKind::kSgd, WeightDecay::kNone, 0.0F);
    params.learning_rate = 1.0F;
    for (const std::uint64_t step : {1ULL, 4095ULL, 4096ULL, 1ULL << 33}) {
      params.step = step;
      table.view.first_row = step == 1 ? 0 : (std::int64_t{1} << 33) + 5;
      table.view.first_col = step == 1 ? 0 : 48;
      const SparseUpdate update{table.view, params, coalescer.run(std::span(&block, 1), kRows, 1),
                                1};
      expect_parity(table, update, "step " + std::to_string(step));
    }
  }
}

TEST(Overflow, SuchRowsAreLeftAsTheyWereAndCounted) {
  Random random(21);
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max();
  for (const std::int64_t cols : {3, 16, 33}) {
    for (const SparseOptimizerKind rule : kRules) {
      for (const DType dtype : kRowTypes) {
        TableCase table(random, 40, cols, dtype, rule);
        Step step(random, {.bags = 40, .rows = 40, .cols = cols});
        for (const std::size_t vector : {7U, 11U, 23U, 31U}) {
          const float bad[] = {infinity, -infinity, std::nanf(""), largest};
          for (std::size_t i = 0; i < 4; ++i) {
            step.cases[i % 2].grads[(vector + i) * static_cast<std::size_t>(cols) +
                                    i % static_cast<std::size_t>(cols)] = bad[i];
          }
        }
        for (const float max_norm : {0.0F, 1.0F}) {
          SparseUpdate update{table.view, make_params(rule, WeightDecay::kL2, max_norm), step.runs,
                              8};
          expect_parity(table, update, "rule " + std::to_string(static_cast<int>(rule)));
          update.params.learning_rate = 0.0F;
          expect_parity(table, update, "rate 0");
          const std::vector<std::byte> start = table.bytes();
          const RowOverflow overflow = update_rows(update, {0, step.runs.num_rows}, nullptr);
          EXPECT_GT(overflow.count, 0);
          EXPECT_GE(overflow.first_row, 0);
          table.restore(start);
        }
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
  for (const std::int64_t cols : {3, 16, 33, 64}) {
    Random random(static_cast<std::uint64_t>(cols));
    const Step step(random, {.bags = 24, .rows = kRows, .cols = cols});
    for (const SparseOptimizerKind rule : kRules) {
      const Random start = random;
      Random again = start;
      TableCase whole(random, kRows, cols, DType::kFloat32, rule);
      TableCase split(again, kRows, cols, DType::kSplitBFloat16, rule);
      const UpdateParams params = make_params(rule, WeightDecay::kL2, 0.5F);
      for (int i = 0; i < 3; ++i) {
        for (const TableCase* const table : {&whole, &split}) {
          const SparseUpdate update{table->view, params, step.runs, 8};
          EXPECT_EQ(update_rows(update, {0, step.runs.num_rows}).count, 0);
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
    const std::unique_ptr<Device> device = make_device({});
    Coalescer coalescer(*device);
    const GradientBlock block = bags.block();
    UpdateParams params = make_params(SparseOptimizerKind::kSgd, WeightDecay::kNone, 0.0F);
    params.learning_rate = 1.0F;
    const SparseUpdate update{table.view, params, coalescer.run(std::span(&block, 1), 2, 1), 1};
    expect_parity(table, update, std::to_string(cols));
    const RowOverflow overflow = update_rows(update, {0, 2});
    EXPECT_EQ(overflow.count, 1);
    EXPECT_EQ(overflow.first_row, 1);
    EXPECT_EQ(word_at(table, 0, 1), std::nextafter(limit, 0.0F));
    EXPECT_EQ(word_at(table, 1, 1), 0.0F);
  }
}

}  // namespace
}  // namespace weft::kernels::test
