/// Sums over the global batch by the rule of parts (weft/base/parts.h, docs/numerics.md).
///
/// Notation: P parts, W ranks (W <= P), n numbers, k the maximal whole subtrees of a rank's run of
/// parts (1 where runs are aligned powers of two).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/comm/communicator.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::comm {

/// All-reduce of float[n] whose bits depend on P and the parts' values, and not on W, threads or
/// timing.
///
/// Each rank provides one float[n] per maximal whole subtree of its run of parts. run(): [0, n) is
/// cut into one slice per rank; everybody sends each slice of its partial sums to the slice's
/// owner, the owner adds them up the tree over parts (absent terms are skipped), and the sums are
/// gathered.
///
/// Copies: over `local` the owner adds from the others' memory and every sum is copied once, to
/// each other rank; over `mpi` partial sums are received first. With one rank nothing is copied by
/// the first form of run() and one pass by the second.
/// Exchanges: 2. Messages per rank: 2 (W - 1). Bytes sent per rank: 4 n k (W - 1)/W for partial
/// sums, k (W - 1) for presence, 4 n (W - 1)/W for the sums: for k = 1 those of a ring all-reduce.
/// In the communicator's traffic() both count as all_to_all.
/// Memory: k n floats, t n/W with t <= the depth of the tree over all ranks' partial sums (none for
/// two of them), over `mpi` n/W per partial sum of others. Allocates only in the constructor.
/// Threads: as the communicator's. Errors: as the communicator's.
/// Source: the reduce-scatter/all-gather split of Rabenseifner, 2004, with a fixed order of
/// addition.
class OrderedAllReduce {
 public:
  /// Collective in the sense that all ranks make it with the same parts and count. The communicator
  /// and the device outlive it.
  OrderedAllReduce(Communicator& communicator,
                   Device& device,
                   std::int64_t parts,
                   std::int64_t count);

  [[nodiscard]] std::int64_t count() const { return count_; }

  /// k, the number of partial sums of this rank.
  [[nodiscard]] std::int64_t num_partials() const {
    return static_cast<std::int64_t>(own().nodes.size());
  }

  /// The run of parts that partial sum i covers.
  [[nodiscard]] Range partial_parts(std::int64_t i) const {
    return own().nodes[static_cast<std::size_t>(i)];
  }

  /// Where this rank writes partial sum i, float[count], device memory. run() consumes it: the
  /// contents are undefined afterwards.
  [[nodiscard]] float* partial(std::int64_t i) const { return partials_.as<float>() + i * count_; }

  /// The sum, in partial(0) until the next step writes there. `present[i]` == 0: partial sum i has
  /// no term and is skipped; zeros where no rank has a term. Collective.
  const float* run(Context& ctx, std::span<const std::uint8_t> present);

  /// The same into `out`: float[count], outside the partial sums.
  void run(Context& ctx, std::span<const std::uint8_t> present, float* out);

 private:
  /// A term of an addition: a partial sum's slice, or the sum of an earlier addition.
  struct Term {
    const float* row = nullptr;  ///< null: row `sum` of sums_
    std::int64_t sum = 0;
  };

  /// The last one's sum is the total.
  struct Add {
    std::int64_t sum;  ///< row of sums_
    Term a;
    Term b;
  };

  /// What one rank contributes.
  struct RankTerms {
    std::vector<Range> nodes;
    std::vector<std::uint8_t> present;  ///< where they are received, or this rank's own
    std::int64_t first_row = 0;         ///< in received_, of another rank
    const std::uint8_t* arrived_present = nullptr;
    std::span<const Piece> arrived;  ///< slices of the partial sums, behind the flags; not own
  };

  [[nodiscard]] const RankTerms& own() const {
    return ranks_[static_cast<std::size_t>(communicator_.rank())];
  }

  /// Where this rank's slice of partial sum i of `rank` lies.
  [[nodiscard]] const float* row(std::size_t rank, std::size_t i) const;

  void describe_lanes();
  void note_arrived(std::span<const Lane> arrived);
  Term plan_adds();
  [[nodiscard]] std::int64_t count_sums();
  void add_block(Range block, const Term& total, float* out);
  void gather_sums(Context& ctx, float* out);

  Communicator& communicator_;
  std::int64_t parts_;
  std::int64_t count_;
  Range slice_;  ///< of [0, count), this rank's
  std::vector<RankTerms> ranks_;
  Buffer partials_;  ///< [k][count]
  Buffer received_;  ///< [partial sums of other ranks][slice], where not lent
  Buffer sums_;      ///< [t][slice] sums on the way up the tree
  std::vector<Add> adds_;
  std::vector<Term> slots_;  ///< what a tree slot holds
  std::vector<Piece> send_pieces_;
  std::vector<Piece> recv_pieces_;
  std::vector<Lane> send_;
  std::vector<Lane> recv_;
  std::vector<Piece> gather_pieces_;
  std::vector<Lane> gather_send_;
  std::vector<Lane> gather_recv_;
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
