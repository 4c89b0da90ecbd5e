#include "weft/trace/report.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/trace/made_up.h"

namespace weft::trace {
namespace {

constexpr double kNear = 1e-12;

double sum_of(const Breakdown& b) {
  return b.compute + b.lookup + b.moving + b.waiting + b.other + b.idle;
}

const PartTime& part_of(const Report& report, const std::string& name) {
  for (const PartTime& part : report.parts) {
    if (part.name == name) {
      return part;
    }
  }
  throw std::runtime_error("no part " + name);
}

TEST(Report, BreakdownAddsUpToTheStep) {
  const Report report = make_report(straggling());
  const Breakdown& fast = report.ranks[0];
  EXPECT_NEAR(fast.step, 0.010, kNear);
  EXPECT_NEAR(fast.compute, 0.004, kNear);
  EXPECT_NEAR(fast.lookup, 0.001, kNear);
  EXPECT_NEAR(fast.waiting, 0.003, kNear);
  EXPECT_NEAR(fast.moving, 0.001, kNear);
  EXPECT_NEAR(fast.idle, 0.001, kNear);
  EXPECT_NEAR(report.ranks[1].lookup, 0.004, kNear);
  EXPECT_NEAR(report.ranks[1].waiting, 0.0, kNear);
  EXPECT_NEAR(report.mean.waiting, 0.0015, kNear);
  for (const Breakdown& rank : report.ranks) {
    EXPECT_NEAR(sum_of(rank), rank.step, kNear);
  }
  EXPECT_NEAR(report.balanced_ranks, 0.0085, kNear);
  EXPECT_NEAR(report.doubled_link, 0.0095, kNear);
  EXPECT_NEAR(report.perfect_overlap, 0.010 - 0.0025, kNear) << "lookups and compute hide it all";
}

TEST(Report, NamesThePlantedStraggler) {
  const Report report = make_report(straggling());
  ASSERT_EQ(report.stragglers.size(), 2U);
  EXPECT_EQ(report.stragglers[0].rank, 1);
  EXPECT_NEAR(report.stragglers[0].waited_for, 0.003, kNear);
  EXPECT_EQ(report.stragglers[0].last, 1);
  EXPECT_EQ(report.stragglers[0].of, 1);
  EXPECT_EQ(report.stragglers[0].part, "output_dist: all_to_all");
  EXPECT_NEAR(report.stragglers[1].waited_for, 0.0, kNear);
  const PartTime& lookup = part_of(report, "lookup");
  EXPECT_NEAR(lookup.longest() / lookup.mean(), 1.6, kNear) << "the skewed table's rank";
  const std::string text = to_text(report);
  EXPECT_NE(text.find("rank 1           3.000"), std::string::npos) << text;
  EXPECT_NE(text.find("1.60 rank 1"), std::string::npos) << text;
}

TEST(Report, PathGoesThroughTheRankThatIsLate) {
  const Report report = make_report(straggling());
  double total = 0;
  for (const PathShare& share : report.path) {
    total += share.seconds;
    if (share.name == "lookup") {
      EXPECT_EQ(share.rank, 1);
      EXPECT_NEAR(share.seconds, 0.004, kNear);
    }
  }
  EXPECT_NEAR(total, 0.010, kNear) << "no gap and nothing twice";
  EXPECT_EQ(report.path[0].name, "forward_backward");
}

// Each rank comes last to what the other waits in, on two streams: going back must come to an end.
TEST(Report, PathEndsWhereRanksWaitForEachOther) {
  std::vector<RankWork> trace;
  for (int r = 0; r < 2; ++r) {
    Work first = make_exchange(1, r == 0 ? 2 : 6, 6, 8);
    Work second = make_exchange(2, r == 0 ? 6 : 2, 6, 8);
    second.stream = 103;
    second.group = "dense";
    trace.push_back(make_rank(r, 8, {make_work("lookup", Kind::kLookup, 0, 2), first, second}));
  }
  trace[0].work[1].time.end = trace[1].work[2].time.end = 5 * kMs;  // before the last one came
  const Report report = make_report(trace);
  double total = 0;
  for (const PathShare& share : report.path) {
    total += share.seconds;
  }
  EXPECT_GT(total, 0.0);
  EXPECT_LE(total, 0.008 + kNear);
}

TEST(Report, WhatOverlapsCountsOnce) {
  // A reduce on another stream: 2 ms beside compute, 1 ms alone; a lookup beside compute.
  Work reduce = make_exchange(3, 3, 3, 6);
  reduce.stream = 103;
  reduce.part = "reduce";
  const Report report =
      make_report({make_rank(0, 8,
                             {make_work("forward_backward", Kind::kCompute, 0, 5), reduce,
                              make_work("lookup", Kind::kLookup, 4, 7, 102)})});
  const Breakdown& b = report.ranks[0];
  EXPECT_NEAR(b.compute, 0.005, kNear);
  EXPECT_NEAR(b.lookup, 0.002, kNear) << "from 5 to 7";
  EXPECT_NEAR(b.moving, 0.0, kNear);
  EXPECT_NEAR(b.collectives, 0.003, kNear);
  EXPECT_NEAR(b.overlapped, 0.003, kNear);
  EXPECT_NEAR(sum_of(b), b.step, kNear);
  EXPECT_TRUE(report.stragglers.empty());
}

/// Two steps of 10 ms; a sync begins in the first and ends in the second.
RankWork with_sync(int rank, double begin_ms) {
  Work sync = make_exchange(1, begin_ms, 11, 14);
  sync.stream = 105;
  sync.group = "replicas";
  sync.part = "sync_replicas";
  RankWork work = make_rank(rank, 10,
                            {make_work("forward_backward", Kind::kCompute, 0, 9), sync,
                             make_work("lookup", Kind::kLookup, 15, 17)});
  work.steps.push_back({.number = 6, .time = {10 * kMs, 20 * kMs}});
  return work;
}

TEST(Report, WorkThatGoesOnIntoTheNextStepCountsInBoth) {
  const Report report = make_report({with_sync(0, 8)});
  const Breakdown& b = report.ranks[0];
  EXPECT_NEAR(b.step, 0.010, kNear);
  EXPECT_NEAR(b.compute, 0.0045, kNear);
  EXPECT_NEAR(b.waiting, 0.0010, kNear) << "9 to 11";
  EXPECT_NEAR(b.moving, 0.0015, kNear) << "11 to 14, in the second step";
  EXPECT_NEAR(b.lookup, 0.0010, kNear);
  EXPECT_NEAR(b.idle, 0.0020, kNear);
  EXPECT_NEAR(b.overlapped, 0.0005, kNear);
  EXPECT_NEAR(sum_of(b), b.step, kNear);
  EXPECT_NEAR(part_of(report, "sync_replicas: all_to_all").seconds[0], 0.0030, kNear) << "once";
  double path = 0;
  for (const PathShare& share : report.path) {
    path += share.seconds;
  }
  EXPECT_NEAR(path, 0.010, kNear);
}

TEST(Report, WhoIsWaitedForMayComeInTheNextStep) {
  const Report report = make_report({with_sync(0, 8), with_sync(1, 11)});
  ASSERT_EQ(report.stragglers.size(), 2U);
  EXPECT_EQ(report.stragglers[0].rank, 1);
  EXPECT_NEAR(report.stragglers[0].waited_for, 0.0015, kNear);
  EXPECT_EQ(report.stragglers[0].of, 1);
  for (const Breakdown& rank : report.ranks) {
    EXPECT_NEAR(sum_of(rank), rank.step, kNear);
  }
}

TEST(Report, DiffNamesThePartThatExplains) {
  std::vector<RankWork> slower = straggling();
  for (RankWork& rank : slower) {
    rank.steps[0].time.end += 2 * kMs;
    for (Work& work : rank.work) {
      if (work.kind == Kind::kCollective) {
        work.time.end += 2 * kMs;  // a slow link
      } else if (work.kind == Kind::kCompute) {
        work.time.begin += 2 * kMs;
        work.time.end += 2 * kMs;
      }
    }
  }
  const Report before = make_report(straggling());
  const Report after = make_report(slower);
  const auto found = nlohmann::json::parse(diff_to_json(before, after));
  EXPECT_EQ(found["parts"][0]["name"], "output_dist: all_to_all");
  EXPECT_NEAR(found["parts"][0]["after"].get<double>() - found["parts"][0]["before"].get<double>(),
              0.002, kNear);
  const std::string text = diff_to_text(before, after);
  EXPECT_NE(text.find("10.000 ms and takes 12.000 ms: +2.000 ms, +20.0 %"), std::string::npos)
      << text;
  EXPECT_NE(text.find("100 %"), std::string::npos) << text;
}

TEST(Report, JsonSaysTheSame) {
  const auto found = nlohmann::json::parse(to_json(make_report(straggling())));
  EXPECT_EQ(found["steps"], 1);
  EXPECT_EQ(found["hosts"].size(), 2U);
  EXPECT_NEAR(found["mean"]["step"].get<double>(), 0.010, kNear);
  EXPECT_EQ(found["stragglers"][0]["rank"], 1);
  EXPECT_EQ(found["parts"].size(), 3U);
}

}  // namespace
}  // namespace weft::trace
