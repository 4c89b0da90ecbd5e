/// Slices of sums as codes (codec.h), with what encoding loses kept for the next time.
///
/// A slice of n floats is encoded as one vector of n columns: its groups begin at its first float.
///   without residual   the code of values, which stay
///   with               values += residual; the code of values; values -= what the code decodes to
///
/// Ownership  values, residuals and codes are in memory of the context's device; jobs are the
///            caller's, and are read before a call returns. Jobs of one call write different
///            places.
/// Order      the bits of every device and number of threads are those of the plain loops.
/// Cost       reads and writes values once and reads residuals once: what lies between stays near.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/kernels/codec.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// A slice on its way out. The codec rounds to nearest.
struct SliceEncode {
  Codec codec;
  float* values = nullptr;          ///< with a residual what is lost is left here
  const float* residual = nullptr;  ///< null: none is added, and nothing is left
  std::int64_t count = 0;           ///< n
  std::byte* to = nullptr;          ///< [encoded_bytes(n)]
  float* decoded = nullptr;         ///< what the receivers will have; null: not wanted
  /// [1] what is clipped is added to it, atomically; null: nobody counts. The host and the device
  /// can both address it.
  CodecClips* clips = nullptr;
};

/// Encodes the slices of all jobs.
void encode_slices(Context& ctx, std::span<const SliceEncode> jobs);

/// Appends the jobs of decode() that read the code of a slice of `count` floats: it is cut at whole
/// groups, so that its parts can be decoded at once.
void add_slice_decodes(const Codec& codec,
                       const std::byte* from,
                       std::int64_t count,
                       float* values,
                       std::vector<DecodeJob>& jobs);

namespace cpu {
/// In one task pool.
void encode_slices(Context& ctx, std::span<const SliceEncode> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void encode_slices(Context& ctx, std::span<const SliceEncode> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void encode_slices(Context& ctx, std::span<const SliceEncode> jobs);
}  // namespace reference

}  // namespace weft::kernels
