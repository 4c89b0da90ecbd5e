// Private to storage/: rows that have been written and do not lie whole in a file yet, in chunks.
//
// A chunk is filled, queued, taken by the store's thread, and goes when all its rows lie in files.
// Not thread-safe, but for rows of a taken chunk, which no longer change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "weft/storage/place_index.h"

namespace weft::storage {

/// A row in a chunk.
struct BufferedRow {
  std::uint32_t shard = 0;
  std::uint32_t offset = 0;  ///< of its bytes in the chunk
  std::int64_t row = 0;      ///< in the shard
  PlaceCode place;           ///< in its segment, from when it has been appended
};

struct Chunk {
  enum class State : std::uint8_t { kFree, kFilling, kQueued, kTaken };

  std::uint32_t number = 0;  ///< by which codes name it
  State state = State::kFree;
  bool is_moved = false;   ///< rows of cleaning
  bool is_frozen = false;  ///< a seal needs them as they are, also those that hold no longer
  std::int64_t used = 0;
  std::vector<std::byte> bytes;
  std::vector<BufferedRow> rows;
  std::vector<std::uint32_t> order;  ///< rows as they are appended; set when it is taken
  std::size_t landed = 0;            ///< of these
};

class WriteBuffer {
 public:
  /// Chunks that wait to be taken have up to `bytes`, or one row.
  explicit WriteBuffer(std::int64_t bytes);

  [[nodiscard]] Chunk& chunk(std::uint32_t number) { return *chunks_[number]; }

  /// Whether a row finds room among those that wait.
  [[nodiscard]] bool has_room(std::int64_t row_bytes) const;

  /// Whether a row finds room in a chunk.
  [[nodiscard]] bool has_room(const Chunk& chunk, std::int64_t row_bytes) const;

  /// Puts a row into the chunk that is being filled, for which has_room() was true. Returns its
  /// code.
  PlaceCode put(const BufferedRow& row, std::span<const std::byte> bytes);

  /// Puts a row into a chunk with room for it.
  PlaceCode put(std::uint32_t number, const BufferedRow& row, std::span<const std::byte> bytes);

  /// A chunk for rows of cleaning, which counts for no bound.
  std::uint32_t make_moved_chunk(std::int64_t row_bytes);

  /// Queues what is being filled, if there is anything.
  void close();

  /// Queues what is being filled; queued chunks stay as they are.
  void freeze();

  /// Whether a chunk is queued.
  [[nodiscard]] bool has_queued() const { return !queue_.empty(); }

  /// Takes the first chunk of the queue.
  std::uint32_t take();

  /// Chunks that have ever been queued.
  [[nodiscard]] std::uint64_t queued() const { return queued_; }

  /// Of these, chunks that have been taken.
  [[nodiscard]] std::uint64_t taken() const { return queued_ - queue_.size(); }

  /// A taken chunk's bytes count for the bound no longer.
  void release_room(std::uint32_t number);

  /// A chunk is free for other rows.
  void free(std::uint32_t number);

  /// Bytes of rows that wait to be taken.
  [[nodiscard]] std::int64_t waiting_bytes() const { return waiting_bytes_; }

  /// Bytes of memory that it takes.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  std::uint32_t make_chunk(std::int64_t row_bytes);

  std::int64_t limit_;
  std::int64_t chunk_bytes_;
  std::int64_t waiting_bytes_ = 0;  ///< of chunks that wait
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<std::uint32_t> free_;
  std::deque<std::uint32_t> queue_;
  std::uint64_t queued_ = 0;
  std::int64_t filling_ = -1;  ///< the chunk that is being filled
};

}  // namespace weft::storage
