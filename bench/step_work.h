/// What a training step has to do, counted from a configuration and real batches, and how long that
/// takes at this machine's limits. It knows nothing of how Weft does it.
///
/// Part               limit: the time of
///   exchange_ids     one copy of the ids and lengths that go to another rank
///   load             one copy of dense values, labels and weights
///   lookup           reading the rows of the batch, in their order, at the rate of row_probe.h on
///                    those very rows with caches that hold other things, as the rest of a step
///                    leaves them; writing the pooled vectors
///   output_dist      one copy of the pooled vectors that go to another rank
///   forward_backward every matrix product at the rate of gemm_probe.h for that very shape alone,
///                    with the samples of a part or with 256, whichever is faster
///   coalesce         one copy of the ids: a sort that needs one pass
///   grad_dist        one copy of the gradients that go to another rank
///   update_rows      reading one gradient per id, in the order of rows; reading and writing every
///                    touched row and its state once, ascending
///   update_dense     reading weights, gradients and state of the dense model, writing weights and
///                    state, by one load and store per cache line
///   others           none: they are overhead. reduce: one copy of the dense gradient, not in the
///   sum
///                    as it runs beside the others.
/// With W ranks each has 1/W of the work, and (W - 1)/W of what it serves goes to others, whatever
/// the plan.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/gemm_probe.h"
#include "bench/limits.h"
#include "weft/data/batch.h"
#include "weft/spec/config.h"
#include "weft/train/step_times.h"

namespace weft::bench {

/// A matrix product of the dense model.
struct DenseProduct {
  std::string layer;  ///< e.g. "top.0"
  std::string pass;   ///< "forward", "data" or "weight"
  GemmShape shape;
};

/// The products of a step over `rows` samples, each once. Throws Error(kConfig) for a model other
/// than dlrm and dcnv2, projections and sequences.
std::vector<DenseProduct> dense_products(const spec::Config& config, std::int64_t rows);

/// Number of weights and biases of those layers.
std::int64_t dense_parameters(const spec::Config& config);

/// Rows that a step touches, as places in a probe's memory: one list per batch.
struct RowLists {
  std::int64_t row_bytes = 0;
  std::vector<std::vector<std::int64_t>> batches;

  /// Rows of an average batch.
  [[nodiscard]] double rows() const;

  /// One list after the other, again and again.
  std::span<const std::int64_t> next();

 private:
  std::size_t next_ = 0;
};

/// Counts of an average global batch.
struct StepWork {
  double samples = 0.0;
  double ids = 0.0;
  double sparse_bytes = 0.0;  ///< ids and lengths as int64
  double vector_bytes = 0.0;  ///< pooled vectors, fp32
  double input_bytes = 0.0;   ///< dense values, labels, weights
  double dense_parameters = 0.0;
  double dense_state = 0.0;         ///< floats of the dense optimizer per weight
  std::vector<RowLists> lookups;    ///< every id's row, feature by feature
  std::vector<RowLists> updates;    ///< every touched row with its state, ascending
  std::vector<RowLists> gradients;  ///< every id's gradient, in the order of rows
};

/// `batches` are whole global batches; the lists' places lie below `memory_bytes`, tables that are
/// larger together are folded into it.
StepWork step_work(const spec::Config& config,
                   const std::vector<data::Batch>& batches,
                   std::int64_t memory_bytes);

/// Seconds per part at the limits; 0 where there is none.
using PartLimits = std::array<double, kStepParts>;

/// What of a rank's work is a matter of the variant.
struct RankWork {
  std::int64_t ranks = 1;
  std::int64_t parts = 8;  ///< of this rank
  std::int64_t samples_per_part = 0;
};

/// Of one rank. `shapes` keeps what was measured of matrix products, in flops per second, for other
/// variants of the same moment.
PartLimits part_limits(Limits& limits,
                       const spec::Config& config,
                       StepWork& work,
                       const RankWork& rank,
                       std::map<GemmShape, double>& shapes);

}  // namespace weft::bench
