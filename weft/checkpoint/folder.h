/// A job's hold on its directory of checkpoints: a lock, and where in the job's line the next
/// checkpoint stands.
///
/// A job has a random id from its step 0 on, kept on resume; a checkpoint names its parent and has
/// a save number, the parent's plus one. A line is the chain of parents of a checkpoint. No clock
/// decides anything.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/checkpoint/manifest.h"
#include "weft/io/file_system.h"
#include "weft/io/lock_file.h"

namespace weft::checkpoint {

/// Options of Folder, given on rank 0.
struct FolderOptions {
  std::string directory;            ///< made if it does not exist
  double timeout_s = 300;           ///< a lock whose heartbeat stands still that long is taken over
  io::FileSystem* files = nullptr;  ///< null = the operating system's
  /// Called again and again while such a lock is waited for.
  std::function<void()> on_wait = {};
};

/// An Error(kCheckpoint): another job has the lock. It may end, so a second try may succeed.
class FolderBusy : public Error {
 public:
  using Error::Error;
};

/// On rank 0 of a job, which keeps it as long as it may save. Every error is an Error(kCheckpoint),
/// but that of a lock that was lost: it is an Error(kLockLost), since no later try can succeed.
/// Used by one thread at a time.
class Folder {
 public:
  /// Takes the lock of the directory. Throws FolderBusy where another job has it, naming its host,
  /// process and id. May wait for timeout_s on a file system without locks.
  explicit Folder(const FolderOptions& options);

  /// Releases the lock, and removes the directory if it was made here and is empty.
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// The newest complete checkpoint, empty where there is none.
  [[nodiscard]] std::string newest() const;

  /// A new job begins. Throws where the directory has checkpoints, naming the ways out.
  void start_job();

  /// The job goes on with the line of a checkpoint, of this directory or another (as
  /// find_checkpoint takes it). Names in the log all of the job that are not of this line: they are
  /// left behind. `on_read` hears of every manifest, since reading many may take long.
  void resume_job(const std::string& checkpoint, const std::function<void()>& on_read = {});

  /// What the next checkpoint's manifest says. job_id 0 before start_job() and resume_job().
  [[nodiscard]] const Lineage& lineage() const { return next_; }

  /// The manifest of the checkpoint that the next one descends from, if it is one of this
  /// directory.
  [[nodiscard]] std::optional<Manifest> parent() const;

  /// Makes the directory that the next checkpoint is written to, and removes what earlier saves
  /// have left unfinished, segments too. Throws Error(kLockLost) where the lock has been lost.
  /// `on_removed` hears of every file of these, since removing many takes long.
  std::string begin(std::int64_t step, const std::function<void()>& on_removed = {});

  /// Makes the directory of segments, and returns a prefix for the names of those of the checkpoint
  /// that begin() has begun: no others have it.
  std::string begin_rows();

  /// Makes the checkpoint in `unfinished`, all of whose files are on the disk, the newest. Returns
  /// its directory. It is durable then. Throws with `unfinished` as it was; Error(kLockLost) where
  /// the lock has been lost.
  std::string commit(const std::string& unfinished,
                     std::int64_t step,
                     const std::string& manifest_text);

  /// Removes what begin() has made and segments of begin_rows(), as far as possible.
  void discard(const std::string& unfinished) noexcept;

  /// Removes the oldest checkpoints of the line until `keep` are left (0: all stay), and once the
  /// line has as many, those of the job that are not of it, which the log then names. Other jobs'
  /// are never touched. What cannot be removed is a warning. `on_removed` hears of every file.
  /// Segments stay: sweep() removes them.
  void prune(std::int64_t keep, const std::function<void()>& on_removed = {}) noexcept;

  /// Removes the job's segments that no manifest of the directory names, of whatever job. Removes
  /// none where a manifest cannot be read. What cannot be removed is a warning.
  void sweep(const std::function<void()>& on_removed = {}) noexcept;

 private:
  struct Known {
    std::string directory;
    Lineage lineage;
    std::uint64_t id = 0;
    std::vector<std::string> prefixes = {};  ///< of the segments it names
  };

  void check_held() const;
  void repair();
  void say_what_is_left_behind(const std::set<std::uint64_t>& line) const;
  [[nodiscard]] std::string free_name(std::int64_t step) const;
  std::map<std::uint64_t, Known> known(const std::function<void()>& on_read = {});
  static std::vector<Known> line_of(const std::map<std::uint64_t, Known>& all, std::uint64_t id);
  [[nodiscard]] std::vector<Known> outside_of(const std::set<std::uint64_t>& line) const;
  void remove(const std::vector<Known>& old,
              const std::set<std::uint64_t>& line,
              const std::function<void()>& on_removed);
  void discard_rows();
  void remove_segments(const std::set<std::string>& named, const std::function<void()>& on_removed);

  io::FileSystem& files_;
  std::string directory_;
  bool made_ = false;
  std::unique_ptr<io::LockFile> lock_;
  Lineage next_;
  std::string prefix_;           ///< of segments of the checkpoint that is being written
  bool has_renamed_ = false;     ///< checkpoints to unfinished names, which are not on the disk yet
  std::uint64_t newest_id_ = 0;  ///< of the parent of the next
  std::map<std::string, Known> read_;  ///< by directory: manifests do not change
};

}  // namespace weft::checkpoint
