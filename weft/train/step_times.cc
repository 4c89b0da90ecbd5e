#include "weft/train/step_times.h"

namespace weft::train {

std::string_view to_string(StepPart part) {
  constexpr std::array<std::string_view, kStepParts> kNames = {
      "prepare",     "exchange_counts",  "exchange_ids", "load",           "lookup",
      "output_dist", "forward_backward", "reduce",       "exchange_flags", "coalesce",
      "grad_dist",   "update_rows",      "update_dense"};
  return kNames[static_cast<std::size_t>(part)];
}

}  // namespace weft::train
