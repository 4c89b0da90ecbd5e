// Bytes by class of link, and the time formula by hand.
#include "weft/cost/exchange.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/topology/small_cluster.h"

namespace weft::cost {
namespace {

using topology::all_ranks;
using topology::Cluster;
using topology::Group;
using topology::LinkClass;
using topology::small_cluster;

void expect_equal(const Exchange& a, const Exchange& b) {
  ASSERT_EQ(a.ranks.size(), b.ranks.size());
  for (std::size_t r = 0; r < a.ranks.size(); ++r) {
    EXPECT_EQ(a.ranks[r].sent, b.ranks[r].sent) << r;
    EXPECT_EQ(a.ranks[r].received, b.ranks[r].received) << r;
    EXPECT_EQ(a.ranks[r].messages, b.ranks[r].messages) << r;
  }
}

TEST(Exchange, AllToAllBySides) {
  const Cluster cluster = small_cluster({{1, 2}, {1, 1}});
  const std::vector<double> bytes = {1, 2, 3, 10, 20, 30, 100, 200, 300};
  const Exchange exchange = all_to_all(cluster, all_ranks(cluster), bytes);
  EXPECT_EQ(exchange.ranks[0].sent, (ByLink{1, 2, 3}));
  EXPECT_EQ(exchange.ranks[0].received, (ByLink{1, 10, 100}));
  EXPECT_EQ(exchange.ranks[0].messages, (ByLink{0, 1, 1}));
  EXPECT_EQ(exchange.ranks[2].sent, (ByLink{300, 0, 300}));
  EXPECT_EQ(exchange.ranks[2].received, (ByLink{300, 0, 33}));
  EXPECT_EQ(exchange.ranks[2].messages, (ByLink{0, 0, 2}));
  EXPECT_EQ(exchange.ranks[1].sent_away(), 40);
  EXPECT_EQ(exchange.ranks[1].received_from_others(), 202);
  expect_equal(reversed(reversed(exchange)), exchange);
  EXPECT_EQ(reversed(exchange).ranks[0].sent, (ByLink{1, 10, 100}));
}

TEST(Exchange, EvenIsTheMatrixOfEqualRows) {
  const Cluster cluster = small_cluster({{2, 2}, {1, 3}});
  for (const Group& group : {all_ranks(cluster), Group{0, 2, 3, 6}, Group{5}}) {
    std::vector<double> each;
    std::vector<double> matrix;
    for (std::size_t i = 0; i < group.size(); ++i) {
      each.push_back(static_cast<double>(7 * i + 1));
      matrix.insert(matrix.end(), group.size(), each.back());
    }
    expect_equal(all_to_all_even(cluster, group, each), all_to_all(cluster, group, matrix));
  }
}

TEST(Exchange, ReduceScatterIsAllToAllOfSlices) {
  const Cluster cluster = small_cluster({{1, 2}, {1, 1}});
  // 10 floats in slices of 3, 3 and 4; nobody sends to himself.
  const std::vector<double> bytes = {0, 12, 16, 12, 0, 16, 12, 12, 0};
  expect_equal(reduce_scatter(cluster, all_ranks(cluster), 10),
               all_to_all(cluster, all_ranks(cluster), bytes));
}

TEST(Exchange, SlowestLinkDecides) {
  Cluster cluster = small_cluster({{2, 2}});
  cluster.compute.collective.value = 1e-3;
  const Group all = all_ranks(cluster);
  // Rank 3 sends 1e6 to rank 2 (its host) and 1e6 to rank 0 (another).
  std::vector<double> bytes(16, 0.0);
  bytes[3 * 4 + 2] = bytes[3 * 4 + 0] = 1e6;
  const ExchangeTime time = exchange_time(cluster, all_to_all(cluster, all, bytes));
  EXPECT_DOUBLE_EQ(time.seconds, 1e-3 + 2 * 1e-5 + 1e6 / 1e9);
  EXPECT_EQ(time.link, LinkClass::kNetwork);
  EXPECT_EQ(time.rank, 0 + 0);  // what comes in counts like what goes out; the first of both
  EXPECT_FALSE(time.host_decides);
}

TEST(Exchange, ASharedCardDecides) {
  Cluster cluster = small_cluster({{2, 2}});
  cluster.links.network.host = {.value = 1.25e9, .source = {}};
  const std::vector<double> each(4, 1e6);
  const ExchangeTime time =
      exchange_time(cluster, all_to_all_even(cluster, all_ranks(cluster), each));
  // A rank sends 2e6 to the other host in 2 ms; both of a host 4e6 in 3.2 ms.
  EXPECT_DOUBLE_EQ(time.seconds, 4e6 / 1.25e9);
  EXPECT_TRUE(time.host_decides);
}

TEST(Exchange, ReceiversCountLikeSenders) {
  const Cluster cluster = small_cluster({{4, 1}});
  std::vector<double> bytes(16, 0.0);
  bytes[1 * 4 + 0] = bytes[2 * 4 + 0] = bytes[3 * 4 + 0] = 1e6;  // all to rank 0
  const ExchangeTime time = exchange_time(cluster, all_to_all(cluster, all_ranks(cluster), bytes));
  EXPECT_DOUBLE_EQ(time.seconds, 3 * 1e-5 + 3e6 / 1e9);
  EXPECT_EQ(time.rank, 0);
}

TEST(Exchange, GroupsAtOneTimeShareTheHost) {
  Cluster cluster = small_cluster({{2, 2}});
  cluster.links.network.host = {.value = 1e9, .source = {}};
  const std::vector<double> each(2, 1e6);
  Exchange both = all_to_all_even(cluster, topology::rail_group(cluster, 0), each);
  const double alone = exchange_s(cluster, both);
  add(both, all_to_all_even(cluster, topology::rail_group(cluster, 1), each));
  EXPECT_DOUBLE_EQ(exchange_s(cluster, both), 2e6 / 1e9);
  EXPECT_DOUBLE_EQ(alone, 1e-5 + 1e6 / 1e9);
}

TEST(Exchange, BarrierIsLatency) {
  const Cluster cluster = small_cluster({{2, 2}});
  EXPECT_DOUBLE_EQ(exchange_s(cluster, barrier(cluster, all_ranks(cluster))), 2e-5);
  EXPECT_DOUBLE_EQ(exchange_s(cluster, barrier(cluster, topology::host_group(cluster, 0))), 1e-6);
  EXPECT_DOUBLE_EQ(exchange_s(cluster, no_exchange(cluster)), 0.0);
}

TEST(Exchange, StartsBeforeItsBytes) {
  Cluster cluster = small_cluster({{2, 2}});
  cluster.compute.collective.value = 1e-3;
  const Group all = all_ranks(cluster);
  const Exchange exchange = all_to_all_even(cluster, all, std::vector<double>(4, 1e6));
  EXPECT_DOUBLE_EQ(start_s(cluster, exchange), exchange_s(cluster, barrier(cluster, all)));
  EXPECT_DOUBLE_EQ(start_s(cluster, exchange), 1e-3 + 2 * 1e-5);
  EXPECT_DOUBLE_EQ(start_s(cluster, no_exchange(cluster)), 1e-3);
}

TEST(Exchange, OrderedAllReduceOfAlignedRunsIsARing) {
  const Cluster cluster = small_cluster({{4, 1}});
  const OrderedAllReduce reduce = ordered_all_reduce(cluster, all_ranks(cluster), 8, 1000);
  for (const RankTraffic& rank : reduce.partials.ranks) {
    EXPECT_EQ(rank.sent_away(), 3 * 4 * 250 + 3);  // and a flag for each
    EXPECT_EQ(rank.messages[2], 3);
  }
  EXPECT_EQ(reduce.sums.ranks[1].sent_away(), 3 * 4 * 250);
  EXPECT_EQ(reduce.added_bytes, 3 * 3 * 1000);
  EXPECT_DOUBLE_EQ(all_reduce_s(cluster, reduce),
                   3e-5 + 3003 / 1e9 + 3e-5 + 3000 / 1e9 + 9000 / 1e11);
}

TEST(Exchange, OrderedAllReduceEncodesAndDecodes) {
  const Cluster cluster = small_cluster({{1, 4}});
  const auto reduce = [&](CodecFormat format, bool feedback) {
    return ordered_all_reduce(cluster, all_ranks(cluster), 8, 1000,
                              {.format = format, .group = 16, .error_feedback = feedback});
  };
  EXPECT_EQ(reduce(CodecFormat::kFp32, true).coded_bytes, 0.0);
  // Slices of 250 floats are 500 bytes. Three are encoded and sent, three come and are decoded, the
  // sum is encoded and decoded in one, and three sums are decoded.
  EXPECT_EQ(reduce(CodecFormat::kFp16, false).coded_bytes,
            3 * (1000 + 500) + 3 * (1000 + 500) + (1000 + 500 + 1000) + 3 * (1000 + 500));
  // What is lost: residuals read, numbers written.
  const OrderedAllReduce lost = reduce(CodecFormat::kFp16, true);
  EXPECT_EQ(lost.coded_bytes, reduce(CodecFormat::kFp16, false).coded_bytes + 4 * 2000);
  EXPECT_DOUBLE_EQ(all_reduce_s(cluster, lost), exchange_s(cluster, lost.partials) +
                                                    exchange_s(cluster, lost.sums) +
                                                    (lost.added_bytes + lost.coded_bytes) / 1e11);
}

}  // namespace
}  // namespace weft::cost
