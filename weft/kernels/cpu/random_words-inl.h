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

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Words that random_words() may write beyond the last: four per lane of the widest vector.
inline constexpr std::int64_t kSpareWords = 64;

/// out[c] = word (c mod 4) of Philox(key; low, high + c/4) for c in [0, count): four columns per
/// call, one call per lane. The lowest 20 bits of `high` count the fours of columns, so adding a
/// lane's number carries nothing.
inline void random_words(std::uint64_t key,
                         std::uint64_t low,
                         std::uint64_t high,
                         std::int64_t count,
                         std::uint32_t* out) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto multiplier0 = hn::BitCast(d, hn::Set(wide, 0xD2511F53U));
  const auto multiplier1 = hn::BitCast(d, hn::Set(wide, 0xCD9E8D57U));
  for (std::int64_t col = 0; col < count; col += 4 * lanes) {
    auto x0 = hn::Set(d, static_cast<std::uint32_t>(low));
    auto x1 = hn::Set(d, static_cast<std::uint32_t>(low >> 32));
    auto x2 = hn::Iota(d, static_cast<std::uint32_t>(high) + static_cast<std::uint32_t>(col / 4));
    auto x3 = hn::Set(d, static_cast<std::uint32_t>(high >> 32));
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto even0 = hn::MulEven(x0, multiplier0);
      const auto odd0 =
          hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x0))), multiplier0);
      const auto even1 = hn::MulEven(x2, multiplier1);
      const auto odd1 =
          hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x2))), multiplier1);
      const auto low0 = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd0)), hn::BitCast(d, even0));
      const auto high0 =
          hn::OddEven(hn::BitCast(d, odd0), hn::BitCast(d, hn::ShiftRight<32>(even0)));
      const auto low1 = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd1)), hn::BitCast(d, even1));
      const auto high1 =
          hn::OddEven(hn::BitCast(d, odd1), hn::BitCast(d, hn::ShiftRight<32>(even1)));
      x0 = hn::Xor(hn::Xor(high1, x1), hn::Set(d, key0));
      x2 = hn::Xor(hn::Xor(high0, x3), hn::Set(d, key1));
      x1 = low1;
      x3 = low0;
      key0 += 0x9E3779B9U;
      key1 += 0xBB67AE85U;
    }
    hn::StoreInterleaved4(x0, x1, x2, x3, d, out + col);
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
