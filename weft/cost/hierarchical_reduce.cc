// The sum of dense gradients on several hosts: what its stages send, directly and by relays.

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/host_layout.h"
#include "weft/base/parts.h"
#include "weft/cost/hierarchical.h"
#include "weft/cost/memory.h"
#include "weft/topology/rates.h"

namespace weft::cost {
namespace {

using topology::Cluster;
using topology::Group;

/// Floats (or bytes) of the slices for which each rank of a host acts, and how many of these slices
/// are owned on other hosts.
struct Shares {
  std::vector<double> floats;
  std::vector<double> deputised;
};

/// Shares of the ranks of hosts. Directly deputies on hosts of g ranks act for the owners of one
/// position modulo g; what these have together is added up once for every g. By relays they act for
/// whole hosts.
class SharesOfHosts {
 public:
  SharesOfHosts(const HostLayout& layout, std::vector<double> slices, Crossing crossing)
      : layout_(layout),
        slices_(std::move(slices)),
        crossing_(crossing),
        of_host_(at(layout.hosts())) {
    for (int owner = 0; owner < layout.ranks(); ++owner) {
      of_host_[at(layout.host(owner))] += slices_[at(owner)];
    }
  }

  [[nodiscard]] double slices_of(int host) const { return of_host_[at(host)]; }

  Shares of(int host) {
    const std::vector<int>& here = layout_.ranks_of(host);
    Shares shares = crossing_ == Crossing::kRelayed ? by_relays(host) : directly(here);
    for (std::size_t place = 0; place < here.size(); ++place) {
      shares.floats[place] += slices_[at(here[place])];
    }
    return shares;
  }

 private:
  [[nodiscard]] Shares by_relays(int host) const {
    const std::size_t ranks = layout_.ranks_of(host).size();
    Shares shares{std::vector<double>(ranks), std::vector<double>(ranks)};
    for (int other = 0; other < layout_.hosts(); ++other) {
      if (other != host) {
        const std::size_t relay = at(layout_.place(layout_.relay(host, other)));
        shares.floats[relay] += of_host_[at(other)];
        shares.deputised[relay] += static_cast<double>(layout_.ranks_of(other).size());
      }
    }
    return shares;
  }

  [[nodiscard]] Shares directly(const std::vector<int>& here) {
    Shares shares = all_owners(here.size());
    for (const int owner : here) {  // act for themselves
      const std::size_t deputy = at(layout_.position(owner)) % here.size();
      shares.floats[deputy] -= slices_[at(owner)];
      shares.deputised[deputy] -= 1.0;
    }
    return shares;
  }

  const Shares& all_owners(std::size_t ranks) {
    Shares& shares = by_ranks_[ranks];
    if (shares.floats.empty()) {
      shares.floats.resize(ranks);
      shares.deputised.resize(ranks);
      for (int owner = 0; owner < layout_.ranks(); ++owner) {
        shares.floats[at(layout_.position(owner)) % ranks] += slices_[at(owner)];
        shares.deputised[at(layout_.position(owner)) % ranks] += 1.0;
      }
    }
    return shares;
  }

  const HostLayout& layout_;
  std::vector<double> slices_;
  Crossing crossing_;
  std::vector<double> of_host_;
  std::map<std::size_t, Shares> by_ranks_;
};

/// The traffic that a sum takes of one rank; bytes are those of slices as they travel.
struct Summing {
  std::size_t rank = 0;        ///< of the cluster
  double near = 0.0;           ///< other ranks of its host
  double far = 0.0;            ///< other hosts
  double sums = 0.0;           ///< the host's partial sums
  double other_sums = 0.0;     ///< those of other hosts
  double own_bytes = 0.0;      ///< its slice
  double host_bytes = 0.0;     ///< the slices of its host's ranks
  double all_bytes = 0.0;      ///< all slices
  double deputised = 0.0;      ///< others' slices for which it acts
  double slices = 0.0;         ///< how many these are
  double relayed_hosts = 0.0;  ///< hosts to which it is the relay
  double relayed_sums = 0.0;   ///< their partial sums
};

/// Floats of slices.
struct SliceFloats {
  double own = 0.0;
  double deputised = 0.0;
  double all = 0.0;
};

/// Read and written by encoding and decoding.
double coded_bytes(const ReduceWire& wire, const Summing& own, const SliceFloats& floats) {
  return own.sums * wire.encoding_bytes(floats.deputised, own.deputised) +
         own.other_sums * wire.decoding_bytes(floats.own, own.own_bytes) +
         wire.total_bytes(floats.own, own.own_bytes) +
         wire.decoding_bytes(floats.all - floats.own, own.all_bytes - own.own_bytes);
}

void add_direct(const Summing& own, std::span<Exchange> stages) {
  RankTraffic& combine = stages[1].ranks[own.rank];
  combine.sent[2] = own.sums * (own.deputised + own.slices);
  combine.received[2] = own.other_sums * (own.own_bytes + 1.0);
  combine.messages[2] = own.slices;
  RankTraffic& back = stages[2].ranks[own.rank];
  back.sent[2] = own.far * own.own_bytes;
  back.received[2] = own.deputised;
  back.messages[2] = own.far;
  RankTraffic& spread = stages[3].ranks[own.rank];
  spread.sent[1] = own.near * (own.own_bytes + own.deputised);
  spread.received[1] = own.all_bytes - own.own_bytes - own.deputised;
  spread.messages[1] = own.near;
}

void add_relayed(const Summing& own, std::span<Exchange> stages) {
  const double relays = own.relayed_hosts > 0.0 ? own.near : 0.0;
  RankTraffic& combine = stages[1].ranks[own.rank];
  combine.sent[2] = own.sums * (own.deputised + own.relayed_hosts);
  combine.received[2] = own.relayed_sums * (own.host_bytes + 1.0);
  combine.messages[2] = own.relayed_hosts;
  RankTraffic& passed = stages[2].ranks[own.rank];
  passed.sent[1] = own.relayed_sums * (own.host_bytes - own.own_bytes + own.near);
  passed.received[1] = (own.other_sums - own.relayed_sums) * (own.own_bytes + 1.0);
  passed.messages[1] = relays;
  RankTraffic& shared = stages[3].ranks[own.rank];
  shared.sent[1] = own.near * own.own_bytes;
  shared.received[1] = own.host_bytes - own.own_bytes;
  shared.messages[1] = own.near;
  RankTraffic& back = stages[4].ranks[own.rank];
  back.sent[2] = own.relayed_hosts * own.host_bytes;
  back.received[2] = own.deputised;
  back.messages[2] = own.relayed_hosts;
  RankTraffic& spread = stages[5].ranks[own.rank];
  spread.sent[1] = own.near * own.deputised;
  spread.received[1] = own.all_bytes - own.host_bytes - own.deputised;
  spread.messages[1] = relays;
}

/// Hosts to which a rank of a host is the relay, and what they have of partial sums.
void add_relayed_hosts(const HostLayout& layout,
                       const std::vector<std::size_t>& host_sums,
                       int rank,
                       Summing& own) {
  const int host = layout.host(rank);
  const auto ranks = static_cast<int>(layout.ranks_of(host).size());
  for (int distance = layout.place(rank); distance < layout.hosts() - 1; distance += ranks) {
    const int other = (host + 1 + distance) % layout.hosts();
    own.relayed_hosts += 1.0;
    own.relayed_sums += static_cast<double>(host_sums[at(other)]);
  }
}

double added_floats(std::size_t terms, std::size_t sums, double floats) {
  return terms > sums ? static_cast<double>(terms - sums) * floats : 0.0;
}

}  // namespace

StagedAllReduce hierarchical_all_reduce(const Cluster& cluster,
                                        const Group& group,
                                        std::int64_t parts,
                                        std::int64_t count,
                                        const ReduceWire& wire) {
  const auto size = static_cast<std::int64_t>(group.size());
  WEFT_CHECK(size <= parts, "{} ranks share {} parts; a rank needs at least one", size, parts);
  const HostLayout layout = host_layout(cluster, group);
  std::vector<double> own_slices;
  std::vector<double> own_bytes;  // of slices on their way
  std::vector<double> partials;   // of ranks
  double all_bytes = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    own_slices.push_back(static_cast<double>(piece(count, size, i).size()));
    own_bytes.push_back(static_cast<double>(wire.bytes(piece(count, size, i).size())));
    all_bytes += own_bytes.back();
    partials.push_back(
        static_cast<double>(maximal_subtrees(parts, rank_parts(parts, size, i)).size()));
  }
  std::vector<std::size_t> host_sums;
  std::size_t all_sums = 0;
  for (int h = 0; h < layout.hosts(); ++h) {
    host_sums.push_back(host_subtrees(layout, parts, h).size());
    all_sums += host_sums.back();
  }
  SharesOfHosts shares_of_hosts(layout, own_slices, wire.crossing);
  SharesOfHosts bytes_of_hosts(layout, own_bytes, wire.crossing);
  const bool relayed = wire.crossing == Crossing::kRelayed;
  StagedAllReduce reduce{.stages = std::vector<Exchange>(relayed ? 6 : 4, no_exchange(cluster))};
  const double n = static_cast<double>(count);
  for (int h = 0; h < layout.hosts(); ++h) {
    const std::vector<int>& here = layout.ranks_of(h);
    const auto [shares, slices] = shares_of_hosts.of(h);
    const std::vector<double> share_bytes = bytes_of_hosts.of(h).floats;
    double terms = 0.0;
    for (const int i : here) {
      terms += partials[at(i)];
    }
    for (std::size_t place = 0; place < here.size(); ++place) {
      const int i = here[place];
      Summing own{.rank = at(group[at(i)]),
                  .near = static_cast<double>(here.size() - 1),
                  .far = static_cast<double>(layout.hosts() - 1),
                  .sums = static_cast<double>(host_sums[at(h)]),
                  .other_sums = static_cast<double>(all_sums - host_sums[at(h)]),
                  .own_bytes = own_bytes[at(i)],
                  .host_bytes = bytes_of_hosts.slices_of(h),
                  .all_bytes = all_bytes,
                  .deputised = share_bytes[place] - own_bytes[at(i)],
                  .slices = slices[place]};
      RankTraffic& collect = reduce.stages[0].ranks[own.rank];
      collect.sent[1] = partials[at(i)] * (kFloatBytes * (n - shares[place]) + own.near);
      collect.received[1] = (terms - partials[at(i)]) * (kFloatBytes * shares[place] + 1.0);
      collect.messages[1] = own.near;
      if (relayed) {
        add_relayed_hosts(layout, host_sums, i, own);
        add_relayed(own, reduce.stages);
      } else {
        add_direct(own, reduce.stages);
      }
      const double added =
          added_floats(static_cast<std::size_t>(terms), host_sums[at(h)], shares[place]) +
          added_floats(all_sums, 1, own_slices[at(i)]);
      reduce.added_bytes = std::max(reduce.added_bytes, 3.0 * kFloatBytes * added);
      reduce.coded_bytes =
          std::max(reduce.coded_bytes, coded_bytes(wire, own,
                                                   {.own = own_slices[at(i)],
                                                    .deputised = shares[place] - own_slices[at(i)],
                                                    .all = n}));
    }
  }
  return reduce;
}

double all_reduce_s(const Cluster& cluster, const StagedAllReduce& reduce) {
  return exchange_s(cluster, reduce.stages) +
         topology::copy_s(cluster, reduce.added_bytes + reduce.coded_bytes);
}

}  // namespace weft::cost
