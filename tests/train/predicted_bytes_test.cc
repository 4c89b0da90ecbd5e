// Bytes and messages on the wire that the planner predicts, against those that a step of training
// sends: plans of every scheme, with and without hot rows, drawn at random, over ranks as threads.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/step_traffic.h"
#include "weft/base/philox.h"
#include "weft/layout/id_lanes.h"
#include "weft/planner/estimate.h"
#include "weft/planner/place.h"
#include "weft/spec/yaml.h"

namespace weft::train {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : key_(random_key(seed, RandomPurpose::kTest)) {}

  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(philox(key_, next_++, 9)[0] % static_cast<std::uint64_t>(end));
  }

  template <std::size_t N>
  std::int64_t one_of(const std::array<std::int64_t, N>& values) {
    return values[static_cast<std::size_t>(below(N))];
  }

  bool coin() { return below(2) == 0; }

  /// `count` pieces of [0, n) cut anywhere, none empty.
  std::vector<Range> cuts(std::int64_t n, std::int64_t count) {
    std::vector<std::int64_t> ends = shuffled(n - 1);
    ends.resize(static_cast<std::size_t>(count - 1));
    std::sort(ends.begin(), ends.end());
    std::vector<Range> pieces;
    for (const std::int64_t end : ends) {
      pieces.push_back({pieces.empty() ? 0 : pieces.back().end, end + 1});
    }
    pieces.push_back({pieces.empty() ? 0 : pieces.back().end, n});
    return pieces;
  }

  std::vector<std::int64_t> shuffled(std::int64_t count) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
    for (std::int64_t i = count - 1; i > 0; --i) {
      std::swap(numbers[static_cast<std::size_t>(i)],
                numbers[static_cast<std::size_t>(below(i + 1))]);
    }
    return numbers;
  }

 private:
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

struct Job {
  spec::Config config;
  spec::Plan plan;
};

void add_dense_model(spec::Config& config) {
  config.data.synthetic.dense_columns = 1;
  config.dense_features.emplace_back();
  config.dense_features[0].name = config.dense_features[0].column = "d1";
  config.model = {.type = spec::ModelKind::kDeepFm, .bottom_mlp = {}, .top_mlp = {8}};
  config.model.projection_dim = 8;
}

void add_table(spec::Config& config, Random& random, IdKind ids) {
  spec::Table& table = config.tables.emplace_back();
  table.name = "t" + std::to_string(config.tables.size());
  table.num_embeddings = ids == IdKind::kDealt ? random.one_of<4>({1, 2, 8, 8})
                                               : random.one_of<4>({64, 500, 2000, 30'000});
  table.embedding_dim = random.one_of<5>({8, 16, 33, 48, 70});
  table.optimizer.type = static_cast<SparseOptimizerKind>(random.below(5));
  table.optimizer.max_norm = random.below(4) == 0 ? 0.5 : 0.0;
}

void add_feature(spec::Config& config, Random& random, IdKind ids) {
  const spec::Table& table = config.tables[static_cast<std::size_t>(
      random.below(static_cast<std::int64_t>(config.tables.size())))];
  spec::SyntheticColumn& column = config.data.synthetic.columns.emplace_back();
  column.name = "f" + std::to_string(config.data.synthetic.columns.size());
  column.cardinality = table.num_embeddings;
  column.zipf = 0.0;
  column.min_length = column.max_length = ids == IdKind::kDealt ? 1 : 1 + random.below(12);
  spec::SparseFeature& feature = config.sparse_features.emplace_back();
  feature.name = feature.column = column.name;
  feature.table = table.name;
  feature.mapping = spec::IdMapping::kIdentity;
  feature.pooling = static_cast<spec::Pooling>(random.below(3));
  feature.weighted = column.weighted = feature.pooling == spec::Pooling::kSum && random.coin();
}

/// Ranges cut anywhere, or every n-th row.
std::vector<RowSet> random_rows(const spec::Table& table, Random& random) {
  const std::int64_t count = 1 + random.below(std::min<std::int64_t>(table.num_embeddings, 6));
  std::vector<RowSet> rows;
  const bool modulo = random.coin();
  const std::vector<Range> cuts = random.cuts(table.num_embeddings, count);
  for (std::int64_t k = 0; k < count; ++k) {
    rows.push_back(modulo ? RowSet(k, table.num_embeddings, count)
                          : RowSet(cuts[static_cast<std::size_t>(k)]));
  }
  return rows;
}

/// Some of the rows, in any ranges; often none.
std::vector<Range> random_hot_rows(const spec::Table& table, Random& random) {
  std::vector<Range> hot;
  const std::int64_t one_in = 1 + random.below(4);
  for (std::int64_t row = 0; row < table.num_embeddings; ++row) {
    if (random.below(one_in) > 0) {
      continue;
    }
    if (!hot.empty() && hot.back().end == row) {
      ++hot.back().end;
    } else {
      hot.push_back({row, row + 1});
    }
  }
  return random.coin() ? hot : std::vector<Range>{};
}

spec::TablePlan random_shards(const spec::Table& table, std::int64_t ranks, Random& random) {
  spec::TablePlan plan{
      .table = table.name, .sharding = spec::Sharding::kDataParallel, .shards = {}};
  if (random.below(5) == 0) {
    plan.shards.edit([&](auto& shards) {
      for (std::int64_t r = 0; r < ranks; ++r) {
        shards.push_back(
            {.rank = r, .rows = {0, table.num_embeddings}, .cols = {0, table.embedding_dim}});
      }
    });
    return plan;
  }
  plan.sharding = spec::Sharding::kGridShard;
  plan.pooled_at = random.below(3) == 0 ? spec::PooledAt::kOwner : spec::PooledAt::kSample;
  const std::int64_t blocks = (table.embedding_dim + spec::kColumnBlock - 1) / spec::kColumnBlock;
  const auto columns = random.cuts(blocks, 1 + random.below(std::min(blocks, ranks)));
  std::vector<spec::Shard> shards;
  for (const RowSet& rows : random_rows(table, random)) {
    const std::vector<std::int64_t> owners = random.shuffled(ranks);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      shards.push_back(
          {.rank = owners[c],
           .rows = rows,
           .cols = {columns[c].begin * spec::kColumnBlock,
                    std::min(columns[c].end * spec::kColumnBlock, table.embedding_dim)}});
    }
  }
  plan.shards = std::move(shards);
  plan.hot = random_hot_rows(table, random);
  return plan;
}

/// As many samples in each part, and so many that each part asks for every row of a small table.
/// All ranks have as many whole subtrees of parts, one or two: else the planner takes for all what
/// one has. `mesh`: of groups for which there are 2, 4 or 8 ranks.
/// `many`: ranks, where rows of which all hold copies have owners.
Job random_job(Random& random, IdKind ids, const spec::Mesh& mesh = {}, std::int64_t many = 0) {
  const std::int64_t ranks = many > 0 ? many
                             : mesh.groups > 1
                                 ? mesh.groups * random.one_of<3>({1, 2, mesh.groups == 4 ? 2 : 4})
                                 : random.one_of<5>({2, 3, 4, 5, 8});
  const bool even = ranks == 2 || ranks == 4 || ranks == 8 || ranks == 16;
  const std::int64_t parts = ranks * random.one_of<4>({1, 2, even ? 3 : 1, even ? 3 : 4});
  Job job;
  spec::Config& config = job.config;
  config.batch_size = parts * 256;
  config.numerics.parts = parts;
  add_dense_model(config);
  config.model.sequence = spec::SequencePooling::kMean;
  for (std::int64_t t = 1 + random.below(4); t > 0; --t) {
    add_table(config, random, ids);
  }
  for (std::int64_t f = 1 + random.below(6); f > 0; --f) {
    add_feature(config, random, ids);
  }
  const auto any_format = [&random] {
    return static_cast<CodecFormat>(random.below(kNumCodecFormats));
  };
  if (random.coin()) {
    config.codecs = {
        .forward = any_format(), .backward = any_format(), .dense = any_format(), .group_size = 16};
  }
  config.codecs.ids = random.coin() ? spec::IdCodec::kPacked : spec::IdCodec::kNarrow;
  config.mesh = mesh;
  spec::validate(config);
  job.plan = {.version = 1,
              .ranks = ranks / mesh.groups,
              .groups = mesh.groups,
              .parts = parts,
              .hosts = {},
              .tables = {}};
  for (const spec::Table& table : config.tables) {
    job.plan.tables.push_back(random_shards(table, job.plan.ranks, random));
    if (ids == IdKind::kDealt && config.codecs.ids == spec::IdCodec::kPacked &&
        job.plan.tables.back().pooled_at == spec::PooledAt::kSample) {
      job.plan.tables.back().hot.clear();  // which leaves gaps: their bits are right on average
    }
  }
  planner::check_plan(job.plan, config);
  return job;
}

/// The ranks on hosts of so many, the last of which may have fewer, and exchanges of any form.
void put_on_hosts(Job& job, std::int64_t per_host, Random& random) {
  for (std::int64_t r = 0; r < job.plan.ranks; ++r) {
    job.plan.hosts.push_back(r / per_host);
  }
  const auto any_form = [&random] {
    return random.coin() ? spec::CollectiveForm::kHierarchical : spec::CollectiveForm::kFlat;
  };
  job.plan.collectives = {.ids = any_form(), .vectors = any_form(), .dense = {}};
  job.plan.collectives.dense = static_cast<spec::CollectiveForm>(random.below(3));
  spec::validate(job.config);
  planner::check_plan(job.plan, job.config);
}

topology::Cluster cluster_of(const spec::Plan& plan) {
  topology::Cluster cluster;
  cluster.name = "threads";
  std::vector<std::int64_t> ranks_of(1, plan.hosts.empty() ? plan.world() : 0);
  for (const std::int64_t host : plan.hosts) {
    ranks_of.resize(std::max(ranks_of.size(), static_cast<std::size_t>(host) + 1));
    ++ranks_of[static_cast<std::size_t>(host)];
  }
  for (const std::int64_t ranks : ranks_of) {
    cluster.hosts.push_back({.count = 1, .ranks = ranks});
  }
  cluster.memory.ddr.value = 1e9;
  cluster.compute.gemm_fp32.value = 1e10;
  cluster.compute.copy.value = 1e10;
  cluster.compute.rows.points = {{.row_bytes = 64, .read = 1e9, .update = 5e8}};
  cluster.links.self.rank.value = 1e10;
  cluster.links.host.rank.value = 1e9;
  cluster.links.network.rank.value = 1e9;
  topology::check(cluster);
  return cluster;
}

/// What a rank sends to others in a step.
struct Wire {
  double bytes = 0.0;
  double messages = 0.0;
};

/// [ranks of a group]
std::vector<Wire> predicted_wires(const Job& job) {
  const topology::Cluster cluster = cluster_of(job.plan);
  const planner::Workload workload = planner::make_workload(job.config);
  const planner::MeshCluster mesh = planner::mesh_cluster(cluster, job.config.mesh);
  const planner::Estimator estimator(job.config, mesh, workload, job.plan.parts);
  std::vector<Wire> wires;
  for (const planner::RankCost& rank : estimator.cost(job.plan).ranks) {
    wires.push_back(
        {.bytes = rank.sent[1] + rank.sent[2], .messages = rank.messages[1] + rank.messages[2]});
  }
  return wires;
}

/// [ranks of a group] of the ranks at one place of their groups the mean.
std::vector<Wire> counted_wires(const Job& job, IdKind ids) {
  const std::vector<StepTraffic> traffic = step_traffic(job.config, job.plan, ids);
  std::vector<Wire> wires(static_cast<std::size_t>(job.plan.ranks));
  const double share = 1.0 / static_cast<double>(job.plan.groups);
  for (std::size_t r = 0; r < traffic.size(); ++r) {
    Wire& wire = wires[r % wires.size()];
    wire.bytes += share * static_cast<double>(traffic[r].all.bytes);
    wire.messages += share * static_cast<double>(traffic[r].all.messages);
  }
  return wires;
}

void expect_predicted_wires(const Job& job, const std::string& what) {
  const std::vector<Wire> sent = counted_wires(job, IdKind::kDealt);
  const std::vector<Wire> expected = predicted_wires(job);
  ASSERT_EQ(expected.size(), sent.size());
  for (std::size_t r = 0; r < sent.size(); ++r) {
    ASSERT_NEAR(expected[r].bytes, sent[r].bytes, 1e-6 * sent[r].bytes)
        << what << ", rank " << r << " of " << sent.size() << "\n"
        << spec::plan_to_yaml(job.plan);
    ASSERT_NEAR(expected[r].messages, sent[r].messages, 1e-6)
        << what << ", rank " << r << " of " << sent.size() << "\n"
        << spec::plan_to_yaml(job.plan);
  }
}

TEST(PredictedBytes, AreThoseOfAStepWhereIdsAreDealt) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Random random(seed);
    expect_predicted_wires(random_job(random, IdKind::kDealt), "seed " + std::to_string(seed));
  }
}

/// Of more ranks than gather the rows of which all hold copies.
TEST(PredictedBytes, AreThoseOfAStepWhereRowsHaveOwners) {
  std::int64_t copies = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Random random(3000 + seed);
    const Job job = random_job(random, IdKind::kDealt, {}, seed % 2 == 0 ? 16 : 9);
    for (const spec::TablePlan& table : job.plan.tables) {
      copies += table.sharding == spec::Sharding::kDataParallel || !table.hot.empty() ? 1 : 0;
    }
    expect_predicted_wires(job, "seed " + std::to_string(seed));
  }
  EXPECT_GT(copies, 5);
}

/// Up to 64 ranks, on hosts of 8 and of other numbers, the last with fewer.
TEST(PredictedBytes, AreThoseOfAStepOfManyRanks) {
  struct Case {
    std::int64_t ranks, per_host;
  };

  std::int64_t relayed = 0;
  std::int64_t relayed_sums = 0;
  std::uint64_t seed = 4000;
  for (const Case& one : {Case{4, 2}, Case{5, 2}, Case{8, 4}, Case{12, 5}, Case{16, 8}, Case{24, 8},
                          Case{32, 8}, Case{63, 8}, Case{64, 8}, Case{64, 8}}) {
    Random random(++seed);
    Job job = random_job(random, IdKind::kDealt, {}, one.ranks);
    put_on_hosts(job, one.per_host, random);
    if (one.ranks > 16) {
      job.config.batch_size = job.plan.parts * 128;  // of at most 8 rows, all are touched
    }
    relayed += job.plan.collectives.vectors == spec::CollectiveForm::kHierarchical ? 1 : 0;
    relayed_sums += job.plan.collectives.dense == spec::CollectiveForm::kRelayed ? 1 : 0;
    expect_predicted_wires(job, "seed " + std::to_string(seed));
  }
  EXPECT_GT(relayed, 2);
  EXPECT_GT(relayed_sums, 2);
}

/// Returns how many pairs of shards of the same rows lie on different hosts.
std::int64_t pairs_between_hosts(const spec::Plan& plan) {
  std::int64_t pairs = 0;
  for (const spec::TablePlan& table : plan.tables) {
    for (const spec::Shard& a : table.shards) {
      for (const spec::Shard& b : table.shards) {
        pairs += a.rows == b.rows && table.sharding == spec::Sharding::kGridShard &&
                         plan.hosts[static_cast<std::size_t>(a.rank)] <
                             plan.hosts[static_cast<std::size_t>(b.rank)]
                     ? 1
                     : 0;
      }
    }
  }
  return pairs;
}

/// Squares and norms of rows whose columns are cut cross between hosts by relays.
TEST(PredictedBytes, AreThoseOfAStepWhoseStatisticsAreRelayed) {
  std::int64_t pairs = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    Random random(5000 + seed);
    const std::int64_t per_host = random.one_of<3>({2, 3, 4});
    Job job = random_job(random, IdKind::kDealt, {}, per_host * random.one_of<3>({2, 3, 4}) - 1);
    put_on_hosts(job, per_host, random);
    job.plan.collectives.vectors = spec::CollectiveForm::kHierarchical;
    for (spec::Table& table : job.config.tables) {
      table.optimizer.type =
          random.coin() ? SparseOptimizerKind::kRowWiseAdagrad : SparseOptimizerKind::kRowWiseAdam;
      table.optimizer.max_norm = random.coin() ? 0.5 : 0.0;
    }
    spec::validate(job.config);
    pairs += pairs_between_hosts(job.plan);
    expect_predicted_wires(job, "seed " + std::to_string(seed));
  }
  EXPECT_GT(pairs, 20);
}

/// What is said of a place is the mean of its ranks in all groups: a row that is averaged is one's.
TEST(PredictedBytes, AreThoseOfAStepOfReplicaGroups) {
  using spec::SyncForm;
  for (const SyncForm form : {SyncForm::kDense, SyncForm::kTouched, SyncForm::kGradients}) {
    for (const std::int64_t groups : {2, 4}) {
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        Random random(2000 + seed);
        Job job = random_job(random, IdKind::kDealt, {.groups = groups, .sync = form});
        if (seed % 2 == 1 && form != SyncForm::kGradients) {
          job.config.codecs.sync = CodecFormat::kBf16;
        }
        expect_predicted_wires(job,
                               std::string(to_string(form)) + ", seed " + std::to_string(seed));
      }
    }
  }
}

/// Draws differ from their mean: some shards have tens of rows.
TEST(PredictedBytes, AreNearThoseOfAStepWhereIdsAreDrawn) {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    Random random(1000 + seed);
    const Job job = random_job(random, IdKind::kDrawn);
    const std::vector<Wire> sent = counted_wires(job, IdKind::kDrawn);
    const std::vector<Wire> expected = predicted_wires(job);
    for (std::size_t r = 0; r < sent.size(); ++r) {
      EXPECT_NEAR(expected[r].bytes, sent[r].bytes, 0.04 * sent[r].bytes)
          << "seed " << seed << ", rank " << r << " of " << sent.size() << "\n"
          << spec::plan_to_yaml(job.plan);
    }
  }
}

/// Returns a job of row-wise tables, whose samples have one id of each. Every rank has one sample,
/// and one slot of each table.
Job job_of_few_ids(std::int64_t tables, std::int64_t ranks) {
  constexpr std::int64_t kRowsOfShard = 100;
  Job job;
  spec::Config& config = job.config;
  config.batch_size = config.numerics.parts = ranks;
  add_dense_model(config);
  job.plan = {.version = 1, .ranks = ranks, .groups = 1, .parts = ranks, .hosts = {}, .tables = {}};
  for (std::int64_t t = 0; t < tables; ++t) {
    spec::Table& table = config.tables.emplace_back();
    table.name = "t" + std::to_string(t);
    table.num_embeddings = kRowsOfShard * ranks;
    table.embedding_dim = 8;
    spec::SyntheticColumn& column = config.data.synthetic.columns.emplace_back();
    column.name = "f" + std::to_string(t);
    column.cardinality = table.num_embeddings;
    column.zipf = 0.0;
    column.min_length = column.max_length = 1;
    spec::SparseFeature& feature = config.sparse_features.emplace_back();
    feature.name = feature.column = column.name;
    feature.table = table.name;
    feature.mapping = spec::IdMapping::kIdentity;
    std::vector<spec::Shard> shards;
    for (std::int64_t r = 0; r < ranks; ++r) {
      shards.push_back({.rank = r,
                        .rows = Range{kRowsOfShard * r, kRowsOfShard * (r + 1)},
                        .cols = {0, table.embedding_dim}});
    }
    spec::TablePlan& plan = job.plan.tables.emplace_back();
    plan.table = table.name;
    plan.sharding = spec::Sharding::kGridShard;
    plan.pooled_at = spec::PooledAt::kSample;
    plan.shards = std::move(shards);
  }
  spec::validate(config);
  planner::check_plan(job.plan, config);
  return job;
}

/// Lanes of ids list the few slots that have some (weft/layout/id_lanes.h). What is allowed is a
/// quarter of what a lane with bits would have more, so that the test fails where these are
/// predicted. Ids are drawn: some 15 more or fewer than expected go to other ranks.
TEST(PredictedBytes, AreNearThoseOfAStepOfFewIdsInManySlots) {
  constexpr std::int64_t kTables = 240;
  constexpr std::int64_t kRanks = 24;
  constexpr std::int64_t kMarked = kTables / kRanks;
  static_assert(layout::lists_slots(kTables, kMarked));
  constexpr std::int64_t kSavedByLane =
      layout::slot_bits_bytes(kTables) - kMarked * layout::listed_slot_bytes(kTables);
  constexpr auto kSaved = static_cast<double>(kRanks * (kRanks - 1) * kSavedByLane);
  const Job job = job_of_few_ids(kTables, kRanks);
  double sent = 0.0;
  for (const Wire& wire : counted_wires(job, IdKind::kDrawn)) {
    sent += wire.bytes;
  }
  double expected = 0.0;
  for (const Wire& wire : predicted_wires(job)) {
    expected += wire.bytes;
  }
  EXPECT_NEAR(expected, sent, kSaved / 4);
}

}  // namespace
}  // namespace weft::train
