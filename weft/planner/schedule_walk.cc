#include "weft/planner/schedule_walk.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <set>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/pipeline/stage.h"

namespace weft::planner {
namespace {

using pipeline::is_of_cut;
using pipeline::is_of_job;
using pipeline::Resource;
using pipeline::StageOf;
using pipeline::StreamRole;

constexpr std::int64_t kFirstSteps = 4;  // until a step is like the one before
constexpr std::int64_t kSteps = 12;

/// What has one user at a time.
class UsedTime {
 public:
  /// Uses idle time from `ready` on, in as many pieces as it takes. Returns when it has been
  /// `seconds`.
  double use(double ready, double seconds) {
    if (seconds <= 0.0) {
      return ready;
    }
    const auto first = std::find_if(spans_.begin(), spans_.end(),
                                    [&](const Span& span) { return span.end >= ready; });
    double now = ready;
    auto last = first;
    for (; last != spans_.end() && last->begin < now + seconds; ++last) {
      seconds -= std::max(0.0, last->begin - now);
      now = std::max(now, last->end);
    }
    now += seconds;
    // From `ready` on there is no idle time left.
    const Span joined{first == last ? ready : std::min(ready, first->begin), now};
    spans_.insert(spans_.erase(first, last), joined);
    return now;
  }

 private:
  struct Span {
    double begin = 0.0;
    double end = 0.0;
  };

  std::vector<Span> spans_;  // ascending, apart
};

/// By rank.
using Times = std::vector<double>;

double latest(const Times& times) {
  return *std::max_element(times.begin(), times.end());
}

void wait(Times& times, const Times& until) {
  for (std::size_t r = 0; r < times.size(); ++r) {
    times[r] = std::max(times[r], until[r]);
  }
}

bool has_exchange(StepPart part) {
  switch (part) {
    case StepPart::kExchangeCounts:
    case StepPart::kExchangeIds:
    case StepPart::kOutputDist:
    case StepPart::kReduce:
    case StepPart::kExchangeReport:
    case StepPart::kGradDist:
    case StepPart::kUpdateRows:
    case StepPart::kSyncReplicas:
      return true;
    default:
      return false;
  }
}

bool all_wait_in(StepPart part) {
  return part != StepPart::kUpdateRows && part != StepPart::kSyncReplicas;
}

bool has_hand_off(StepPart part) {
  return part != StepPart::kFetch && part != StepPart::kReduce;
}

class Walk final : public pipeline::Issuer {
 public:
  Walk(const StageSeconds& seconds, const pipeline::Schedule& schedule, const WalkCuts& cuts)
      : seconds_(seconds),
        schedule_(schedule),
        cuts_(cuts),
        processors_(seconds.own.size()),
        disks_(seconds.reads.size()),
        streams_(pipeline::kStreamRoles, Times(seconds.own.size())),
        batches_(schedule.looks_ahead ? 2 : 1) {
    for (BatchUses& batch : batches_) {
      batch.cuts.resize(cuts.shares.size());
    }
  }

  /// The ends of the first steps; replicas are averaged after step `averaged`, of kEveryStep after
  /// each.
  Times run(std::int64_t steps, std::int64_t averaged) {
    const std::int64_t places = std::ssize(batches_);
    Times ends;
    schedule_.begin(*this, 0);
    for (std::int64_t step = 0; step < steps; ++step) {
      averages_ = averaged == kEveryStep || step == averaged;
      const std::int64_t now = step % places;
      schedule_.step(*this, now, schedule_.looks_ahead ? (step + 1) % places : pipeline::kNoBatch);
      finish(now);
      ends.push_back(latest(caller()));
    }
    return ends;
  }

  static constexpr std::int64_t kEveryStep = -1;

 private:
  /// As in Lineup; numbers of stages, in the order of issue.
  struct Uses {
    std::int64_t written = kNone;
    std::vector<std::int64_t> read;
  };

  struct BatchUses {
    std::array<Uses, pipeline::kResources> whole;
    std::vector<std::array<Uses, pipeline::kResources>> cuts;
    std::vector<std::int64_t> stages;
    std::int64_t summed = 0;  ///< micro-batches whose weights' gradients are computed
  };

  /// A stage that was issued. One that is behind others has no ends until they are asked for.
  struct Issued {
    StageOf stage;
    bool is_behind = false;
    Times times;  ///< when it is ready, then when it ends
  };

  static constexpr std::int64_t kNone = -1;
  static constexpr double kLeastWait = 1e-9;  // what is less is rounding

  void issue(const StageOf& stage, StreamRole on) override {
    const bool is_beside = seconds_.streams == Streams::kMany;
    const StreamRole role = is_beside ? on : StreamRole::kCompute;
    Issued made{.stage = stage,
                .is_behind = role == StreamRole::kDense || role == StreamRole::kSync,
                .times = streams_[at(role)]};
    wait(made.times, caller());
    wait_for_uses(stage, made.times);
    if (!made.is_behind) {
      made.times = end_of(stage, std::move(made.times));
      streams_[at(role)] = made.times;
    }
    issued_.push_back(std::move(made));
    note(stage, std::ssize(issued_) - 1);
  }

  [[nodiscard]] bool averages_behind(std::int64_t /*batch*/) const override {
    return averages_ && seconds_.average_every > 0;
  }

  [[nodiscard]] bool reads_disk() const override { return !disks_.empty(); }

  [[nodiscard]] std::int64_t cuts() const override { return std::ssize(cuts_.shares); }

  [[nodiscard]] std::int64_t lookahead() const override { return cuts_.lookahead; }

  /// Whether a rank would. What is waited for here is behind nothing.
  [[nodiscard]] bool would_wait_for(const StageOf& stage) const override {
    if (!seconds_.fills_waits) {
      return false;
    }
    const Uses& vectors =
        batches_[at(stage.batch)].cuts[at(stage.cut)][static_cast<std::size_t>(Resource::kVectors)];
    const Times& caller = streams_[at(StreamRole::kCompute)];
    const Times& ends = issued_[at(vectors.written)].times;
    for (std::size_t r = 0; r < caller.size(); ++r) {
      if (ends[r] > caller[r] + kLeastWait) {
        return true;
      }
    }
    return false;
  }

  static std::size_t at(StreamRole role) { return static_cast<std::size_t>(role); }

  static std::size_t at(std::int64_t index) { return weft::at(index); }

  [[nodiscard]] Times& caller() { return streams_[at(StreamRole::kCompute)]; }

  /// Calls visit(Uses&) for what a stage uses of a resource.
  template <typename Visit>
  void for_uses(std::size_t resource, const StageOf& stage, const Visit& visit) {
    const auto one = static_cast<Resource>(resource);
    BatchUses& batch = batches_[at(stage.batch)];
    if (is_of_job(one)) {
      visit(job_[resource]);
    } else if (!is_of_cut(one)) {
      visit(batch.whole[resource]);
    } else if (is_of_cut(stage.part)) {
      visit(batch.cuts[at(stage.cut)][resource]);
    } else {
      for (auto& cut : batch.cuts) {
        visit(cut[resource]);
      }
    }
  }

  void wait_for_uses(const StageOf& stage, Times& times) {
    const pipeline::Accesses accesses = pipeline::accesses_of(stage.part);
    for (std::size_t i = 0; i < pipeline::kResources; ++i) {
      const bool writes = accesses.writes.contains(static_cast<Resource>(i));
      if (!writes && !accesses.reads.contains(static_cast<Resource>(i))) {
        continue;
      }
      for_uses(i, stage, [&](const Uses& before) {
        wait_for(before.written, times);
        for (std::size_t r = 0; writes && r < before.read.size(); ++r) {
          wait_for(before.read[r], times);
        }
      });
    }
  }

  void wait_for(std::int64_t number, Times& times) {
    if (number != kNone) {
      wait(times, end(number));
    }
  }

  void note(const StageOf& stage, std::int64_t number) {
    const pipeline::Accesses accesses = pipeline::accesses_of(stage.part);
    bool is_of_batch = false;
    for (std::size_t i = 0; i < pipeline::kResources; ++i) {
      const auto resource = static_cast<Resource>(i);
      const bool writes = accesses.writes.contains(resource);
      if (writes || accesses.reads.contains(resource)) {
        is_of_batch = is_of_batch || !is_of_job(resource);
        for_uses(i, stage, [&](Uses& uses) {
          if (writes) {
            uses = {.written = number, .read = {}};
          } else {
            uses.read.push_back(number);
          }
        });
      }
    }
    if (is_of_batch) {
      batches_[at(stage.batch)].stages.push_back(number);
    }
  }

  const Times& end(std::int64_t number) {
    Issued& one = issued_[at(number)];
    if (one.is_behind) {
      one.is_behind = false;
      one.times = end_of(one.stage, std::move(one.times));
    }
    return one.times;
  }

  /// The caller waits for all stages of a batch.
  void finish(std::int64_t batch) {
    for (const std::int64_t number : batches_[at(batch)].stages) {
      wait(caller(), end(number));
    }
    batches_[at(batch)].stages.clear();
    batches_[at(batch)].summed = 0;
  }

  /// Of its part's work and bytes.
  double share_of(const StageOf& stage) {
    if (stage.part == StepPart::kWeightGradients) {
      std::int64_t& summed = batches_[at(stage.batch)].summed;
      double share = 0.0;
      for (; summed <= stage.cut; ++summed) {
        share += cuts_.shares[at(summed)];
      }
      return share;
    }
    return is_of_cut(stage.part) ? cuts_.shares[at(stage.cut)] : 1.0;
  }

  /// When a stage ends that is ready at `times`.
  Times end_of(const StageOf& stage, Times times) {
    const auto part = static_cast<std::size_t>(stage.part);
    const double share = share_of(stage);
    const bool reads = stage.part == StepPart::kFetch && !disks_.empty();
    double hand_off = has_hand_off(stage.part) || reads ? seconds_.hand_off : 0.0;
    if (stage.part == StepPart::kWeightGradients && stage.cut + 1 < cuts()) {
      hand_off += seconds_.join;
    }
    const bool packs = stage.part == StepPart::kExchangeCounts;
    for (std::size_t r = 0; r < times.size(); ++r) {
      const double work = packs ? seconds_.own[r][part] : 0.0;
      times[r] = processors_[r].use(times[r], hand_off + share * work);
    }
    if (has_exchange(stage.part)) {
      const double start = seconds_.starts[part];
      const double met = latest(times);
      const double over = link_.use(met, start + share * (seconds_.exchanges[part] - start));
      for (double& time : times) {
        time = all_wait_in(stage.part) ? over : time + (over - met);
      }
    }
    for (std::size_t r = 0; r < times.size() && !packs; ++r) {
      const double ready = times[r];
      times[r] = processors_[r].use(ready, share * seconds_.own[r][part]);
      if (reads) {
        times[r] = std::max(times[r], disks_[r].use(ready, seconds_.reads[r]));
      }
    }
    return times;
  }

  const StageSeconds& seconds_;
  const pipeline::Schedule& schedule_;
  const WalkCuts& cuts_;
  bool averages_ = false;
  UsedTime link_;
  std::vector<UsedTime> processors_;  // [ranks]
  std::vector<UsedTime> disks_;       // [ranks], or none
  std::vector<Times> streams_;        // [roles]
  std::vector<Issued> issued_;
  std::array<Uses, pipeline::kJobResources> job_;
  std::vector<BatchUses> batches_;
};

double mean_step(const Times& ends) {
  return (ends.back() - ends[weft::at(kFirstSteps - 1)]) /
         static_cast<double>(kSteps - kFirstSteps);
}

/// Seconds of a rank between exchanges.
double own_s(const PlanCost& cost, std::size_t rank, std::initializer_list<StepPart> parts) {
  double sum = 0.0;
  for (const StepPart part : parts) {
    sum += cost.ranks[rank].seconds[at(part)] - cost.exchanges[at(part)];
  }
  return sum;
}

/// The ranks that may be waited for.
std::set<std::size_t> slowest_ranks(const PlanCost& cost) {
  using enum StepPart;
  std::set<std::size_t> slowest;
  const auto add = [&](std::initializer_list<StepPart> parts) {
    std::size_t most = 0;
    for (std::size_t r = 1; r < cost.ranks.size(); ++r) {
      most = own_s(cost, r, parts) > own_s(cost, most, parts) ? r : most;
    }
    slowest.insert(most);
  };
  for (const StepPart part : kPredictedParts) {
    add({part});
  }
  add({kExchangeIds, kFetch, kLookup});
  add({kOutputDist, kForwardBackward, kWeightGradients});
  add({kGradDist, kUpdateRows, kSyncReplicas, kUpdateDense, kExchangeCounts});
  add({kExchangeCounts, kExchangeIds, kFetch, kLookup, kOutputDist, kForwardBackward,
       kWeightGradients, kCoalesce, kGradDist, kUpdateRows, kUpdateDense});
  return slowest;
}

}  // namespace

StageSeconds stage_seconds(const StepShape& shape, const PlanCost& cost) {
  const bool averages = shape.mesh != nullptr && shape.mesh->averages();
  StageSeconds seconds{.own = {},
                       .exchanges = cost.exchanges,
                       .starts = cost.starts,
                       .hand_off = shape.cluster.compute.stage.value,
                       .join = cost.join_s,
                       .fills_waits = shape.config.train.device == spec::DeviceChoice::kCpu,
                       .streams = shape.config.train.overlap ? Streams::kMany : Streams::kOne,
                       .average_every = averages ? shape.mesh->sync_every : 0};
  const bool fetches = std::any_of(cost.ranks.begin(), cost.ranks.end(),
                                   [](const RankCost& rank) { return rank.fetch.seconds() > 0.0; });
  for (const std::size_t rank : slowest_ranks(cost)) {
    auto& own = seconds.own.emplace_back();
    for (const StepPart part : kPredictedParts) {
      own[at(part)] = cost.ranks[rank].seconds[at(part)] - cost.exchanges[at(part)];
    }
    own[at(StepPart::kFetch)] = cost.ranks[rank].fetch.own_s;
    if (fetches) {
      seconds.reads.push_back(cost.ranks[rank].fetch.disk_s);
    }
  }
  const std::size_t average = at(StepPart::kSyncReplicas);
  const auto every = static_cast<double>(seconds.average_every);
  seconds.exchanges[average] *= every;
  seconds.starts[average] *= every;
  for (auto& own : seconds.own) {
    own[average] *= every;
  }
  return seconds;
}

double walked_step_s(const StageSeconds& seconds,
                     const pipeline::Schedule& schedule,
                     const WalkCuts& cuts) {
  WEFT_CHECK(!seconds.own.empty() && !cuts.shares.empty() &&
                 (cuts.shares.size() == 1 || schedule.cuts_batches),
             "{} ranks and {} micro-batches of schedule {}", seconds.own.size(), cuts.shares.size(),
             schedule.name);
  if (seconds.average_every <= 1) {
    return mean_step(Walk(seconds, schedule, cuts).run(kSteps, Walk::kEveryStep));
  }
  const Times without = Walk(seconds, schedule, cuts).run(kSteps, kSteps);
  const Times with = Walk(seconds, schedule, cuts).run(kSteps, kFirstSteps);
  return mean_step(without) +
         (with.back() - without.back()) / static_cast<double>(seconds.average_every);
}

}  // namespace weft::planner
