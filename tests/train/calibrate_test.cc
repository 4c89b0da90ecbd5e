// Measurements give a cluster that can be used. How fast the machine is, no test can say.
#include "weft/train/calibrate.h"

#include <array>
#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/cost/exchange.h"
#include "weft/topology/rates.h"
#include "weft/topology/yaml.h"
#include "weft/train/disk_probe.h"

namespace weft::train {
namespace {

TEST(FitLine, FindsTheLine) {
  const std::vector<double> x = {64, 1024, 65536, 1048576};
  std::vector<double> t;
  for (const double bytes : x) {
    t.push_back(5e-6 + bytes * 2e-10);
  }
  const Line line = fit_line(x, t);
  EXPECT_NEAR(line.start, 5e-6, 1e-12);
  EXPECT_NEAR(line.per_unit, 2e-10, 1e-16);
}

TEST(FitLine, SmallOnesCountAsMuchAsLargeOnes) {
  // The last point is 20 % off; the start stays within a few percent of what the first ones say.
  const Line line = fit_line(std::vector<double>{0, 100, 200, 1e6},
                             std::vector<double>{1e-5, 1e-5 + 1e-8, 1e-5 + 2e-8, 1.2e-4});
  EXPECT_NEAR(line.start, 1e-5, 3e-7);
}

TEST(FitLine, StaysPossible) {
  const std::vector<double> x = {1, 2, 3};
  const Line through_zero = fit_line(x, std::vector<double>{1, 3, 5});
  EXPECT_EQ(through_zero.start, 0);
  EXPECT_GT(through_zero.per_unit, 1);
  EXPECT_LT(through_zero.per_unit, 2);
  const Line flat = fit_line(x, std::vector<double>{3, 2, 1});
  EXPECT_GT(flat.start, 0);
  EXPECT_DOUBLE_EQ(flat.per_unit, 1.0 / 3);
  EXPECT_THROW(fit_line(std::vector<double>{1}, std::vector<double>{1}), Error);
}

/// What the ranks found; all must have found the same.
topology::Cluster measured(int ranks, int ranks_per_host) {
  std::vector<topology::Cluster> found(static_cast<std::size_t>(ranks));
  comm::run_local(ranks, {}, [&](comm::Communicator& world) {
    found[static_cast<std::size_t>(world.rank())] = calibrate(
        world,
        {.name = "here", .threads = 1, .effort = Effort::kQuick, .ranks_per_host = ranks_per_host});
  });
  for (const topology::Cluster& cluster : found) {
    EXPECT_EQ(topology::to_yaml(cluster), topology::to_yaml(found[0]));
  }
  return found[0];
}

TEST(Calibrate, OneHost) {
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    const topology::Cluster cluster = measured(ranks, 0);
    EXPECT_EQ(topology::ranks(cluster), ranks);
    EXPECT_EQ(topology::hosts(cluster), 1);
    EXPECT_EQ(cluster.links.host == topology::Link{}, ranks == 1);
    EXPECT_EQ(cluster.links.network, topology::Link{});
    EXPECT_EQ(cluster.compute.rows.points.size(), 4U);
    EXPECT_GT(cluster.compute.gemm_fp32.value, 0);
    EXPECT_GT(cluster.compute.gemm_bf16.value, 0);  // every target has products of bf16
    const std::string text = topology::to_yaml(cluster);
    EXPECT_EQ(topology::to_yaml(topology::parse_cluster(text, "here")), text);
  }
}

TEST(Calibrate, SeveralHosts) {
  const topology::Cluster cluster = measured(4, 2);
  ASSERT_EQ(cluster.hosts, (std::vector<topology::HostGroup>{{2, 2}}));
  EXPECT_GT(cluster.links.host.rank.value, 0);
  EXPECT_GT(cluster.links.network.rank.value, 0);
  EXPECT_GT(cluster.links.network.host.value, 0);
  // It can be planned with.
  const auto group = topology::all_ranks(cluster);
  const std::vector<double> each(4, 1e6);
  EXPECT_GT(cost::exchange_s(cluster, cost::all_to_all_even(cluster, group, each)), 0);
}

TEST(Calibrate, HostsOfDifferentSizes) {
  const topology::Cluster cluster = measured(3, 2);
  EXPECT_EQ(cluster.hosts, (std::vector<topology::HostGroup>{{1, 2}, {1, 1}}));
  EXPECT_GT(cluster.links.network.host.value, 0);
}

/// Of a folder that is not there nothing is measured, and the rest is.
TEST(Calibrate, WithoutADisk) {
  comm::run_local(2, {}, [&](comm::Communicator& world) {
    const topology::Cluster cluster = calibrate(
        world, {.threads = 1, .effort = Effort::kQuick, .folder = "/proc/no/such/folder"});
    EXPECT_EQ(cluster.disk.read_blocks.value, 0.0);
    EXPECT_NE(cluster.disk.read_blocks.source.find("not measured"), std::string::npos);
    EXPECT_NE(cluster.disk.read_blocks.source.find("/proc/no/such/folder"), std::string::npos);
    EXPECT_GT(cluster.compute.copy.value, 0.0);
  });
}

/// Where a folder is on a disk; what was written is gone either way.
TEST(DiskProbe, LeavesNothing) {
  const TemporaryFolder folder;
  const DiskFigures figures =
      probe_disk({.folder = folder.path(), .name = "probe", .bytes = 1 << 20, .budget_s = 0.005});
  EXPECT_EQ(figures.blocks_per_s > 0.0, figures.block_s > 0.0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Calibrate, StopsOnAllRanksWhereOneIsAsked) {
  for (const bool asked : {false, true}) {
    std::array<bool, 3> measured{};
    comm::run_local(3, {}, [&](comm::Communicator& world) {
      const std::atomic<bool> stop = asked && world.rank() == 1;
      measured[static_cast<std::size_t>(world.rank())] =
          calibrate_unless(stop, world, {.threads = 1, .effort = Effort::kQuick}).has_value();
    });
    EXPECT_EQ(measured, (std::array{!asked, !asked, !asked}));
  }
}

}  // namespace
}  // namespace weft::train
