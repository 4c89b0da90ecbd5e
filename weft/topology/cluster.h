/// What a cluster is made of: hosts, the ranks on them, and what a rank can compute, hold and send.
/// Plain values; costs (weft/cost) and plans are functions of them.
///
/// Ranks are numbered host by host. All ranks are alike, hosts may have different numbers of them.
/// Units: bytes, seconds, floating-point operations, and these per second. A rate is what its
/// source says, mostly a peak, times the share of it that one can expect (`efficiency`); all
/// functions take that product. 0 is "not given". Files: yaml.h, docs/topology.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::topology {

/// Something per second.
struct Rate {
  double value = 0.0;       ///< as the source has it
  double efficiency = 1.0;  ///< the share of it that is reached
  std::string source;

  [[nodiscard]] double achieved() const { return value * efficiency; }

  friend bool operator==(const Rate&, const Rate&) = default;
};

/// A number of bytes or seconds, or a share.
struct Amount {
  double value = 0.0;
  std::string source;

  friend bool operator==(const Amount&, const Amount&) = default;
};

/// `count` hosts with `ranks` ranks each.
struct HostGroup {
  std::int64_t count = 1;
  std::int64_t ranks = 1;

  friend bool operator==(const HostGroup&, const HostGroup&) = default;
};

/// Memory of one rank, by what it is made of. Tables lie in hbm where there is some, else in ddr.
struct Memory {
  Amount hbm;  ///< of a GPU
  Amount ddr;  ///< this rank's share of its host's
  Amount ssd;
  Amount reserve{.value = 0.15, .source = {}};  ///< share kept for all that is no table
};

/// Rows of one length at random places of memory that is larger than the caches, and of a cache.
struct RowPoint {
  double row_bytes = 0.0;
  double read = 0.0;    ///< bytes of rows per second
  double update = 0.0;  ///< the same, each row read and written back: a byte counts once
  double near = 0.0;    ///< read where all rows lie in a core's own cache; 0: as bytes in a cache

  friend bool operator==(const RowPoint&, const RowPoint&) = default;
};

/// Rates of random access to rows, by the length of a row; row_s() (rates.h) interpolates.
struct RowRates {
  std::vector<RowPoint> points;  ///< by row_bytes, ascending
  double efficiency = 1.0;       ///< of all points
  std::string source;

  friend bool operator==(const RowRates&, const RowRates&) = default;
};

/// What one rank computes, all ranks of its host being at work.
struct Compute {
  Rate gemm_fp32;     ///< flops/s
  Rate gemm_bf16;     ///< flops/s; 0: as fp32
  Rate dots;          ///< flops/s of dot interactions, as cost::dense counts them; 0: as gemm_fp32
  Rate copy;          ///< bytes read plus bytes written per second, one after the other
  RowRates rows;      ///< random access
  Rate sort;          ///< bytes/s of coalescing, as cost::coalesce_s counts them; 0: as copy
  Amount cache;       ///< bytes that stay near while a stage runs: of its cores' own caches
  Amount repeat;      ///< seconds for one more gradient of a row that has one already
  Amount draw;        ///< seconds for an element of a row rounded stochastically, beside its bytes
  Amount stage;       ///< seconds that a stage takes beside its work: the hand-off
  Amount collective;  ///< seconds that any collective takes, before a message is sent
};

/// The disks on which one rank has rows, all ranks of its host reading at once.
struct Disk {
  Rate read_blocks;  ///< blocks of 4 KiB at random places, per second; 0: reads take no time
  Amount block;      ///< seconds of a processor for a block that is read and checked
};

/// How two ranks reach each other.
enum class LinkClass : std::uint8_t {
  kSelf,     ///< one rank
  kHost,     ///< two ranks of a host
  kNetwork,  ///< two hosts
};

inline constexpr std::size_t kNumLinkClasses = 3;

/// "self", "host", "network".
std::string_view to_string(LinkClass link);

/// What a class of links carries, each direction by itself.
struct Link {
  Rate rank;       ///< bytes/s that one rank sends, or receives
  Rate host;       ///< bytes/s of all ranks of a host together; 0: as many as they are
  Amount latency;  ///< seconds per message

  friend bool operator==(const Link&, const Link&) = default;
};

/// The links of a cluster, by class.
struct Links {
  Link self;
  Link host;
  Link network;
};

/// A cluster. check() says which figures are needed.
struct Cluster {
  std::int64_t version = 1;
  std::string name;
  std::string notes;  ///< what it is, in a sentence
  std::vector<HostGroup> hosts;
  std::int64_t threads = 1;  ///< of a rank
  Memory memory;
  Compute compute;
  Disk disk;
  Links links;
};

/// Throws Error(kConfig) naming the key, what is wrong and what to do: no ranks, more than 65536, a
/// rate that is missing (0) and needed or below 1 per second, rows that do not ascend, a share
/// outside [0, 1). Of links those are needed over which two ranks, or one, talk.
void check(const Cluster& cluster);

/// Returns the number of ranks, or of hosts, in all groups together.
[[nodiscard]] std::int64_t ranks(const Cluster& cluster);
[[nodiscard]] std::int64_t hosts(const Cluster& cluster);

/// Host of a rank, in [0, hosts). O(groups of hosts). Requires 0 <= rank < ranks.
[[nodiscard]] std::int64_t host_of(const Cluster& cluster, std::int64_t rank);

/// The ranks of a host: [first, first + count).
struct HostRanks {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Returns the ranks of a host. O(groups of hosts). Requires 0 <= host < hosts.
[[nodiscard]] HostRanks ranks_of_host(const Cluster& cluster, std::int64_t host);

/// Returns how ranks a and b reach each other; kSelf where they are the same.
[[nodiscard]] LinkClass link_class(const Cluster& cluster, std::int64_t a, std::int64_t b);
/// Returns the link of a class, a member of `cluster`.
[[nodiscard]] const Link& link(const Cluster& cluster, LinkClass link);

/// Returns [ranks] the host of each: what plans call `hosts`.
[[nodiscard]] std::vector<std::int64_t> rank_hosts(const Cluster& cluster);

/// Ranks that do something together, as numbers in the cluster, ascending.
using Group = std::vector<std::int64_t>;

/// Returns all ranks, or those of one host. Requires 0 <= host < hosts.
[[nodiscard]] Group all_ranks(const Cluster& cluster);
[[nodiscard]] Group host_group(const Cluster& cluster, std::int64_t host);

/// Returns the `local`-th rank of every host that has so many: those that meet in the second stage
/// of a hierarchical exchange.
[[nodiscard]] Group rail_group(const Cluster& cluster, std::int64_t local);

}  // namespace weft::topology
