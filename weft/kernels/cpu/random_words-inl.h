// Private to kernels/cpu: random words of a row's columns, as vectors. Included once per Highway
// target.

#if defined(WEFT_KERNELS_CPU_RANDOM_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_RANDOM_WORDS_INL_H_
#undef WEFT_KERNELS_CPU_RANDOM_WORDS_INL_H_
#else
#define WEFT_KERNELS_CPU_RANDOM_WORDS_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "weft/base/philox.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Words that random_words() may write beyond the last: four per lane of the widest vector.
inline constexpr std::int64_t kSpareWords = 64;

/// The keys of Philox' rounds, made once for many calls: as wide as a lane, so that a round reads
/// them from memory and no arithmetic makes them.
struct RoundKeys {
  static constexpr int kRounds = kPhiloxRounds;

  explicit RoundKeys(std::uint64_t key) {
    auto low = static_cast<std::uint32_t>(key);
    auto high = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < kRounds; ++round) {
      first[round] = low;
      second[round] = high;
      low += 0x9E3779B9U;
      high += 0xBB67AE85U;
    }
  }

  std::uint64_t first[kRounds];
  std::uint64_t second[kRounds];
};

using CallTag = hn::ScalableTag<std::uint64_t>;
using Calls = hn::Vec<CallTag>;
using WordTag = hn::Repartition<std::uint32_t, CallTag>;

/// The halves of each lane, exchanged. A shuffle runs on ports that do not multiply; on some
/// processors a shift would compete with the products.
HWY_INLINE Calls swap_halves(Calls x) {
  return hn::BitCast(CallTag(), hn::Shuffle2301(hn::BitCast(WordTag(), x)));
}

/// The low halves of two vectors, lane by lane side by side.
HWY_INLINE Calls side_by_side(Calls first, Calls second) {
  const WordTag d32;
  return hn::BitCast(CallTag(),
                     hn::OddEven(hn::BitCast(d32, swap_halves(second)), hn::BitCast(d32, first)));
}

/// Calls side by side, one per lane of 64 bits. The words are the lanes' low halves: a product
/// reads no more of them and gives both of its halves, so a round is two products, two exchanges of
/// halves and two sums of three terms, and what the high halves hold does not matter.
struct PhiloxCalls {
  Calls x0, x1, x2, x3;

  HWY_INLINE PhiloxCalls(Calls low, Calls high)
      : x0(low), x1(hn::ShiftRight<32>(low)), x2(high), x3(hn::ShiftRight<32>(high)) {}

  /// For counters (low, high), (low, high + 1), ... whose lowest 32 bits do not overflow.
  HWY_INLINE PhiloxCalls(std::uint64_t low, std::uint64_t high) {
    const CallTag d;
    x0 = hn::Set(d, low);
    x1 = hn::Set(d, low >> 32);
    x2 = hn::Iota(d, high & 0xFFFFFFFFU);
    x3 = hn::Set(d, high >> 32);
  }

  HWY_INLINE void round(const RoundKeys& keys, int number) {
    const CallTag d;
    const WordTag d32;
    const auto product0 =
        hn::MulEven(hn::BitCast(d32, x0), hn::BitCast(d32, hn::Set(d, 0xD2511F53U)));
    const auto product1 =
        hn::MulEven(hn::BitCast(d32, x2), hn::BitCast(d32, hn::Set(d, 0xCD9E8D57U)));
    x0 = hn::Xor3(swap_halves(product1), x1, hn::Set(d, keys.first[number]));
    x2 = hn::Xor3(swap_halves(product0), x3, hn::Set(d, keys.second[number]));
    x1 = product1;
    x3 = product0;
  }

  /// Writes the words of all calls, four each.
  HWY_INLINE void store(std::uint32_t* out) const {
    hn::StoreInterleaved2(side_by_side(x0, x1), side_by_side(x2, x3), CallTag(),
                          reinterpret_cast<std::uint64_t*>(out));
  }
};

/// Philox4x32 of vectors of calls, side by side because a round waits for the one before it.
template <int kRounds = kPhiloxRounds, class... AllCalls>
HWY_INLINE void run_rounds(const RoundKeys& keys, AllCalls&... calls) {
  static_assert(kRounds <= RoundKeys::kRounds);
  HWY_UNROLL(10)
  for (int round = 0; round < kRounds; ++round) {
    (calls.round(keys, round), ...);
  }
}

/// out[c] = word (c mod 4) of Philox(key; low, high + c/4) for c in [0, count): four columns per
/// call, two vectors of calls at a time. The lowest 20 bits of `high` count the fours of columns,
/// so adding a lane's number carries nothing.
HWY_INLINE void random_words(const RoundKeys& keys,
                             std::uint64_t low,
                             std::uint64_t high,
                             std::int64_t count,
                             std::uint32_t* out) {
  constexpr auto kCalls = static_cast<std::int64_t>(hn::MaxLanes(CallTag()));
  for (std::int64_t col = 0; col < count; col += 8 * kCalls) {
    const std::uint64_t first = high + static_cast<std::uint64_t>(col / 4);
    PhiloxCalls calls0(low, first);
    PhiloxCalls calls1(low, first + static_cast<std::uint64_t>(kCalls));
    run_rounds(keys, calls0, calls1);
    calls0.store(out + col);
    calls1.store(out + col + 4 * kCalls);
  }
}

/// Calls that listed_words() may read and write beyond the last: two vectors.
inline constexpr std::int64_t kSpareCalls = 16;

/// out[4·i, 4·i + 4) = the words of Philox(key; low[i], high[i]), for i in [0, count).
template <int kRounds>
HWY_INLINE void listed_words(const RoundKeys& keys,
                             const std::uint64_t* low,
                             const std::uint64_t* high,
                             std::int64_t count,
                             std::uint32_t* out) {
  const CallTag d;
  constexpr auto kCalls = static_cast<std::int64_t>(hn::MaxLanes(CallTag()));
  for (std::int64_t i = 0; i < count; i += 2 * kCalls) {
    PhiloxCalls calls0(hn::LoadU(d, low + i), hn::LoadU(d, high + i));
    PhiloxCalls calls1(hn::LoadU(d, low + i + kCalls), hn::LoadU(d, high + i + kCalls));
    run_rounds<kRounds>(keys, calls0, calls1);
    calls0.store(out + 4 * i);
    calls1.store(out + 4 * (i + kCalls));
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
