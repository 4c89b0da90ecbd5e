// The operations of an ordered all-reduce on slices make the bytes of the plain loops.

#include <gtest/gtest.h>

#include "tests/kernels/reduce_parity.h"

namespace weft::kernels::test {
namespace {

TEST(SliceCodes, PassTheirParityList) {
  on_every_target(expect_encode_slices_parity);
}

TEST(TermSums, PassTheirParityList) {
  for (const int threads : {1, 3}) {
    expect_sum_terms_parity(*make_device({.threads = threads}));
  }
  on_check_device(expect_sum_terms_parity);
}

}  // namespace
}  // namespace weft::kernels::test
