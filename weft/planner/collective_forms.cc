#include "weft/planner/collective_forms.h"

#include <cstdint>
#include <utility>

namespace weft::planner {
namespace {

// Relays of h hosts are h² pairs to go through in each estimate.
constexpr std::int64_t kMostRanks = 8192;

}  // namespace

PlanCost choose_forms(const Estimator& estimator,
                      const spec::Config& config,
                      spec::Plan& plan,
                      ShardLoads& loads) {
  using spec::CollectiveForm;
  plan.collectives = {};
  const bool is_open = config.collectives == spec::Collectives::kAuto;
  if (!estimator.has_hierarchy() || config.collectives == spec::Collectives::kFlat ||
      (is_open && estimator.ranks() > kMostRanks)) {
    return estimator.cost(plan, loads);
  }
  spec::CollectiveForms& forms = plan.collectives;
  if (!is_open) {
    forms = {.ids = CollectiveForm::kHierarchical,
             .vectors = CollectiveForm::kHierarchical,
             .dense = CollectiveForm::kHierarchical};
    return estimator.cost(plan, loads);
  }
  PlanCost best = estimator.cost(plan, loads);
  for (CollectiveForm* form : {&forms.ids, &forms.vectors, &forms.dense}) {
    *form = CollectiveForm::kHierarchical;
    PlanCost other = estimator.cost(plan, loads);
    if (other.step_s < best.step_s) {
      best = std::move(other);
    } else {
      *form = CollectiveForm::kFlat;
    }
  }
  return best;
}

}  // namespace weft::planner
