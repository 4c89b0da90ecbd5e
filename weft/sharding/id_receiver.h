/// Private to sharding/: the serving side of the exchange of ids. What other ranks have packed is
/// checked, widened and put behind each other, without empty bags.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"
#include "weft/comm/collective.h"
#include "weft/sharding/incoming_ids.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/task_list.h"
#include "weft/sharding/wire_ids.h"

namespace weft::sharding {

class IdReceiver {
 public:
  /// `lent`: unpack() is given the senders' memory, so that nothing need be received.
  IdReceiver(const Routing& routing, std::int64_t rank, bool lent);

  /// Places the blocks [own slots][W] of other ranks; `counts` is [W][own slots].
  void lay_out(std::int64_t global_size,
               std::span<const std::vector<SlotCounts>> counts,
               std::span<IncomingBlock> blocks);

  /// The lane from another rank; without memory where it is lent.
  [[nodiscard]] std::span<const comm::Piece> lane(std::int64_t source) const {
    return pieces_[static_cast<std::size_t>(source)];
  }

  /// Throws Error(kComm) where lengths or rows are not what was announced; of packed rows naming
  /// the sender.
  void unpack(ThreadPool& pool,
              std::span<const comm::Lane> arrived,
              std::span<IncomingBlock> blocks);

  [[nodiscard]] std::span<const std::int64_t> ids() const { return used(ids_, num_ids_); }

  [[nodiscard]] std::span<const std::int64_t> offsets() const {
    return used(offsets_, num_offsets_);
  }

  [[nodiscard]] std::span<const float> weights() const { return used(weights_, num_weights_); }

  /// Keeps samples() of the batches to come.
  void keep_samples() { keeps_samples_ = true; }

  /// [bags] the global sample of each bag of a block from another rank.
  [[nodiscard]] const std::int32_t* samples(const IncomingBlock& block) const {
    return samples_.data() + block.lookup.offsets_begin;
  }

  /// Where the parts of the runs of rows from `source` begin (unique_rows.h), of a batch of
  /// `global_size`.
  [[nodiscard]] std::int64_t run_parts_begin(std::int64_t global_size, std::int64_t source) const {
    return global_size + run_begins_[static_cast<std::size_t>(source)];
  }

  /// The part of every sample of the global batch, then the first parts of every rank's runs of
  /// rows, then those of the blocks' bags.
  [[nodiscard]] std::span<const std::int32_t> parts() const { return used(parts_, num_parts_); }

 private:
  template <typename T>
  static std::span<const T> used(const std::vector<T>& values, std::int64_t count) {
    return {values.data(), static_cast<std::size_t>(count)};
  }

  void find_parts(std::int64_t global_size);

  [[nodiscard]] std::int64_t runs(std::int64_t source) const {
    const auto r = static_cast<std::size_t>(source);
    return run_begins_[r + 1] - run_begins_[r];
  }

  void lay_out_block(const Slot& slot,
                     std::int64_t source,
                     const SlotCounts& counts,
                     IncomingBlock& block);
  void describe_lanes(std::span<const std::vector<SlotCounts>> counts);
  template <typename Length>
  void unpack_bags(const Length& length,
                   const Slot& slot,
                   std::int64_t source,
                   IncomingBlock& block);
  void unpack_lengths(const comm::Piece& lengths,
                      const Slot& slot,
                      std::int64_t source,
                      IncomingBlock& block);
  void unpack_runs(const comm::Piece& lengths, IncomingBlock& block);
  void unpack_packed(const comm::Piece& ids,
                     const Slot& slot,
                     std::int64_t source,
                     const IncomingBlock& block);
  void unpack_ids(std::span<const comm::Piece> pieces,
                  const Slot& slot,
                  const IncomingBlock& block,
                  Range ids);

  const Routing& routing_;
  std::int64_t rank_;
  bool lent_;
  std::vector<std::int64_t> run_begins_;          // [W + 1] a rank's runs of rows among all
  std::vector<std::int32_t> run_parts_;           // [runs of all ranks] the part of each
  std::vector<std::size_t> slot_piece_;           // [own slots] its first piece in a lane
  std::vector<std::vector<comm::Piece>> pieces_;  // [W]
  std::vector<std::byte> bytes_;                  // where they are received
  TaskList tasks_;                                // of blocks
  std::int64_t global_size_ = -1;                 // that parts_ begins with
  std::vector<std::int64_t> ids_, offsets_;
  std::vector<float> weights_;
  std::vector<std::int32_t> parts_;
  bool keeps_samples_ = false;
  std::vector<std::int32_t> samples_;  // of bags, as offsets_
  std::int64_t num_ids_ = 0, num_offsets_ = 0, num_weights_ = 0, num_parts_ = 0;
};

}  // namespace weft::sharding
