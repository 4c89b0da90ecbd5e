#include "bench/rocks_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::bench {
namespace {

constexpr std::size_t kKeyBytes = 8;
using Key = std::array<char, kKeyBytes>;

/// Big-endian, as keys are compared.
Key key_of(std::int64_t row) {
  Key key;
  for (std::size_t i = 0; i < kKeyBytes; ++i) {
    key[i] = static_cast<char>(row >> (8 * (kKeyBytes - 1 - i)));
  }
  return key;
}

rocksdb::Slice slice_of(const Key& key) {
  return {key.data(), key.size()};
}

void check(const rocksdb::Status& status) {
  if (!status.ok()) {
    fail(ErrorCode::kIo, "RocksDB: {}", status.ToString());
  }
}

class Rows final : public RocksRows {
 public:
  Rows(const std::string& directory, std::int64_t row_bytes) : row_bytes_(row_bytes) {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.error_if_exists = true;
    options.compression = rocksdb::kNoCompression;
    options.use_direct_reads = true;
    options.use_direct_io_for_flush_and_compaction = true;
    options.max_open_files = -1;
    options.IncreaseParallelism(2);
    rocksdb::BlockBasedTableOptions table;
    table.no_block_cache = true;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB* db = nullptr;
    check(rocksdb::DB::Open(options, directory, &db));
    db_.reset(db);
  }

  void write(std::span<const std::int64_t> rows, const std::byte* packed) override {
    rocksdb::WriteBatch batch;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Key key = key_of(rows[i]);
      const auto* const bytes = reinterpret_cast<const char*>(packed) + i * at(row_bytes_);
      check(batch.Put(slice_of(key), {bytes, at(row_bytes_)}));
    }
    rocksdb::WriteOptions options;
    options.disableWAL = true;
    check(db_->Write(options, &batch));
  }

  void compact() override {
    check(db_->Flush({}));
    check(db_->CompactRange({}, nullptr, nullptr));
  }

  void gather(std::span<const std::int64_t> rows, std::byte* packed, int threads) override {
    std::vector<std::thread> others;
    const std::size_t share = (rows.size() + at(threads) - 1) / at(threads);
    for (std::size_t first = share; first < rows.size(); first += share) {
      others.emplace_back([=, this] {
        get(rows.subspan(first, std::min(share, rows.size() - first)),
            packed + first * at(row_bytes_));
      });
    }
    get(rows.first(std::min(share, rows.size())), packed);
    for (std::thread& other : others) {
      other.join();
    }
  }

 private:
  void get(std::span<const std::int64_t> rows, std::byte* packed) {
    std::vector<Key> keys;
    std::vector<rocksdb::Slice> slices;
    keys.reserve(rows.size());
    for (const std::int64_t row : rows) {
      keys.push_back(key_of(row));
      slices.push_back(slice_of(keys.back()));
    }
    std::vector<rocksdb::PinnableSlice> values(rows.size());
    std::vector<rocksdb::Status> states(rows.size());
    rocksdb::ReadOptions options;
    options.async_io = true;  // as far as it was built with it
    db_->MultiGet(options, db_->DefaultColumnFamily(), rows.size(), slices.data(), values.data(),
                  states.data());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      check(states[i]);
      std::memcpy(packed + i * at(row_bytes_), values[i].data(), at(row_bytes_));
    }
  }

  std::int64_t row_bytes_;
  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace

std::unique_ptr<RocksRows> make_rocks_rows(const std::string& directory, std::int64_t row_bytes) {
  return std::make_unique<Rows>(directory, row_bytes);
}

}  // namespace weft::bench
