/// Saving and loading the state of a job. docs/checkpoint_format.md has the bytes.
///
///   DIR/latest                        the name of the newest checkpoint
///   DIR/step-00000100/manifest.json   what there is and where, sealed by a checksum
///                     rank-0000.bin   the blocks that rank 0 was first holder of
///                     blob-<name>     small named files
///   DIR/rows/<name>.rows              segments of rows of tables, which checkpoints share
///
/// A source with a RowState is stored row by row, in segments: rows that exist, or on top of the
/// checkpoint before those that have changed since. Rows that lie in files (RowFiles) are not read:
/// these files get a second name as segments, or are copied where the file system has no links;
/// rows that memory has otherwise are written behind them. All other state is stored in blocks. A
/// checkpoint is written to step-00000100.JOB.tmp and renamed when all of it is on the disk, so a
/// directory without .tmp is complete, and none is ever changed: another of the same step is called
/// step-00000100.2. DIR must be seen by all ranks. State is stored by parameter, kind, rows and
/// columns, never by rank: it can be loaded on any number of ranks and by any sharding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint/folder.h"
#include "weft/checkpoint/manifest.h"
#include "weft/comm/communicator.h"
#include "weft/io/file_system.h"
#include "weft/tensor/device.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// A small named file to be kept beside the state: equal on all ranks, rank 0 writes it. Names are
/// made of a-z, 0-9, '_' and '-'.
struct Blob {
  std::string name;
  std::string bytes;
};

/// What a save has done with the rows of this rank that go to segments.
struct SavedRows {
  std::int64_t linked_files = 0;  ///< files below the rows that the checkpoint names
  std::int64_t linked_bytes = 0;
  std::int64_t copied_files = 0;  ///< such files that the file system does not link
  std::int64_t copied_bytes = 0;
  std::int64_t written_files = 0;  ///< of rows one by one
  std::int64_t written_bytes = 0;
};

/// "12 files of rows linked, 700 MiB; 3 MiB of rows written"; empty where there are no files below.
std::string describe(const SavedRows& saved);

/// What is needed to save only the rows that have changed since a checkpoint: which one that is,
/// and whose changes count. A job has one on each rank and gives it to load() and to every save().
struct Increments {
  /// manifest_id() of the checkpoint since which RowState::mark() counts; 0 = none.
  std::uint64_t base = 0;
  /// The rows of all sources of save(): it marks them when it has saved them, as load() marks those
  /// of its sinks.
  std::vector<RowState*> rows;
  SavedRows saved = {};  ///< by the last save
};

/// Whether a save names the files below rows (RowState::files()) in place of copies of these.
enum class RowLinks : std::uint8_t { kWherePossible, kNever };

/// Options of save(), equal on all ranks but for `folder`, `increments` and `files`.
struct SaveOptions {
  std::string directory;  ///< the parent of all checkpoints; made if it does not exist
  Metadata metadata;  ///< equal on all ranks; metadata.ranks is set from comm, lineage by save()
  std::vector<Blob> blobs;
  /// How many checkpoints of the job's line stay, the oldest go; 0 = all (Folder::prune).
  std::int64_t keep = 0;
  /// Rank 0: the job's hold on the directory. Null: taken for this save alone, which goes on with
  /// the line of the newest checkpoint there. Other ranks: not looked at.
  Folder* folder = nullptr;
  io::FileSystem* files = nullptr;  ///< null = the operating system's
  /// Null: all rows that exist are saved. Else only those changed since its base, where that is the
  /// folder's parent and has the same tables.
  Increments* increments = nullptr;
  /// All rows again when the bytes of the chain's increments would exceed this share of those of
  /// its first checkpoint,
  double increment_share = 1.0;
  /// or when it has so many.
  std::int64_t increment_count = 32;
  RowLinks links = RowLinks::kWherePossible;
  int writers = 4;                                     ///< threads per rank that write segments,
  std::int64_t writer_bytes = std::int64_t{64} << 20;  ///< one for each so many bytes
  std::int64_t segment_bytes = std::int64_t{1} << 30;  ///< after which a thread begins another
  /// A BackgroundSave may hold so many bytes of copies on each rank.
  std::int64_t copy_bytes = std::int64_t{1} << 30;
};

/// Writes the checkpoint of metadata.step and returns its directory. Collective, blocking: state
/// must not change meanwhile. Every rank writes the blocks of which it is first holder, together
/// they must cover every item exactly once. When it returns the checkpoint is on the disk, and the
/// newest; a crash before leaves the one before as the newest, and all of it. Memory: 8 MiB; 3 MiB
/// per writer, and 8 bytes per row of a segment and per changed row of a cache over files. Rank 0
/// alone learns what the others wrote, about 50 bytes per table that a rank has a part of.
///
/// Errors: Error(kCheckpoint) on all ranks with the rank of origin, naming the file and what to do;
/// what was written is removed and earlier checkpoints are as they were. The communicator and the
/// folder stay usable, so a job may go on, and save again. Error(kLockLost) where the folder is no
/// longer the job's: then no later save can succeed. An old checkpoint that cannot be removed is a
/// warning.
std::string save(comm::Communicator& comm,
                 Context& ctx,
                 const SaveOptions& options,
                 std::span<const StateSource* const> sources);

/// The directory of a checkpoint: `path` itself when it holds a manifest, else the newest below it:
/// the one that path/latest names, or that has descended from it; where nothing is named, the one
/// of the greatest save number. Throws Error(kCheckpoint), also where nothing is named and several
/// jobs have checkpoints there.
std::string find_checkpoint(const std::string& path,
                            io::FileSystem& files = io::real_file_system());

/// Complete checkpoints below `parent`, by ascending step.
std::vector<std::string> list_checkpoints(const std::string& parent,
                                          io::FileSystem& files = io::real_file_system());

/// The validated manifest of find_checkpoint(path). Throws Error(kCheckpoint).
Manifest read_manifest(const std::string& path, io::FileSystem& files = io::real_file_system());

/// The bytes of a blob, checked. Throws Error(kCheckpoint), also where there is none of that name.
std::string read_blob(const std::string& path,
                      const std::string& name,
                      io::FileSystem& files = io::real_file_system());

/// A checkpoint that all ranks have opened.
struct OpenedCheckpoint {
  std::string directory;
  Manifest manifest;
  std::uint64_t id = 0;  ///< manifest_id()
};

/// Opens find_checkpoint(path) on all ranks: rank 0 reads and validates the manifest, whose text
/// goes to the others along the tree over ranks. Collective.
///
/// Errors: Error(kCheckpoint) on all ranks, with the rank of origin; of the first rank of another
/// host, which reads the last bytes of the manifest, where that host has none or another one.
OpenedCheckpoint open_checkpoint(comm::Communicator& comm,
                                 Context& ctx,
                                 const std::string& path,
                                 io::FileSystem& files = io::real_file_system());

/// read_blob() on rank 0; its bytes go to the others along the tree over ranks. Collective. Errors
/// are those of rank 0, on all ranks.
std::string share_blob(comm::Communicator& comm,
                       Context& ctx,
                       const std::string& path,
                       const std::string& name,
                       io::FileSystem& files = io::real_file_system());

/// What load() does with stored items that no rank asks for.
enum class ExtraItems { kRefuse, kIgnore };

/// Options of load(), equal on all ranks but for `increments` and `files`.
struct LoadOptions {
  std::string path;  ///< as find_checkpoint takes it
  ExtraItems extra = ExtraItems::kRefuse;
  /// Parameters whose items may be there without being asked for.
  std::vector<std::string> left_out = {};
  io::FileSystem* files = nullptr;  ///< null = the operating system's
  /// Set to the checkpoint, where saves can go on from it with increments. Differs between ranks.
  Increments* increments = nullptr;
  int readers = 4;                                     ///< threads per rank that read and check,
  std::int64_t reader_bytes = std::int64_t{64} << 20;  ///< one for each so many bytes
};

/// Fills every item of every sink, whole blocks, from wherever they are stored. Collective; each
/// rank reads the chunks it needs, and checks each, by itself. Several threads read; sinks are
/// called by one, in the order of what is stored, so the state is the same with any number. Nothing
/// is converted: dtype, rows and cols must be the stored ones. Memory: a chunk for each reader and
/// one more, so 40 MiB with four, and 8 or 16 MiB where few bytes are read. Rows that are not
/// stored have their initial values, so sinks with rows must have these: sinks that were just made.
/// Where such a sink would make other values than the job that saved, that is an error.
///
/// Errors: Error(kCheckpoint) on all ranks with the rank of origin, naming file, offset, item, and
/// what to do: missing or extra items, other shapes, missing, cut or changed files. Sinks may then
/// have been filled in part.
Manifest load(comm::Communicator& comm,
              Context& ctx,
              const LoadOptions& options,
              std::span<StateSink* const> sinks);

}  // namespace weft::checkpoint
