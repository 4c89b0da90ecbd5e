/// The lanes of a call in which a rank has something to do with few others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "weft/comm/collective.h"

namespace weft::comm {

/// Lanes to and from the ranks of a group, with a list of those that are not silent. Setting and
/// clearing cost the lanes in use, not W: along a tree a rank has a handful, of some thousands.
class PeerLanes {
 public:
  /// `ranks` is W; all lanes are silent. Not thread-safe. Allocates where more ranks are listed
  /// than ever before.
  explicit PeerLanes(std::size_t ranks) : send_(ranks, kSilent), recv_(ranks, kSilent) {}

  /// Makes all lanes silent. O(peers).
  void clear() {
    for (const int p : peers_) {
      send_[static_cast<std::size_t>(p)] = recv_[static_cast<std::size_t>(p)] = kSilent;
    }
    peers_.clear();
  }

  /// Sets the lane to `rank`, which has had none since clear(). A silent one changes nothing. O(1)
  /// where ranks ascend.
  void send_to(int rank, const Lane& lane) { add(rank, lane, send_); }

  /// Sets the lane from `rank` likewise.
  void receive_from(int rank, const Lane& lane) { add(rank, lane, recv_); }

  /// Return the lanes [W] to and from each rank.
  [[nodiscard]] std::span<const Lane> send() const { return send_; }

  [[nodiscard]] std::span<const Lane> recv() const { return recv_; }

  /// Returns the ranks with a lane that is not silent, ascending. The list holds until the next
  /// change.
  [[nodiscard]] std::span<const int> peers() const { return peers_; }

 private:
  static constexpr Lane kSilent = {.pieces = {}, .silent = true};

  void add(int rank, const Lane& lane, std::vector<Lane>& lanes) {
    if (lane.silent) {
      return;
    }
    if (peers_.empty() || peers_.back() < rank) {
      peers_.push_back(rank);
    } else if (peers_.back() > rank) {
      const auto place = std::lower_bound(peers_.begin(), peers_.end(), rank);
      if (*place != rank) {
        peers_.insert(place, rank);
      }
    }
    lanes[static_cast<std::size_t>(rank)] = lane;
  }

  std::vector<Lane> send_, recv_;  // [W]
  std::vector<int> peers_;
};

}  // namespace weft::comm
