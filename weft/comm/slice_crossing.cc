#include "weft/comm/slice_crossing.h"

#include <utility>

#include "weft/base/at.h"
#include "weft/comm/peer_lanes.h"
#include "weft/comm/relays.h"

namespace weft::comm {
namespace {

constexpr int kNone = -1;

Piece flags_of(HostTerms& terms) {
  return {terms.present.data(), static_cast<std::int64_t>(terms.count)};
}

std::int64_t rows_of(const HostTerms& terms) {
  return static_cast<std::int64_t>(terms.count);
}

void add_pieces(LaneList& lanes, const Lane& lane) {
  for (const Piece& piece : lane.pieces) {
    lanes.add(piece);
  }
}

/// What both ways know of this rank, and what they do alike.
class HostSlices : public SliceCrossing {
 protected:
  explicit HostSlices(const Setting& setting)
      : set_(setting), self_(setting.all.rank()), host_(setting.layout.host(self_)) {}

  [[nodiscard]] const std::vector<int>& here() const { return set_.layout.ranks_of(host_); }

  [[nodiscard]] const std::vector<int>& own_shares() const {
    return set_.shares[at(set_.layout.place(self_))];
  }

  /// Another host's partial sums, at `begin`, of the slice of the rank at `place`: a piece each.
  void add_sums(LaneList& lanes,
                const HostTerms& theirs,
                std::size_t place,
                std::byte* begin) const {
    const std::int64_t bytes = set_.slice_bytes[place];
    for (std::int64_t row = 0; row < rows_of(theirs); ++row) {
      lanes.add({begin + row * bytes, bytes});
    }
  }

  /// Where flags come, and partial sums of the own slice.
  void add_own(LaneList& lanes, HostTerms& theirs) const {
    lanes.add(flags_of(theirs));
    add_sums(lanes, theirs, at(set_.layout.place(self_)), theirs.arrived);
  }

  /// Each rank sends the sums of its shares to the host's others, from its share number `first` on.
  void spread(Context& ctx, std::span<const Piece> sums, std::ptrdiff_t first) {
    send_.clear();
    recv_.clear();
    for (std::size_t place = 0; place < here().size(); ++place) {
      send_.next();
      recv_.next();
      if (here()[place] == self_) {
        continue;
      }
      for (auto owner = own_shares().begin() + first; owner != own_shares().end(); ++owner) {
        send_.add(sums[at(*owner)]);
      }
      for (auto owner = set_.shares[place].begin() + first; owner != set_.shares[place].end();
           ++owner) {
        recv_.add(sums[at(*owner)]);
      }
    }
    set_.inside.exchange(ctx, send_.lanes(), recv_.lanes());
  }

  Setting set_;
  int self_;
  int host_;
  LaneList send_, recv_;
};

class DirectCrossing final : public HostSlices {
 public:
  explicit DirectCrossing(const Setting& setting)
      : HostSlices(setting), share_of_(at(setting.layout.ranks()), kNone) {
    for (std::size_t j = 0; j < own_shares().size(); ++j) {
      share_of_[at(own_shares()[j])] = static_cast<int>(j);
    }
  }

  void combine(Context& ctx, std::span<const Lane> sums, std::span<HostTerms> hosts) override {
    send_.clear();
    recv_.clear();
    for (int p = 0; p < set_.layout.ranks(); ++p) {
      send_.next();
      recv_.next();
      const int there = set_.layout.host(p);
      if (there == host_) {
        continue;
      }
      if (share_of_[at(p)] != kNone) {
        send_.add(flags_of(hosts[at(host_)]));
        add_pieces(send_, sums[at(share_of_[at(p)])]);
      }
      if (set_.layout.deputy(there, self_) == p) {
        add_own(recv_, hosts[at(there)]);
      }
    }
    set_.all.exchange_directly(ctx, send_.lanes(), recv_.lanes());
  }

  void send_back(Context& ctx, std::span<const Piece> sums) override {
    send_.clear();
    recv_.clear();
    for (int p = 0; p < set_.layout.ranks(); ++p) {
      send_.next();
      recv_.next();
      const int there = set_.layout.host(p);
      if (there == host_) {
        continue;
      }
      if (set_.layout.deputy(there, self_) == p) {
        send_.add(sums[at(self_)]);
      }
      if (share_of_[at(p)] != kNone) {
        recv_.add(sums[at(p)]);
      }
    }
    set_.all.exchange_directly(ctx, send_.lanes(), recv_.lanes());
    spread(ctx, sums, 0);
  }

 private:
  std::vector<int> share_of_;  ///< [ranks] number among the own shares of its slice, or kNone
};

class RelayedCrossing final : public HostSlices {
 public:
  RelayedCrossing(const Setting& setting, Buffer passed)
      : HostSlices(setting),
        lanes_(at(setting.layout.ranks())),
        relayed_by_(here().size()),
        passed_(std::move(passed)) {
    std::vector<int> pair_of_host(at(set_.layout.hosts()), kNone);
    for (int h = 0; h < set_.layout.hosts(); ++h) {
      if (h == host_) {
        continue;
      }
      const int relay = set_.layout.relay(host_, h);
      relayed_by_[at(set_.layout.place(relay))].push_back(h);
      if (relay == self_) {
        pair_of_host[at(h)] = static_cast<int>(pairs_.size());
        pairs_.push_back({.host = h, .with = set_.layout.relay(h, host_)});
      }
    }
    for (std::size_t j = 1; j < own_shares().size(); ++j) {
      const int host = set_.layout.host(own_shares()[j]);
      pairs_[at(pair_of_host[at(host)])].shares.push_back(j);
    }
    for (std::size_t place = 0; place < here().size(); ++place) {
      passed_begin_.push_back(passed_bytes_);
      passed_bytes_ += here()[place] == self_ ? 0 : set_.slice_bytes[place];
    }
  }

  void combine(Context& ctx, std::span<const Lane> sums, std::span<HostTerms> hosts) override {
    cross(ctx, sums, hosts);
    pass_on(ctx, hosts);
  }

  void send_back(Context& ctx, std::span<const Piece> sums) override {
    share(ctx, sums);
    send_.clear();
    recv_.clear();
    for (const Pair& pair : pairs_) {
      send_.next();
      recv_.next();
      for (const int owner : here()) {
        send_.add(sums[at(owner)]);
      }
      for (const std::size_t j : pair.shares) {
        recv_.add(sums[at(own_shares()[j])]);
      }
    }
    exchange_in_pairs(ctx);
    spread(ctx, sums, 1);
  }

 private:
  /// A host to which this rank is the relay.
  struct Pair {
    int host = 0;
    int with = 0;                          ///< the relay there to this host, and to no other
    std::vector<std::size_t> shares = {};  ///< numbers among the own shares of its ranks' slices
    std::byte* begin = nullptr;            ///< in passed_
  };

  /// Where the partial sums of a pair's host of the slice of the rank at `place` lie.
  [[nodiscard]] std::byte* passed(const Pair& pair,
                                  const HostTerms& terms,
                                  std::size_t place) const {
    return pair.begin + rows_of(terms) * passed_begin_[place];
  }

  void cross(Context& ctx, std::span<const Lane> sums, std::span<HostTerms> hosts) {
    auto* begin = passed_.as<std::byte>();
    for (Pair& pair : pairs_) {
      pair.begin = begin;
      begin += rows_of(hosts[at(pair.host)]) * passed_bytes_;
    }
    send_.clear();
    recv_.clear();
    for (const Pair& pair : pairs_) {
      send_.next();
      recv_.next();
      send_.add(flags_of(hosts[at(host_)]));
      for (const std::size_t j : pair.shares) {
        add_pieces(send_, sums[j]);
      }
      HostTerms& theirs = hosts[at(pair.host)];
      recv_.add(flags_of(theirs));
      for (std::size_t place = 0; place < here().size(); ++place) {
        add_sums(recv_, theirs, place,
                 here()[place] == self_ ? theirs.arrived : passed(pair, theirs, place));
      }
    }
    exchange_in_pairs(ctx);
  }

  /// Lists hold a lane of each pair.
  void exchange_in_pairs(Context& ctx) {
    const std::span<const Lane> send = send_.lanes();
    const std::span<const Lane> recv = recv_.lanes();
    lanes_.clear();
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      lanes_.send_to(pairs_[i].with, send[i]);
      lanes_.receive_from(pairs_[i].with, recv[i]);
    }
    set_.all.exchange_directly(ctx, lanes_);
  }

  void pass_on(Context& ctx, std::span<HostTerms> hosts) {
    send_.clear();
    recv_.clear();
    for (std::size_t place = 0; place < here().size(); ++place) {
      send_.next();
      recv_.next();
      if (here()[place] == self_) {
        continue;
      }
      for (const Pair& pair : pairs_) {
        HostTerms& theirs = hosts[at(pair.host)];
        send_.add(flags_of(theirs));
        add_sums(send_, theirs, place, passed(pair, theirs, place));
      }
      for (const int h : relayed_by_[place]) {
        add_own(recv_, hosts[at(h)]);
      }
    }
    set_.inside.exchange(ctx, send_.lanes(), recv_.lanes());
  }

  void share(Context& ctx, std::span<const Piece> sums) {
    send_.clear();
    recv_.clear();
    for (const int rank : here()) {
      send_.next();
      recv_.next();
      if (rank != self_) {
        send_.add(sums[at(self_)]);
        recv_.add(sums[at(rank)]);
      }
    }
    set_.inside.exchange(ctx, send_.lanes(), recv_.lanes());
  }

  std::vector<Pair> pairs_;                   ///< by host
  PeerLanes lanes_;                           ///< to and from the other relays of pairs
  std::vector<std::vector<int>> relayed_by_;  ///< [ranks here] hosts, ascending
  std::vector<std::int64_t> passed_begin_;    ///< [ranks here] of one partial sum of each slice
  std::int64_t passed_bytes_ = 0;             ///< of one partial sum of all of them
  Buffer passed_;
};

}  // namespace

std::vector<std::vector<int>> shares_of_host(const HostLayout& layout,
                                             int host,
                                             Crossing crossing) {
  const std::vector<int>& here = layout.ranks_of(host);
  std::vector<std::vector<int>> shares;
  for (const int rank : here) {
    shares.emplace_back(1, rank);
  }
  for (int owner = 0; owner < layout.ranks(); ++owner) {
    if (layout.host(owner) != host) {
      shares[at(layout.place(layout.deputy(host, owner, crossing)))].push_back(owner);
    }
  }
  return shares;
}

std::unique_ptr<SliceCrossing> make_direct_crossing(const SliceCrossing::Setting& setting) {
  return std::make_unique<DirectCrossing>(setting);
}

std::unique_ptr<SliceCrossing> make_relayed_crossing(const SliceCrossing::Setting& setting,
                                                     Buffer passed) {
  return std::make_unique<RelayedCrossing>(setting, std::move(passed));
}

}  // namespace weft::comm
