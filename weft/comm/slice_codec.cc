#include "weft/comm/slice_codec.h"

#include <atomic>

#include "weft/layout/reduce.h"

namespace weft::comm {

std::int64_t SliceCodec::bytes(std::int64_t floats) const {
  return layout::code_bytes(codec_.format, codec_.group, floats);
}

void SliceCodec::encode(Context& ctx, std::span<const Source> slices) {
  encodes_.clear();
  for (const Source& slice : slices) {
    encodes_.push_back({.codec = codec_,
                        .values = slice.values,
                        .residual = slice.residual,
                        .count = slice.count,
                        .to = slice.to,
                        .decoded = slice.decoded,
                        .clips = &clips_});
  }
  kernels::encode_slices(ctx, encodes_);
}

void SliceCodec::decode(Context& ctx, std::span<const Target> slices) {
  decodes_.clear();
  for (const Target& slice : slices) {
    kernels::add_slice_decodes(codec_, slice.from, slice.count, slice.values, decodes_);
  }
  kernels::decode(ctx, decodes_);
}

kernels::CodecClips SliceCodec::clips() const {
  // An atomic view of a constant is C++26's.
  const auto load = [](const std::int64_t& count) {
    return std::atomic_ref(const_cast<std::int64_t&>(count)).load(std::memory_order_relaxed);
  };
  return {.non_finite = load(clips_.non_finite), .clipped = load(clips_.clipped)};
}

}  // namespace weft::comm
