// Copies between rows and matrices against plain loops, byte by byte.

#include <gtest/gtest.h>

#include "tests/kernels/row_copies_parity.h"

namespace weft::kernels::test {
namespace {

TEST(RowCopies, PassTheirParityLists) {
  for (const int threads : {1, 3}) {
    expect_copy_from_rows_parity(*make_device({.threads = threads}));
    expect_copy_to_rows_parity(*make_device({.threads = threads}));
  }
}

}  // namespace
}  // namespace weft::kernels::test
