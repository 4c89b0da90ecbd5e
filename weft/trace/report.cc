// Every step of every rank: its work clipped to the step, cut into sets of moments by kind, each
// set without those before it. Collectives are matched over ranks by group and sequence number.
// Work that goes on into the next step (a sync beside it) has its moments in both, and is a part of
// the one in which it began, on some ranks perhaps one earlier than on others.
#include "weft/trace/report.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "weft/trace/findings.h"

namespace weft::trace {

namespace {

constexpr double kSecond = 1e9;

double seconds(const Moments& moments) {
  return static_cast<double>(length(moments)) / kSecond;
}

std::string name_of(const Work& work) {
  return work.kind == Kind::kCollective && !work.part.empty() ? work.part + ": " + work.name
                                                              : work.name;
}

/// One rank's work in one step.
struct RankStep {
  Interval time;
  std::vector<const Work*> work;       // begun in it, in order of begin
  std::vector<const Work*> work_left;  // begun before it and not over, in order of begin
};

RankStep step_of(const RankWork& rank, std::size_t index) {
  RankStep step{.time = rank.steps[index].time, .work = {}, .work_left = {}};
  for (const Work& work : rank.work) {
    if (work.time.begin >= step.time.begin && work.time.begin < step.time.end) {
      step.work.push_back(&work);
    } else if (work.time.begin < step.time.begin && work.time.end > step.time.begin) {
      step.work_left.push_back(&work);
    }
  }
  return step;
}

/// Sums over steps; the caller divides.
void add_breakdown(const RankStep& step, Breakdown& sum) {
  std::vector<Interval> compute;
  std::vector<Interval> lookup;
  std::vector<Interval> moving;
  std::vector<Interval> waiting;
  std::vector<Interval> other;
  const auto sort_in = [&](const Work* work) {
    const Interval time{std::max(work->time.begin, step.time.begin),
                        std::min(work->time.end, step.time.end)};
    switch (work->kind) {
      case Kind::kCompute:
        compute.push_back(time);
        break;
      case Kind::kLookup:
        lookup.push_back(time);
        break;
      case Kind::kCollective:
        waiting.push_back({time.begin, std::min(work->arrived, time.end)});
        moving.push_back({std::max(work->arrived, time.begin), time.end});
        break;
      case Kind::kStep:
      case Kind::kWait:
      case Kind::kIo:
        other.push_back(time);
        break;
    }
  };
  std::for_each(step.work_left.begin(), step.work_left.end(), sort_in);
  std::for_each(step.work.begin(), step.work.end(), sort_in);
  const Moments computing = unite(std::move(compute));
  const Moments working = unite(computing, unite(std::move(lookup)));
  const Moments moved = unite(std::move(moving));
  const Moments collectives = unite(moved, unite(std::move(waiting)));
  const Moments busy = unite(working, moved);
  const Moments busy_or_waiting = unite(busy, collectives);
  const Moments all = unite(busy_or_waiting, unite(std::move(other)));
  sum.step += seconds({step.time});
  sum.compute += seconds(computing);
  sum.lookup += seconds(working) - seconds(computing);
  sum.moving += seconds(busy) - seconds(working);
  sum.waiting += seconds(busy_or_waiting) - seconds(busy);
  sum.other += seconds(all) - seconds(busy_or_waiting);
  sum.idle += seconds({step.time}) - seconds(all);
  sum.collectives += seconds(collectives);
  sum.overlapped += seconds(intersect(collectives, working));
}

void scale(Breakdown& sum, double factor) {
  for (double* value : {&sum.step, &sum.compute, &sum.lookup, &sum.moving, &sum.waiting, &sum.other,
                        &sum.idle, &sum.collectives, &sum.overlapped}) {
    *value *= factor;
  }
}

void add(const Breakdown& one, Breakdown& sum) {
  sum.step += one.step;
  sum.compute += one.compute;
  sum.lookup += one.lookup;
  sum.moving += one.moving;
  sum.waiting += one.waiting;
  sum.other += one.other;
  sum.idle += one.idle;
  sum.collectives += one.collectives;
  sum.overlapped += one.overlapped;
}

class Analysis {
 public:
  explicit Analysis(const std::vector<RankWork>& trace)
      : trace_(trace), ranks_(trace.size()), steps_(trace.front().steps.size()) {
    for (const RankWork& rank : trace) {
      report_.hosts.push_back(rank.host);
      report_.clock_error =
          std::max(report_.clock_error, static_cast<double>(rank.clock_error_ns) / kSecond);
      report_.dropped += rank.dropped;
    }
    report_.steps = static_cast<std::int64_t>(steps_);
    report_.ranks.resize(ranks_);
  }

  Report run() {
    std::vector<RankSteps> steps(steps_);
    for (std::size_t s = 0; s < steps_; ++s) {
      for (const RankWork& rank : trace_) {
        steps[s].push_back(step_of(rank, s));
      }
      match_collectives(steps[s]);
    }
    for (const RankSteps& step : steps) {
      for (std::size_t r = 0; r < ranks_; ++r) {
        add_breakdown(step[r], report_.ranks[r]);
        add_parts(step[r], r);
      }
      add_path(step);
    }
    add_stragglers();
    finish();
    return std::move(report_);
  }

 private:
  using RankSteps = std::vector<RankStep>;  // [ranks], of one step

  /// A collective as the ranks saw it; null where a rank took no part.
  using Match = std::vector<const Work*>;

  [[nodiscard]] double per_step() const { return 1.0 / static_cast<double>(steps_); }

  void match_collectives(const RankSteps& step) {
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (const Work* work : step[r].work) {
        if (work->kind == Kind::kCollective) {
          Match& match = matches_[{work->group, work->sequence}];
          match.resize(ranks_);
          match[r] = work;
        }
      }
    }
  }

  /// The rank that came last, of those that took part.
  static std::size_t last_of(const Match& match) {
    std::size_t last = match.size();
    for (std::size_t r = 0; r < match.size(); ++r) {
      if (match[r] != nullptr &&
          (last == match.size() || match[r]->time.begin > match[last]->time.begin)) {
        last = r;
      }
    }
    return last;
  }

  PartTime& part(const Work& work) {
    const auto [it, is_new] = part_index_.try_emplace(name_of(work), report_.parts.size());
    if (is_new) {
      PartTime& fresh = report_.parts.emplace_back();
      fresh.name = it->first;
      fresh.kind = work.kind;
      for (std::vector<double>* values :
           {&fresh.seconds, &fresh.waiting, &fresh.bytes, &fresh.cross_host_bytes}) {
        values->assign(ranks_, 0.0);
      }
    }
    return report_.parts[it->second];
  }

  void add_parts(const RankStep& step, std::size_t r) {
    for (const Work* work : step.work) {
      PartTime& to = part(*work);
      to.seconds[r] += static_cast<double>(work->time.length()) / kSecond * per_step();
      if (work->kind == Kind::kCollective) {
        to.waiting[r] +=
            static_cast<double>(work->arrived - work->time.begin) / kSecond * per_step();
        to.bytes[r] += static_cast<double>(work->bytes) * per_step();
        to.cross_host_bytes[r] += static_cast<double>(work->cross_host_bytes) * per_step();
      }
    }
  }

  void add_stragglers() {
    for (const auto& [key, match] : matches_) {
      const std::size_t last = last_of(match);
      double waited = 0;
      int others = 0;
      for (std::size_t r = 0; r < ranks_; ++r) {
        if (match[r] != nullptr && r != last) {
          waited += static_cast<double>(
                        std::max<std::int64_t>(match[last]->time.begin - match[r]->time.begin, 0)) /
                    kSecond;
          ++others;
        }
      }
      if (others == 0) {
        continue;
      }
      for (std::size_t r = 0; r < ranks_; ++r) {
        collectives_[r] += match[r] != nullptr ? 1 : 0;
      }
      ++last_[last];
      waited_for_[last][name_of(*match[last])] += waited / others * per_step();
    }
  }

  /// From the end of the rank that ends last back to its beginning: what it did last; of a
  /// collective the moving, and then what the rank did that came last to it.
  void add_path(const RankSteps& step) {
    std::size_t r = 0;
    for (std::size_t other = 1; other < ranks_; ++other) {
      r = step[other].time.end > step[r].time.end ? other : r;
    }
    std::int64_t now = step[r].time.end;
    while (now > step[r].time.begin) {
      const std::int64_t begin = step[r].time.begin;
      const Work* work = before(step[r], now);
      const std::int64_t end = work == nullptr ? begin : std::min(work->time.end, now);
      add_to_path("idle", r, end, now);
      now = end;
      if (work == nullptr) {
        return;
      }
      const std::int64_t before_work = now;
      const auto match = matches_.find({work->group, work->sequence});
      if (work->kind == Kind::kCollective && match != matches_.end()) {
        const std::size_t next = last_of(match->second);
        const std::int64_t moving = std::clamp(work->arrived, work->time.begin, now);
        now = std::min(moving, match->second[next]->time.begin);
        if (next != r && now < before_work) {
          add_to_path(name_of(*work), r, std::max(now, begin), before_work);
          r = next;
          continue;
        }
      }
      // Its own work; or the rank that came last did so later than now, by another stream or clock.
      add_to_path(name_of(*work), r, std::max(work->time.begin, begin), before_work);
      now = work->time.begin;
    }
  }

  /// What a rank did last before `now`; of several the one that lasted longest.
  [[nodiscard]] static const Work* before(const RankStep& step, std::int64_t now) {
    const Work* best = nullptr;
    for (const std::vector<const Work*>* list : {&step.work_left, &step.work}) {
      for (const Work* work : *list) {
        if (work->time.begin < now && work->time.length() > 0 &&
            (best == nullptr || std::min(work->time.end, now) > std::min(best->time.end, now))) {
          best = work;
        }
      }
    }
    return best;
  }

  void add_to_path(const std::string& name, std::size_t r, std::int64_t begin, std::int64_t end) {
    if (end > begin) {
      path_[{name, static_cast<int>(r)}] += static_cast<double>(end - begin) / kSecond * per_step();
    }
  }

  void finish() {
    for (Breakdown& rank : report_.ranks) {
      scale(rank, per_step());
      add(rank, report_.mean);
    }
    scale(report_.mean, 1.0 / static_cast<double>(ranks_));
    std::stable_sort(report_.parts.begin(), report_.parts.end(),
                     [](const PartTime& a, const PartTime& b) { return a.mean() > b.mean(); });
    for (std::size_t r = 0; ranks_ > 1 && r < ranks_; ++r) {
      Straggler straggler{
          .rank = static_cast<int>(r), .last = last_[r], .of = collectives_[r], .part = {}};
      double most = 0;
      for (const auto& [name, waited] : waited_for_[r]) {
        straggler.waited_for += waited;
        if (waited > most) {
          most = waited;
          straggler.part = name;
        }
      }
      report_.stragglers.push_back(straggler);
    }
    std::stable_sort(
        report_.stragglers.begin(), report_.stragglers.end(),
        [](const Straggler& a, const Straggler& b) { return a.waited_for > b.waited_for; });
    for (const auto& [key, value] : path_) {
      report_.path.push_back({key.first, key.second, value});
    }
    std::stable_sort(report_.path.begin(), report_.path.end(),
                     [](const PathShare& a, const PathShare& b) { return a.seconds > b.seconds; });
    const Breakdown& mean = report_.mean;
    const double exposed = mean.moving + mean.waiting;
    const double room = mean.compute + mean.lookup - mean.overlapped;
    report_.links = link_uses(trace_);
    report_.tables = table_shares(trace_);
    report_.perfect_overlap = mean.step - std::min(exposed, std::max(room, 0.0));
    report_.balanced_ranks = mean.step - mean.waiting;
    report_.doubled_link = mean.step - mean.moving / 2;
    report_.findings = find(report_);
  }

  const std::vector<RankWork>& trace_;
  std::size_t ranks_;
  std::size_t steps_;
  Report report_;
  std::map<std::string, std::size_t> part_index_;
  std::map<std::pair<std::string, int>, double> path_;
  std::vector<std::int64_t> last_ = std::vector<std::int64_t>(trace_.size());
  std::vector<std::int64_t> collectives_ = std::vector<std::int64_t>(trace_.size());
  std::vector<std::map<std::string, double>> waited_for_ =
      std::vector<std::map<std::string, double>>(trace_.size());
  std::map<std::pair<std::string, std::int64_t>, Match> matches_;  // of all steps
};

}  // namespace

double PartTime::mean() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

double PartTime::longest() const {
  return *std::max_element(seconds.begin(), seconds.end());
}

double PartTime::bus_bandwidth() const {
  const auto sum = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
  };
  const double moving = sum(seconds) - sum(waiting);
  return kind == Kind::kCollective && moving > 0 ? sum(bytes) / moving : 0.0;
}

Report make_report(const std::vector<RankWork>& trace) {
  return Analysis(trace).run();
}

}  // namespace weft::trace
