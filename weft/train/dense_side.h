/// DenseSide: what an Engine asks of the model on top of the embeddings. DensePass is Weft's own;
/// another one may stand here (EngineOptions::make_dense).
///
/// A step calls load(), then forward() for each micro-batch, or forward_backward() for each,
/// weight_gradients() of the last, reduce() and update(), in this order; weight_gradients() of
/// micro-batches that have been computed may come in between. With debug.skip: dense neither
/// forward_backward() nor weight_gradients() is called: reduce() then moves its bytes, of no term.
/// Each is the body of a stage; reduce()
/// may run beside the embeddings' backward and beside load() of the next batch, and weight_sums()
/// beside any stage. Two batches are never computed at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/data/batch.h"
#include "weft/kernels/codec.h"
#include "weft/metrics/binary.h"
#include "weft/optim/dense.h"
#include "weft/sharding/output_dist.h"
#include "weft/tensor/device.h"
#include "weft/tensor/state.h"
#include "weft/train/step_report.h"

namespace weft::train {

/// Whether what a codec has lost is taken over from a checkpoint.
enum class Residuals : std::uint8_t { kRestored, kDropped };

/// The parameter's name of the residuals of the dense gradients' codec.
inline constexpr const char* kResidualParameter = "codecs.dense";

class DenseSide {
 public:
  virtual ~DenseSide() = default;

  /// Sums of label weights of this rank's parts of `batch` to `sums` [own parts][T], in the order
  /// of samples. Host memory, called by the thread that begins a step.
  virtual void weight_sums(const data::Batch& batch, std::vector<double>& sums) const = 0;

  /// Takes the batch's dense values and labels, and the vectors to read and gradients to fill: they
  /// stay where they are until the step's update.
  virtual void load(Context& ctx,
                    const data::Batch& batch,
                    const sharding::FeatureMatrices& vectors,
                    const sharding::FeatureMatrices& gradients) = 0;

  /// Computes logits and metric sums of a micro-batch of the loaded batch. They go in their order.
  virtual void forward(Context& ctx, std::int64_t cut) = 0;

  /// forward(), loss, and the backward pass to the model's inputs: fills the micro-batch's rows of
  /// the gradients given to load(). The loss of task t divides by global_weights[t], those of the
  /// whole batch.
  virtual void forward_backward(Context& ctx,
                                std::span<const double> global_weights,
                                std::int64_t cut) = 0;

  /// Adds the parameters' gradients of the micro-batches up to `cut` to this rank's sums, those
  /// that have not been added: after that of the last one the sums are complete. They are the same
  /// whichever calls there were.
  virtual void weight_gradients(Context& ctx, std::int64_t cut) = 0;

  /// The first sample of this rank that is not finite, in the last batch whose sums are complete.
  [[nodiscard]] virtual const NonFinite& non_finite() const = 0;

  /// Metric sums of the parts of the batch, [own parts][T], once all have been computed.
  [[nodiscard]] virtual const std::vector<metrics::BinarySums>& sums() const = 0;

  /// Copies the logits [B, T] of the batch to host memory, likewise.
  virtual void read_logits(Context& ctx, std::vector<float>& out) const = 0;

  /// Sums the parameters' gradients over all ranks. Collective.
  virtual void reduce(Context& ctx) = 0;

  /// Optimizer step; nothing changes when the summed gradient is not finite.
  virtual optim::DenseStep update(Context& ctx, double lr_factor, std::int64_t step) = 0;

  /// Values of gradients that this rank's codec has clipped or found non-finite since the start.
  /// From any thread.
  [[nodiscard]] virtual kernels::CodecClips codec_clips() const = 0;

  /// Appends all state that is saved, hashed and compared.
  virtual void list_sources(std::vector<const StateSource*>& out) const = 0;

  /// Appends the same, to be written; what codecs have lost only if it is restored.
  virtual void list_sinks(Residuals residuals, std::vector<StateSink*>& out) = 0;

  /// What the residuals belong to, equal on all ranks; empty where there are none.
  [[nodiscard]] virtual const std::string& residual_layout() const = 0;

  /// Name of the parameter that has the value `index`, for messages.
  [[nodiscard]] virtual std::string parameter_of(std::int64_t index) const = 0;
};

}  // namespace weft::train
