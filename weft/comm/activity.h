/// What the groups of this process are doing now: for the message of a job that is being killed.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>

#include "weft/base/work_progress.h"
#include "weft/comm/collective.h"

namespace weft::comm {

/// The collectives that are waiting now, of all groups and (with `local`) all ranks of a process,
/// and the long work that is under way. Thread-safe. Not for signal handlers: call describe() from
/// a thread that waits for signals.
class ActivityLog {
 public:
  /// One communicator's line, which counts while it is `busy`. `rank` is its rank in the group,
  /// `since` when it began to wait or work.
  struct Entry {
    std::string group;
    int rank = 0;  ///< of the world
    Stamp stamp;
    std::chrono::steady_clock::time_point since;
    bool busy = false;
    const WorkProgress* work = nullptr;  ///< instead of a collective
  };

  /// One communicator's line in the log, for as long as it lives.
  class Slot {
   public:
    /// `rank` is the rank of the world, as messages name it.
    Slot(ActivityLog& log, std::string group, int rank);
    ~Slot();
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

    /// Notes that the communicator waits in this collective from now on, until end().
    void begin(const Stamp& stamp);

    /// `work` lives until end() or the end of the slot.
    void begin_work(const WorkProgress& work);
    void end() noexcept;

   private:
    ActivityLog& log_;
    std::list<Entry>::iterator entry_;
  };

  /// One line per waiting group: "rank 1: all_gather #17 of group 'dense' for 12.3 s"; per long
  /// work: "rank 1: writing 'FILE', 12.0 GiB of 40.0 GiB for 12.3 s"; or "no collective under way".
  [[nodiscard]] std::string describe() const;

 private:
  friend class Slot;

  mutable std::mutex mutex_;
  std::list<Entry> entries_;
};

}  // namespace weft::comm
