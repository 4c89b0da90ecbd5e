/// Input dist: ids travel to the ranks that own their rows.
///
/// Two exchanges per step for all tables together: one of counts (fixed size, with a versioned
/// header and the trainer's control block), one of ids. Both run in host memory: ids come from
/// the reader in host memory and the counts are needed there (docs/adr/0005).
///
/// Wire       counts, rank to rank: WireHeader, then {batch, ids} of each slot the receiver
///            serves, then the control block. ids: per slot B lengths (int32), then the ids
///            relative to the shard's first row (int32, or int64 for shards of 2^31 rows and
///            more), then fp32 weights of weighted slots; every section is padded to 8 bytes.
/// Order      what a server receives for a slot is ordered by source rank, which is the order of
///            samples in the global batch.
/// Bytes      per rank and step: 4·B per slot it asks for, plus 4 per id (8 wide, +4 weighted).
///            row_wise asks W slots per feature, column_wise one per column shard.
/// Source     ZionEX (arXiv 2104.05158) section 4: combined lengths-then-indices exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/jagged/keyed_jagged_tensor.h"
#include "weft/sharding/routing.h"
#include "weft/tensor/buffer.h"

namespace weft::sharding {

/// This rank's part of a global batch. The tensor must outlive the step.
struct BatchView {
  const KeyedJaggedTensor* sparse = nullptr;  ///< ids are table rows
  std::int64_t step = 0;
  std::int64_t global_size = 0;              ///< samples of the global batch
  std::span<const std::int64_t> sample_ids;  ///< for messages; may be empty
};

/// The ids of one slot from one source rank, with empty bags left out. Positions are into the
/// arrays of IncomingIds.
struct IncomingBlock {
  std::int64_t ids_begin = 0;
  std::int64_t num_ids = 0;
  std::int64_t bags_begin = 0;  ///< into parts
  std::int64_t num_bags = 0;
  std::int64_t offsets_begin = 0;  ///< [num_bags + 1] offsets relative to ids_begin
  std::int64_t weights_begin = -1;

  /// Vectors exchanged for the block: one per bag, or one per id of a sequence.
  [[nodiscard]] std::int64_t vectors(const Slot& slot) const {
    return slot.sequence ? num_ids : num_bags;
  }
};

/// What this rank serves in the step, on its device.
struct IncomingIds {
  std::vector<IncomingBlock> blocks;      ///< [own slots][W sources]
  std::vector<IncomingBlock> replicated;  ///< [replicated slots], from this rank alone
  Buffer ids;                             ///< int64, relative to the shard's first row
  Buffer offsets;                         ///< int64
  Buffer parts;                           ///< int32, global part of each bag
  Buffer weights;                         ///< fp32
};

class InputDist {
 public:
  /// `comm` is used for these exchanges alone; `device` is where lookups run.
  /// `control_bytes` is the size of the trainer's block in the counts exchange.
  InputDist(const Routing& routing,
            comm::Communicator& comm,
            Device& device,
            std::int64_t control_bytes);

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

  /// Lengths [B] of the bags this rank sent for a slot.
  [[nodiscard]] const std::int32_t* sent_lengths(const SlotAddress& address) const;

  /// Vectors that will come back for a slot: its non-empty bags, or its ids for a sequence.
  [[nodiscard]] std::int64_t sent_vectors(const SlotAddress& address) const;

  /// Row shard of the ids of a row_wise feature, [ids of the feature].
  [[nodiscard]] std::span<const std::uint16_t> shard_of_ids(std::int64_t feature) const;

 private:
  struct SlotCounts {
    std::int64_t batch = 0;
    std::int64_t ids = 0;
  };

  struct SentSlot {
    std::int64_t lengths_at = 0;  ///< bytes from the start of the send buffer
    std::int64_t ids_at = 0;
    std::int64_t weights_at = 0;
    std::int64_t ids = 0;
    std::int64_t vectors = 0;
  };

  void count_feature(std::int64_t f);
  void lay_out();
  void fill_feature(std::int64_t f);
  void fill_whole(const FeatureRoute& route, std::int64_t f);
  void fill_by_row(const FeatureRoute& route, std::int64_t f);
  void write_counts(std::span<const std::byte> control);
  void read_counts();
  void unpack();
  void unpack_block(const Slot& slot,
                    const std::byte* section,
                    std::int64_t batch,
                    std::int64_t first_position,
                    IncomingBlock& block);
  void upload(Context& ctx);
  [[nodiscard]] std::int64_t section_bytes(const Slot& slot,
                                           std::int64_t batch,
                                           std::int64_t ids) const;
  SentSlot& sent(const SlotAddress& address);
  [[nodiscard]] const SentSlot& sent(const SlotAddress& address) const;

  const Routing& routing_;
  comm::Communicator& comm_;
  std::int64_t control_bytes_;
  BatchView batch_;
  std::vector<std::vector<SentSlot>> sent_;           // [W + 1][slots]
  std::vector<std::vector<std::uint16_t>> shard_of_;  // [F], row_wise features only
  std::vector<std::vector<SlotCounts>> received_;     // [W sources][own slots]
  std::vector<std::byte> send_counts_, recv_counts_, send_ids_, recv_ids_;
  std::vector<std::int64_t> send_counts_bytes_, recv_counts_bytes_, send_ids_bytes_,
      recv_ids_bytes_;
  IncomingIds incoming_;
  std::vector<std::int64_t> host_ids_, host_offsets_;
  std::vector<std::int32_t> host_parts_;
  std::vector<float> host_weights_;
};

}  // namespace weft::sharding
