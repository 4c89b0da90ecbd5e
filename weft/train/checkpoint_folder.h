/// A job's folder for checkpoints, and which checkpoint it goes on from.
#pragma once

#include <memory>
#include <string>

#include "weft/checkpoint/folder.h"
#include "weft/comm/communicator.h"
#include "weft/tensor/device.h"

namespace weft::train {

/// What --resume says instead of a path: the newest of the folder for checkpoints, or none.
inline constexpr const char* kResumeAuto = "auto";

/// The settings of open_checkpoints(), equal on all ranks.
struct CheckpointFolderOptions {
  std::string directory;   ///< of --checkpoint; empty = none
  std::string resume;      ///< a checkpoint, the folder of some, kResumeAuto, or empty = start anew
  double timeout_s = 300;  ///< train.timeout_s
};

/// The answer of open_checkpoints(). `resume` and `has_resumed` are equal on all ranks; the
/// folder's lock is held as long as `folder` lives.
struct CheckpointFolder {
  /// On rank 0, where there is a directory: locked, and of a job that goes on or has begun.
  std::unique_ptr<checkpoint::Folder> folder;
  std::string resume;        ///< the checkpoint itself; empty = start anew
  bool has_resumed = false;  ///< whether that checkpoint lies in the directory
};

/// Rank 0 takes the folder, settles what is resumed, and tells all. Collective. May wait for
/// timeout_s for the lock of a job that is gone, where the file system has no locks. With
/// kResumeAuto it waits as long for one that still runs, and says so: a job that is started again
/// may meet ranks of its run before, which end soon.
///
/// Errors: Error(kCheckpoint) on all ranks: a folder that cannot be written, that another job
/// writes to, or that has checkpoints where the job would start anew; no checkpoint to resume.
CheckpointFolder open_checkpoints(comm::Communicator& world,
                                  Context& ctx,
                                  const CheckpointFolderOptions& options);

}  // namespace weft::train
