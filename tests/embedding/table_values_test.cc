// Values of a table: the first ones, rounding, what is saved, what is refused, what is allocated.

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "tests/base/count_allocations.h"
#include "tests/embedding/sparse_job.h"
#include "weft/base/error.h"

namespace weft::embedding::test {
namespace {

std::vector<float> initial_rows(const spec::Table& table, std::uint64_t seed) {
  std::vector<float> values;
  std::vector<float> row(static_cast<std::size_t>(table.embedding_dim));
  for (std::int64_t r = 0; r < table.num_embeddings; ++r) {
    initial_values(table, seed, r, {0, table.embedding_dim}, row.data());
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

TEST(InitialValues, AnyCutOfColumnsGivesTheSame) {
  for (const auto init : {spec::TableInit::kUniform, spec::TableInit::kNormal}) {
    spec::Table table = make_table(5, 37);
    table.init = init;
    const std::vector<float> all = initial_rows(table, 3);
    for (std::int64_t begin = 0; begin < 37; begin += 16) {
      for (std::int64_t end = begin; end <= 37; ++end) {
        std::vector<float> some(static_cast<std::size_t>(end - begin));
        initial_values(table, 3, 4, {begin, end}, some.data());
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 4 * 37 + begin));
      }
    }
    EXPECT_EQ(std::set<float>(all.begin(), all.end()).size(), all.size()) << "all differ";
    EXPECT_NE(initial_rows(table, 4), all);
    table.name = "C2";
    EXPECT_NE(initial_rows(table, 3), all);
  }
}

TEST(InitialValues, HaveTheDistributionAskedFor) {
  spec::Table table = make_table(2000, 16);
  const auto moments = [&] {
    double sum = 0.0;
    double squares = 0.0;
    double largest = 0.0;
    const std::vector<float> values = initial_rows(table, 1);
    for (const float value : values) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
      largest = std::max(largest, std::abs(static_cast<double>(value)));
    }
    const auto n = static_cast<double>(values.size());
    return std::array<double, 3>{sum / n, std::sqrt(squares / n), largest};
  };
  const double s = 1.0 / std::sqrt(2000.0);
  const auto uniform = moments();
  EXPECT_NEAR(uniform[0], 0.0, 0.02 * s);
  EXPECT_NEAR(uniform[1], s / std::sqrt(3.0), 0.01 * s);
  EXPECT_LE(uniform[2], s);
  table.init = spec::TableInit::kNormal;
  table.init_scale = 0.5;
  const auto normal = moments();
  EXPECT_NEAR(normal[0], 0.0, 0.015);
  EXPECT_NEAR(normal[1], 0.5, 0.01);
  EXPECT_GT(normal[2], 1.5);
  table.init = spec::TableInit::kZero;
  EXPECT_EQ(moments()[2], 0.0);
}

TEST(InitialState, IsWhatAFreshTableHolds) {
  const std::unique_ptr<Device> device = make_device({.threads = 2});
  for (const spec::SparseOptimizer& optimizer : all_optimizers()) {
    for (const auto dtype : {spec::RowDType::kFp32, spec::RowDType::kFp16, spec::RowDType::kBf16,
                             spec::RowDType::kSplitBf16}) {
      spec::Table table = make_table(5000, 36);
      table.optimizer = optimizer;
      table.dtype = dtype;
      const TableShard shard(*device, table, {10, 4990}, {16, 36}, kSeed, {});
      const std::vector<StateItem> items = shard.state_items();
      for (std::size_t index = 0; index < items.size(); ++index) {
        const auto bytes = static_cast<std::size_t>(
            100 * (items[index].col_end - items[index].col_begin) * size_of(items[index].dtype));
        std::vector<std::byte> held(bytes);
        std::vector<std::byte> initial(bytes, std::byte{1});
        shard.read_state(index, 4500, 100, held.data());
        shard.initial_state(index, 4500, 100, initial.data());
        EXPECT_TRUE(held == initial) << items[index].kind << " " << describe(table);

        // Rows in place have the same bytes; weights in two halves lie nowhere.
        const RowsInPlace rows = shard.rows_in_place(index, 4500, 100);
        const bool in_halves = index == 0 && dtype == spec::RowDType::kSplitBf16;
        ASSERT_EQ(rows.begin == nullptr, in_halves) << items[index].kind << " " << describe(table);
        for (std::size_t row = 0; row < 100 && !in_halves; ++row) {
          EXPECT_EQ(std::memcmp(rows.begin + static_cast<std::ptrdiff_t>(row) * rows.stride,
                                held.data() + row * (bytes / 100), bytes / 100),
                    0)
              << row << " of " << items[index].kind << " " << describe(table);
        }
      }
    }
  }
}

TEST(StateItems, NameKindsShapesAndHolders) {
  const std::unique_ptr<Device> device = make_device({});
  spec::Table table = make_table(100, 48);
  table.optimizer.type = SparseOptimizerKind::kRowWiseAdam;
  table.dtype = spec::RowDType::kBf16;
  const TableShard right(*device, table, {20, 50}, {16, 48}, kSeed, {});
  const std::vector<StateItem> items = right.state_items();
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0].parameter, "tables.C1");
  EXPECT_EQ(items[0].kind, "weight");
  EXPECT_EQ(items[0].dtype, DType::kBFloat16);
  EXPECT_EQ(items[0].cols, 48);
  EXPECT_EQ(items[0].col_begin, 16);
  EXPECT_TRUE(items[0].first_holder);
  EXPECT_EQ(items[1].kind, "exp_avg");
  EXPECT_EQ(items[1].dtype, DType::kFloat32);
  EXPECT_EQ(items[2].kind, "exp_avg_sq");
  EXPECT_EQ(items[2].cols, 1);
  EXPECT_EQ(items[2].row_begin, 20);
  EXPECT_EQ(items[2].row_end, 50);
  EXPECT_FALSE(items[2].first_holder) << "the shard with column 0 counts it";
  table.dtype = spec::RowDType::kSplitBf16;
  const TableShard halves(*device, table, {20, 50}, {16, 48}, kSeed, {});
  EXPECT_EQ(halves.state_items()[0].dtype, DType::kFloat32)
      << "the words that the halves stand for";
}

/// Where a row's bytes lie: [begin, end) of each of its runs.
std::vector<Range> runs_of(const layout::RowGeometry& g,
                           const spec::Table& table,
                           std::int64_t cols,
                           std::int64_t row) {
  const bool halves = table.dtype == spec::RowDType::kSplitBf16;
  const std::int64_t low = halves ? 2 * cols : 0;
  const std::int64_t weights = g.weight_offset + row * g.weight_stride;
  const std::int64_t state = g.state_offset + row * g.rest_stride;
  const std::int64_t lows = g.low_offset + row * g.rest_stride;
  const std::int64_t size = cols * size_of(storage::row_dtype(table.dtype)) - low;
  return {{weights, weights + size},
          {state, state + 4 * state_floats(table.optimizer.type, cols)},
          {lows, lows + low}};
}

TEST(RowGeometry, RunsAreAlignedAndDoNotMeet) {
  for (const spec::SparseOptimizer& optimizer : all_optimizers()) {
    for (const auto dtype : {spec::RowDType::kFp32, spec::RowDType::kFp16, spec::RowDType::kBf16,
                             spec::RowDType::kSplitBf16}) {
      for (const std::int64_t cols : {1, 2, 15, 16, 17, 64, 130}) {
        spec::Table table = make_table(7, cols);
        table.optimizer = optimizer;
        table.dtype = dtype;
        const layout::RowGeometry g = layout::row_geometry(table, 7, cols);
        std::vector<Range> runs;
        std::int64_t bytes = 0;
        for (std::int64_t row = 0; row < 7; ++row) {
          const std::vector<Range> own = runs_of(g, table, cols, row);
          EXPECT_EQ(own[1].begin % 4, 0);
          EXPECT_EQ(own[2].begin % 2, 0);
          if (dtype == spec::RowDType::kSplitBf16) {
            EXPECT_EQ(own[2].begin, own[1].end) << "state and low halves are one run";
          }
          for (const Range& run : own) {
            bytes += run.size();
            if (!run.empty()) {
              runs.push_back(run);
            }
          }
        }
        EXPECT_EQ(bytes, 7 * g.row_bytes) << describe(table);
        std::sort(runs.begin(), runs.end(),
                  [](const Range& a, const Range& b) { return a.begin < b.begin; });
        EXPECT_LE(runs.back().end, g.total_bytes);
        for (std::size_t i = 1; i < runs.size(); ++i) {
          EXPECT_LE(runs[i - 1].end, runs[i].begin) << describe(table);
        }
      }
    }
  }
}

TEST(State, SavedByRowsAndColumnsGoesOnWithTheSameBits) {
  const std::unique_ptr<Device> device = make_device({});
  Random random(6);
  const StepData first = make_step(random, {.dim = 36});
  const StepData second = make_step(random, {.dim = 36});
  Context ctx;
  for (const spec::SparseOptimizer& optimizer : all_optimizers()) {
    spec::Table table = make_table(50, 36);
    table.optimizer = optimizer;
    table.dtype = optimizer.max_norm > 0.0 ? spec::RowDType::kFp16 : spec::RowDType::kSplitBf16;
    const auto shard = whole(*device, table);
    RowGradients gradients(*device, *shard);
    gradients.coalesce(ctx, first.blocks());
    shard->update(ctx, gradients, update_step(1));
    TableShard copy(*device, table, {0, 50}, {0, 36}, kSeed + 1, {});
    const State state = state_of({shard.get()});
    const std::vector<StateItem> items = copy.state_items();
    for (std::size_t index = 0; index < items.size(); ++index) {
      const std::int64_t cols = items[index].cols;
      const std::int64_t size = size_of(items[index].dtype);
      const std::vector<std::byte>& all = state.at(items[index].kind);
      for (const Range rows : {Range{30, 50}, Range{0, 30}}) {
        for (const Range part : {Range{0, (cols + 1) / 2}, Range{(cols + 1) / 2, cols}}) {
          std::vector<std::byte> block;
          for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            const std::byte* const at = all.data() + (row * cols + part.begin) * size;
            block.insert(block.end(), at, at + part.size() * size);
          }
          copy.write_state(index, rows.begin, rows.size(), part.begin, part.end, block.data());
        }
      }
    }
    for (TableShard* const one : {shard.get(), &copy}) {
      RowGradients second_gradients(*device, *one);
      second_gradients.coalesce(ctx, second.blocks());
      one->update(ctx, second_gradients, update_step(2));
    }
    EXPECT_TRUE(state_of({shard.get()}) == state_of({&copy})) << describe(table);
  }
}

/// Rows of ones, all updated by the same small step.
std::vector<float> rounded_ones(spec::RowDType dtype, float gradient, const UpdateStep& step) {
  constexpr std::int64_t kRows = 2048;
  constexpr std::int64_t kDim = 64;
  const std::unique_ptr<Device> device = make_device({});
  spec::Table table = make_table(kRows, kDim);
  table.dtype = dtype;
  table.optimizer.type = SparseOptimizerKind::kSgd;
  table.optimizer.learning_rate = 1.0;
  const auto shard = whole(*device, table);
  const std::uint16_t one =
      dtype == spec::RowDType::kBf16 ? to_bfloat16(1.0F).bits : to_float16(1.0F).bits;
  std::vector<std::uint16_t> halves(kRows * kDim, one);
  shard->write_state(0, 0, kRows, 0, kDim, halves.data());
  Feature feature;
  for (std::int64_t row = 0; row < kRows; ++row) {
    feature.ids.push_back(row);
    feature.offsets.push_back(row + 1);
    feature.parts.push_back(0);
  }
  feature.grads.assign(static_cast<std::size_t>(kRows * kDim), -gradient);
  const StepData data{.dim = kDim, .features = {feature}};
  Context ctx;
  RowGradients gradients(*device, *shard);
  gradients.coalesce(ctx, data.blocks());
  shard->update(ctx, gradients, step);
  shard->read_state(0, 0, kRows, halves.data());
  std::vector<float> values;
  for (const std::uint16_t half : halves) {
    values.push_back(dtype == spec::RowDType::kBf16 ? to_float(BFloat16{half})
                                                    : to_float(Float16{half}));
  }
  return values;
}

TEST(StochasticRounding, GoesUpAsOftenAsTheDroppedFractionSays) {
  for (const auto dtype : {spec::RowDType::kBf16, spec::RowDType::kFp16}) {
    const float unit = dtype == spec::RowDType::kBf16 ? 0x1.0p-7F : 0x1.0p-10F;
    for (const float fraction : {0.125F, 0.5F, 0.8125F}) {
      const std::vector<float> values =
          rounded_ones(dtype, fraction * unit, {.learning_rate_factor = 1.0, .step = 1, .seed = 5});
      std::int64_t up = 0;
      for (const float value : values) {
        ASSERT_TRUE(value == 1.0F || value == 1.0F + unit) << value;
        up += value == 1.0F ? 0 : 1;
      }
      const auto n = static_cast<double>(values.size());
      const auto p = static_cast<double>(fraction);
      EXPECT_NEAR(static_cast<double>(up) / n, p, 5.0 * std::sqrt(p * (1.0 - p) / n));
    }
  }
}

TEST(StochasticRounding, DrawsDependOnSeedAndStep) {
  const auto draw = [](std::int64_t step, std::uint64_t seed) {
    return rounded_ones(spec::RowDType::kBf16, 0x1.0p-8F,
                        {.learning_rate_factor = 1.0, .step = step, .seed = seed});
  };
  const std::vector<float> first = draw(1, 5);
  EXPECT_EQ(draw(1, 5), first);
  EXPECT_NE(draw(2, 5), first);
  EXPECT_NE(draw(1, 6), first);
}

// Rows in place follow the step of the shard, and lie nowhere on a device with memory of its own.
TEST(RowSteps, LieInPlaceOnTheCpuAlone) {
  const spec::Table table = make_table(100, 20);
  const std::unique_ptr<Device> cpu = make_device({});
  const TableShard every(*cpu, table, {2, 100, 7}, {0, 20}, kSeed, {});
  std::vector<float> held(20);
  for (std::int64_t row = 2; row < 100; row += 7) {
    every.read_state(0, row, 1, held.data());
    const RowsInPlace place = every.rows_in_place(0, row, 1);
    ASSERT_NE(place.begin, nullptr);
    EXPECT_EQ(std::memcmp(place.begin, held.data(), 20 * sizeof(float)), 0) << row;
    const RowsInPlace all = every.rows_in_place(0, 2, every.rows().size());
    EXPECT_EQ(all.begin + every.rows().index(row) * all.stride, place.begin) << row;
  }
  const std::unique_ptr<Device> check = make_device({.kind = DeviceKind::kCheck});
  const TableShard apart(*check, table, {2, 100, 7}, {0, 20}, kSeed, {});
  EXPECT_EQ(apart.rows_in_place(0, 2, 1).begin, nullptr);
}

TEST(RowSteps, HaveTheInitialValuesOfTheirRowsOfTheTable) {
  const std::unique_ptr<Device> device = make_device({});
  for (const std::int64_t dim : {3, 16, 21, 80}) {
    for (const auto init : {spec::TableInit::kUniform, spec::TableInit::kNormal}) {
      spec::Table table = make_table(100, dim);
      table.init = init;
      const auto values = [&](const TableShard& shard, std::int64_t row, std::int64_t rows) {
        std::vector<float> out(static_cast<std::size_t>(rows * dim));
        shard.read_state(0, row, rows, out.data());
        return out;
      };
      const TableShard whole(*device, table, {0, 100}, {0, dim}, kSeed, {});
      const TableShard every(*device, table, {2, 100, 7}, {0, dim}, kSeed, {});
      std::vector<float> expected;
      for (std::int64_t row = 2; row < 100; row += 7) {
        const std::vector<float> one = values(whole, row, 1);
        expected.insert(expected.end(), one.begin(), one.end());
      }
      EXPECT_EQ(values(every, 2, 14), expected);
      std::vector<float> initial(static_cast<std::size_t>(5 * dim));
      every.initial_state(0, 2 + 3 * 7, 5, initial.data());
      EXPECT_EQ(initial, values(every, 2 + 3 * 7, 5));
    }
  }
}

TEST(Overflow, OfEveryThirdRowIsNumberedInTheTable) {
  const std::unique_ptr<Device> device = make_device({});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  TableShard shard(*device, make_table(30, 8), {1, 30, 3}, {0, 8}, kSeed, {});
  Feature feature;
  feature.ids = {4};
  feature.offsets = {0, 1};
  feature.parts = {0};
  feature.grads.assign(8, std::numeric_limits<float>::infinity());
  const StepData data{.dim = 8, .features = {feature}};
  RowGradients gradients(*device, shard);
  gradients.coalesce(ctx, data.blocks());
  shard.update(ctx, gradients, update_step(1));
  EXPECT_EQ(shard.first_overflow_row(), 13);
}

TEST(Overflow, RowsAreSkippedCountedAndTheFirstIsKept) {
  const std::unique_ptr<Device> device = make_device({.threads = 2});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  const spec::Table table = make_table(1000, 8);
  TableShard shard(*device, table, {100, 900}, {0, 8}, kSeed, {});
  Feature feature;
  for (std::int64_t row = 0; row < 800; ++row) {
    feature.ids.push_back(row);
    feature.offsets.push_back(row + 1);
    feature.parts.push_back(static_cast<std::int32_t>(row / 100));
  }
  feature.grads.assign(800 * 8, 1.0F);
  StepData data{.dim = 8, .features = {feature}};
  // A finite sum of which the squares are not.
  data.features[0].grads[700 * 8 + 3] = 1e30F;
  data.features[0].grads[650 * 8] = std::numeric_limits<float>::infinity();
  const State before = state_of({&shard});
  RowGradients gradients(*device, shard);
  gradients.coalesce(ctx, data.blocks());
  shard.update(ctx, gradients, update_step(1));
  EXPECT_EQ(shard.overflow_count(), 2);
  EXPECT_EQ(shard.first_overflow_row(), 750);
  const State after = state_of({&shard});
  const auto row_is_same = [&](std::int64_t row) {
    return std::memcmp(before.at("weight").data() + row * 32, after.at("weight").data() + row * 32,
                       32) == 0 &&
           std::memcmp(before.at("sum").data() + row * 4, after.at("sum").data() + row * 4, 4) == 0;
  };
  EXPECT_TRUE(row_is_same(750));
  EXPECT_TRUE(row_is_same(800));
  EXPECT_FALSE(row_is_same(751));
  EXPECT_FALSE(row_is_same(100));
  data.features[0].grads[0] = std::numeric_limits<float>::quiet_NaN();
  gradients.coalesce(ctx, data.blocks());
  shard.update(ctx, gradients, update_step(2));
  EXPECT_EQ(shard.overflow_count(), 5);
  EXPECT_EQ(shard.first_overflow_row(), 750) << "the first step's row is kept";
}

TEST(Memory, AStepAllocatesNothingOnceTheLongestHasBeenSeen) {
  const std::unique_ptr<Device> device = make_device({});
  Random random(8);
  const StepData longest = make_step(random, {.rows = 400, .dim = 40, .samples = 600});
  const StepData shorter = make_step(random, {.rows = 400, .dim = 40, .samples = 500});
  spec::Table table = make_table(400, 40);
  table.dtype = spec::RowDType::kBf16;
  const auto shard = whole(*device, table);
  RowGradients gradients(*device, *shard);
  std::vector<float> out(600 * 40);
  Context ctx{.device = device.get(), .pool = &device->pool()};
  const std::vector<GradientBlock> long_blocks = longest.blocks();
  const std::vector<GradientBlock> short_blocks = shorter.blocks();
  std::int64_t step = 0;
  std::vector<std::vector<PartialRows>> partials(1);
  const auto run = [&](const StepData& data, const std::vector<GradientBlock>& blocks) {
    const kernels::BagLookup lookup =
        shard->lookup({data.features[0].bags(), true, out.data(), 40});
    kernels::embedding_bag(ctx, std::span(&lookup, 1));
    gradients.coalesce(ctx, blocks);
    shard->update(ctx, gradients, update_step(++step));
    gradients.coalesce(ctx, blocks);
    RowGradients* const one = &gradients;
    RowGradients::accumulate_partials(ctx, std::span(&one, 1), {0, 8});
    partials.front().assign(1, gradients.partials());
    RowGradients::merge_partials(ctx, std::span(&one, 1), partials);
    shard->update(ctx, gradients, update_step(++step));
  };
  run(longest, long_blocks);
  weft::test::watch_allocations();
  run(shorter, short_blocks);
  run(longest, long_blocks);
  EXPECT_EQ(weft::test::stop_watching().own, 0) << weft::test::describe_allocations();
}

}  // namespace
}  // namespace weft::embedding::test
