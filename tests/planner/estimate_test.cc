// The estimator against formulas by hand, and what must hold of any estimate.
#include "weft/planner/estimate.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/planner/made_up.h"
#include "weft/base/at.h"
#include "weft/cost/codec.h"
#include "weft/cost/dense.h"
#include "weft/cost/tables.h"
#include "weft/layout/tables.h"
#include "weft/planner/place.h"
#include "weft/spec/yaml.h"

namespace weft::planner {
namespace {

using spec::Sharding;
using testing::Use;

constexpr double kCopy = 1e10;

topology::Cluster cluster_of_estimates(std::int64_t hosts, std::int64_t ranks_per_host) {
  topology::Cluster cluster;
  cluster.name = "made up";
  cluster.hosts = {{.count = hosts, .ranks = ranks_per_host}};
  cluster.memory.ddr.value = 1e9;
  cluster.compute.gemm_fp32.value = 1e11;
  cluster.compute.copy.value = kCopy;
  cluster.compute.rows.points = {{.row_bytes = 64, .read = 1e9, .update = 5e8}};
  cluster.compute.stage.value = 1e-6;
  cluster.links.self.rank.value = 2e10;
  cluster.links.host = {
      .rank = {.value = 1e9, .source = {}}, .host = {}, .latency = {.value = 1e-6, .source = {}}};
  cluster.links.network = {
      .rank = {.value = 1e8, .source = {}}, .host = {}, .latency = {.value = 1e-5, .source = {}}};
  return cluster;
}

/// Ids are even, and every table is one shard.
spec::Config one_shard_config(const std::vector<Use>& tables, std::int64_t batch = 4096) {
  spec::Config config = testing::make_config(tables, batch);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    config.data.synthetic.columns[t].zipf = 0.0;
    config.tables[t].sharding = Sharding::kTableWise;
  }
  return config;
}

void shard_all(spec::Config& config, Sharding sharding) {
  for (spec::Table& table : config.tables) {
    table.sharding = sharding;
  }
}

PlanCost cost_of(const spec::Config& config, const topology::Cluster& cluster) {
  const Workload workload = make_workload(config);
  const spec::Plan plan = make_plan(
      config, {.ranks = topology::ranks(cluster), .hosts = topology::rank_hosts(cluster)});
  return Estimator(config, cluster, workload, plan.parts).cost(plan);
}

constexpr Sharding kSchemes[] = {Sharding::kTableWise, Sharding::kRowWise, Sharding::kColumnWise,
                                 Sharding::kDataParallel};

TEST(Estimate, OneTableOnTwoRanksByHand) {
  spec::Config config = one_shard_config({{.rows = 1'000'000, .dim = 16, .length = 1}}, 4096);
  config.tables[0].rank = 0;
  const topology::Cluster cluster = cluster_of_estimates(1, 2);
  const PlanCost cost = cost_of(config, cluster);
  const ShardLoad& load = cost.ranks[0].load;
  EXPECT_DOUBLE_EQ(load.ids, 4096);
  EXPECT_NEAR(load.unique, 4096 - 4096.0 * 4096 / 2e6, 0.1);  // few meet
  EXPECT_EQ(load.ids_bytes, 2048 * 4);                        // all bags are of one length
  EXPECT_EQ(load.vector_bytes, 2048 * 64);
  EXPECT_EQ(load.bytes, 1'000'000 * (64 + 4));
  EXPECT_EQ(cost.ranks[1].load.ids, 0);
  EXPECT_EQ(cost.ranks[1].table_bytes, 0);
  // Each row has a statistic in another place, some in one line. Without a cache 4096 rows of 64
  // bytes at 1e9 bytes/s are read, and as many lines written.
  EXPECT_NEAR(load.lookup_s, 2 * 4096 * 64e-9, 1e-12);
  const double lines = cost::expected_unique(1'000'000 * 4 / 64.0, load.unique);
  EXPECT_NEAR(load.update_s, 4096 * 64e-9 + (load.unique + lines) * 128e-9, 1e-12);
  // The other rank's vectors: out over the link, and read and written once there.
  EXPECT_NEAR(cost.exchanges[at(StepPart::kOutputDist)], 2048 * 64 / 1e9 + 1e-6, 1e-12);
  EXPECT_NEAR(
      cost.ranks[1].seconds[at(StepPart::kOutputDist)] - cost.exchanges[at(StepPart::kOutputDist)],
      2.0 * 2048 * 64 / kCopy, 1e-12);
  EXPECT_NEAR(cost.ranks[0].seconds[at(StepPart::kOutputDist)],
              cost.exchanges[at(StepPart::kOutputDist)], 1e-12);
  // Of ids, vectors and gradients only the first and the last leave rank 1, and flags and counts.
  EXPECT_GT(cost.ranks[0].sent[1], 2048 * 64.0);
  EXPECT_GT(cost.ranks[1].sent[1], 2048 * (8 + 64.0));
}

TEST(Estimate, CodecsByHand) {
  spec::Config config = one_shard_config({{.rows = 1'000'000, .dim = 16, .length = 1}}, 4096);
  config.tables[0].rank = 0;
  config.codecs = {.forward = CodecFormat::kInt8, .backward = CodecFormat::kFp16};
  const topology::Cluster cluster = cluster_of_estimates(1, 2);
  const PlanCost cost = cost_of(config, cluster);
  const auto own_s = [&](std::size_t rank, StepPart part) {
    return cost.ranks[rank].seconds[at(part)] - cost.exchanges[at(part)];
  };
  const auto seconds = [&](CodecFormat format, bool encode) {  // of 2048 vectors
    const cost::CodecWork work{.format = format, .group = 128, .cols = 16, .vectors = 2048};
    return encode ? cost::encode_s(cluster, work) : cost::decode_s(cluster, work);
  };
  const double out = seconds(CodecFormat::kInt8, true);
  const double in = seconds(CodecFormat::kInt8, false);
  EXPECT_GT(out, 2048 * (64 + 18) / kCopy * 0.999) << "not above the rate of a copy";
  // Rank 0 encodes for rank 1, which decodes, and passes its own vectors through both.
  EXPECT_NEAR(own_s(0, StepPart::kOutputDist), 2.0 * out + in, 1e-12);
  EXPECT_NEAR(own_s(1, StepPart::kOutputDist), in, 1e-12);
  const double back_out = seconds(CodecFormat::kFp16, true);
  const double back_in = seconds(CodecFormat::kFp16, false);
  EXPECT_NEAR(own_s(0, StepPart::kGradDist), 2.0 * back_in + back_out, 1e-12);
  EXPECT_NEAR(own_s(1, StepPart::kGradDist), back_out, 1e-12);
  EXPECT_EQ(cost.ranks[0].load.vector_bytes, 2048 * 18);
  EXPECT_EQ(cost.ranks[0].load.gradient_bytes, 2048 * 32);
}

TEST(Estimate, CodecsOfCutRowsAndOfOneRank) {
  spec::Config config = one_shard_config({{.rows = 1000, .dim = 16, .length = 1}}, 4096);
  config.codecs.forward = CodecFormat::kInt8;
  const auto own_s = [](const PlanCost& cost, std::size_t rank) {
    return cost.ranks[rank].seconds[at(StepPart::kOutputDist)] -
           cost.exchanges[at(StepPart::kOutputDist)];
  };
  const auto seconds = [](const topology::Cluster& cluster, double vectors) {
    const cost::CodecWork work{
        .format = CodecFormat::kInt8, .group = 128, .cols = 16, .vectors = vectors};
    return cost::encode_s(cluster, work) + cost::decode_s(cluster, work);
  };
  const topology::Cluster alone = cluster_of_estimates(1, 1);
  EXPECT_NEAR(own_s(cost_of(config, alone), 0), seconds(alone, 4096), 1e-12);
  // Of cut rows every vector is encoded, those for itself too: on two ranks 2048 each way.
  shard_all(config, Sharding::kRowWise);
  const topology::Cluster two = cluster_of_estimates(1, 2);
  const double with = own_s(cost_of(config, two), 1);
  config.codecs.forward = CodecFormat::kFp32;
  EXPECT_NEAR(with - own_s(cost_of(config, two), 1), seconds(two, 2048), 1e-12);
}

TEST(Estimate, StochasticRoundingTakesItsDraws) {
  spec::Config config = one_shard_config({{.rows = 1'000'000, .dim = 16, .length = 1}}, 4096);
  config.tables[0].rank = 0;
  config.tables[0].dtype = spec::RowDType::kBf16;
  config.codecs = {.forward = CodecFormat::kInt8, .backward = CodecFormat::kFp16};
  topology::Cluster cluster = cluster_of_estimates(1, 2);
  const auto more = [&](std::size_t rank, StepPart part, double draw) {
    cluster.compute.draw.value = draw;
    const double with = cost_of(config, cluster).ranks[rank].seconds[at(part)];
    cluster.compute.draw.value = 0.0;
    return with - cost_of(config, cluster).ranks[rank].seconds[at(part)];
  };
  const double draws = 128.0 * 1e-9;  // of a vector: 64 columns at once, twice as many words
  EXPECT_NEAR(more(0, StepPart::kOutputDist, 1e-9), 0.0, 1e-12) << "codecs round to nearest";
  config.codecs.rounding = CodecRounding::kStochastic;
  EXPECT_NEAR(more(0, StepPart::kOutputDist, 1e-9), 4096 * draws, 1e-12) << "for others and itself";
  EXPECT_NEAR(more(1, StepPart::kOutputDist, 1e-9), 0.0, 1e-12) << "decodes";
  EXPECT_NEAR(more(0, StepPart::kGradDist, 1e-9), 2048 * draws, 1e-12);
  EXPECT_NEAR(more(1, StepPart::kGradDist, 1e-9), 2048 * draws, 1e-12);
  const double rows = cost_of(config, cluster).ranks[0].load.unique;
  EXPECT_NEAR(more(0, StepPart::kUpdateRows, 1e-9), rows * 16.0 * 1e-9, 1e-12);
  config.tables[0].dtype = spec::RowDType::kFp32;
  EXPECT_NEAR(more(0, StepPart::kUpdateRows, 1e-9), 0.0, 1e-12);
}

TEST(Estimate, SumsOfDenseGradientsAreEncoded) {
  spec::Config config = one_shard_config({{.rows = 5000, .length = 3}});
  const topology::Cluster cluster = cluster_of_estimates(1, 2);
  const auto floats =
      static_cast<std::int64_t>(cost::dense_work(config, std::vector<double>{3.0}).bucket);
  config.codecs.dense = CodecFormat::kFp16;
  for (const bool feedback : {false, true}) {
    config.codecs.error_feedback = feedback;
    const cost::OrderedAllReduce reduce =
        cost::ordered_all_reduce(cluster, topology::all_ranks(cluster), 8, floats,
                                 {.format = CodecFormat::kFp16, .error_feedback = feedback});
    EXPECT_GT(reduce.coded_bytes, 0.0);
    EXPECT_NEAR(cost_of(config, cluster).exchanges[at(StepPart::kReduce)],
                cost::all_reduce_s(cluster, reduce), 1e-12);
  }
}

TEST(Estimate, HotRowsAreNear) {
  topology::Cluster cluster = cluster_of_estimates(1, 1);
  // 4096 ids of 64 rows: all but the first of each row find it near, where 64 rows fit the cache.
  const spec::Config config = one_shard_config({{.rows = 64, .dim = 16, .length = 1}}, 4096);
  const double far = cost_of(config, cluster).parts[at(StepPart::kLookup)];
  cluster.compute.cache.value = 1e9;
  const double near = cost_of(config, cluster).parts[at(StepPart::kLookup)];
  EXPECT_NEAR(far, 2 * 4096 * 64e-9, 1e-12);
  EXPECT_NEAR(near, 64 * 64e-9 + 4032 * 64 / 4e10 + 4096 * 64 / kCopy, 1e-12);
  // A cache of half the rows holds half of the ids' at best.
  cluster.compute.cache.value = 32 * 64;
  const double half = cost_of(config, cluster).parts[at(StepPart::kLookup)];
  EXPECT_GT(half, near);
  EXPECT_LT(half, far);
}

TEST(Estimate, StepIsTheSumOfItsStretches) {
  for (const auto& [overlap, width] : {std::pair(false, 32), {true, 32}, {true, 4000}}) {
    for (const Sharding sharding : kSchemes) {
      spec::Config config = one_shard_config(
          {{.rows = 5000, .length = 3}, {.rows = 70'000, .length = 1}, {.rows = 800, .length = 7}});
      config.model.top_mlp = {width};  // a long reduction hides the rows' work, not their exchanges
      shard_all(config, sharding);
      config.train.overlap = overlap;
      const topology::Cluster cluster = cluster_of_estimates(2, 2);
      const PlanCost cost = cost_of(config, cluster);
      const auto exchange = [&](StepPart part) { return cost.exchanges[at(part)]; };
      const auto slowest = [&](const std::vector<StepPart>& parts) {
        double most = 0.0;
        for (const RankCost& rank : cost.ranks) {
          double sum = 0.0;
          for (const StepPart part : parts) {
            sum += rank.seconds[at(part)] - exchange(part);
          }
          most = std::max(most, sum);
        }
        return most;
      };
      const double links = exchange(StepPart::kExchangeReport) + exchange(StepPart::kGradDist) +
                           exchange(StepPart::kUpdateRows);
      const double begin =
          exchange(StepPart::kExchangeCounts) + exchange(StepPart::kExchangeIds) +
          exchange(StepPart::kOutputDist) + slowest({StepPart::kExchangeIds, StepPart::kLookup}) +
          slowest({StepPart::kOutputDist, StepPart::kForwardBackward, StepPart::kWeightGradients});
      const double rows = links + slowest({StepPart::kCoalesce}) +
                          slowest({StepPart::kGradDist, StepPart::kUpdateRows,
                                   StepPart::kUpdateDense, StepPart::kExchangeCounts});
      const double reduce = exchange(StepPart::kReduce);
      const double tail = overlap ? std::max(rows, links + reduce) : rows + reduce;
      EXPECT_NEAR(cost.step_s, begin + tail + 12e-6, 1e-9) << static_cast<int>(sharding) << overlap;
    }
  }
}

TEST(Estimate, MoreIdsAreNeverCheaper) {
  for (const Sharding sharding : kSchemes) {
    for (const double cache : {0.0, 1e5, 1e8}) {
      topology::Cluster cluster = cluster_of_estimates(2, 2);
      cluster.compute.cache.value = cache;
      double before = 0.0;
      for (const std::int64_t length : {1, 2, 3, 5, 8, 20, 100}) {
        spec::Config config =
            one_shard_config({{.rows = 5000, .length = length}, {.rows = 70'000, .length = 1}});
        shard_all(config, sharding);
        const double step = cost_of(config, cluster).step_s;
        EXPECT_GT(step, before) << static_cast<int>(sharding) << " length " << length;
        before = step;
      }
    }
  }
}

TEST(Estimate, MoreRanksNeverHoldMoreEach) {
  for (const Sharding sharding : kSchemes) {
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t ranks : {1, 2, 4, 8}) {
      spec::Config config = one_shard_config({{.rows = 5000, .length = 3},
                                              {.rows = 70'000, .length = 1},
                                              {.rows = 800, .length = 7},
                                              {.rows = 9000, .length = 1}});
      shard_all(config, sharding);
      std::int64_t most = 0;
      for (const RankCost& rank : cost_of(config, cluster_of_estimates(1, ranks)).ranks) {
        most = std::max(most, rank.table_bytes);
      }
      EXPECT_LE(most, before) << static_cast<int>(sharding) << " on " << ranks;
      before = most;
    }
  }
}

TEST(Estimate, AFasterClusterIsNeverSlower) {
  const auto faster = {+[](topology::Cluster& c) { c.links.network.rank.value *= 2; },
                       +[](topology::Cluster& c) { c.links.network.latency.value /= 2; },
                       +[](topology::Cluster& c) { c.links.host.rank.value *= 2; },
                       +[](topology::Cluster& c) { c.links.self.rank.value *= 2; },
                       +[](topology::Cluster& c) { c.compute.copy.value *= 2; },
                       +[](topology::Cluster& c) { c.compute.gemm_fp32.value *= 2; },
                       +[](topology::Cluster& c) { c.compute.stage.value /= 2; },
                       +[](topology::Cluster& c) { c.compute.cache.value = 1e7; },
                       +[](topology::Cluster& c) { c.compute.rows.efficiency *= 2; }};
  for (const Sharding sharding : kSchemes) {
    spec::Config config = one_shard_config(
        {{.rows = 5000, .length = 3}, {.rows = 70'000, .length = 1}, {.rows = 800, .length = 7}});
    shard_all(config, sharding);
    const topology::Cluster cluster = cluster_of_estimates(2, 2);
    const double step = cost_of(config, cluster).step_s;
    for (const auto& change : faster) {
      topology::Cluster better = cluster;
      change(better);
      EXPECT_LE(cost_of(config, better).step_s, step) << static_cast<int>(sharding);
    }
  }
}

TEST(Estimate, TableBytesAreThoseOfTheShards) {
  for (const Sharding sharding : kSchemes) {
    spec::Config config = one_shard_config({{.rows = 5000, .length = 3},
                                            {.rows = 70'001, .dim = 48, .length = 1},
                                            {.rows = 800, .length = 7}});
    shard_all(config, sharding);
    config.tables[0].optimizer.type = SparseOptimizerKind::kAdam;
    config.tables[1].optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
    const topology::Cluster cluster = cluster_of_estimates(1, 4);
    const spec::Plan plan = make_plan(config, 4);
    std::vector<std::int64_t> bytes(4, 0);
    for (std::size_t t = 0; t < plan.tables.size(); ++t) {
      for (const spec::Shard& shard : plan.tables[t].shards) {
        bytes[static_cast<std::size_t>(shard.rank)] +=
            layout::shard_bytes(config.tables[t], shard.rows.size(), shard.cols.size());
      }
    }
    const PlanCost cost = cost_of(config, cluster);
    for (std::size_t r = 0; r < bytes.size(); ++r) {
      EXPECT_EQ(cost.ranks[r].table_bytes, bytes[r]) << static_cast<int>(sharding) << " rank " << r;
    }
  }
}

TEST(Estimate, AReplicaOnOneRankIsTheWholeTable) {
  for (const auto kind : {SparseOptimizerKind::kSgd, SparseOptimizerKind::kAdam}) {
    spec::Config config = one_shard_config({{.rows = 5000, .length = 3}});
    config.tables[0].optimizer.type = kind;
    topology::Cluster cluster = cluster_of_estimates(1, 1);
    cluster.compute.cache.value = 1e5;
    const Workload workload = make_workload(config);
    const Estimator estimator(config, cluster, workload, 8);
    const ShardLoad whole = estimator.shard({.rows = {0, 5000}, .cols = {0, 32}});
    const ShardLoad replica = estimator.replica(0);
    EXPECT_DOUBLE_EQ(replica.lookup_s, whole.lookup_s);
    EXPECT_DOUBLE_EQ(replica.coalesce_s, whole.coalesce_s);
    EXPECT_DOUBLE_EQ(replica.update_s, whole.update_s);
    EXPECT_DOUBLE_EQ(replica.unique, whole.unique);
    EXPECT_EQ(replica.bytes, whole.bytes);
  }
}

TEST(Estimate, ShardsOfATableAddUpToIt) {
  const spec::Config config = one_shard_config({{.rows = 5000, .length = 3}});
  const Workload workload = make_workload(config);
  const topology::Cluster cluster = cluster_of_estimates(1, 2);
  const Estimator estimator(config, cluster, workload, 8);
  const ShardLoad whole = estimator.shard({.rows = {0, 5000}, .cols = {0, 32}});
  ShardLoad rows = estimator.shard({.rows = {0, 2000}, .cols = {0, 32}});
  rows += estimator.shard({.rows = {2000, 5000}, .cols = {0, 32}});
  EXPECT_NEAR(rows.ids, whole.ids, 1e-6);
  EXPECT_NEAR(rows.unique, whole.unique, 1e-4 * whole.unique);
  EXPECT_GT(rows.vector_bytes, whole.vector_bytes);  // a bag may have ids in both
  ShardLoad columns = estimator.shard({.rows = {0, 5000}, .cols = {0, 16}, .column_shards = 2});
  columns += estimator.shard({.rows = {0, 5000}, .cols = {16, 32}, .column_shards = 2});
  EXPECT_DOUBLE_EQ(columns.ids, 2 * whole.ids);  // every shard looks all up
  EXPECT_DOUBLE_EQ(columns.vector_bytes, whole.vector_bytes);
  EXPECT_EQ(columns.bytes, whole.bytes + 5000 * 4);  // each has the rows' statistics
}

TEST(Estimate, RowsOfAFetchedTableTravelOnce) {
  // 8 ranks of 3 parts each, of which one or two make a subtree; 512 samples of 40 ids of 30 rows:
  // everybody asks for everything.
  spec::Config config = one_shard_config({{.rows = 30, .dim = 16, .length = 40}}, 24 * 512);
  config.tables[0].sharding = Sharding::kRowWise;
  config.numerics.parts = 24;
  const topology::Cluster cluster = cluster_of_estimates(2, 4);
  const Workload workload = make_workload(config);
  const Estimator estimator(config, cluster, workload, 24);
  const RowSet rows(0, 10);
  const ShardLoad owner = estimator.shard({.rows = rows, .cols = {0, 16}});
  const ShardLoad sample =
      estimator.shard({.rows = rows, .cols = {0, 16}, .pooled_at = spec::PooledAt::kSample});
  EXPECT_DOUBLE_EQ(sample.ids_bytes, 2 * 8 + 1 * 2 * 10);  // lengths of runs, and (row, subtree)
  EXPECT_DOUBLE_EQ(sample.vector_bytes, 64 * 10);
  EXPECT_DOUBLE_EQ(sample.gradient_bytes, 64 * 2 * 10);
  EXPECT_DOUBLE_EQ(sample.ids, 8 * 10);  // looked up once for each rank
  EXPECT_DOUBLE_EQ(sample.unique, owner.unique);
  EXPECT_EQ(sample.bytes, owner.bytes);
  EXPECT_LT(sample.lookup_s, owner.lookup_s);
  EXPECT_EQ(owner.gradient_bytes, owner.vector_bytes);
  // The ranks of the samples have the rest of the work.
  config.tables[0].pooled_at = spec::PooledAt::kSample;
  const PlanCost at_samples = cost_of(config, cluster);
  config.tables[0].pooled_at = spec::PooledAt::kOwner;
  const PlanCost at_owners = cost_of(config, cluster);
  EXPECT_LT(at_samples.exchanges[at(StepPart::kOutputDist)],
            at_owners.exchanges[at(StepPart::kOutputDist)]);
  EXPECT_GT(
      at_samples.parts[at(StepPart::kOutputDist)] - at_samples.exchanges[at(StepPart::kOutputDist)],
      12 * 128 * 40 * 64e-9);  // every id's row is read
  EXPECT_GT(at_samples.parts[at(StepPart::kCoalesce)],
            at_owners.parts[at(StepPart::kCoalesce)] / 10);
}

TEST(Estimate, RowStatisticsTakeTheLinksOfTheirShards) {
  spec::Config config = one_shard_config({{.rows = 5000, .dim = 64, .length = 1}});
  config.tables[0].optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
  const topology::Cluster cluster = cluster_of_estimates(2, 4);
  const auto statistics = [&](Sharding sharding, std::size_t link) {
    config.tables[0].sharding = sharding;
    config.tables[0].host = sharding == Sharding::kTableColumnWise ? 1 : -1;
    config.tables[0].column_shards = 4;
    config.tables[0].optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
    double bytes = 0.0;
    for (const RankCost& rank : cost_of(config, cluster).ranks) {
      bytes += rank.sent[link];
    }
    config.tables[0].optimizer.type = SparseOptimizerKind::kSgd;  // needs none
    for (const RankCost& rank : cost_of(config, cluster).ranks) {
      bytes -= rank.sent[link];
    }
    return bytes;
  };
  const Workload workload = make_workload(config);
  const double unique = Estimator(config, cluster, workload, 8)
                            .shard({.rows = {0, 5000}, .cols = {0, 16}, .column_shards = 4})
                            .unique;
  const double all = 4 * 3 * 4 * unique;  // four shards, to three others, 4 bytes of a block
  EXPECT_NEAR(statistics(Sharding::kTableColumnWise, 1), all, 1e-6 * all);
  EXPECT_NEAR(statistics(Sharding::kTableColumnWise, 2), 0.0, 1e-6 * all);
  EXPECT_NEAR(statistics(Sharding::kColumnWise, 1), all, 1e-6 * all) << "on ranks 0 to 3";
  config.tables[0].optimizer.max_norm = 1.0;
  EXPECT_NEAR(statistics(Sharding::kTableColumnWise, 1), all, 1e-6 * all) << "one of two stays";
}

TEST(Estimate, CopiesSendGradientsInsteadOfVectors) {
  spec::Config config = one_shard_config({{.rows = 5000, .length = 3}});
  config.tables[0].sharding = Sharding::kDataParallel;
  const PlanCost cost = cost_of(config, cluster_of_estimates(1, 2));
  for (const RankCost& rank : cost.ranks) {
    EXPECT_EQ(rank.load.vector_bytes, 0);
    EXPECT_EQ(rank.load.ids_bytes, 0);
    EXPECT_EQ(rank.seconds[at(StepPart::kOutputDist)], cost.exchanges[at(StepPart::kOutputDist)]);
  }
  EXPECT_GT(cost.exchanges[at(StepPart::kUpdateRows)], 0.0);
  EXPECT_EQ(cost.exchanges[at(StepPart::kOutputDist)], 0.0);  // all lanes are silent
  EXPECT_EQ(cost.messages[at(StepPart::kOutputDist)], 0.0);
  EXPECT_GT(cost.messages[at(StepPart::kUpdateRows)], 0.0);
}

}  // namespace
}  // namespace weft::planner
