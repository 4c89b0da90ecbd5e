#include "bench/replayed_rank.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/comm/activity.h"
#include "weft/comm/copies.h"
#include "weft/comm/group.h"
#include "weft/comm/messages.h"

namespace weft::bench {
namespace {

using comm::Exchange;
using comm::Lane;
using comm::Piece;

constexpr std::uintptr_t kLine = 64;
constexpr double kTimeoutS = 60.0;

/// Memory of a piece, from its first byte to its last, with what lies between its rows.
struct Extent {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  std::size_t kept = 0;  ///< where the first byte is on the tape
};

/// The first and the last row of a piece, which has bytes, as it counts them.
std::pair<std::int64_t, std::int64_t> ends_of(const Piece& piece) {
  const std::int64_t rows = piece.bytes / piece.row_bytes;
  if (piece.rows == nullptr) {
    return {0, rows - 1};
  }
  const auto [first, last] = std::minmax_element(piece.rows, piece.rows + rows);
  return {*first, *last};
}

Extent extent_of(const Piece& piece) {
  const auto* const data = static_cast<const std::byte*>(piece.data);
  if (piece.row_bytes == 0 || piece.bytes == 0) {
    return {data, data + piece.bytes};
  }
  const auto [first, last] = ends_of(piece);
  return {data + first * piece.stride, data + last * piece.stride + piece.row_bytes};
}

/// Joins extents that touch, and says where each of them is kept, at the same place of a line.
/// Returns the bytes that all take.
std::size_t place(std::vector<Extent>& extents) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::less<>()(a.begin, b.begin); });
  std::size_t joined = 0;
  for (const Extent& extent : extents) {
    if (joined > 0 && extent.begin <= extents[joined - 1].end) {
      extents[joined - 1].end = std::max(extents[joined - 1].end, extent.end);
    } else {
      extents[joined++] = extent;
    }
  }
  extents.resize(joined);
  std::size_t bytes = 0;
  for (Extent& extent : extents) {
    const auto in_line = reinterpret_cast<std::uintptr_t>(extent.begin) % kLine;
    bytes = (bytes + kLine - 1) / kLine * kLine + in_line;
    extent.kept = bytes;
    bytes += static_cast<std::size_t>(extent.end - extent.begin);
  }
  return bytes;
}

/// Records what arrives.
class TapedGroup final : public comm::Group {
 public:
  TapedGroup(std::unique_ptr<comm::Group> group, GroupTape& tape)
      : group_(std::move(group)), tape_(tape) {
    tape_.rank = group_->rank();
    tape_.name = group_->name();
    tape_.lends = group_->lends();
    for (int r = 0; r < group_->size(); ++r) {
      tape_.world_ranks.push_back(group_->world_rank(r));
      tape_.hosts.push_back(group_->host(r));
    }
  }

  [[nodiscard]] int rank() const override { return group_->rank(); }

  [[nodiscard]] int size() const override { return group_->size(); }

  [[nodiscard]] const std::string& name() const override { return group_->name(); }

  [[nodiscard]] int world_rank(int rank) const override { return group_->world_rank(rank); }

  [[nodiscard]] int host(int rank) const override { return group_->host(rank); }

  [[nodiscard]] bool lends() const override { return group_->lends(); }

  void exchange(const Exchange& call) override {
    const auto read = [&](std::span<const Lane> arrived) {
      tape_.exchanges.push_back(std::make_unique<TapedExchange>(call.stamp, arrived, at(rank())));
      call.read(arrived);
    };
    group_->exchange({.stamp = call.stamp,
                      .send = call.send,
                      .recv = call.recv,
                      .pool = call.pool,
                      .read = read,
                      .arrivals = call.arrivals,
                      .payload = call.payload});
  }

  std::int64_t propose_token() override { return group_->propose_token(); }

  std::unique_ptr<Group> make_group(const comm::SubgroupOptions& options) override {
    tape_.groups.push_back(std::make_unique<GroupTape>());
    return taped(group_->make_group(options), *tape_.groups.back());
  }

  void abort(const Error& error) noexcept override { group_->abort(error); }

  void check() const override { group_->check(); }

  [[nodiscard]] double timeout_s() const override { return group_->timeout_s(); }

  void say_alive() noexcept override { group_->say_alive(); }

  [[nodiscard]] comm::ActivityLog& activity() override { return group_->activity(); }

 private:
  std::unique_ptr<comm::Group> group_;
  GroupTape& tape_;
};

/// Gives out what is on a tape.
class ReplayedGroup final : public comm::Group {
 public:
  ReplayedGroup(const GroupTape& tape, TransportTime& time, comm::ActivityLog& activity)
      : tape_(tape), time_(time), activity_(activity), arrived_(tape.world_ranks.size()) {}

  [[nodiscard]] int rank() const override { return tape_.rank; }

  [[nodiscard]] int size() const override { return static_cast<int>(tape_.world_ranks.size()); }

  [[nodiscard]] const std::string& name() const override { return tape_.name; }

  [[nodiscard]] int world_rank(int rank) const override { return tape_.world_ranks[at(rank)]; }

  [[nodiscard]] int host(int rank) const override { return tape_.hosts[at(rank)]; }

  [[nodiscard]] bool lends() const override { return tape_.lends; }

  void exchange(const Exchange& call) override;

  std::int64_t propose_token() override { return 0; }

  std::unique_ptr<Group> make_group(const comm::SubgroupOptions& options) override {
    if (groups_ == tape_.groups.size() || tape_.groups[groups_]->name != options.name) {
      fail(ErrorCode::kComm, "group '{}' was not made of '{}' when the tape was", options.name,
           name());
    }
    return std::make_unique<ReplayedGroup>(*tape_.groups[groups_++], time_, activity_);
  }

  void abort(const Error& /*error*/) noexcept override {}

  void check() const override {}

  [[nodiscard]] double timeout_s() const override { return kTimeoutS; }

  void say_alive() noexcept override {}

  [[nodiscard]] comm::ActivityLog& activity() override { return activity_; }

 private:
  const GroupTape& tape_;
  TransportTime& time_;
  comm::ActivityLog& activity_;
  std::size_t exchanges_ = 0;  ///< that have been given out
  std::size_t groups_ = 0;
  std::vector<Lane> arrived_;  ///< [W]
  std::vector<comm::Copy> copies_;
};

void ReplayedGroup::exchange(const Exchange& call) {
  const std::int64_t begin = thread_ns();
  if (exchanges_ == tape_.exchanges.size() ||
      !(tape_.exchanges[exchanges_]->stamp() == call.stamp)) {
    fail(ErrorCode::kComm, "group '{}': {} is not on the tape", name(),
         comm::describe(call.stamp, name()));
  }
  const TapedExchange& taped = *tape_.exchanges[exchanges_++];
  const std::span<const Lane> taped_lanes = taped.lanes();
  std::int64_t given = 0;  // lanes
  call.for_peers([&](std::size_t p) {
    const Lane& from = taped_lanes[p];
    const Lane& to = call.recv[p];
    arrived_[p] = tape_.lends ? from : to;
    if (p == at(rank()) || (from.silent && to.silent)) {
      return;
    }
    ++given;
    if (from.silent != to.silent || !comm::same_pieces(from, to)) {
      fail(ErrorCode::kComm,
           "{}: {} bytes in {} pieces from rank {} are on the tape, {} in {} are expected",
           comm::describe(call.stamp, name()), from.bytes(), from.pieces.size(), p, to.bytes(),
           to.pieces.size());
    }
    if (!tape_.lends) {
      comm::copy_lanes(nullptr, {&from, 1}, {&to, 1}, 0, copies_);
    }
  });
  if (given != taped.in_use()) {
    fail(ErrorCode::kComm, "{}: {} lanes are on the tape, {} of them of ranks that are expected",
         comm::describe(call.stamp, name()), taped.in_use(), given);
  }
  arrived_[at(rank())] = call.send[at(rank())];
  time_.add(thread_ns() - begin);
  call.read(arrived_);
}

}  // namespace

TapedExchange::TapedExchange(const comm::Stamp& stamp,
                             std::span<const Lane> lanes,
                             std::size_t self)
    : stamp_(stamp), lanes_(lanes.size()) {
  std::vector<Extent> extents;
  std::size_t pieces = 0;
  for (std::size_t p = 0; p < lanes.size(); ++p) {
    lanes_[p].silent = lanes[p].silent;
    if (p == self || lanes[p].silent) {
      continue;
    }
    ++in_use_;
    for (const Piece& piece : lanes[p].pieces) {
      extents.push_back(extent_of(piece));
    }
    pieces += lanes[p].pieces.size();
  }
  bytes_.resize(place(extents) + kLine);
  std::byte* const kept =
      bytes_.data() + (kLine - reinterpret_cast<std::uintptr_t>(bytes_.data()) % kLine) % kLine;
  for (const Extent& extent : extents) {
    if (extent.begin != extent.end) {
      std::memcpy(kept + extent.kept, extent.begin,
                  static_cast<std::size_t>(extent.end - extent.begin));
    }
  }
  pieces_.reserve(pieces);
  for (std::size_t p = 0; p < lanes.size(); ++p) {
    if (p == self || lanes[p].silent) {
      continue;
    }
    for (const Piece& piece : lanes[p].pieces) {
      const std::byte* const begin = extent_of(piece).begin;
      const Extent& extent = *std::prev(
          std::upper_bound(extents.begin(), extents.end(), begin,
                           [](const std::byte* b, const Extent& one) { return b < one.begin; }));
      Piece& own = pieces_.emplace_back(piece);
      own.data = kept + extent.kept + (begin - extent.begin);
      own.rows = nullptr;
      if (piece.row_bytes > 0 && piece.rows != nullptr && piece.bytes > 0) {
        auto& rows = rows_.emplace_back(piece.rows, piece.rows + piece.bytes / piece.row_bytes);
        const auto first = static_cast<std::int32_t>(ends_of(piece).first);
        for (std::int32_t& row : rows) {
          row -= first;
        }
        own.rows = rows.data();
      }
    }
    const std::size_t count = lanes[p].pieces.size();
    lanes_[p].pieces = {pieces_.data() + pieces_.size() - count, count};
  }
}

std::unique_ptr<comm::Group> taped(std::unique_ptr<comm::Group> group, GroupTape& tape) {
  return std::make_unique<TapedGroup>(std::move(group), tape);
}

void run_replayed(const GroupTape& tape,
                  TransportTime& time,
                  const std::function<void(comm::Communicator& world)>& body) {
  comm::ActivityLog activity;
  comm::Communicator world(std::make_unique<ReplayedGroup>(tape, time, activity));
  body(world);
}

}  // namespace weft::bench
