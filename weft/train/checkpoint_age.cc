#include "weft/train/checkpoint_age.h"

#include <fmt/format.h>

namespace weft::train {

CheckpointAge::CheckpointAge(std::int64_t first_step, std::int64_t every, std::int64_t max_age)
    : newest_(first_step),
      every_(every),
      max_age_(max_age > 0 ? max_age : kDefaultIntervals * every) {
}

std::string CheckpointAge::failed(std::int64_t step, SaveKind kind, const Error& error) {
  if (kind == SaveKind::kFinal || error.code() != ErrorCode::kCheckpoint) {
    throw error;
  }
  if (step - newest_ > max_age_) {
    throw Error(error.code(),
                fmt::format("{}; the job ends, because its newest complete checkpoint is {} steps "
                            "back, more than {} (--checkpoint-max-age)",
                            error.what(), step - newest_, max_age_),
                error.origin_rank());
  }
  ++failures_;
  return fmt::format(
      "step {}: no checkpoint: {}. The training goes on and tries again at step {}; the newest "
      "complete one is {} steps back, with more than {} the job ends (--checkpoint-max-age)",
      step, error.what(), step + every_, step - newest_, max_age_);
}

std::string CheckpointAge::failed_before_final(std::int64_t step, const Error& error) {
  if (error.code() == ErrorCode::kLockLost) {
    throw error;
  }
  ++failures_;
  return fmt::format("step {}: no checkpoint: {}. The last one of the run is next", step,
                     error.what());
}

}  // namespace weft::train
