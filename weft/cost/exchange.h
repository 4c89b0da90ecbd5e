/// Bytes and seconds of collectives on a cluster.
///
/// Notation: G ranks of a group, n numbers, k_r the maximal whole subtrees of rank r's run of parts
/// (weft/base/parts.h), S_r the bytes that r contributes. What r sends to itself is in class
/// `self`.
///
///   collective           exchanges  messages per rank   bytes that rank r sends to others
///   all_to_all           1          G - 1               the sum of its row
///   all_gather           1          G - 1               (G - 1) S_r
///   reduce_scatter       1          G - 1               4 (n - slice_r)
///   ordered_all_reduce   2          2 (G - 1)           k_r (4 (n - slice_r) + G - 1)
///                                                       + 4 (G - 1) slice_r; encoded, the
///                                                       bytes of every slice's code for 4 of
///                                                       each of its numbers
///   barrier, counts      1          G - 1               0; those of the counts
///
/// These are Weft's own (docs/collectives.md): direct exchanges, sums in one order. Bytes are
/// doubles, so that expected ones have a place; of whole numbers they are exact, and equal to what
/// a Communicator counts.
///
/// Time of an exchange: a collective's start plus the slowest of
///   every rank r and class c   messages_rc · latency_c + max(sent_rc, received_rc) / rank rate_c
///   every host h and class c   max(Σ sent_rc, Σ received_rc of its ranks) / host rate_c
/// Classes of links run beside each other, both directions of a link too, and messages one after
/// the other: the pairwise all-to-all-v of Thakur, Rabenseifner, Gropp (2005), in which the most
/// loaded rank decides, with the shares inside hosts and across them side by side as in the flat
/// form of the hierarchical all-to-all's analysis (Tutel, MLSys 2023).
///
/// All functions are pure. Cost: O(ranks), all_to_all O(G²). Requires a checked cluster and groups
/// of its ranks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/cost/codec.h"
#include "weft/topology/cluster.h"

namespace weft::cost {

/// One number per class of links, by topology::LinkClass.
using ByLink = std::array<double, topology::kNumLinkClasses>;

/// What one rank does in an exchange.
struct RankTraffic {
  ByLink sent{};      ///< bytes
  ByLink received{};  ///< bytes
  ByLink messages{};  ///< sent; none to itself

  /// Bytes to other ranks.
  [[nodiscard]] double sent_away() const { return sent[1] + sent[2]; }

  /// Bytes from other ranks.
  [[nodiscard]] double received_from_others() const { return received[1] + received[2]; }
};

/// What ranks send to each other at one time, of one group or of several (add()).
struct Exchange {
  std::vector<RankTraffic> ranks;  ///< [ranks of the cluster]
};

/// What becomes of lanes on which no byte is expected.
enum class EmptyLanes : std::uint8_t {
  kSent,    ///< an empty message
  kSilent,  ///< none, where both ends know that nothing is sent
};

/// The exchange in which nothing is sent.
Exchange no_exchange(const topology::Cluster& cluster);

/// bytes[i · G + j]: from the group's i-th rank to its j-th.
Exchange all_to_all(const topology::Cluster& cluster,
                    const topology::Group& group,
                    std::span<const double> bytes);

/// The group's i-th rank sends bytes[i] to each rank, itself included: vectors of tables that whole
/// ranks hold, for equal batches. O(G).
Exchange all_to_all_even(const topology::Cluster& cluster,
                         const topology::Group& group,
                         std::span<const double> bytes);

/// The group's i-th rank sends from[i] · to[j] bytes to its j-th. O(G).
Exchange all_to_all_outer(const topology::Cluster& cluster,
                          const topology::Group& group,
                          std::span<const double> from,
                          std::span<const double> to,
                          EmptyLanes empty = EmptyLanes::kSent);

/// The group's i-th rank contributes bytes[i].
Exchange all_gather(const topology::Cluster& cluster,
                    const topology::Group& group,
                    std::span<const double> bytes,
                    EmptyLanes empty = EmptyLanes::kSent);

/// Of `count` floats on every rank, each rank keeping the sum of its slice.
Exchange reduce_scatter(const topology::Cluster& cluster,
                        const topology::Group& group,
                        std::int64_t count);

/// Returns the exchange in which every rank of the group sends an empty message to each other rank.
Exchange barrier(const topology::Cluster& cluster, const topology::Group& group);

/// A merge of a block of `bytes` of every rank, result to all, as Communicator::merge() does it:
/// one exchange of up to 8 ranks, else one for each level of the tree over ranks, up and down.
std::vector<Exchange> merge(const topology::Cluster& cluster,
                            const topology::Group& group,
                            double bytes);

/// The sum of `count` floats over the group as weft/comm/ordered_reduce.h makes it.
struct OrderedAllReduce {
  Exchange partials;       ///< partial sums and their presence
  Exchange sums;           ///< of slices, gathered
  double added_bytes = 0;  ///< read and written by the additions of the rank with most
  double coded_bytes = 0;  ///< the same of encoding and decoding slices
};

/// Returns the traffic of the flat ordered all-reduce of `count` floats, whose batch has `parts`
/// parts and whose slices travel as `wire` says. REQUIRES: no more ranks in the group than parts.
OrderedAllReduce ordered_all_reduce(const topology::Cluster& cluster,
                                    const topology::Group& group,
                                    std::int64_t parts,
                                    std::int64_t count,
                                    const ReduceWire& wire = {});

/// Every byte the other way: the backward pass of an all_to_all.
Exchange reversed(const Exchange& exchange);

/// `exchange` += `other`: both happen at the same time and share links.
void add(Exchange& exchange, const Exchange& other);

/// How long an exchange takes and what decides it.
struct ExchangeTime {
  double seconds = 0.0;
  topology::LinkClass link = topology::LinkClass::kSelf;
  std::int64_t rank = 0;      ///< the slowest, or the first of the slowest host
  bool host_decides = false;  ///< the links of the host and not those of the rank
};

/// Returns the time of an exchange by the header's formula, the start of the collective included.
/// REQUIRES: `exchange` has an entry for every rank of the cluster.
ExchangeTime exchange_time(const topology::Cluster& cluster, const Exchange& exchange);

/// Returns the seconds of exchange_time(). REQUIRES: as there.
inline double exchange_s(const topology::Cluster& cluster, const Exchange& exchange) {
  return exchange_time(cluster, exchange).seconds;
}

/// Returns the seconds of the same exchange with empty messages: what each of several pays that
/// share its bytes. REQUIRES: as there.
double start_s(const topology::Cluster& cluster, const Exchange& exchange);

/// Both exchanges one after the other, and the additions in between at the rate of a copy.
double all_reduce_s(const topology::Cluster& cluster, const OrderedAllReduce& reduce);

}  // namespace weft::cost
