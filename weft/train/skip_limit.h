/// SkipLimit: when a job that leaves out steps with values that are not finite has to end.
///
/// Rule       a skipped step adds one to a count, a trained step takes one from it, not below 0. At
///            `most` (train.max_skipped) the job ends: after so many skipped steps in a row, and in
///            the long run where more than half are skipped.
/// Determinism  ranks skip the same steps, so the count is equal on all of them. It is part of a
///            checkpoint: a resumed job ends at the step at which the whole one would.
#pragma once

#include <cstdint>
#include <string>

namespace weft::train {

class SkipLimit {
 public:
  explicit SkipLimit(std::int64_t most) : most_(most) {}

  /// Skipped steps that no later trained ones make up for.
  [[nodiscard]] std::int64_t owed() const { return owed_; }

  /// Of all steps that were added.
  [[nodiscard]] std::int64_t skipped() const { return skipped_; }

  /// As a checkpoint has it; below 0 is 0.
  void restore(std::int64_t owed) { owed_ = owed > 0 ? owed : 0; }

  /// Counts a trained step, which makes up for one that is owed.
  void add_trained();

  /// Step `step` was skipped; `cause` says where it was not finite ("rank 2 for sample 17"). Throws
  /// Error(kNonFinite), with the counts and what to do, once the limit is reached.
  void add_skipped(std::int64_t step, const std::string& cause);

 private:
  std::int64_t most_;
  std::int64_t owed_ = 0;
  std::int64_t skipped_ = 0;
  std::int64_t trained_ = 0;
};

}  // namespace weft::train
