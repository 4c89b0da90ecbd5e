/// Input dist: ids travel to the ranks that own their rows.
///
/// Two exchanges per step for all tables together: one of counts (fixed size, with a versioned
/// header and the trainer's control block), one of ids. Among many ranks the counts of slots travel
/// at the head of the ids, and cost what is there (id_lanes.h). Both run in host memory: ids come
/// from the reader in host memory and the counts are needed there (docs/adr/0005).
///
/// Paths      how a slot's ids are cut, sent and unpacked is its path's (paths/slot_path.h); here
/// are
///            the two messages, and the order of slots in them.
/// Wire       counts, rank to rank: WireHeader, then, of at most 8 ranks, SlotCounts of each slot
/// the
///            receiver serves, then the control block. ids: per slot two or three pieces: B
///            lengths, or the bag of each id, and the ids, counted within the shard's rows, all as
///            wire_ids.h says; fp32 weights of weighted slots. Column shards are sent the same
///            memory. Of a fetched table (Routing) the shards are asked for rows, each once: two
///            pieces, the lengths of R + N runs (unique_rows.h) and the ids, packed where
///            codecs.ids says so; their bytes are among the counts. Of more than 8 ranks a lane is
///            one run, which begins with the counts of the slots that have ids; one without ids is
///            silent.
/// Copies     of an id that is sent: one where it is asked for (narrowed, by shard), among many
///            ranks one into its lane, one where it is served (widened), which over `local` reads
///            the asking rank's memory.
/// Order      what a server receives for a slot is ordered by source rank, which is the order of
///            samples in the global batch.
/// Bytes      per rank and step: 40 bytes of header and the control block to each rank, and 16 per
///            slot, or of many ranks a bit per slot and mostly 1 to 2 bytes per slot with ids;
///            0 to 4·B per slot it asks of others, at most 4 per id where rows
///            are cut, plus 1 to 8 per id (+4 weighted). Of fetched tables as many per unique row.
///            row_wise asks W slots per feature, column_wise one per column shard.
/// State      an InputDist is const; what a batch has in flight is in an InputStep.
/// Threads    tasks of runs of bags on the context's pool; stages of different steps may run at
/// once
///            but for their exchanges. Nothing is allocated once the longest batch has been seen.
/// Source     ZionEX (arXiv 2104.05158) section 4: combined lengths-then-indices exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weft/base/error.h"
#include "weft/comm/communicator.h"
#include "weft/sharding/id_packer.h"
#include "weft/sharding/id_receiver.h"
#include "weft/sharding/input_step.h"
#include "weft/sharding/paths/paths.h"
#include "weft/tensor/device.h"

namespace weft::sharding {

/// Sends the ids of this rank's samples to the ranks that serve them. A step calls
/// exchange_counts(), then exchange_ids(); both are collective over `comm`.
class InputDist {
 public:
  /// `comm` is used for these exchanges alone; `device` is where lookups run. All outlive it.
  InputDist(const Paths& paths, comm::Communicator& comm, Device& device);

  /// Cuts the batch into slots and exchanges counts, and `control` [step.control_bytes]. Throws
  /// BatchError on all ranks, naming feature, sample and table of an id that is outside
  /// its table; Error(kComm) naming the rank for another version, step or layout.
  void exchange_counts(Context& ctx,
                       InputStep& step,
                       const BatchView& batch,
                       std::span<const std::byte> control) const;

  /// Takes part in the exchange of counts of step `number` without a batch, because of `error`.
  /// Always throws: BatchError, here and on all other ranks.
  void refuse(Context& ctx, InputStep& step, std::int64_t number, const Error& error) const;

  /// Exchanges ids and places them on the device.
  void exchange_ids(Context& ctx, InputStep& step) const;

 private:
  static void write_refusal(InputStep& step, std::int64_t number);
  void throw_refusal(Context& ctx, const InputStep& step, const std::optional<Error>& own) const;
  void exchange(Context& ctx, InputStep& step) const;
  void write_counts(InputStep& step, std::span<const std::byte> control) const;
  [[nodiscard]] int world_rank(std::int64_t rank) const;
  void read_counts(InputStep& step) const;
  void read_slots(InputStep& step, std::int64_t source, const std::byte* in) const;
  void place_own_blocks(InputStep& step) const;
  void place(Context& ctx, InputStep& step) const;
  void upload(Context& ctx, InputStep& step) const;

  const Paths& paths_;
  const Routing& routing_;
  comm::Communicator& comm_;
  Device& device_;
  IdPacker packer_;
  IdReceiver receiver_;
};

}  // namespace weft::sharding
