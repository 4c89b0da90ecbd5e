// Lookups against plain loops, bit by bit.

#include "weft/kernels/embedding_bag.h"

#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/embedding_bag_parity.h"
#include "weft/base/error.h"

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

}  // namespace
}  // namespace weft::kernels::test
