#include "weft/train/skip_limit.h"

#include "weft/base/error.h"

namespace weft::train {

void SkipLimit::add_trained() {
  ++trained_;
  owed_ -= owed_ > 0 ? 1 : 0;
}

void SkipLimit::add_skipped(std::int64_t step, const std::string& cause) {
  ++skipped_;
  if (++owed_ < most_) {
    return;
  }
  fail(ErrorCode::kNonFinite,
       "step {}: skipped, not finite on {}; {} of the {} steps of this run were skipped, and {} of "
       "them no trained steps make up for (train.max_skipped {}). Resume from the last checkpoint "
       "with a lower learning rate, a warm-up (schedule.warmup_steps) or clipping "
       "(dense_optimizer.clip_norm), or look at the data that is named",
       step, cause, skipped_, skipped_ + trained_, owed_, most_);
}

}  // namespace weft::train
