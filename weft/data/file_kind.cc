#include "weft/data/file_kind.h"

#include <algorithm>
#include <string_view>

namespace weft::data {

std::string what_reads(std::span<const std::byte> bytes) {
  constexpr std::size_t kLooked = 65536;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min(bytes.size(), kLooked));
  if (text.starts_with("PAR1")) {
    return "it is Parquet, which Weft does not read: write it in the weft format with some lines "
           "of "
           "Python (docs/weft_format.md, 'Writing it from Python')";
  }
  if (text.starts_with("\x1f\x8b") || text.starts_with("\x28\xb5\x2f\xfd")) {
    return "it is compressed: if it is a Criteo log, set data.format: criteo, which reads .gz and "
           ".zst; a weft file has to be unpacked";
  }
  const std::string_view line = text.substr(0, text.find('\n'));
  if (std::count(line.begin(), line.end(), '\t') >= 13) {
    return "its fields are separated by tabs: if it is a Criteo log, set data.format: criteo";
  }
  if (line.starts_with("userId,") || line.starts_with("movieId,")) {
    return "it is of MovieLens: set data.format: movielens and data.path to the folder";
  }
  return "set data.format to its format, or convert it with 'weft data convert'";
}

}  // namespace weft::data
