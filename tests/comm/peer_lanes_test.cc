// Calls that go along a tree, or through relays, list the ranks with which they have anything to
// do, so that a rank of thousands looks at a handful of lanes.

#include "weft/comm/peer_lanes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/forwarding_group.h"
#include "weft/base/error.h"
#include "weft/comm/clock.h"
#include "weft/comm/communicator.h"
#include "weft/comm/local/board.h"
#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/tensor/device.h"

namespace weft::comm {
namespace {

constexpr int kMany = 64;          // two levels of a tree
constexpr std::size_t kOther = 7;  // ranks below a node of it

std::vector<int> listed(const PeerLanes& lanes) {
  return {lanes.peers().begin(), lanes.peers().end()};
}

TEST(PeerLanes, ListThoseInUseInOrderOnce) {
  PeerLanes lanes(6);
  const Piece piece{nullptr, 0};
  const Lane used{.pieces = {&piece, 1}, .silent = false};
  lanes.send_to(4, used);
  lanes.receive_from(4, used);
  lanes.receive_from(1, used);
  lanes.send_to(5, used);
  lanes.send_to(1, used);
  lanes.send_to(2, {.pieces = {&piece, 1}, .silent = true});
  EXPECT_EQ(listed(lanes), (std::vector<int>{1, 4, 5}));
  const std::vector<bool> sent{false, true, false, false, true, true};
  const std::vector<bool> received{false, true, false, false, true, false};
  for (std::size_t p = 0; p < sent.size(); ++p) {
    EXPECT_EQ(!lanes.send()[p].silent, sent[p]) << p;
    EXPECT_EQ(!lanes.recv()[p].silent, received[p]) << p;
  }
  lanes.clear();
  EXPECT_TRUE(lanes.peers().empty());
  for (std::size_t p = 0; p < sent.size(); ++p) {
    EXPECT_TRUE(lanes.send()[p].silent && lanes.recv()[p].silent) << p;
  }
}

/// Notes how many peers the exchanges of a group list, of hosts of eight ranks.
class ListingGroup final : public testing::ForwardingGroup<Communicator> {
 public:
  ListingGroup(std::unique_ptr<Communicator> under, std::vector<std::size_t>& peers)
      : ForwardingGroup(std::move(under)), peers_(peers) {}

  [[nodiscard]] int host(int rank) const override { return rank / 8; }

  void exchange(const Exchange& call) override {
    peers_.push_back(call.peers ? call.peers->size() : call.send.size());
    // A backend may show lanes of an earlier call for ranks that are not peers.
    const Piece gone{nullptr, 1};
    std::vector<Lane> shown(call.send.size(), Lane{.pieces = {&gone, 1}, .silent = false});
    Context ctx;
    under().exchange_lent(ctx, call.send, call.recv, [&](std::span<const Lane> arrived) {
      call.for_peers([&](std::size_t p) { shown[p] = arrived[p]; });
      call.read(shown);
    });
  }

  std::int64_t propose_token() override { return 0; }

  std::unique_ptr<Group> make_group(const SubgroupOptions& options) override {
    return std::make_unique<ListingGroup>(split(options), peers_);
  }

  [[nodiscard]] ActivityLog& activity() override { return activity_; }

 private:
  std::vector<std::size_t>& peers_;
  ActivityLog activity_;
};

TEST(PeerLanes, CallsAlongATreeListAHandful) {
  using Call = std::function<void(Communicator&, Context&)>;
  const std::vector<std::pair<std::string, Call>> calls = {
      {"broadcast",
       [](Communicator& comm, Context& ctx) {
         std::int64_t value = comm.rank();
         comm.broadcast(ctx, &value, sizeof value, 11);
         EXPECT_EQ(value, 11);
       }},
      {"barrier", [](Communicator& comm, Context& ctx) { comm.barrier(ctx); }},
      {"all_reduce",
       [](Communicator& comm, Context& ctx) {
         std::int64_t value = comm.rank();
         comm.all_reduce(ctx, &value, 1);
         EXPECT_EQ(value, std::int64_t{kMany} * (kMany - 1) / 2);
       }},
      {"merge_to_first",
       [](Communicator& comm, Context& ctx) {
         const auto all = comm.merge_to_first(
             ctx, std::vector<std::byte>(1),
             [](std::vector<std::byte>& block, std::span<const std::byte> later) {
               block.insert(block.end(), later.begin(), later.end());
             });
         EXPECT_TRUE(comm.rank() > 0 || all.size() == kMany);
       }},
      {"merge",
       [](Communicator& comm, Context& ctx) {
         std::byte least{static_cast<unsigned char>(kMany - comm.rank())};
         comm.merge(ctx, {&least, 1},
                    [](std::span<std::byte> block, std::span<const std::byte> later) {
                      block[0] = std::min(block[0], later[0]);
                    });
         EXPECT_EQ(std::to_integer<int>(least), 1);
       }},
      {"split", [](Communicator& comm, Context&) { comm.split(-1, 0, "none"); }},
      {"clock_offset", [](Communicator& comm, Context& ctx) { clock_offset(comm, ctx, 2); }},
  };
  run_local(kMany, {}, [&](Communicator& world) {
    for (const auto& [name, call] : calls) {
      std::vector<std::size_t> peers;
      Communicator comm(std::make_unique<ListingGroup>(world.duplicate("listing"), peers));
      Context ctx;
      call(comm, ctx);
      EXPECT_FALSE(peers.empty()) << name;
      for (const std::size_t count : peers) {
        EXPECT_LE(count, kOther) << name << ", rank " << comm.rank();
      }
    }
  });
}

TEST(PeerLanes, MessagesBetweenHostsListTheRelays) {
  run_local(kMany, {}, [](Communicator& world) {
    std::vector<std::size_t> peers;
    Communicator flat(std::make_unique<ListingGroup>(world.duplicate("listing"), peers));
    const auto comm = flat.duplicate("relayed", Form::kHierarchical);
    peers.clear();
    Context ctx;
    std::vector<std::int64_t> sent(kMany, world.rank());
    std::vector<std::int64_t> received(kMany);
    const std::vector<std::int64_t> bytes(kMany, sizeof(std::int64_t));
    const auto check = [&](std::size_t stages, const char* names) {
      for (int p = 0; p < kMany; ++p) {
        EXPECT_EQ(received[static_cast<std::size_t>(p)], p);
      }
      ASSERT_EQ(peers.size(), stages) << names;
      EXPECT_LE(peers[stages - 2], 1U)
          << "rank " << world.rank() << " relays to one of seven hosts at most";
      std::fill(received.begin(), received.end(), -1);
      peers.clear();
    };
    comm->all_to_all_v(ctx, {sent.data(), bytes, received.data(), bytes});
    check(4, "sizes, gather, cross and scatter");
    comm->all_to_all(ctx, sent.data(), received.data(), sizeof(std::int64_t));
    check(3, "gather, cross and scatter");
  });
}

TEST(PeerLanes, SumsThroughRelaysListTheRelays) {
  run_local(kMany, {}, [](Communicator& world) {
    std::vector<std::size_t> peers;
    Communicator flat(std::make_unique<ListingGroup>(world.duplicate("listing"), peers));
    const auto comm = flat.duplicate("relayed", Form::kHierarchical);
    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
    OrderedAllReduce reduce(*comm, *device, kMany, kMany, {.crossing = Crossing::kRelayed});
    std::fill_n(reduce.partial(0), kMany, static_cast<float>(world.rank()));
    Context ctx{.device = device.get(), .pool = &device->pool()};
    peers.clear();
    const std::uint8_t present = 1;
    const float* const sum = reduce.run(ctx, {&present, 1});
    EXPECT_EQ(*std::min_element(sum, sum + kMany), kMany * (kMany - 1) / 2);
    ASSERT_EQ(peers.size(), 6U) << "collect, cross and pass on; share, cross and spread";
    for (const std::size_t stage : {1U, 4U}) {
      EXPECT_LE(peers[stage], 1U) << "rank " << world.rank()
                                  << " relays to one of seven hosts at most";
    }
  });
}

// A backend that sends messages would leave out such a lane, and its receiver would wait.
TEST(PeerLanes, AListThatIsWrongIsRefused) {
  const auto world =
      std::make_shared<LocalWorld>(1, 5.0, std::make_shared<ActivityLog>(), std::vector<int>());
  const auto group = make_local_group(world, world->make_board("world", {0}), 0);
  const Piece piece{nullptr, 0};
  const Lane used{.pieces = {&piece, 1}, .silent = false};
  const auto exchange = [&](const std::vector<int>& peers) {
    const auto read = [](std::span<const Lane>) {};
    group->exchange(
        {.stamp = {}, .send = {&used, 1}, .recv = {&used, 1}, .read = read, .peers = peers});
  };
  EXPECT_NO_THROW(exchange({0}));
  EXPECT_THROW(exchange({}), Error) << "a lane in use";
  EXPECT_THROW(exchange({0, 0}), Error) << "twice";
}

}  // namespace
}  // namespace weft::comm
