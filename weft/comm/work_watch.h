/// Long work of one rank, seen by the others: they wait for as long as it moves.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "weft/base/work_progress.h"
#include "weft/comm/activity.h"
#include "weft/comm/communicator.h"

namespace weft::comm {

/// Watches work that this rank does on one thread while another thread waits for it. The waiting
/// thread calls look() every interval().
///
/// As long as the work moves, look() tells all ranks of the world that this one is alive, so that
/// their waits begin anew (Communicator::say_alive). Once nothing has moved for the timeout of the
/// communicator, an Error(kTimeout) that names this rank, the activity, its place and how much is
/// done becomes the world's error and is thrown: every rank ends with it. The caller cannot take
/// the memory of work away that hangs in its disk; it waits for the work to end, and the backend
/// ends a process that does not come to its end (MpiOptions::shutdown_timeout_s,
/// LocalOptions::give_up).
///
/// Every minute a line is logged: "rank 1 has been writing 'FILE' for 60 s, 12.0 GiB of 40.0 GiB".
/// The work is in the activity log, so a stop request says what the job is doing.
/// Threads: one at a time; the communicator may be in use by another. Cost: nothing before the
/// first look().
class WorkWatch {
 public:
  /// Options of a watch.
  struct Options {
    /// The time between two lines in the log.
    std::chrono::duration<double> note_every = std::chrono::seconds(60);
  };

  /// `comm` and `progress` outlive the watch.
  WorkWatch(Communicator& comm, const WorkProgress& progress);
  WorkWatch(Communicator& comm, const WorkProgress& progress, const Options& options);

  /// How long to wait between two looks: a small part of the timeout.
  [[nodiscard]] static std::chrono::milliseconds interval(const Communicator& comm);

  [[nodiscard]] std::chrono::milliseconds interval() const { return interval(comm_); }

  /// Throws Error(kTimeout) as above, or the world's error.
  void look();

 private:
  using Clock = std::chrono::steady_clock;

  [[noreturn]] void give_up();
  void note(Clock::time_point now);

  Communicator& comm_;
  const WorkProgress& progress_;
  Options options_;
  ActivityLog::Slot activity_;
  Clock::time_point begin_;
  Clock::time_point moved_;
  std::uint64_t moves_;
  std::int64_t notes_ = 0;
};

/// Calls work(progress) on a thread of its own, which is watched as above, and throws what it
/// throws. Where the work hangs this throws once the work has come back. Not collective; the work
/// must not communicate. Cost: a thread.
void run_watched(Communicator& comm, const std::function<void(WorkProgress& progress)>& work);

}  // namespace weft::comm
