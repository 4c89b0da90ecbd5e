// Lookups and coalescing against plain loops, bit by bit.

#include "weft/kernels/embedding_bag.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>

#include <gtest/gtest.h>

#include "tests/kernels/sparse_cases.h"
#include "weft/base/error.h"
#include "weft/base/thread_pool.h"
#include "weft/kernels/coalesce.h"

namespace weft::kernels::test {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

/// Several lookups of one table, each into its own output with a wide stride.
struct LookupCase {
  std::vector<BagsCase> bags;
  std::vector<std::vector<float>> out;
  std::vector<BagLookup> lookups;

  LookupCase(Random& random, const TableCase& table) {
    for (const bool pooled : {true, false}) {
      for (const bool weighted : {false, true}) {
        BagsShape shape{.rows = table.rows, .cols = table.view.cols};
        shape.pooled = pooled;
        shape.weighted = weighted;
        bags.push_back(make_bags(random, shape));
        shape.bags = 1;
        bags.push_back(make_bags(random, shape));
        shape.bags = 3;
        shape.longest = 400;
        bags.push_back(make_bags(random, shape));
      }
    }
    bags.push_back(BagsCase{});
    bags.back().cols = table.view.cols;
    for (const BagsCase& one : bags) {
      add(table, one, table.view.cols + 3, Output::kNear);
      add(table, one, table.view.cols + 16, Output::kFar);  // streamed where the columns allow it
    }
  }

  void add(const TableCase& table, const BagsCase& one, std::int64_t stride, Output output) {
    constexpr std::size_t kLine = 64;
    const std::int64_t vectors =
        one.pooled ? one.bags().bags : static_cast<std::int64_t>(one.ids.size());
    out.emplace_back(static_cast<std::size_t>(vectors * stride) + kLine / sizeof(float), -7.0F);
    float* const data = out.back().data();
    const std::size_t behind = reinterpret_cast<std::uintptr_t>(data) % kLine;
    lookups.push_back({.weights = table.view.weights,
                       .weight_stride = table.view.weight_stride,
                       .dtype = table.view.dtype,
                       .cols = table.view.cols,
                       .bags = one.bags(),
                       .pooled = one.pooled,
                       .out = data + (kLine - behind) % kLine / sizeof(float),
                       .out_stride = stride,
                       .output = output});
  }

  std::vector<std::vector<float>> run(const std::function<void()>& body) {
    for (auto& one : out) {
      std::fill(one.begin(), one.end(), -7.0F);
    }
    body();
    return out;
  }
};

class Lookup : public testing::TestWithParam<std::int64_t> {};

TEST_P(Lookup, EqualsPlainLoopsOnEveryTargetAndPool) {
  Random random(11);
  for (const DType dtype : kRowTypes) {
    const TableCase table(random, 37, GetParam(), dtype, SparseOptimizerKind::kAdagrad);
    LookupCase cases(random, table);
    const auto expected = cases.run([&] { reference::embedding_bag(cases.lookups); });
    for (const std::int64_t target : targets()) {
      const OnTarget on(target);
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        Context ctx{.pool = &pool};
        const auto got = cases.run([&] { embedding_bag(ctx, cases.lookups); });
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(same_bits(got[i], expected[i]))
              << "lookup " << i << " of " << to_string(dtype) << " on " << hwy::TargetName(target);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dims, Lookup, testing::ValuesIn(kDims));

/// Bags that are cut into many tasks: none, one, and one with more ids than a task has.
TEST(LookupTasks, CoverBagsOfAnyLengthOnce) {
  Random random(12);
  const TableCase table(random, 50, 16, DType::kFloat32, SparseOptimizerKind::kSgd);
  BagsCase bags;
  bags.cols = 16;
  for (std::int64_t b = 0; b < 9000; ++b) {
    const std::int64_t length = b == 4000 ? 7000 : b < 3000 ? 0 : below(random, 3);
    for (std::int64_t i = 0; i < length; ++i) {
      bags.ids.push_back(below(random, table.rows));
    }
    bags.offsets.push_back(static_cast<std::int64_t>(bags.ids.size()));
  }
  for (const bool pooled : {true, false}) {
    bags.pooled = pooled;
    const std::int64_t vectors =
        pooled ? bags.bags().bags : static_cast<std::int64_t>(bags.ids.size());
    std::vector<float> out(static_cast<std::size_t>(vectors * 16), -7.0F);
    BagLookup lookup{.weights = table.view.weights,
                     .weight_stride = table.view.weight_stride,
                     .dtype = table.view.dtype,
                     .cols = 16,
                     .bags = bags.bags(),
                     .pooled = pooled,
                     .out = out.data(),
                     .out_stride = 16};
    reference::embedding_bag(std::span(&lookup, 1));
    const std::vector<float> expected = out;
    EXPECT_GE(embedding_bag_blocks(lookup), 7);
    std::fill(out.begin(), out.end(), -7.0F);
    for (std::int64_t block = 0; block < embedding_bag_blocks(lookup); ++block) {
      embedding_bag_block(lookup, block);
    }
    EXPECT_TRUE(same_bits(out, expected));
  }
}

TEST(LookupTypes, EveryHalfIsReadExactly) {
  std::vector<std::uint16_t> halves(1 << 16);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(i);
  }
  constexpr std::int64_t kCols = 128;
  constexpr std::int64_t kRows = (1 << 16) / kCols;
  BagsCase bags;
  bags.pooled = false;
  for (std::int64_t row = 0; row < kRows; ++row) {
    bags.ids.push_back(row);
    bags.offsets.push_back(row + 1);
  }
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<float> out(halves.size());
    const BagLookup lookup{.weights = halves.data(),
                           .weight_stride = kCols * 2,
                           .dtype = dtype,
                           .cols = kCols,
                           .bags = bags.bags(),
                           .pooled = false,
                           .out = out.data(),
                           .out_stride = kCols};
    for (const std::int64_t target : targets()) {
      const OnTarget on(target);
      Context ctx;
      embedding_bag(ctx, std::span(&lookup, 1));
      for (std::size_t i = 0; i < halves.size(); ++i) {
        const float expected =
            dtype == DType::kFloat16 ? to_float(Float16{halves[i]}) : to_float(BFloat16{halves[i]});
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(out[i])) << i;
        } else {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(expected))
              << to_string(dtype) << " " << i << " on " << hwy::TargetName(target);
        }
      }
    }
  }
}

TEST(LookupIds, AnIdOutsideTheRowsIsNamed) {
  BagsCase bags;
  bags.ids = {0, 4, 5};
  bags.offsets = {0, 3};
  validate_ids(bags.bags(), 6, "feature 'a'");
  try {
    validate_ids(bags.bags(), 5, "feature 'a'");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_NE(std::string(error.what()).find("feature 'a': id 5 at place 2"), std::string::npos);
  }
}

struct SortShape {
  std::int64_t bags;
  std::int64_t rows;
  std::int64_t parts;
  Skew skew;
};

TEST(Coalesce, EqualsAStableSort) {
  const std::unique_ptr<Device> device = make_device({});
  Coalescer coalescer(*device);  // one for all, so that its buffers are used again
  const std::vector<SortShape> shapes = {{1, 1, 1, Skew::kUniform},
                                         {5, 1, 8, Skew::kOneRow},
                                         {40, 3, 8, Skew::kUniform},
                                         {3000, 50, 8, Skew::kHot},
                                         {3000, 5000, 1, Skew::kUniform},
                                         {3000, std::int64_t{1} << 25, 8, Skew::kUniform},
                                         {60, 1 << 20, 8, Skew::kUniform},
                                         {3000, 1 << 20, 8, Skew::kUniform},
                                         {2000, 7, 3, Skew::kOneRow},
                                         {3000, std::int64_t{1} << 40, 8, Skew::kUniform},
                                         {30, std::int64_t{1} << 40, 16, Skew::kHot}};
  Random random(5);
  for (const SortShape& shape : shapes) {
    std::vector<BagsCase> cases;
    std::vector<GradientBlock> blocks;
    for (const bool weighted : {false, true}) {
      cases.push_back(make_bags(random, {.bags = shape.bags,
                                         .longest = 3,
                                         .rows = shape.rows,
                                         .cols = 2,
                                         .parts = shape.parts,
                                         .skew = shape.skew,
                                         .weighted = weighted}));
      cases.push_back(make_bags(random, {.bags = shape.bags,
                                         .rows = shape.rows,
                                         .cols = 2,
                                         .parts = shape.parts,
                                         .skew = shape.skew,
                                         .pooled = false,
                                         .weighted = weighted}));
    }
    for (const BagsCase& one : cases) {
      blocks.push_back(one.block());
    }
    EXPECT_TRUE(reference::same_runs(coalescer.run(blocks, shape.rows, shape.parts), blocks));
    const std::span<const GradientBlock> plain(blocks.data(), 1);
    EXPECT_TRUE(reference::same_runs(coalescer.run(plain, shape.rows, shape.parts), plain));
  }
}

TEST(Coalesce, PartsComeInAnyOrder) {
  const std::unique_ptr<Device> device = make_device({});
  Coalescer coalescer(*device);
  Random random(8);
  for (const bool weighted : {false, true}) {
    BagsCase bags = make_bags(random, {.bags = 3000, .rows = 90, .cols = 2, .weighted = weighted});
    for (std::int32_t& part : bags.parts) {
      part = static_cast<std::int32_t>(below(random, 8));
    }
    const GradientBlock block = bags.block();
    EXPECT_TRUE(
        reference::same_runs(coalescer.run(std::span(&block, 1), 90, 8), std::span(&block, 1)));
  }
}

TEST(Coalesce, NothingGivesNothing) {
  const std::unique_ptr<Device> device = make_device({});
  Coalescer coalescer(*device);
  EXPECT_EQ(coalescer.run({}, 10, 8).num_rows, 0);
  BagsCase empty;
  empty.offsets = {0, 0, 0};
  empty.parts = {0, 1};
  const GradientBlock block = empty.block();
  const RowRuns runs = coalescer.run(std::span(&block, 1), 10, 8);
  EXPECT_EQ(runs.num_rows, 0);
  EXPECT_EQ(runs.num_segments, 0);
}

}  // namespace
}  // namespace weft::kernels::test
