/// A world of W ranks of which only the first R exist, so that one machine can run a rank of
/// thousands: its lists, its messages, what it computes, what it holds.
///
/// The real ranks are those of one or several whole hosts, and the world repeats them as a crystal
/// repeats its cell: rank p is the image of rank p mod R, moved by k R ranks, k = p / R. What image
/// p sends to a real rank r is what the rank it is an image of sends to r moved by -k R. So all
/// that arrives has been written by Weft, for a rank like r; sizes and check words agree without
/// anybody knowing what they mean; and what a real rank sends is what it would send to real peers,
/// where these have its batch moved along. Two things do not move along: what is merged up a tree
/// of ranks, and what names a rank. ImitatedOptions says who writes these.
///
/// Requires   a job that looks the same from every host: tables cut by rows evenly over all ranks,
///            or whole ones dealt to the hosts alike; no rows of which all hold copies, no replica
///            groups, hosts of one size. Slices of dense sums may differ by an element: where sizes
///            differ in a group called "dense", zeros arrive. Elsewhere that is an error.
/// Not there  what carries messages. The seconds of a processor that the imitation takes are
///            counted (TransportTime) for callers to take off.
/// Threads    each real rank is a thread, as those of comm::run_local().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "bench/replayed_rank.h"
#include "bench/transport_time.h"
#include "weft/base/parts.h"
#include "weft/comm/communicator.h"

namespace weft::bench {

/// What is imitated.
struct ImitatedOptions {
  std::int64_t ranks = 0;     ///< W, a multiple of `real`
  std::int64_t real = 0;      ///< R, a multiple of `per_host`
  std::int64_t per_host = 8;  ///< ranks of a host

  /// Writes what ranks [begin, end), which are images, have merged.
  std::function<void(Range ranks, std::span<std::byte> block)> merged;

  /// Makes what image `sender` sends its own, where it names its sender. All runs come here.
  std::function<void(std::int64_t sender, std::span<std::byte> run)> moved;

  GroupTape* tape = nullptr;  ///< keeps what arrives at rank `taped`; may be null
  std::int64_t taped = 0;
};

/// Runs `body` on R threads, each with its communicator of a world of W ranks. Errors are those of
/// comm::run_local(). `time` outlives the call.
void run_imitated(const ImitatedOptions& options,
                  TransportTime& time,
                  const std::function<void(comm::Communicator& world)>& body);

}  // namespace weft::bench
