// Bytes on the wire that the planner predicts, against those that a step of training sends: plans
// of every scheme, with and without hot rows, drawn at random, over ranks as threads.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/philox.h"
#include "weft/comm/local/local.h"
#include "weft/planner/estimate.h"
#include "weft/planner/place.h"
#include "weft/spec/yaml.h"
#include "weft/train/engine.h"

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

/// How ids are made.
enum class IdKind {
  kDealt,  ///< one per bag, sample p has row p mod E: every sum that the planner expects is exact
  kDrawn,  ///< some per bag, drawn evenly: it is right on average
};

struct Job {
  spec::Config config;
  spec::Plan plan;
};

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
  config.data.synthetic.dense_columns = 1;
  config.dense_features.emplace_back();
  config.dense_features[0].name = config.dense_features[0].column = "d1";
  config.model = {.type = spec::ModelKind::kDeepFm, .bottom_mlp = {}, .top_mlp = {8}};
  config.model.projection_dim = 8;
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

data::Batch make_batch(const Job& job, std::int64_t rank, IdKind ids) {
  const spec::Config& config = job.config;
  data::Batch batch;
  batch.global_size = config.batch_size;
  batch.positions = rank_samples(config.batch_size, job.plan.parts, job.plan.world(), rank);
  const auto size = static_cast<std::size_t>(batch.size());
  batch.sparse.batch = batch.size();
  batch.sparse.offsets.push_back(0);
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    const spec::SparseFeature& feature = config.sparse_features[f];
    batch.sparse.keys.push_back(feature.name);
    const std::int64_t rows =
        config.tables[static_cast<std::size_t>(spec::table_index(config, feature))].num_embeddings;
    for (std::int64_t p = batch.positions.begin; p < batch.positions.end; ++p) {
      for (std::int64_t i = 0; i < config.data.synthetic.columns[f].max_length; ++i) {
        const auto draw = philox(f, static_cast<std::uint64_t>(p), static_cast<std::uint64_t>(i));
        batch.sparse.values.push_back(ids == IdKind::kDealt ? p % rows : draw[0] % rows);
        batch.sparse.weights.push_back(1.0F);
      }
      batch.sparse.offsets.push_back(static_cast<std::int64_t>(batch.sparse.values.size()));
    }
  }
  for (std::int64_t p = batch.positions.begin; p < batch.positions.end; ++p) {
    batch.sample_ids.push_back(p);
  }
  batch.dense.assign(size * config.dense_features.size(), 0.5F);
  batch.labels.assign(size * config.tasks.size(), 1.0F);
  batch.label_weights.assign(size * config.tasks.size(), 1.0F);
  return batch;
}

/// [ranks] bytes that a step sends to other ranks.
std::vector<double> sent_bytes(const Job& job, IdKind ids) {
  std::vector<double> sent(static_cast<std::size_t>(job.plan.world()));
  comm::run_local(
      static_cast<int>(job.plan.world()), {.timeout_s = 60}, [&](comm::Communicator& world) {
        const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
        trace::Recorder recorder;
        Engine engine(job.config, job.plan, world, *device, {.recorder = &recorder});
        recorder.start();
        const data::Batch batch = make_batch(job, world.rank(), ids);
        engine.train_step({.batch = batch, .step = 1});
        engine.run_stage([](Context&) {});  // behind a sync beside the step
        recorder.stop();
        for (const trace::Track& track : recorder.tracks()) {
          for (const trace::Span& span : track.spans()) {
            sent[static_cast<std::size_t>(world.rank())] +=
                span.collective < 0 ? 0.0 : static_cast<double>(track.collective(span).bytes);
          }
        }
      });
  return sent;
}

/// [ranks of a group]
std::vector<double> predicted_bytes(const Job& job) {
  topology::Cluster cluster;
  cluster.name = "threads";
  cluster.hosts = {{.count = 1, .ranks = job.plan.world()}};
  cluster.memory.ddr.value = 1e9;
  cluster.compute.gemm_fp32.value = 1e10;
  cluster.compute.copy.value = 1e10;
  cluster.compute.rows.points = {{.row_bytes = 64, .read = 1e9, .update = 5e8}};
  cluster.links.self.rank.value = 1e10;
  cluster.links.host.rank.value = 1e9;
  topology::check(cluster);
  const planner::Workload workload = planner::make_workload(job.config);
  const planner::MeshCluster mesh = planner::mesh_cluster(cluster, job.config.mesh);
  const planner::Estimator estimator(job.config, mesh, workload, job.plan.parts);
  std::vector<double> bytes;
  for (const planner::RankCost& rank : estimator.cost(job.plan).ranks) {
    bytes.push_back(rank.sent[1] + rank.sent[2]);
  }
  return bytes;
}

TEST(PredictedBytes, AreThoseOfAStepWhereIdsAreDealt) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Random random(seed);
    const Job job = random_job(random, IdKind::kDealt);
    const std::vector<double> sent = sent_bytes(job, IdKind::kDealt);
    const std::vector<double> predicted = predicted_bytes(job);
    for (std::size_t r = 0; r < sent.size(); ++r) {
      ASSERT_NEAR(predicted[r], sent[r], 1e-6 * sent[r])
          << "seed " << seed << ", rank " << r << " of " << sent.size() << "\n"
          << spec::plan_to_yaml(job.plan);
    }
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
    const std::vector<double> sent = sent_bytes(job, IdKind::kDealt);
    const std::vector<double> predicted = predicted_bytes(job);
    for (std::size_t r = 0; r < sent.size(); ++r) {
      ASSERT_NEAR(predicted[r], sent[r], 1e-6 * sent[r])
          << "seed " << seed << ", rank " << r << " of " << sent.size() << "\n"
          << spec::plan_to_yaml(job.plan);
    }
  }
  EXPECT_GT(copies, 5);
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
        const std::vector<double> sent = sent_bytes(job, IdKind::kDealt);
        const std::vector<double> predicted = predicted_bytes(job);
        for (std::size_t place = 0; place < predicted.size(); ++place) {
          double mean = 0.0;
          for (std::size_t r = place; r < sent.size(); r += predicted.size()) {
            mean += sent[r] / static_cast<double>(groups);
          }
          ASSERT_NEAR(predicted[place], mean, 1e-6 * mean)
              << to_string(form) << ", seed " << seed << ", place " << place << "\n"
              << spec::plan_to_yaml(job.plan);
        }
      }
    }
  }
}

/// Draws differ from their mean: some shards have tens of rows.
TEST(PredictedBytes, AreNearThoseOfAStepWhereIdsAreDrawn) {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    Random random(1000 + seed);
    const Job job = random_job(random, IdKind::kDrawn);
    const std::vector<double> sent = sent_bytes(job, IdKind::kDrawn);
    const std::vector<double> predicted = predicted_bytes(job);
    for (std::size_t r = 0; r < sent.size(); ++r) {
      EXPECT_NEAR(predicted[r], sent[r], 0.04 * sent[r])
          << "seed " << seed << ", rank " << r << " of " << sent.size() << "\n"
          << spec::plan_to_yaml(job.plan);
    }
  }
}

}  // namespace
}  // namespace weft::train
