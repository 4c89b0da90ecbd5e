/// ReadMemory: memory for groups of blocks on their way from files, which all reads of a store
/// share. It comes in pieces, each with a batch of reads of its own.
///
/// Bound    a store has reads of every table and batch in flight, and a step may miss rows of
///          hundreds of tables: what they read at a time is bounded here for all of them, not by
///          each. Who finds no room reads later, in wait().
/// Progress take() goes beyond the bound where a caller has no piece at all: so much more is out
///          as threads wait at the same time.
/// Threads  all calls may come from any thread at the same time; a piece is its taker's.
/// Cost     a lock per piece, whose size is kPieceBytes or one group; pieces are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/io/block_reads.h"

namespace weft::storage {

/// Bytes of all pieces of a store, as far as nobody waits without one.
inline constexpr std::int64_t kMostReadBytes = std::int64_t{64} << 20;

/// A piece, and the rows whose groups are in it or on their way there.
struct ReadPiece {
  /// Memory of std::aligned_alloc().
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  std::unique_ptr<std::byte, Free> memory;  ///< at whole blocks
  std::int64_t bytes = 0;
  std::unique_ptr<io::ReadBatch> batch;
  std::size_t first = 0;  ///< the taker's
  std::size_t end = 0;    ///< the taker's
};

class ReadMemory {
 public:
  static constexpr std::int64_t kPieceBytes = std::int64_t{256} << 10;

  /// `reads` outlives it.
  ReadMemory(io::BlockReads& reads, std::int64_t most_bytes);

  /// Returns a piece of `bytes` at least, or null where `most_bytes` are taken.
  [[nodiscard]] std::unique_ptr<ReadPiece> take_if_room(std::int64_t bytes);

  /// Returns a piece in any case. Throws std::bad_alloc.
  [[nodiscard]] std::unique_ptr<ReadPiece> take(std::int64_t bytes);

  /// Takes a piece back of which no read is in flight.
  void give_back(std::unique_ptr<ReadPiece> piece);

  /// Bytes of all pieces that there are.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  std::unique_ptr<ReadPiece> take_kept(std::int64_t bytes);
  std::unique_ptr<ReadPiece> make(std::int64_t bytes);

  io::BlockReads& reads_;
  const std::int64_t most_bytes_;
  mutable std::mutex mutex_;                      // of all below
  std::vector<std::unique_ptr<ReadPiece>> kept_;  // that nobody has
  std::int64_t bytes_ = 0;
};

}  // namespace weft::storage
