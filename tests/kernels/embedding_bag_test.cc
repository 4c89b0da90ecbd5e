// Lookups and coalescing against plain loops, bit by bit.

#include "weft/kernels/embedding_bag.h"

#include <bit>
#include <cmath>
#include <memory>

#include <gtest/gtest.h>

#include "tests/kernels/embedding_bag_parity.h"
#include "weft/base/error.h"
#include "weft/kernels/coalesce.h"

namespace weft::kernels::test {
namespace {

TEST(Lookup, PassesItsParityListOnEveryTarget) {
  on_every_target(expect_embedding_bag_parity);
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
