#include "weft/embedding/initial_value.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "weft/base/philox.h"

namespace weft::embedding {
namespace {

constexpr std::int64_t kColumnsPerDraw = 4;

using Words = std::array<std::uint32_t, 4>;
using Values = std::array<float, 4>;

Values uniform(const Words& words, float scale) {
  Values values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * (2.0F * uniform_float(words[i]) - 1.0F);
  }
  return values;
}

/// Box and Muller: two uniform words make two independent normal values.
Values normal(const Words& words, float scale) {
  Values values{};
  for (std::size_t i = 0; i < values.size(); i += 2) {
    // In (0, 1], so that the logarithm is finite.
    const double u = (static_cast<double>(words[i]) + 1.0) * 0x1.0p-32;
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(words[i + 1]) * 0x1.0p-32;
    const double radius = std::sqrt(-2.0 * std::log(u));
    values[i] = scale * static_cast<float>(radius * std::cos(angle));
    values[i + 1] = scale * static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

float scale_of(const spec::Table& table) {
  return static_cast<float>(table.init_scale > 0.0
                                ? table.init_scale
                                : 1.0 / std::sqrt(static_cast<double>(table.num_embeddings)));
}

}  // namespace

InitialValues::InitialValues(const spec::Table& table, std::uint64_t seed)
    : key_(random_key(seed, RandomPurpose::kInitialValue, table.name)),
      init_(table.init),
      scale_(scale_of(table)) {
}

void InitialValues::row(std::int64_t row, Range cols, float* out) const {
  if (init_ == spec::TableInit::kZero) {
    for (std::int64_t i = 0; i < cols.size(); ++i) {
      out[i] = 0.0F;
    }
    return;
  }
  for (std::int64_t col = cols.begin; col < cols.end;) {
    const std::int64_t draw = col / kColumnsPerDraw;
    const Words words =
        philox(key_, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(draw));
    const Values values =
        init_ == spec::TableInit::kUniform ? uniform(words, scale_) : normal(words, scale_);
    for (; col < cols.end && col / kColumnsPerDraw == draw; ++col) {
      out[col - cols.begin] = values[static_cast<std::size_t>(col % kColumnsPerDraw)];
    }
  }
}

void initial_values(
    const spec::Table& table, std::uint64_t seed, std::int64_t row, Range cols, float* out) {
  InitialValues(table, seed).row(row, cols, out);
}

}  // namespace weft::embedding
