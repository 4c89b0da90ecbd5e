#include "weft/storage/write_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "weft/base/error.h"

namespace weft::storage {
namespace {

/// Chunks are the unit that is sorted by shard, so they are large; and several fit into the buffer.
constexpr std::int64_t kMostChunkBytes = std::int64_t{4} << 20;
constexpr std::int64_t kLeastChunkBytes = 4096;
constexpr std::int64_t kChunksOfBuffer = 16;

}  // namespace

WriteBuffer::WriteBuffer(std::int64_t bytes)
    : limit_(bytes),
      chunk_bytes_(std::clamp(bytes / kChunksOfBuffer, kLeastChunkBytes, kMostChunkBytes)) {
}

bool WriteBuffer::has_room(const Chunk& chunk, std::int64_t row_bytes) const {
  return chunk.used + row_bytes <= static_cast<std::int64_t>(chunk.bytes.size()) &&
         chunk.rows.size() < PlaceCode::kMaxRowsOfChunk;
}

bool WriteBuffer::has_room(std::int64_t row_bytes) const {
  if (filling_ >= 0 && has_room(*chunks_[at(filling_)], row_bytes)) {
    return true;
  }
  return waiting_bytes_ == 0 || waiting_bytes_ + std::max(chunk_bytes_, row_bytes) <= limit_;
}

PlaceCode WriteBuffer::put(const BufferedRow& row, std::span<const std::byte> bytes) {
  const auto row_bytes = static_cast<std::int64_t>(bytes.size());
  if (filling_ >= 0 && !has_room(*chunks_[at(filling_)], row_bytes)) {
    close();
  }
  if (filling_ < 0) {
    filling_ = make_chunk(row_bytes);
    waiting_bytes_ += static_cast<std::int64_t>(chunks_[at(filling_)]->bytes.size());
  }
  return put(static_cast<std::uint32_t>(filling_), row, bytes);
}

PlaceCode WriteBuffer::put(std::uint32_t number,
                           const BufferedRow& row,
                           std::span<const std::byte> bytes) {
  Chunk& chunk = *chunks_[number];
  const auto index = static_cast<std::uint32_t>(chunk.rows.size());
  chunk.rows.push_back(row);
  chunk.rows.back().offset = static_cast<std::uint32_t>(chunk.used);
  std::memcpy(chunk.bytes.data() + chunk.used, bytes.data(), bytes.size());
  chunk.used += static_cast<std::int64_t>(bytes.size());
  return PlaceCode::in_buffer(number, index);
}

std::uint32_t WriteBuffer::make_moved_chunk(std::int64_t row_bytes) {
  const std::uint32_t number = make_chunk(row_bytes);
  chunks_[number]->is_moved = true;
  return number;
}

void WriteBuffer::close() {
  if (filling_ >= 0) {
    chunks_[at(filling_)]->state = Chunk::State::kQueued;
    queue_.push_back(static_cast<std::uint32_t>(std::exchange(filling_, -1)));
    ++queued_;
  }
}

void WriteBuffer::freeze() {
  close();
  for (const auto& chunk : chunks_) {
    // Rows of cleaning are among them: what holds of a file that goes is nowhere else.
    chunk->is_frozen = chunk->state == Chunk::State::kQueued ||
                       chunk->state == Chunk::State::kFilling || chunk->is_frozen;
  }
}

std::uint32_t WriteBuffer::take() {
  const std::uint32_t number = queue_.front();
  queue_.pop_front();
  return number;
}

void WriteBuffer::release_room(std::uint32_t number) {
  waiting_bytes_ -= static_cast<std::int64_t>(chunks_[number]->bytes.size());
}

void WriteBuffer::free(std::uint32_t number) {
  Chunk& chunk = *chunks_[number];
  std::vector<std::byte> bytes;
  if (std::cmp_less_equal(chunk.bytes.size(), chunk_bytes_)) {
    bytes = std::move(chunk.bytes);
  }
  std::vector<BufferedRow> rows = std::move(chunk.rows);
  rows.clear();
  chunk = Chunk{};
  chunk.number = number;
  chunk.bytes = std::move(bytes);
  chunk.rows = std::move(rows);
  free_.push_back(number);
}

std::int64_t WriteBuffer::bytes() const {
  std::size_t bytes = 0;
  for (const auto& chunk : chunks_) {
    bytes += chunk->bytes.capacity() + chunk->rows.capacity() * sizeof(BufferedRow) +
             chunk->order.capacity() * sizeof(std::uint32_t);
  }
  return static_cast<std::int64_t>(bytes);
}

std::uint32_t WriteBuffer::make_chunk(std::int64_t row_bytes) {
  if (free_.empty()) {
    WEFT_CHECK(chunks_.size() < PlaceCode::kMaxChunks);
    free_.push_back(static_cast<std::uint32_t>(chunks_.size()));
    chunks_.push_back(std::make_unique<Chunk>());
    chunks_.back()->number = free_.back();
  }
  const std::uint32_t number = free_.back();
  free_.pop_back();
  Chunk& chunk = *chunks_[number];
  chunk.bytes.resize(at(std::max(chunk_bytes_, row_bytes)));
  chunk.state = Chunk::State::kFilling;
  return number;
}

}  // namespace weft::storage
