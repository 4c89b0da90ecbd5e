/// Work that all ranks do, and whose failure on one is the failure of all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "weft/base/work_progress.h"
#include "weft/comm/communicator.h"
#include "weft/tensor/device.h"

namespace weft::checkpoint {

/// Work that says in `progress` what it does and how far it is. It must not communicate.
using Work = std::function<void(WorkProgress& progress)>;

/// Calls work() on a thread of its own and exchanges how it went. Where it threw, all ranks throw
/// the error of the lowest such rank, with that rank (of the world) as origin; the communicator
/// stays usable. Collective.
///
/// The work may take longer than a rank is waited for, as long as its progress moves: the others
/// wait for it (comm::WorkWatch). Where nothing moves for the timeout of `comm`, an Error(kTimeout)
/// that names the rank, what it was doing and how far it was is the world's error, and all ranks
/// end with it. The rank itself throws when its work comes back; work that hangs is ended with its
/// process. Messages: those of Communicator::merge(), up the tree of ranks and down again; an
/// error's text goes from its rank to all.
void agree(comm::Communicator& comm, Context& ctx, const Work& work);

/// The byte strings of all ranks, one after the other in rank order.
struct Gathered {
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> counts;  ///< [W]
};

/// Gives rank 0 the byte strings of all; the others get nothing. Messages: two of each rank but
/// rank 0, up the tree of ranks.
/// Collective.
Gathered gather_to_first(comm::Communicator& comm, Context& ctx, std::span<const std::byte> own);

/// Gives every rank the byte strings of all, which may have different lengths. Collective.
Gathered gather_bytes(comm::Communicator& comm, Context& ctx, std::span<const std::byte> own);

/// The same for values: rank-major, one list.
template <typename T>
std::vector<T> gather_values(comm::Communicator& comm, Context& ctx, std::span<const T> own) {
  static_assert(std::is_trivially_copyable_v<T>);
  const Gathered all = gather_bytes(comm, ctx, std::as_bytes(own));
  std::vector<T> out(all.bytes.size() / sizeof(T));
  std::copy(all.bytes.begin(), all.bytes.end(), std::as_writable_bytes(std::span(out)).begin());
  return out;
}

}  // namespace weft::checkpoint
