#include "weft/planner/best_scheduled.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "weft/planner/cache_division.h"
#include "weft/planner/cache_size.h"
#include "weft/planner/estimate.h"
#include "weft/planner/mesh_search.h"
#include "weft/planner/pipeline_choice.h"

namespace weft::planner {
namespace {

/// A proposal with what its step takes if all schedules fit.
struct Compared {
  std::size_t proposal = 0;
  double least_s = 0.0;
};

/// The proposal that is best so far, with its schedules.
struct Taken {
  std::size_t proposal = 0;
  std::vector<PipelineOption> pipelines = {};
  double step_s = std::numeric_limits<double>::infinity();
  bool fits = false;

  [[nodiscard]] bool is_beaten_by(double other_s, bool other_fits) const {
    return other_fits != fits ? other_fits : other_s < step_s;
  }
};

class Choice {
 public:
  Choice(const spec::Config& config, const Workload& workload, const SearchResult& found)
      : config_(config),
        workload_(workload),
        found_(found),
        estimator_(config, *found.mesh, workload, found.best().plan.parts) {}

  Taken run() {
    bool has_first = false;
    std::size_t predicted = 0;
    for (const Compared& one : compared()) {
      if (!taken_.pipelines.empty() && !taken_.is_beaten_by(one.least_s, true)) {
        return std::move(taken_);
      }
      if (predicted++ == kMostPredicted) {
        break;
      }
      has_first = has_first || one.proposal == 0;
      predict(one.proposal);
    }
    if (!has_first) {
      predict(0);
    }
    return std::move(taken_);
  }

 private:
  /// Says whether the job could have the plan: its mesh was chosen for the best one.
  [[nodiscard]] bool is_possible(const Proposal& one) const {
    const MeshCluster& mesh = *found_.mesh;
    const bool is_touched = mesh.groups > 1 && mesh.sync == spec::SyncForm::kTouched;
    return one.fits() && one.plan.parts == found_.best().plan.parts &&
           one.cost.step_s <= kMostOfBest * found_.best().cost.step_s &&
           (!is_touched || is_touchable(one.plan)) &&
           !divides_by_curves(config_, workload_, one.plan);
  }

  /// Returns the proposals by the least that their steps may take.
  [[nodiscard]] std::vector<Compared> compared() const {
    std::vector<Compared> all;
    for (std::size_t i = 0; i < found_.proposals.size() && all.size() < kMostCompared; ++i) {
      const Proposal& one = found_.proposals[i];
      if (i == 0 || is_possible(one)) {
        const auto walked = walked_options(estimator_.shape(), one.cost);
        all.push_back({i, walked[choose_pipeline(config_.pipeline, walked)].step_s});
      }
    }
    std::ranges::stable_sort(all, {}, &Compared::least_s);
    return all;
  }

  void predict(std::size_t proposal) {
    const Proposal& one = found_.proposals[proposal];
    std::vector<PipelineOption> options = pipeline_options(estimator_, one.plan, one.cost);
    const PipelineOption& own = options[choose_pipeline(config_.pipeline, options)];
    if (taken_.pipelines.empty() || taken_.is_beaten_by(own.step_s, own.fits)) {
      const double step_s = own.step_s;
      const bool fits = own.fits;
      taken_ = {proposal, std::move(options), step_s, fits};
    }
  }

  const spec::Config& config_;
  const Workload& workload_;
  const SearchResult& found_;
  Estimator estimator_;
  Taken taken_;
};

}  // namespace

void put_best_scheduled_first(const spec::Config& config,
                              const Workload& workload,
                              SearchResult& found) {
  if (config.pipeline.schedule == spec::PipelineSchedule::kSync || !found.best().fits() ||
      leaves_cache_size_open(config) || divides_by_curves(config, workload, found.best().plan)) {
    return;
  }
  Taken taken = Choice(config, workload, found).run();
  found.pipelines = std::move(taken.pipelines);
  const auto first = found.proposals.begin();
  const auto place = first + static_cast<std::ptrdiff_t>(taken.proposal);
  std::rotate(first, place, place + 1);
  found.schedule_decided = taken.proposal > 0;
}

}  // namespace weft::planner
