// Dot interaction of as many samples at once as a register has lanes, a sample in each:
//
//   turn       values[i][d] = field_i[.., d] of the samples, one register
//   multiply   for kSide fields i and kSide fields j: sum_ij += values[i][d] * values[j][d], d in
//              order; a sum stays in its lane, and only pairs i > j are computed
//   turn back  the pairs of kSide fields i lie behind each other in a sample's row
//
// A tile of 16 samples of 27 x 64 floats is 110 kB, in the second-level cache; its vectors are read
// once, where they lie, and the next tile's are asked for meanwhile.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/kernels/interaction.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/dot_forward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/kernels/cpu/lanes-inl.h"
#include "weft/kernels/cpu/turn-inl.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace {

// A tile has as many samples.
constexpr auto kTile = static_cast<std::int64_t>(kWidth);
static_assert(kTile >= 4, "four words are turned at once");

// A block of sums has as many fields on a side: 16 sums take half of the registers of AVX-512, and
// 9 take more than half of the 16 that others have.
constexpr std::int64_t kSide = kVectors == 1 ? 4 : 3;

// Dots of these fields, tile by tile.
class TileDots {
 public:
  // `scratch` has dot_interaction_scratch() floats.
  TileDots(std::span<const Matrix<const float>> fields, const Matrix<float>& out, float* scratch)
      : fields_(fields),
        out_(out),
        count_(static_cast<std::int64_t>(fields.size())),
        dim_(fields[0].cols),
        // One register more than the values, so that fields do not share a set of the first cache.
        stride_((layout::round_up(dim_, 4) + 1) * kTile),
        values_(scratch),
        sums_(scratch + padded() * stride_) {
    std::fill_n(values_ + count_ * stride_, (padded() - count_) * stride_, 0.0F);
  }

  // The rows [s, s + samples) of `out`.
  void run(std::int64_t s, std::int64_t samples) const {
    for (std::int64_t i = 0; i < count_; ++i) {
      turn_field(i, s, samples);
    }
    for (std::int64_t i = 0; i < count_; i += kSide) {
      for (std::int64_t j = 0; j < i; j += kSide) {
        multiply<false>(i, j);
      }
      multiply<true>(i, i);
      write_pairs(i, s, samples);
    }
  }

 private:
  // This is F rounded up to whole blocks. Values of fields behind F are zeros, and nothing of their
  // sums stays in the output.
  [[nodiscard]] std::int64_t padded() const { return layout::round_up(count_, kSide); }

  // So many pairs lie in `sums_` before those of field i + r, where those of field i come first.
  static std::int64_t pairs_before(std::int64_t i, std::int64_t r) { return r * i + num_pairs(r); }

  // Lanes without a sample get values that do not matter: those of the last sample, or zeros.
  void turn_field(std::int64_t i, std::int64_t s, std::int64_t samples) const {
    const Matrix<const float>& field = fields_[static_cast<std::size_t>(i)];
    float* const to = values_ + i * stride_;
    for (std::int64_t d = 0; d < dim_; d += 4) {
      const auto store = [&](auto v, std::int64_t j)
                             HWY_ATTR { hn::StoreU(v, FloatTag(), to + (d + j) * kTile); };
      if (d + 4 <= dim_) {
        turn_rows(
            FloatTag(),
            [&](std::int64_t lane) { return field.row(s + std::min(lane, samples - 1)) + d; },
            store);
      } else {
        float block[kTile][4] = {};
        for (std::int64_t lane = 0; lane < samples; ++lane) {
          std::copy_n(field.row(s + lane) + d, dim_ - d, block[lane]);
        }
        turn_rows(FloatTag(), [&](std::int64_t lane) { return block[lane]; }, store);
      }
    }
    const std::int64_t next = std::min(s + kTile, field.rows - samples);
    for (std::int64_t lane = 0; lane < samples; ++lane) {
      for (std::int64_t d = 0; d < dim_; d += kLanes) {
        __builtin_prefetch(field.row(next + lane) + d);
      }
    }
  }

  // Computes the pairs of fields [i, i + kSide) with [j, j + kSide); where i is j, the pairs among
  // them.
  template <bool kDiagonal>
  void multiply(std::int64_t i, std::int64_t j) const {
    const FloatTag tag;
    FloatVec sums[kSide][kSide];
    HWY_UNROLL(4)
    for (int r = 0; r < kSide; ++r) {
      HWY_UNROLL(4)
      for (int c = 0; c < kSide; ++c) {
        sums[r][c] = hn::Zero(tag);
      }
    }
    const float* down = values_ + i * stride_;
    const float* across = values_ + j * stride_;
    for (std::int64_t d = 0; d < dim_; ++d, down += kTile, across += kTile) {
      FloatVec columns[kSide];
      HWY_UNROLL(4)
      for (int c = 0; c < kSide; ++c) {
        columns[c] = hn::LoadU(tag, across + c * stride_);
      }
      HWY_UNROLL(4)
      for (int r = 0; r < kSide; ++r) {
        const FloatVec row = kDiagonal ? columns[r] : hn::LoadU(tag, down + r * stride_);
        HWY_UNROLL(4)
        for (int c = 0; c < (kDiagonal ? r : kSide); ++c) {
          sums[r][c] = hn::MulAdd(row, columns[c], sums[r][c]);
        }
      }
    }
    HWY_UNROLL(4)
    for (int r = 0; r < kSide; ++r) {
      float* const to = sums_ + (pairs_before(i, r) + j) * kTile;
      HWY_UNROLL(4)
      for (int c = 0; c < (kDiagonal ? r : kSide); ++c) {
        hn::StoreU(sums[r][c], tag, to + c * kTile);
      }
    }
  }

  // Writes the pairs of fields [i, i + kSide) to the samples' rows. Registers are written whole,
  // and the next fields overwrite the surplus; at the end of a row there is none.
  void write_pairs(std::int64_t i, std::int64_t s, std::int64_t samples) const {
    const std::int64_t begin = num_pairs(i);
    const std::int64_t end = num_pairs(std::min(i + kSide, count_));
    for (std::int64_t p = begin; p < end; p += kTile) {
      const float* const from = sums_ + (p - begin) * kTile;
      const std::int64_t some = std::min(out_.cols - p, kTile);
      for (std::int64_t lane = 0; lane < samples; lane += 4) {
        turn_rows(
            FloatTag(), [&](std::int64_t pair) { return from + pair * kTile + lane; },
            [&](auto v, std::int64_t j) HWY_ATTR {
              if (lane + j < samples) {
                store_some(v, some, out_.row(s + lane + j) + p);
              }
            });
      }
    }
  }

  HWY_INLINE static void store_some(FloatVec v, std::int64_t some, float* to) {
    if (some == kTile) {
      hn::StoreU(v, FloatTag(), to);
      return;
    }
    float values[kTile];
    hn::StoreU(v, FloatTag(), values);
    std::copy_n(values, some, to);
  }

  std::span<const Matrix<const float>> fields_;
  const Matrix<float>& out_;
  std::int64_t count_, dim_;
  std::int64_t stride_;  // floats of a field in `values_`
  float* values_;        // [padded()][stride_]: a register for each d
  float* sums_;          // a register for each pair of kSide fields
};

}  // namespace

// Highway exports a function by name from each target's namespace.
void dot_forward_on_target(std::span<const Matrix<const float>> fields,
                           Matrix<float> out,
                           float* scratch) {
  const TileDots dots(fields, out, scratch);
  for (std::int64_t s = 0; s < out.rows; s += kTile) {
    dots.run(s, std::min(kTile, out.rows - s));
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "weft/base/error.h"
#include "weft/kernels/cpu/fields.h"

namespace weft::kernels {

HWY_EXPORT(dot_forward_on_target);

namespace cpu {

void dot_interaction_forward(Context& /*ctx*/, const DotForward& args) {
  WEFT_CHECK(!args.fields.empty());
  WEFT_CHECK(args.out.cols == num_pairs(static_cast<std::int64_t>(args.fields.size())),
             "{} columns", args.out.cols);
  check_fields(args.fields, args.out.rows, args.fields[0].cols);
  HWY_DYNAMIC_DISPATCH(dot_forward_on_target)(args.fields, args.out, args.scratch);
}

}  // namespace cpu
}  // namespace weft::kernels

#endif
