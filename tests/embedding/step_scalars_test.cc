// The scalars of a sparse optimizer's step: the same bits on every machine.
#include <gtest/gtest.h>

#include "weft/optim/sparse.h"
#include "weft/optim/whole_power.h"

namespace weft::optim {
namespace {

TEST(WholePower, IsThePower) {
  EXPECT_EQ(whole_power(0.5, 0), 1.0);
  EXPECT_EQ(whole_power(0.5, 1), 0.5);
  EXPECT_EQ(whole_power(3.0, 5), 243.0);
  EXPECT_EQ(whole_power(-2.0, 63), -0x1p63);
  EXPECT_NEAR(whole_power(0.999, 1000), 0.36769542477096404, 1e-14);
}

// Adam's corrections 1 / (1 - beta^step) are made by squarings, not by the C library's pow(). At
// these steps the two differ in their fp32.
TEST(StepScalars, CorrectionsComeFromMultiplicationsAlone) {
  for (const SparseOptimizerKind kind :
       {SparseOptimizerKind::kAdam, SparseOptimizerKind::kRowWiseAdam}) {
    spec::SparseOptimizer optimizer;
    optimizer.type = kind;
    optimizer.beta1 = 0.99999;
    optimizer.beta2 = 0.99999;
    const kernels::UpdateParams early = update_params(optimizer, 1.0, 11527);
    EXPECT_EQ(early.correction1, 0x1.25ea4p+3F);
    EXPECT_EQ(early.correction2, 0x1.25ea4p+3F);
    const kernels::UpdateParams late = update_params(optimizer, 1.0, 18853);
    EXPECT_EQ(late.correction1, 0x1.7478c4p+2F);
    EXPECT_EQ(late.correction2, 0x1.7478c4p+2F);
  }
}

}  // namespace
}  // namespace weft::optim
