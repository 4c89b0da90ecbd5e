/// Assembly of bags at the rank of the sample: vectors that have come for bags go to their places
/// in a matrix, partial sums of one bag are added, and means are divided. fp32 throughout.
///
/// A block here is a run of bags, and a caller cuts a batch into blocks by its shape alone; blocks
/// write different rows. Determinism: the partial sums of a bag go up the tree over the numbers of
/// their cuts (base/parts.h), absent ones skipped, so a bag of one cut keeps its bits. Cost: reads
/// and writes every vector once.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/parts.h"

namespace weft::kernels {

/// Some columns of a row-major matrix: row i begins at data + i * stride (elements).
struct VectorRows {
  float* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t cols = 0;
};

/// The bag of each of `count` vectors, ascending; null: vector i is bag i's.
struct BagRows {
  const std::int32_t* rows = nullptr;
  std::int64_t count = 0;
};

/// Copies the vectors of `bags`, which lie behind each other at `from`, to their rows, and zeros to
/// bags without one.
void copy_bags(const float* from, const BagRows& of, Range bags, const VectorRows& to);

/// Writes zeros to those of `bags` that have no vector.
void clear_other_bags(const BagRows& of, Range bags, const VectorRows& to);

/// Copies `vectors`, which lie behind each other at `from`, to rows[i], or i where that is null.
void copy_vectors(const float* from, const std::int32_t* rows, Range vectors, const VectorRows& to);

/// Divides the rows of `bags` by the bags' lengths where these are above 1; offsets [bags + 1].
void divide_by_lengths(std::span<const std::int64_t> offsets, Range bags, const VectorRows& rows);

/// The partial sums that one cut of a table's rows has made of bags.
struct PartialSumsOfBags {
  const float* vectors = nullptr;
  std::int64_t stride = 0;             ///< elements
  const std::int32_t* bags = nullptr;  ///< of each vector, ascending
  std::int64_t next = 0;               ///< the first of the block's bags
  std::int64_t end = 0;
};

inline constexpr std::int64_t kMostBagsOfPartialSums = 128;  ///< of a block

/// What a block that adds partial sums works with.
struct PartialSumsScratch {
  std::span<PartialSumsOfBags> cuts;
  std::span<const float*> terms;  ///< [kMostBagsOfPartialSums][cuts], where a bag has several
  float* sums = nullptr;          ///< [tree_slots(cuts)][columns]
};

/// Writes the sum of each of `bags` to its row, zeros to bags that no cut has. REQUIRES:
/// bags.size()
/// <= kMostBagsOfPartialSums.
void add_partial_sums(const PartialSumsScratch& scratch, Range bags, const VectorRows& to);

}  // namespace weft::kernels
