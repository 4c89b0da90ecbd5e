/// What the tests of tools for checkpoints share: states with changed elements, sources of items in
/// memory, and all bytes of a source.
#pragma once

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/checkpoint/memory_state.h"
#include "weft/checkpoint/checkpoint_reader.h"

namespace weft::checkpoint {

/// An element of a matrix, by name.
struct Element {
  std::string parameter;
  std::string kind;
  std::int64_t row = 0;
  std::int64_t col = 0;

  friend auto operator<=>(const Element&, const Element&) = default;
};

/// Where a rank holds the element: its first byte, null where it does not.
inline std::byte* place_of(MemoryState& state, const Element& element) {
  const std::vector<StateItem> items = state.state_items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const StateItem& item = items[i];
    const bool is_held = item.parameter == element.parameter && item.kind == element.kind &&
                         item.held().contains(element.row) && item.col_begin <= element.col &&
                         element.col < item.col_end;
    if (is_held) {
      const std::int64_t index = item.held().index(element.row) * (item.col_end - item.col_begin) +
                                 element.col - item.col_begin;
      return &state.at(i, static_cast<std::size_t>(index * size_of(item.dtype)));
    }
  }
  return nullptr;
}

/// As save_all(), and `change` may do something to every rank's state before.
inline void save_changed(const SaveOptions& options,
                         const std::vector<Matrix>& matrices,
                         std::uint32_t seed,
                         int ranks,
                         const std::function<void(MemoryState&)>& change) {
  comm::run_local(ranks, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryState state = make_state(matrices, seed, ranks, world.rank());
    state.fill();
    change(state);
    const StateSource* source = &state;
    save(world, ctx, options, std::span(&source, 1));
  });
}

/// The bytes of a whole matrix as byte_at() says.
inline std::vector<std::byte> expected_bytes(const ItemInfo& item) {
  const std::uint64_t seed = hash_string(item.parameter + "/" + item.kind);
  std::vector<std::byte> out;
  for (std::int64_t place = 0; place < item.rows * item.cols; ++place) {
    for (std::int64_t b = 0; b < size_of(item.dtype); ++b) {
      out.push_back(std::byte{byte_at(seed, place, b)});
    }
  }
  return out;
}

/// Rows of a stream, copied.
struct CopiedRows {
  std::vector<std::int64_t> ids;
  std::vector<std::byte> bytes;

  friend bool operator==(const CopiedRows&, const CopiedRows&) = default;
};

inline CopiedRows copy_rows(const ItemSource& source, std::size_t item, const Range& range) {
  const std::unique_ptr<ItemRows> stream = source.open_rows(item, range);
  CopiedRows out;
  StoredRows rows;
  while (stream->next(rows)) {
    EXPECT_GT(rows.size(), 0);
    EXPECT_EQ(std::ssize(rows.bytes), rows.size() * source.items()[item].row_bytes());
    out.ids.insert(out.ids.end(), rows.ids.begin(), rows.ids.end());
    out.bytes.insert(out.bytes.end(), rows.bytes.begin(), rows.bytes.end());
  }
  return out;
}

/// Items in memory; rows are handed out `at_once` at a time.
class MemoryItems final : public ItemSource {
 public:
  explicit MemoryItems(std::int64_t at_once = 3) : at_once_(at_once) {}

  /// Rows of these numbers, filled as byte_at() says; all rows where `ids` are all.
  void add(const Matrix& m, std::vector<std::int64_t> ids) {
    const bool is_all = std::ssize(ids) == m.rows;
    items_.push_back({m.parameter, m.kind, m.dtype, m.rows, m.cols,
                      is_all ? RowForm::kAll : RowForm::kListed, std::ssize(ids)});
    const std::vector<std::byte> all = expected_bytes(items_.back());
    CopiedRows rows;
    const std::int64_t row_bytes = items_.back().row_bytes();
    for (const std::int64_t id : ids) {
      const auto* const begin = all.data() + id * row_bytes;
      rows.bytes.insert(rows.bytes.end(), begin, begin + row_bytes);
    }
    rows.ids = std::move(ids);
    rows_.push_back(std::move(rows));
  }

  CopiedRows& rows(std::size_t item) { return rows_[item]; }

  [[nodiscard]] const std::vector<ItemInfo>& items() const override { return items_; }

  [[nodiscard]] std::unique_ptr<ItemRows> open_rows(std::size_t item,
                                                    const Range& range) const override {
    return std::make_unique<Stream>(rows_[item], items_[item].row_bytes(), range, at_once_);
  }

 private:
  class Stream final : public ItemRows {
   public:
    Stream(const CopiedRows& rows, std::int64_t row_bytes, const Range& range, std::int64_t at_once)
        : rows_(rows), row_bytes_(row_bytes), at_once_(at_once) {
      const auto place = [&](std::int64_t id) {
        return std::lower_bound(rows.ids.begin(), rows.ids.end(), id) - rows.ids.begin();
      };
      next_ = place(range.begin);
      end_ = place(range.end);
    }

    bool next(StoredRows& out) override {
      const std::int64_t count = std::min(at_once_, end_ - next_);
      out = {std::span(rows_.ids).subspan(static_cast<std::size_t>(next_),
                                          static_cast<std::size_t>(count)),
             std::span(rows_.bytes)
                 .subspan(static_cast<std::size_t>(next_ * row_bytes_),
                          static_cast<std::size_t>(count * row_bytes_))};
      next_ += count;
      return count > 0;
    }

   private:
    const CopiedRows& rows_;
    std::int64_t row_bytes_;
    std::int64_t at_once_;
    std::int64_t next_ = 0;
    std::int64_t end_ = 0;
  };

  std::int64_t at_once_;
  std::vector<ItemInfo> items_;
  std::vector<CopiedRows> rows_;
};

inline std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void set_file_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Writes a checkpoint's manifest anew, with chunks of at most so many rows: small ones that have
/// as many chunks as large ones.
inline void cut_chunks(const std::string& directory, std::int64_t rows) {
  Manifest manifest = read_manifest(directory);
  for (StoredItem& item : manifest.items) {
    for (StoredBlock& block : item.blocks) {
      const std::string file =
          file_bytes(directory + "/" + manifest.files[static_cast<std::size_t>(block.file)].name);
      const std::int64_t row_bytes = (block.col_end - block.col_begin) * size_of(item.dtype);
      const std::int64_t count = block.rows().size();
      block.chunk_rows = std::min(rows, count);
      block.checksums.clear();
      for (std::int64_t i = 0; i < count; i += block.chunk_rows) {
        const std::int64_t some = std::min(block.chunk_rows, count - i);
        block.checksums.push_back(
            hash_string(file.substr(static_cast<std::size_t>(block.offset + i * row_bytes),
                                    static_cast<std::size_t>(some * row_bytes))));
      }
    }
  }
  set_file_bytes(directory + "/manifest.json", manifest_to_json(manifest));
}

/// Flips bits of one byte where it stands: to write a whole file anew takes the disk much longer.
inline void flip_bits(const std::string& path, std::size_t at, int bits) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get() ^ bits;
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte));
}

/// Options to save to a disk in memory, where nothing waits for syncs.
inline SaveOptions memory_options(io::FileSystem& files,
                                  const std::string& directory,
                                  std::int64_t step) {
  SaveOptions options = save_options(directory, step);
  options.files = &files;
  return options;
}

/// The checkpoints of earlier versions that are kept with the tests.
inline std::string earlier_checkpoint(int version) {
  return std::string(WEFT_SOURCE_DIR) + "/tests/checkpoint/earlier/version-" +
         std::to_string(version);
}

}  // namespace weft::checkpoint
