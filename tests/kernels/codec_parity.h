// The parity lists of encode and decode: every backend passes them (tests/kernels/parity.h).
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/parity.h"
#include "weft/kernels/codec.h"

namespace weft::kernels::test {

/// Vectors of a matrix, some of them gathered, with draws of their own.
class CodecCase {
 public:
  CodecCase(Random& random, const Codec& codec, std::int64_t cols, std::int64_t vectors)
      : codec_(codec), cols_(cols), count_(vectors) {
    std::vector<float> x(static_cast<std::size_t>(2 * count_ * stride()), -7.0F);
    for (float& value : x) {
      value = below(random, 20) == 0 ? odd_number(random) : number(random);
    }
    std::vector<std::int32_t> rows;
    std::vector<std::int64_t> numbers;
    for (std::int64_t v = 0; v < count_; ++v) {
      rows.push_back(static_cast<std::int32_t>(2 * (count_ - v) - 1));
      numbers.push_back(below(random, std::int64_t{1} << 40));
    }
    offsets_ = Copied(std::vector<std::int64_t>{0, count_});
    vectors_ = Copied(x);
    rows_ = Copied(rows);
    numbers_ = Copied(numbers);
    const std::int64_t bytes = count_ * encoded_bytes(codec, cols);
    codes_ = Copied(std::vector<std::byte>(static_cast<std::size_t>(bytes) + 1, std::byte{0xEE}));
    clips_ = Copied(std::vector<CodecClips>(1));
  }

  /// Encodes and decodes what was encoded; `gathers`: vectors are rows of a list.
  void expect_parity(Context& ctx, VectorDraws::Of draws, std::int32_t gathers) {
    EncodeJob job{.codec = codec_, .stride = stride(), .count = count_, .cols = cols_};
    job.draws = {.key = 0x0123456789ABCDEF, .step = 77, .first_col = 16};
    job.draws.vectors = {.of = draws, .first_sample = 900, .rows = {3, 1 << 30, 2}};
    EncodeJob there = job;
    there.vectors = vectors_.place(ctx);
    there.to = codes_.place(ctx);
    there.clips = clips_.place(ctx);
    there.rows = gathers != 0 ? rows_.place(ctx) : nullptr;
    set_draws(there, draws, numbers_.place(ctx), offsets_.place(ctx));
    encode(ctx, std::span(&there, 1));
    EncodeJob here = job;
    here.vectors = vectors_.host();
    here.to = codes_.host();
    here.clips = clips_.host();
    here.rows = gathers != 0 ? rows_.host() : nullptr;
    set_draws(here, draws, numbers_.host(), offsets_.host());
    reference::encode(ctx, std::span(&here, 1));
    const std::string what = std::string(to_string(codec_.format)) + ", " + std::to_string(cols_) +
                             " columns, groups of " + std::to_string(codec_.group);
    EXPECT_TRUE(codes_.same_bits(ctx)) << what;
    EXPECT_TRUE(clips_.same_bits(ctx)) << what;
    DecodeJob back{.codec = codec_, .stride = stride(), .count = count_, .cols = cols_};
    back.from = there.to;
    back.rows = there.rows;
    back.vectors = vectors_.place(ctx);
    decode(ctx, std::span(&back, 1));
    back.from = here.to;
    back.rows = here.rows;
    back.vectors = vectors_.host();
    reference::decode(ctx, std::span(&back, 1));
    EXPECT_TRUE(vectors_.same_bits(ctx)) << what;
  }

 private:
  static float odd_number(Random& random) {
    const float all[] = {std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::max(),
                         -0.0F,
                         0x1.8p-140F,
                         -70000.0F,
                         std::numeric_limits<float>::quiet_NaN()};
    return all[below(random, 7)];
  }

  [[nodiscard]] std::int64_t stride() const { return cols_ + 3; }

  static void set_draws(EncodeJob& job,
                        VectorDraws::Of draws,
                        const std::int64_t* numbers,
                        const std::int64_t* offsets) {
    job.draws.numbers = draws == VectorDraws::Of::kNone ? numbers : nullptr;
    job.draws.vectors.ids = numbers;
    job.draws.vectors.offsets = offsets;
    job.draws.vectors.bags = 1;
  }

  Codec codec_;
  std::int64_t cols_;
  std::int64_t count_;
  Copied<float> vectors_;
  Copied<std::int32_t> rows_;
  Copied<std::int64_t> numbers_, offsets_;
  Copied<std::byte> codes_;
  Copied<CodecClips> clips_;
};

/// Every format and rounding, odd widths and groups, gathered and not, draws of several makes.
inline void expect_codec_parity(Device& device) {
  Random random(17);
  for (int format = 0; format < kNumCodecFormats; ++format) {
    for (const CodecRounding rounding : {CodecRounding::kNearest, CodecRounding::kStochastic}) {
      // Several tasks, and more vectors than draws are made for at once.
      const Codec many{static_cast<CodecFormat>(format), 128, rounding};
      for (const auto draws : {VectorDraws::Of::kNone, VectorDraws::Of::kSamples}) {
        run_on(device, [&](Context& ctx) {
          CodecCase(random, many, 130, 1100).expect_parity(ctx, draws, 1);
        });
      }
      for (const std::int64_t cols : {1, 7, 16, 33, 130}) {
        for (const std::int64_t group : {1, 5, 128}) {
          const Codec codec{static_cast<CodecFormat>(format), group, rounding};
          for (const auto draws : {VectorDraws::Of::kNone, VectorDraws::Of::kSamples,
                                   VectorDraws::Of::kRows, VectorDraws::Of::kPlaces}) {
            for (const std::int32_t gathers : {0, 1}) {
              run_on(device, [&](Context& ctx) {
                CodecCase(random, codec, cols, 5).expect_parity(ctx, draws, gathers);
              });
            }
          }
        }
      }
    }
  }
}

}  // namespace weft::kernels::test
