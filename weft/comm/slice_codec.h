/// Private to comm/: slices of sums as encoded bytes (weft/kernels/slice_codes.h), with what
/// encoding lost kept for the next time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/comm/ordered_reduce.h"
#include "weft/kernels/codec.h"
#include "weft/kernels/slice_codes.h"
#include "weft/tensor/device.h"

namespace weft::comm {

/// The codec of a reduction and its jobs. One operation a call; no bit depends on its tasks.
class SliceCodec {
 public:
  explicit SliceCodec(const ReduceCodec& codec)
      : codec_(codec.codec), feedback_(codec.error_feedback) {}

  [[nodiscard]] bool has_feedback() const { return feedback_; }

  /// Of a slice.
  [[nodiscard]] std::int64_t bytes(std::int64_t floats) const;

  /// What is encoded is values, or with `residual` values + residual; then values becomes what the
  /// code lost of it.
  struct Source {
    float* values = nullptr;
    const float* residual = nullptr;
    std::int64_t count = 0;
    std::byte* to = nullptr;
    float* decoded = nullptr;  ///< what the receivers will have; null: not wanted
  };

  void encode(Context& ctx, std::span<const Source> slices);

  struct Target {
    const std::byte* from = nullptr;
    std::int64_t count = 0;
    float* values = nullptr;
  };

  void decode(Context& ctx, std::span<const Target> slices);

  /// Since it was made. From any thread.
  [[nodiscard]] kernels::CodecClips clips() const;

 private:
  kernels::Codec codec_;
  bool feedback_;
  kernels::CodecClips clips_;  // added to atomically
  std::vector<kernels::SliceEncode> encodes_;
  std::vector<kernels::DecodeJob> decodes_;
};

}  // namespace weft::comm
