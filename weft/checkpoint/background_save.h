/// A save that goes on while the job trains.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "weft/checkpoint/checkpoint.h"
#include "weft/comm/communicator.h"
#include "weft/tensor/device.h"
#include "weft/tensor/row_cut.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// The time and memory that a background save has cost this rank.
struct BackgroundCosts {
  double cut_s = 0.0;           ///< the constructor
  double updates_s = 0.0;       ///< updates, for copies of rows and for room
  double total_s = 0.0;         ///< until the checkpoint was the newest
  std::int64_t copy_bytes = 0;  ///< the most held in copies of rows
};

/// The constructor cuts the state off between two steps; a thread writes what was cut off, as
/// save() does, while updates copy those of its rows aside that they are about to change. All that
/// save() promises of files and crashes holds.
///
/// Memory: copies of blocks and rows of at most options.copy_bytes, where an update waits for room,
/// and the batch that is written just now; a bit per row that is saved. Blocks are copied at the
/// cut; where those of some rank are more than options.copy_bytes, there is no cut: the constructor
/// saves and returns when it has. Threads: as the caller's thread, but for the comm, which is the
/// save's alone until finish(). An error of the world ends the thread's work between two batches:
/// what it has written is removed.
class BackgroundSave {
 public:
  /// Collective, inside a stage. The sources, options.folder, options.increments (not null) and
  /// options.files outlive it. Throws as save() does.
  BackgroundSave(comm::Communicator& comm,
                 Device& device,
                 SaveOptions options,
                 std::vector<const StateSource*> sources);

  /// Waits for the thread.
  ~BackgroundSave();

  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  /// Says whether it may still be written. Equal on all ranks.
  [[nodiscard]] bool is_open() const { return thread_.joinable(); }

  /// Waits, and returns where the checkpoint is. Throws as save() does, on all ranks alike. Without
  /// it, or when it throws, options.increments have no base: the next save has all rows.
  std::string finish();

  /// After finish().
  [[nodiscard]] const BackgroundCosts& costs() const { return costs_; }

 private:
  class Run;

  void run();

  std::unique_ptr<Run> run_;
  BackgroundCosts costs_;
  std::string where_;
  std::exception_ptr error_;
  std::jthread thread_;
};

}  // namespace weft::checkpoint
