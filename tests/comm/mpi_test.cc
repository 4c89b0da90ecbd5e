/// The cases of every backend over MPI. All ranks run all tests, in the same order.
#include "weft/comm/mpi/mpi.h"

#include <gtest/gtest.h>

#include "tests/comm/cases.h"
#include "tests/comm/mpi_main.h"
#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"

namespace weft::comm {
namespace {

using testing::world;

TEST(Mpi, WasLaunched) {
  EXPECT_TRUE(launched_by_mpi());
  EXPECT_TRUE(mpi_available());
}

TEST(Mpi, CollectivesGiveClosedForms) {
  for (const std::int64_t count : {0, 1, 7, 1025, 40001}) {
    testing::check_collectives(*world(), count);
  }
}

TEST(Mpi, PiecesOfRows) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    testing::check_rows(*world(), seed);
  }
}

TEST(Mpi, TrafficIsAsDocumented) {
  testing::check_traffic(*world());
}

TEST(Mpi, GroupsOfGroups) {
  testing::check_groups(*world());
}

TEST(Mpi, GroupsAtTheSameTime) {
  testing::check_concurrent_groups(*world());
}

TEST(Mpi, OrderedReduceIsThePlainTreeOverParts) {
  for (const std::int64_t parts : {5, 7, 8, 11}) {
    for (const std::int64_t count : {0, 1, 3, 1000, 20011}) {
      testing::check_ordered_reduce(*world(), parts, count);
    }
  }
}

TEST(Mpi, SmallSumsOfParts) {
  testing::check_parts(*world(), 8);
  testing::check_parts(*world(), 11);
}

}  // namespace
}  // namespace weft::comm

int main(int argc, char** argv) {
  return weft::comm::testing::run_all_tests(argc, argv);
}
