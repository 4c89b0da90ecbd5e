// Changes of rows as codes, against plain loops, byte by byte.

#include <gtest/gtest.h>

#include "tests/kernels/row_changes_parity.h"

namespace weft::kernels::test {
namespace {

TEST(RowChanges, PassTheirParityLists) {
  for (const auto& list : {expect_encode_row_changes_parity, expect_average_row_changes_parity,
                           expect_add_row_means_parity, expect_take_row_values_parity}) {
    on_every_target(list);
  }
}

}  // namespace
}  // namespace weft::kernels::test
