// Who is where, which figures are needed, and what is made of them.
#include "weft/topology/cluster.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tests/topology/small_cluster.h"
#include "weft/base/error.h"
#include "weft/topology/rates.h"
#include "weft/topology/show.h"

namespace weft::topology {
namespace {

std::string refusal(const Cluster& cluster) {
  try {
    check(cluster);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "accepted";
}

TEST(Cluster, NumbersRanksHostByHost) {
  // Two hosts of 3, one of 1, one of 2.
  const Cluster cluster = small_cluster({{2, 3}, {1, 1}, {1, 2}});
  EXPECT_EQ(ranks(cluster), 9);
  EXPECT_EQ(hosts(cluster), 4);
  const std::vector<std::int64_t> expected = {0, 0, 0, 1, 1, 1, 2, 3, 3};
  for (std::int64_t rank = 0; rank < 9; ++rank) {
    EXPECT_EQ(host_of(cluster, rank), expected[static_cast<std::size_t>(rank)]) << rank;
  }
  EXPECT_EQ(rank_hosts(cluster), expected);
  std::int64_t first = 0;
  for (std::int64_t host = 0; host < 4; ++host) {
    const HostRanks own = ranks_of_host(cluster, host);
    EXPECT_EQ(own.first, first);
    for (std::int64_t rank = own.first; rank < own.first + own.count; ++rank) {
      EXPECT_EQ(host_of(cluster, rank), host);
    }
    first += own.count;
  }
  EXPECT_EQ(first, 9);
  EXPECT_THROW((void)host_of(cluster, 9), Error);
  EXPECT_THROW((void)host_of(cluster, -1), Error);
  EXPECT_THROW((void)ranks_of_host(cluster, 4), Error);
}

TEST(Cluster, LinksAndGroups) {
  const Cluster cluster = small_cluster({{2, 3}, {1, 1}});
  EXPECT_EQ(link_class(cluster, 4, 4), LinkClass::kSelf);
  EXPECT_EQ(link_class(cluster, 0, 2), LinkClass::kHost);
  EXPECT_EQ(link_class(cluster, 2, 3), LinkClass::kNetwork);
  EXPECT_EQ(link_class(cluster, 6, 5), LinkClass::kNetwork);
  EXPECT_EQ(link(cluster, LinkClass::kNetwork).rank.value, 1e9);
  EXPECT_EQ(all_ranks(cluster), (Group{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(host_group(cluster, 1), (Group{3, 4, 5}));
  EXPECT_EQ(rail_group(cluster, 0), (Group{0, 3, 6}));
  EXPECT_EQ(rail_group(cluster, 2), (Group{2, 5}));
}

TEST(Cluster, OnlyLinksThatAreUsedAreNeeded) {
  const std::vector<std::pair<std::vector<HostGroup>, std::vector<bool>>> cases = {
      {{{1, 1}}, {true, false, false}},
      {{{1, 4}}, {true, true, false}},
      {{{4, 1}}, {true, false, true}},
      {{{2, 2}}, {true, true, true}}};
  for (const auto& [hosts, needed] : cases) {
    for (std::size_t i = 0; i < kNumLinkClasses; ++i) {
      Cluster cluster = small_cluster(hosts);
      EXPECT_EQ(refusal(cluster), "accepted");
      Link* const links[] = {&cluster.links.self, &cluster.links.host, &cluster.links.network};
      *links[i] = {};
      EXPECT_EQ(refusal(cluster) != "accepted", needed[i]) << refusal(cluster);
    }
  }
}

TEST(Cluster, SaysWhatIsMissing) {
  const auto says = [](const std::function<void(Cluster&)>& change, const std::string& text) {
    Cluster cluster = small_cluster({{2, 2}});
    change(cluster);
    EXPECT_NE(refusal(cluster).find(text), std::string::npos) << refusal(cluster);
  };
  says([](Cluster& c) { c.hosts.clear(); }, "hosts is missing");
  says([](Cluster& c) { c.hosts[0].ranks = 0; }, "hosts.0: 2 hosts of 0 ranks");
  says([](Cluster& c) { c.hosts[0] = {1 << 20, 1 << 20}; }, "too many; at most 65536");
  says([](Cluster& c) { c.memory.ddr.value = 0; }, "memory: neither hbm nor ddr");
  says([](Cluster& c) { c.memory.reserve.value = 1; }, "memory.reserve.value");
  says([](Cluster& c) { c.compute.gemm_fp32.value = 0; }, "compute.gemm_fp32 is missing");
  says([](Cluster& c) { c.compute.copy.value = 0; }, "compute.copy is missing");
  says([](Cluster& c) { c.compute.rows.points.clear(); }, "compute.rows.points is missing");
  says([](Cluster& c) { c.compute.rows.points[1].update = 0; }, "compute.rows.points.1");
  says([](Cluster& c) { c.compute.rows.points[1].row_bytes = 64; }, "64 is not above the 64");
  says([](Cluster& c) { c.links.network = {}; },
       "links.network is missing but there are 2 hosts: give its rank");
  says([](Cluster& c) { c.links.host.rank.value = 0; }, "links.host.rank is missing");
  // Seconds are bytes over rates, so these would be infinite.
  says([](Cluster& c) { c.compute.copy.value = 1e-310; }, "compute.copy: 1e-310 bytes/s");
  says([](Cluster& c) { c.compute.gemm_bf16.efficiency = 1e-13; },
       "compute.gemm_bf16: 0.8 flops/s");
  says([](Cluster& c) { c.compute.rows.points[0].update = 1e-310; },
       "rows.points.0.update: 1e-310");
  says([](Cluster& c) { c.compute.rows.efficiency = 1e-10; }, "compute.rows.points.0.read: 0.1");
  says([](Cluster& c) { c.disk.read_blocks.value = 0.5; }, "disk.read_blocks: 0.5 blocks/s");
  says([](Cluster& c) { c.links.network.host.value = 0.5; }, "links.network.host: 0.5 bytes/s");
}

TEST(Rates, RowsBetweenAndBeyondThePoints) {
  Cluster cluster = small_cluster({{1, 1}});
  const auto read = [&](double bytes) { return row_s(cluster, RowAccess::kRead, bytes); };
  EXPECT_DOUBLE_EQ(read(64), 64e-9);
  EXPECT_DOUBLE_EQ(read(256), 128e-9);
  EXPECT_DOUBLE_EQ(read(160), 96e-9);  // halfway
  EXPECT_DOUBLE_EQ(read(4), 64e-9);
  EXPECT_DOUBLE_EQ(read(1024), 512e-9);
  EXPECT_DOUBLE_EQ(read(0), 0.0);
  EXPECT_DOUBLE_EQ(row_s(cluster, RowAccess::kUpdate, 256), 256e-9);
  cluster.compute.rows.efficiency = 0.5;
  EXPECT_DOUBLE_EQ(read(64), 128e-9);
}

TEST(Rates, ExpectedAndNotPeak) {
  Cluster cluster = small_cluster({{1, 1}});
  EXPECT_EQ(gemm_flops_per_s(cluster, spec::Compute::kFp32), 1e12);
  EXPECT_EQ(gemm_flops_per_s(cluster, spec::Compute::kBf16), 4e12);
  cluster.compute.gemm_bf16 = {};
  EXPECT_EQ(gemm_flops_per_s(cluster, spec::Compute::kBf16), 1e12);
  EXPECT_DOUBLE_EQ(copy_s(cluster, 1e10), 0.1);
  EXPECT_DOUBLE_EQ(table_capacity(cluster), 7.5e9);
  cluster.memory.hbm.value = 4e9;
  EXPECT_DOUBLE_EQ(table_capacity(cluster), 3e9);
}

TEST(Show, HasEveryFigureWithItsSource) {
  Cluster cluster = small_cluster({{2, 2}});
  cluster.links.network.rank = {.value = 25e9, .efficiency = 0.8, .source = "a datasheet"};
  const std::string text = to_text(cluster);
  EXPECT_NE(text.find("small: 4 ranks on 2 hosts"), std::string::npos) << text;
  EXPECT_NE(text.find("20 GB/s  (0.8 of 25 GB/s)  a datasheet"), std::string::npos) << text;
  EXPECT_NE(text.find("4 Tflops/s"), std::string::npos) << text;
  EXPECT_EQ(text.find("disks"), std::string::npos) << text;
  cluster.disk = {.read_blocks = {.value = 2.5e5, .source = "a drive"},
                  .block = {.value = 3e-6, .source = {}}};
  const std::string disks = to_text(cluster);
  EXPECT_NE(disks.find("250 k/s  a drive"), std::string::npos) << disks;
  EXPECT_NE(disks.find("3 us"), std::string::npos) << disks;
}

}  // namespace
}  // namespace weft::topology
