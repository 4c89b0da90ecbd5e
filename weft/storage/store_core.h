// Private to storage/: what a SegmentStore is made of. One mutex guards what shards, their readers
// and the store's thread share; files are written, sealed, cleaned and removed by the thread alone,
// outside of it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "weft/base/error.h"
#include "weft/io/block_reads.h"
#include "weft/rowfile/segment_reader.h"
#include "weft/rowfile/segment_writer.h"
#include "weft/storage/place_index.h"
#include "weft/storage/read_memory.h"
#include "weft/storage/row_backing.h"
#include "weft/storage/segment_store.h"
#include "weft/storage/store_directories.h"
#include "weft/storage/store_segments.h"
#include "weft/storage/write_buffer.h"

namespace weft::storage {

class StoreCore;

/// A shard of a store.
class StoredRows final : public RowBacking {
 public:
  StoredRows(StoreCore& core, std::uint32_t number, StoreShard shard);

  [[nodiscard]] std::int64_t row_bytes() const override { return shard_.row_bytes; }

  std::unique_ptr<RowReads> make_reads() override;
  void write(std::span<const std::int64_t> rows, const std::byte* packed) override;
  void drain() override;
  [[nodiscard]] std::int64_t rows_held() const override;
  void for_each_row(const RowsVisitor& visit) const override;
  [[nodiscard]] RowFiles* files() const override;

  [[nodiscard]] std::uint32_t number() const { return number_; }

  /// Its rows' in segments; the first is the segment's name.
  [[nodiscard]] std::uint32_t stream() const { return number_ + 1; }

  [[nodiscard]] const StoreShard& shard() const { return shard_; }

  /// A row as its segment counts it.
  [[nodiscard]] CountedRow counted() const { return counted_; }

  /// Throws an error with the table's name.
  [[noreturn]] void rethrow(const Error& error) const;

  // Of the core, under its mutex.
  PlaceIndex index;
  std::int64_t held = 0;

 private:
  StoreCore& core_;
  const std::uint32_t number_;
  const StoreShard shard_;
  const CountedRow counted_;
};

/// A row that is to be read from a segment.
struct WantedRow {
  PlaceCode code;
  std::int64_t index = 0;  ///< in the caller's list
};

/// What a lookup of places needs and gives; memory of the caller's.
struct PlaceLookup {
  std::span<const std::int64_t> rows;
  std::byte* packed = nullptr;

  std::vector<std::uint8_t> found;
  std::vector<WantedRow> wanted;
  std::vector<std::shared_ptr<OpenFile>> files;  ///< by segment, those that are needed
  std::vector<std::uint32_t> segments;           ///< these

  void let_files_go();
};

/// A seal that somebody waits for, or will.
struct SealRequest {
  std::uint64_t after = 0;            ///< chunks that have to be appended before
  std::vector<std::uint32_t> pinned;  ///< segments that it needs
  bool is_done = false;
  bool is_given_up = false;      ///< whoever made it is gone
  bool is_marked = false;        ///< as RowSeal::mark()
  bool stops_cleaning = false;   ///< no segment is cleaned until it is done
  std::int64_t last_number = 0;  ///< of segments when it was done
  Seal seal;
};

class StoreCore final : public RowFiles {
 public:
  StoreCore(io::FileSystem& files, const SegmentStoreOptions& options);
  ~StoreCore() override;
  StoreCore(const StoreCore&) = delete;
  StoreCore& operator=(const StoreCore&) = delete;

  RowBacking& add_shard(const StoreShard& shard);
  void write(StoredRows& shard, std::span<const std::int64_t> rows, const std::byte* packed);
  void drain();
  Seal seal();
  void retire(const Seal& seal);
  [[nodiscard]] std::vector<RowFileStream> streams() const override;
  [[nodiscard]] std::int64_t new_bytes() const override;
  [[nodiscard]] std::unique_ptr<RowSeal> make_seal() override;
  void for_each_row(const StoredRows& shard, const RowsVisitor& visit);
  [[nodiscard]] std::int64_t rows_held(const StoredRows& shard) const;
  [[nodiscard]] std::int64_t most_files() const;
  [[nodiscard]] StoreCounts counts() const;

  [[nodiscard]] io::BlockReads& reads() const { return *reads_; }

  /// For groups that are read.
  [[nodiscard]] ReadMemory& read_memory() { return read_memory_; }

  /// Copies rows that are in the write buffer, and says where the others lie.
  void look_up(const StoredRows& shard, PlaceLookup& lookup);

  /// So many groups, of so many bytes in all, are read.
  void count_groups(std::int64_t groups, std::int64_t bytes);

 private:
  class StoreSeal;
  using Lock = std::unique_lock<std::mutex>;

  /// Rows that are written, and rows that cleaning moves.
  enum class Kind : std::uint8_t { kFresh, kMoved };

  struct OpenSegment {
    std::uint32_t slot;
    SegmentPosition position;
    std::string path;
    rowfile::SegmentWriter writer;
  };

  // Of callers, under the mutex.
  void check_usable() const;
  void begin(const std::shared_ptr<SealRequest>& request);
  void wait(Lock& lock, const SealRequest& request);
  void let_go(std::uint64_t seal);
  [[nodiscard]] bool is_new(const StoreSegment& segment) const;
  bool replace_in_buffer(StoredRows& shard, std::int64_t row, std::span<const std::byte> bytes);
  void wait_for_room(Lock& lock, std::int64_t row_bytes);
  void point(StoredRows& shard, std::int64_t row, PlaceCode code);

  // Of the thread; the mutex is held when they begin and when they end.
  void run();
  void append(Lock& lock, std::uint32_t number);
  void order_rows(Chunk& chunk, std::uint32_t number);
  void land();
  bool clean(Lock& lock);
  void move_rows(Lock& lock, std::uint32_t slot);
  void move_group(Lock& lock, std::uint32_t slot, const rowfile::GroupRows& rows);
  void flush_moved(Lock& lock);
  void serve(Lock& lock);

  // Of the thread; the mutex is not held when they begin and when they end.
  std::size_t append_run(Lock& lock, Chunk& chunk, std::size_t first);
  OpenSegment& open_segment(Lock& lock, Kind kind);
  void seal_open(Lock& lock, Kind kind);

  std::unique_ptr<OpenSegment>& open_of(Kind kind) { return open_[at(kind)]; }

  [[nodiscard]] bool is_whole(const BufferedRow& row) const;

  io::FileSystem& files_;
  const SegmentStoreOptions options_;
  StoreDirectories directories_;
  std::unique_ptr<io::BlockReads> reads_;
  ReadMemory read_memory_;

  mutable std::mutex mutex_;         ///< of all below
  std::condition_variable work_;     ///< for the thread
  std::condition_variable changed_;  ///< for callers
  std::vector<std::unique_ptr<StoredRows>> shards_;
  StoreSegments segments_;
  WriteBuffer buffer_;
  std::vector<std::uint32_t> unlanded_;  ///< chunks of which rows do not lie whole in a file yet
  std::uint64_t appended_ = 0;           ///< chunks of the buffer's queue that have been appended
  std::deque<std::shared_ptr<SealRequest>> requests_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> seals_;  ///< their segments
  std::optional<Error> failure_;
  StoreCounts counts_;
  std::int64_t last_number_ = 0;     ///< of segments
  std::int64_t turn_ = 0;            ///< of fresh segments, see SegmentPosition
  std::int64_t marked_ = 0;          ///< segments of greater numbers are new
  std::int64_t cleaning_stops_ = 0;  ///< seals until whose end no segment is cleaned
  bool is_moving_ = false;           ///< the thread moves rows of one
  bool is_ending_ = false;

  // Of the thread alone.
  std::array<std::unique_ptr<OpenSegment>, 2> open_;
  std::int64_t moving_ = -1;                ///< chunk of rows that cleaning moves
  std::vector<const StoredRows*> streams_;  ///< shards as the thread knows them
  std::vector<rowfile::RowId> ids_;
  std::vector<rowfile::Place> places_;
  std::vector<std::byte> run_bytes_;

  std::thread thread_;
};

/// Reads of one caller, see RowBacking::make_reads().
std::unique_ptr<RowReads> make_stored_row_reads(StoreCore& core, const StoredRows& shard);

}  // namespace weft::storage
