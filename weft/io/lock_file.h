/// A lock on a folder that never needs a person: who holds it is in a file, and a holder that is
/// gone holds nothing.
///
/// Where the file system has locks of the operating system, the lock is one of these and goes with
/// its process. Elsewhere a file PATH.held is the lock: it is made by link(), which only one can
/// do, and its holder changes it again and again. A holder on the same machine that no longer runs
/// is replaced at once; one that cannot be seen when its file has stood still for `timeout_s`.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "weft/io/file_system.h"
#include "weft/io/process.h"

namespace weft::io {

/// Who holds a lock, as its file says it.
struct Holder {
  ProcessName process;
  std::string label;     ///< what the lock is held for, one line
  double timeout_s = 0;  ///< its own: it changes the file ten times in this, or every 10 s
  /// Another for each time the lock is taken; 0 where the file is not readable.
  std::uint64_t nonce = 0;
};

/// What take() does where only a heartbeat can tell whether a holder still runs.
enum class Patience {
  kWait,         ///< waits for one, up to the timeout
  kTakeItToRun,  ///< does not wait: the lock is held
};

/// Options of LockFile::take().
struct LockOptions {
  std::string path;
  double timeout_s = 300;  ///< how long a heartbeat may stand still, or the holder's if longer
  std::function<void()> on_wait = {};  ///< called again and again while take() waits for one
  Patience patience = Patience::kWait;
};

struct TakenLock;

/// How a lock that was taken looks later.
enum class Hold {
  kHeld,
  kLost,     ///< removed by a person, or taken over by another process because this one stood still
  kUnknown,  ///< its file cannot be looked at, as on a file system that is away for a while
};

/// A lock on a folder, held from take() to the destructor unless it is lost in between.
class LockFile {
 public:
  /// Takes the lock. Returns at once with an OS lock, and else where the holder is seen to run or
  /// not to; waits up to timeout_s for the heartbeat of one that cannot be seen. Does not throw.
  static TakenLock take(FileSystem& files, const LockOptions& options);

  /// Releases it and removes its file.
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  /// Says in the file what the lock is held for.
  void set_label(const std::string& label);

  /// Says whether the lock is still this one's. A lost one does not come back.
  [[nodiscard]] Hold hold() const;

  [[nodiscard]] bool is_held() const { return hold() == Hold::kHeld; }

 private:
  LockFile(FileSystem& files, std::string path, double timeout_s);

  TakenLock take_by_link(const LockOptions& options);
  [[nodiscard]] std::string private_path() const;
  [[nodiscard]] std::string content() const;
  std::error_code write_content(const std::string& path, OpenMode mode);
  void beat();

  FileSystem& files_;
  const std::string path_;
  Holder own_;
  std::unique_ptr<Lock> lock_;  ///< null where a file is the lock
  bool linked_ = false;         ///< a file is the lock, and this one's
  std::mutex mutex_;            ///< of own_.label, beats_, ending_
  std::condition_variable wake_;
  std::int64_t beats_ = 0;
  bool ending_ = false;
  std::thread heart_;
};

/// One of: a lock; a holder in the way (as far as its file can be read); an error.
struct TakenLock {
  std::unique_ptr<LockFile> lock;
  Holder holder;
  std::error_code error;
};

}  // namespace weft::io
