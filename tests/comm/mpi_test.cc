/// The cases of every backend over MPI. All ranks run all tests, in the same order.
#include "weft/comm/mpi/mpi.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/cases.h"
#include "tests/comm/coded_cases.h"
#include "tests/comm/mpi_main.h"
#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/trace/recorder.h"

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

TEST(Mpi, TracesSayWhoseDataCameWhen) {
  constexpr std::int64_t kBytes = 1 << 20;
  const std::unique_ptr<Communicator> group =
      world()->split(0, -world()->rank(), "backwards");  // its ranks are not the world's
  trace::Recorder recorder;
  recorder.start();
  trace::Track& track = recorder.make_track("compute", trace::TrackKind::kStream);
  Context ctx{.track = &track};
  const auto ranks = static_cast<std::size_t>(group->size());
  std::vector<std::byte> send(ranks * kBytes);
  std::vector<std::byte> recv(send.size());
  group->all_to_all(ctx, send.data(), recv.data(), kBytes);
  group->barrier(ctx);
  ASSERT_EQ(track.spans().size(), 2U);
  const trace::Span& span = track.spans()[0];
  const auto arrivals = track.arrivals(track.collective(span));
  ASSERT_EQ(arrivals.size(), ranks - 1);
  for (const trace::Arrival& one : arrivals) {
    EXPECT_NE(one.rank, world()->rank());
    EXPECT_EQ(one.bytes, kBytes);
    EXPECT_LE(span.begin_ns, one.begin_ns);
    EXPECT_LT(one.begin_ns, one.end_ns) << "a megabyte is no header";
    EXPECT_LE(one.end_ns, span.end_ns);
    EXPECT_LE(one.begin_ns, track.collective(span).arrived_ns);
  }
  EXPECT_TRUE(track.arrivals(track.collective(track.spans()[1])).empty());
}

TEST(Mpi, OrderedReduceIsThePlainTreeOverParts) {
  for (const std::int64_t parts : {5, 7, 8, 11}) {
    for (const std::int64_t count : {0, 1, 3, 1000, 20011}) {
      testing::check_ordered_reduce(*world(), parts, count);
    }
  }
}

TEST(Mpi, SumsWithACodec) {
  for (const std::int64_t count : {0, 3, 1003, 20011}) {
    testing::check_coded_reduce(*world(), 11, count);
  }
  testing::check_feedback(*world(), 11, 301);
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
