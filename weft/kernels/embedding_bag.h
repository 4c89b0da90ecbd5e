/// Embedding lookup: pooled sums of rows, or copies of rows.
///
/// Pooled, unweighted: out[b] = row(id_0) + row(id_1) + ...; weighted: w_0·row(id_0) + ..., each
/// product rounded to fp32, then added. Always in the order of the bag, in fp32, without fused
/// multiply-add: every target and the plain loops give the same bits. An empty bag gives zeros.
/// Precondition: ids lie inside the rows (validate_ids() checks it).
/// Rows of split_bf16 are read as bf16: their high halves, rounded to nearest.
/// Cost: reads cols · 4 bytes per id, or · 2 for 16-bit rows and high halves, from random rows;
/// upcoming rows are prefetched.
#pragma once

#include <cstdint>
#include <span>

#include "weft/kernels/rows.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// Whether the results of a call stay in the caches near a core until they are used. Those that
/// do not are written past them. Changes no bit.
enum class Output : std::uint8_t { kNear, kFar };

/// Says where the results of a call that writes `bytes` in all are to go.
Output output_of(std::int64_t bytes);

/// One lookup: bags, the rows that their ids name, and the place of the results, one row per bag,
/// or per id where nothing is pooled.
struct BagLookup {
  const void* weights = nullptr;   ///< of row 0; the high halves of split_bf16
  std::int64_t weight_stride = 0;  ///< bytes
  DType dtype = DType::kFloat32;
  std::int64_t cols = 0;
  Bags bags;
  bool pooled = true;  ///< false: one output row per id, at its place counted from offsets[0]
  float* out = nullptr;
  std::int64_t out_stride = 0;  ///< elements
  Output output = Output::kNear;
};

/// Number of tasks a lookup is cut into: by its bags and their lengths only.
std::int64_t embedding_bag_blocks(const BagLookup& lookup);

/// Runs task `block` of it.
void embedding_bag_block(const BagLookup& lookup, std::int64_t block);

/// All lookups in one task pool.
void embedding_bag(Context& ctx, std::span<const BagLookup> lookups);

/// Throws Error(kData) naming `what`, the first bad place and value where an id is not in
/// [0, rows). For tests and for callers that take ids from outside.
void validate_ids(const Bags& bags, std::int64_t rows, const char* what);

namespace reference {
/// The same in plain loops on the calling thread, with the same bits: for tests.
void embedding_bag(std::span<const BagLookup> lookups);
}  // namespace reference

}  // namespace weft::kernels
