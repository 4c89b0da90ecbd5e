// Any pair of files either is a log, all of whose events can be read, or is refused with
// Error(kData). The input is both files, movies.csv first, with a zero byte between.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/data/movielens.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft::data;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view movies = text.substr(0, text.find('\0'));
  const std::string_view ratings = text.substr(std::min(size, movies.size() + 1));
  try {
    const auto source = make_movielens(parse_movielens(ratings, movies, "fuzz"), Split::kEval, 0);
    std::vector<std::int64_t> ids(static_cast<std::size_t>(source->size()));
    std::iota(ids.begin(), ids.end(), 0);
    RawBlock block;
    source->read(ids, block);
  } catch (const weft::Error& error) {
    if (error.code() != weft::ErrorCode::kData) {
      std::abort();
    }
  }
  return 0;
}
