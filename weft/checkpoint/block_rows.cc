#include "weft/checkpoint/block_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

constexpr std::size_t kMostOpenFiles = 128;
constexpr std::int64_t kWindowBytes = std::int64_t{8} << 20;
constexpr std::int64_t kWindowRows = std::int64_t{1} << 20;

/// How many rows of the set come before `row`.
std::int64_t rows_before(const RowSet& rows, std::int64_t row) {
  return row <= rows.begin ? 0 : std::min(rows.size(), (row - 1 - rows.begin) / rows.step + 1);
}

}  // namespace

OpenFiles::OpenFiles(io::FileSystem& files, const Manifest& manifest, std::string directory)
    : files_(files), manifest_(manifest), directory_(std::move(directory)) {
}

const InputFile& OpenFiles::at(std::int64_t index) {
  const auto found = open_.find(index);
  if (found != open_.end()) {
    found->second.used = ++uses_;
    return *found->second.file;
  }
  if (open_.size() >= kMostOpenFiles) {
    open_.erase(std::min_element(open_.begin(), open_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  }
  const DataFile& expected = manifest_.files[weft::at(index)];
  auto file = std::make_unique<InputFile>(files_, join(directory_, expected.name));
  if (file->bytes() != expected.bytes) {
    fail(ErrorCode::kCheckpoint,
         "'{}' has {} bytes, but {} were written; restore the checkpoint from a copy or use "
         "another one",
         file->path(), file->bytes(), expected.bytes);
  }
  return *open_.emplace(index, Opened{std::move(file), ++uses_}).first->second.file;
}

std::int64_t rows_of_chunk(const StoredBlock& block, std::int64_t chunk) {
  return std::min(block.chunk_rows, block.rows().size() - chunk * block.chunk_rows);
}

void check_chunk(const ChunkPlace& place, std::uint64_t checksum) {
  const std::uint64_t expected = place.block.checksums[at(place.chunk)];
  if (checksum == expected) {
    return;
  }
  const std::int64_t row_bytes = block_row_bytes(place.item, place.block);
  const std::int64_t rows = rows_of_chunk(place.block, place.chunk);
  const std::int64_t first = place.chunk * place.block.chunk_rows;
  const RowSet all = place.block.rows();
  fail(ErrorCode::kCheckpoint,
       "'{}' has changed: the {} bytes at offset {} ({}, rows {} to {}, columns {} to {}) have "
       "checksum {:016x}, but {:016x} was written; restore the checkpoint from a copy or use "
       "another one",
       place.file.path(), rows * row_bytes, place.block.offset + first * row_bytes,
       item_name(place.item.parameter, place.item.kind), all.row(first), all.row(first + rows - 1),
       place.block.col_begin, place.block.col_end - 1, checksum, expected);
}

BlockRows::BlockRows(const BlockSource& source, const StoredItem& item, const Range& rows)
    : item_(item),
      on_read_(source.on_read),
      files_(source.files, source.manifest, source.directory),
      rows_{std::max<std::int64_t>(rows.begin, 0), std::min(rows.end, item.rows)},
      row_bytes_(item.cols * size_of(item.dtype)),
      window_rows_(std::clamp<std::int64_t>(
          kWindowBytes / std::max<std::int64_t>(row_bytes_, 1), 1, kWindowRows)),
      at_(rows_.begin) {
  for (const StoredBlock& block : item.blocks) {
    Cursor cursor{.block = &block,
                  .first = rows_before(block.rows(), rows_.begin),
                  .end = rows_before(block.rows(), rows_.end)};
    if (cursor.first < cursor.end) {
      cursor.next = cursor.first - cursor.first % block.chunk_rows;
      cursors_.push_back(std::move(cursor));
    }
  }
  std::sort(cursors_.begin(), cursors_.end(), [](const Cursor& a, const Cursor& b) {
    return a.block->rows().row(a.first) < b.block->rows().row(b.first);
  });
}

bool BlockRows::next(StoredRows& out) {
  const std::int64_t rows = std::min(window_rows_, rows_.end - at_);
  if (rows <= 0) {
    return false;
  }
  ids_.resize(at(rows));
  std::iota(ids_.begin(), ids_.end(), at_);
  window_.resize(at(rows * row_bytes_));
  for (std::size_t i = done_; i < cursors_.size(); ++i) {
    Cursor& cursor = cursors_[i];
    if (cursor.block->rows().row(cursor.first) >= at_ + rows) {
      break;
    }
    fill_from(cursor, rows);
  }
  while (done_ < cursors_.size() && cursors_[done_].next >= cursors_[done_].end) {
    ++done_;
  }
  at_ += rows;
  out = {ids_, window_};
  return true;
}

/// What the block has of the window, which has `rows`. With the last row of the range the chunk is
/// read to its end.
void BlockRows::fill_from(Cursor& cursor, std::int64_t rows) {
  const StoredBlock& block = *cursor.block;
  const std::int64_t end = std::min(cursor.end, rows_before(block.rows(), at_ + rows));
  if (cursor.next >= cursor.end) {
    return;
  }
  read(cursor, end);
  if (end == cursor.end) {
    const std::int64_t chunk = (end - 1) / block.chunk_rows;
    read(cursor, chunk * block.chunk_rows + rows_of_chunk(block, chunk));
    cursor.hash.reset();
  }
}

/// In pieces that lie in one chunk, and wholly in the range or outside of it.
void BlockRows::read(Cursor& cursor, std::int64_t end) {
  const StoredBlock& block = *cursor.block;
  const std::int64_t most = std::max<std::int64_t>(
      1, kPieceBytes / std::max<std::int64_t>(block_row_bytes(item_, block), 1));
  while (cursor.next < end) {
    const std::int64_t chunk_end = (cursor.next / block.chunk_rows + 1) * block.chunk_rows;
    std::int64_t piece_end = std::min({end, chunk_end, cursor.next + most});
    if (cursor.next < cursor.first) {
      piece_end = std::min(piece_end, cursor.first);
    }
    read_piece(cursor, piece_end - cursor.next);
  }
}

void BlockRows::read_piece(Cursor& cursor, std::int64_t count) {
  const StoredBlock& block = *cursor.block;
  const std::int64_t row_bytes = block_row_bytes(item_, block);
  const std::int64_t bytes = count * row_bytes;
  const InputFile& file = files_.at(block.file);
  std::byte* const direct = place_in_window(cursor);
  if (direct == nullptr) {
    piece_.resize(std::max(piece_.size(), at(bytes)));
  }
  std::byte* const to = direct != nullptr ? direct : piece_.data();
  file.read(block.offset + cursor.next * row_bytes, to, bytes);
  if (on_read_) {
    on_read_(bytes);
  }
  if (!cursor.hash) {
    cursor.hash.emplace();
  }
  cursor.hash->add(std::span(to, at(bytes)));
  const std::int64_t chunk = cursor.next / block.chunk_rows;
  const std::int64_t end = cursor.next + count;
  if (end == chunk * block.chunk_rows + rows_of_chunk(block, chunk)) {
    check_chunk({file, item_, block, chunk}, cursor.hash->value());
    cursor.hash->reset();
  }
  if (direct == nullptr && cursor.first <= cursor.next && cursor.next < cursor.end) {
    scatter(cursor, count);
  }
  cursor.next = end;
}

/// Where the block's next rows lie in the window as they are stored; null where they do not.
std::byte* BlockRows::place_in_window(const Cursor& cursor) {
  const StoredBlock& block = *cursor.block;
  const bool is_whole = block.row_step == 1 && block.col_begin == 0 && block.col_end == item_.cols;
  const bool is_wanted = cursor.first <= cursor.next && cursor.next < cursor.end;
  return is_whole && is_wanted ? window_.data() + (block.row_begin + cursor.next - at_) * row_bytes_
                               : nullptr;
}

void BlockRows::scatter(const Cursor& cursor, std::int64_t count) {
  const StoredBlock& block = *cursor.block;
  const std::int64_t cut = block_row_bytes(item_, block);
  const std::int64_t first = block.rows().row(cursor.next) - at_;
  std::byte* to = window_.data() + first * row_bytes_ + block.col_begin * size_of(item_.dtype);
  for (std::int64_t i = 0; i < count; ++i, to += block.row_step * row_bytes_) {
    std::memcpy(to, piece_.data() + i * cut, at(cut));
  }
}

}  // namespace weft::checkpoint
