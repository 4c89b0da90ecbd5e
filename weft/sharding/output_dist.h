/// Output dist and grad dist: vectors travel from the ranks that serve slots to the ranks whose
/// samples asked, and gradients travel back over the same layout.
///
/// Paths      where a slot's vectors are written, how they are assembled and where its gradients
/// lie
///            is its path's (paths/slot_path.h); here are the exchanges, and in
///            vector_layout.h the layout of their buffers.
/// Layout     between two ranks, slot after slot in the server's order; per slot one fp32 vector of
///            the shard's columns for each non-empty bag, id of a sequence, or unique row.
/// Copies     of a vector or gradient from another rank: over `local` one, from where it was
/// written
///            to where it is needed; over `mpi` one at each end of the message that has rows.
/// Means      vectors are divided by the bag's length here, after the sum; gradients before they
///            leave, in the gradient matrix or in a copy (GradientUse). Empty bags give zeros.
/// Codecs     where one is configured, every vector of a slot, and every gradient of one, is
/// encoded
///            where it is made and decoded where it is needed (vector_wire.h), also what a rank
///            serves for itself. Partial sums of bags and of row gradients are encoded as they are,
///            and added in fp32. Means are divided after decoding, their gradients before encoding.
///            data_parallel tables are not encoded. fp32 does nothing of this.
/// Bytes      per rank, forward: 4·D per vector asked of others, or kernels::encoded_bytes();
///            backward the same.
/// State      an OutputDist is const; what a batch has in flight is in an OutputStep.
/// Threads    tasks of runs of bags on the context's pool; exchanges of different steps share a
///            communicator and run one at a time. Nothing is allocated once the longest batch has
///            been seen.
/// Source     ZionEX (arXiv 2104.05158) section 4; row_wise without the dense reduce-scatter as in
///            the sparse all-to-all of CPU submissions to MLPerf DLRM-DCNv2.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/sharding/batch_matrices.h"
#include "weft/sharding/input_step.h"
#include "weft/sharding/output_step.h"
#include "weft/sharding/paths/paths.h"
#include "weft/sharding/vector_layout.h"
#include "weft/spec/config.h"

namespace weft::sharding {

/// Moves vectors to the samples and gradients back. A step calls prepare(), forward() and, in a
/// training, backward(); the last two are collective over the constructor's `comm`.
class OutputDist {
 public:
  /// All outlive it.
  OutputDist(const Paths& paths, comm::Communicator& comm);

  /// Returns memory for one batch, with `shared` as in BatchMatrices.
  [[nodiscard]] std::unique_ptr<OutputStep> make_step(const spec::Config& config,
                                                      Device& device,
                                                      const SparseStepOptions& options,
                                                      const BatchMatrices* shared) const;

  /// Sizes every buffer for the batch of `input`. Call once per step, after exchange_ids.
  void prepare(const InputStep& input, OutputStep& step) const;

  /// Where vectors and gradients of a slot lie, at the rank that serves it.
  [[nodiscard]] const VectorLayout& layout() const { return layout_; }

  /// Sends a micro-batch's vectors to their samples and assembles the outputs. Micro-batches go in
  /// their order.
  void forward(Context& ctx, const InputStep& input, OutputStep& step, std::int64_t cut) const;

  /// Sorts what gradients will be summed from before they travel. May be left out: backward() then
  /// does it.
  void coalesce(Context& ctx, const InputStep& input, OutputStep& step) const;

  /// Divides gradients of means of a micro-batch, and sends its gradients to the servers. The last
  /// one's come after those of all others.
  void backward(Context& ctx, const InputStep& input, OutputStep& step, std::int64_t cut) const;

  /// Fills all buffers with zeros where prepare() has made one larger, for steps that leave stages
  /// out: what no stage wrote is then the same on every run, and a number. Call after prepare().
  static void clear_grown(Context& ctx, OutputStep& step);

 private:
  void list_whole_runs(OutputStep& step) const;
  void list_cut_runs(const InputStep& input, OutputStep& step, std::int64_t cut) const;
  void note_arrivals(const InputStep& input,
                     OutputStep& step,
                     std::int64_t cut,
                     std::span<const comm::Lane> arrived) const;
  void exchange_vectors(Context& ctx,
                        const InputStep& input,
                        OutputStep& step,
                        std::int64_t cut) const;
  void exchange_encoded_vectors(Context& ctx,
                                const InputStep& input,
                                OutputStep& step,
                                std::int64_t cut) const;
  void add_served_vectors(const InputStep& input,
                          OutputStep& step,
                          const ServedBlock& of,
                          std::int64_t cut) const;
  void add_asked_vectors(const InputStep& input,
                         OutputStep& step,
                         const SlotAddress& address,
                         std::int64_t place,
                         std::int64_t cut) const;
  void assemble(Context& ctx, const InputStep& input, OutputStep& step, std::int64_t cut) const;
  void list_copies(const InputStep& input,
                   OutputStep& step,
                   const VectorWork::One& work,
                   std::int64_t cut) const;
  [[nodiscard]] Range rows_of(const InputStep& input, std::int64_t feature, std::int64_t cut) const;
  void change_gradients(Context& ctx,
                        const InputStep& input,
                        OutputStep& step,
                        std::int64_t cut) const;
  const VectorPlace& gradients_of(OutputStep& step, std::size_t kind) const;
  void exchange_gradients(Context& ctx,
                          const InputStep& input,
                          OutputStep& step,
                          std::int64_t cut) const;
  void exchange_encoded_gradients(Context& ctx,
                                  const InputStep& input,
                                  OutputStep& step,
                                  std::int64_t cut) const;
  template <typename Visit>
  void for_asked(const InputStep& input, std::int64_t server, const Visit& visit) const;

  const Paths& paths_;
  const Routing& routing_;
  comm::Communicator& comm_;
  std::int64_t rank_;
  VectorLayout layout_;
  VectorWork work_;
  std::vector<std::int64_t> means_;  // features
};

}  // namespace weft::sharding
