/// Private to sharding/: whose random words a vector gets where codecs round stochastically
/// (weft/kernels/codec.h, "Rounding"). Words are a function of the seed, the step, the column of
/// the whole row, and
///
///   of a bag                       the feature, the global sample, the first row of the bag
///   of its gradient                the feature, the global sample
///   of a row                       the table, the row
///   of a sequence's gradient       the feature, the global sample, the place in its bag
///   of a partial row gradient      the table, the first part of its subtree, the row
///
/// so no rank, shard or order decides them. Partial sums of one bag begin with different rows:
/// their errors are independent, and a bag that lies in one cut of rows is rounded as where none
/// are cut. A row, fetched or of a sequence, is the same for all who ask for it in a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/sharding/input_dist.h"
#include "weft/sharding/routing.h"
#include "weft/spec/config.h"

namespace weft::sharding {

/// Of the vectors of a block. What it points to lives until the next batch.
struct VectorDraws {
  enum class Of : std::uint8_t { kNone, kBags, kSamples, kRows, kPlaces, kPartialSums };

  /// The draws of `vectors`, one behind the other.
  void number(Range vectors, std::int64_t* out) const;

  Of of = Of::kNone;
  std::uint64_t key = 0;
  std::int64_t first_sample = 0;            ///< of the batch, in the global one
  const std::int32_t* places = nullptr;     ///< [vectors] in the batch; null: the i-th
  const std::int64_t* ids = nullptr;        ///< counted in the shard's rows
  const std::int64_t* offsets = nullptr;    ///< [bags + 1] into ids
  RowSet rows = {};                         ///< of the shard
  const std::int64_t* row_list = nullptr;   ///< in their place, of hot rows
  std::int64_t bags = 0;                    ///< of kPlaces
  std::span<const std::int32_t> runs = {};  ///< of kPartialSums: lengths, one behind the other,
  const std::int32_t* run_parts = nullptr;  ///< and the first part of each

 private:
  [[nodiscard]] std::int64_t row(std::int64_t id) const {
    return row_list == nullptr ? rows.row(id) : row_list[id];
  }

  void number_places(Range vectors, std::int64_t* out) const;
  void number_partial_sums(Range vectors, std::int64_t* out) const;
};

/// The draws of what a rank encodes; of none where rounding is to nearest.
class WireDraws {
 public:
  WireDraws(const spec::Config& config, const Routing& routing, std::int64_t rank);

  /// Of the block of a slot that this rank serves.
  [[nodiscard]] VectorDraws vectors(const SlotAddress& address,
                                    std::int64_t source,
                                    const InputDist& input) const;

  /// Of what it sends to the slot's server.
  [[nodiscard]] VectorDraws gradients(const SlotAddress& address, const InputDist& input) const;

  /// Of all bags or ids of the slot's feature, in the order of the batch.
  [[nodiscard]] VectorDraws own_gradients(const Slot& slot, const InputDist& input) const;

 private:
  void set_rows(const Slot& slot, VectorDraws& draws) const;

  const Routing& routing_;
  std::int64_t rank_;
  bool on_;
  std::vector<std::uint64_t> vector_keys_, gradient_keys_;  // [F]
  std::vector<std::uint64_t> row_keys_, sum_keys_;          // [tables]
  std::vector<std::vector<std::int64_t>> hot_rows_;         // [tables]
  std::vector<std::int32_t> run_parts_;                     // [2 N], see unique_rows.h
};

}  // namespace weft::sharding
