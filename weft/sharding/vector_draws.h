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
#include "weft/sharding/routing.h"
#include "weft/spec/config.h"

namespace weft::sharding {

using kernels::VectorDraws;

/// The keys of a job, and the numbers of its hot rows; empty where rounding is to nearest. Static.
struct DrawKeys {
  DrawKeys(const spec::Config& config, const Routing& routing);

  bool is_on = false;
  std::vector<std::uint64_t> vectors, gradients;    ///< [F]
  std::vector<std::uint64_t> rows, sums;            ///< [tables]
  std::vector<std::vector<std::int64_t>> hot_rows;  ///< [tables]
};

}  // namespace weft::sharding
