// Tests that run once per Highway target.
#pragma once

#include <cstdint>
#include <string>

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

namespace weft::kernels {

/// Kernels run as on the target that is the parameter; skipped where the machine lacks it.
class PerTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    if ((hwy::SupportedTargets() & GetParam()) == 0) {
      GTEST_SKIP() << "this machine lacks " << hwy::TargetName(GetParam());
    }
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

/// The targets that Weft has kernels for.
inline auto tested_targets() {
#if HWY_ARCH_X86
  return testing::Values(std::int64_t{HWY_SSE4}, std::int64_t{HWY_AVX2}, std::int64_t{HWY_AVX3});
#else
  return testing::Values(hwy::SupportedTargets());
#endif
}

inline std::string target_name(const testing::TestParamInfo<std::int64_t>& tested) {
  return hwy::TargetName(tested.param);
}

}  // namespace weft::kernels
