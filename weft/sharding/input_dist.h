/// Input dist: ids travel to the ranks that own their rows.
///
/// Two exchanges per step for all tables together: one of counts (fixed size, with a versioned
/// header and the trainer's control block), one of ids. Both run in host memory: ids come from
/// the reader in host memory and the counts are needed there (docs/adr/0005).
///
/// In place   a slot that this rank serves for itself with whole bags (Routing::in_place) has no
///            wire format: lookups and coalescing read the batch's own ids and offsets.
/// Wire       counts, rank to rank: WireHeader, then {batch, ids} of each slot the receiver
///            serves, then the control block. ids: per slot two or three pieces: B lengths (int32);
///            the ids counted within the shard's rows (int32, or int64 for shards of 2^31 rows
///            and more); fp32 weights of weighted slots. Column shards are sent the same memory.
///            Of a fetched table (Routing) the shards are asked for rows, each once: two pieces,
///            the lengths of 2 N runs (unique_rows.h) and the ids.
/// Copies     of an id that is sent: one where it is asked for (narrowed, by shard), one where it
/// is
///            served (widened), which over `local` reads the asking rank's memory.
/// Order      what a server receives for a slot is ordered by source rank, which is the order of
///            samples in the global batch.
/// Bytes      per rank and step: 4·B per slot it asks of others, plus 4 per id (8 wide, +4
///            weighted). Of fetched tables 4 (8 wide) per unique row. row_wise asks W slots per
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

 private:
  void write_counts(std::span<const std::byte> control);
  void read_counts();
  void place_own_blocks();
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
