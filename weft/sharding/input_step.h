/// InputStep: the ids of one batch, from its counts until its update: what this rank asks, what it
/// serves, and the messages between. InputDist fills it.
///
/// Memory      buffers grow to the longest batch that has been seen, and are reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/comm/collective.h"
#include "weft/sharding/asked_ids.h"
#include "weft/sharding/incoming_ids.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/served_ids.h"
#include "weft/sharding/wire_ids.h"
#include "weft/tensor/buffer.h"

namespace weft::sharding {

struct InputStep {
  /// Of `rank`; `control_bytes` is the size of the caller's block in the counts exchange.
  InputStep(const Routing& routing, std::int64_t rank, std::int64_t control_bytes);

  /// Of a slot that this rank serves, the samples of `source`.
  [[nodiscard]] const IncomingBlock& block(const SlotAddress& address, std::int64_t source) const {
    return address.server == ranks ? incoming.replicated[at(address.slot)]
                                   : incoming.blocks.of(address.slot, source);
  }

  /// The same, which must be there, with its place. Cost: a search; arrived_block() has none.
  [[nodiscard]] ServedBlock served_block(const SlotAddress& address, std::int64_t source) const {
    if (address.server == ranks) {
      return {address, source, incoming.blocks.size() + address.slot,
              incoming.replicated[at(address.slot)]};
    }
    const std::int64_t place = incoming.blocks.place(address.slot, source);
    return {address, source, place, incoming.blocks.at_place(place)};
  }

  /// That of ServedIds::arrived with this number.
  [[nodiscard]] ServedBlock arrived_block(std::int64_t arrival) const {
    const ArrivedSlot& one = served.arrived[at(arrival)];
    const std::int64_t place = served.arrival_blocks[at(arrival)];
    return {{asked.rank, one.slot}, one.source, place, incoming.blocks.at_place(place)};
  }

  /// All bags of a feature as the batch has them, which are of `rank`'s samples.
  [[nodiscard]] IncomingBlock batch_block(const Routing& routing,
                                          std::int64_t feature,
                                          std::int64_t rank) const;

  /// The ids of some of a run's bags, counted from the run's first.
  [[nodiscard]] Range values_of(const BagRun& run, IdOrigin origin, const Range& bags) const;

  /// The control block of `rank`, valid until the next exchange of counts.
  [[nodiscard]] std::span<const std::byte> control(std::int64_t rank) const;

  [[nodiscard]] const BatchView& batch() const { return asked.batch; }

  std::int64_t ranks = 1;
  std::int64_t control_bytes = 0;
  AskedIds asked;
  ServedIds served;
  IncomingIds incoming;
  std::vector<SlotCounts> received;           ///< [own slots] of the rank in hand
  std::vector<std::int64_t> recv_lane_bytes;  ///< [W] of packed lanes of ids (id_lanes.h)
  std::vector<std::byte> send_counts, recv_counts;
  std::vector<std::int64_t> send_counts_bytes, recv_counts_bytes;  ///< [W]
  std::vector<comm::Lane> send, recv;                              ///< [W]
  std::vector<Buffer> uploads;  ///< where the device has memory of its own
};

}  // namespace weft::sharding
