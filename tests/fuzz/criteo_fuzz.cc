// Any line either parses or is refused with Error(kData), and the fast path agrees with the plain
// parser on which and on the values.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "weft/base/error.h"
#include "weft/data/criteo.h"
#include "weft/data/criteo_decode.h"

namespace {

using weft::data::ColumnSelection;
using weft::data::CriteoDecoder;
using weft::data::CriteoSample;
using weft::data::RawBlock;

bool parse(std::string_view line, std::int64_t number, CriteoSample& sample) {
  try {
    weft::data::parse_criteo_line(line, {"fuzz", number}, sample);
    return true;
  } catch (const weft::Error& error) {
    if (error.code() != weft::ErrorCode::kData) {
      std::abort();
    }
    return false;
  }
}

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void compare(const RawBlock& block, const CriteoSample& sample) {
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  require(block.labels[0][0] == sample.label);
  for (std::size_t i = 0; i < weft::data::kCriteoIntegers; ++i) {
    require(bits(block.dense[i][0]) == bits(sample.integers[i]));
  }
  for (std::size_t i = 0; i < weft::data::kCriteoCategories; ++i) {
    const RawBlock::Bags& bags = block.categorical[i];
    require(bags.ids.size() == (sample.categories[i] < 0 ? 0U : 1U));
    require(bags.ids.empty() || bags.ids[0] == sample.categories[i]);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = std::string(CriteoDecoder::kFront, '0') +
                           std::string(reinterpret_cast<const char*>(data), size) +
                           std::string(CriteoDecoder::kBack, '0');
  static const ColumnSelection all = {std::vector<char>(weft::data::kCriteoIntegers, 1),
                                      std::vector<char>(weft::data::kCriteoCategories, 1),
                                      std::vector<char>(1, 1)};
  std::string_view left = std::string_view(text).substr(CriteoDecoder::kFront, size);
  CriteoSample sample;
  RawBlock block;
  for (std::int64_t number = 1; !left.empty(); ++number) {
    const std::string_view line = left.substr(0, left.find('\n'));
    const bool good = parse(line, number, sample);
    if (line.size() < weft::data::kCriteoMaxLine) {
      CriteoDecoder decoder(all, 1, block);
      require(decoder.add(std::span(&line, 1)) == good);
      if (good) {
        decoder.finish();
        compare(block, sample);
      }
    }
    left.remove_prefix(line.size() < left.size() ? line.size() + 1 : line.size());
  }
  return 0;
}
