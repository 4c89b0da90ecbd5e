// What communicators record, and what clocks they find.
#include <array>
#include <chrono>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/forwarding_group.h"
#include "weft/comm/clock.h"
#include "weft/comm/group.h"
#include "weft/comm/local/local.h"
#include "weft/trace/recorder.h"

namespace weft::comm {
namespace {

constexpr int kTracedRanks = 3;

/// A group whose ranks each say that they are on a host of their own.
class EachOnItsHost final : public testing::ForwardingGroup<Communicator> {
 public:
  using ForwardingGroup::ForwardingGroup;

  [[nodiscard]] int host(int rank) const override { return rank; }

  void exchange(const Exchange& call) override {
    Context ctx;
    if (call.arrivals != nullptr) {
      call.arrivals->last_ns = trace::now_ns();
    }
    under().exchange_lent(ctx, call.send, call.recv, call.read);
  }

  std::int64_t propose_token() override { return 0; }

  std::unique_ptr<Group> make_group(const SubgroupOptions& /*options*/) override { return nullptr; }

  [[nodiscard]] ActivityLog& activity() override { return activity_; }

 private:
  ActivityLog activity_;
};

TEST(CommTrace, SaysWhatMovedAndWhoWasWaitedFor) {
  std::array<trace::Recorder, kTracedRanks> recorders;
  std::int64_t late_ns = 0;
  std::vector<std::unique_ptr<Communicator>> groups(kTracedRanks);
  run_local(kTracedRanks, {}, [&](Communicator& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    groups[r] = world.duplicate("ids");  // its name is read below
    Communicator& group = *groups[r];
    trace::Track& track = recorders[r].make_track("compute", trace::TrackKind::kStream);
    Context ctx{.track = &track};
    std::vector<std::int64_t> send(kTracedRanks, world.rank());
    std::vector<std::int64_t> recv(kTracedRanks);
    group.all_to_all(ctx, send.data(), recv.data(), 8);  // not recorded
    recorders[r].start();
    world.barrier(ctx);
    if (world.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      late_ns = trace::now_ns();
    }
    group.all_to_all(ctx, send.data(), recv.data(), 8);
    group.broadcast(ctx, recv.data(), 24, 1);
  });
  for (int r = 0; r < kTracedRanks; ++r) {
    const trace::Track& track = recorders[static_cast<std::size_t>(r)].tracks().front();
    ASSERT_EQ(track.spans().size(), 3U) << "rank " << r;
    const trace::Span& barrier = track.spans()[0];
    const trace::Span& exchange = track.spans()[1];
    const trace::Span& broadcast = track.spans()[2];
    EXPECT_STREQ(barrier.name, "barrier");
    EXPECT_EQ(*track.collective(barrier).group, "world");
    EXPECT_STREQ(exchange.name, "all_to_all");
    EXPECT_EQ(exchange.kind, trace::Kind::kCollective);
    const trace::Collective& moved = track.collective(exchange);
    EXPECT_EQ(*moved.group, "ids");
    EXPECT_EQ(moved.sequence, 1U) << "equal on all ranks";
    EXPECT_EQ(moved.ranks, kTracedRanks);
    EXPECT_EQ(moved.bytes, 16);
    EXPECT_EQ(moved.cross_host_bytes, 0);
    EXPECT_TRUE(track.arrivals(moved).empty()) << "copied from memory, not sent";
    EXPECT_LE(exchange.begin_ns, moved.arrived_ns);
    EXPECT_LE(late_ns, moved.arrived_ns) << "nobody goes on before rank 2 is there";
    EXPECT_LE(moved.arrived_ns, exchange.end_ns);
    EXPECT_EQ(r == 2, exchange.begin_ns >= late_ns);
    EXPECT_EQ(track.collective(broadcast).sequence, 2U);
    EXPECT_EQ(track.collective(broadcast).bytes, r == 1 ? 48 : 0);
  }
}

TEST(CommTrace, CountsWhatGoesToOtherHosts) {
  run_local(kTracedRanks, {}, [](Communicator& world) {
    Communicator apart(std::make_unique<EachOnItsHost>(world.duplicate("apart")));
    trace::Recorder recorder;
    trace::Track& track = recorder.make_track("compute", trace::TrackKind::kStream);
    recorder.start();
    Context ctx{.track = &track};
    std::vector<float> sum(5000, 1.0F);
    apart.all_reduce(ctx, sum.data(), 5000);
    std::int64_t bytes = 0;
    for (const trace::Span& span : track.spans()) {
      EXPECT_EQ(track.collective(span).cross_host_bytes, track.collective(span).bytes);
      bytes += track.collective(span).bytes;
    }
    EXPECT_EQ(bytes, apart.traffic().total().bytes);
    EXPECT_GT(bytes, 0);
  });
}

TEST(ClockOffset, IsZeroOnOneHost) {
  run_local(kTracedRanks, {}, [](Communicator& world) {
    Context ctx;
    const ClockOffset offset = clock_offset(world, ctx);
    EXPECT_EQ(offset.offset_ns, 0);
    EXPECT_EQ(offset.error_ns, 0);
  });
}

// All ranks have one clock, so the true offset is zero: the error must cover what is found.
TEST(ClockOffset, IsWithinItsErrorBetweenHosts) {
  run_local(kTracedRanks, {}, [](Communicator& world) {
    Communicator apart(std::make_unique<EachOnItsHost>(world.duplicate("apart")));
    Context ctx;
    const ClockOffset offset = clock_offset(apart, ctx);
    EXPECT_LE(std::abs(offset.offset_ns), offset.error_ns);
    EXPECT_EQ(offset.error_ns > 0, world.rank() != 0);
  });
}

}  // namespace
}  // namespace weft::comm
