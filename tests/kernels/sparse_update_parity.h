// The parity lists of the sparse updates: every backend passes them (tests/kernels/parity.h).
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/row_cases.h"
#include "weft/kernels/row_statistics.h"
#include "weft/kernels/sparse_update.h"

namespace weft::kernels::test {

inline constexpr SparseOptimizerKind kRules[] = {
    SparseOptimizerKind::kSgd, SparseOptimizerKind::kAdagrad, SparseOptimizerKind::kRowWiseAdagrad,
    SparseOptimizerKind::kAdam, SparseOptimizerKind::kRowWiseAdam};
inline constexpr WeightDecay kDecays[] = {WeightDecay::kNone, WeightDecay::kL2,
                                          WeightDecay::kDecoupled};

inline UpdateParams make_params(SparseOptimizerKind rule, WeightDecay decay, float max_norm) {
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
  p.draws.key = 0x123456789ABCDEFULL;
  p.step = 2;
  return p;
}

inline std::string describe(const UpdateParams& p, const RowTable& table) {
  return "rule " + std::to_string(static_cast<int>(p.rule)) + " decay " +
         std::to_string(static_cast<int>(p.decay)) + " norm " + std::to_string(p.max_norm) + " " +
         std::string(to_string(table.dtype)) + ", " + std::to_string(table.cols) + " columns";
}

/// The memory that an update has left, on both sides.
inline void expect_same_overflow(const RowOverflow& got,
                                 const RowOverflow& expected,
                                 const std::string& what) {
  EXPECT_EQ(got.count, expected.count) << what;
  EXPECT_EQ(got.first_row, expected.first_row) << what;
  EXPECT_EQ(got.first_step, expected.first_step) << what;
}

/// Where a case of an update is, on the host and on the device.
class UpdateCase {
 public:
  UpdateCase(Context& ctx, TableCase& table, RunsCase& runs, std::int64_t parts)
      : ctx_(ctx), table_(table), overflow_(std::vector<RowOverflow>(1)) {
    here_ = {.table = table_.host(), .params = {}, .runs = runs.host(), .parts = parts};
    there_ = {.table = table_.place(ctx), .params = {}, .runs = runs.place(ctx), .parts = parts};
    here_.overflow = overflow_.host();
    there_.overflow = overflow_.place(ctx);
  }

  void set(const UpdateParams& params) { here_.params = there_.params = params; }

  [[nodiscard]] SparseUpdate& here() { return here_; }

  [[nodiscard]] SparseUpdate& there() { return there_; }

  /// Both sides' rows and counts; returns how many rows were left.
  std::int64_t expect_equal(const std::string& what) {
    EXPECT_TRUE(table_.same_bits(ctx_)) << what;
    RowOverflow got;
    ctx_.device->copy_to_host(ctx_, &got, overflow_.placed(), sizeof(got));
    expect_same_overflow(got, *overflow_.host(), what);
    return got.count;
  }

 private:
  Context& ctx_;
  TableCopies table_;
  Copied<RowOverflow> overflow_;
  SparseUpdate here_, there_;
};

/// Two steps; returns how many rows were left as they were.
inline std::int64_t expect_update_parity(
    Device& device, TableCase& table, RunsCase& runs, UpdateParams params, std::int64_t parts) {
  std::int64_t left = 0;
  run_on(device, [&](Context& ctx) {
    UpdateCase both(ctx, table, runs, parts);
    for (int step = 0; step < 2; ++step) {
      both.set(params);
      update_rows(ctx, std::span(&both.there(), 1));
      reference::update_rows(ctx, std::span(&both.here(), 1));
      ++params.step;
    }
    left = both.expect_equal(describe(params, table.view));
  });
  return left;
}

/// With gradients that are there already, of two tables in a call.
inline void expect_given_gradients_parity(Device& device, std::int64_t cols) {
  Random random(8);
  RunsCase runs(random, {.bags = 24, .rows = 20, .cols = cols}, true);
  RunsCase others(random, {.bags = 300, .rows = 20, .cols = cols});
  run_on(device, [&](Context& ctx) {
    TableCase first(random, 20, cols, DType::kFloat32, SparseOptimizerKind::kRowWiseAdagrad);
    TableCase second(random, 20, cols, DType::kBFloat16, SparseOptimizerKind::kAdam);
    UpdateCase one(ctx, first, runs, 8);
    UpdateCase two(ctx, second, others, 8);
    one.set(make_params(SparseOptimizerKind::kRowWiseAdagrad, WeightDecay::kL2, 0.5F));
    two.set(make_params(SparseOptimizerKind::kAdam, WeightDecay::kNone, 0.0F));
    std::vector<float> values;
    for (std::int64_t i = 0; i < runs.host().num_rows * cols; ++i) {
      values.push_back(number(random));
    }
    Copied<float> gradients(values);
    one.there().gradients = gradients.place(ctx);
    one.here().gradients = gradients.host();
    const std::vector<SparseUpdate> there = {one.there(), two.there()};
    const std::vector<SparseUpdate> here = {one.here(), two.here()};
    update_rows(ctx, there);
    reference::update_rows(ctx, here);
    one.expect_equal("given gradients");
    two.expect_equal("of another table");
  });
}

/// Every rule, decay, norm, row type and width; slots in and out of order; two tables in a call.
inline void expect_update_rows_parity(Device& device) {
  for (const std::int64_t cols : kDims) {
    Random random(static_cast<std::uint64_t>(cols));
    const std::int64_t parts = cols % 3 == 0 ? 3 : cols % 2 == 0 ? 8 : 1;
    const bool scattered = cols % 2 != 0 || cols == 64;
    RunsCase runs(random, {.bags = 24, .rows = 20, .cols = cols, .parts = parts}, scattered);
    for (const DType dtype : kRowTypes) {
      for (const SparseOptimizerKind rule : kRules) {
        TableCase table(random, 20, cols, dtype, rule);
        table.view.first_row = 1000;
        table.view.row_step = 3;
        table.view.first_col = 32;
        for (const WeightDecay decay : kDecays) {
          for (const float max_norm : {0.0F, 0.5F}) {
            expect_update_parity(device, table, runs, make_params(rule, decay, max_norm), parts);
          }
        }
      }
    }
    expect_given_gradients_parity(device, cols);
  }
}

/// Without eps a padded column would be 0 / 0, which is no overflow.
inline void expect_padding_parity(Device& device) {
  for (const std::int64_t cols : {3, 16, 33}) {
    Random random(14);
    RunsCase runs(random, {.bags = 24, .rows = 20, .cols = cols});
    for (const SparseOptimizerKind rule : kRules) {
      TableCase table(random, 20, cols, DType::kFloat32, rule);
      UpdateParams params = make_params(rule, WeightDecay::kNone, 0.0F);
      params.eps = 0.0F;
      EXPECT_EQ(expect_update_parity(device, table, runs, params, 8), 0) << cols;
    }
  }
}

/// Overflows in several tasks: their counts and first rows are merged.
inline void expect_overflow_over_tasks(Device& device) {
  Random random(22);
  constexpr std::int64_t kCols = 16;
  for (const SparseOptimizerKind rule : kRules) {
    TableCase table(random, 900, kCols, DType::kFloat32, rule);
    RunsCase runs(random, {.bags = 900, .rows = 900, .cols = kCols});
    for (std::int64_t vector = 5; vector < 900; vector += 83) {
      runs.gradients(0)[vector * kCols] = std::numeric_limits<float>::infinity();
    }
    for (const WeightDecay decay : {WeightDecay::kNone, WeightDecay::kL2}) {
      EXPECT_GT(expect_update_parity(device, table, runs, make_params(rule, decay, 0.0F), 8), 1);
    }
  }
}

/// Gradients that are not finite or too large: such rows are left as they were and counted.
inline void expect_overflow_parity(Device& device) {
  Random random(21);
  const float infinity = std::numeric_limits<float>::infinity();
  const float bad[] = {infinity, -infinity, std::nanf(""), std::numeric_limits<float>::max()};
  for (const std::int64_t cols : {3, 16, 32, 33}) {
    for (const SparseOptimizerKind rule : kRules) {
      for (const DType dtype : kRowTypes) {
        TableCase table(random, 40, cols, dtype, rule);
        RunsCase runs(random, {.bags = 40, .rows = 40, .cols = cols});
        for (const std::int64_t vector : {7, 11, 23, 31}) {
          for (std::int64_t i = 0; i < 4; ++i) {
            runs.gradients(static_cast<std::size_t>(i % 2))[(vector + i) * cols + i % cols] =
                bad[i];
          }
        }
        for (const WeightDecay decay : {WeightDecay::kNone, WeightDecay::kL2}) {
          for (const float max_norm : {0.0F, 1.0F}) {
            UpdateParams params = make_params(rule, decay, max_norm);
            EXPECT_GT(expect_update_parity(device, table, runs, params, 8), 0);
            params.learning_rate = 0.0F;
            expect_update_parity(device, table, runs, params, 8);
          }
        }
      }
    }
  }
}

/// An update in two halves, with the statistics of rows that lie here whole.
class StatisticCase {
 public:
  StatisticCase(Context& ctx, TableCase& table, RunsCase& runs)
      : ctx_(ctx), both_(ctx, table, runs, 8), cols_(table.view.cols), rows_(runs.host().num_rows) {
    std::vector<float> sums(static_cast<std::size_t>(rows_ * cols_));
    const GradientSum sum{.runs = runs.host(), .cols = cols_, .parts = 8, .out = sums.data()};
    reference::sum_gradients(ctx, std::span(&sum, 1));
    values_ = Copied(sums);
    values_.place(ctx);
    const std::int64_t blocks = rows_ * statistic_blocks(cols_);
    blocks_ = Copied(std::vector<float>(static_cast<std::size_t>(blocks), -7.0F));
    blocks_.place(ctx);
    statistic_ = Copied(std::vector<float>(static_cast<std::size_t>(rows_)));
  }

  void expect_parity(const UpdateParams& params, const std::string& what) {
    both_.set(params);
    both_.there().gradients = values_.placed();
    both_.here().gradients = values_.host();
    const BlockSquares there{.update = both_.there(), .out = blocks_.placed()};
    const BlockSquares here{.update = both_.here(), .out = blocks_.host()};
    gradient_block_squares(ctx_, std::span(&there, 1));
    reference::gradient_block_squares(ctx_, std::span(&here, 1));
    EXPECT_TRUE(blocks_.same_bits(ctx_)) << what;
    both_.there().gradients = both_.here().gradients = nullptr;
    sum_rows(static_cast<float>(cols_));
    const StatisticUpdate tested{both_.there(), values_.placed(), statistic_.place(ctx_)};
    const StatisticUpdate plain{both_.here(), values_.host(), statistic_.host()};
    update_rows_with_statistic(ctx_, std::span(&tested, 1));
    reference::update_rows_with_statistic(ctx_, std::span(&plain, 1));
    both_.expect_equal(what);
    EXPECT_TRUE(values_.same_bits(ctx_)) << what;
    if (params.max_norm > 0.0F) {
      expect_second_half(what);
    }
  }

 private:
  void expect_second_half(const std::string& what) {
    const RowSquares there{rows_, cols_, values_.placed(), blocks_.placed()};
    const RowSquares here{rows_, cols_, values_.host(), blocks_.host()};
    row_block_squares(ctx_, std::span(&there, 1));
    reference::row_block_squares(ctx_, std::span(&here, 1));
    EXPECT_TRUE(blocks_.same_bits(ctx_)) << what;
    sum_rows(1.0F);
    const StatisticUpdate tested{both_.there(), values_.placed(), statistic_.place(ctx_)};
    const StatisticUpdate plain{both_.here(), values_.host(), statistic_.host()};
    store_scaled_rows(ctx_, std::span(&tested, 1));
    reference::store_scaled_rows(ctx_, std::span(&plain, 1));
    both_.expect_equal(what);
  }

  /// Statistics of the rows from their blocks.
  void sum_rows(float divisor) {
    const std::int64_t blocks = statistic_blocks(cols_);
    for (std::int64_t u = 0; u < rows_; ++u) {
      statistic_.host()[u] = block_tree_sum(blocks_.host() + u * blocks, blocks) / divisor;
    }
  }

  Context& ctx_;
  UpdateCase both_;
  std::int64_t cols_;
  std::int64_t rows_;
  Copied<float> values_, blocks_, statistic_;
};

inline void expect_statistic_update_parity(Device& device) {
  Random random(4);
  for (const std::int64_t cols : kDims) {
    RunsCase runs(random, {.rows = 20, .cols = cols}, cols % 2 == 0);
    for (const DType dtype : kRowTypes) {
      for (const SparseOptimizerKind rule : kRules) {
        TableCase table(random, 20, cols, dtype, rule);
        for (const WeightDecay decay : kDecays) {
          for (const float max_norm : {0.0F, 0.5F}) {
            const UpdateParams params = make_params(rule, decay, max_norm);
            run_on(device, [&](Context& ctx) {
              StatisticCase(ctx, table, runs).expect_parity(params, describe(params, table.view));
            });
          }
        }
      }
    }
  }
}

/// Rows whose columns lie with one, two or three holders.
inline void expect_row_blocks_parity(Device& device) {
  Random random(6);
  for (const std::int64_t rows : {0, 1, 2500}) {
    for (const std::vector<std::int64_t>& counts :
         {std::vector<std::int64_t>{1}, {3, 1}, {2, 5, 4}}) {
      run_on(device, [&](Context& ctx) {
        std::vector<Copied<float>> blocks;
        std::vector<const float*> there;
        std::vector<const float*> here;
        for (const std::int64_t count : counts) {
          std::vector<float> values;
          for (std::int64_t i = 0; i < rows * count; ++i) {
            values.push_back(number(random));
          }
          blocks.emplace_back(std::move(values));
        }
        for (Copied<float>& one : blocks) {
          there.push_back(one.place(ctx));
          here.push_back(one.host());
        }
        Copied<float> out(std::vector<float>(static_cast<std::size_t>(rows), -7.0F));
        const RowBlocks tested{rows, there, counts, 33.0F, out.place(ctx)};
        const RowBlocks plain{rows, here, counts, 33.0F, out.host()};
        sum_row_blocks(ctx, std::span(&tested, 1));
        reference::sum_row_blocks(ctx, std::span(&plain, 1));
        EXPECT_TRUE(out.same_bits(ctx)) << rows << " rows";
      });
    }
  }
}

}  // namespace weft::kernels::test
