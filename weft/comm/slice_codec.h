/// Private to comm/: slices of sums as encoded bytes (weft/kernels/codec.h), with what encoding
/// lost kept for the next time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/comm/ordered_reduce.h"
#include "weft/kernels/codec.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::comm {

/// A slice of n floats is encoded as one vector of n columns: its groups begin at its first float.
/// Blocks of whole groups are tasks of the pool, and no bit depends on how they are dealt out.
class SliceCodec {
 public:
  /// `scratch_bytes`: layout::ReduceBuffers::code_blocks.
  SliceCodec(const ReduceCodec& codec, Device& device, std::int64_t scratch_bytes);

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

  void decode(Context& ctx, std::span<const Target> slices) const;

  /// Since it was made. From any thread.
  [[nodiscard]] kernels::CodecClips clips() const;

 private:
  void encode_block(const Source& slice, std::int64_t block, float* scratch);
  void decode_block(const Target& slice, std::int64_t block) const;
  [[nodiscard]] std::int64_t blocks(std::int64_t floats) const;
  [[nodiscard]] Range block_floats(std::int64_t floats, std::int64_t block) const;
  template <typename Slices, typename Body>
  void for_blocks(Context& ctx, const Slices& slices, const Body& body) const;

  kernels::Codec codec_;
  bool feedback_;
  std::int64_t block_;        ///< floats, whole groups
  std::int64_t block_bytes_;  ///< encoded
  std::int64_t lanes_;        ///< tasks that may run at once
  Buffer scratch_;            ///< [lanes][block], with feedback
  std::atomic<std::int64_t> non_finite_ = 0;
  std::atomic<std::int64_t> clipped_ = 0;
};

}  // namespace weft::comm
