#include "weft/topology/cluster.h"

#include <numeric>

#include "weft/base/error.h"
#include "weft/spec/walk.h"
#include "weft/topology/describe.h"

namespace weft::topology {
namespace {

class Checker {
 public:
  Checker(const Cluster& cluster, const spec::Where& where) : cluster_(cluster), where_(where) {}

  void run() const {
    check_hosts();
    check_memory();
    check_compute();
    check_links();
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(const std::string& path,
                           fmt::format_string<Args...> format,
                           Args&&... args) const {
    throw Error(ErrorCode::kConfig, fmt::format("{}{}{}", where_(path), path,
                                                fmt::format(format, std::forward<Args>(args)...)));
  }

  void check_hosts() const {
    if (cluster_.hosts.empty()) {
      refuse("hosts", " is missing: a cluster has at least one; add '- {{count: 1, ranks: 8}}'");
    }
    double total = 0;
    for (std::size_t i = 0; i < cluster_.hosts.size(); ++i) {
      const HostGroup& group = cluster_.hosts[i];
      if (group.count < 1 || group.ranks < 1) {
        refuse(fmt::format("hosts.{}", i), ": {} hosts of {} ranks; each is at least 1",
               group.count, group.ranks);
      }
      total += static_cast<double>(group.count) * static_cast<double>(group.ranks);
    }
    if (total > spec::kMaxRanks) {
      refuse("hosts", ": {} ranks in all are too many; at most {}", total, spec::kMaxRanks);
    }
  }

  void check_memory() const {
    const Memory& memory = cluster_.memory;
    if (memory.hbm.value <= 0 && memory.ddr.value <= 0) {
      refuse("memory", ": neither hbm nor ddr is given; say how many bytes a rank has");
    }
    if (!(memory.reserve.value >= 0 && memory.reserve.value < 1)) {
      refuse("memory.reserve.value", ": must be 0 to 1, without 1, is {}", memory.reserve.value);
    }
  }

  void need(const std::string& path, const Rate& rate, const char* what) const {
    if (rate.value == 0) {
      refuse(path, " is missing: give its value in {}", what);
    }
    check_rate(path, rate.achieved(), what);
  }

  /// Divisions by rates stay finite.
  void check_rate(const std::string& path, double achieved, const char* what) const {
    if (!(achieved >= 1)) {
      refuse(path, ": {} {}, efficiency included, is no rate; it is at least 1", achieved, what);
    }
  }

  void may(const std::string& path, const Rate& rate, const char* what) const {
    if (rate.value != 0) {
      need(path, rate, what);
    }
  }

  void check_compute() const {
    const Compute& compute = cluster_.compute;
    need("compute.gemm_fp32", compute.gemm_fp32, "flops/s");
    may("compute.gemm_bf16", compute.gemm_bf16, "flops/s");
    may("compute.dots", compute.dots, "flops/s");
    need("compute.copy", compute.copy, "bytes/s, read plus written");
    const std::vector<RowPoint>& points = compute.rows.points;
    if (points.empty()) {
      refuse("compute.rows.points",
             " is missing: give at least one '- {{row_bytes: 256, read: ..., update: ...}}', in "
             "bytes/s");
    }
    for (std::size_t i = 0; i < points.size(); ++i) {
      const std::string path = fmt::format("compute.rows.points.{}", i);
      if (!(points[i].row_bytes > 0 && points[i].read > 0 && points[i].update > 0)) {
        refuse(path, ": row_bytes, read and update must all be given, above 0");
      }
      check_rate(path + ".read", points[i].read * compute.rows.efficiency, "bytes/s");
      check_rate(path + ".update", points[i].update * compute.rows.efficiency, "bytes/s");
      if (points[i].near != 0) {
        check_rate(path + ".near", points[i].near * compute.rows.efficiency, "bytes/s");
      }
      if (i > 0 && points[i].row_bytes <= points[i - 1].row_bytes) {
        refuse(path + ".row_bytes", ": {} is not above the {} before it; sort the points by length",
               points[i].row_bytes, points[i - 1].row_bytes);
      }
    }
    may("compute.sort", compute.sort, "bytes/s");
    may("disk.read_blocks", cluster_.disk.read_blocks, "blocks/s");
  }

  void check_links() const {
    const std::int64_t num_hosts = hosts(cluster_);
    bool shared = false;
    for (const HostGroup& group : cluster_.hosts) {
      shared = shared || group.ranks > 1;
    }
    check_link("links.self", cluster_.links.self, "every rank keeps a part of what it exchanges");
    if (shared) {
      check_link("links.host", cluster_.links.host, "there are hosts of several ranks");
    }
    if (num_hosts > 1) {
      check_link("links.network", cluster_.links.network,
                 fmt::format("there are {} hosts", num_hosts));
    }
  }

  void check_link(const std::string& path, const Link& link, const std::string& why) const {
    if (link == Link{}) {
      refuse(path, " is missing but {}: give its rank: {{value: bytes/s}} and latency", why);
    }
    need(path + ".rank", link.rank, "bytes/s");
    may(path + ".host", link.host, "bytes/s");
  }

  const Cluster& cluster_;
  const spec::Where& where_;
};

}  // namespace

std::string_view to_string(LinkClass link) {
  switch (link) {
    case LinkClass::kSelf:
      return "self";
    case LinkClass::kHost:
      return "host";
    case LinkClass::kNetwork:
      return "network";
  }
  fail(ErrorCode::kInternal, "link class number {} does not exist", static_cast<int>(link));
}

void check_at(const Cluster& cluster, const spec::Where& where) {
  Checker(cluster, where).run();
}

void check(const Cluster& cluster) {
  check_at(cluster, [](const std::string&) { return std::string(); });
}

std::int64_t ranks(const Cluster& cluster) {
  return std::accumulate(
      cluster.hosts.begin(), cluster.hosts.end(), std::int64_t{0},
      [](std::int64_t sum, const HostGroup& group) { return sum + group.count * group.ranks; });
}

std::int64_t hosts(const Cluster& cluster) {
  return std::accumulate(
      cluster.hosts.begin(), cluster.hosts.end(), std::int64_t{0},
      [](std::int64_t sum, const HostGroup& group) { return sum + group.count; });
}

std::int64_t host_of(const Cluster& cluster, std::int64_t rank) {
  std::int64_t first_rank = 0;
  std::int64_t first_host = 0;
  for (const HostGroup& group : cluster.hosts) {
    const std::int64_t end = first_rank + group.count * group.ranks;
    if (rank >= first_rank && rank < end) {
      return first_host + (rank - first_rank) / group.ranks;
    }
    first_rank = end;
    first_host += group.count;
  }
  fail(ErrorCode::kInternal, "rank {} of a cluster of {}", rank, first_rank);
}

HostRanks ranks_of_host(const Cluster& cluster, std::int64_t host) {
  std::int64_t first_rank = 0;
  std::int64_t first_host = 0;
  for (const HostGroup& group : cluster.hosts) {
    if (host >= first_host && host < first_host + group.count) {
      return {first_rank + (host - first_host) * group.ranks, group.ranks};
    }
    first_rank += group.count * group.ranks;
    first_host += group.count;
  }
  fail(ErrorCode::kInternal, "host {} of a cluster of {}", host, first_host);
}

LinkClass link_class(const Cluster& cluster, std::int64_t a, std::int64_t b) {
  if (a == b) {
    return LinkClass::kSelf;
  }
  return host_of(cluster, a) == host_of(cluster, b) ? LinkClass::kHost : LinkClass::kNetwork;
}

const Link& link(const Cluster& cluster, LinkClass link) {
  switch (link) {
    case LinkClass::kSelf:
      return cluster.links.self;
    case LinkClass::kHost:
      return cluster.links.host;
    case LinkClass::kNetwork:
      return cluster.links.network;
  }
  fail(ErrorCode::kInternal, "link class number {} does not exist", static_cast<int>(link));
}

std::vector<std::int64_t> rank_hosts(const Cluster& cluster) {
  std::vector<std::int64_t> found;
  std::int64_t host = 0;
  for (const HostGroup& group : cluster.hosts) {
    for (std::int64_t i = 0; i < group.count; ++i, ++host) {
      found.insert(found.end(), static_cast<std::size_t>(group.ranks), host);
    }
  }
  return found;
}

Group all_ranks(const Cluster& cluster) {
  Group group(static_cast<std::size_t>(ranks(cluster)));
  std::iota(group.begin(), group.end(), 0);
  return group;
}

Group host_group(const Cluster& cluster, std::int64_t host) {
  const HostRanks own = ranks_of_host(cluster, host);
  Group group(static_cast<std::size_t>(own.count));
  std::iota(group.begin(), group.end(), own.first);
  return group;
}

Group rail_group(const Cluster& cluster, std::int64_t local) {
  Group group;
  std::int64_t first = 0;
  for (const HostGroup& hosts : cluster.hosts) {
    for (std::int64_t i = 0; i < hosts.count; ++i, first += hosts.ranks) {
      if (local < hosts.ranks) {
        group.push_back(first + local);
      }
    }
  }
  return group;
}

}  // namespace weft::topology
