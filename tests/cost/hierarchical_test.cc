// The bytes that hierarchical forms are said to have against those that communicators send.
#include "weft/cost/hierarchical.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/topology/small_cluster.h"
#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"

namespace weft::cost {
namespace {

using comm::Communicator;
using topology::all_ranks;
using topology::Cluster;
using topology::HostGroup;
using topology::small_cluster;

std::vector<Cluster> clusters() {
  std::vector<Cluster> all;
  for (const std::vector<HostGroup>& hosts :
       std::vector<std::vector<HostGroup>>{{{1, 2}, {1, 1}},
                                           {{2, 2}},
                                           {{1, 3}, {1, 2}},
                                           {{4, 2}},
                                           {{1, 1}, {1, 5}, {1, 2}},
                                           {{2, 1}, {2, 3}}}) {
    all.push_back(small_cluster(hosts));
  }
  return all;
}

/// Runs `body` with a hierarchical communicator and compares what each rank has sent by it.
template <typename Body>
void compare_on_hosts(const Cluster& cluster,
                      comm::Collective collective,
                      const Exchange& said,
                      const Body& body) {
  const auto ranks = static_cast<std::size_t>(topology::ranks(cluster));
  std::vector<int> hosts;
  for (std::size_t r = 0; r < ranks; ++r) {
    hosts.push_back(static_cast<int>(topology::host_of(cluster, static_cast<std::int64_t>(r))));
  }
  std::vector<comm::Traffic::Entry> sent(ranks);
  comm::run_local(static_cast<int>(ranks), {.hosts = hosts}, [&](Communicator& world) {
    const auto group = world.duplicate("group", comm::Form::kHierarchical);
    body(*group);
    sent[static_cast<std::size_t>(world.rank())] = group->traffic().of(collective);
  });
  ByLink out{};
  ByLink in{};
  for (std::size_t r = 0; r < ranks; ++r) {
    SCOPED_TRACE(testing::Message() << "rank " << r << " of " << ranks);
    const RankTraffic& rank = said.ranks[r];
    EXPECT_EQ(static_cast<double>(sent[r].bytes), rank.sent_away());
    EXPECT_EQ(static_cast<double>(sent[r].cross_host_bytes), rank.sent[2]);
    EXPECT_EQ(static_cast<double>(sent[r].messages), rank.messages[1] + rank.messages[2]);
    EXPECT_EQ(static_cast<double>(sent[r].cross_host_messages), rank.messages[2]);
    for (std::size_t c = 0; c < out.size(); ++c) {
      out[c] += rank.sent[c];
      in[c] += rank.received[c];
    }
  }
  EXPECT_EQ(out, in) << "what is sent is received";
}

TEST(HierarchicalTraffic, AllToAll) {
  for (const Cluster& cluster : clusters()) {
    const auto ranks = static_cast<std::size_t>(topology::ranks(cluster));
    std::vector<double> from(ranks);
    std::vector<double> to(ranks);
    std::iota(from.begin(), from.end(), 2.0);
    std::iota(to.rbegin(), to.rend(), 5.0);
    compare_on_hosts(cluster, comm::Collective::kAllToAll,
                     total(relayed(cluster, all_ranks(cluster), from, to)),
                     [&](Communicator& group) {
                       const auto self = static_cast<std::size_t>(group.rank());
                       std::vector<std::int64_t> send;
                       std::vector<std::int64_t> recv;
                       for (std::size_t p = 0; p < ranks; ++p) {
                         send.push_back(static_cast<std::int64_t>(from[self] * to[p]));
                         recv.push_back(static_cast<std::int64_t>(from[p] * to[self]));
                       }
                       const std::vector<char> out(10000);
                       std::vector<char> in(10000);
                       Context ctx;
                       group.all_to_all_v(ctx, {out.data(), send, in.data(), recv});
                     });
  }
}

/// Every rank sends the next one something, and every other rank the one before, too.
TEST(HierarchicalTraffic, FewLanes) {
  for (const Cluster& cluster : clusters()) {
    const std::int64_t ranks = topology::ranks(cluster);
    std::vector<LaneBytes> lanes;
    for (std::int64_t r = 0; r < ranks; ++r) {
      lanes.push_back({r, (r + 1) % ranks, 10.0 + static_cast<double>(r)});
      if (r % 2 == 0 && ranks > 2) {
        lanes.push_back({r, (r + ranks - 1) % ranks, 100.0 + static_cast<double>(r)});
      }
    }
    compare_on_hosts(cluster, comm::Collective::kAllToAll,
                     total(relayed_lanes(cluster, all_ranks(cluster), lanes)),
                     [&](Communicator& group) {
                       std::vector<char> memory(2000);
                       std::vector<comm::Piece> pieces(2 * lanes.size());
                       std::vector<comm::Lane> send(static_cast<std::size_t>(ranks));
                       std::vector<comm::Lane> recv(static_cast<std::size_t>(ranks));
                       for (comm::Lane& lane : send) {
                         lane.silent = true;
                       }
                       recv = send;
                       std::size_t next = 0;
                       const auto set = [&](comm::Lane& lane, double bytes) {
                         comm::Piece& piece = pieces[next];
                         piece = {memory.data() + 200 * next++, static_cast<std::int64_t>(bytes)};
                         lane = {.pieces = {&piece, 1}, .silent = false};
                       };
                       for (const LaneBytes& lane : lanes) {
                         if (lane.from == group.rank()) {
                           set(send[static_cast<std::size_t>(lane.to)], lane.bytes);
                         }
                         if (lane.to == group.rank()) {
                           set(recv[static_cast<std::size_t>(lane.from)], lane.bytes);
                         }
                       }
                       Context ctx;
                       group.exchange(ctx, send, recv);
                     });
  }
}

TEST(HierarchicalTraffic, LanesAreBetweenDifferentRanksOfTheGroup) {
  const Cluster cluster = small_cluster({{2, 2}});
  for (const LaneBytes& lane : {LaneBytes{1, 1, 8.0}, LaneBytes{0, 4, 8.0}}) {
    EXPECT_THROW(relayed_lanes(cluster, all_ranks(cluster), std::span(&lane, 1)), Error);
  }
}

TEST(HierarchicalTraffic, AllToAllOfBlocks) {
  for (const Cluster& cluster : clusters()) {
    constexpr std::int64_t kBlock = 24;
    const auto ranks = static_cast<std::size_t>(topology::ranks(cluster));
    compare_on_hosts(cluster, comm::Collective::kAllToAll,
                     total(relayed_blocks(cluster, all_ranks(cluster), kBlock)),
                     [&](Communicator& group) {
                       const std::vector<char> out(ranks * kBlock);
                       std::vector<char> in(ranks * kBlock);
                       Context ctx;
                       group.all_to_all(ctx, out.data(), in.data(), kBlock);
                     });
  }
}

/// Blocks wait for no stage in which sizes are told.
TEST(HierarchicalTime, BlocksTakeAStageLessThanLanes) {
  for (const Cluster& cluster : clusters()) {
    const topology::Group group = all_ranks(cluster);
    const std::vector<double> ones(group.size(), 1.0);
    const std::vector<double> bytes(group.size(), 24.0);
    const Staged lanes = relayed(cluster, group, ones, bytes);
    const std::array<Exchange, 3> blocks = relayed_blocks(cluster, group, 24.0);
    EXPECT_DOUBLE_EQ(exchange_s(cluster, blocks),
                     exchange_s(cluster, std::span(lanes.stages).subspan(1)));
    EXPECT_LT(exchange_s(cluster, blocks), exchange_s(cluster, lanes));
  }
}

TEST(HierarchicalTraffic, AllGather) {
  for (const Cluster& cluster : clusters()) {
    const auto ranks = static_cast<std::size_t>(topology::ranks(cluster));
    std::vector<double> bytes(ranks);
    std::iota(bytes.begin(), bytes.end(), 30.0);
    compare_on_hosts(
        cluster, comm::Collective::kAllGather,
        total(relayed_all_gather(cluster, all_ranks(cluster), bytes)), [&](Communicator& group) {
          const std::vector<std::int64_t> recv(bytes.begin(), bytes.end());
          const std::vector<char> out(100);
          std::vector<char> in(1000);
          Context ctx;
          group.all_gather_v(
              ctx, {out.data(), recv[static_cast<std::size_t>(group.rank())], in.data(), recv});
        });
  }
}

/// The sum of 1,003 floats as the wire says, against what is said of it.
void compare_sum(const Cluster& cluster, std::int64_t parts, const ReduceWire& wire) {
  compare_on_hosts(
      cluster, comm::Collective::kAllToAll,
      total(hierarchical_all_reduce(cluster, all_ranks(cluster), parts, 1003, wire).stages),
      [&](Communicator& group) {
        const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
        Context ctx{.device = device.get(), .pool = &device->pool()};
        comm::OrderedAllReduce reduce(
            group, *device, parts, 1003,
            {.codec = {.format = wire.format, .group = wire.group}, .crossing = wire.crossing});
        std::fill_n(reduce.partial(0), 1003 * reduce.num_partials(), 1.0F);
        reduce.run(ctx,
                   std::vector<std::uint8_t>(static_cast<std::size_t>(reduce.num_partials()), 1));
      });
}

TEST(HierarchicalTraffic, OrderedAllReduce) {
  for (const Cluster& cluster : clusters()) {
    for (const std::int64_t parts : {8, 13}) {
      for (const Crossing crossing : {Crossing::kDirect, Crossing::kRelayed}) {
        compare_sum(cluster, parts, {.crossing = crossing});
      }
    }
  }
}

TEST(HierarchicalTraffic, OrderedAllReduceWithACodec) {
  for (const Cluster& cluster : clusters()) {
    for (const int format : {1, 4, 5, 6}) {
      for (const Crossing crossing : {Crossing::kDirect, Crossing::kRelayed}) {
        compare_sum(
            cluster, 13,
            {.format = static_cast<CodecFormat>(format), .group = 16, .crossing = crossing});
      }
    }
  }
}

/// 512 hosts of 8: the same bytes between hosts but for flags, 156 messages and not 1,036.
TEST(Hierarchical, RelaysSaveMessagesAndNoBytesBetweenHosts) {
  const Cluster cluster = small_cluster({{512, 8}});
  const std::int64_t floats = 4096 * 64;
  const auto sum = [&](Crossing crossing) {
    return hierarchical_all_reduce(cluster, all_ranks(cluster), 4096, floats,
                                   {.crossing = crossing})
        .stages;
  };
  const auto most = [](const std::vector<Exchange>& stages, std::size_t link) {
    double messages = 0.0;
    double exchange = 0.0;
    for (const Exchange& stage : stages) {
      double of_stage = 0.0;
      for (const RankTraffic& rank : stage.ranks) {
        of_stage = std::max(of_stage, rank.messages[link]);
      }
      messages += of_stage;
      exchange = std::max(exchange, of_stage);
    }
    return std::pair(messages, exchange);
  };
  const auto crossing_bytes = [](const std::vector<Exchange>& stages) {
    double bytes = 0.0;
    for (const RankTraffic& rank : total(stages).ranks) {
      bytes += rank.sent[2];
    }
    return bytes;
  };
  const std::vector<Exchange> direct = sum(Crossing::kDirect);
  const std::vector<Exchange> relayed = sum(Crossing::kRelayed);
  EXPECT_EQ(most(direct, 1), std::pair(14.0, 7.0));
  EXPECT_EQ(most(direct, 2), std::pair(1022.0, 511.0));
  EXPECT_EQ(most(relayed, 1), std::pair(28.0, 7.0));
  EXPECT_EQ(most(relayed, 2), std::pair(128.0, 64.0));
  const double pairs = 512.0 * 511.0;
  EXPECT_EQ(crossing_bytes(direct), 2.0 * 511.0 * 4.0 * static_cast<double>(floats) + 8.0 * pairs);
  EXPECT_EQ(crossing_bytes(relayed), 2.0 * 511.0 * 4.0 * static_cast<double>(floats) + pairs);
}

TEST(Hierarchical, CrossesLessOnlyWhereHostsAdd) {
  const Cluster cluster = small_cluster({{4, 2}});
  const auto group = all_ranks(cluster);
  const auto crossing = [](const Exchange& exchange) {
    double bytes = 0.0;
    for (const RankTraffic& rank : exchange.ranks) {
      bytes += rank.sent[2];
    }
    return bytes;
  };
  const std::vector<double> ones(8, 1.0);
  const std::vector<double> bytes(8, 1000.0);
  // 12 pairs of hosts and 8 bytes each.
  EXPECT_EQ(crossing(total(relayed(cluster, group, bytes, ones))),
            crossing(all_to_all_even(cluster, group, bytes)) + 12 * 8);
  const OrderedAllReduce flat = ordered_all_reduce(cluster, group, 8, 80000);
  const double once = crossing(flat.partials) + crossing(flat.sums);
  const double hosts = crossing(total(hierarchical_all_reduce(cluster, group, 8, 80000).stages));
  // 2 · 6 of 8 slices' worth from each of 8 ranks against 2 · 3 from each of 4 hosts.
  EXPECT_NEAR(hosts / once, 0.5, 1e-3);
}

TEST(Hierarchical, EncodesWhatLeavesTheHost) {
  const Cluster cluster = small_cluster({{2, 2}});
  const auto coded = [&](CodecFormat format, bool feedback) {
    return hierarchical_all_reduce(cluster, all_ranks(cluster), 8, 1000,
                                   {.format = format, .group = 16, .error_feedback = feedback})
        .coded_bytes;
  };
  EXPECT_EQ(coded(CodecFormat::kFp32, true), 0.0);
  // Of slices of 250 floats, 500 bytes: the host's sum of the slice that it acts for, the other
  // host's of its own, its own sum, which it decodes too, and those of three others.
  EXPECT_EQ(coded(CodecFormat::kFp16, false),
            (1000 + 500) + (1000 + 500) + (1000 + 500 + 1000) + 3 * (1000 + 500));
  EXPECT_EQ(coded(CodecFormat::kFp16, true), coded(CodecFormat::kFp16, false) + 2 * 2000);
}

TEST(Hierarchical, NeedsSeveralHostsAndOneWithSeveralRanks) {
  const auto differs = [](const std::vector<HostGroup>& hosts) {
    const Cluster cluster = small_cluster(hosts);
    return has_hierarchy(cluster, all_ranks(cluster));
  };
  EXPECT_FALSE(differs({{1, 4}}));
  EXPECT_FALSE(differs({{4, 1}}));
  EXPECT_TRUE(differs({{1, 2}, {1, 1}}));
}

}  // namespace
}  // namespace weft::cost
