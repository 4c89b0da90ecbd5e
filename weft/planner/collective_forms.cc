#include "weft/planner/collective_forms.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft::planner {
namespace {

// Relays of h hosts are h² pairs to go through in each estimate.
constexpr std::int64_t kMostRelayedRanks = 8192;

bool has_room(const Estimator& estimator, const PlanCost& cost) {
  const std::int64_t capacity = estimator.capacity();
  return std::all_of(cost.ranks.begin(), cost.ranks.end(),
                     [&](const RankCost& rank) { return rank.bytes() <= capacity; });
}

}  // namespace

PlanCost choose_forms(const Estimator& estimator,
                      const spec::Config& config,
                      spec::Plan& plan,
                      ShardLoads& loads) {
  using spec::CollectiveForm;
  plan.collectives = {};
  const bool is_open = config.collectives == spec::Collectives::kAuto;
  const bool inside = estimator.has_hierarchy();  // of a group's
  const bool dense = estimator.has_dense_hierarchy();
  if ((!inside && !dense) || config.collectives == spec::Collectives::kFlat ||
      (is_open && estimator.world_ranks() > kMostRelayedRanks)) {
    return estimator.cost(plan, loads);
  }
  spec::CollectiveForms& forms = plan.collectives;

  struct Choice {
    CollectiveForm* form;
    CollectiveForm other;  // than flat
  };

  std::vector<Choice> differing;
  if (inside) {
    differing = {{&forms.ids, CollectiveForm::kHierarchical},
                 {&forms.vectors, CollectiveForm::kHierarchical}};
  }
  if (dense) {
    differing.push_back({&forms.dense, estimator.hierarchical_dense()});
  }
  if (!is_open) {
    for (const Choice& choice : differing) {
      *choice.form = choice.other;
    }
    return estimator.cost(plan, loads);
  }
  PlanCost best = estimator.cost(plan, loads);
  for (const auto& [form, choice] : differing) {
    *form = choice;
    PlanCost other = estimator.cost(plan, loads);
    if (other.step_s < best.step_s && (has_room(estimator, other) || !has_room(estimator, best))) {
      best = std::move(other);
    } else {
      *form = CollectiveForm::kFlat;
    }
  }
  return best;
}

}  // namespace weft::planner
