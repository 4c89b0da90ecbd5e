#include "weft/train/step_times.h"

#include <initializer_list>

#include <fmt/format.h>

namespace weft::train {

void StepBreakdown::add(const StepTimes& step, double data_s, double total_s) {
  const auto seconds = [&step](std::initializer_list<StepPart> parts) {
    double sum = 0;
    for (const StepPart part : parts) {
      sum += step.beside[static_cast<std::size_t>(part)] ? 0.0 : step.of(part).seconds();
    }
    return sum;
  };
  data += data_s;
  exchange += seconds({StepPart::kExchangeCounts, StepPart::kExchangeIds, StepPart::kOutputDist,
                       StepPart::kExchangeReport, StepPart::kGradDist});
  exchange += step.waited_s;
  exchange += step.sync_beside ? step.sync_wait.seconds() : seconds({StepPart::kSyncReplicas});
  lookup += seconds({StepPart::kFetch, StepPart::kLookup});
  dense += seconds({StepPart::kLoad, StepPart::kForwardBackward, StepPart::kWeightGradients,
                    StepPart::kUpdateDense});
  update += seconds({StepPart::kCoalesce, StepPart::kUpdateRows});
  total += total_s;
}

std::string StepBreakdown::text() const {
  const auto share = [this](double part) { return total > 0 ? 100 * part / total : 0.0; };
  return fmt::format("data {:.0f} exchange {:.0f} lookup {:.0f} dense {:.0f} update {:.0f} %",
                     share(data), share(exchange), share(lookup), share(dense), share(update));
}

}  // namespace weft::train
