/// Input dist: ids travel to the ranks that own their rows.
///
/// Two exchanges per step for all tables together: one of counts (fixed size, with a versioned
/// header and the trainer's control block), one of ids. Both run in host memory: ids come from
/// the reader in host memory and the counts are needed there (docs/adr/0005).
///
/// In place   a slot that this rank serves for itself with whole bags (Routing::in_place) has no
///            wire format: lookups and coalescing read the batch's own ids and offsets.
/// Wire       counts, rank to rank: WireHeader, then SlotCounts of each slot the receiver
///            serves, then the control block. ids: per slot two or three pieces: B lengths
///            and the ids, counted within the shard's rows, both as wire_ids.h says; fp32 weights
///            of weighted slots. Column shards are sent the same memory.
///            Of a fetched table (Routing) the shards are asked for rows, each once: two pieces,
///            the lengths of 2 N runs (unique_rows.h) and the ids, packed where codecs.ids says so;
///            their bytes are among the counts.
/// Copies     of an id that is sent: one where it is asked for (narrowed, by shard), one where it
/// is
///            served (widened), which over `local` reads the asking rank's memory.
/// Order      what a server receives for a slot is ordered by source rank, which is the order of
///            samples in the global batch.
/// Bytes      per rank and step: 0 to 4·B per slot it asks of others, plus 1 to 8 per id (+4
///            weighted). Of fetched tables as many per unique row. row_wise asks W slots per
///            feature, column_wise one per column shard.
/// Threads    tasks of runs of bags on the context's pool. Nothing is allocated once the longest
///            batch has been seen.
/// Source     ZionEX (arXiv 2104.05158) section 4: combined lengths-then-indices exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/sharding/incoming_ids.h"
#include "weft/sharding/routing.h"
#include "weft/tensor/buffer.h"

namespace weft::sharding {

class IdPacker;
class IdReceiver;
struct SlotCounts;

/// Sends the ids of this rank's samples to the ranks that serve them, and holds what has come. A
/// step calls exchange_counts(), then exchange_ids(); both are collective over `comm`.
class InputDist {
 public:
  /// `comm` is used for these exchanges alone; `device` is where lookups run.
  /// `control_bytes` is the size of the trainer's block in the counts exchange.
  InputDist(const Routing& routing,
            comm::Communicator& comm,
            Device& device,
            std::int64_t control_bytes);
  ~InputDist();

  /// Cuts the batch into slots and exchanges counts. Throws Error(kData) naming feature, sample
  /// and table for an id outside its table, Error(kComm) naming the rank for another version,
  /// step or layout.
  void exchange_counts(Context& ctx, const BatchView& batch, std::span<const std::byte> control);

  /// The control block of `rank`, valid until the next exchange.
  [[nodiscard]] std::span<const std::byte> control(std::int64_t rank) const;

  /// Exchanges ids and places them on the device.
  void exchange_ids(Context& ctx);

  [[nodiscard]] const IncomingIds& incoming() const { return incoming_; }

  /// Of a slot that this rank serves, the samples of `source`.
  [[nodiscard]] const IncomingBlock& block(const SlotAddress& address, std::int64_t source) const {
    return address.server == routing_.replicated()
               ? incoming_.replicated[static_cast<std::size_t>(address.slot)]
               : incoming_.blocks[static_cast<std::size_t>(address.slot * routing_.ranks + source)];
  }

  [[nodiscard]] const BatchView& batch() const { return batch_; }

  /// Vectors that come back for a slot that is not in place: its non-empty bags, or its ids for a
  /// sequence.
  [[nodiscard]] std::int64_t sent_vectors(const SlotAddress& address) const;

  /// Which bag of the batch, or id of the sequence, each of them belongs to, ascending; null:
  /// vector i to the i-th.
  /// Of a slot of rows: its place among the unique rows.
  [[nodiscard]] const std::int32_t* sent_rows(const SlotAddress& address) const;

  /// The same of the gradients that go out: as many, of the same bags or ids; of a slot of rows one
  /// per row and subtree of parts (unique_rows.h), numbered as FetchedRows::partial_gradients().
  [[nodiscard]] std::int64_t sent_gradients(const SlotAddress& address) const;
  [[nodiscard]] const std::int32_t* sent_gradient_rows(const SlotAddress& address) const;

  /// Rows of a fetched table that the batch asks for.
  [[nodiscard]] std::int64_t unique_rows(std::int64_t fetch) const;

  /// Of a slot of rows, what was asked: [sent_gradients()] rows counted in the shard's, and the
  /// lengths of their runs (unique_rows.h).
  [[nodiscard]] const std::int64_t* sent_row_ids(const SlotAddress& address) const;
  [[nodiscard]] std::span<const std::int32_t> sent_runs(const SlotAddress& address) const;

  /// Keeps served_samples() of the batches to come.
  void keep_samples();

  /// Of a pooled slot that this rank serves, the global sample of each bag from another rank: host
  /// memory, [bags of block().lookup].
  [[nodiscard]] const std::int32_t* served_samples(const SlotAddress& address,
                                                   std::int64_t source) const;

 private:
  void write_counts(std::span<const std::byte> control);
  [[nodiscard]] int world_rank(std::int64_t rank) const;
  void read_counts();
  void place_own_blocks();
  [[nodiscard]] IncomingBlock own_samples_block(const SlotAddress& address) const;
  [[nodiscard]] IncomingBlock batch_block(std::int64_t feature) const;
  void place(Context& ctx);

  const Routing& routing_;
  comm::Communicator& comm_;
  Device& device_;
  std::int64_t control_bytes_;
  BatchView batch_;
  std::unique_ptr<IdPacker> packer_;
  std::unique_ptr<IdReceiver> receiver_;
  std::vector<std::vector<SlotCounts>> received_;  // [W sources][own slots]
  std::vector<std::byte> send_counts_, recv_counts_;
  std::vector<std::int64_t> send_counts_bytes_, recv_counts_bytes_;
  std::vector<comm::Lane> send_, recv_;
  IncomingIds incoming_;
  std::vector<Buffer> uploads_;  // where the device has memory of its own
};

}  // namespace weft::sharding
