/// The cases of every backend over MPI. All ranks run all tests, in the same order.
#include "weft/comm/mpi/mpi.h"

#include <cstdio>
#include <exception>

#include <gtest/gtest.h>

#include "tests/comm/cases.h"
#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"

namespace weft::comm {
namespace {

/// The world of this process, for the tests; set by main().
Communicator*& world() {
  static Communicator* world = nullptr;
  return world;
}

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
  ::testing::InitGoogleTest(&argc, argv);
  int status = 1;
  try {
    // Short messages, so that small data travels in many pieces.
    weft::comm::MpiSession session({.timeout_s = 60.0, .max_message_bytes = 10000});
    session.run([&](weft::comm::Communicator& world) {
      weft::comm::world() = &world;
      status = RUN_ALL_TESTS();
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return status;
}
