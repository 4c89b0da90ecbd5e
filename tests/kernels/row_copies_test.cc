// Copies between rows and matrices, and averages of rows, against plain loops, byte by byte.

#include <gtest/gtest.h>

#include "tests/kernels/row_average_parity.h"
#include "tests/kernels/row_copies_parity.h"

namespace weft::kernels::test {
namespace {

TEST(RowCopies, PassTheirParityLists) {
  for (const int threads : {1, 3}) {
    expect_copy_from_rows_parity(*make_device({.threads = threads}));
    expect_copy_to_rows_parity(*make_device({.threads = threads}));
  }
  on_check_device(expect_copy_from_rows_parity);
  on_check_device(expect_copy_to_rows_parity);
}

TEST(RowAverage, PassesItsParityList) {
  for (const int threads : {1, 3}) {
    expect_row_average_parity(*make_device({.threads = threads}));
  }
  on_check_device(expect_row_average_parity);
}

}  // namespace
}  // namespace weft::kernels::test
