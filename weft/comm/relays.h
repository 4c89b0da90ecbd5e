/// Private to comm/: the hierarchical exchange, for ranks on several hosts.
///
/// Notation: H hosts, g_h ranks on host h; relay(A, B) is the rank of host A through which all that
/// goes from A to B passes, and all that comes back (weft/base/host_layout.h). An exchange becomes
///
///   sizes    in the host   to each relay the sizes of this rank's lanes to and from its hosts
///   gather   in the host   lanes to ranks of this host directly; to each relay the lanes it relays
///   cross    all ranks     relay(A, B) to relay(B, A): one message, a check word and the lanes of
///                          all pairs of ranks in the order (sender, receiver)
///   scatter  in the host   from each relay what has come for this rank
///
/// Blocks of one size (exchange_blocks()) need no sizes, and are not packed.
///
/// Lanes are forwarded as bytes, so that what arrives is what the flat exchange brings. Where a
/// rank sends the same to all (Payload::kSame) it crosses once per pair of hosts. Lanes to one host
/// that lie behind each other leave from their own memory; others are packed. A lane whose pieces
/// lie behind each other comes to its own memory; others are unpacked. Memory: the lanes that are
/// relayed, out and in, and those that are packed, in blocks that are kept for the next call and
/// count (weft/tensor/memory_use.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/host_layout.h"
#include "weft/comm/collective.h"
#include "weft/comm/copies.h"
#include "weft/comm/group.h"
#include "weft/comm/peer_lanes.h"
#include "weft/comm/piece_list.h"
#include "weft/layout/relays.h"
#include "weft/tensor/device.h"
#include "weft/tensor/host_block.h"

namespace weft::comm {

class Communicator;

/// Lanes that are put together piece by piece.
class LaneList {
 public:
  void clear();

  /// Begins the next lane, which is silent until it gets a piece or is opened.
  void next() { begun_.push_back({.pieces = pieces_.size()}); }

  /// Makes the lane in hand one that is not silent, though it may get no piece.
  void open() { begun_.back().silent = false; }

  void add(const Piece& piece) {
    open();
    pieces_.add(piece);
    begun_.back().bytes += piece.bytes;
  }

  /// Appends a piece unless it has no byte. REQUIRES: the other end of the lane does so too.
  void add_unless_empty(const Piece& piece) {
    if (piece.bytes > 0) {
      add(piece);
    }
  }

  /// Valid until the next clear().
  std::span<const Lane> lanes();

 private:
  /// Begun describes a lane that has been begun.
  struct Begun {
    std::size_t pieces = 0;  // those before it
    std::int64_t bytes = 0;
    bool silent = true;
  };

  PieceList pieces_;
  std::vector<Begun> begun_;
  std::vector<Lane> lanes_;
};

/// Blocks of one size, side by side in the order of ranks: [W] to each and [W] from each.
struct Blocks {
  std::byte* send = nullptr;  ///< is only read
  std::byte* recv = nullptr;
  std::int64_t bytes = 0;  ///< of a block
};

class Relays {
 public:
  /// `host` are the ranks of this rank's host among those of `all`, ascending, as the layout has
  /// them. Both are used by the exchanges of this alone, and outlive it.
  Relays(Communicator& all, Communicator& host, HostLayout layout);

  /// Collective. As Group::exchange of a group that does not lend.
  void exchange(const Context& ctx, const Exchange& call);

  /// Collective. Sends each rank its block. All know the sizes, so these are not told; a host's
  /// blocks are one piece, so that a rank costs little more than the copies of its block.
  void exchange_blocks(const Context& ctx, const Stamp& stamp, const Blocks& blocks);

 private:
  /// One message between two hosts: a check word, then lanes by sender, [senders][payloads].
  class Message {
   public:
    /// Begins anew, with room for so many lanes, all of which add() gives.
    void begin(std::size_t lanes);

    /// Adds the next lane; a silent one has kSilent bytes.
    void add(std::int64_t size) {
      sizes_[next_] = size;
      begins_[next_++] = lane_bytes_;
      lane_bytes_ += size > 0 ? size : 0;
      silent_ += size < 0 ? 1 : 0;
    }

    [[nodiscard]] std::int64_t lanes() const { return std::ssize(sizes_); }

    [[nodiscard]] std::int64_t lane_bytes() const { return lane_bytes_; }

    [[nodiscard]] std::int64_t bytes() const { return layout::message_bytes(lane_bytes_); }

    [[nodiscard]] bool is_silent() const { return silent_ == lanes(); }

    /// A word that tells messages of other sizes apart.
    [[nodiscard]] std::uint64_t check_word() const;

    void lie_at(std::byte* place) { place_ = place; }

    [[nodiscard]] std::byte* place() const { return place_; }

    /// These require a place: a lane, and `count` of them.
    [[nodiscard]] Piece lane(std::int64_t i) const;
    [[nodiscard]] Piece run(std::int64_t first, std::int64_t count) const;

   private:
    std::vector<std::int64_t> sizes_;
    std::vector<std::int64_t> begins_;  // in bytes behind the check word
    std::size_t next_ = 0;              // lane
    std::int64_t lane_bytes_ = 0;
    std::int64_t silent_ = 0;  // lanes
    std::byte* place_ = nullptr;
  };

  /// The messages that this rank relays to and from one other host.
  struct Crossing {
    int host = 0;
    int relay = 0;  ///< its rank there
    Message out;
    Message in;
  };

  void list_crossings();
  void share_sizes(const Context& ctx, const Exchange& call);
  void collect_sizes(Payload payload);
  void pack(const Context& ctx, const Exchange& call);
  std::int64_t point_out(const Exchange& call, std::byte* packed);
  void point_in(const Exchange& call);
  void reserve_crossings();
  void gather(const Context& ctx, const Exchange& call);
  void cross(const Context& ctx, const Stamp& stamp);
  void scatter(const Context& ctx, const Exchange& call);
  void unpack(const Context& ctx);
  void set_sizes(std::int64_t bytes);
  void gather_blocks(const Context& ctx, const Stamp& stamp, const Blocks& blocks);
  void scatter_blocks(const Context& ctx, const Stamp& stamp, const Blocks& blocks);
  [[nodiscard]] Piece blocks_of(int host, std::byte* blocks, std::int64_t bytes) const;
  [[nodiscard]] Stamp stage_stamp(const Stamp& stamp);

  /// Ranks of `host` that get a lane of their own from one sender elsewhere.
  [[nodiscard]] std::size_t payloads(int host, Payload payload) const {
    return payload == Payload::kSame ? 1 : layout_.ranks_of(host).size();
  }

  Communicator& all_;
  Communicator& host_;
  HostLayout layout_;
  int self_host_;
  std::vector<std::vector<int>> relayed_;  ///< [ranks here] hosts to which each relays, ascending
  /// Sizes of this rank's lanes, -1: silent. By relay, host of relayed_, then those sent to the
  /// ranks there and those received from them: what a relay needs is one run.
  std::vector<std::int64_t> sizes_;
  std::vector<std::size_t> sizes_begin_;   ///< [ranks here + 1] of each relay's in these
  std::vector<std::int64_t> local_sizes_;  ///< [ranks here] as they have come, by crossing
  std::vector<Crossing> crossings_;        ///< of the hosts to which this rank relays
  std::vector<Piece> out_;                 ///< [H] the lanes to the ranks of a host, as one run
  std::vector<Piece> in_;                  ///< [W] where the lanes from other hosts' ranks come to
  std::vector<Lane> arrived_;              ///< [W]
  std::vector<Piece> messages_;            ///< that cross, two of each crossing
  PeerLanes crossing_lanes_;               ///< to and from the relays of crossings_
  LaneList send_, recv_;
  std::vector<LaneRun> packed_;
  std::vector<Copy> copies_;
  HostBlock packed_out_, packed_in_, crossing_bytes_;
};

}  // namespace weft::comm
