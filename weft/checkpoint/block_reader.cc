// The calling thread finds the chunks that a target needs. Any thread reads one, checks it and cuts
// out what the target holds; the calling thread writes that to the sink.
#include "weft/checkpoint/block_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

/// Whether the two have a row in common; true too for some that have none.
bool may_meet(const RowSet& a, const RowSet& b) {
  return std::max(a.begin, b.begin) < std::min(a.end, b.end) &&
         (a.begin - b.begin) % std::gcd(a.step, b.step) == 0;
}

/// Where a chunk lies, and who wants it.
struct WantedChunk {
  const BlockTarget* target = nullptr;
  const StoredItem* stored = nullptr;
  const StoredBlock* block = nullptr;
  const InputFile* file = nullptr;
  RowSet rows;  ///< of the chunk, in the whole matrix

  [[nodiscard]] std::int64_t row_bytes() const { return block_row_bytes(*stored, *block); }

  [[nodiscard]] std::int64_t bytes() const { return rows.size() * row_bytes(); }

  /// Rows before it in its block.
  [[nodiscard]] std::int64_t first() const { return block->rows().index(rows.begin); }
};

/// A chunk on its way to its target.
class ChunkPiece {
 public:
  void set(const WantedChunk& chunk, WorkProgress& progress) {
    chunk_ = chunk;
    progress_ = &progress;
  }

  [[nodiscard]] const std::string& path() const { return chunk_.file->path(); }

  void read() {
    bytes_.resize(at(chunk_.bytes()));
    chunk_.file->read(place(), bytes_.data(), chunk_.bytes());
    check();
    select();
  }

  void hand_over() {
    const StateItem& item = chunk_.target->item;
    const std::int64_t cut_bytes = cols_.size() * size_of(item.dtype);
    for (std::int64_t i = 0; i < common_.size(); i += at_once_) {
      chunk_.target->sink->write_state(chunk_.target->index, common_.row(i), at_once_, cols_.begin,
                                       cols_.end, bytes_.data() + offset_ + i * cut_bytes);
    }
    progress_->add(common_.size() * cut_bytes);
  }

 private:
  [[nodiscard]] std::int64_t place() const {
    return chunk_.block->offset + chunk_.first() * chunk_.row_bytes();
  }

  void check() const {
    const StoredBlock& block = *chunk_.block;
    const std::uint64_t checksum = hash_bytes(bytes_);
    const std::uint64_t expected = block.checksums[at(chunk_.first() / block.chunk_rows)];
    if (checksum != expected) {
      fail(ErrorCode::kCheckpoint,
           "'{}' has changed: the {} bytes at offset {} ({}, rows from {}) have checksum {:016x}, "
           "but {:016x} was written; restore the checkpoint from a copy or resume from another one",
           path(), bytes_.size(), place(), item_name(chunk_.stored->parameter, chunk_.stored->kind),
           chunk_.rows.begin, checksum, expected);
    }
  }

  /// Finds what the target holds, and moves it together where it lies apart. Common rows are evenly
  /// spaced in chunk and target.
  void select() {
    const StateItem& item = chunk_.target->item;
    const StoredBlock& block = *chunk_.block;
    const RowSet held = item.held();
    std::int64_t first = 0;
    while (first < chunk_.rows.size() && !held.contains(chunk_.rows.row(first))) {
      ++first;
    }
    const std::int64_t step = std::lcm(chunk_.rows.step, held.step);
    common_ = {chunk_.rows.row(first), std::min(chunk_.rows.end, held.end), step};
    at_once_ = step == held.step ? common_.size() : 1;
    cols_ = {std::max(item.col_begin, block.col_begin), std::min(item.col_end, block.col_end)};
    const std::int64_t size = size_of(item.dtype);
    const std::int64_t apart = step / chunk_.rows.step * chunk_.row_bytes();
    const std::int64_t cut_bytes = cols_.size() * size;
    offset_ = first * chunk_.row_bytes() + (cols_.begin - block.col_begin) * size;
    if (apart == cut_bytes || common_.size() == 0) {
      return;
    }
    const std::byte* from = bytes_.data() + offset_;
    offset_ = 0;
    std::byte* to = bytes_.data();
    for (std::int64_t r = 0; r < common_.size(); ++r, from += apart, to += cut_bytes) {
      std::memmove(to, from, at(cut_bytes));
    }
  }

  WantedChunk chunk_;
  WorkProgress* progress_ = nullptr;
  RowSet common_;  ///< rows of chunk and target
  Range cols_;     ///< columns of both
  std::int64_t at_once_ = 1;
  std::vector<std::byte> bytes_;
  std::int64_t offset_ = 0;  ///< in them of the first common row's columns
};

class BlockFiller {
 public:
  BlockFiller(const LoadSource& source, WorkProgress& progress)
      : source_(source),
        progress_(progress),
        files_(source.manifest.files.size()),
        ahead_(source.threads, progress) {}

  void run(const std::vector<BlockTarget>& targets) {
    try {
      for (const BlockTarget& target : targets) {
        give_chunks(target);
      }
    } catch (...) {
      ahead_.finish();  // an error of an earlier chunk comes first
      throw;
    }
    ahead_.finish();
  }

 private:
  const InputFile& file(std::int64_t index) {
    auto& slot = files_[at(index)];
    if (slot == nullptr) {
      const DataFile& expected = source_.manifest.files[at(index)];
      slot = std::make_unique<InputFile>(source_.files, join(source_.directory, expected.name));
      if (slot->bytes() != expected.bytes) {
        fail(ErrorCode::kCheckpoint,
             "'{}' has {} bytes, but {} were written; restore the checkpoint from a copy or resume "
             "from another one",
             slot->path(), slot->bytes(), expected.bytes);
      }
    }
    return *slot;
  }

  void give_chunks(const BlockTarget& target) {
    const StoredItem& stored = source_.manifest.items[target.stored];
    for (const StoredBlock& block : stored.blocks) {
      const bool meets = may_meet(target.item.held(), block.rows()) &&
                         std::max(target.item.col_begin, block.col_begin) <
                             std::min(target.item.col_end, block.col_end);
      if (meets) {
        give_chunks(target, stored, block);
      }
    }
  }

  void give_chunks(const BlockTarget& target, const StoredItem& stored, const StoredBlock& block) {
    const RowSet rows = block.rows();
    const std::int64_t row_end = std::min(target.item.row_end, block.row_end);
    const std::int64_t first =
        target.item.row_begin <= rows.begin ? 0 : rows.index(target.item.row_begin + rows.step - 1);
    for (std::int64_t chunk = first / block.chunk_rows;; ++chunk) {
      const std::int64_t begin = chunk * block.chunk_rows;
      if (rows.row(begin) >= row_end) {
        return;
      }
      const std::int64_t end = std::min(begin + block.chunk_rows, rows.size());
      const WantedChunk wanted{&target,
                               &stored,
                               &block,
                               &file(block.file),
                               {rows.row(begin), rows.row(end - 1) + 1, rows.step}};
      ahead_.next().set(wanted, progress_);
      ahead_.give(wanted.bytes());
    }
  }

  const LoadSource& source_;
  WorkProgress& progress_;
  std::vector<std::unique_ptr<InputFile>> files_;
  ReadAhead<ChunkPiece> ahead_;
};

}  // namespace

std::int64_t bytes_to_read(const std::vector<BlockTarget>& targets) {
  std::int64_t bytes = 0;
  for (const BlockTarget& one : targets) {
    bytes +=
        one.item.held().size() * (one.item.col_end - one.item.col_begin) * size_of(one.item.dtype);
  }
  return bytes;
}

void fill_blocks(const LoadSource& source,
                 const std::vector<BlockTarget>& targets,
                 WorkProgress& progress) {
  BlockFiller(source, progress).run(targets);
}

}  // namespace weft::checkpoint
