/// Sums over the global batch by the rule of parts (weft/base/parts.h, docs/numerics.md).
///
/// Notation: P parts, W ranks (W <= P), n numbers, k the maximal whole subtrees of a rank's run of
/// parts (1 where runs are aligned powers of two).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/base/host_layout.h"
#include "weft/base/parts.h"
#include "weft/comm/communicator.h"
#include "weft/kernels/codec.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::comm {

class SliceReduce;

/// How sums travel. Equal on all ranks.
struct ReduceCodec {
  kernels::Codec codec = {};
  bool error_feedback = false;
  Crossing crossing =
      Crossing::kDirect;  ///< between hosts, in the hierarchical form; decides no bit
};

/// Some columns of what encoding has lost, to be added before the next encoding: of partial sums
/// (those of all ranks are the rows of one matrix), or of the sums (one row). Device memory.
struct ResidualBlock {
  bool of_sums = false;
  std::int64_t rows = 0;  ///< of the whole matrix, which has `count` columns
  Range row_range;
  Range col_range;
  float* data = nullptr;
  std::int64_t stride = 0;  ///< floats
};

/// All-reduce of float[n] whose bits depend on P and the parts' values, and not on W, threads or
/// timing; with a codec on W too.
///
/// Each rank provides one float[n] per maximal whole subtree of its run of parts. run(): [0, n) is
/// cut into one slice per rank; everybody sends each slice of its partial sums to the slice's
/// owner, the owner adds them up the tree over parts (absent terms are skipped), and the sums are
/// gathered.
///
/// In the hierarchical form of the communicator a host adds up the partial sums of its ranks as far
/// as they make whole subtrees (k_A of them on host A), each slice at one rank of the host; these
/// go to the slice's owner, and its sum comes back to the same rank, which gives it to the host's
/// others. The bits are those of the flat form, as sums of whole subtrees are what the tree adds.
///
/// Copies: over `local` the owner adds from the others' memory and every sum is copied once, to
/// each other rank; over `mpi` partial sums are received first. With one rank nothing is copied by
/// the first form of run() and one pass by the second.
/// Flat: exchanges: 2. Messages per rank: 2 (W - 1). Bytes sent per rank: 4 n k (W - 1)/W for
/// partial sums, k (W - 1) for presence, 4 n (W - 1)/W for the sums: for k = 1 those of a ring
/// all-reduce. Hierarchical: 4, of which 2 inside hosts; between hosts 4 n (H - 1) + 4 Σ_A k_A (n -
/// n_A) bytes of all ranks together, flags apart: H hosts, n_A the slices that ranks of A own; 2 (g
/// - 1) + 2 (H - 1) messages per rank where all hosts have g ranks. Crossing::kRelayed: 6
/// exchanges, of which 4 inside hosts; the same bytes between hosts, inside them about k n / g more
/// of a relay, which it also holds; at most 4 (g - 1) + 2 ceil((H - 1) / g) messages. In the
/// communicator's traffic() all count as all_to_all. Memory: k n floats, t n/W with t <= the depth
/// of the tree over all ranks' partial sums (none for two of them), over `mpi` n/W per partial sum
/// of others. Allocates only in the constructor. Threads: as the communicator's. Errors: as the
/// communicator's. Source: the reduce-scatter/all-gather split of Rabenseifner, 2004, with a fixed
/// order of addition.
///
/// With a codec (weft/kernels/codec.h) other than fp32 and several ranks, a rank encodes the slices
/// of its partial sums for their owners; the owner decodes them, adds them to its own, which are as
/// they were, up the same tree, encodes the sum for all, and has itself what all decode. So a sum
/// has two roundings, whatever W is: with e the codec's error as a share of the largest magnitude
/// of a group (docs/codecs.md), of every partial sum from elsewhere at most e of its group's
/// largest, and e of the sum's. In the hierarchical form partial sums inside a host are added in
/// fp32 and those of hosts encoded: other bits than the flat form's. A slice is one vector to the
/// codec: groups begin at its first number. Bits depend on the codec, W and P (and on the hosts in
/// the hierarchical form), not on threads or timing.
/// Error feedback: what an encoding lost, the cut-off included, is added to what the same rank
/// encodes at the same place the next time, so that sums of many steps have the error of one. An
/// absent partial sum keeps its residual.
/// Bytes: b(c) for 4 c where what is sent is encoded, c its numbers (weft/cost/codec.h); the rest
/// as above. Memory, more: encoded what is sent, over `mpi` what is received, and n/W floats per
/// partial sum of others; with feedback k n + n/W floats and 16 KiB (or a group) per thread. Lists
/// of what is encoded grow in the first run().
class OrderedAllReduce {
 public:
  /// Collective in the sense that all ranks make it with the same parts, count and codec. The
  /// communicator and the device outlive it.
  OrderedAllReduce(Communicator& communicator,
                   Device& device,
                   std::int64_t parts,
                   std::int64_t count,
                   const ReduceCodec& codec = {});
  ~OrderedAllReduce();

  [[nodiscard]] std::int64_t count() const { return count_; }

  /// k, the number of partial sums of this rank.
  [[nodiscard]] std::int64_t num_partials() const {
    return static_cast<std::int64_t>(nodes_.size());
  }

  /// The run of parts that partial sum i covers.
  [[nodiscard]] Range partial_parts(std::int64_t i) const {
    return nodes_[static_cast<std::size_t>(i)];
  }

  /// Where this rank writes partial sum i, float[count], device memory. run() consumes it: the
  /// contents are undefined afterwards. It may lie elsewhere after keep_residuals().
  [[nodiscard]] float* partial(std::int64_t i) const;

  /// The sum, in partial(0) until the next step writes there. `present[i]` == 0: partial sum i has
  /// no term and is skipped; zeros where no rank has a term. Collective. Not with error feedback.
  const float* run(Context& ctx, std::span<const std::uint8_t> present);

  /// The same into `out`: float[count], outside the partial sums.
  void run(Context& ctx, std::span<const std::uint8_t> present, float* out);

  /// Of error feedback: makes what the last run() lost the residuals. Without this call they stay
  /// as they were before it, as for sums that are not used. Swaps pointers.
  void keep_residuals();

  /// This rank's residuals, valid until keep_residuals(); none without error feedback. Together
  /// those of all ranks cover both matrices once. Zeros at first, and where nothing is encoded.
  [[nodiscard]] std::vector<ResidualBlock> residuals() const;

  /// What this rank could not encode since the start. From any thread.
  [[nodiscard]] kernels::CodecClips clips() const;

 private:
  std::int64_t count_;
  bool has_feedback_ = false;
  std::vector<Range> nodes_;  ///< of this rank's partial sums
  Buffer partials_;           ///< [k][count]
  std::unique_ptr<SliceReduce> reduce_;
};

/// Sums of a few numbers per part (losses, metrics): `values` is [P][width], of which this rank has
/// filled the rows of its own parts; on return all rows are filled and `sums[j]` is column j added
/// up the tree. One all_gather of 8 width P/W bytes per rank. Host memory.
void all_reduce_parts(Context& ctx,
                      Communicator& communicator,
                      std::int64_t parts,
                      std::span<double> values,
                      std::span<double> sums);
void all_reduce_parts(Context& ctx,
                      Communicator& communicator,
                      std::int64_t parts,
                      std::span<std::int64_t> values,
                      std::span<std::int64_t> sums);

}  // namespace weft::comm
