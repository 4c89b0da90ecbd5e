#include "bench/imitated_world.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/comm/copies.h"
#include "weft/comm/group.h"
#include "weft/comm/local/local.h"
#include "weft/comm/messages.h"

namespace weft::bench {
namespace {

using comm::Collective;
using comm::Exchange;
using comm::Lane;
using comm::Piece;

constexpr std::int64_t kTreeFan = 8;  // of weft/comm/rank_tree.h

/// A rank's operands of Communicator::split(), as they travel.
struct SplitRequest {
  std::int64_t color = 0;
  std::int64_t key = 0;
  std::int64_t token = 0;
};

/// Returns whether lanes lead along a tree of ranks, which has a first rank and so does not move
/// along.
bool is_of_tree(Collective collective) {
  return collective == Collective::kMerge || collective == Collective::kSplit ||
         collective == Collective::kBroadcast || collective == Collective::kBarrier;
}

bool agree(const Lane& from, const Lane& to) {
  return comm::size_of(from) == comm::size_of(to) && comm::same_pieces(from, to);
}

void fill_zero(const Lane& to) {
  for (const Piece& piece : to.pieces) {
    WEFT_CHECK(piece.row_bytes == 0);
    if (piece.bytes > 0) {
      std::memset(piece.data, 0, at(piece.bytes));
    }
  }
}

std::span<std::byte> run_of(const Piece& piece) {
  return {static_cast<std::byte*>(piece.data), at(piece.bytes)};
}

/// A group of the imitated world. The group of its real ranks carries where each one's exchange is
/// described; while it reads, nobody's memory changes.
class ImitatedGroup final : public comm::Group {
 public:
  /// `members`: world ranks, of which the first real.size() exist.
  ImitatedGroup(const ImitatedOptions& options,
                TransportTime& time,
                std::unique_ptr<comm::Communicator> real,
                std::string name,
                std::vector<int> members)
      : options_(options),
        time_(time),
        real_(std::move(real)),
        name_(std::move(name)),
        members_(std::move(members)),
        calls_(at(real_->size())),
        send_(at(real_->size())),
        recv_(at(real_->size())),
        recv_pieces_(at(real_->size())),
        arrived_(members_.size()) {
    WEFT_CHECK(size() % real_->size() == 0, "group '{}' has {} ranks, of which {} are real", name_,
               size(), real_->size());
    lends_ = host(0) == host(size() - 1);
  }

  [[nodiscard]] int rank() const override { return real_->rank(); }

  [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }

  [[nodiscard]] const std::string& name() const override { return name_; }

  [[nodiscard]] int world_rank(int rank) const override { return members_[at(rank)]; }

  [[nodiscard]] int host(int rank) const override {
    return static_cast<int>(members_[at(rank)] / options_.per_host);
  }

  [[nodiscard]] bool lends() const override { return lends_; }

  void exchange(const Exchange& call) override;

  std::int64_t propose_token() override { return 0; }

  std::unique_ptr<Group> make_group(const comm::SubgroupOptions& options) override {
    std::vector<int> members;
    for (const int member : options.members) {
      members.push_back(members_[at(member)]);
    }
    return std::make_unique<ImitatedGroup>(
        options_, time_, real_->split(static_cast<int>(options.color), rank(), name_ + " split"),
        options.name, std::move(members));
  }

  void abort(const Error& error) noexcept override { real_->abort(error); }

  void check() const override { real_->check(); }

  [[nodiscard]] double timeout_s() const override { return real_->timeout_s(); }

  void say_alive() noexcept override { real_->say_alive(); }

  [[nodiscard]] comm::ActivityLog& activity() override { return real_->activity_log(); }

 private:
  [[nodiscard]] const Lane* source_of(int peer, const Exchange& call) const;
  void deliver(const Exchange& call);
  void make_up(int peer, const Exchange& call);

  const ImitatedOptions& options_;
  TransportTime& time_;
  std::unique_ptr<comm::Communicator> real_;  ///< of all groups made by one call of equal name
  std::string name_;
  std::vector<int> members_;
  bool lends_ = false;
  std::vector<const Exchange*> calls_;  ///< [R] of the real ranks
  std::vector<Lane> send_, recv_;       ///< [R]
  std::vector<Piece> recv_pieces_;      ///< [R]
  std::vector<Lane> arrived_;           ///< [W]
  std::vector<comm::Copy> copies_;
};

void ImitatedGroup::exchange(const Exchange& call) {
  std::int64_t begin = thread_ns();
  const Exchange* own = &call;
  const Piece sent{&own, sizeof own};
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    recv_pieces_[i] = {&calls_[i], sizeof own};
    send_[i] = {.pieces = {&sent, 1}, .silent = false};
    recv_[i] = {.pieces = {&recv_pieces_[i], 1}, .silent = false};
  }
  Context ctx{.device = nullptr, .pool = nullptr, .native_stream = nullptr};
  real_->exchange_lent(ctx, send_, recv_, [&](std::span<const Lane> arrived) {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      calls_[i] = *static_cast<const Exchange* const*>(arrived[i].pieces.front().data);
      if (!(calls_[i]->stamp == call.stamp)) {
        fail(ErrorCode::kComm, "group '{}': {} here, {} on rank {}", name(),
             comm::describe(call.stamp, name()), comm::describe(calls_[i]->stamp, name()), i);
      }
    }
    deliver(call);
    time_.add(thread_ns() - begin);
    call.read(arrived_);
    begin = thread_ns();
  });
  time_.add(thread_ns() - begin);
}

/// The lane that arrives from a peer; null where nobody has written it.
const Lane* ImitatedGroup::source_of(int peer, const Exchange& call) const {
  const int real = real_->size();
  if (peer < real) {
    return &calls_[at(peer)]->send[at(rank())];
  }
  if (is_of_tree(call.stamp.collective)) {
    return nullptr;
  }
  const int images = size() / real;
  const int moved = rank() + (images - peer / real) * real;  // by -k R
  return &calls_[at(peer % real)]->send[at(moved)];
}

void ImitatedGroup::deliver(const Exchange& call) {
  for (int p = 0; p < size(); ++p) {
    const Lane& to = call.recv[at(p)];
    if (p == rank()) {
      arrived_[at(p)] = call.send[at(p)];
      continue;
    }
    const Lane* const from = source_of(p, call);
    arrived_[at(p)] = lends_ ? *from : to;
    if (to.silent) {
      WEFT_CHECK(from == nullptr || from->silent, "group '{}': {} sends to {}, which expects none",
                 name(), p, rank());
    } else if (!lends_ && from != nullptr && agree(*from, to)) {
      comm::copy_lanes(nullptr, std::span(from, 1), std::span(&to, 1), 0, copies_);
    } else if (!lends_) {
      make_up(p, call);
    }
  }
  for (int p = real_->size(); p < size() && options_.moved; ++p) {
    const Lane& to = call.recv[at(p)];
    if (!to.silent && to.pieces.size() == 1 && to.pieces.front().row_bytes == 0) {
      options_.moved(members_[at(p)], run_of(to.pieces.front()));
    }
  }
}

/// What an image sends that is no copy of what a real rank sends.
void ImitatedGroup::make_up(int peer, const Exchange& call) {
  const Lane& to = call.recv[at(peer)];
  fill_zero(to);
  if (!is_of_tree(call.stamp.collective)) {
    if (peer < real_->size() || name() != "dense") {
      fail(ErrorCode::kComm,
           "{}: what rank {} sends to rank {} has another size than expected ({} bytes); the job "
           "does not look the same from every host",
           comm::describe(call.stamp, name()), peer, rank(), to.bytes());
    }
    return;
  }
  std::int64_t ranks = 1;  // whose tree `peer` leads
  while (ranks * kTreeFan <= peer - rank()) {
    ranks *= kTreeFan;
  }
  const Range led{peer, std::min<std::int64_t>(peer + ranks, size())};
  if (call.stamp.collective == Collective::kSplit) {
    const bool by_host = call.stamp.arguments == hash_string(name() + ".hosts");
    std::byte* out = run_of(to.pieces.front()).data();
    for (std::int64_t r = led.begin; r < led.end; ++r, out += sizeof(SplitRequest)) {
      const SplitRequest request{.color = by_host ? host(static_cast<int>(r)) : 0, .key = r};
      std::memcpy(out, &request, sizeof request);
    }
  } else if (call.stamp.collective == Collective::kMerge && options_.merged) {
    options_.merged(led, run_of(to.pieces.front()));
  }
}

}  // namespace

void run_imitated(const ImitatedOptions& options,
                  TransportTime& time,
                  const std::function<void(comm::Communicator& world)>& body) {
  WEFT_CHECK(
      options.real > 0 && options.ranks % options.real == 0 && options.real % options.per_host == 0,
      "{} ranks, {} real, {} a host", options.ranks, options.real, options.per_host);
  std::vector<int> members(at(options.ranks));
  std::iota(members.begin(), members.end(), 0);
  comm::run_local(static_cast<int>(options.real), {}, [&](comm::Communicator& real) {
    std::unique_ptr<comm::Group> group =
        std::make_unique<ImitatedGroup>(options, time, real.duplicate("world"), "world", members);
    if (options.tape != nullptr && real.rank() == options.taped) {
      group = taped(std::move(group), *options.tape);
    }
    comm::Communicator world(std::move(group));
    body(world);
  });
}

}  // namespace weft::bench
