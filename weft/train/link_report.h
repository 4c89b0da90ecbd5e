/// What a job says of its links at its start: what carries messages, what a few pairs of ranks
/// reach, and what is slower than it should be.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/comm/carrier.h"
#include "weft/comm/communicator.h"
#include "weft/topology/cluster.h"

namespace weft::train {

/// Pairs that a job measures at most.
inline constexpr int kMeasuredPairs = 4;

/// Two ranks of the world, the lower first, and what they reached.
struct PairFigures {
  int first = -1;
  int second = -1;
  double latency_s = 0.0;    ///< of the quickest exchange of 8 bytes both ways, Weft's hand-offs
                             ///< included: other work of the hosts is no property of a link
  double bytes_per_s = 0.0;  ///< each way, both ways at once
};

/// What is known of a job's links; equal on all ranks.
struct LinkFigures {
  comm::Carrier carrier;
  int ranks = 1;
  int hosts = 1;
  std::vector<PairFigures> pairs;  ///< between hosts where there are several, else inside the host
  std::string unused;              ///< fast devices that `unused_rank` has not opened; empty: none
  int unused_rank = -1;            ///< the lowest that has such devices
  int unused_ranks = 0;            ///< how many have

  [[nodiscard]] bool between_hosts() const { return hosts > 1; }
};

/// The pairs to measure, given the host of each rank: at most kMeasuredPairs of hosts, no host
/// twice, each by its first rank, far apart in the order of hosts; on one host its first and last
/// rank. Depends on nothing else.
std::vector<std::pair<int, int>> pairs_to_measure(std::span<const int> hosts);

/// Measures the pairs, all at once, through groups of their own: no result of the job depends on
/// it. Collective. `system_root`: of fast_devices(). Cost: below 0.2 s on any number of ranks,
/// where links are faster than 1 MB/s; 1 split, and 1 merge of some 300 bytes.
LinkFigures measure_links(comm::Communicator& world, Context& ctx, const std::string& system_root);

/// A cluster to compare with, and how messages name it; null: none.
struct LinkProfile {
  const topology::Cluster* cluster = nullptr;
  std::string name;
};

/// Lines for the log.
struct LinkNotes {
  std::string info;
  std::vector<std::string> warnings;
};

/// One line of what there is. Warnings, between hosts or inside: a pair that reaches less than a
/// quarter of the profile's bytes per second of a rank, or takes more than ten times its latency
/// and Weft's hand-offs, naming the worst; and between hosts fast devices that stand unused.
LinkNotes describe_links(const LinkFigures& figures, const LinkProfile& profile);

}  // namespace weft::train
