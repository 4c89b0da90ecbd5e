/// The lanes of a call in which a rank has something to do with few others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "weft/comm/collective.h"

namespace weft::comm {

/// Lanes to and from the ranks of a group, of which it knows those that are not silent. What is
/// reused from call to call costs what is in use, not what the group has of ranks: along a tree
/// that is a handful of some thousands.
class PeerLanes {
 public:
  explicit PeerLanes(std::size_t ranks) : send_(ranks, kSilent), recv_(ranks, kSilent) {}

  /// Makes all lanes silent. O(peers).
  void clear() {
    for (const int p : peers_) {
      send_[static_cast<std::size_t>(p)] = recv_[static_cast<std::size_t>(p)] = kSilent;
    }
    peers_.clear();
  }

  /// Gives the lane to a rank, and that from it, of which neither has one yet. Cheap where ranks
  /// ascend.
  void send_to(int rank, const Lane& lane) { add(rank, lane, send_); }

  void receive_from(int rank, const Lane& lane) { add(rank, lane, recv_); }

  [[nodiscard]] std::span<const Lane> send() const { return send_; }

  [[nodiscard]] std::span<const Lane> recv() const { return recv_; }

  /// The ranks with a lane that is not silent, ascending. Until the next change.
  [[nodiscard]] std::span<const int> peers() const { return peers_; }

 private:
  static constexpr Lane kSilent = {.pieces = {}, .silent = true};

  void add(int rank, const Lane& lane, std::vector<Lane>& lanes) {
    if (lane.silent) {
      return;
    }
    lanes[static_cast<std::size_t>(rank)] = lane;
    if (peers_.empty() || peers_.back() < rank) {
      peers_.push_back(rank);
    } else if (peers_.back() > rank) {
      const auto place = std::lower_bound(peers_.begin(), peers_.end(), rank);
      if (*place != rank) {
        peers_.insert(place, rank);
      }
    }
  }

  std::vector<Lane> send_, recv_;  // [W]
  std::vector<int> peers_;
};

}  // namespace weft::comm
