// The build without RocksDB.
#include "bench/rocks_rows.h"

namespace weft::bench {

std::unique_ptr<RocksRows> make_rocks_rows(const std::string& /*directory*/,
                                           std::int64_t /*row_bytes*/) {
  return nullptr;
}

}  // namespace weft::bench
