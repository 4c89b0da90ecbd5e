// Any bytes as encoded vectors, and any floats as vectors: the plain loops and the vectors agree,
// nothing is read or written beside them, and what was finite stays so.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "weft/kernels/codec.h"

namespace {

using weft::CodecFormat;
using weft::CodecRounding;
using weft::kernels::Codec;

/// format, group, columns, rounding; then the bytes.
constexpr std::size_t kHeader = 4;

void check(bool holds) {
  if (!holds) {
    __builtin_trap();
  }
}

using Encode = void (*)(weft::Context&, std::span<const weft::kernels::EncodeJob>);
using Decode = void (*)(weft::Context&, std::span<const weft::kernels::DecodeJob>);

void decode_one(Decode operation, weft::kernels::DecodeJob job) {
  weft::Context ctx;
  operation(ctx, std::span(&job, 1));
}

weft::kernels::CodecClips encode_one(Encode operation, weft::kernels::EncodeJob job) {
  weft::Context ctx;
  weft::kernels::CodecClips lost;
  job.clips = &lost;
  operation(ctx, std::span(&job, 1));
  return lost;
}

void decode_bytes(const Codec& codec, const std::vector<std::byte>& bytes, std::int64_t cols) {
  const auto vectors =
      static_cast<std::int64_t>(bytes.size()) / weft::kernels::encoded_bytes(codec, cols);
  std::vector<float> fast(static_cast<std::size_t>(vectors * cols));
  std::vector<float> plain = fast;
  weft::kernels::DecodeJob job{.codec = codec,
                               .from = bytes.data(),
                               .vectors = fast.data(),
                               .stride = cols,
                               .count = vectors,
                               .cols = cols};
  decode_one(weft::kernels::decode, job);
  job.vectors = plain.data();
  decode_one(weft::kernels::reference::decode, job);
  check(fast.empty() || std::memcmp(fast.data(), plain.data(), 4 * fast.size()) == 0);
}

void encode_floats(const Codec& codec, const std::vector<std::byte>& bytes, std::int64_t cols) {
  const auto vectors = static_cast<std::int64_t>(bytes.size()) / (4 * cols);
  std::vector<float> x(static_cast<std::size_t>(vectors * cols));
  std::copy_n(bytes.begin(), 4 * x.size(), reinterpret_cast<std::byte*>(x.data()));
  std::vector<std::byte> fast(
      static_cast<std::size_t>(vectors * weft::kernels::encoded_bytes(codec, cols)));
  std::vector<std::byte> plain = fast;
  const std::vector<std::int64_t> numbers(static_cast<std::size_t>(vectors), 3);
  weft::kernels::EncodeJob job{.codec = codec,
                               .vectors = x.data(),
                               .stride = cols,
                               .count = vectors,
                               .cols = cols,
                               .to = fast.data(),
                               .draws = {.key = 1, .step = 2, .numbers = numbers.data()}};
  const weft::kernels::CodecClips counts = encode_one(weft::kernels::encode, job);
  job.to = plain.data();
  check(encode_one(weft::kernels::reference::encode, job) == counts);
  check(fast == plain);
  if (counts.non_finite == 0 && codec.format != CodecFormat::kFp32) {
    decode_one(weft::kernels::decode, {.codec = codec,
                                       .from = fast.data(),
                                       .vectors = x.data(),
                                       .stride = cols,
                                       .count = vectors,
                                       .cols = cols});
    check(std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); }));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kHeader) {
    return 0;
  }
  const Codec codec{static_cast<CodecFormat>(data[0] % weft::kNumCodecFormats), 1 + data[1] % 64,
                    data[3] % 2 == 0 ? CodecRounding::kNearest : CodecRounding::kStochastic};
  const std::int64_t cols = 1 + data[2] % 100;
  const auto* const first = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> bytes(first + kHeader, first + size);
  decode_bytes(codec, bytes, cols);
  encode_floats(codec, bytes, cols);
  return 0;
}
