/// Codecs: vectors of fp32 as fewer bytes for the way between two ranks, and back.
///
/// A vector of C columns is cut into groups of G columns from its column 0, the last one ragged; an
/// encoded vector is its encoded groups, one behind the other, and encoded vectors follow each
/// other without gaps. Formats without a scale have one group. Little-endian, nothing is aligned.
/// What is in a group, and how far a code may be off, stands with the formats in
/// weft/base/codec_format.h.
///
/// Scale      s = max |x| / largest code, rounded up to bf16, in [2^-126, what keeps s · largest
///            code finite]; x' = code · s, which is exact. 2 bytes and not 4 because half a step
///            grows by 2^-7 of itself only; not the 1 byte of a power of two, because that would
///            cost integer codes up to half of their range, and fp16 has not the exponents of
///            gradients. Groups below 2^-126 · largest code have the steps of
///            that scale.
/// Rounding   to nearest, ties to even; or stochastic: up as often as the dropped fraction says (in
///            16 bits of it, 12 for fp16), what is representable unchanged. Column c draws word
///            (c mod 4) of Philox(key; draw, step · 2^20 + c/4), c counted in the logical row.
/// Limits     A finite number stays finite: too large ones are cut off and counted. A non-finite
///            one is counted and stays non-finite where it was: as itself in formats that have
///            infinities, as NaN in the others. fp32 is copied, uncounted.
/// Monotone   inside a group, when rounding to nearest.
/// Order      every number by itself, the maximum does not depend on an order: equal bits on every
///            target and for any cut into tasks.
/// Ownership  vectors and codes are in memory of the context's device. Lists of rows, and what
///            draws are made of, are host memory where they come with a batch's ids
///            (docs/adr/0005-ids-in-host-memory.md), else the device's; a device that cannot
///            address the host's takes a copy. Jobs are the caller's, and are read before a call
///            returns. Jobs of one call write different places.
/// Errors     encode() and decode() of any bytes and floats have none: what was changed on the way
///            decodes to other numbers.
/// Cost       bound by memory: 4 bytes and the encoded ones per column (bench/codec_bench.cc);
///            stochastic 5 to 10 times as much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/base/codec_format.h"
#include "weft/kernels/vector_draws.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// How vectors are encoded. Sender and receiver have the same.
struct Codec {
  CodecFormat format = CodecFormat::kFp32;
  std::int64_t group = 128;  ///< G, at least 1
  CodecRounding rounding = CodecRounding::kNearest;
};

/// Bytes of a vector of `cols` columns.
inline std::int64_t encoded_bytes(const Codec& codec, std::int64_t cols) {
  return weft::encoded_bytes(codec.format, codec.group, cols);
}

/// Counts of values that an encoder clipped or found non-finite.
struct CodecClips {
  std::int64_t non_finite = 0;
  std::int64_t clipped = 0;  ///< finite, cut off at the largest number

  CodecClips& operator+=(const CodecClips& other) {
    non_finite += other.non_finite;
    clipped += other.clipped;
    return *this;
  }

  friend bool operator==(const CodecClips&, const CodecClips&) = default;
};

/// Whose random words a vector gets; of stochastic rounding alone.
struct CodecDraws {
  std::uint64_t key = 0;
  std::uint64_t step = 0;
  const std::int64_t* numbers = nullptr;  ///< [vectors] the draw of each; null: made by `vectors`
  std::int64_t first_col = 0;             ///< of column 0 in the logical row, a multiple of 4
  VectorDraws vectors = {};               ///< of kNone all draws are 0
};

/// Vector i is read at vectors + (rows ? rows[i] : i) · stride, and written behind vector i - 1.
struct EncodeJob {
  Codec codec = {};
  const float* vectors = nullptr;
  std::int64_t stride = 0;             ///< elements
  const std::int32_t* rows = nullptr;  ///< gathers; null: in order
  std::int64_t count = 0;              ///< of vectors
  std::int64_t cols = 0;
  std::byte* to = nullptr;  ///< of vector 0
  CodecDraws draws = {};
  /// [1] what is lost is added to it, atomically; null: nobody counts. The host and the device can
  /// both address it.
  CodecClips* clips = nullptr;
};

/// The other way; `rows` scatters.
struct DecodeJob {
  Codec codec = {};
  const std::byte* from = nullptr;
  float* vectors = nullptr;
  std::int64_t stride = 0;
  const std::int32_t* rows = nullptr;
  std::int64_t count = 0;
  std::int64_t cols = 0;
};

/// Encodes the vectors of all jobs.
void encode(Context& ctx, std::span<const EncodeJob> jobs);

/// Decodes the vectors of all jobs.
void decode(Context& ctx, std::span<const DecodeJob> jobs);

namespace cpu {
/// In one task pool.
void encode(Context& ctx, std::span<const EncodeJob> jobs);
void decode(Context& ctx, std::span<const DecodeJob> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void encode(Context& ctx, std::span<const EncodeJob> jobs);
void decode(Context& ctx, std::span<const DecodeJob> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void encode(Context& ctx, std::span<const EncodeJob> jobs);
void decode(Context& ctx, std::span<const DecodeJob> jobs);
}  // namespace reference

}  // namespace weft::kernels
