/// A cluster with round figures, for tests.
#pragma once

#include <utility>
#include <vector>

#include "weft/topology/cluster.h"

namespace weft::topology {

/// Hosts as given; compute 1e12 and 4e12 flops/s, copy 1e11; rows of 64 and 256 bytes at 1e9 and
/// 2e9 bytes/s, updates at half of that; links of 1e11, 1e10 and 1e9 bytes/s, latencies 0, 1e-6 and
/// 1e-5 s.
inline Cluster small_cluster(std::vector<HostGroup> hosts) {
  Cluster cluster;
  cluster.name = "small";
  cluster.hosts = std::move(hosts);
  cluster.memory.ddr.value = 1e10;
  cluster.memory.reserve.value = 0.25;
  cluster.compute.gemm_fp32 = {.value = 1e12, .source = {}};
  cluster.compute.gemm_bf16 = {.value = 8e12, .efficiency = 0.5, .source = {}};
  cluster.compute.copy = {.value = 1e11, .source = {}};
  cluster.compute.rows.points = {{64, 1e9, 0.5e9}, {256, 2e9, 1e9}};
  cluster.links.self.rank.value = 1e11;
  cluster.links.host = {
      .rank = {.value = 1e10, .source = {}}, .host = {}, .latency = {.value = 1e-6, .source = {}}};
  cluster.links.network = {
      .rank = {.value = 1e9, .source = {}}, .host = {}, .latency = {.value = 1e-5, .source = {}}};
  return cluster;
}

}  // namespace weft::topology
