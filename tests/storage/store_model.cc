#include "tests/storage/store_model.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "tests/rowfile/segment_support.h"
#include "weft/base/at.h"

namespace weft::storage {

std::vector<std::byte> bytes_of(std::uint64_t key,
                                std::int64_t row,
                                std::uint64_t version,
                                std::int64_t row_bytes) {
  return rowfile::row_of(static_cast<rowfile::RowId>(row), row_bytes, hash_combine(key, version));
}

SegmentStoreOptions tiny_store(std::vector<std::string> directories, io::ReadMethod method) {
  SegmentStoreOptions options;
  options.directories = std::move(directories);
  options.segment_bytes = 128 << 10;
  options.write_buffer_bytes = 32 << 10;
  options.reads = {.method = method, .depth = 16, .threads = 2};
  return options;
}

std::vector<StoreShard> some_shards() {
  return {{.key = 11, .rows = {0, 900, 1}, .row_bytes = 20, .table = "short"},
          {.key = 5, .rows = {7, 3000, 3}, .row_bytes = 260, .table = "usual"},
          {.key = 77, .rows = {0, 60, 1}, .row_bytes = 4080, .table = "one to a block"},
          {.key = 8, .rows = {100, 130, 1}, .row_bytes = 9000, .table = "long"}};
}

StoreModel::StoreModel(io::FileSystem& files,
                       const SegmentStoreOptions& options,
                       const std::vector<StoreShard>& shards,
                       std::uint32_t seed)
    : files_(files),
      shards_(shards),
      random_(seed),
      store_(std::make_unique<SegmentStore>(files, options)),
      versions_(shards.size()),
      last_written_(shards.size()) {
  for (const StoreShard& shard : shards_) {
    backings_.push_back(&store_->add_shard(shard));
    reads_.push_back(backings_.back()->make_reads());
  }
}

std::vector<std::int64_t> StoreModel::random_rows(std::size_t shard, std::int64_t count) {
  std::set<std::int64_t> rows;
  const auto all = static_cast<std::uint64_t>(shards_[shard].rows.size());
  for (std::int64_t i = 0; i < count; ++i) {
    // Low ones more often.
    rows.insert(static_cast<std::int64_t>(random_() % (1 + random_() % all)));
  }
  std::vector<std::int64_t> list(rows.begin(), rows.end());
  std::shuffle(list.begin(), list.end(), random_);
  return list;
}

void StoreModel::write(std::int64_t count, int shard) {
  const std::size_t s = shard >= 0 ? at(shard) : random_() % shards_.size();
  const std::vector<std::int64_t> rows = random_rows(s, count);
  std::vector<std::byte> packed;
  ++version_;
  for (const std::int64_t row : rows) {
    const auto bytes = bytes_of(shards_[s].key, row, version_, shards_[s].row_bytes);
    packed.insert(packed.end(), bytes.begin(), bytes.end());
  }
  backings_[s]->write(rows, packed.data());
  for (const std::int64_t row : rows) {
    versions_[s][row] = version_;
  }
  last_written_[s] = rows;
}

void StoreModel::compare(std::size_t shard, const std::vector<std::int64_t>& rows) {
  const std::int64_t row_bytes = shards_[shard].row_bytes;
  constexpr std::byte kUntouched{0xa5};
  std::vector<std::byte> packed(rows.size() * at(row_bytes), kUntouched);
  std::vector<std::uint8_t> found(rows.size(), 2);
  reads_[shard]->begin(rows, packed.data());
  reads_[shard]->wait(found);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto held = versions_[shard].find(rows[i]);
    const bool is_held = held != versions_[shard].end();
    const auto should = is_held ? bytes_of(shards_[shard].key, rows[i], held->second, row_bytes)
                                : std::vector<std::byte>(at(row_bytes), kUntouched);
    const bool right =
        found[i] == (is_held ? 1 : 0) &&
        std::memcmp(packed.data() + i * at(row_bytes), should.data(), should.size()) == 0;
    wrong_ += right ? 0 : 1;
  }
}

void StoreModel::read(std::int64_t count) {
  const std::size_t s = random_() % shards_.size();
  std::vector<std::int64_t> rows = random_rows(s, count);
  for (const std::int64_t row : last_written_[s]) {
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) {
      rows.push_back(row);
    }
  }
  compare(s, rows);
}

void StoreModel::read_all() {
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    std::vector<std::int64_t> rows(at(shards_[s].rows.size()));
    std::iota(rows.begin(), rows.end(), 0);
    compare(s, rows);
    std::set<std::int64_t> visited;
    std::int64_t visits = 0;
    backings_[s]->for_each_row([&](std::span<const std::int64_t> some) {
      visits += static_cast<std::int64_t>(some.size());
      visited.insert(some.begin(), some.end());
    });
    const auto held = static_cast<std::int64_t>(versions_[s].size());
    wrong_ += visits != held || std::cmp_not_equal(visited.size(), held) ? 1 : 0;
    wrong_ += backings_[s]->rows_held() != held ? 1 : 0;
    for (const auto& [row, version] : versions_[s]) {
      wrong_ += visited.contains(row) ? 0 : 1;
    }
  }
}

void StoreModel::step() {
  switch (random_() % 16) {
    case 0:
      backings_[random_() % backings_.size()]->drain();
      return;
    case 1:
      return random_() % 4 == 0 ? read_all() : read(3);
    case 2:
    case 3:
    case 4:
      return read(1 + random_() % 50);
    default:
      return write(1 + random_() % 100);
  }
}

std::int64_t StoreModel::wrong_in(const Seal& seal, const std::vector<Versions>& versions) const {
  rowfile::State state;
  for (const SealedFile& file : seal.files) {
    const rowfile::SegmentReader reader(files_, file.path);
    reader.verify();
    rowfile::replay(reader, state);
  }
  std::int64_t wrong = 0;
  std::size_t held = 0;
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    held += versions[s].size();
    for (const auto& [row, version] : versions[s]) {
      const auto found = state.find({s + 1, static_cast<rowfile::RowId>(shards_[s].rows.row(row))});
      const bool right =
          found != state.end() &&
          found->second == bytes_of(shards_[s].key, row, version, shards_[s].row_bytes);
      wrong += right ? 0 : 1;
    }
  }
  return wrong + (state.size() == held ? 0 : 1);
}

}  // namespace weft::storage
