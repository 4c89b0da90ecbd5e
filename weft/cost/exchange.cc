#include "weft/cost/exchange.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/cost/memory.h"
#include "weft/topology/rates.h"

namespace weft::cost {
namespace {

using topology::Cluster;
using topology::Group;
using topology::LinkClass;

constexpr auto kSelf = static_cast<std::size_t>(LinkClass::kSelf);
constexpr auto kHost = static_cast<std::size_t>(LinkClass::kHost);
constexpr auto kNetwork = static_cast<std::size_t>(LinkClass::kNetwork);

/// Hosts of a group's ranks.
std::vector<std::int64_t> hosts_of(const Cluster& cluster, const Group& group) {
  std::vector<std::int64_t> hosts;
  hosts.reserve(group.size());
  for (const std::int64_t rank : group) {
    hosts.push_back(topology::host_of(cluster, rank));
  }
  return hosts;
}

/// The slice of rank i of `ranks`, in floats.
double slice(std::int64_t count, const Group& group, std::size_t i) {
  return static_cast<double>(
      piece(count, static_cast<std::int64_t>(group.size()), static_cast<std::int64_t>(i)).size());
}

/// What one rank sends to each rank of the group, and what nobody sends to himself.
enum class Own : std::uint8_t { kCopied, kKept };

/// from[i]: bytes to every rank; to[j]: a factor of what comes to rank j (1 where all get the
/// same). Rank i sends from[i] · to[j] to rank j. O(G + hosts).
Exchange outer(const Cluster& cluster,
               const Group& group,
               std::span<const double> from,
               std::span<const double> to,
               Own own,
               EmptyLanes empty = EmptyLanes::kSent) {
  WEFT_CHECK(from.size() == group.size() && to.size() == group.size(),
             "{} and {} counts for a group of {} ranks", from.size(), to.size(), group.size());

  struct HostSums {
    double from = 0.0, to = 0.0, asking = 0.0;
  };

  const auto asks = [&](std::size_t i) {
    return empty == EmptyLanes::kSent || to[i] > 0.0 ? 1.0 : 0.0;
  };
  const std::vector<std::int64_t> hosts = hosts_of(cluster, group);
  std::vector<HostSums> by_host(at(topology::hosts(cluster)));
  HostSums all;
  for (std::size_t i = 0; i < group.size(); ++i) {
    for (HostSums* sums : {&by_host[at(hosts[i])], &all}) {
      sums->from += from[i];
      sums->to += to[i];
      sums->asking += asks(i);
    }
  }
  Exchange exchange = no_exchange(cluster);
  for (std::size_t i = 0; i < group.size(); ++i) {
    const HostSums& near = by_host[at(hosts[i])];
    RankTraffic& rank = exchange.ranks[at(group[i])];
    const double self = own == Own::kCopied ? from[i] * to[i] : 0.0;
    rank.sent = {self, from[i] * (near.to - to[i]), from[i] * (all.to - near.to)};
    rank.received = {self, to[i] * (near.from - from[i]), to[i] * (all.from - near.from)};
    if (empty == EmptyLanes::kSent || from[i] > 0.0) {
      rank.messages = {0.0, near.asking - asks(i), all.asking - near.asking};
    }
  }
  return exchange;
}

Exchange even(const Cluster& cluster,
              const Group& group,
              std::span<const double> bytes,
              Own own,
              EmptyLanes empty = EmptyLanes::kSent) {
  return outer(cluster, group, bytes, std::vector<double>(group.size(), 1.0), own, empty);
}

}  // namespace

Exchange no_exchange(const Cluster& cluster) {
  Exchange exchange;
  exchange.ranks.resize(at(topology::ranks(cluster)));
  return exchange;
}

Exchange all_to_all(const Cluster& cluster, const Group& group, std::span<const double> bytes) {
  WEFT_CHECK(bytes.size() == group.size() * group.size(), "{} counts for a group of {} ranks",
             bytes.size(), group.size());
  const std::vector<std::int64_t> hosts = hosts_of(cluster, group);
  Exchange exchange = no_exchange(cluster);
  for (std::size_t i = 0; i < group.size(); ++i) {
    for (std::size_t j = 0; j < group.size(); ++j) {
      const std::size_t link = i == j ? kSelf : hosts[i] == hosts[j] ? kHost : kNetwork;
      const double sent = bytes[i * group.size() + j];
      exchange.ranks[at(group[i])].sent[link] += sent;
      exchange.ranks[at(group[j])].received[link] += sent;
      exchange.ranks[at(group[i])].messages[link] += i == j ? 0.0 : 1.0;
    }
  }
  return exchange;
}

Exchange all_to_all_even(const Cluster& cluster,
                         const Group& group,
                         std::span<const double> bytes) {
  return even(cluster, group, bytes, Own::kCopied);
}

Exchange all_to_all_outer(const Cluster& cluster,
                          const Group& group,
                          std::span<const double> from,
                          std::span<const double> to,
                          EmptyLanes empty) {
  return outer(cluster, group, from, to, Own::kCopied, empty);
}

Exchange all_gather(const Cluster& cluster,
                    const Group& group,
                    std::span<const double> bytes,
                    EmptyLanes empty) {
  return even(cluster, group, bytes, Own::kCopied, empty);
}

Exchange reduce_scatter(const Cluster& cluster, const Group& group, std::int64_t count) {
  std::vector<double> slices;
  for (std::size_t i = 0; i < group.size(); ++i) {
    slices.push_back(kFloatBytes * slice(count, group, i));
  }
  return outer(cluster, group, std::vector<double>(group.size(), 1.0), slices, Own::kKept);
}

Exchange barrier(const Cluster& cluster, const Group& group) {
  return even(cluster, group, std::vector<double>(group.size(), 0.0), Own::kKept);
}

std::vector<Exchange> merge(const Cluster& cluster, const Group& group, double bytes) {
  constexpr std::size_t kFan = 8;  // of weft/comm/rank_tree.h
  if (group.size() <= kFan) {
    return {all_gather(cluster, group, std::vector<double>(group.size(), bytes))};
  }
  const std::vector<std::int64_t> hosts = hosts_of(cluster, group);
  std::vector<Exchange> up;
  std::vector<Exchange> down;
  for (std::size_t span = 1; span < group.size(); span *= kFan) {
    up.push_back(no_exchange(cluster));
    down.push_back(no_exchange(cluster));
    for (std::size_t i = span; i < group.size(); i += span) {
      const std::size_t leader = i - i % (span * kFan);
      if (leader == i) {
        continue;
      }
      const std::size_t link = hosts[i] == hosts[leader] ? kHost : kNetwork;
      const auto send = [&](Exchange& exchange, std::size_t from, std::size_t to) {
        exchange.ranks[at(group[from])].sent[link] += bytes;
        exchange.ranks[at(group[from])].messages[link] += 1.0;
        exchange.ranks[at(group[to])].received[link] += bytes;
      };
      send(up.back(), i, leader);
      send(down.back(), leader, i);
    }
  }
  up.insert(up.end(), down.rbegin(), down.rend());
  return up;
}

namespace {

/// Of the rank with most: it encodes `partials` slices for each other rank, decodes those of its
/// own slice from all others, and does the sums the other way round. `wire_bytes`: of slices.
double coded_bytes_of(const ReduceWire& wire,
                      std::span<const double> floats,
                      std::span<const double> wire_bytes,
                      std::span<const double> partials) {
  double all_floats = 0.0;
  double all_bytes = 0.0;
  double terms = 0.0;
  for (std::size_t i = 0; i < floats.size(); ++i) {
    all_floats += floats[i];
    all_bytes += wire_bytes[i];
    terms += partials[i];
  }
  double most = 0.0;
  for (std::size_t i = 0; i < floats.size() && floats.size() > 1; ++i) {
    const double other_floats = all_floats - floats[i];
    const double other_bytes = all_bytes - wire_bytes[i];
    most =
        std::max(most, partials[i] * wire.encoding_bytes(other_floats, other_bytes) +
                           (terms - partials[i]) * wire.decoding_bytes(floats[i], wire_bytes[i]) +
                           wire.total_bytes(floats[i], wire_bytes[i]) +
                           wire.decoding_bytes(other_floats, other_bytes));
  }
  return most;
}

}  // namespace

OrderedAllReduce ordered_all_reduce(const Cluster& cluster,
                                    const Group& group,
                                    std::int64_t parts,
                                    std::int64_t count,
                                    const ReduceWire& wire) {
  const auto size = static_cast<std::int64_t>(group.size());
  WEFT_CHECK(size <= parts, "{} ranks share {} parts; a rank needs at least one", size, parts);
  std::vector<double> partials;
  std::vector<double> slices;
  std::vector<double> slice_floats;
  double terms = 0.0;
  double largest = 0.0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const Range own = rank_parts(parts, size, static_cast<std::int64_t>(i));
    partials.push_back(static_cast<double>(maximal_subtrees(parts, own).size()));
    const std::int64_t floats = piece(count, size, static_cast<std::int64_t>(i)).size();
    slices.push_back(static_cast<double>(wire.bytes(floats)));
    slice_floats.push_back(static_cast<double>(floats));
    terms += partials.back();
    largest = std::max(largest, kFloatBytes * static_cast<double>(floats));
  }
  OrderedAllReduce reduce;
  reduce.partials = outer(cluster, group, partials, slices, Own::kKept);
  Exchange flags = even(cluster, group, partials, Own::kKept);
  for (RankTraffic& rank : flags.ranks) {
    rank.messages = {};  // they travel with the partial sums
  }
  add(reduce.partials, flags);
  reduce.sums = even(cluster, group, slices, Own::kKept);
  reduce.added_bytes = 3.0 * std::max(0.0, terms - 1.0) * largest;  // two read, one written
  reduce.coded_bytes = coded_bytes_of(wire, slice_floats, slices, partials);
  return reduce;
}

Exchange reversed(const Exchange& exchange) {
  Exchange back = exchange;
  for (RankTraffic& rank : back.ranks) {
    std::swap(rank.sent, rank.received);
  }
  return back;
}

void add(Exchange& exchange, const Exchange& other) {
  WEFT_CHECK(exchange.ranks.size() == other.ranks.size(), "exchanges of {} and {} ranks",
             exchange.ranks.size(), other.ranks.size());
  for (std::size_t r = 0; r < other.ranks.size(); ++r) {
    for (std::size_t link = 0; link < topology::kNumLinkClasses; ++link) {
      exchange.ranks[r].sent[link] += other.ranks[r].sent[link];
      exchange.ranks[r].received[link] += other.ranks[r].received[link];
      exchange.ranks[r].messages[link] += other.ranks[r].messages[link];
    }
  }
}

ExchangeTime exchange_time(const Cluster& cluster, const Exchange& exchange) {
  WEFT_CHECK(static_cast<std::int64_t>(exchange.ranks.size()) == topology::ranks(cluster),
             "an exchange of {} ranks on a cluster of {}", exchange.ranks.size(),
             topology::ranks(cluster));
  ExchangeTime slowest;
  const auto note = [&](double seconds, std::size_t link, std::size_t rank, bool host) {
    if (seconds > slowest.seconds) {
      slowest = {seconds, static_cast<LinkClass>(link), static_cast<std::int64_t>(rank), host};
    }
  };
  for (std::size_t link = 0; link < topology::kNumLinkClasses; ++link) {
    const topology::Link& carrier = topology::link(cluster, static_cast<LinkClass>(link));
    const double rank_rate = carrier.rank.achieved();
    const double host_rate = carrier.host.achieved();
    std::size_t r = 0;
    for (const topology::HostGroup& group : cluster.hosts) {
      for (std::int64_t host = 0; host < group.count; ++host) {
        const std::size_t first = r;
        double sent = 0.0;
        double received = 0.0;
        for (; r < first + at(group.ranks); ++r) {
          const RankTraffic& rank = exchange.ranks[r];
          const double bytes = std::max(rank.sent[link], rank.received[link]);
          sent += rank.sent[link];
          received += rank.received[link];
          if (bytes > 0.0 || rank.messages[link] > 0.0) {
            note(rank.messages[link] * carrier.latency.value + bytes / rank_rate, link, r, false);
          }
        }
        if (host_rate > 0.0) {
          note(std::max(sent, received) / host_rate, link, first, true);
        }
      }
    }
  }
  slowest.seconds += cluster.compute.collective.value;
  return slowest;
}

double start_s(const Cluster& cluster, const Exchange& exchange) {
  double slowest = 0.0;
  for (const RankTraffic& rank : exchange.ranks) {
    for (std::size_t link = 0; link < topology::kNumLinkClasses; ++link) {
      const topology::Link& carrier = topology::link(cluster, static_cast<LinkClass>(link));
      slowest = std::max(slowest, rank.messages[link] * carrier.latency.value);
    }
  }
  return cluster.compute.collective.value + slowest;
}

double all_reduce_s(const Cluster& cluster, const OrderedAllReduce& reduce) {
  return exchange_s(cluster, reduce.partials) + exchange_s(cluster, reduce.sums) +
         topology::copy_s(cluster, reduce.added_bytes + reduce.coded_bytes);
}

}  // namespace weft::cost
