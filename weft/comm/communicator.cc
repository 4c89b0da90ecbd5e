#include "weft/comm/communicator.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "weft/base/hash.h"
#include "weft/base/host_layout.h"
#include "weft/comm/call_guard.h"
#include "weft/comm/copies.h"
#include "weft/comm/group.h"
#include "weft/comm/rank_tree.h"
#include "weft/comm/relays.h"
#include "weft/trace/recorder.h"

namespace weft::comm {
namespace {

void* writable(const void* data) {
  return const_cast<void*>(data);  // a Piece that is sent is only read
}

std::byte* byte_at(const void* data, std::int64_t offset) {
  return static_cast<std::byte*>(writable(data)) + offset;
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Group> group)
    : group_(std::move(group)),
      rank_(group_->rank()),
      size_(group_->size()),
      activity_(group_->activity(), group_->name(), group_->world_rank(rank_)),
      lanes_(static_cast<std::size_t>(size_)) {
  const auto ranks = static_cast<std::size_t>(size_);
  send_pieces_.resize(ranks);
  recv_pieces_.resize(ranks);
  for (int p = 0; p < size_; ++p) {
    hosts_.push_back(group_->host(p));
  }
}

Communicator::~Communicator() = default;

const std::string& Communicator::name() const {
  return group_->name();
}

int Communicator::world_rank(int rank) const {
  return group_->world_rank(rank);
}

Stamp Communicator::next_stamp(Collective collective, std::int64_t size, std::uint64_t arguments) {
  return {.sequence = sequence_++, .collective = collective, .size = size, .arguments = arguments};
}

void Communicator::send_to(int rank, const void* data, std::int64_t bytes) {
  const auto p = static_cast<std::size_t>(rank);
  send_pieces_[p] = {writable(data), bytes};
  lanes_.send_to(rank, {.pieces = {&send_pieces_[p], 1}, .silent = false});
}

void Communicator::receive_from(int rank, void* data, std::int64_t bytes) {
  const auto p = static_cast<std::size_t>(rank);
  recv_pieces_[p] = {data, bytes};
  lanes_.receive_from(rank, {.pieces = {&recv_pieces_[p], 1}, .silent = false});
}

void Communicator::run(const Context& ctx, const Exchange& call) {
  if (relays_ != nullptr) {
    relays_->exchange(ctx, call);
  } else {
    run_directly(ctx, call);
  }
}

void Communicator::run_directly(const Context& ctx, Exchange call) {
  const bool traced = ctx.track != nullptr && ctx.track->on();
  trace::Span span{.name = to_string(call.stamp.collective).data(),  // a literal
                   .begin_ns = traced ? trace::now_ns() : 0,
                   .kind = trace::Kind::kCollective};
  trace::Collective moved{.group = &name(), .sequence = call.stamp.sequence, .ranks = size_};
  Arrivals arrivals{.last_ns = span.begin_ns, .peers = {}};
  if (traced) {
    arrivals_.resize(call.send.size());
    call.for_peers([&](std::size_t p) { arrivals_[p] = {}; });
    arrivals.peers = arrivals_;
    call.arrivals = &arrivals;
  }
  activity_.begin(call.stamp);
  try {
    group_->exchange(call);
  } catch (...) {
    activity_.end();
    throw;
  }
  activity_.end();
  Traffic::Entry& entry = traffic_.by_collective[static_cast<std::size_t>(call.stamp.collective)];
  ++entry.calls;
  call.for_peers([&](std::size_t p) {
    if (p == static_cast<std::size_t>(rank_) || call.send[p].silent) {
      return;
    }
    const std::int64_t bytes = call.send[p].bytes();
    ++entry.messages;
    entry.bytes += bytes;
    moved.bytes += bytes;
    ++moved.messages;
    if (hosts_[p] != hosts_[static_cast<std::size_t>(rank_)]) {
      ++entry.cross_host_messages;
      entry.cross_host_bytes += bytes;
      moved.cross_host_bytes += bytes;
      ++moved.cross_host_messages;
    }
  });
  if (traced) {
    span.end_ns = trace::now_ns();
    moved.arrived_ns = arrivals.last_ns;
    std::size_t seen = 0;
    call.for_peers([&](std::size_t p) {
      if (arrivals_[p].bytes > 0) {
        arrivals_[seen++] = arrivals_[p];  // never behind p
      }
    });
    ctx.track->add(span, moved, std::span(arrivals_).first(seen));
  }
}

void Communicator::copy_arrived(const Context& ctx,
                                std::span<const Lane> arrived,
                                std::span<const Lane> recv) {
  // Each rank begins with another peer, so that they do not all read the same memory at once.
  copy_lanes(ctx.pool, arrived, recv, static_cast<std::size_t>(rank_), copies_);
}

/// The exchange after which everything lies where `recv` says.
void Communicator::copy(const Context& ctx,
                        const Stamp& stamp,
                        std::span<const Lane> send,
                        std::span<const Lane> recv,
                        Payload payload) {
  const auto read = [&](std::span<const Lane> arrived) { copy_arrived(ctx, arrived, recv); };
  run(ctx, {.stamp = stamp,
            .send = send,
            .recv = recv,
            .pool = ctx.pool,
            .read = read,
            .payload = payload});
}

/// Relays look at all lanes, so that the list is of no use to them.
void Communicator::copy(const Context& ctx,
                        const Stamp& stamp,
                        const PeerLanes& lanes,
                        Payload payload) {
  copy(ctx, stamp, lanes.send(), lanes.recv(), payload);
}

void Communicator::copy_directly(const Context& ctx,
                                 const Stamp& stamp,
                                 std::span<const Lane> send,
                                 std::span<const Lane> recv) {
  const auto read = [&](std::span<const Lane> arrived) { copy_arrived(ctx, arrived, recv); };
  run_directly(ctx, {.stamp = stamp, .send = send, .recv = recv, .pool = ctx.pool, .read = read});
}

void Communicator::copy_directly(const Context& ctx, const Stamp& stamp, const PeerLanes& lanes) {
  const std::span<const int> peers = lanes.peers();
  const auto read = [&](std::span<const Lane> arrived) {
    arrived_of_peers_.clear();
    recv_of_peers_.clear();
    for (const int p : peers) {
      arrived_of_peers_.push_back(arrived[static_cast<std::size_t>(p)]);
      recv_of_peers_.push_back(lanes.recv()[static_cast<std::size_t>(p)]);
    }
    // The copies begin with this rank, as those of copy_arrived() do.
    const auto first = std::lower_bound(peers.begin(), peers.end(), rank_);
    copy_lanes(ctx.pool, arrived_of_peers_, recv_of_peers_,
               first == peers.end() ? 0 : static_cast<std::size_t>(first - peers.begin()), copies_);
  };
  run_directly(ctx, {.stamp = stamp,
                     .send = lanes.send(),
                     .recv = lanes.recv(),
                     .pool = ctx.pool,
                     .read = read,
                     .peers = peers});
}

void Communicator::all_to_all_v(Context& ctx, const AllToAllV& operands) {
  const CallGuard guard(busy_, name(), ctx);
  const auto ranks = static_cast<std::size_t>(size_);
  WEFT_CHECK(operands.send_bytes.size() == ranks && operands.recv_bytes.size() == ranks,
             "all_to_all_v of group '{}' over {} ranks got {} and {} counts", name(), ranks,
             operands.send_bytes.size(), operands.recv_bytes.size());
  std::int64_t sent = 0;
  std::int64_t received = 0;
  lanes_.clear();
  for (int p = 0; p < size_; ++p) {
    const auto i = static_cast<std::size_t>(p);
    send_to(p, byte_at(operands.send, sent), operands.send_bytes[i]);
    receive_from(p, byte_at(operands.recv, received), operands.recv_bytes[i]);
    sent += operands.send_bytes[i];
    received += operands.recv_bytes[i];
  }
  copy(ctx, next_stamp(Collective::kAllToAll, -1, 0), lanes_, Payload::kDistinct);
}

void Communicator::all_to_all(Context& ctx,
                              const void* send,
                              void* recv,
                              std::int64_t bytes_per_peer) {
  const CallGuard guard(busy_, name(), ctx);
  const Stamp stamp = next_stamp(Collective::kAllToAll, bytes_per_peer, 0);
  if (relays_ != nullptr) {
    relays_->exchange_blocks(ctx, stamp, {byte_at(send, 0), byte_at(recv, 0), bytes_per_peer});
    return;
  }
  lanes_.clear();
  for (int p = 0; p < size_; ++p) {
    send_to(p, byte_at(send, p * bytes_per_peer), bytes_per_peer);
    receive_from(p, byte_at(recv, p * bytes_per_peer), bytes_per_peer);
  }
  copy(ctx, stamp, lanes_, Payload::kDistinct);
}

void Communicator::check_lanes(std::span<const Lane> send, std::span<const Lane> recv) const {
  WEFT_CHECK(send.size() == static_cast<std::size_t>(size_) && recv.size() == send.size(),
             "exchange of group '{}' over {} ranks got {} and {} lanes", name(), size_, send.size(),
             recv.size());
}

void Communicator::exchange(Context& ctx, std::span<const Lane> send, std::span<const Lane> recv) {
  const CallGuard guard(busy_, name(), ctx);
  check_lanes(send, recv);
  copy(ctx, next_stamp(Collective::kAllToAll, -1, 0), send, recv, Payload::kDistinct);
}

void Communicator::all_gather(Context& ctx, const void* send, void* recv, std::int64_t bytes) {
  const CallGuard guard(busy_, name(), ctx);
  lanes_.clear();
  for (int p = 0; p < size_; ++p) {
    send_to(p, send, bytes);
    receive_from(p, byte_at(recv, p * bytes), bytes);
  }
  copy(ctx, next_stamp(Collective::kAllGather, bytes, 0), lanes_, Payload::kSame);
}

void Communicator::all_gather_v(Context& ctx, const AllGatherV& operands) {
  const CallGuard guard(busy_, name(), ctx);
  WEFT_CHECK(operands.recv_bytes.size() == static_cast<std::size_t>(size_),
             "all_gather_v of group '{}' over {} ranks got {} counts", name(), size_,
             operands.recv_bytes.size());
  std::int64_t received = 0;
  lanes_.clear();
  for (int p = 0; p < size_; ++p) {
    const std::int64_t bytes = operands.recv_bytes[static_cast<std::size_t>(p)];
    send_to(p, operands.send, operands.send_bytes);
    receive_from(p, byte_at(operands.recv, received), bytes);
    received += bytes;
  }
  copy(ctx, next_stamp(Collective::kAllGather, -1, 0), lanes_, Payload::kSame);
}

void Communicator::broadcast(Context& ctx, void* data, std::int64_t bytes, int root) {
  const CallGuard guard(busy_, name(), ctx);
  WEFT_CHECK(0 <= root && root < size_, "broadcast of group '{}' from rank {} of {}", name(), root,
             size_);
  if (has_tree()) {
    down_tree(ctx, {Collective::kBroadcast, static_cast<std::uint64_t>(root)}, data, bytes, root);
    return;
  }
  lanes_.clear();
  if (root == rank_) {
    for (int p = 0; p < size_; ++p) {
      if (p != root) {
        send_to(p, data, bytes);
      }
    }
  } else {
    receive_from(root, data, bytes);
  }
  copy(ctx, next_stamp(Collective::kBroadcast, bytes, static_cast<std::uint64_t>(root)), lanes_,
       Payload::kSame);
}

void Communicator::barrier(Context& ctx) {
  const CallGuard guard(busy_, name(), ctx);
  if (has_tree()) {
    const TreeCall call{Collective::kBarrier, 0};
    up_tree(ctx, call, nullptr, 0, [](int /*count*/) {});
    down_tree(ctx, call, nullptr, 0, 0);
    return;
  }
  lanes_.clear();
  for (int p = 0; p < size_; ++p) {
    send_to(p, nullptr, 0);
    receive_from(p, nullptr, 0);
  }
  copy(ctx, next_stamp(Collective::kBarrier, 0, 0), lanes_, Payload::kSame);
}

void Communicator::exchange_directly(Context& ctx,
                                     std::span<const Lane> send,
                                     std::span<const Lane> recv) {
  const CallGuard guard(busy_, name(), ctx);
  check_lanes(send, recv);
  copy_directly(ctx, next_stamp(Collective::kAllToAll, -1, 0), send, recv);
}

void Communicator::exchange_directly(Context& ctx, const PeerLanes& lanes) {
  const CallGuard guard(busy_, name(), ctx);
  check_lanes(lanes.send(), lanes.recv());
  copy_directly(ctx, next_stamp(Collective::kAllToAll, -1, 0), lanes);
}

bool Communicator::lends() const {
  return relays_ == nullptr && group_->lends();
}

void Communicator::exchange_lent(Context& ctx,
                                 std::span<const Lane> send,
                                 std::span<const Lane> recv,
                                 LaneReader read) {
  const CallGuard guard(busy_, name(), ctx);
  check_lanes(send, recv);
  run(ctx, {.stamp = next_stamp(Collective::kAllToAll, -1, 0),
            .send = send,
            .recv = recv,
            .pool = ctx.pool,
            .read = read});
}

void Communicator::gather_lent(Context& ctx,
                               const Lane& own,
                               std::span<const Lane> recv,
                               LaneReader read) {
  const CallGuard guard(busy_, name(), ctx);
  lanes_.clear();
  check_lanes(lanes_.send(), recv);
  for (int p = 0; p < size_; ++p) {
    lanes_.send_to(p, own);
    lanes_.receive_from(p, p == rank_ ? own : recv[static_cast<std::size_t>(p)]);
  }
  run(ctx, {.stamp = next_stamp(Collective::kAllGather, -1, 0),
            .send = lanes_.send(),
            .recv = lanes_.recv(),
            .pool = ctx.pool,
            .read = read,
            .payload = Payload::kSame});
}

std::unique_ptr<Communicator> Communicator::duplicate(const std::string& name) {
  return split(0, rank_, name);
}

std::unique_ptr<Communicator> Communicator::duplicate(const std::string& name, Form form) {
  std::unique_ptr<Communicator> copy = duplicate(name);
  if (form == Form::kHierarchical) {
    copy->use_relays();
  }
  return copy;
}

void Communicator::use_relays() {
  HostLayout layout(hosts_);
  if (layout.is_flat()) {
    return;
  }
  const int host = layout.host(rank_);
  // A name of its own for each host, so that traces can tell their exchanges apart.
  host_group_ = split_as(fmt::format("{}.host{}", name(), host), host, rank_, name() + ".hosts");
  relays_ = std::make_unique<Relays>(*this, *host_group_, std::move(layout));
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, const std::string& name) {
  return split_as(name, color, key, name);
}

/// `what` is equal on all ranks, `name` in each new group.
std::unique_ptr<Communicator> Communicator::split_as(const std::string& name,
                                                     int color,
                                                     int key,
                                                     const std::string& what) {
  struct Request {
    std::int64_t color;
    std::int64_t key;
    std::int64_t token;
  };

  Context host;
  const CallGuard guard(busy_, group_->name(), host);
  Request own{color, key, group_->propose_token()};
  std::vector<Request> all(static_cast<std::size_t>(size_));
  const std::uint64_t sequence = sequence_;
  const std::uint64_t arguments = hash_string(what);
  if (has_tree()) {
    gather_along_tree(host, {Collective::kSplit, arguments}, std::as_bytes(std::span(&own, 1)),
                      std::as_writable_bytes(std::span(all)));
  } else {
    lanes_.clear();
    for (int p = 0; p < size_; ++p) {
      send_to(p, &own, sizeof own);
      receive_from(p, &all[static_cast<std::size_t>(p)], sizeof own);
    }
    copy_directly(host, next_stamp(Collective::kSplit, sizeof own, arguments), lanes_);
  }
  if (color < 0) {
    return nullptr;
  }
  SubgroupOptions options{
      .name = name, .members = {}, .sequence = sequence, .color = color, .token = 0};
  for (int p = 0; p < size_; ++p) {
    const Request& request = all[static_cast<std::size_t>(p)];
    options.token = std::max(options.token, request.token);
    if (request.color == color) {
      options.members.push_back(p);
    }
  }
  std::stable_sort(options.members.begin(), options.members.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  return std::make_unique<Communicator>(group_->make_group(options));
}

Traffic Communicator::traffic() const {
  Traffic all = traffic_;
  if (host_group_ != nullptr) {
    all += host_group_->traffic_;
  }
  return all;
}

void Communicator::abort(const Error& error) noexcept {
  if (error.origin_rank() >= 0) {
    group_->abort(error);
    return;
  }
  try {
    group_->abort(Error(error.code(), error.what(), group_->world_rank(rank_)));
  } catch (...) {
    group_->abort(error);  // no memory for the copy: better without a rank than not at all
  }
}

void Communicator::explain_lost_ranks(LostRanksText text) {
  group_->explain_lost_ranks(std::move(text));
}

double Communicator::timeout_s() const {
  return group_->timeout_s();
}

Carrier Communicator::carrier() const {
  return group_->carrier();
}

void Communicator::say_alive() noexcept {
  group_->say_alive();
}

ActivityLog& Communicator::activity_log() {
  return group_->activity();
}

void Communicator::check() const {
  group_->check();
}

}  // namespace weft::comm
