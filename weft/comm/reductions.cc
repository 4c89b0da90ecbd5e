// The reductions of Communicator: an exchange of slices, an ordered sum, a gathering.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>

#include "weft/base/hash.h"
#include "weft/base/parts.h"
#include "weft/comm/call_guard.h"
#include "weft/comm/communicator.h"
#include "weft/comm/group.h"
#include "weft/comm/rank_tree.h"
#include "weft/comm/reduce_rows.h"

namespace weft::comm {
namespace {

// Below this an all_reduce is one all-gather: it saves the second exchange, whose cost is the
// latency of waking threads (tens of microseconds), for bytes that fit into a header's message.
constexpr std::int64_t kSmallAllReduce = 4096;

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

std::byte* Communicator::scratch(std::int64_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

template <typename T>
void Communicator::reduce_slices(Context& ctx, const T* data, T* rows, const Reduction& reduction) {
  const auto unit = static_cast<std::int64_t>(sizeof(T));
  const Range own = piece(reduction.count, size_, rank_);
  lanes_.clear();
  for (int p = 0; p < size_; ++p) {
    const Range slice = piece(reduction.count, size_, p);
    send_to(p, data + slice.begin, slice.size() * unit);
    receive_from(p, rows + p * own.size(), own.size() * unit);
  }
  copy(ctx,
       next_stamp(reduction.collective, reduction.count * unit,
                  hash_type(type_name<T>(), reduction.op)),
       lanes_, Payload::kDistinct);
  reduce_rows(ctx.pool, rows, size_, own.size(), reduction.op);
}

template <typename T>
void Communicator::all_reduce_any(Context& ctx, T* data, std::int64_t count, ReduceOp op) {
  const CallGuard guard(busy_, name(), ctx);
  const auto unit = static_cast<std::int64_t>(sizeof(T));
  const TreeCall call{Collective::kAllReduce, hash_type(type_name<T>(), op)};
  if (count * unit <= kSmallAllReduce && has_tree()) {
    T* const rows = reinterpret_cast<T*>(scratch(kTreeFan * count * unit));
    std::copy_n(data, count, rows);
    up_tree(ctx, call, reinterpret_cast<std::byte*>(rows), count * unit,
            [&](int blocks) { reduce_rows(ctx.pool, rows, blocks, count, op); });
    std::copy_n(rows, count, data);
    down_tree(ctx, call, data, count * unit, 0);
    return;
  }
  if (count * unit <= kSmallAllReduce) {
    T* const rows = reinterpret_cast<T*>(scratch(size_ * count * unit));
    lanes_.clear();
    for (int p = 0; p < size_; ++p) {
      send_to(p, data, count * unit);
      receive_from(p, rows + p * count, count * unit);
    }
    copy(ctx, next_stamp(call.collective, count * unit, call.arguments), lanes_, Payload::kSame);
    reduce_rows(ctx.pool, rows, size_, count, op);
    std::copy_n(rows, count, data);
    return;
  }
  const Range own = piece(count, size_, rank_);
  T* const rows = reinterpret_cast<T*>(scratch(size_ * own.size() * unit));
  reduce_slices(ctx, data, rows, {Collective::kAllReduce, count, op});
  std::copy_n(rows, own.size(), data + own.begin);
  lanes_.clear();
  for (int p = 0; p < size_; ++p) {
    const Range slice = piece(count, size_, p);
    send_to(p, data + own.begin, own.size() * unit);
    receive_from(p, data + slice.begin, slice.size() * unit);
  }
  copy(ctx, next_stamp(call.collective, count * unit, call.arguments), lanes_, Payload::kSame);
}

template <typename T>
void Communicator::reduce_scatter_any(
    Context& ctx, const T* send, T* recv, std::int64_t count, ReduceOp op) {
  const CallGuard guard(busy_, name(), ctx);
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

}  // namespace weft::comm
