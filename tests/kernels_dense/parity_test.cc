// The CPU's kernels pass the lists of parity cases on every target that this machine has.
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/kernels_dense/parity/lists.h"
#include "tests/kernels_dense/per_target.h"
#include "weft/kernels/target.h"

namespace weft::kernels {
namespace {

void expect_all(DeviceKind kind) {
  const auto device = make_device({.kind = kind, .threads = 2, .check_max_delay_us = 0});
  for (const parity::List& list : parity::all_lists()) {
    SCOPED_TRACE(list.name);
    list.expect(*device);
  }
}

// Highway's targets; products run on the machine's best.
class DenseParity : public PerTarget {};

INSTANTIATE_TEST_SUITE_P(Targets, DenseParity, tested_targets(), target_name);

TEST_P(DenseParity, AgreesWithPlainLoops) {
  expect_all(DeviceKind::kCpu);
}

// In fresh memory that is NaN.
TEST(DenseParityOnCheck, AgreesWithPlainLoops) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "memory of the check device is open in stages alone";
#endif
  expect_all(DeviceKind::kCheck);
}

int expect_all_below(Target target) {
  limit_target(target);
  expect_all(DeviceKind::kCpu);
  return testing::Test::HasFailure() ? 1 : 0;
}

// Lower targets of products too, each in a process of its own, since the limit is the process's.
TEST(DenseParityDeathTest, AgreesWithPlainLoopsOnLowerTargets) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const Target target : {Target::kSse4, Target::kAvx2, Target::kAvx512, Target::kAvx512Bf16}) {
    if (target < best_target()) {
      EXPECT_EXIT(std::_Exit(expect_all_below(target)), testing::ExitedWithCode(0), "")
          << to_string(target);
    }
  }
}

}  // namespace
}  // namespace weft::kernels
