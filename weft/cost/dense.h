/// Work of the dense model, counted from a configuration; docs/models.md has the layers.
///
/// Notation: a linear layer of `in` to `out` values takes 2·in·out flops forward, and backward as
/// many for its weights' gradient and, where something before it learns, for its inputs'; both
/// numbers rounded up to 16, a register. Dots of F fields of D values take F (F - 1) D
/// forward, and backward 4 F F' D, F' rounded up to 8 and D to 16; they have a rate of their own,
/// as their blocks of sums are small. Attention runs once per element of a sequence.
///
/// Between products values are moved, once per use; e bytes each, those of the precision:
///   layer      forward e (in + out): read, written. Backward e (2 in + 3 out): the input read to
///              be packed for the weights' gradient, its gradient written; the output's gradient
///              read twice and packed. With an activation e 3 out more: its output read, its
///              gradient changed in place and summed in one pass
///   packed     3 e (in + out): operands of the weights' gradient, which wait for the products of
///              all slices: fetched, written and, by these products, read
///   vectors    12 D per field: read; their gradients fetched and written. 4 D more of gradients
///              looked at for non-finite values, by code no faster than a copy
///   dots       forward 8 F D + 4 F (F - 1): fields turned and read, dots written and turned back;
///              backward 4 F D
///   cross      forward 16 bytes per value of its width: x0, the layer's input and product read,
///              output written; backward 32
///   weights    16 bytes per parameter and step: packed for both passes. 12 per parameter and part
///              in a cache: a part's sum written, read and added, tile by tile
/// What is moved lies in a core's own cache, or comes from afar at the rate of a copy. Samples run
/// in slices, one on a thread at a time. Layers' values are in the memory of the thread: what of a
/// slice's e (in + out) the cache does not hold is far. Vectors, their gradients and packed
/// operands are all samples': of these what the cache does not hold of all of them.
#pragma once

#include <cstdint>
#include <span>

#include "weft/spec/config.h"
#include "weft/topology/cluster.h"

namespace weft::cost {

/// Bytes that a sample has somewhere, and that are moved of them.
struct DenseBytes {
  double held = 0.0;
  double forward = 0.0;
  double backward = 0.0;
};

/// Flops and bytes of one sample; weights and biases of the model.
struct DenseWork {
  double forward_flops = 0.0;
  double backward_flops = 0.0;
  double weight_flops = 0.0;       ///< of backward_flops: products of the weights' gradients
  double dot_forward_flops = 0.0;  ///< of dot interactions, beside these
  double dot_backward_flops = 0.0;
  DenseBytes layers;           ///< of the slice in hand
  DenseBytes kept;             ///< of all samples: vectors, packed operands
  double weight_bytes = 0.0;   ///< of kept.backward: operands that these products read
  double checked_bytes = 0.0;  ///< looked at, at the rate of a copy
  double parameters = 0.0;
  double bucket = 0.0;  ///< floats that are reduced: each matrix and bias is filled up to 16
};

/// `lengths`: [features] elements of a sequence feature on average; of pooled ones nothing is
/// asked. Requires a valid configuration with its defaults filled in.
DenseWork dense_work(const spec::Config& config, std::span<const double> lengths);

/// All sequences are as long.
DenseWork dense_work(const spec::Config& config, double sequence_length = 1.0);

/// Flops of dot interactions of one sample.
struct DotFlops {
  double forward = 0.0;
  double backward = 0.0;
};

/// Returns the flops of all pairwise dots of `fields` vectors of `dim` values, one sample, with the
/// numbers rounded up as the header says.
DotFlops dot_flops(double fields, double dim);

/// Samples of a rank, its parts, and the samples of a slice.
struct DenseBatch {
  double samples = 0.0;
  double parts = 1.0;
  double slice = 1.0;
};

/// Those of the largest part, in slices of equal size, layout::kMaxSlice at most.
DenseBatch dense_batch(std::int64_t batch_size,
                       std::int64_t parts,
                       double own_parts,
                       double samples);

/// Seconds of forward and backward on one rank: flops at the rate of products in the model's
/// precision, those of dots at theirs, and bytes. Weights are packed in the forward pass.
double forward_s(const topology::Cluster& cluster,
                 const spec::Config& config,
                 const DenseWork& work,
                 const DenseBatch& batch);
double backward_s(const topology::Cluster& cluster,
                  const spec::Config& config,
                  const DenseWork& work,
                  const DenseBatch& batch);

/// Returns the seconds of backward_s() that come after all slices' gradients of inputs: the
/// weights' gradients, and their sums over the rank's parts.
double weight_gradients_s(const topology::Cluster& cluster,
                          const spec::Config& config,
                          const DenseWork& work,
                          const DenseBatch& batch);

/// Seconds of the optimizer's pass: gradient read, weights and state read and written.
double dense_update_s(const topology::Cluster& cluster,
                      const spec::Config& config,
                      const DenseWork& work);

}  // namespace weft::cost
