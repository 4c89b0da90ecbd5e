// Bags that are assembled of the vectors that have come for them, against plain loops, bit by bit.

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/assemble_bags_parity.h"

namespace weft::kernels::test {
namespace {

TEST(AssembleBags, PassesItsParityList) {
  for (const int threads : {1, 3}) {
    expect_assemble_bags_parity(*make_device({.threads = threads}));
  }
  on_check_device(expect_assemble_bags_parity);
}

/// The tree over four cuts is ((0 + 1) + (2 + 3)); a bag of cuts 1 and 3 is their sum.
TEST(AssembleBags, PartialSumsGoUpTheTreeOverCuts) {
  const float large = 0x1p24F;
  const std::vector<float> vectors[4] = {{large}, {1.0F, 1.0F}, {1.0F}, {-large, 2.0F}};
  std::vector<BagVectors> cuts;
  for (const std::vector<float>& of_cut : vectors) {
    cuts.push_back({of_cut.data(), 1, nullptr, std::ssize(of_cut)});
  }
  const std::int32_t begins[] = {0, 4, 6, 6};
  const BagTerm terms[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {1, 1}, {3, 1}};
  float out[3] = {-7.0F, -7.0F, -7.0F};
  const std::int64_t offsets[] = {0, 1, 3, 3};
  const BagAssembly job{
      .to = {out, 1, 1}, .bags = 3, .cuts = cuts, .terms = {begins, terms}, .offsets = offsets};
  const std::unique_ptr<Device> device = make_device({});
  run_on(*device, [&](Context& ctx) { assemble_bags(ctx, std::span(&job, 1)); });
  // In fp32 2^24 + 1 is 2^24 and 1 - 2^24 is exact, so another order would give another sum.
  EXPECT_EQ(out[0], (large + 1.0F) + (1.0F - large));
  EXPECT_EQ(out[0], 1.0F);
  EXPECT_EQ(out[1], 1.5F);
  EXPECT_EQ(out[2], 0.0F);
}

/// Of eight cuts only 1, 2, 3 and 6 are given: the tree is that of eight, (1 + (2 + 3)) + 6.
TEST(AssembleBags, TheTreeIsThatOfAllCutsWhereSomeAreGiven) {
  const std::vector<float> vectors = {1.0F, 0x1p24F, -0x1p24F, 1.0F};
  std::vector<BagVectors> cuts;
  for (const float& of_cut : vectors) {
    cuts.push_back({&of_cut, 1, nullptr, 1});
  }
  const std::int32_t begins[] = {0, 4};
  const BagTerm terms[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
  const std::int32_t numbers[] = {1, 2, 3, 6};
  float out = -7.0F;
  BagAssembly job{.to = {&out, 1, 1}, .bags = 1, .cuts = cuts, .terms = {begins, terms}};
  const std::unique_ptr<Device> device = make_device({});
  run_on(*device, [&](Context& ctx) { assemble_bags(ctx, std::span(&job, 1)); });
  EXPECT_EQ(out, 1.0F) << "of four cuts";  // (1 + 2^24) + (1 - 2^24)
  job.cut_numbers = numbers;
  run_on(*device, [&](Context& ctx) { assemble_bags(ctx, std::span(&job, 1)); });
  EXPECT_EQ(out, 2.0F);
  run_on(*device, [&](Context& ctx) { reference::assemble_bags(ctx, std::span(&job, 1)); });
  EXPECT_EQ(out, 2.0F);
}

}  // namespace
}  // namespace weft::kernels::test
