/// The dense side of a step: forward, loss and backward of the model, part by part, and the
/// reduction and update of the dense parameters.
///
/// Every part is one task of the rank's pool, with a workspace of its own; a task runs oneDNN
/// single-threaded with a shape fixed by the configuration. Parts' weight gradients are added up
/// the tree to this rank's maximal whole subtrees (comm/ordered_reduce.h), which then travel.
///
/// Notation   B samples of this rank, b of a part, Dn dense values, T tasks, n dense parameters.
/// Memory     parameters, gradient and one gradient per own part: (2 + parts/ranks) · 4n bytes.
/// Threads    each method is a stage body; reduce() may run beside the embeddings' backward.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/data/batch.h"
#include "weft/metrics/binary.h"
#include "weft/nn/model.h"
#include "weft/optim/dense.h"
#include "weft/sharding/output_dist.h"
#include "weft/sharding/routing.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::train {

/// The first sample, by position in the global batch, whose loss or gradient is not finite on this
/// rank. Trivially copyable: ranks exchange it as bytes.
struct NonFinite {
  std::int64_t position = -1;  ///< -1: all finite
  std::int64_t sample = -1;    ///< its id in the source
  std::int64_t rank = -1;
};

class DensePass {
 public:
  /// Makes the model and its parameters' initial values. `comm` is used by reduce() alone.
  DensePass(const spec::Config& config,
            const spec::Plan& plan,
            const sharding::Routing& routing,
            comm::Communicator& comm,
            Device& device);

  /// Places dense values, labels and weights of the batch on the device and cuts it into parts.
  void load(Context& ctx,
            const data::Batch& batch,
            const sharding::FeatureMatrices& vectors,
            const sharding::FeatureMatrices& gradients);

  /// Sums of label weights of the parts of `batch`, [own parts][T], in sample order.
  [[nodiscard]] std::vector<double> weight_sums(const data::Batch& batch) const;

  /// Logits and metric sums; `scale` [T] is task weight / sum of weights of the global batch.
  void forward(Context& ctx);

  /// forward(), loss, backward: fills the gradients given to load() and the partial sums.
  void forward_backward(Context& ctx, std::span<const double> global_weights);

  [[nodiscard]] const NonFinite& non_finite() const { return non_finite_; }

  /// All-reduce of the parameters' gradients. Collective.
  void reduce(Context& ctx);

  /// Optimizer step; nothing changes when the summed gradient is not finite.
  optim::DenseStep update(Context& ctx, double lr_factor, std::int64_t step);

  /// Metric sums of the parts of the last forward, [own parts][T].
  [[nodiscard]] const std::vector<metrics::BinarySums>& sums() const { return sums_; }

  /// Copies the logits [B, T] of the last forward to host memory.
  void read_logits(Context& ctx, std::vector<float>& out) const;

  [[nodiscard]] optim::DenseState& state() { return *state_; }

  [[nodiscard]] const optim::ParameterLayout& layout() const { return model_->layout(); }

  /// The initial value of every parameter, as a flat buffer on the host.
  [[nodiscard]] std::vector<float> initial_values() const;

 private:
  struct Part {
    Range rows;  // of this rank's samples
    float* gradient = nullptr;
    std::unique_ptr<nn::Workspace> workspace;
    nn::PartInput input;
    nn::PartGradients gradients;
    std::int64_t first_bad_row = -1;
  };

  void assign_gradients(Device& device);
  void load_sequences(Context& ctx, const data::Batch& batch);
  void view_part(std::size_t index,
                 const sharding::FeatureMatrices& vectors,
                 const sharding::FeatureMatrices& gradients);
  void forward_part(std::size_t index);
  void backward_part(std::size_t index);
  void check_part(Part& part, std::int64_t bad_loss_row) const;
  void find_non_finite();
  void sum_partials(Context& ctx);
  [[nodiscard]] Matrix<float> logits(const Part& part) const;

  const spec::Config& config_;
  const sharding::Routing& routing_;
  std::int64_t rank_;
  Range own_parts_;
  std::int64_t parts_total_;
  std::int64_t tasks_;
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<comm::OrderedAllReduce> all_reduce_;
  Buffer params_, gradient_, part_gradients_;
  std::unique_ptr<optim::DenseOptimizer> optimizer_;
  std::unique_ptr<optim::DenseState> state_;
  Buffer dense_, labels_, weights_, logits_, dlogits_, sequence_offsets_;
  std::vector<std::int64_t> host_offsets_;
  std::vector<std::vector<std::int64_t>> offsets_begin_;  // [own parts][F]
  std::vector<std::vector<Range>> sequence_rows_;         // [own parts][F]
  std::vector<Part> parts_;
  std::vector<std::uint8_t> present_;  // of the partial sums
  std::vector<float> scale_;           // [T]
  std::vector<metrics::BinarySums> sums_;
  NonFinite non_finite_;
  Range positions_;
  std::vector<std::int64_t> sample_ids_;
};

}  // namespace weft::train
