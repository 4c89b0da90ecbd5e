// for each block of rows:
//   for each draw (row, j), one per 64-bit lane:  words = philox(key; row, j)
//     values 4j … 4j+3 of the row, in place or, where rows are not dense fp32, to the first cache
//   for each row:  rounded to the row's type and written to its slot, then its state
//
// A word of Philox lives in the lower half of a 64-bit lane (cpu/random_words-inl.h); ten rounds
// make 4 values per lane: 5 instructions per value with AVX2, about 2 with AVX-512. Rows of a list
// cost one gather of their numbers per vector of draws more.

#include "weft/kernels/initial_values.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/initial_values.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/box_muller.h"
#include "weft/kernels/cpu/random_words-inl.h"
#include "weft/kernels/cpu/rows-inl.h"
#include "weft/kernels/cpu/scratch.h"
#include "weft/kernels/tasks.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

constexpr std::int64_t kColumnsPerDraw = 4;
// Values made before they are written: 16 KiB stay in the first cache.
constexpr std::int64_t kBlockFloats = 4096;
// Values of four vectors of draws, the unit in which they are made.
constexpr auto kSpare =
    static_cast<std::int64_t>(4 * kColumnsPerDraw * hn::MaxLanes(hn::ScalableTag<std::uint64_t>()));

using U64 = CallTag;
using U64Vec = Calls;
using U32 = WordTag;
using F32 = hn::Repartition<float, U64>;
using F64 = hn::Repartition<double, U64>;
using F64Vec = hn::Vec<F64>;

/// A vector of counters, one of a draw each: its row, and which four columns of it.
struct DrawCounters {
  U64Vec row, column;
};

/// s·(2u - 1) of every word. All before the last product is exact, so fusing changes no bit.
HWY_INLINE U64Vec uniform_pairs(U64Vec words, float scale) {
  const U64 d;
  const U32 d32;
  const F32 df;
  const hn::RebindToSigned<F32> di;
  const auto top = hn::BitCast(di, hn::ShiftRight<8>(hn::BitCast(d32, words)));
  const auto from_minus_one =
      hn::MulSub(hn::ConvertTo(df, top), hn::Set(df, 0x1.0p-23F), hn::Set(df, 1.0F));
  return hn::BitCast(d, hn::Mul(hn::Set(df, scale), from_minus_one));
}

/// Of integers below 2^52: they are the mantissa of 2^52 + n.
HWY_INLINE F64Vec to_double(U64Vec n) {
  const U64 d;
  const F64 df;
  const auto shifted = hn::BitCast(df, hn::Or(n, hn::Set(d, 0x4330000000000000U)));
  return hn::Sub(shifted, hn::Set(df, 0x1.0p52));
}

template <std::size_t kTerms>
HWY_INLINE F64Vec horner(const std::array<double, kTerms>& series, F64Vec x) {
  const F64 df;
  F64Vec sum = hn::Set(df, series[kTerms - 1]);
  HWY_UNROLL(16)
  for (std::size_t k = 1; k < kTerms; ++k) {
    sum = hn::Add(hn::Mul(sum, x), hn::Set(df, series[kTerms - 1 - k]));
  }
  return sum;
}

HWY_INLINE F64Vec natural_log(F64Vec x) {
  const U64 d;
  const F64 df;
  const auto one = hn::Set(df, 1.0);
  const auto moved = hn::Add(hn::BitCast(d, x), hn::Set(d, kOneBits - kSqrtHalfBits));
  const auto exponent = hn::Sub(to_double(hn::ShiftRight<52>(moved)), hn::Set(df, 1023.0));
  const auto m = hn::BitCast(
      df, hn::Add(hn::And(moved, hn::Set(d, kMantissaMask)), hn::Set(d, kSqrtHalfBits)));
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  return hn::Add(hn::Mul(exponent, hn::Set(df, kLn2)),
                 hn::Mul(s, horner(kLogSeries, hn::Mul(s, s))));
}

struct NormalPair {
  F64Vec first, second;
};

HWY_INLINE NormalPair normal_pair(U64Vec word0, U64Vec word1) {
  const U64 d;
  const F64 df;
  const auto low = hn::Set(d, 0xFFFFFFFFU);
  const auto two = hn::Set(d, 2U);
  const auto u =
      hn::Mul(hn::Add(to_double(hn::And(word0, low)), hn::Set(df, 1.0)), hn::Set(df, 0x1.0p-32));
  const auto radius = hn::Sqrt(hn::Mul(hn::Set(df, -2.0), natural_log(u)));
  const auto turn = hn::And(word1, low);
  const auto quarters = hn::ShiftRight<30>(hn::Add(turn, hn::Set(d, 1U << 29)));
  // The rest may be negative: it is made larger by 2^32 on its way to fp64.
  const auto rest =
      hn::Sub(hn::Add(turn, hn::Set(d, std::uint64_t{1} << 32)), hn::ShiftLeft<30>(quarters));
  const auto x =
      hn::Mul(hn::Sub(to_double(rest), hn::Set(df, 0x1.0p32)), hn::Set(df, kRadiansPerWord));
  const auto square = hn::Mul(x, x);
  const auto sine = hn::Mul(x, horner(kSinSeries, square));
  const auto cosine = horner(kCosSeries, square);
  const auto odd =
      hn::MaskFromVec(hn::BitCast(df, hn::Sub(hn::Zero(d), hn::And(quarters, hn::Set(d, 1U)))));
  const auto sign0 = hn::ShiftLeft<62>(hn::And(hn::Add(quarters, hn::Set(d, 1U)), two));
  const auto sign1 = hn::ShiftLeft<62>(hn::And(quarters, two));
  const auto c = hn::Xor(hn::IfThenElse(odd, sine, cosine), hn::BitCast(df, sign0));
  const auto s = hn::Xor(hn::IfThenElse(odd, cosine, sine), hn::BitCast(df, sign1));
  return {hn::Mul(radius, c), hn::Mul(radius, s)};
}

/// The bits of s·z in the lower half of each lane.
HWY_INLINE U64Vec scaled_bits(F64Vec z, float scale) {
  const U64 d;
  const hn::Rebind<float, F64> half;
  const hn::Rebind<std::uint32_t, U64> half_bits;
  const auto value = hn::Mul(hn::Set(half, scale), hn::DemoteTo(half, z));
  return hn::PromoteTo(d, hn::BitCast(half_bits, value));
}

HWY_INLINE U64Vec normal_pairs(U64Vec word0, U64Vec word1, float scale) {
  const NormalPair z = normal_pair(word0, word1);
  return side_by_side(scaled_bits(z.first, scale), scaled_bits(z.second, scale));
}

/// Counters of a run of draws, row by row, one per lane. Even lanes have the first half of a
/// vector's draws, odd ones the second: so the values come out in order (store_values()).
class Counters {
 public:
  Counters(const RowSet& rows, std::int64_t first_draw, std::int64_t draws)
      : row_(hn::Set(U64(), static_cast<std::uint64_t>(rows.begin))),
        next_row_(hn::Set(U64(), static_cast<std::uint64_t>(rows.step))),
        first_(hn::Set(U64(), static_cast<std::uint64_t>(first_draw))),
        draws_(hn::Set(U64(), static_cast<std::uint64_t>(draws))) {
    const U64 d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto lane = hn::Iota(d, 0U);
    const auto odd = hn::Sub(hn::Zero(d), hn::And(lane, hn::Set(d, 1U)));
    const auto half = hn::Set(d, static_cast<std::uint64_t>(lanes / 2));
    column_ = hn::Add(hn::ShiftRight<1>(lane), hn::And(odd, half));
    row_step_ = hn::Set(d, static_cast<std::uint64_t>(lanes / draws * rows.step));
    column_step_ = hn::Set(d, static_cast<std::uint64_t>(lanes % draws));
    for (std::int64_t passed = 0; passed < lanes; passed += draws) {
      carry();
    }
  }

  /// Of the next vector of draws.
  DrawCounters next() {
    const DrawCounters counters{row_, hn::Add(first_, column_)};
    row_ = hn::Add(row_, row_step_);
    column_ = hn::Add(column_, column_step_);
    carry();
    return counters;
  }

 private:
  /// Lanes that are past the end of their row go to the next.
  void carry() {
    const U64 d;
    const hn::RebindToSigned<U64> di;
    // All ones where draws_ - 1 - column_ is negative.
    const auto left = hn::Sub(hn::Sub(draws_, hn::Set(d, 1U)), column_);
    const auto over = hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(di, left)));
    column_ = hn::Sub(column_, hn::And(over, draws_));
    row_ = hn::Add(row_, hn::And(over, next_row_));
  }

  U64Vec row_, next_row_, first_, draws_, column_, row_step_, column_step_;
};

/// The same for rows of a list: counters of places in the list, each then the number there.
class ListedCounters {
 public:
  ListedCounters(std::span<const std::int64_t> numbers, std::int64_t first_draw, std::int64_t draws)
      : numbers_(numbers.data()),
        last_(hn::Set(I64(), static_cast<std::int64_t>(numbers.size()) - 1)),
        places_(RowSet(0, 1), first_draw, draws) {}

  /// Of the next vector of draws. Behind the list the last row is drawn again.
  DrawCounters next() {
    DrawCounters counters = places_.next();
    const auto place = hn::Min(hn::BitCast(I64(), counters.row), last_);
    counters.row = hn::BitCast(U64(), hn::GatherIndex(I64(), numbers_, place));
    return counters;
  }

 private:
  using I64 = hn::RebindToSigned<U64>;

  const std::int64_t* numbers_;
  hn::Vec<I64> last_;
  Counters places_;
};

/// The four values of each draw, draw after draw.
template <InitialRule kRule>
HWY_INLINE void store_values(const PhiloxCalls& calls, float scale, float* out) {
  U64Vec pair0;
  U64Vec pair1;
  if constexpr (kRule == InitialRule::kNormal) {
    pair0 = normal_pairs(calls.x0, calls.x1, scale);
    pair1 = normal_pairs(calls.x2, calls.x3, scale);
  } else {
    pair0 = uniform_pairs(side_by_side(calls.x0, calls.x1), scale);
    pair1 = uniform_pairs(side_by_side(calls.x2, calls.x3), scale);
  }
  const U64 d;
  auto* const to = reinterpret_cast<std::uint64_t*>(out);
  hn::StoreU(hn::InterleaveLower(d, pair0, pair1), d, to);
  hn::StoreU(hn::InterleaveUpper(d, pair0, pair1), d, to + hn::Lanes(d));
}

/// Values of the next `draws` draws, to `out`, which has room up to the next multiple of kSpare.
template <InitialRule kRule, class SomeCounters>
HWY_INLINE void draw_values(const InitialRows& initial,
                            SomeCounters counters,
                            std::int64_t draws,
                            float* out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(U64()));
  const RoundKeys keys(initial.key);
  const auto next = [&]() HWY_ATTR {
    const DrawCounters some = counters.next();
    return PhiloxCalls(some.row, some.column);
  };
  for (std::int64_t i = 0; i < draws; i += 4 * lanes) {
    PhiloxCalls calls0 = next();
    PhiloxCalls calls1 = next();
    PhiloxCalls calls2 = next();
    PhiloxCalls calls3 = next();
    run_rounds(keys, calls0, calls1, calls2, calls3);
    store_values<kRule>(calls0, initial.scale, out + i * kColumnsPerDraw);
    store_values<kRule>(calls1, initial.scale, out + (i + lanes) * kColumnsPerDraw);
    store_values<kRule>(calls2, initial.scale, out + (i + 2 * lanes) * kColumnsPerDraw);
    store_values<kRule>(calls3, initial.scale, out + (i + 3 * lanes) * kColumnsPerDraw);
  }
}

/// The list of the numbers of rows, or null where they are in steps.
const std::int64_t* list_of(const InitialRows& initial) {
  return initial.numbers != nullptr ? initial.numbers : initial.table.row_list;
}

/// Values of the rows at some places, each padded to whole draws, to `out`, which has room up to
/// the next multiple of kSpare.
template <InitialRule kRule>
void make_values(const InitialRows& initial, Range places, std::int64_t draws, float* out) {
  const std::int64_t total = places.size() * draws;
  if constexpr (kRule == InitialRule::kZero) {
    std::fill_n(out, total * kColumnsPerDraw, 0.0F);
    return;
  }
  const std::int64_t first_draw = initial.table.first_col / kColumnsPerDraw;
  if (const std::int64_t* const list = list_of(initial); list != nullptr) {
    const std::span numbers(list + places.begin, at(places.size()));
    draw_values<kRule>(initial, ListedCounters(numbers, first_draw, draws), total, out);
    return;
  }
  const std::int64_t begin = initial.table.whole_row(places.begin);
  const RowSet rows(begin, begin + 1, initial.table.row_step);
  draw_values<kRule>(initial, Counters(rows, first_draw, draws), total, out);
}

/// To nearest, ties to even; the values are finite.
void write_bf16(const float* values, std::int64_t cols, std::uint16_t* out) {
  for_columns(0, cols, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<std::uint16_t, decltype(d)> d16;
    const auto bits = hn::BitCast(du, hn::LoadU(d, values + i));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFU)));
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(rounded)), d16, out + i);
  });
}

void write_fp16(const float* values, std::int64_t cols, std::uint16_t* out) {
#if HWY_TARGET == HWY_SSE4
  for (std::int64_t i = 0; i < cols; ++i) {  // no instruction here
    out[i] = to_float16(values[i]).bits;
  }
#else
  for_columns(0, cols, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::Rebind<hwy::float16_t, decltype(d)> df16;
    const hn::Rebind<std::uint16_t, decltype(d)> d16;
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, hn::LoadU(d, values + i))), d16, out + i);
  });
#endif
}

void write_split(const float* values, std::int64_t cols, std::uint16_t* high, std::uint16_t* low) {
  for_columns(0, cols, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<std::uint16_t, decltype(d)> d16;
    const auto bits = hn::BitCast(du, hn::LoadU(d, values + i));
    const auto top = hn::ShiftRight<16>(hn::Add(bits, hn::Set(du, 0x8000U)));
    hn::StoreU(hn::TruncateTo(d16, top), d16, high + i);
    hn::StoreU(hn::TruncateTo(d16, bits), d16, low + i);
  });
}

void write_row(const RowTable& table, std::int64_t slot, const float* values) {
  char* const at = static_cast<char*>(table.weights) + slot * table.weight_stride;
  switch (table.dtype) {
    case DType::kFloat32:
      std::memcpy(at, values, static_cast<std::size_t>(table.cols) * sizeof(float));
      return;
    case DType::kFloat16:
      return write_fp16(values, table.cols, reinterpret_cast<std::uint16_t*>(at));
    case DType::kBFloat16:
      return write_bf16(values, table.cols, reinterpret_cast<std::uint16_t*>(at));
    case DType::kSplitBFloat16:
      return write_split(values, table.cols, reinterpret_cast<std::uint16_t*>(at),
                         reinterpret_cast<std::uint16_t*>(static_cast<char*>(table.low) +
                                                          slot * table.low_stride));
    default:
      fail(ErrorCode::kInternal, "embedding rows of type {}", to_string(table.dtype));
  }
}

void write_states(const InitialRows& initial, Range places) {
  if (initial.state_floats == 0) {
    return;
  }
  for (std::int64_t place = places.begin; place < places.end; ++place) {
    auto* const state =
        reinterpret_cast<float*>(static_cast<char*>(initial.table.state) +
                                 initial.slot_at(place) * initial.table.state_stride);
    std::fill_n(state, initial.state_floats, initial.state);
  }
}

template <InitialRule kRule>
void make_rows(const InitialRows& initial, Range places, float* values) {
  const RowTable& table = initial.table;
  const std::int64_t draws = (table.cols + kColumnsPerDraw - 1) / kColumnsPerDraw;
  const std::int64_t padded = draws * kColumnsPerDraw;
  const bool dense = initial.slots == nullptr && table.dtype == DType::kFloat32 &&
                     table.cols == padded &&
                     table.weight_stride == padded * static_cast<std::int64_t>(sizeof(float));
  if (dense && places.size() * padded % kSpare == 0) {
    make_values<kRule>(initial, places, draws,
                       reinterpret_cast<float*>(static_cast<char*>(table.weights) +
                                                places.begin * table.weight_stride));
    return;
  }
  make_values<kRule>(initial, places, draws, values);
  for (std::int64_t place = places.begin; place < places.end; ++place) {
    write_row(table, initial.slot_at(place), values + (place - places.begin) * padded);
  }
}

void set_rows(const InitialRows& initial, Range range) {
  const std::int64_t padded =
      (initial.table.cols + kColumnsPerDraw - 1) / kColumnsPerDraw * kColumnsPerDraw;
  std::int64_t block = std::max<std::int64_t>(kBlockFloats / padded, 1);
  if (const std::int64_t even = kSpare / std::gcd(padded, kSpare); block > even) {
    block -= block % even;  // of whole units, which can be made in place
  }
  float* const values = ThreadScratch::get(block * padded + kSpare);
  for (std::int64_t first = range.begin; first < range.end; first += block) {
    const Range places = {first, std::min(first + block, range.end)};
    switch (initial.rule) {
      case InitialRule::kZero:
        make_rows<InitialRule::kZero>(initial, places, values);
        break;
      case InitialRule::kUniform:
        make_rows<InitialRule::kUniform>(initial, places, values);
        break;
      case InitialRule::kNormal:
        make_rows<InitialRule::kNormal>(initial, places, values);
        break;
    }
    write_states(initial, places);
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(set_rows);

namespace {

// Bytes of rows that one task makes: under a millisecond, and a whole huge page, so that no two
// threads wait for the same one to be cleared. Rows of a list lie anywhere, in memory that has been
// written, and there are few of them.
constexpr std::int64_t kBytesPerTask = std::int64_t{2} << 20;
constexpr std::int64_t kListedBytesPerTask = std::int64_t{64} << 10;

RowWork work_of(const InitialRows& job) {
  const std::int64_t values = job.table.cols * size_of(job.table.dtype);
  return {.rows = job.rows,
          .row_bytes = values == 0 ? 0 : values + 4 * job.state_floats,
          .task_bytes = job.slots != nullptr ? kListedBytesPerTask : kBytesPerTask};
}

}  // namespace

void cpu::set_initial_rows(Context& ctx, std::span<const InitialRows> jobs) {
  for (const InitialRows& job : jobs) {
    WEFT_CHECK(job.table.first_col % kStatisticBlock == 0, "a block from column {}",
               job.table.first_col);
  }
  run_rows(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) { return work_of(jobs[at(i)]); },
      [&](std::int64_t i, Range places) { HWY_DYNAMIC_DISPATCH(set_rows)(jobs[at(i)], places); });
}

}  // namespace weft::kernels

#endif  // HWY_ONCE
