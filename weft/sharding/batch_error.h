/// BatchError: the ids of a batch cannot be exchanged because of one rank's part of it.
#pragma once

#include "weft/base/error.h"

namespace weft::sharding {

/// Thrown by exchange_counts() on all ranks, after the exchange that told them, so that none of
/// them waits for the batch and each can finish what it began before. All ranks of a replica group
/// have the error of the first that has no batch; ranks of another group know only that there is
/// one.
class BatchError : public Error {
 public:
  /// Which ranks' part of the batch it is about.
  enum class Of { kThisGroup, kAnotherGroup };

  BatchError(const Error& error, Of of)
      : Error(error.code(), error.what(), error.origin_rank()), of_(of) {}

  [[nodiscard]] bool is_of_another_group() const { return of_ == Of::kAnotherGroup; }

 private:
  Of of_;
};

}  // namespace weft::sharding
