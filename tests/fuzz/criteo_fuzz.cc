// Any line either parses or is refused with Error(kData).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "weft/base/error.h"
#include "weft/data/criteo.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  weft::data::CriteoSample sample;
  for (std::int64_t line = 1; !text.empty(); ++line) {
    const std::string_view one = text.substr(0, text.find('\n'));
    try {
      weft::data::parse_criteo_line(one, {"fuzz", line}, sample);
    } catch (const weft::Error& error) {
      if (error.code() != weft::ErrorCode::kData) {
        std::abort();
      }
    }
    text.remove_prefix(one.size() < text.size() ? one.size() + 1 : one.size());
  }
  return 0;
}
