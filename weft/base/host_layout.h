/// Which ranks share a host, and which of them speak for it to other hosts.
///
/// Notation: H hosts, g_h ranks on host h. Plain values; the same on all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"

namespace weft {

/// How slices of a sum cross between hosts that each add up what their ranks have
/// (weft/comm/slice_crossing.h).
enum class Crossing : std::uint8_t {
  kDirect,   ///< between the owner of a slice and its deputy on each other host
  kRelayed,  ///< one message for each pair of hosts, between their relays
};

/// Hosts and their ranks, both numbered from 0. Immutable. REQUIRES: hosts and ranks given to it
/// lie in [0, hosts()) and [0, ranks()); not checked.
class HostLayout {
 public:
  /// hosts[r]: any number of rank r's host, equal where ranks share one. Hosts are numbered from 0
  /// by their first ranks.
  explicit HostLayout(std::span<const int> hosts);

  [[nodiscard]] int hosts() const { return static_cast<int>(ranks_.size()); }

  [[nodiscard]] int ranks() const { return static_cast<int>(host_.size()); }

  [[nodiscard]] int host(int rank) const { return host_[static_cast<std::size_t>(rank)]; }

  /// Returns the ranks of a host, ascending.
  [[nodiscard]] const std::vector<int>& ranks_of(int host) const {
    return ranks_[static_cast<std::size_t>(host)];
  }

  /// The place of `rank` among the ranks of its host.
  [[nodiscard]] int place(int rank) const { return place_[static_cast<std::size_t>(rank)]; }

  /// Whether stages inside hosts have nothing to gather: one host, or one rank on each.
  [[nodiscard]] bool is_flat() const { return hosts() <= 1 || hosts() == ranks(); }

  /// The rank of `host` through which everything to and from host `other` goes: hosts behind
  /// `host`, in cyclic order, are dealt to its ranks one after the other.
  [[nodiscard]] int relay(int host, int other) const {
    const std::vector<int>& local = ranks_of(host);
    const int distance = (other - host - 1 + hosts()) % hosts();
    return local[static_cast<std::size_t>(distance) % local.size()];
  }

  /// The rank of `host` that stands there for `rank`: itself on its own host. Elsewhere, where
  /// slices cross directly, the ranks of other hosts, host by host, are dealt to those of `host`:
  /// all that have the same position, modulo the ranks of `host`, to one. Where relays carry them,
  /// it is the relay to the rank's host.
  [[nodiscard]] int deputy(int host, int rank, Crossing crossing = Crossing::kDirect) const {
    const std::vector<int>& local = ranks_of(host);
    if (this->host(rank) == host) {
      return rank;
    }
    return crossing == Crossing::kRelayed
               ? relay(host, this->host(rank))
               : local[static_cast<std::size_t>(position(rank)) % local.size()];
  }

  /// The most messages that a rank sends to other hosts where slices cross directly: those of the
  /// rank with most deputies' slices, on the smallest host. H - 1 where hosts are equally large.
  [[nodiscard]] int most_direct_messages() const;

  /// The place of `rank` among all ranks, host by host.
  [[nodiscard]] int position(int rank) const {
    return first_[static_cast<std::size_t>(host(rank))] + place(rank);
  }

 private:
  std::vector<int> host_;                ///< [ranks]
  std::vector<int> place_;               ///< [ranks]
  std::vector<std::vector<int>> ranks_;  ///< [hosts]
  std::vector<int> first_;               ///< [hosts] position of the first rank
};

/// The maximal whole subtrees of the tree over `parts` that lie in the parts of a host's ranks, in
/// order: what the host sends for others to add.
std::vector<Range> host_subtrees(const HostLayout& layout, std::int64_t parts, int host);

}  // namespace weft
