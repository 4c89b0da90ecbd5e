/// How old the newest complete checkpoint of a training may get while saving fails.
///
/// A checkpoint that fails at an interval is tried again at the next one: a full disk or a file
/// system that was away for minutes is no reason to lose the steps since the last one. The job ends
/// when a save fails and the newest complete checkpoint, or without one the step at which this run
/// began, is more than a limit of steps back; at once where the folder is no longer the job's
/// (kLockLost). Steps decide and no clock, so all ranks decide alike.
#pragma once

#include <cstdint>
#include <string>

#include "weft/base/error.h"

namespace weft::train {

/// At an interval a checkpoint that cannot be written may be left for the next one; what a run ends
/// with may not.
enum class SaveKind : std::uint8_t { kInterval, kFinal };

/// Counts the steps since the newest complete checkpoint and ends the job beyond the limit. Each
/// rank has one and gives it the same calls.
class CheckpointAge {
 public:
  /// The limit without --checkpoint-max-age, in intervals of --checkpoint-every.
  static constexpr std::int64_t kDefaultIntervals = 3;

  /// `max_age` and `every` in steps; max_age 0: kDefaultIntervals times `every`.
  CheckpointAge(std::int64_t first_step, std::int64_t every, std::int64_t max_age);

  void saved(std::int64_t step) { newest_ = step; }

  /// The save of `step` has failed with `error`. Throws it where the job ends for that: a final
  /// one, another error than kCheckpoint, such as kLockLost, which no later save can mend, and,
  /// with what the limit says, where the newest is too old. Else counts it and returns what to warn
  /// of.
  std::string failed(std::int64_t step, SaveKind kind, const Error& error);

  /// The save of `step`, which was written beside steps, has failed, and the final one is next.
  /// Counts it and returns what to warn of; throws kLockLost alone.
  std::string failed_before_final(std::int64_t step, const Error& error);

  /// Saves that failed and did not end the job.
  [[nodiscard]] std::int64_t failures() const { return failures_; }

 private:
  std::int64_t newest_;
  std::int64_t every_;
  std::int64_t max_age_;
  std::int64_t failures_ = 0;
};

}  // namespace weft::train
