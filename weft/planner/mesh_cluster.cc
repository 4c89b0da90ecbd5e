#include "weft/planner/mesh_cluster.h"

#include <algorithm>
#include <map>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::planner {
namespace {

/// The hosts of some ranks with how many of them each has; ranks of a host follow each other.
struct Held {
  std::vector<topology::HostGroup> hosts;
  double least_share = 1.0;  ///< of a host's ranks
};

Held hosts_of(const topology::Cluster& world, const std::vector<std::int64_t>& ranks) {
  std::map<std::int64_t, std::int64_t> counts;  // by host, so in the order of ranks
  for (const std::int64_t rank : ranks) {
    ++counts[topology::host_of(world, rank)];
  }
  Held held;
  for (const auto& [host, count] : counts) {
    const std::int64_t all = topology::ranks_of_host(world, host).count;
    held.least_share =
        std::min(held.least_share, static_cast<double>(count) / static_cast<double>(all));
    if (held.hosts.empty() || held.hosts.back().ranks != count) {
      held.hosts.push_back({.count = 0, .ranks = count});
    }
    ++held.hosts.back().count;
  }
  return held;
}

}  // namespace

MeshCluster mesh_cluster(const topology::Cluster& world, const spec::Mesh& mesh) {
  const std::int64_t all = topology::ranks(world);
  WEFT_CHECK(mesh.groups > 0 && all % mesh.groups == 0, "{} groups of {} ranks", mesh.groups, all);
  WEFT_CHECK(mesh.groups == 1 || (mesh.sync != spec::SyncForm::kAuto && mesh.sync_every > 0),
             "a mesh whose sync is open");
  MeshCluster made{.groups = mesh.groups,
                   .layout = mesh.layout == spec::MeshLayout::kAuto
                                 ? spec::MeshLayout::kLocalAllToAll
                                 : mesh.layout,
                   .sync = mesh.sync,
                   .sync_every = mesh.sync_every,
                   .world = world,
                   .group = world,
                   .by_position = {},
                   .near = {}};
  const std::int64_t ranks = all / mesh.groups;
  for (std::int64_t p = 0; p < all; ++p) {
    made.by_position.push_back(spec::mesh_rank(made.layout, mesh.groups, ranks, p));
  }
  made.near.resize(at(all), 0.0);
  if (mesh.groups == 1) {
    return made;
  }
  const Held held = hosts_of(world, {made.by_position.begin(), made.by_position.begin() + ranks});
  made.group.hosts = held.hosts;
  made.group.links.host.host.value *= held.least_share;
  made.group.links.network.host.value *= held.least_share;
  const std::vector<std::int64_t> host = topology::rank_hosts(world);
  std::map<std::int64_t, double> on_host;
  for (std::int64_t place = 0; place < ranks; ++place) {
    on_host.clear();
    for (std::int64_t group = 0; group < mesh.groups; ++group) {
      on_host[host[at(made.by_position[at(group * ranks + place)])]] += 1.0;
    }
    for (std::int64_t group = 0; group < mesh.groups; ++group) {
      const std::int64_t rank = made.by_position[at(group * ranks + place)];
      made.near[at(rank)] = on_host[host[at(rank)]] - 1.0;
    }
  }
  return made;
}

bool layouts_are_alike(const topology::Cluster& world, std::int64_t groups) {
  const std::int64_t ranks = topology::ranks(world);
  return topology::hosts(world) == 1 || topology::hosts(world) == ranks || groups == 1 ||
         groups == ranks;
}

cost::Exchange replica_exchange(const MeshCluster& mesh, std::span<const double> bytes) {
  WEFT_CHECK(static_cast<std::int64_t>(bytes.size()) == mesh.ranks(), "bytes of {} of {} places",
             bytes.size(), mesh.ranks());
  cost::Exchange exchange = cost::no_exchange(mesh.world);
  const auto others = static_cast<double>(mesh.groups - 1);
  for (std::size_t p = 0; p < mesh.by_position.size(); ++p) {
    const std::size_t r = at(mesh.by_position[p]);
    const double one = bytes[p % bytes.size()];
    cost::RankTraffic& rank = exchange.ranks[r];
    rank.messages = {0.0, mesh.near[r], others - mesh.near[r]};
    rank.sent = {0.0, one * mesh.near[r], one * (others - mesh.near[r])};
    rank.received = rank.sent;
  }
  return exchange;
}

}  // namespace weft::planner
