/// SegmentStore: rows of a rank's shards on disks, in segments (weft/rowfile). A RowBacking per
/// shard: rows that have been written, by their numbers in the shard.
///
/// Writing    write() copies rows into the write buffer; a thread of the store packs them into the
///            open segment, seals it when it is full, and opens the next one in the next directory.
///            A row has landed (RowBacking::drain()) when it is appended; durable it is by seal().
/// Reading    a row is served from the write buffer until it lies whole in its file. Others are
///            read in blocks, each once per RowReads, with many in flight, past the page cache; a
///            block's checksum is checked whenever it is read. for_each_row() seals, and visits
///            rows in the order in which they lie.
/// Cleaning   the same thread moves the rows that still hold from the sealed segment with the
///            smallest share of them, and removes it, while sealed segments take more than
///            space_factor times the bytes of rows that hold, and two segments. It moves bytes,
///            never values. It begins when a row of a segment is written again, not before.
/// Order      segments have an order in which of an id the last row holds, also where an earlier
///            segment was sealed later: a Seal lists them in it.
/// Crashes    nothing is recovered. Files that an earlier store has left are removed at the start,
///            and its own at the end. What must outlive it is linked or copied from a seal.
/// Files      their first stream is rowfile::name_stream() of the name in the store's directory;
/// the
///            stream of shard i is i + 1.
/// Memory     8 to 9 bytes for a row that is held where most are, up to 256 where one of many is;
///            the write buffer; some 10 MiB for each of two open segments; of a RowReads up to
///            32 MiB. A sealed segment is one of the process's open files.
/// Threads    all calls may come from any thread at the same time.
/// Errors     Error(kIo) or Error(kResource) naming table or file and what to do. After a write, a
///            seal or a cleaning that has failed every later call throws the same error. A read
///            that fails is thrown by its RowReads alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/parts.h"
#include "weft/io/block_reads.h"
#include "weft/io/file_system.h"
#include "weft/storage/row_backing.h"
#include "weft/tensor/row_files.h"

namespace weft::storage {

/// A rule that a store leaves out, as a control of tests.
enum class StoreRule : std::uint8_t {
  kNone,
  kBufferedRows,  ///< a row that waits in the write buffer is read as it was before
  kWholeRows,     ///< a row is read from its file as soon as it has a place there
};

/// Options of a SegmentStore.
struct SegmentStoreOptions {
  /// Where segments lie, one after the other in turn. Each is one store's: it is made where it is
  /// missing, and locked until the store ends.
  std::vector<std::string> directories;
  std::string label = "rows of a job";  ///< what a second job is told of who holds the lock
  double lock_timeout_s = 300;          ///< as io::LockOptions has it
  std::int64_t segment_bytes = std::int64_t{64} << 20;
  /// Rows that have been written and do not lie in a segment yet, at most; or one row.
  std::int64_t write_buffer_bytes = std::int64_t{64} << 20;
  double space_factor = 1.5;  ///< greater than 1
  io::BlockReadsOptions reads = {};
  StoreRule left_out = StoreRule::kNone;  ///< for tests
};

/// The rows of one shard.
struct StoreShard {
  std::uint64_t key = 0;  ///< its stream in segments (rowfile::Stream); unique in a store
  RowSet rows;            ///< which rows of the whole table: row i is rows.row(i), its id
  std::int64_t row_bytes = 0;
  std::string table;  ///< in messages
};

/// A sealed segment as a Seal lists it.
struct SealedFile : RowFile {
  std::vector<std::int64_t> live_rows;  ///< that hold now, per shard in the order of add_shard()
};

/// All rows that had been written when seal() was called, as durable files that stay until
/// retire().
struct Seal {
  std::uint64_t number = 0;       ///< of the store's seals, from 1 on
  std::vector<SealedFile> files;  ///< of an id the row in the last file holds
};

/// What a store has counted since it began, and what it takes now.
struct StoreCounts {
  std::int64_t rows_written = 0;   ///< by write()
  std::int64_t rows_replaced = 0;  ///< of these, took the place of one in the write buffer
  std::int64_t rows_stored = 0;    ///< of these, appended to segments
  std::int64_t rows_moved = 0;     ///< appended to segments by cleaning
  std::int64_t rows_asked = 0;     ///< by RowReads
  std::int64_t rows_buffered = 0;  ///< of these, served from the write buffer
  std::int64_t rows_read = 0;      ///< of these, read from segments
  std::int64_t groups_read = 0;    ///< in which they lay, each once per RowReads::begin()
  std::int64_t bytes_read = 0;     ///< of groups
  std::int64_t segments_made = 0;  ///< sealed
  std::int64_t segments_removed = 0;
  std::int64_t bytes_written = 0;  ///< of sealed segments
  std::int64_t seals = 0;          ///< that were asked for
  std::int64_t segments = 0;       ///< sealed ones, now
  std::int64_t segment_bytes = 0;  ///< of these
  std::int64_t live_bytes = 0;     ///< of these, as far as their rows hold
  std::int64_t rows_held = 0;      ///< now
  std::int64_t index_bytes = 0;    ///< of memory that says where rows lie, now
  std::int64_t buffer_bytes = 0;   ///< of memory for rows on their way, now
  std::int64_t read_bytes = 0;     ///< of memory for groups that are read, now
};

/// Removes a directory that a store has left which did not end, or which has: its segments, its
/// lock, and the directory, unless something else lies there. Takes its lock meanwhile: where a
/// store has that, or may have it (io::Patience::kTakeItToRun), nothing is removed. Returns whether
/// the directory has gone. Throws Error(kIo) naming what cannot be removed.
bool remove_dead_store(io::FileSystem& files, const std::string& directory);

class StoreCore;

/// See above.
class SegmentStore {
 public:
  /// Locks the directories and removes what an earlier store has left there. `files` outlives it.
  /// Throws Error(kIo) naming host and process of another job that has a directory.
  SegmentStore(io::FileSystem& files, const SegmentStoreOptions& options);

  /// Removes its files. What has been given out (shards, their RowReads) must be gone.
  ~SegmentStore();

  SegmentStore(const SegmentStore&) = delete;
  SegmentStore& operator=(const SegmentStore&) = delete;

  /// Makes room for the rows of a shard, which costs nothing until they are written. The store owns
  /// it. A shard that is added after the first write closes the open segments.
  RowBacking& add_shard(const StoreShard& shard);

  /// Closes the open segments and returns when all rows that were written before the call are on
  /// the disk, with names. Rows that are written during the call take nothing away from it.
  /// Segments without a row that holds are not listed.
  Seal seal();

  /// Gives the files of a seal up: those without a row that holds go, others may be cleaned.
  void retire(const Seal& seal);

  /// The same for checkpoints, which link the files.
  [[nodiscard]] RowFiles& files();

  /// Files that the store has open when all rows of all shards are held, at most; those that seals
  /// keep may come on top.
  [[nodiscard]] std::int64_t most_files() const;

  /// What has been counted.
  [[nodiscard]] StoreCounts counts() const;

  /// How blocks are read in fact.
  [[nodiscard]] io::ReadMethod read_method() const;

 private:
  std::unique_ptr<StoreCore> core_;
};

}  // namespace weft::storage
