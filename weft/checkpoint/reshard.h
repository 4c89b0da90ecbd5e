/// The same checkpoint in another number of files.
#pragma once

#include <cstdint>
#include <string>

#include "weft/checkpoint/checkpoint_reader.h"

namespace weft::checkpoint {

/// Options of reshard().
struct ReshardOptions {
  std::string directory;             ///< the folder that gets the checkpoint: missing, or empty
  std::int64_t files = 1;            ///< 1 or more
  std::string weft_version;          ///< of the program, for the manifest
  io::FileSystem* system = nullptr;  ///< null = the operating system's
};

/// Writes step-N, and `latest`, into options.directory: every item is cut by rows into
/// options.files runs, run k going to file-<k>.bin, and of tables whose rows are in segments to one
/// new segment in options.directory/rows: however many increments there were, they become one full
/// set, with the latest of each stored row alone. Blobs are copied. It loads with the state hash
/// of the one that it was made from, has the same metadata, and belongs to the same job as that
/// one's child: a resume from it goes on as one from its parent would, in either folder. One of a
/// version without jobs begins a job, as a resume from it does.
///
/// Written as save() writes: under the folder's lock, beside, synced, then renamed; what an earlier
/// call left unfinished there goes. Returns the new checkpoint's directory. Memory: a stream of
/// rows; of a segment, 24 bytes for each row that is found in its run, and 8 for each that is
/// written. At most 64 files are written at once, and the parent's blocks are read once for as
/// many; segments are written one by one, and the footers of those that have rows of a run are read
/// for each.
///
/// Errors: Error(kUsage) where the folder has anything else in it, or files < 1; Error(kCheckpoint)
/// where a table has raw ids, the parent is damaged, or a file cannot be written. What was written
/// is then removed.
std::string reshard(const CheckpointReader& from, const ReshardOptions& options);

}  // namespace weft::checkpoint
