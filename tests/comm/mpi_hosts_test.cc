/// The hierarchical form over MPI, between ranks that pretend to be on two hosts, the first of
/// which has one rank more and not one behind the other.
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/comm/cases.h"
#include "tests/comm/coded_cases.h"
#include "tests/comm/mpi_main.h"

namespace weft::comm {
namespace {

std::unique_ptr<Communicator> hierarchical() {
  return testing::world()->duplicate("test", Form::kHierarchical);
}

TEST(MpiHosts, CollectivesGiveClosedForms) {
  const auto comm = hierarchical();
  for (const std::int64_t count : {0, 1, 7, 1025, 40001}) {
    testing::check_collectives(*comm, count);
  }
}

TEST(MpiHosts, PiecesOfRows) {
  const auto comm = hierarchical();
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    testing::check_rows(*comm, seed);
  }
}

TEST(MpiHosts, OneMessagePerPairOfHosts) {
  testing::check_crossings(*hierarchical());
}

TEST(MpiHosts, OrderedReduceIsThePlainTreeOverParts) {
  const auto comm = hierarchical();
  for (const std::int64_t parts : {5, 7, 8, 11}) {
    for (const std::int64_t count : {0, 1, 3, 1000, 20011}) {
      testing::check_ordered_reduce(*comm, parts, count);
    }
    testing::check_reduce_crossings(*comm, parts);
  }
}

TEST(MpiHosts, SumsWithACodec) {
  const auto comm = hierarchical();
  for (const std::int64_t count : {0, 3, 1003, 20011}) {
    testing::check_coded_reduce(*comm, 11, count);
  }
  testing::check_feedback(*comm, 11, 301);
}

TEST(MpiHosts, GroupsAtTheSameTime) {
  testing::check_concurrent_groups(*hierarchical());
}

}  // namespace
}  // namespace weft::comm

int main(int argc, char** argv) {
  return weft::comm::testing::run_all_tests(argc, argv, {0, 0, 1, 0});
}
