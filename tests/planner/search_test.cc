#include "weft/planner/search.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/planner/made_up.h"
#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/planner/best_scheduled.h"
#include "weft/planner/pipeline_choice.h"
#include "weft/planner/place.h"
#include "weft/planner/plan_report.h"
#include "weft/planner/refine.h"
#include "weft/planner/sample_tables.h"
#include "weft/spec/yaml.h"
#include "weft/topology/yaml.h"

namespace weft::planner {
namespace {

using spec::Sharding;
using testing::make_config;
using testing::Use;

/// Ranks of one gigaflop and one gigabyte per second, on links of `network` bytes per second.
topology::Cluster cluster_of_search(std::vector<topology::HostGroup> hosts, double network = 1e8) {
  topology::Cluster cluster = testing::made_up_cluster(std::move(hosts), network);
  cluster.memory.reserve.value = 0.0;
  return cluster;
}

SearchResult plan(const spec::Config& config, const topology::Cluster& cluster) {
  return search(config, cluster, make_workload(config));
}

const Proposal& named(const SearchResult& result, const std::string& name) {
  for (const Proposal& one : result.proposals) {
    if (one.name == name) {
      return one;
    }
  }
  ADD_FAILURE() << "no proposal " << name;
  return result.best();
}

/// Returns what a step of a proposal takes under the schedule that its plan would get.
double step_by_schedule(const spec::Config& config,
                        const SearchResult& result,
                        const Proposal& one) {
  const Workload workload = make_workload(config);
  const Estimator estimator(config, *result.mesh, workload, one.plan.parts);
  spec::Plan plan = one.plan;
  plan.pipeline = {};  // the best one has its schedule
  const auto options = pipeline_options(estimator, plan, one.cost);
  return options[choose_pipeline(config.pipeline, options)].step_s;
}

/// Returns what steps take under the schedules that plans would get, of the proposals that fit and
/// may be compared by them, in the order of the search.
std::vector<double> steps_by_schedule(const spec::Config& config, const SearchResult& result) {
  double shortest = result.best().cost.step_s;
  for (const Proposal& one : result.proposals) {
    shortest = one.fits() ? std::min(shortest, one.cost.step_s) : shortest;
  }
  std::vector<double> steps;
  for (const Proposal& one : result.proposals) {
    if (one.fits() && one.cost.step_s <= kMostOfBest * shortest && steps.size() < kMostCompared) {
      steps.push_back(step_by_schedule(config, result, one));
    }
  }
  return steps;
}

/// The proposal that fits with the shortest step of sync.
const Proposal& shortest_of_sync(const SearchResult& result) {
  const Proposal* shortest = &result.best();
  for (const Proposal& one : result.proposals) {
    if (one.fits() && one.cost.step_s < shortest->cost.step_s) {
      shortest = &one;
    }
  }
  return *shortest;
}

TEST(Search, RanksThatCutThroughClusteringRunsAreRefused) {
  spec::Config config = make_config({Use{.rows = 1000, .dim = 16}});
  config.pipeline.cluster_parts = 4;
  EXPECT_EQ(plan(config, cluster_of_search({{.ranks = 2}})).best().plan.parts, 8);
  try {
    plan(config, cluster_of_search({{.ranks = 4}}));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(
        std::string(error.what()).find("pipeline.cluster_parts: rank 1 of 4 begins at part 2"),
        std::string::npos)
        << error.what();
  }
}

TEST(Search, EveryProposalIsAPlan) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const auto draw = [&](std::uint64_t what, std::int64_t most) {
      return 1 +
             static_cast<std::int64_t>(philox(seed, what, 0)[0] % static_cast<std::uint64_t>(most));
    };
    std::vector<Use> tables(static_cast<std::size_t>(draw(1, 12)));
    for (std::size_t t = 0; t < tables.size(); ++t) {
      tables[t] = {draw(10 * t + 2, 20000), draw(10 * t + 3, 100), draw(10 * t + 4, 9)};
    }
    spec::Config config = make_config(tables);
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const std::int64_t scheme = draw(10 * t + 5, 16);
      if (scheme <= static_cast<std::int64_t>(Sharding::kGridShard)) {
        config.tables[t].sharding = static_cast<Sharding>(scheme);
      }
    }
    const topology::Cluster cluster = cluster_of_search(
        {{.count = draw(6, 3), .ranks = draw(7, 4)}, {.count = 1, .ranks = draw(8, 3)}});
    const SearchResult result = plan(config, cluster);
    for (const Proposal& one : result.proposals) {
      ASSERT_NO_THROW(check_plan(one.plan, config); check_pins(one.plan, config))
          << one.name << ", seed " << seed;
      for (std::size_t t = 0; t < tables.size(); ++t) {
        if (config.tables[t].sharding != Sharding::kAuto) {
          EXPECT_EQ(one.plan.tables[t].sharding, config.tables[t].sharding) << "asked for";
        }
      }
      // A plan survives its file.
      EXPECT_EQ(spec::plan_from_yaml(spec::plan_to_yaml(one.plan), "p.yaml"), one.plan);
    }
    for (const double step_s : steps_by_schedule(config, result)) {
      EXPECT_LE(result.step_s(), step_s) << "seed " << seed;
    }
    const SearchResult again = plan(config, cluster);
    EXPECT_EQ(again.best().plan, result.best().plan);
    EXPECT_EQ(again.best().cost.step_s, result.best().cost.step_s);
  }
}

/// Two tables on three hosts: of sync one plan is best, with a batch ahead another one.
TEST(Search, ComparesPlansUnderTheirSchedules) {
  spec::Config config = make_config({Use{.rows = 1000, .dim = 32, .length = 7},  //
                                     Use{.rows = 12'000, .dim = 32, .length = 6}});
  const topology::Cluster cluster = cluster_of_search({{.count = 3, .ranks = 1}});
  const SearchResult open = plan(config, cluster);
  EXPECT_NE(open.best().plan.pipeline.schedule, spec::PipelineSchedule::kSync);
  const Proposal& by_sync = shortest_of_sync(open);
  ASSERT_LT(by_sync.cost.step_s, open.best().cost.step_s) << "the order of sync takes another plan";
  // Behind the best one the order is that of sync.
  EXPECT_TRUE(std::is_sorted(open.proposals.begin() + 1, open.proposals.end(), better));
  const Workload workload = make_workload(config);
  const PlanReport report{config, cluster, workload, open};
  EXPECT_NE(to_text(report).find("the first one's step is the shortest under its schedule"),
            std::string::npos);

  // The plan of that order has a longer step, though it gets the best of its schedules.
  EXPECT_LT(open.step_s(), 0.97 * step_by_schedule(config, open, by_sync));

  // A schedule that is asked for decides.
  config.pipeline.schedule = spec::PipelineSchedule::kSync;
  const SearchResult sync = plan(config, cluster);
  EXPECT_EQ(sync.best().name, by_sync.name);
  EXPECT_EQ(sync.best().plan.tables, by_sync.plan.tables);
  EXPECT_TRUE(std::is_sorted(sync.proposals.begin(), sync.proposals.end(), better));
  EXPECT_EQ(to_text({config, cluster, workload, sync}).find("the first one's"), std::string::npos);
  config.pipeline.schedule = spec::PipelineSchedule::kDbp;
  const SearchResult ahead = plan(config, cluster);
  for (const double step_s : steps_by_schedule(config, ahead)) {
    EXPECT_LE(ahead.step_s(), step_s);
  }
  EXPECT_EQ(ahead.pipelines[ahead.pipeline].pipeline.schedule, spec::PipelineSchedule::kDbp);
}

/// A schedule that a plan has no room for does not count; memory is ever more.
TEST(Search, TakesNoPlanForAScheduleThatDoesNotFit) {
  const spec::Config config = make_config({Use{.rows = 1000, .dim = 32, .length = 5},
                                           Use{.rows = 8000, .dim = 64, .length = 7},
                                           Use{.rows = 14'000, .dim = 48, .length = 3}});
  topology::Cluster cluster = cluster_of_search({{.count = 3, .ranks = 2}});
  int too_small = 0;
  for (double bytes = 1.7e7; bytes < 3e7; bytes *= 1.02) {
    cluster.memory.ddr.value = bytes;
    const SearchResult result = plan(config, cluster);
    if (!result.best().fits()) {
      continue;
    }
    EXPECT_TRUE(result.pipelines[result.pipeline].fits) << bytes;
    too_small += std::ranges::all_of(result.pipelines, &PipelineOption::fits) ? 0 : 1;
    for (const double step_s : steps_by_schedule(config, result)) {
      EXPECT_LE(result.step_s(), step_s) << bytes;
    }
  }
  EXPECT_GT(too_small, 0) << "for a schedule of the best plan";
}

TEST(Search, CutsTheTableThatOneRankWouldSpendItsStepOn) {
  std::vector<Use> tables(12, Use{.rows = 20000, .dim = 64, .length = 2});
  tables[5].length = 60;
  const spec::Config config = make_config(tables);
  const SearchResult result = plan(config, cluster_of_search({{.count = 1, .ranks = 4}}));
  const Proposal& best = result.best();
  EXPECT_GT(best.plan.tables[5].shards.size(), 1U);
  EXPECT_LT(best.cost.step_s, 0.9 * named(result, "table_wise").cost.step_s);
  EXPECT_LT(best.cost.imbalance(), named(result, "table_wise").cost.imbalance());
}

TEST(Search, ReplicatesSmallTablesOfSlowLinks) {
  std::vector<Use> tables(8, Use{.rows = 10, .dim = 64, .length = 1});
  tables[0].rows = 500'000;
  spec::Config config = make_config(tables, 16384);
  for (spec::Table& table : config.tables) {
    table.pooled_at = spec::PooledAt::kOwner;  // else they are cut, and their rows travel once
  }
  const SearchResult result = plan(config, cluster_of_search({{.count = 4, .ranks = 2}}, 1e7));
  for (std::size_t t = 1; t < tables.size(); ++t) {
    EXPECT_EQ(result.best().plan.tables[t].sharding, Sharding::kDataParallel) << t;
  }
  EXPECT_NE(result.best().plan.tables[0].sharding, Sharding::kDataParallel);
}

TEST(Search, PoolsLongBagsOfFewRowsAtTheSamples) {
  std::vector<Use> tables(6, Use{.rows = 200, .dim = 64, .length = 50});
  tables[5] = {.rows = 200'000, .dim = 64, .length = 1};
  spec::Config config = make_config(tables, 8192);
  for (spec::Table& table : config.tables) {
    table.allow = {"row_wise"};
  }
  config.pipeline.schedule = spec::PipelineSchedule::kSync;  // others hide what pooling there saves
  config.tables[1].pooled_at = spec::PooledAt::kOwner;
  config.tables[5].pooled_at = spec::PooledAt::kSample;
  const topology::Cluster cluster = cluster_of_search({{.count = 4, .ranks = 2}}, 1e7);
  const SearchResult result = plan(config, cluster);
  std::vector<spec::TablePlan> best = result.best().plan.tables;
  EXPECT_TRUE(std::any_of(best.begin(), best.end() - 1, is_fetched));
  EXPECT_LT(result.best().cost.step_s, 0.8 * named(result, "row_wise").cost.step_s);
  for (const Proposal& one : result.proposals) {
    EXPECT_EQ(one.plan.tables[1].pooled_at, spec::PooledAt::kOwner) << "asked for";
    if (one.plan.tables[5].shards.size() > 1) {
      EXPECT_EQ(one.plan.tables[5].pooled_at, spec::PooledAt::kSample) << "asked for";
    }
  }
  // Of a scheme that is fixed it is chosen too.
  for (spec::Table& table : config.tables) {
    table.allow = {};
    table.sharding = Sharding::kRowWise;
  }
  best = plan(config, cluster).best().plan.tables;
  EXPECT_EQ(best[0].pooled_at, spec::PooledAt::kSample);
  EXPECT_EQ(best[1].pooled_at, spec::PooledAt::kOwner);
}

TEST(Search, DealsOutRowsByFrequency) {
  spec::Config config = make_config({{.rows = 100'000, .dim = 16, .length = 30}, {}, {}});
  config.sparse_features[0].mapping = spec::IdMapping::kVocabulary;
  config.tables[0].pooled_at = spec::PooledAt::kOwner;
  config.tables[0].allow = {"row_wise"};
  const SearchResult result = plan(config, cluster_of_search({{.count = 1, .ranks = 4}}));
  const spec::TablePlan& table = result.best().plan.tables[0];
  ASSERT_GT(table.shards.size(), 1U);
  EXPECT_EQ(table.shards[0].rows.step, static_cast<std::int64_t>(table.shards.size()));
}

TEST(Search, KeepsRowStatisticsInsideAHost) {
  // Columns are worth cutting, and their statistics are dear between hosts.
  spec::Config config = make_config({{.rows = 200'000, .dim = 128, .length = 40}, {}, {}});
  for (spec::Table& table : config.tables) {
    table.optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
  }
  config.tables[0].allow = {"column_wise", "table_column_wise"};
  const SearchResult result = plan(config, cluster_of_search({{.count = 2, .ranks = 4}}, 2e7));
  const spec::TablePlan& table = result.best().plan.tables[0];
  ASSERT_GT(table.shards.size(), 1U);
  for (const spec::Shard& shard : table.shards) {
    EXPECT_EQ(shard.rank / 4, table.shards[0].rank / 4) << "on one host";
  }
}

TEST(Search, ProposesTheSchemesOfHosts) {
  const spec::Config config = make_config({{.rows = 9000, .dim = 64, .length = 9}, {}, {}});
  const SearchResult result = plan(config, cluster_of_search({{.count = 2, .ranks = 3}}));
  for (const char* name : {"table_row_wise", "table_column_wise", "grid_shard"}) {
    const Proposal& one = named(result, name);
    ASSERT_EQ(one.name, name);
    EXPECT_TRUE(one.simple);
    for (const spec::TablePlan& table : one.plan.tables) {
      EXPECT_EQ(to_string(table.sharding), name);
    }
  }
  spec::Config limited = config;
  limited.tables[0].allow = {"grid_shard"};
  for (const Proposal& one :
       plan(limited, cluster_of_search({{.count = 2, .ranks = 3}})).proposals) {
    const Sharding sharding = one.plan.tables[0].sharding;
    EXPECT_TRUE(sharding == Sharding::kGridShard || sharding == Sharding::kTableWise) << one.name;
  }
}

TEST(Search, PinnedTablesStay) {
  spec::Config config = make_config({{}, {}, {}, {}});
  config.tables[1].rank = 2;
  config.tables[3].sharding = Sharding::kTableWise;
  config.tables[3].rank = 0;
  const SearchResult result = plan(config, cluster_of_search({{.count = 1, .ranks = 3}}));
  for (const Proposal& one : result.proposals) {
    EXPECT_NO_THROW(check_pins(one.plan, config)) << one.name;
    ASSERT_EQ(one.plan.tables[1].shards.size(), 1U) << one.name;
    EXPECT_EQ(one.plan.tables[1].shards[0].rank, 2) << one.name;
    EXPECT_EQ(one.plan.tables[3].shards[0].rank, 0) << one.name;
  }
}

TEST(Search, ChoosesWhatIsAllowed) {
  std::vector<Use> tables(8, Use{.rows = 5000, .dim = 64, .length = 20});
  spec::Config config = make_config(tables);
  const std::vector<std::vector<std::string>> allowed = {
      {"table_wise"},    {"row_wise"},
      {"column_wise"},   {},
      {"data_parallel"}, {"data_parallel", "column_wise"}};
  for (std::size_t t = 0; t < allowed.size(); ++t) {
    config.tables[t].allow = allowed[t];
  }
  spec::validate(config);
  const SearchResult result = plan(config, cluster_of_search({{.count = 2, .ranks = 3}}));
  bool cut = false;
  for (const Proposal& one : result.proposals) {
    EXPECT_NO_THROW(check_pins(one.plan, config)) << one.name;
    for (std::size_t t = 0; t < allowed.size(); ++t) {
      const Sharding sharding = one.plan.tables[t].sharding;
      const std::string name(spec::to_string(sharding));
      EXPECT_TRUE(allowed[t].empty() ||
                  std::find(allowed[t].begin(), allowed[t].end(), name) != allowed[t].end() ||
                  (sharding == Sharding::kTableWise && allowed[t][0] != "data_parallel") ||
                  (sharding == Sharding::kTableWise && allowed[t].size() > 1))
          << one.name << ", table " << t << ": " << name;
      cut |= sharding == Sharding::kRowWise && t == 1;
    }
  }
  EXPECT_TRUE(cut);
}

TEST(Search, CutsWhatIsLargerThanARank) {
  topology::Cluster cluster = cluster_of_search({{.count = 1, .ranks = 4}});
  cluster.memory.ddr.value = 60e6;
  const spec::Config config = make_config({{.rows = 200'000, .dim = 128}, {}, {}});  // 100 MB
  const SearchResult result = plan(config, cluster);
  ASSERT_TRUE(result.best().fits());
  for (const RankCost& rank : result.best().cost.ranks) {
    EXPECT_LE(rank.table_bytes + static_cast<std::int64_t>(rank.buffer_bytes), result.capacity);
  }
  EXPECT_FALSE(named(result, "table_wise").fits());
  EXPECT_EQ(result.proposals.back().fits(), false) << "behind those that fit";
}

TEST(Search, SaysWhatWouldFit) {
  topology::Cluster cluster = cluster_of_search({{.count = 2, .ranks = 2}});
  cluster.memory.ddr.value = 20e6;
  const spec::Config config = make_config({{.rows = 300'000, .dim = 128}, {}});  // 155 MB
  const SearchResult result = plan(config, cluster);
  ASSERT_FALSE(result.best().fits());
  try {
    refuse(result, config, cluster, make_workload(config));
    ADD_FAILURE();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    for (const char* says : {"no plan fits", "table t0", "each of the 4 ranks",
                             "16 ranks of this kind", "more memory per rank"}) {
      EXPECT_NE(what.find(says), std::string::npos) << what;
    }
    EXPECT_EQ(what.find("bf16"), std::string::npos) << "half of it does not fit either: " << what;
  }
  EXPECT_TRUE(plan(config, resized(cluster, 16)).best().fits());
  EXPECT_FALSE(plan(config, resized(cluster, 8)).best().fits());
}

TEST(Search, SaysWhichPinDoesNotFit) {
  topology::Cluster cluster = cluster_of_search({{.count = 1, .ranks = 4}});
  cluster.memory.ddr.value = 80e6;
  spec::Config config = make_config({{.rows = 200'000, .dim = 128}, {}, {}});  // 100 MB
  config.tables[0].sharding = Sharding::kTableWise;
  config.tables[0].rank = 2;
  const SearchResult result = plan(config, cluster);
  ASSERT_FALSE(result.best().fits());
  try {
    refuse(result, config, cluster, make_workload(config));
    ADD_FAILURE();
  } catch (const Error& error) {
    const std::string what = error.what();
    for (const char* says : {"rank 2, mostly of table t0,", "every table's sharding: auto"}) {
      EXPECT_NE(what.find(says), std::string::npos) << what;
    }
  }
}

TEST(Search, ResizedClusters) {
  const topology::Cluster cluster = cluster_of_search({{.count = 2, .ranks = 4}});
  EXPECT_EQ(resized(cluster, 11).hosts,
            (std::vector<topology::HostGroup>{{.count = 2, .ranks = 4}, {.count = 1, .ranks = 3}}));
  EXPECT_EQ(resized(cluster, 3).hosts,
            (std::vector<topology::HostGroup>{{.count = 1, .ranks = 3}}));
}

TEST(Search, BeatsSimplePlansOnEverySetOfTables) {
  topology::Cluster cluster = cluster_of_search({{.count = 4, .ranks = 8}}, 1e10);
  cluster.memory.ddr.value = 4e11;
  for (const char* set : {"criteo_kaggle", "mlperf_dcnv2", "production:2", "adversarial:2"}) {
    const spec::Config config = to_config(table_set(set));
    const SearchResult result = plan(config, cluster);
    ASSERT_TRUE(result.best().fits()) << set;
    const double best_s = step_by_schedule(config, result, result.best());
    const auto simple_s = [&](const char* name) {
      return step_by_schedule(config, result, named(result, name));
    };
    for (const char* simple : {"greedy by bytes and lookups", "table_wise", "row_wise"}) {
      EXPECT_LE(best_s, simple_s(simple)) << set << ", " << simple;
    }
    EXPECT_LT(best_s, simple_s("greedy by bytes and lookups")) << set;
  }
}

/// Proposals are compared with the collectives that suit each. With flat ones, any plan whose ranks
/// send to many looks slow on 128 ranks, and plans that are good through relays were missed: the
/// step was predicted to be 10 % longer than the one with collectives: hierarchical.
TEST(Search, OfManyRanksMissesNoPlanThatIsGoodThroughRelays) {
  const topology::Cluster cluster =
      resized(topology::load_cluster(WEFT_SOURCE_DIR "/clusters/h100_8x400ib.yaml"), 128);
  spec::Config config = to_config(table_set("criteo_kaggle"));
  const double open = plan(config, cluster).best().cost.step_s;
  for (const spec::Collectives form :
       {spec::Collectives::kFlat, spec::Collectives::kHierarchical}) {
    config.collectives = form;
    EXPECT_LE(open, plan(config, cluster).best().cost.step_s);
  }
}

TEST(PlanReport, SaysWhereBagsAreAddedAndWhy) {
  spec::Config config = make_config({{.rows = 400, .length = 60}, {.rows = 50'000}}, 8192);
  config.tables[0].sharding = Sharding::kRowWise;
  const topology::Cluster cluster = cluster_of_search({{.count = 2, .ranks = 2}}, 1e7);
  const Workload workload = make_workload(config);
  const SearchResult result = search(config, cluster, workload);
  const PlanReport report{config, cluster, workload, result};
  for (const std::string& text : {to_text(report), to_html(report)}) {
    EXPECT_NE(text.find("row_wise, sample"), std::string::npos) << text;
    EXPECT_NE(text.find("rows once a rank"), std::string::npos) << text;
  }
  EXPECT_NE(to_json(report).find("\"pooled_at\": \"sample\""), std::string::npos);
  EXPECT_NE(to_json(report).find("\"before\": \"greedy"), std::string::npos);
}

TEST(PlanReport, NamesEveryTableAndRank) {
  spec::Config config = make_config({{}, {.rows = 50'000, .length = 20}, {}});
  config.tables[2].sharding = Sharding::kRowWise;
  const topology::Cluster cluster = cluster_of_search({{.count = 2, .ranks = 2}});
  const Workload workload = make_workload(config);
  const SearchResult result = search(config, cluster, workload);
  const PlanReport report{config, cluster, workload, result};
  for (const std::string& text : {to_text(report), to_json(report), to_html(report)}) {
    for (const char* says : {"t0", "t1", "t2", "row_wise", "asked for", "exchange_ids", "sync",
                             "prefetch", "dbp", "fwp", "nested"}) {
      EXPECT_NE(text.find(says), std::string::npos) << says << " in\n" << text;
    }
  }
  for (const char* says : {"rank 0", "rank 3", "Proposals", "ms, "}) {
    EXPECT_NE(to_text(report).find(says), std::string::npos) << says;
  }
  for (const std::string& text : {to_text(report), to_html(report)}) {
    EXPECT_NE(text.find("greedy by bytes and lookups / now"), std::string::npos);
  }
  EXPECT_NE(to_text(report).find("with schedule " + describe(result.best().plan.pipeline)),
            std::string::npos)
      << to_text(report);
  EXPECT_EQ(to_html(report).find("http"), std::string::npos) << "opens offline";
}

}  // namespace
}  // namespace weft::planner
