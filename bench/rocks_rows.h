/// RocksDB as a store of rows, the yardstick of store_bench: what other systems keep rows on a disk
/// in.
///
/// Rows are values of keys of 8 bytes. Direct reads and writes, no log, no compression, no cache of
/// blocks, filters of 10 bits a key; all else as it comes. A build without it has no_rocks_rows.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace weft::bench {

class RocksRows {
 public:
  virtual ~RocksRows() = default;

  /// Writes packed rows.
  virtual void write(std::span<const std::int64_t> rows, const std::byte* packed) = 0;

  /// Brings all rows into one level: the best case of reads.
  virtual void compact() = 0;

  /// Reads rows by one MultiGet per thread. Throws Error(kIo) where one is missing.
  virtual void gather(std::span<const std::int64_t> rows, std::byte* packed, int threads) = 0;
};

/// Opens an empty one. Null in a build without RocksDB.
std::unique_ptr<RocksRows> make_rocks_rows(const std::string& directory, std::int64_t row_bytes);

}  // namespace weft::bench
