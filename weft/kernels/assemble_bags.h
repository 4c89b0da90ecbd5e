/// Assembly of bags at the rank of the sample: vectors that have come for bags go to their places
/// in a matrix, partial sums of one bag are added, and means are divided. fp32 throughout.
///
/// Order      the partial sums of a bag go up the tree over the numbers of their cuts
///            (base/parts.h), absent ones skipped, so a bag of one cut keeps its bits; then a mean
///            is divided. Bits are those of the plain loops on every device and for any cut into
///            tasks.
/// Ownership  matrices and vectors are in memory of the context's device. Lists of bags and offsets
///            are host memory, as the ids that they come with
///            (docs/adr/0005-ids-in-host-memory.md); a device that cannot address it takes a copy.
///            Jobs and their lists are the caller's, and are read before a call returns. Jobs of
///            one call write different places.
/// Cost       reads and writes every vector once, whatever the number of cuts; where terms are not
///            listed, besides looks into every cut per 128 bags.
#pragma once

#include <cstdint>
#include <span>

#include "weft/tensor/device.h"

namespace weft::kernels {

/// Some columns of a row-major matrix: row i begins at data + i * stride (elements).
struct VectorRows {
  float* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t cols = 0;
};

/// Vectors that have come for bags.
struct BagVectors {
  const float* vectors = nullptr;      ///< null: they lie in their rows already
  std::int64_t stride = 0;             ///< elements
  const std::int32_t* bags = nullptr;  ///< the bag of each; null: vector i is bag i's
  std::int64_t count = 0;
};

/// A partial sum of a bag.
struct BagTerm {
  std::int32_t cut = 0;
  std::int32_t vector = 0;  ///< number among those of the cut
};

/// The partial sums of each bag: of bag b terms[begins[b]] to terms[begins[b + 1]], cuts ascending.
struct BagTerms {
  const std::int32_t* begins = nullptr;  ///< by bag, and one more
  const BagTerm* terms = nullptr;
};

/// Rows of a matrix, one a bag, and what they are made of.
struct BagAssembly {
  /// What becomes of a bag that no vector is for.
  enum class Others : std::uint8_t { kZeros, kKept };

  VectorRows to;
  std::int64_t bags = 0;   ///< to be made,
  std::int64_t first = 0;  ///< from this one on: only vectors of these are read
  /// By cut of a table's rows; a bag gets the sum of what they have for it. None: rows have their
  /// sums already. Of several, all have vectors.
  std::span<const BagVectors> cuts = {};
  BagTerms terms = {};  ///< of several cuts; null: the cuts are looked through
  /// [cuts] where only some of a table's cuts are given, and terms: the number of each among all,
  /// ascending; null: the k-th has number k. Terms count the given ones.
  const std::int32_t* cut_numbers = nullptr;
  /// kKept: there is one cut, and its bags differ but need not ascend; else they ascend.
  Others others = Others::kZeros;
  /// By bag, and one more: a row is divided by the length of its bag where that is above 1; null:
  /// it is not. Only with kZeros.
  const std::int64_t* offsets = nullptr;
};

/// Makes the rows of all jobs.
void assemble_bags(Context& ctx, std::span<const BagAssembly> jobs);

namespace cpu {
/// In one task pool. Jobs that follow each other and have as many bags, columns of one matrix as a
/// rule, are cut into runs of bags together, so that a task writes whole lines of the matrix.
void assemble_bags(Context& ctx, std::span<const BagAssembly> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void assemble_bags(Context& ctx, std::span<const BagAssembly> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void assemble_bags(Context& ctx, std::span<const BagAssembly> jobs);
}  // namespace reference

}  // namespace weft::kernels
