// What a job says of its links: devices of made-up hosts, pairs, figures against a cluster.
#include "weft/train/link_report.h"

#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/comm/local/local.h"
#include "weft/train/network_devices.h"

namespace weft::train {
namespace {

using Ranks = std::vector<std::pair<int, int>>;

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A host with network devices.
class MadeUpHost {
 public:
  struct Port {
    std::string link_layer = "InfiniBand";
    std::string state = "4: ACTIVE";
    std::string rate = "400 Gb/sec (4X NDR)";
  };

  void add(const std::string& device, const Port& port, const std::string& driver = "mlx5_core") {
    const std::string folder = "sys/class/infiniband/" + device;
    write(folder + "/ports/1/state", port.state);
    write(folder + "/ports/1/rate", port.rate);
    write(folder + "/ports/1/link_layer", port.link_layer);
    link("../../bus/pci/drivers/" + driver, folder + "/device/driver");
  }

  void open(const std::string& verbs, const std::string& device) {
    write("sys/class/infiniband_verbs/" + verbs + "/ibdev", device);
    link("/dev/infiniband/" + verbs, "proc/self/fd/7");
  }

  void link(const std::string& target, const std::string& path) {
    std::filesystem::create_directories((root() / path).parent_path());
    std::filesystem::create_symlink(target, root() / path);
  }

  [[nodiscard]] std::vector<FastDevice> devices() const { return fast_devices(root().string()); }

  [[nodiscard]] std::filesystem::path root() const { return folder_.path(); }

 private:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root() / path).parent_path());
    std::ofstream(root() / path) << text << "\n";
  }

  TemporaryFolder folder_;
};

TEST(FastDevices, NoneWithoutTheirFolder) {
  EXPECT_TRUE(MadeUpHost().devices().empty());
}

TEST(FastDevices, KindsAndRates) {
  MadeUpHost host;
  host.add("mlx5_0", {});
  host.add("mlx5_1", {.link_layer = "Ethernet", .rate = "100 Gb/sec (4X EDR)"});
  host.add("rdmap0s6", {.link_layer = "Unspecified", .rate = "100 Gb/sec (4X EDR)"}, "efa");
  host.add("hfi1_0", {.rate = ""}, "hfi1");
  host.add("mlx5_2", {.state = "1: DOWN"});
  const std::vector<FastDevice> devices = host.devices();
  ASSERT_EQ(devices.size(), 4U) << "a port that is down carries nothing";
  EXPECT_EQ(describe(devices[0]), "hfi1_0 (Omni-Path)");
  EXPECT_EQ(describe(devices[1]), "mlx5_0 (InfiniBand, 400 Gb/s)");
  EXPECT_EQ(describe(devices[2]), "mlx5_1 (RoCE, 100 Gb/s)");
  EXPECT_EQ(describe(devices[3]), "rdmap0s6 (EFA, 100 Gb/s)");
}

TEST(FastDevices, WhichAreOpen) {
  MadeUpHost host;
  host.add("mlx5_0", {});
  host.add("mlx5_1", {});
  host.open("uverbs1", "mlx5_1");
  EXPECT_FALSE(host.devices().at(0).is_open);
  EXPECT_TRUE(host.devices().at(1).is_open);
}

TEST(FastDevices, OmniPathIsOpenedByItsDriver) {
  MadeUpHost host;
  host.add("hfi1_0", {}, "hfi1");
  EXPECT_FALSE(host.devices().at(0).is_open);
  host.link("/dev/hfi1_0", "proc/self/fd/9");
  EXPECT_TRUE(host.devices().at(0).is_open);
}

TEST(MeasuredPairs, NoHostTwiceAndFarApart) {
  EXPECT_EQ(pairs_to_measure(std::vector<int>{0}), Ranks{});
  EXPECT_EQ(pairs_to_measure(std::vector<int>{0, 0, 0}), (Ranks{{0, 2}}));
  EXPECT_EQ(pairs_to_measure(std::vector<int>{0, 0, 2, 2}), (Ranks{{0, 2}}));
  EXPECT_EQ(pairs_to_measure(std::vector<int>{0, 1, 0, 3}), (Ranks{{0, 1}})) << "three hosts";
  EXPECT_EQ(pairs_to_measure(std::vector<int>{0, 0, 2, 2, 4, 4, 6, 6}), (Ranks{{0, 4}, {2, 6}}));
}

TEST(MeasuredPairs, AFewOnManyHosts) {
  std::vector<int> hosts;
  for (int rank = 0; rank < 4096; ++rank) {
    hosts.push_back(rank / 8 * 8);
  }
  EXPECT_EQ(pairs_to_measure(hosts), (Ranks{{0, 2048}, {512, 2560}, {1024, 3072}, {1536, 3584}}));
}

TEST(MeasuredLinks, AreEqualOnAllRanks) {
  MadeUpHost host;
  host.add("mlx5_0", {});
  std::mutex mutex;
  std::vector<LinkFigures> all;
  comm::run_local(6, {.timeout_s = 20.0, .hosts = {0, 0, 2, 2, 4, 5}},
                  [&](comm::Communicator& world) {
                    Context ctx;
                    const LinkFigures own = measure_links(world, ctx, host.root().string());
                    const std::lock_guard lock(mutex);
                    all.push_back(own);
                  });
  ASSERT_EQ(all.size(), 6U);
  for (const LinkFigures& figures : all) {
    EXPECT_TRUE(figures.carrier.empty()) << "ranks are threads";
    EXPECT_EQ(figures.ranks, 6);
    EXPECT_EQ(figures.hosts, 4);
    ASSERT_EQ(figures.pairs.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(figures.pairs[i].first, i == 0 ? 0 : 2);
      EXPECT_EQ(figures.pairs[i].second, i == 0 ? 4 : 5);
      EXPECT_GT(figures.pairs[i].latency_s, 0.0);
      EXPECT_GT(figures.pairs[i].bytes_per_s, 0.0);
      EXPECT_EQ(figures.pairs[i].latency_s, all[0].pairs[i].latency_s);
      EXPECT_EQ(figures.pairs[i].bytes_per_s, all[0].pairs[i].bytes_per_s);
    }
    EXPECT_EQ(figures.unused, "mlx5_0 (InfiniBand, 400 Gb/s)");
    EXPECT_EQ(figures.unused_rank, 0);
    EXPECT_EQ(figures.unused_ranks, 6);
  }
}

LinkFigures links_of_two_hosts() {
  LinkFigures figures{.carrier = {.between_hosts = "Open MPI v4, ob1 over tcp (eth0)",
                                  .inside_hosts = "Open MPI v4, ob1 over vader",
                                  .sockets = true},
                      .ranks = 16,
                      .hosts = 2,
                      .pairs = {},
                      .unused = "",
                      .unused_rank = -1,
                      .unused_ranks = 0};
  figures.pairs.push_back({.first = 0, .second = 8, .latency_s = 60e-6, .bytes_per_s = 1.2e9});
  return figures;
}

topology::Cluster profile_of(double network, double host) {
  topology::Cluster cluster;
  cluster.links.network.rank = {.value = network, .efficiency = 0.5, .source = ""};
  cluster.links.network.latency = {.value = 1e-5, .source = ""};
  cluster.links.host.rank = {.value = host, .efficiency = 1.0, .source = ""};
  return cluster;
}

TEST(LinkNotes, OneLineOfWhatThereIs) {
  const LinkNotes notes = describe_links(links_of_two_hosts(), {});
  EXPECT_EQ(notes.info,
            "links: 16 ranks on 2 hosts; messages between hosts go by Open MPI v4, ob1 over tcp "
            "(eth0); 1 pair measured: 60 us, 1.2 GB/s each way");
  EXPECT_TRUE(notes.warnings.empty());
}

TEST(LinkNotes, SeveralPairsGiveARange) {
  LinkFigures figures = links_of_two_hosts();
  figures.pairs.push_back({.first = 4, .second = 12, .latency_s = 50e-6, .bytes_per_s = 1.5e9});
  EXPECT_TRUE(holds(describe_links(figures, {}).info,
                    "2 pairs measured: 50 to 60 us, 1.2 to 1.5 GB/s each way"));
}

TEST(LinkNotes, FarBelowTheProfile) {
  const topology::Cluster just = profile_of(9.4e9, 1.0);  // of which a half is expected
  EXPECT_TRUE(
      describe_links(links_of_two_hosts(), {.cluster = &just, .name = "c.yaml"}).warnings.empty());
  const topology::Cluster far = profile_of(12.5e9, 1.0);
  const LinkNotes notes = describe_links(links_of_two_hosts(), {.cluster = &far, .name = "c.yaml"});
  ASSERT_EQ(notes.warnings.size(), 1U);
  EXPECT_TRUE(holds(notes.warnings[0],
                    "ranks 0 and 8 reach 1.2 GB/s each way, far below the 6.25 GB/s of cluster "
                    "c.yaml (links.network.rank): messages go by Open MPI v4, ob1 over tcp"))
      << notes.warnings[0];
}

TEST(LinkNotes, FarAboveTheLatencyOfTheProfile) {
  const topology::Cluster cluster = profile_of(1e9, 1.0);
  LinkFigures figures = links_of_two_hosts();
  figures.pairs[0].latency_s = 3e-3;  // 10 us and 300 us of hand-offs, ten times
  EXPECT_TRUE(describe_links(figures, {.cluster = &cluster, .name = "c"}).warnings.empty());
  figures.pairs[0].latency_s = 3.2e-3;
  const LinkNotes notes = describe_links(figures, {.cluster = &cluster, .name = "c"});
  ASSERT_EQ(notes.warnings.size(), 1U);
  EXPECT_TRUE(holds(notes.warnings[0], "takes 3200 us, far above the 10 us of cluster c"))
      << notes.warnings[0];
}

TEST(LinkNotes, OnOneHostItsOwnLinkCounts) {
  LinkFigures figures = links_of_two_hosts();
  figures.hosts = 1;
  figures.unused = "mlx5_0 (InfiniBand, 400 Gb/s)";  // which nothing needs
  const topology::Cluster near = profile_of(1e15, 4e9);
  LinkNotes notes = describe_links(figures, {.cluster = &near, .name = "c"});
  EXPECT_TRUE(holds(notes.info, "on 1 host; messages go by Open MPI v4, ob1 over vader;"));
  EXPECT_TRUE(notes.warnings.empty());
  const topology::Cluster far = profile_of(1.0, 5e9);
  notes = describe_links(figures, {.cluster = &far, .name = "c"});
  ASSERT_EQ(notes.warnings.size(), 1U);
  EXPECT_TRUE(holds(notes.warnings[0], "(links.host.rank)"));
}

TEST(LinkNotes, AFasterDeviceThatStandsUnused) {
  LinkFigures figures = links_of_two_hosts();
  figures.unused = "rdmap0s6 (EFA, 100 Gb/s)";
  figures.unused_rank = 8;
  figures.unused_ranks = 8;
  const LinkNotes notes = describe_links(figures, {});
  ASSERT_EQ(notes.warnings.size(), 1U);
  EXPECT_TRUE(holds(notes.warnings[0],
                    "stand unused at 8 of 16 ranks (rank 8 has rdmap0s6 (EFA, 100 Gb/s)): messages "
                    "between hosts go by Open MPI v4, ob1 over tcp (eth0)"))
      << notes.warnings[0];
}

}  // namespace
}  // namespace weft::train
