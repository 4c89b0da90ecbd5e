/// The dense side of a step: forward, loss and backward of the model, slice by slice, the sums of
/// its gradients, and the reduction and update of the dense parameters.
///
/// A part of the batch is cut into slices of equal size, at most layout::kMaxSlice samples; the
/// cut depends on the part's size alone. Slices run on the rank's pool, each with a workspace of
/// its own, so there may be more threads than parts; a product runs on one thread with a shape
/// fixed by the configuration. Micro-batches are runs of parts, one after the other. The weight
/// gradients of all slices, or of those of some micro-batches at a time, are computed tile by tile
/// and added up the tree of parts to this rank's maximal whole subtrees (comm/ordered_reduce.h),
/// which travel.
///
/// Notation   B samples of this rank, b of a slice, Dn dense values, T tasks, n dense parameters.
/// Memory     parameters and gradient, 8n bytes; the subtrees' sums, and what codecs.dense takes
///            for residuals and codes (comm/ordered_reduce.h); of several micro-batches, sums that
///            wait for their siblings (base/subtree_stack.h), 4n bytes each; the weights laid out
///            for products twice, 8n bytes or 4n in bf16; activations of B samples.
/// Threads    each method is a stage body; reduce() may run beside the embeddings' backward.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/subtree_stack.h"
#include "weft/comm/communicator.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/comm/reduce_state.h"
#include "weft/data/batch.h"
#include "weft/kernels/finite.h"
#include "weft/layout/dense_memory.h"
#include "weft/nn/model.h"
#include "weft/optim/dense.h"
#include "weft/sharding/output_dist.h"
#include "weft/sharding/routing.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"
#include "weft/train/dense_side.h"

namespace weft::train {

/// Runs the dense side of one rank's steps. Config, routing, comm and device outlive it.
class DensePass final : public DenseSide {
 public:
  /// Makes the model and its parameters' initial values. `comm` is used by reduce() alone.
  DensePass(const spec::Config& config,
            const spec::Plan& plan,
            const sharding::Routing& routing,
            comm::Communicator& comm,
            Device& device);

  /// As DenseSide says. load() places dense values, labels and weights on the device and cuts the
  /// batch into parts. What the codec of the last reduce() lost is kept for the next one where the
  /// step of update() is done, and forgotten where not.
  void load(Context& ctx,
            const data::Batch& batch,
            const sharding::FeatureMatrices& vectors,
            const sharding::FeatureMatrices& gradients) override;
  void weight_sums(const data::Batch& batch, std::vector<double>& sums) const override;
  void forward(Context& ctx, std::int64_t cut) override;
  void forward_backward(Context& ctx,
                        std::span<const double> global_weights,
                        std::int64_t cut) override;
  void weight_gradients(Context& ctx, std::int64_t cut) override;

  [[nodiscard]] const NonFinite& non_finite() const override { return non_finite_; }

  void reduce(Context& ctx) override;
  optim::DenseStep update(Context& ctx, double lr_factor, std::int64_t step) override;

  [[nodiscard]] const std::vector<metrics::BinarySums>& sums() const override { return sums_; }

  void read_logits(Context& ctx, std::vector<float>& out) const override;
  void list_sources(std::vector<const StateSource*>& out) const override;
  void list_sinks(Residuals residuals, std::vector<StateSink*>& out) override;

  [[nodiscard]] const std::string& residual_layout() const override { return residual_layout_; }

  [[nodiscard]] kernels::CodecClips codec_clips() const override { return all_reduce_->clips(); }

  [[nodiscard]] std::string parameter_of(std::int64_t index) const override {
    return layout().at(index).name;
  }

  [[nodiscard]] const optim::ParameterLayout& layout() const { return model_->layout(); }

  /// The initial value of every parameter, as a flat buffer on the host.
  [[nodiscard]] std::vector<float> initial_values() const;

 private:
  struct Slice {
    Range rows;  // of this rank's samples
    std::unique_ptr<nn::SliceTerms> terms;
    nn::SliceInput input;
    nn::SliceGradients gradients;
    std::vector<kernels::SampleValues> checked;  // gradients that must be finite
  };

  struct Part {
    Range rows;                            // of this rank's samples
    Range slices;                          // of slices_
    std::int64_t first_bad_gradient = -1;  // its first row, where a weight's gradient is not finite
  };

  void cut_batch(const data::Batch& batch);
  void load_sequences(const data::Batch& batch);
  [[nodiscard]] layout::BatchCounts counts(const data::Batch& batch) const;
  void view_slice(std::size_t index,
                  const sharding::FeatureMatrices& vectors,
                  const sharding::FeatureMatrices& gradients);
  void forward_slice(Context& ctx, Slice& slice, nn::Lane& lane);
  void backward_slice(Context& ctx, std::size_t index, nn::Lane& lane);
  [[nodiscard]] Range own_parts(std::int64_t cut) const;
  [[nodiscard]] Range slices_of(const Range& parts) const;
  void sum_metrics(Context& ctx, const Range& parts);
  void sum_gradients(Context& ctx, std::span<const SubtreeStack::Subtree> subtrees);
  void add_gradients(Context& ctx, std::int64_t end);
  void join(Context& ctx, const SubtreeStack::Join& siblings);
  [[nodiscard]] float* sums_at(const SubtreeStack::Subtree& subtree) const;
  bool are_zero(Context& ctx, const std::int32_t* words, std::int64_t count);
  [[nodiscard]] bool has_samples(Range parts) const;
  [[nodiscard]] nn::GradientTerms terms(Range parts) const;
  void find_bad_parts(Context& ctx);
  void find_non_finite(Context& ctx);
  [[nodiscard]] Matrix<float> logits(Range rows) const;

  const spec::Config& config_;
  const sharding::Routing& routing_;
  std::int64_t rank_;
  Range own_parts_;
  std::int64_t parts_total_;
  std::int64_t tasks_;
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<comm::OrderedAllReduce> all_reduce_;
  std::unique_ptr<comm::ReduceState> residuals_;
  std::string residual_layout_;
  Buffer params_, gradient_;
  std::unique_ptr<optim::DenseOptimizer> optimizer_;
  std::unique_ptr<optim::DenseState> state_;
  Buffer dense_, labels_, weights_, logits_, dlogits_, sequence_offsets_;
  std::vector<std::int64_t> host_offsets_;
  std::vector<std::vector<std::int64_t>> offsets_begin_;  // [slices][F]
  std::vector<std::vector<Range>> sequence_rows_;         // [slices][F]
  std::int64_t largest_ = 0;                              // samples of a slice of this batch
  std::vector<std::int64_t> largest_elements_;            // [F] of sequences, likewise
  std::vector<Part> parts_;                               // [own parts]
  std::vector<Slice> slices_;  // as many as a batch ever had; the first num_slices_ are this one's
  std::size_t num_slices_ = 0;
  std::vector<std::unique_ptr<nn::Lane>> lanes_;           // [kernels::slice_lanes()]
  std::vector<nn::SliceTerms*> terms_;                     // [slices]
  std::vector<std::span<nn::SliceTerms* const>> by_part_;  // [own parts]
  SubtreeStack subtrees_;  // of the own parts: which have been summed
  SubtreeNeeds needs_;
  std::int64_t most_parts_ = 0;         // of a partial sum
  Buffer waiting_;                      // [needs_.slots][n]
  std::vector<std::uint8_t> present_;   // of the partial sums
  std::vector<std::uint8_t> has_sums_;  // of the subtrees that are summed at once
  bool is_finite_ = true;               // all sums of the batch so far
  std::vector<float> scale_;            // [T]
  Buffer bad_rows_;  // [slices]: first whose loss or upstream gradient is not finite, or -1
  Buffer infinite_;  // [needs_.at_once][gradient tasks]: 1 where a sum is not finite
  std::vector<std::int64_t> host_bad_rows_;
  std::vector<std::int32_t> host_infinite_;
  Buffer totals_;  // [own parts][T]
  std::vector<metrics::BinarySums> sums_;
  std::vector<Range> part_rows_;  // [own parts]
  NonFinite non_finite_;
  Range positions_;
  std::vector<std::int64_t> sample_ids_;
};

}  // namespace weft::train
