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
#include <vector>

#include "weft/kernels/vector_draws.h"
#include "weft/sharding/input_dist.h"
#include "weft/sharding/routing.h"
#include "weft/spec/config.h"

namespace weft::sharding {

using kernels::VectorDraws;

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
