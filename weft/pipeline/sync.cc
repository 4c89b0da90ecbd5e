// The schedules that have one batch in flight.
#include "weft/pipeline/schedule.h"

namespace weft::pipeline {
namespace {

using enum StreamRole;

/// From the batch to its scores and, in a training, its gradients.
void forward_stages(Issuer& to, std::int64_t batch) {
  to.issue({StepPart::kExchangeCounts, batch}, kCompute);
  to.issue({StepPart::kExchangeIds, batch}, kCompute);
  to.issue({StepPart::kLoad, batch}, kCompute);
  to.issue({StepPart::kLookup, batch}, kCompute);
  to.issue({StepPart::kOutputDist, batch}, kCompute);
  to.issue({StepPart::kForwardBackward, batch}, kCompute);
}

}  // namespace

void sync(Issuer& to, std::int64_t batch) {
  forward_stages(to, batch);
  to.issue({StepPart::kReduce, batch}, kDense);
  to.issue({StepPart::kExchangeReport, batch}, kCompute);
  // Nothing above changed a weight; all below is left out if a value was not finite.
  to.issue({StepPart::kCoalesce, batch}, kCompute);
  to.issue({StepPart::kGradDist, batch}, kCompute);
  to.issue({StepPart::kUpdateRows, batch}, kCompute);
  if (to.averages_behind(batch)) {
    to.issue({StepPart::kSyncReplicas, batch}, kSync);
  }
  to.issue({StepPart::kUpdateDense, batch}, kCompute);
}

void evaluation(Issuer& to, std::int64_t batch) {
  forward_stages(to, batch);
  to.issue({StepPart::kExchangeReport, batch}, kCompute);
}

}  // namespace weft::pipeline
