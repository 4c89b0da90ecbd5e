#include "weft/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <type_traits>
#include <utility>

#include "weft/base/hash.h"
#include "weft/comm/copies.h"
#include "weft/comm/group.h"
#include "weft/comm/reduce_rows.h"
#include "weft/trace/recorder.h"

namespace weft::comm {
namespace {

// Below this an all_reduce is one all-gather: it saves the second exchange, whose cost is the
// latency of waking threads (tens of microseconds), for bytes that fit into a header's message.
constexpr std::int64_t kSmallAllReduce = 4096;

void* writable(const void* data) {
  return const_cast<void*>(data);  // a Piece that is sent is only read
}

std::byte* at(const void* data, std::int64_t offset) {
  return static_cast<std::byte*>(writable(data)) + offset;
}

std::uint64_t hash_type(std::string_view type, ReduceOp op) {
  return hash_combine(hash_string(type), static_cast<std::uint64_t>(op));
}

template <typename T>
constexpr std::string_view type_name() {
  if constexpr (std::is_same_v<T, float>) {
    return "float";
  } else if constexpr (std::is_same_v<T, double>) {
    return "double";
  } else {
    return "int64";
  }
}

}  // namespace

/// Guards one call: one thread at a time, memory that the host can read.
class Communicator::Call {
 public:
  Call(Communicator& communicator, const Context& ctx) : busy_(communicator.busy_) {
    if (busy_.exchange(true)) {
      fail(ErrorCode::kInternal,
           "two threads use communicator '{}' at once; duplicate() it, one per stream",
           communicator.name());
    }
    if (ctx.device != nullptr && ctx.device->kind() == DeviceKind::kCuda) {
      busy_.store(false);
      fail(ErrorCode::kUsage,
           "communicator '{}' moves host memory and was called on a CUDA device; copy to host "
           "memory first",
           communicator.name());
    }
  }

  ~Call() { busy_.store(false); }

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  std::atomic<bool>& busy_;
};

Communicator::Communicator(std::unique_ptr<Group> group)
    : group_(std::move(group)),
      rank_(group_->rank()),
      size_(group_->size()),
      activity_(group_->activity(), group_->name(), rank_) {
  const auto ranks = static_cast<std::size_t>(size_);
  send_pieces_.resize(ranks);
  recv_pieces_.resize(ranks);
  send_.resize(ranks);
  recv_.resize(ranks);
  arrivals_.resize(ranks);
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
  send_[p] = {.pieces = {&send_pieces_[p], 1}, .silent = false};
}

void Communicator::receive_from(int rank, void* data, std::int64_t bytes) {
  const auto p = static_cast<std::size_t>(rank);
  recv_pieces_[p] = {data, bytes};
  recv_[p] = {.pieces = {&recv_pieces_[p], 1}, .silent = false};
}

void Communicator::silence() {
  std::fill(send_.begin(), send_.end(), Lane{.pieces = {}, .silent = true});
  std::fill(recv_.begin(), recv_.end(), Lane{.pieces = {}, .silent = true});
}

void Communicator::run(const Context& ctx, Exchange call) {
  const bool traced = ctx.track != nullptr && ctx.track->on();
  trace::Span span{.name = to_string(call.stamp.collective).data(),  // a literal
                   .begin_ns = traced ? trace::now_ns() : 0,
                   .kind = trace::Kind::kCollective};
  trace::Collective moved{.group = &name(), .sequence = call.stamp.sequence, .ranks = size_};
  Arrivals arrivals{.last_ns = span.begin_ns, .peers = arrivals_};
  if (traced) {
    std::fill(arrivals_.begin(), arrivals_.end(), trace::Arrival{});
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
  for (std::size_t p = 0; p < call.send.size(); ++p) {
    if (p != static_cast<std::size_t>(rank_) && !call.send[p].silent) {
      const std::int64_t bytes = call.send[p].bytes();
      ++entry.messages;
      entry.bytes += bytes;
      moved.bytes += bytes;
      moved.cross_host_bytes += hosts_[p] == hosts_[static_cast<std::size_t>(rank_)] ? 0 : bytes;
    }
  }
  if (traced) {
    span.end_ns = trace::now_ns();
    moved.arrived_ns = arrivals.last_ns;
    const auto none = std::remove_if(arrivals_.begin(), arrivals_.end(),
                                     [](const trace::Arrival& one) { return one.bytes == 0; });
    ctx.track->add(span, moved, {arrivals_.begin(), none});
  }
}

/// The exchange after which everything lies where `recv` says.
void Communicator::copy(const Context& ctx,
                        const Stamp& stamp,
                        std::span<const Lane> send,
                        std::span<const Lane> recv) {
  const auto read = [&](std::span<const Lane> arrived) {
    copies_.clear();
    // Each rank begins with another peer, so that they do not all read the same memory at once.
    for (std::size_t i = 0; i < arrived.size(); ++i) {
      const std::size_t p = (static_cast<std::size_t>(rank_) + i) % arrived.size();
      if (!arrived[p].silent) {
        add_copies(arrived[p], recv[p], copies_);
      }
    }
    run_copies(ctx.pool, copies_);
  };
  run(ctx, {.stamp = stamp, .send = send, .recv = recv, .pool = ctx.pool, .read = read});
}

std::byte* Communicator::scratch(std::int64_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

void Communicator::all_to_all_v(Context& ctx, const AllToAllV& operands) {
  const Call call(*this, ctx);
  const auto ranks = static_cast<std::size_t>(size_);
  WEFT_CHECK(operands.send_bytes.size() == ranks && operands.recv_bytes.size() == ranks,
             "all_to_all_v of group '{}' over {} ranks got {} and {} counts", name(), ranks,
             operands.send_bytes.size(), operands.recv_bytes.size());
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (int p = 0; p < size_; ++p) {
    const auto i = static_cast<std::size_t>(p);
    send_to(p, at(operands.send, sent), operands.send_bytes[i]);
    receive_from(p, at(operands.recv, received), operands.recv_bytes[i]);
    sent += operands.send_bytes[i];
    received += operands.recv_bytes[i];
  }
  copy(ctx, next_stamp(Collective::kAllToAll, -1, 0), send_, recv_);
}

void Communicator::all_to_all(Context& ctx,
                              const void* send,
                              void* recv,
                              std::int64_t bytes_per_peer) {
  const Call call(*this, ctx);
  for (int p = 0; p < size_; ++p) {
    send_to(p, at(send, p * bytes_per_peer), bytes_per_peer);
    receive_from(p, at(recv, p * bytes_per_peer), bytes_per_peer);
  }
  copy(ctx, next_stamp(Collective::kAllToAll, bytes_per_peer, 0), send_, recv_);
}

void Communicator::check_lanes(std::span<const Lane> send, std::span<const Lane> recv) const {
  WEFT_CHECK(send.size() == static_cast<std::size_t>(size_) && recv.size() == send.size(),
             "exchange of group '{}' over {} ranks got {} and {} lanes", name(), size_, send.size(),
             recv.size());
}

void Communicator::exchange(Context& ctx, std::span<const Lane> send, std::span<const Lane> recv) {
  const Call call(*this, ctx);
  check_lanes(send, recv);
  copy(ctx, next_stamp(Collective::kAllToAll, -1, 0), send, recv);
}

void Communicator::all_gather(Context& ctx, const void* send, void* recv, std::int64_t bytes) {
  const Call call(*this, ctx);
  for (int p = 0; p < size_; ++p) {
    send_to(p, send, bytes);
    receive_from(p, at(recv, p * bytes), bytes);
  }
  copy(ctx, next_stamp(Collective::kAllGather, bytes, 0), send_, recv_);
}

void Communicator::all_gather_v(Context& ctx, const AllGatherV& operands) {
  const Call call(*this, ctx);
  WEFT_CHECK(operands.recv_bytes.size() == static_cast<std::size_t>(size_),
             "all_gather_v of group '{}' over {} ranks got {} counts", name(), size_,
             operands.recv_bytes.size());
  std::int64_t received = 0;
  for (int p = 0; p < size_; ++p) {
    const std::int64_t bytes = operands.recv_bytes[static_cast<std::size_t>(p)];
    send_to(p, operands.send, operands.send_bytes);
    receive_from(p, at(operands.recv, received), bytes);
    received += bytes;
  }
  copy(ctx, next_stamp(Collective::kAllGather, -1, 0), send_, recv_);
}

void Communicator::broadcast(Context& ctx, void* data, std::int64_t bytes, int root) {
  const Call call(*this, ctx);
  WEFT_CHECK(0 <= root && root < size_, "broadcast of group '{}' from rank {} of {}", name(), root,
             size_);
  silence();
  if (root == rank_) {
    for (int p = 0; p < size_; ++p) {
      if (p != root) {
        send_to(p, data, bytes);
      }
    }
  } else {
    receive_from(root, data, bytes);
  }
  copy(ctx, next_stamp(Collective::kBroadcast, bytes, static_cast<std::uint64_t>(root)), send_,
       recv_);
}

void Communicator::barrier(Context& ctx) {
  const Call call(*this, ctx);
  for (int p = 0; p < size_; ++p) {
    send_to(p, nullptr, 0);
    receive_from(p, nullptr, 0);
  }
  copy(ctx, next_stamp(Collective::kBarrier, 0, 0), send_, recv_);
}

bool Communicator::lends() const {
  return group_->lends();
}

void Communicator::exchange_lent(Context& ctx,
                                 std::span<const Lane> send,
                                 std::span<const Lane> recv,
                                 LaneReader read) {
  const Call call(*this, ctx);
  check_lanes(send, recv);
  run(ctx, {.stamp = next_stamp(Collective::kAllToAll, -1, 0),
            .send = send,
            .recv = recv,
            .pool = ctx.pool,
            .read = read});
}

template <typename T>
void Communicator::reduce_slices(Context& ctx, const T* data, T* rows, const Reduction& reduction) {
  const auto unit = static_cast<std::int64_t>(sizeof(T));
  const Range own = piece(reduction.count, size_, rank_);
  for (int p = 0; p < size_; ++p) {
    const Range slice = piece(reduction.count, size_, p);
    send_to(p, data + slice.begin, slice.size() * unit);
    receive_from(p, rows + p * own.size(), own.size() * unit);
  }
  copy(ctx,
       next_stamp(reduction.collective, reduction.count * unit,
                  hash_type(type_name<T>(), reduction.op)),
       send_, recv_);
  reduce_rows(ctx.pool, rows, size_, own.size(), reduction.op);
}

template <typename T>
void Communicator::all_reduce_any(Context& ctx, T* data, std::int64_t count, ReduceOp op) {
  const Call call(*this, ctx);
  const auto unit = static_cast<std::int64_t>(sizeof(T));
  if (count * unit <= kSmallAllReduce) {
    T* const rows = reinterpret_cast<T*>(scratch(size_ * count * unit));
    for (int p = 0; p < size_; ++p) {
      send_to(p, data, count * unit);
      receive_from(p, rows + p * count, count * unit);
    }
    copy(ctx, next_stamp(Collective::kAllReduce, count * unit, hash_type(type_name<T>(), op)),
         send_, recv_);
    reduce_rows(ctx.pool, rows, size_, count, op);
    std::copy_n(rows, count, data);
    return;
  }
  const Range own = piece(count, size_, rank_);
  T* const rows = reinterpret_cast<T*>(scratch(size_ * own.size() * unit));
  reduce_slices(ctx, data, rows, {Collective::kAllReduce, count, op});
  std::copy_n(rows, own.size(), data + own.begin);
  for (int p = 0; p < size_; ++p) {
    const Range slice = piece(count, size_, p);
    send_to(p, data + own.begin, own.size() * unit);
    receive_from(p, data + slice.begin, slice.size() * unit);
  }
  copy(ctx, next_stamp(Collective::kAllReduce, count * unit, hash_type(type_name<T>(), op)), send_,
       recv_);
}

template <typename T>
void Communicator::reduce_scatter_any(
    Context& ctx, const T* send, T* recv, std::int64_t count, ReduceOp op) {
  const Call call(*this, ctx);
  const std::int64_t own = piece(count, size_, rank_).size();
  T* const rows = reinterpret_cast<T*>(scratch(size_ * own * static_cast<std::int64_t>(sizeof(T))));
  reduce_slices(ctx, send, rows, {Collective::kReduceScatter, count, op});
  std::copy_n(rows, own, recv);
}

void Communicator::all_reduce(Context& ctx, float* data, std::int64_t count, ReduceOp op) {
  all_reduce_any(ctx, data, count, op);
}

void Communicator::all_reduce(Context& ctx, double* data, std::int64_t count, ReduceOp op) {
  all_reduce_any(ctx, data, count, op);
}

void Communicator::all_reduce(Context& ctx, std::int64_t* data, std::int64_t count, ReduceOp op) {
  all_reduce_any(ctx, data, count, op);
}

void Communicator::reduce_scatter(
    Context& ctx, const float* send, float* recv, std::int64_t count, ReduceOp op) {
  reduce_scatter_any(ctx, send, recv, count, op);
}

void Communicator::reduce_scatter(
    Context& ctx, const double* send, double* recv, std::int64_t count, ReduceOp op) {
  reduce_scatter_any(ctx, send, recv, count, op);
}

void Communicator::reduce_scatter(
    Context& ctx, const std::int64_t* send, std::int64_t* recv, std::int64_t count, ReduceOp op) {
  reduce_scatter_any(ctx, send, recv, count, op);
}

std::unique_ptr<Communicator> Communicator::duplicate(const std::string& name) {
  return split(0, rank_, name);
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, const std::string& name) {
  struct Request {
    std::int64_t color;
    std::int64_t key;
    std::int64_t token;
  };

  const Context host;
  const Call call(*this, host);
  Request own{color, key, group_->propose_token()};
  std::vector<Request> all(static_cast<std::size_t>(size_));
  for (int p = 0; p < size_; ++p) {
    send_to(p, &own, sizeof own);
    receive_from(p, &all[static_cast<std::size_t>(p)], sizeof own);
  }
  const Stamp stamp = next_stamp(Collective::kSplit, sizeof own, hash_string(name));
  copy(host, stamp, send_, recv_);
  if (color < 0) {
    return nullptr;
  }
  SubgroupOptions options{
      .name = name, .members = {}, .sequence = stamp.sequence, .color = color, .token = 0};
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

void Communicator::check() const {
  group_->check();
}

}  // namespace weft::comm
