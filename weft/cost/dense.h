/// Work of the dense model, counted from a configuration; docs/models.md has the layers.
///
/// Notation: a linear layer of `in` to `out` values takes 2·in·out flops forward, and backward as
/// many for its weights' gradient and, where something before it learns, for its inputs'. Dots of F
/// fields of D values take 2 D per pair forward and twice that backward. Attention runs once per
/// element of a sequence. Elementwise work is left out: it is bytes in caches, not flops.
#pragma once

#include <cstdint>

#include "weft/spec/config.h"
#include "weft/topology/cluster.h"

namespace weft::cost {

/// Flops of one sample; weights and biases of the model.
struct DenseWork {
  double forward_flops = 0.0;
  double backward_flops = 0.0;
  double parameters = 0.0;
};

/// `sequence_length`: elements of a sequence feature on average. Requires a valid configuration
/// with its defaults filled in.
DenseWork dense_work(const spec::Config& config, double sequence_length = 1.0);

/// Floats that a dense optimizer keeps per weight.
double dense_state_floats(spec::DenseOptimizerKind kind);

/// Seconds of forward and backward of `samples` on one rank, at the rate of products in the model's
/// precision.
double forward_s(const topology::Cluster& cluster,
                 const spec::Config& config,
                 const DenseWork& work,
                 double samples);
double backward_s(const topology::Cluster& cluster,
                  const spec::Config& config,
                  const DenseWork& work,
                  double samples);

/// Seconds of the optimizer's pass: gradient read, weights and state read and written.
double dense_update_s(const topology::Cluster& cluster,
                      const spec::Config& config,
                      const DenseWork& work);

}  // namespace weft::cost
