/// Work of the dense model, counted from a configuration; docs/models.md has the layers.
///
/// Notation: a linear layer of `in` to `out` values takes 2·in·out flops forward, and backward as
/// many for its weights' gradient and, where something before it learns, for its inputs'. Dots of F
/// fields of D values are products of padded matrices, F and D rounded up to 16: 2 F² D forward and
/// twice that backward. Attention runs once per element of a sequence.
///
/// Between products values are moved, once per use; e bytes each, those of the precision:
///   layer      forward e (in + out): read, written. Backward e (4 in + 5 out): the input read and
///              packed for the weights' gradient, its gradient written; the output's gradient read
///              twice and packed. With an activation e 4 out more: its gradient, in place, and sums
///   vectors    4 D read per field, and backward as much twice: written, looked at for non-finite
///   cross      forward 16 bytes per value of its width: x0, the layer's input and product read,
///              output written; backward 32
///   weights    16 bytes per parameter and step: packed for both passes
/// A batch's values are more than a core's own cache holds, so they move at the rate of a copy.
#pragma once

#include <cstdint>

#include "weft/spec/config.h"
#include "weft/topology/cluster.h"

namespace weft::cost {

/// Flops and bytes of one sample; weights and biases of the model.
struct DenseWork {
  double forward_flops = 0.0;
  double backward_flops = 0.0;
  double forward_bytes = 0.0;
  double backward_bytes = 0.0;
  double parameters = 0.0;
};

/// `sequence_length`: elements of a sequence feature on average. Requires a valid configuration
/// with its defaults filled in.
DenseWork dense_work(const spec::Config& config, double sequence_length = 1.0);

/// Floats that a dense optimizer keeps per weight.
double dense_state_floats(spec::DenseOptimizerKind kind);

/// Seconds of forward and backward of `samples` on one rank: flops at the rate of products in the
/// model's precision, and bytes. Weights are packed in the forward pass.
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
