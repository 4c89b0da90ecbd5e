/// Embedding lookup: pooled sums of rows, or copies of rows, of all tables in one call.
///
/// Pooled, unweighted: out[b] = row(id_0) + row(id_1) + ...; weighted: w_0·row(id_0) + ..., each
/// product rounded to fp32, then added. Always in the order of the bag, in fp32, without fused
/// multiply-add: every target, every device and the plain loops give the same bits. An empty bag
/// gives zeros.
/// Rows of split_bf16 are read as bf16: their high halves, rounded to nearest.
/// REQUIRES: ids are slots of the store (weft/storage/row_store.h, resolve()); in a store that
/// holds all rows in their order a row's slot is its number. They lie inside the store
/// (validate_ids() checks it). Outputs of different lookups do not overlap.
/// Ownership: pointers are to memory of the context's device; the jobs are the caller's, and are
/// read before the call returns.
/// Cost: reads cols · 4 bytes per id, or · 2 for 16-bit rows and high halves, from random rows;
/// upcoming rows are prefetched. What a call writes beyond 2 MiB is written past the caches.
#pragma once

#include <cstdint>
#include <span>

#include "weft/kernels/rows.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// One lookup: bags, the rows that their ids name, and the place of the results, one row per bag,
/// or per id where nothing is pooled.
struct BagLookup {
  const void* weights = nullptr;   ///< of slot 0; the high halves of split_bf16
  std::int64_t weight_stride = 0;  ///< bytes
  DType dtype = DType::kFloat32;
  std::int64_t cols = 0;
  Bags bags;
  bool pooled = true;  ///< false: one output row per id, at its place counted from offsets[0]
  float* out = nullptr;
  std::int64_t out_stride = 0;  ///< elements
  /// [results] in place of the stride: where each one begins, in elements from `out`; or null.
  const std::int64_t* places = nullptr;
};

/// All lookups, on the context's device.
void embedding_bag(Context& ctx, std::span<const BagLookup> lookups);

/// Throws Error(kData) naming `what`, the first bad place and value where an id is not in
/// [0, rows). For tests and for callers that take ids from outside.
void validate_ids(const Bags& bags, std::int64_t rows, const char* what);

namespace cpu {
/// In one task pool, cut by bags and their lengths.
void embedding_bag(Context& ctx, std::span<const BagLookup> lookups);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void embedding_bag(Context& ctx, std::span<const BagLookup> lookups);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void embedding_bag(Context& ctx, std::span<const BagLookup> lookups);
}  // namespace reference

}  // namespace weft::kernels
