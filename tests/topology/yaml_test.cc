// Clusters as files: every message, round trips, and the profiles that are shipped.
#include "weft/topology/yaml.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft::topology {
namespace {

constexpr const char* kText = R"(version: 1
name: two
hosts:
  - {count: 2, ranks: 4}
threads: 8
memory:
  ddr: {value: 64e9, source: "a DIMM each"}
compute:
  gemm_fp32: {value: 1e12, efficiency: 0.5}
  copy: {value: 1e11}
  rows:
    source: measured
    points:
      - {row_bytes: 64, read: 1e9, update: 0.5e9}
      - {row_bytes: 256, read: 2e9, update: 1e9}
links:
  self: {rank: {value: 1e11}}
  host: {rank: {value: 1e10}, latency: {value: 1e-6}}
  network:
    rank: {value: 12.5e9, efficiency: 0.9, source: "100 Gb/s"}
    latency: {value: 2e-6}
)";

std::string refusal_of_text(const std::string& text) {
  try {
    parse_cluster(text, "c.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "accepted";
}

/// kText with `from` replaced.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = kText;
  const std::size_t begin = text.find(from);
  EXPECT_NE(begin, std::string::npos) << from;
  return text.replace(begin, from.size(), to);
}

TEST(ClusterYaml, ReadsWhatIsGiven) {
  const Cluster cluster = parse_cluster(kText, "c.yaml");
  EXPECT_EQ(cluster.name, "two");
  EXPECT_EQ(ranks(cluster), 8);
  EXPECT_EQ(cluster.threads, 8);
  EXPECT_EQ(cluster.memory.ddr.value, 64e9);
  EXPECT_EQ(cluster.memory.ddr.source, "a DIMM each");
  EXPECT_EQ(cluster.memory.reserve.value, 0.15);
  EXPECT_EQ(cluster.compute.rows.points[1], (RowPoint{256, 2e9, 1e9}));
  EXPECT_DOUBLE_EQ(cluster.links.network.rank.achieved(), 11.25e9);
  EXPECT_EQ(cluster.links.network.host, Rate{});
}

TEST(ClusterYaml, RoundTrips) {
  const std::string text = to_yaml(parse_cluster(kText, "c.yaml"));
  EXPECT_EQ(to_yaml(parse_cluster(text, "again.yaml")), text);
}

TEST(ClusterYaml, MessagesHavePlaceKeyAndAdvice) {
  const auto says = [](const std::string& text, const std::string& message) {
    EXPECT_NE(refusal_of_text(text).find(message), std::string::npos) << refusal_of_text(text);
  };
  says("", "c.yaml: holds nothing; begin with 'version: 1'");
  says("a: [", "c.yaml:");
  says(changed("version: 1\n", ""), "the key 'version' is missing");
  says(changed("version: 1", "version: 2"), "c.yaml:1:10: version: must be 1, is 2");
  says(changed("gemm_fp32:", "gem_fp32:"),
       "c.yaml:9:3: compute.gem_fp32: unknown key; did you mean 'gemm_fp32'?");
  says(changed("ranks: 4", "ranks: 0"), "c.yaml:4:23: hosts.0.ranks: must be");
  says(changed("ranks: 4", "ranks: -4"), "hosts.0.ranks: must be");
  says(changed("  - {count: 2, ranks: 4}\n", ""), "hosts is missing: a cluster has at least one");
  says(changed("12.5e9", "-12.5e9"),
       "c.yaml:20:19: links.network.rank.value: must be at least 0 bytes/s, is -12500000000");
  says(changed("12.5e9", "fast"), "links.network.rank.value: expected a number, found 'fast'");
  says(changed("12.5e9", ".nan"), "is not finite");
  says(changed("efficiency: 0.9", "efficiency: 1.2"),
       "links.network.rank.efficiency: must be 0 to 1");
  says(changed("efficiency: 0.9", "efficiency: 0"),
       "links.network.rank.efficiency: must be 0 to 1");
  says(changed("64e9", "0"), "memory: neither hbm nor ddr is given");
  const std::string without = std::string(kText).substr(0, std::string(kText).find("  network:"));
  says(without, "c.yaml:17:3: links.network is missing but there are 2 hosts: give its rank");
  says(changed("links:\n", "link:\n"), "c.yaml:16:1: link: unknown key; did you mean 'links'?");
  says(changed("row_bytes: 256", "row_bytes: 32"),
       "compute.rows.points.1.row_bytes: 32 is not above");
}

/// Damaged text gives a cluster or an Error, and nothing else.
TEST(ClusterYaml, DamagedTextIsRefusedOrRead) {
  const std::string text = kText;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string cut = text;
    cut.erase(i, 1 + i % 7);
    try {
      check(parse_cluster(cut, "c.yaml"));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    }
  }
}

TEST(Profiles, LoadRoundTripAndHaveSources) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_SOURCE_DIR "/clusters")) {
    if (entry.path().extension() != ".yaml") {
      continue;
    }
    SCOPED_TRACE(entry.path().filename());
    ++found;
    const Cluster cluster = load_cluster(entry.path());
    const std::string text = to_yaml(cluster);
    EXPECT_EQ(to_yaml(parse_cluster(text, "again")), text);
    EXPECT_EQ(cluster.name + ".yaml", entry.path().filename());
    // Every figure that is given says where it is from.
    for (const Rate* rate :
         {&cluster.compute.gemm_fp32, &cluster.compute.gemm_bf16, &cluster.compute.copy,
          &cluster.links.self.rank, &cluster.links.host.rank, &cluster.links.host.host,
          &cluster.links.network.rank, &cluster.links.network.host}) {
      EXPECT_EQ(rate->value == 0.0, rate->source.empty()) << rate->value << rate->source;
    }
    for (const Amount* amount :
         {&cluster.memory.hbm, &cluster.memory.ddr, &cluster.memory.ssd, &cluster.memory.reserve,
          &cluster.compute.repeat, &cluster.compute.draw, &cluster.compute.stage,
          &cluster.compute.collective, &cluster.links.host.latency,
          &cluster.links.network.latency}) {
      EXPECT_EQ(amount->value == 0.0, amount->source.empty()) << amount->value << amount->source;
    }
    EXPECT_FALSE(cluster.compute.rows.source.empty());
  }
  EXPECT_GE(found, 7);
}

}  // namespace
}  // namespace weft::topology
