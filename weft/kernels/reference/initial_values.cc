#include "weft/kernels/initial_values.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <vector>

#include "weft/base/philox.h"
#include "weft/kernels/box_muller.h"

namespace weft::kernels::reference {
namespace {

constexpr std::int64_t kColumnsPerDraw = 4;

using Words = std::array<std::uint32_t, 4>;

template <std::size_t kTerms>
double horner(const std::array<double, kTerms>& series, double x) {
  double sum = series[kTerms - 1];
  for (std::size_t k = kTerms - 1; k-- > 0;) {
    sum = sum * x + series[k];
  }
  return sum;
}

double natural_log(double x) {
  // Moves [√½, √2) · 2^e to where e is the exponent's field.
  const std::uint64_t moved = std::bit_cast<std::uint64_t>(x) + (kOneBits - kSqrtHalfBits);
  const double exponent = static_cast<double>(moved >> 52) - 1023.0;
  const double m = std::bit_cast<double>((moved & kMantissaMask) + kSqrtHalfBits);
  const double s = (m - 1.0) / (m + 1.0);
  return exponent * kLn2 + s * horner(kLogSeries, s * s);
}

/// Two words to two independent normal values.
std::array<double, 2> normal_pair(std::uint32_t word0, std::uint32_t word1) {
  // In (0, 1], so that the logarithm is finite.
  const double u = (static_cast<double>(word0) + 1.0) * 0x1.0p-32;
  const double radius = std::sqrt(-2.0 * natural_log(u));
  const std::int64_t quarters = (std::int64_t{word1} + (1 << 29)) >> 30;
  const double x = static_cast<double>(std::int64_t{word1} - (quarters << 30)) * kRadiansPerWord;
  const double sine = x * horner(kSinSeries, x * x);
  const double cosine = horner(kCosSeries, x * x);
  const bool odd = (quarters & 1) != 0;
  const double c = odd ? sine : cosine;
  const double s = odd ? cosine : sine;
  return {radius * (((quarters + 1) & 2) != 0 ? -c : c), radius * ((quarters & 2) != 0 ? -s : s)};
}

std::array<float, 4> values_of(InitialRule rule, const Words& words, float scale) {
  std::array<float, 4> values{};
  switch (rule) {
    case InitialRule::kZero:
      break;
    case InitialRule::kUniform:
      for (std::size_t i = 0; i < 4; ++i) {
        values[i] = scale * (2.0F * uniform_float(words[i]) - 1.0F);
      }
      break;
    case InitialRule::kNormal:
      for (std::size_t i = 0; i < 4; i += 2) {
        const std::array<double, 2> z = normal_pair(words[i], words[i + 1]);
        values[i] = scale * static_cast<float>(z[0]);
        values[i + 1] = scale * static_cast<float>(z[1]);
      }
      break;
  }
  return values;
}

float value_of(const InitialRows& initial, std::int64_t number, std::int64_t col) {
  const Words words = philox(initial.key, static_cast<std::uint64_t>(number),
                             static_cast<std::uint64_t>(col / kColumnsPerDraw));
  return values_of(initial.rule, words,
                   initial.scale)[static_cast<std::size_t>(col % kColumnsPerDraw)];
}

void store(const RowTable& table, std::int64_t slot, std::int64_t i, float value) {
  char* const data = static_cast<char*>(table.weights) + slot * table.weight_stride;
  switch (table.dtype) {
    case DType::kFloat16:
      reinterpret_cast<Float16*>(data)[i] = to_float16(value);
      return;
    case DType::kBFloat16:
      reinterpret_cast<BFloat16*>(data)[i] = to_bfloat16(value);
      return;
    case DType::kSplitBFloat16: {
      const SplitBFloat16 halves = to_split_bfloat16(value);
      char* const low = static_cast<char*>(table.low) + slot * table.low_stride;
      reinterpret_cast<BFloat16*>(data)[i] = halves.high;
      reinterpret_cast<std::int16_t*>(low)[i] = halves.low;
      return;
    }
    default:
      reinterpret_cast<float*>(data)[i] = value;
      return;
  }
}

void set_rows(const InitialRows& initial) {
  const RowTable& table = initial.table;
  for (std::int64_t place = initial.rows.begin; place < initial.rows.end; ++place) {
    const std::int64_t slot = initial.slot_at(place);
    for (std::int64_t i = 0; i < table.cols; ++i) {
      store(table, slot, i, value_of(initial, initial.number_at(place), table.first_col + i));
    }
    for (std::int64_t i = 0; i < initial.state_floats; ++i) {
      char* const state = static_cast<char*>(table.state) + slot * table.state_stride;
      reinterpret_cast<float*>(state)[i] = initial.state;
    }
  }
}

}  // namespace

void set_initial_rows(Context& /*ctx*/, std::span<const InitialRows> jobs) {
  for (const InitialRows& job : jobs) {
    set_rows(job);
  }
}

}  // namespace weft::kernels::reference
