/// Bytes of encoded vectors and of packed rows on the wire, seconds of encoding and decoding
/// vectors, and what encoding and decoding slices of sums moves.
///
/// C columns in groups of G from column 0, the last one ragged:
///   fp32 4 C   fp16, bf16 2 C   fp8_*, int8 n + 2 per group of n   int4 ceil(n/2) + 2
/// To the byte what weft/kernels/codec.h makes, which nothing here links.
///
/// Seconds are those of the bytes of both sides, 4 C and the encoded ones, at the rate of a copy,
/// by which rounding to nearest is bound (weft/kernels/codec.h, "Cost"). What lies in caches is
/// encoded as fast as that, not faster. Stochastic rounding adds its draws to encoding
/// (rounding.h).
///
/// Packed rows (weft/kernels/packed_ids.h) take what their differences say, so this is what they
/// take on average. Of n rows out of R, drawn evenly, a difference is m or less with probability
/// 1 - (1 - n/R)^m; a block of k has F + 1 bytes, F of an id, and k - 1 differences in as many bits
/// as the largest of them takes. All functions are pure.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/codec_format.h"
#include "weft/base/host_layout.h"
#include "weft/layout/reduce.h"
#include "weft/spec/config.h"
#include "weft/topology/cluster.h"

namespace weft::cost {

/// Vectors of one direction. fp32 takes no time, as nothing is encoded.
struct CodecWork {
  CodecFormat format = CodecFormat::kFp32;
  std::int64_t group = 128;
  std::int64_t cols = 0;
  double vectors = 0.0;
  CodecRounding rounding = CodecRounding::kNearest;
};

/// Returns the seconds that a rank takes to encode, or to decode, the vectors of `work`: 0 for fp32
/// and without columns. Stochastic rounding counts in encode_s() alone.
double encode_s(const topology::Cluster& cluster, const CodecWork& work);
double decode_s(const topology::Cluster& cluster, const CodecWork& work);

/// `count` of `rows` rows that follow each other, all as likely. Requires count <= rows.
struct DrawnRows {
  double rows = 0.0;
  double count = 0.0;
};

/// Expected bytes of one ascending list of rows of `id_bytes`, `drawn` in the order of rows.
/// Exact where all rows are in it; within a few percent otherwise (tests/cost/codec_test.cc).
double packed_id_bytes(std::span<const DrawnRows> drawn, double id_bytes);

/// How slices of sums travel, each encoded as one vector, rounded to nearest.
struct ReduceWire {
  CodecFormat format = CodecFormat::kFp32;
  std::int64_t group = 128;
  bool error_feedback = false;
  Crossing crossing = Crossing::kDirect;  ///< between hosts that add up

  [[nodiscard]] bool is_coded() const { return format != CodecFormat::kFp32; }

  /// Of a slice of `floats`, which may be none.
  [[nodiscard]] std::int64_t bytes(std::int64_t floats) const {
    return layout::code_bytes(format, group, floats);
  }

  /// Bytes read and written by encoding slices of `floats`, which take `bytes` encoded: both, and
  /// with error feedback also the residuals, and the numbers once more, as they become what is
  /// lost. Blocks of 16 KiB stay near in between (weft/kernels/slice_codes.h).
  [[nodiscard]] double encoding_bytes(double floats, double bytes) const {
    return is_coded() ? (error_feedback ? 12.0 : 4.0) * floats + bytes : 0.0;
  }

  /// The same of decoding.
  [[nodiscard]] double decoding_bytes(double floats, double bytes) const {
    return is_coded() ? 4.0 * floats + bytes : 0.0;
  }

  /// Of the owner's sum, which it also decodes for itself.
  [[nodiscard]] double total_bytes(double floats, double bytes) const {
    return is_coded() ? encoding_bytes(floats, bytes) + 4.0 * floats : 0.0;
  }
};

}  // namespace weft::cost
