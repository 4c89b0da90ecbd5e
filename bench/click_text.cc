#include "bench/click_text.h"

#include <cmath>
#include <vector>

#include "weft/base/hash.h"
#include "weft/data/zipf.h"

namespace weft::bench {
namespace {

/// Measured on a thousand rows of the Kaggle log.
struct IntegerColumn {
  double missing;
  double median;
  double percentile90;
};

constexpr std::array<IntegerColumn, 13> kIntegers = {{{0.458, 1, 8},
                                                      {0.0, 3, 225},
                                                      {0.230, 6, 56},
                                                      {0.213, 4, 20},
                                                      {0.041, 2923, 30941},
                                                      {0.248, 44, 368},
                                                      {0.039, 3, 29},
                                                      {0.0, 8, 36},
                                                      {0.039, 47, 345},
                                                      {0.458, 0, 1},
                                                      {0.039, 1, 5},
                                                      {0.775, 0, 2},
                                                      {0.213, 5, 27}}};

constexpr std::array<double, 26> kCategoryMissing = {
    0, 0, 0.033, 0.033, 0, 0.122, 0,     0,     0,     0, 0,     0.033, 0,
    0, 0, 0.033, 0,     0, 0.498, 0.498, 0.033, 0.815, 0, 0.033, 0.498, 0.498};

constexpr double kNegative = 0.1;  ///< of the second integer column: -1
constexpr double kClicks = 0.205;
constexpr double kZipf = 1.1;

double uniform(data::WordStream& words) {
  return static_cast<double>(words.next() >> 11) * 0x1.0p-53;
}

/// Counts are near to log-normal: the median and the 90th percentile say which.
void add_integer(std::size_t column, data::WordStream& words, std::string& text) {
  const IntegerColumn& law = kIntegers[column];
  const double u = uniform(words);
  const double v = uniform(words);
  if (uniform(words) < law.missing) {
    return;
  }
  if (column == 1 && uniform(words) < kNegative) {
    text += "-1";
    return;
  }
  const double normal = std::sqrt(-2.0 * std::log(1.0 - u)) * std::cos(6.283185307179586 * v);
  const double deviation = std::log((law.percentile90 + 1) / (law.median + 1)) / 1.2816;
  const double value = std::exp(std::log(law.median + 1.5) + deviation * normal) - 1.0;
  text += std::to_string(static_cast<std::int64_t>(std::min(std::max(value, 0.0), 1e7)));
}

void add_category(std::size_t column,
                  const data::ZipfSampler& popularity,
                  data::WordStream& words,
                  std::string& text) {
  const std::uint64_t rank = popularity(words);
  if (uniform(words) < kCategoryMissing[column]) {
    return;
  }
  const std::uint64_t id = mix64(rank * 64 + column + 1);
  for (int shift = 28; shift >= 0; shift -= 4) {
    text += "0123456789abcdef"[(id >> shift) & 15];
  }
}

}  // namespace

std::string click_text(std::int64_t lines) {
  std::vector<data::ZipfSampler> popularity;
  for (const std::int64_t rows : kKaggleRows) {
    popularity.emplace_back(rows, kZipf);
  }
  data::WordStream words(7);
  std::string text;
  for (std::int64_t line = 0; line < lines; ++line) {
    text += uniform(words) < kClicks ? '1' : '0';
    for (std::size_t i = 0; i < kIntegers.size(); ++i) {
      text += '\t';
      add_integer(i, words, text);
    }
    for (std::size_t i = 0; i < kKaggleRows.size(); ++i) {
      text += '\t';
      add_category(i, popularity[i], words, text);
    }
    text += '\n';
  }
  return text;
}

}  // namespace weft::bench
