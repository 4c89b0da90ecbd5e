/// Saving and loading the state of a job. docs/checkpoint_format.md has the bytes.
///
///   DIR/latest                        the name of the newest checkpoint
///   DIR/step-00000100/manifest.json   what there is and where, sealed by a checksum
///                     rank-0000.bin   the blocks that rank 0 was first holder of
///                     blob-<name>     small named files
///
/// A checkpoint is written to step-00000100.tmp and renamed when all of it is on the disk, so a
/// directory without .tmp is complete. DIR must be seen by all ranks. State is stored by parameter,
/// kind, rows and columns, never by rank: it can be loaded on any number of ranks and by any
/// sharding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint/manifest.h"
#include "weft/comm/communicator.h"
#include "weft/tensor/device.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// A small named file to be kept beside the state: equal on all ranks, rank 0 writes it. Names are
/// made of a-z, 0-9, '_' and '-'.
struct Blob {
  std::string name;
  std::string bytes;
};

struct SaveOptions {
  std::string directory;  ///< the parent of all checkpoints; made if it does not exist
  Metadata metadata;      ///< equal on all ranks; metadata.ranks is set from comm
  std::vector<Blob> blobs;
  std::int64_t keep = 0;  ///< how many checkpoints stay, the oldest steps go; 0 = all
};

/// Writes the checkpoint of metadata.step and returns its directory. Collective, blocking: state
/// must not change meanwhile. Every rank writes the blocks of which it is first holder, together
/// they must cover every item exactly once. A complete checkpoint of the same step is replaced in
/// one atomic exchange. Memory: 8 MiB.
///
/// Errors: Error(kCheckpoint) on all ranks with the rank of origin, naming the file and what to do;
/// what was written is removed and earlier checkpoints are as they were. The communicator stays
/// usable, so a job may go on.
std::string save(comm::Communicator& comm,
                 Context& ctx,
                 const SaveOptions& options,
                 std::span<const StateSource* const> sources);

/// The directory of a checkpoint: `path` itself when it holds a manifest, else the one that
/// path/latest names, else the complete one of the highest step. Throws Error(kCheckpoint).
std::string find_checkpoint(const std::string& path);

/// Complete checkpoints below `parent`, by ascending step.
std::vector<std::string> list_checkpoints(const std::string& parent);

/// The validated manifest of find_checkpoint(path). Throws Error(kCheckpoint).
Manifest read_manifest(const std::string& path);

/// The bytes of a blob, checked. Throws Error(kCheckpoint), also where there is none of that name.
std::string read_blob(const std::string& path, const std::string& name);

/// What load() does with stored items that no rank asks for.
enum class ExtraItems { kRefuse, kIgnore };

struct LoadOptions {
  std::string path;  ///< as find_checkpoint takes it
  ExtraItems extra = ExtraItems::kRefuse;
  /// Parameters whose items may be there without being asked for.
  std::vector<std::string> left_out = {};
};

/// Fills every item of every sink, whole blocks, from wherever they are stored. Collective; each
/// rank reads the chunks it needs, and checks each, by itself. Nothing is converted: dtype, rows
/// and cols must be the stored ones. Memory: two chunks.
///
/// Errors: Error(kCheckpoint) on all ranks with the rank of origin, naming file, offset, item, and
/// what to do: missing or extra items, other shapes, missing, cut or changed files. Sinks may then
/// have been filled in part.
Manifest load(comm::Communicator& comm,
              Context& ctx,
              const LoadOptions& options,
              std::span<StateSink* const> sinks);

}  // namespace weft::checkpoint
