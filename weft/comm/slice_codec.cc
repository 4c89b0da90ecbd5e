#include "weft/comm/slice_codec.h"

#include <algorithm>

#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"
#include "weft/kernels/cpu/codec_range.h"
#include "weft/layout/reduce.h"

namespace weft::comm {

SliceCodec::SliceCodec(const ReduceCodec& codec, Device& device, std::int64_t scratch_bytes)
    : codec_(codec.codec),
      feedback_(codec.error_feedback),
      block_(layout::code_block_floats(codec_.format, codec_.group)),
      block_bytes_(kernels::encoded_bytes(codec_, block_)),
      lanes_(device.pool().threads()),
      scratch_(device, scratch_bytes) {
}

std::int64_t SliceCodec::bytes(std::int64_t floats) const {
  return layout::code_bytes(codec_.format, codec_.group, floats);
}

std::int64_t SliceCodec::blocks(std::int64_t floats) const {
  return (floats + block_ - 1) / block_;
}

Range SliceCodec::block_floats(std::int64_t floats, std::int64_t block) const {
  return {block * block_, std::min(floats, (block + 1) * block_)};
}

/// Calls body(slice, block, lane) for all blocks of all slices; what has one lane runs at one time
/// after the other.
template <typename Slices, typename Body>
void SliceCodec::for_blocks(Context& ctx, const Slices& slices, const Body& body) const {
  std::int64_t all = 0;
  for (const auto& slice : slices) {
    all += blocks(slice.count);
  }
  const std::int64_t lanes = std::min(all, ctx.pool == nullptr ? 1 : lanes_);
  const auto run = [&](std::int64_t lane) {
    const Range own = piece(all, lanes, lane);
    std::int64_t first = 0;  // block of a slice
    for (const auto& slice : slices) {
      const std::int64_t end = first + blocks(slice.count);
      for (std::int64_t i = std::max(first, own.begin); i < std::min(end, own.end); ++i) {
        body(slice, i - first, lane);
      }
      first = end;
    }
  };
  if (lanes > 1) {
    ctx.pool->parallel_for(lanes, run);
  } else if (lanes == 1) {
    run(0);
  }
}

void SliceCodec::encode_block(const Source& slice, std::int64_t block, float* scratch) {
  const Range range = block_floats(slice.count, block);
  const std::int64_t count = range.size();
  float* const values = slice.values + range.begin;
  std::byte* const to = slice.to + block * block_bytes_;
  if (slice.residual != nullptr) {
    const float* const residual = slice.residual + range.begin;
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] += residual[i];
    }
  }
  const kernels::CodecClips lost = kernels::cpu::encode_range(
      {.codec = codec_, .vectors = values, .stride = count, .cols = count, .to = to}, {0, 1});
  non_finite_.fetch_add(lost.non_finite, std::memory_order_relaxed);
  clipped_.fetch_add(lost.clipped, std::memory_order_relaxed);
  float* const decoded = slice.decoded == nullptr ? scratch : slice.decoded + range.begin;
  if (slice.decoded != nullptr || slice.residual != nullptr) {
    kernels::cpu::decode_range(
        {.codec = codec_, .from = to, .vectors = decoded, .stride = count, .cols = count}, {0, 1});
  }
  if (slice.residual != nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] -= decoded[i];
    }
  }
}

void SliceCodec::decode_block(const Target& slice, std::int64_t block) const {
  const Range range = block_floats(slice.count, block);
  kernels::cpu::decode_range({.codec = codec_,
                              .from = slice.from + block * block_bytes_,
                              .vectors = slice.values + range.begin,
                              .stride = range.size(),
                              .cols = range.size()},
                             {0, 1});
}

void SliceCodec::encode(Context& ctx, std::span<const Source> slices) {
  for_blocks(ctx, slices, [this](const Source& slice, std::int64_t block, std::int64_t lane) {
    encode_block(slice, block, scratch_.as<float>() + (feedback_ ? lane * block_ : 0));
  });
}

void SliceCodec::decode(Context& ctx, std::span<const Target> slices) const {
  for_blocks(ctx, slices, [this](const Target& slice, std::int64_t block, std::int64_t) {
    decode_block(slice, block);
  });
}

kernels::CodecClips SliceCodec::clips() const {
  return {.non_finite = non_finite_.load(std::memory_order_relaxed),
          .clipped = clipped_.load(std::memory_order_relaxed)};
}

}  // namespace weft::comm
