#include "weft/cost/hierarchical.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/host_layout.h"

namespace weft::cost {
namespace {

using topology::Cluster;
using topology::Group;

constexpr double kCheckWord = 8.0;     // before what crosses
constexpr double kSizesOfLane = 16.0;  // of a lane there and one back

Staged no_stages(const Cluster& cluster) {
  Staged staged;
  staged.stages.fill(no_exchange(cluster));
  return staged;
}

/// What one rank relays, over the hosts for which it does.
struct Relayed {
  double hosts = 0.0;
  double ranks = 0.0;    ///< on these hosts
  double from = 0.0;     ///< what their ranks send, by the factor `from`
  double to = 0.0;       ///< what comes to them, by the factor `to`
  double sending = 0.0;  ///< hosts of which any rank has a lane to others
  double asking = 0.0;   ///< hosts of which any rank has a lane from others
};

/// Factors of an exchange in which rank i sends from[i] · to[j] to rank j, by host and relay.
struct Sums {
  std::vector<Relayed> host;   ///< [H] of the ranks of each host
  std::vector<Relayed> relay;  ///< [G]
  Relayed all;

  Sums(const HostLayout& layout,
       std::span<const double> from,
       std::span<const double> to,
       EmptyLanes empty)
      : host(at(layout.hosts())), relay(at(layout.ranks())), empty_(empty) {
    for (int i = 0; i < layout.ranks(); ++i) {
      Relayed& own = host[at(layout.host(i))];
      for (Relayed* sums : {&own, &all}) {
        sums->ranks += 1.0;
        sums->from += from[at(i)];
        sums->to += to[at(i)];
      }
      own.sending = std::max(own.sending, used(from[at(i)]));
      own.asking = std::max(own.asking, used(to[at(i)]));
    }
    for (int here = 0; here < layout.hosts(); ++here) {
      for (int there = 0; there < layout.hosts(); ++there) {
        if (there == here) {
          continue;
        }
        Relayed& sums = relay[at(layout.relay(here, there))];
        sums.hosts += 1.0;
        sums.ranks += host[at(there)].ranks;
        sums.from += host[at(there)].from;
        sums.to += host[at(there)].to;
        sums.sending += host[at(there)].sending;
        sums.asking += host[at(there)].asking;
      }
    }
  }

  /// 1 where a rank with this factor has lanes, else 0.
  [[nodiscard]] double used(double factor) const {
    return empty_ == EmptyLanes::kSent || factor > 0.0 ? 1.0 : 0.0;
  }

  /// Whether what a rank sends inside its host has a place among what relays send on.
  [[nodiscard]] bool is_relay(int rank) const { return relay[at(rank)].hosts > 0.0; }

 private:
  EmptyLanes empty_;
};

/// Messages of the second stage: a rank sends to relays whatever there is, and to the others of its
/// host where its lane to them is not silent.
void add_gathers(const HostLayout& layout,
                 const Sums& sums,
                 const Group& group,
                 std::span<const double> from,
                 std::span<const double> to,
                 Exchange& gather) {
  for (int h = 0; h < layout.hosts(); ++h) {
    double relays = 0.0;
    double asking = 0.0;
    for (const int i : layout.ranks_of(h)) {
      (sums.is_relay(i) ? relays : asking) += sums.is_relay(i) ? 1.0 : sums.used(to[at(i)]);
    }
    for (const int i : layout.ranks_of(h)) {
      const bool is_relay = sums.is_relay(i);
      gather.ranks[at(group[at(i)])].messages[1] =
          relays - (is_relay ? 1.0 : 0.0) +
          sums.used(from[at(i)]) * (asking - (is_relay ? 0.0 : sums.used(to[at(i)])));
    }
  }
}

/// Sizes of lanes to the relays of a host.
void add_sizes(const HostLayout& layout, const Sums& sums, const Group& group, Exchange& exchange) {
  for (int i = 0; i < layout.ranks(); ++i) {
    const Relayed& own = sums.relay[at(i)];
    const Relayed& near = sums.host[at(layout.host(i))];
    const double relays = std::min(near.ranks, static_cast<double>(layout.hosts() - 1));
    RankTraffic& rank = exchange.ranks[at(group[at(i)])];
    rank.sent[1] = kSizesOfLane * (sums.all.ranks - near.ranks - own.ranks);
    rank.received[1] = kSizesOfLane * own.ranks * (near.ranks - 1.0);
    rank.messages[1] = relays - (own.hosts > 0.0 ? 1.0 : 0.0);
  }
}

}  // namespace

HostLayout host_layout(const Cluster& cluster, const Group& group) {
  std::vector<int> hosts;
  hosts.reserve(group.size());
  for (const std::int64_t rank : group) {
    hosts.push_back(static_cast<int>(topology::host_of(cluster, rank)));
  }
  return HostLayout(hosts);
}

bool has_hierarchy(const Cluster& cluster, const Group& group) {
  return !host_layout(cluster, group).is_flat();
}

Staged relayed(const Cluster& cluster,
               const Group& group,
               std::span<const double> from,
               std::span<const double> to,
               EmptyLanes empty) {
  WEFT_CHECK(from.size() == group.size() && to.size() == group.size(),
             "{} and {} counts for a group of {} ranks", from.size(), to.size(), group.size());
  const HostLayout layout = host_layout(cluster, group);
  const Sums sums(layout, from, to, empty);
  Staged staged = no_stages(cluster);
  auto& [sizes, gather, cross, scatter] = staged.stages;
  add_sizes(layout, sums, group, sizes);
  add_gathers(layout, sums, group, from, to, gather);
  for (int i = 0; i < layout.ranks(); ++i) {
    const Relayed& own = sums.relay[at(i)];
    const Relayed& near = sums.host[at(layout.host(i))];
    const std::size_t r = at(group[at(i)]);
    const double out = from[at(i)];
    const double in = to[at(i)];
    RankTraffic& gathered = gather.ranks[r];
    gathered.sent = {out * own.to, out * (sums.all.to - in - own.to), 0.0};
    gathered.received = {out * own.to, in * (near.from - out) + (near.from - out) * own.to, 0.0};
    RankTraffic& crossed = cross.ranks[r];
    crossed.messages[2] = near.sending * own.asking;
    crossed.sent[2] = kCheckWord * crossed.messages[2] + near.from * own.to;
    crossed.received[2] = kCheckWord * own.sending * near.asking + own.from * near.to;
    RankTraffic& scattered = scatter.ranks[r];
    scattered.sent = {own.from * in, own.from * (near.to - in), 0.0};
    scattered.received = {own.from * in, (sums.all.from - near.from - own.from) * in, 0.0};
    scattered.messages[1] = own.hosts > 0.0 ? near.ranks - 1.0 : 0.0;
  }
  return staged;
}

std::array<Exchange, 3> relayed_blocks(const Cluster& cluster, const Group& group, double bytes) {
  const std::vector<double> ones(group.size(), 1.0);
  auto [sizes, gather, cross, scatter] =
      relayed(cluster, group, ones, std::vector<double>(group.size(), bytes), EmptyLanes::kSent)
          .stages;
  return {std::move(gather), std::move(cross), std::move(scatter)};
}

Staged relayed_all_gather(const Cluster& cluster,
                          const Group& group,
                          std::span<const double> bytes,
                          EmptyLanes empty) {
  WEFT_CHECK(bytes.size() == group.size(), "{} counts for a group of {} ranks", bytes.size(),
             group.size());
  const HostLayout layout = host_layout(cluster, group);
  const std::vector<double> to(group.size(), 1.0);
  const Sums sums(layout, bytes, to, empty);
  Staged staged = no_stages(cluster);
  auto& [sizes, gather, cross, scatter] = staged.stages;
  add_sizes(layout, sums, group, sizes);
  add_gathers(layout, sums, group, bytes, to, gather);
  for (int i = 0; i < layout.ranks(); ++i) {
    const Relayed& own = sums.relay[at(i)];
    const Relayed& near = sums.host[at(layout.host(i))];
    const std::size_t r = at(group[at(i)]);
    const double out = bytes[at(i)];
    const double others = layout.hosts() - 1;
    RankTraffic& gathered = gather.ranks[r];
    gathered.sent = {out * own.hosts, out * (near.ranks - 1.0 + others - own.hosts), 0.0};
    gathered.received = {out * own.hosts, (near.from - out) * (1.0 + own.hosts), 0.0};
    RankTraffic& crossed = cross.ranks[r];
    crossed.messages[2] = near.sending * own.hosts;
    crossed.sent[2] = kCheckWord * crossed.messages[2] + own.hosts * near.from;
    crossed.received[2] = kCheckWord * own.sending + own.from;
    RankTraffic& scattered = scatter.ranks[r];
    scattered.sent = {own.from, own.from * (near.ranks - 1.0), 0.0};
    scattered.received = {own.from, sums.all.from - near.from - own.from, 0.0};
    scattered.messages[1] = own.hosts > 0.0 ? near.ranks - 1.0 : 0.0;
  }
  return staged;
}

Staged relayed_lanes(const Cluster& cluster, const Group& group, std::span<const LaneBytes> lanes) {
  const HostLayout layout = host_layout(cluster, group);
  const std::vector<double> nothing(group.size(), 0.0);
  const Sums sums(layout, nothing, nothing, EmptyLanes::kSilent);
  Staged staged = no_stages(cluster);
  auto& [sizes, gather, cross, scatter] = staged.stages;
  add_sizes(layout, sums, group, sizes);
  add_gathers(layout, sums, group, nothing, nothing, gather);
  const auto move = [&](Exchange& stage, int from, int to, double bytes) {
    const std::size_t link = from == to ? 0 : 1;
    stage.ranks[at(group[at(from)])].sent[link] += bytes;
    stage.ranks[at(group[at(to)])].received[link] += bytes;
  };
  std::map<std::pair<int, int>, double> between;  // hosts
  for (const LaneBytes& lane : lanes) {
    WEFT_CHECK(lane.from != lane.to && std::max(lane.from, lane.to) < std::ssize(group),
               "a lane from rank {} to {} of a group of {}", lane.from, lane.to, group.size());
    const auto from = static_cast<int>(lane.from);
    const auto to = static_cast<int>(lane.to);
    const int here = layout.host(from);
    const int there = layout.host(to);
    if (here == there) {
      move(gather, from, to, lane.bytes);
      gather.ranks[at(group[at(from)])].messages[1] += sums.is_relay(to) ? 0.0 : 1.0;
      continue;
    }
    move(gather, from, layout.relay(here, there), lane.bytes);
    move(scatter, layout.relay(there, here), to, lane.bytes);
    between[{here, there}] += lane.bytes;
  }
  for (const auto& [hosts, bytes] : between) {
    RankTraffic& sender = cross.ranks[at(group[at(layout.relay(hosts.first, hosts.second))])];
    RankTraffic& receiver = cross.ranks[at(group[at(layout.relay(hosts.second, hosts.first))])];
    sender.messages[2] += 1.0;
    sender.sent[2] += kCheckWord + bytes;
    receiver.received[2] += kCheckWord + bytes;
  }
  for (int i = 0; i < layout.ranks(); ++i) {
    if (sums.is_relay(i)) {
      scatter.ranks[at(group[at(i)])].messages[1] = sums.host[at(layout.host(i))].ranks - 1.0;
    }
  }
  return staged;
}

Exchange total(std::span<const Exchange> stages) {
  Exchange sum = stages.front();
  for (std::size_t i = 1; i < stages.size(); ++i) {
    add(sum, stages[i]);
  }
  return sum;
}

double exchange_s(const Cluster& cluster, std::span<const Exchange> stages) {
  double seconds = 0.0;
  for (const Exchange& stage : stages) {
    seconds += exchange_s(cluster, stage);
  }
  return seconds;
}

}  // namespace weft::cost
