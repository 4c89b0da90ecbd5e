// What a SegmentStore should hold, beside the store: rows by version, written and read at random.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "weft/storage/segment_store.h"

namespace weft::storage {

/// The bytes of a row's version.
std::vector<std::byte> bytes_of(std::uint64_t key,
                                std::int64_t row,
                                std::uint64_t version,
                                std::int64_t row_bytes);

/// Options of a store whose segments and buffers are tiny, so that a few writes do everything.
SegmentStoreOptions tiny_store(std::vector<std::string> directories,
                               io::ReadMethod method = io::ReadMethod::kThreads);

/// Some shards, of short rows, of rows that just fit into a block, and of rows of several.
std::vector<StoreShard> some_shards();

/// Versions that rows have; a row that was never written is not in it.
using Versions = std::map<std::int64_t, std::uint64_t>;

/// A store, its shards, and what they should hold.
class StoreModel {
 public:
  StoreModel(io::FileSystem& files,
             const SegmentStoreOptions& options,
             const std::vector<StoreShard>& shards,
             std::uint32_t seed);

  /// Writes `count` random rows of a random shard, or of the given one.
  void write(std::int64_t count, int shard = -1);

  /// Reads `count` random rows of a random shard, half of them rows that were written last;
  /// compares.
  void read(std::int64_t count);

  /// Reads all rows of all shards, and what the store says about which it holds; compares.
  void read_all();

  /// Does a random one of all these, or drains.
  void step();

  /// Rows read that were not as written.
  [[nodiscard]] std::int64_t wrong() const { return wrong_; }

  [[nodiscard]] SegmentStore& store() { return *store_; }

  [[nodiscard]] RowBacking& shard(std::size_t i) { return *backings_[i]; }

  [[nodiscard]] const std::vector<Versions>& versions() const { return versions_; }

  /// Rows that the files of a seal say to hold, against `versions`: how many are wrong.
  std::int64_t wrong_in(const Seal& seal, const std::vector<Versions>& versions) const;

 private:
  void compare(std::size_t shard, const std::vector<std::int64_t>& rows);
  std::vector<std::int64_t> random_rows(std::size_t shard, std::int64_t count);

  io::FileSystem& files_;
  std::vector<StoreShard> shards_;
  std::mt19937 random_;
  std::unique_ptr<SegmentStore> store_;
  std::vector<RowBacking*> backings_;
  std::vector<std::unique_ptr<RowReads>> reads_;
  std::vector<Versions> versions_;
  std::vector<std::vector<std::int64_t>> last_written_;
  std::uint64_t version_ = 0;
  std::int64_t wrong_ = 0;
};

}  // namespace weft::storage
