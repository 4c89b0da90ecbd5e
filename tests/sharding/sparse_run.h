// A job of the sparse engine alone: ids go in, integer gradients come back, rows are updated.
#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/philox.h"
#include "weft/checkpoint/state_hash.h"
#include "weft/comm/local/local.h"
#include "weft/layout/row_sums.h"
#include "weft/planner/place.h"
#include "weft/sharding/sharded_embeddings.h"
#include "weft/tensor/stream.h"

namespace weft::sharding {

inline constexpr std::int64_t kParts = 8;

inline spec::Table make_table(const std::string& name, std::int64_t rows, std::int64_t dim) {
  spec::Table table;
  table.name = name;
  table.num_embeddings = rows;
  table.embedding_dim = dim;
  return table;
}

inline spec::SparseFeature make_feature(const std::string& name,
                                        const std::string& table,
                                        spec::Pooling pooling) {
  spec::SparseFeature feature;
  feature.name = feature.column = name;
  feature.table = table;
  feature.pooling = pooling;
  return feature;
}

/// Shapes that have gone wrong elsewhere: one row, fewer rows than ranks, an odd dim, a shared
/// table, weights, means, sequences, a feature that is always empty.
inline spec::Config make_config(spec::Sharding sharding, const spec::SparseOptimizer& optimizer) {
  spec::Config config;
  config.seed = 7;
  config.tables = {make_table("one", 1, 8), make_table("few", 3, 40), make_table("many", 97, 33)};
  config.sparse_features = {make_feature("a", "many", spec::Pooling::kSum),
                            make_feature("b", "few", spec::Pooling::kMean),
                            make_feature("c", "many", spec::Pooling::kSum),
                            make_feature("empty", "few", spec::Pooling::kSum),
                            make_feature("d", "one", spec::Pooling::kSum),
                            make_feature("s", "many", spec::Pooling::kNone)};
  config.sparse_features[2].weighted = true;
  for (spec::Table& table : config.tables) {
    table.sharding = sharding;
    table.optimizer = optimizer;
  }
  return config;
}

/// Sample `position` of batch `step`: lengths, ids and weights are functions of the position, so
/// every number of ranks sees the same batch. Bags of "b" have lengths 0, 1, 2, 4: a mean divides
/// integers exactly.
inline KeyedJaggedTensor make_batch(const spec::Config& config,
                                    std::int64_t step,
                                    Range positions,
                                    std::int64_t most_ids = 4) {
  KeyedJaggedTensor batch;
  batch.batch = positions.size();
  batch.offsets.push_back(0);
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    const spec::SparseFeature& feature = config.sparse_features[f];
    batch.keys.push_back(feature.name);
    const std::int64_t rows =
        config.tables[static_cast<std::size_t>(spec::table_index(config, feature))].num_embeddings;
    for (std::int64_t p = positions.begin; p < positions.end; ++p) {
      const auto random = philox(random_key(3, RandomPurpose::kTest, feature.name),
                                 static_cast<std::uint64_t>(p), static_cast<std::uint64_t>(step));
      constexpr std::array<std::int64_t, 4> kLengths = {0, 1, 2, 4};
      const std::int64_t length =
          feature.name == "empty" ? 0 : std::min(kLengths[random[0] % 4], most_ids);
      for (std::int64_t i = 0; i < length; ++i) {
        const auto draw = philox(random[1], static_cast<std::uint64_t>(i), 0);
        // A third of the ids are row 0: a row that nearly every sample hits.
        batch.values.push_back(draw[0] % 3 == 0 ? 0 : draw[1] % rows);
        batch.weights.push_back(feature.weighted ? static_cast<float>(1 + draw[2] % 3) : 1.0F);
      }
      batch.offsets.push_back(static_cast<std::int64_t>(batch.values.size()));
    }
  }
  return batch;
}

/// A small integer, a multiple of 4 so that means stay integers; a function of the global sample.
inline float gradient_value(std::int64_t step, std::int64_t position, std::int64_t column) {
  const auto random = philox(11, static_cast<std::uint64_t>(position * 1000 + column),
                             static_cast<std::uint64_t>(step));
  return 4.0F * (static_cast<float>(random[0] % 5) - 2.0F);
}

/// Integers, whose sums are exact, or numbers whose sums depend on the order of addition.
enum class Gradients { kIntegers, kRounded };

inline float gradient_value(Gradients kind,
                            std::int64_t step,
                            std::int64_t position,
                            std::int64_t column) {
  const float value = gradient_value(step, position, column);
  const auto twist = static_cast<float>((position * 37 + column * 11 + step) % 101);
  return kind == Gradients::kIntegers ? value : 0.013F * (value + 0.37F) * (1.0F + 0.17F * twist);
}

/// Pretended: half of the ranks on each of two hosts, the first of which has one more of an odd
/// number.
inline planner::RankLayout two_hosts(int ranks) {
  planner::RankLayout target{.ranks = ranks};
  for (int r = 0; r < ranks; ++r) {
    target.hosts.push_back(2 * r / ranks);
  }
  return target;
}

struct RunOptions {
  int ranks = 1;
  std::int64_t samples = 29;
  std::int64_t steps = 3;
  DeviceKind device = DeviceKind::kCpu;
  std::vector<std::int64_t> sizes = {};  ///< samples of each step, in place of the two above
  const spec::Plan* plan = nullptr;      ///< in place of the planner's for two hosts
  Gradients gradients = Gradients::kIntegers;
  std::int64_t most_ids = 4;  ///< of a bag
  int threads = 2;            ///< of a rank
  std::int64_t parts = kParts;
  std::optional<layout::RowSums> row_sums = {};  ///< in place of the rule's
  std::vector<int> hosts = {};                   ///< [ranks] as if they were on these
};

/// Hash of state after some steps, and the outputs of all lookups by (position, column).
struct RunResult {
  checkpoint::StateHash hash;
  std::vector<float> pooled;
  std::vector<float> sequences;
  std::vector<comm::Traffic::Entry> updates;  ///< [ranks] sent in the last step's update
  std::int64_t blocks = 0;                    ///< that rank 0 looked up in the last step
  std::int64_t lookups = 0;                   ///< the jobs that these were
};

/// Appends `own` of every rank, one behind the other, to `all` on rank 0.
inline void gather(Context& ctx,
                   comm::Communicator& world,
                   const std::vector<float>& own,
                   std::vector<float>& all) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(world.size()));
  const auto own_bytes = static_cast<std::int64_t>(own.size() * sizeof(float));
  world.all_gather(ctx, &own_bytes, bytes.data(), 8);
  const std::int64_t total = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  std::vector<float> received(static_cast<std::size_t>(total) / sizeof(float));
  world.all_gather_v(
      ctx,
      {.send = own.data(), .send_bytes = own_bytes, .recv = received.data(), .recv_bytes = bytes});
  if (world.rank() == 0) {
    all.insert(all.end(), received.begin(), received.end());
  }
}

inline void fill_gradients(SparseStep& sparse,
                           const KeyedJaggedTensor& batch,
                           std::int64_t step,
                           std::int64_t first_position,
                           Gradients kind = Gradients::kIntegers) {
  FeatureMatrices& gradients = sparse.gradients();
  for (std::int64_t b = 0; b < gradients.pooled.rows; ++b) {
    for (std::int64_t c = 0; c < gradients.pooled.cols; ++c) {
      gradients.pooled.row(b)[c] = gradient_value(kind, step, first_position + b, c);
    }
  }
  for (std::size_t f = 0; f < gradients.sequences.size(); ++f) {
    const Matrix<float>& rows = gradients.sequences[f];
    if (rows.cols == 0) {
      continue;
    }
    const JaggedView bags = batch.feature(static_cast<std::int64_t>(f));
    std::int64_t i = 0;
    for (std::int64_t b = 0; b < bags.batch(); ++b) {
      for (std::int64_t k = 0; k < bags.length(b); ++k, ++i) {
        for (std::int64_t c = 0; c < rows.cols; ++c) {
          rows.row(i)[c] = gradient_value(kind, step, first_position + b, 500 + 7 * k + c);
        }
      }
    }
  }
}

inline std::vector<float> values_of(const Matrix<float>& matrix) {
  return {matrix.data, matrix.data + matrix.rows * matrix.cols};
}

/// Each rank writes its own entry, where there are any.
inline void note_update(comm::Communicator& world,
                        const comm::Traffic::Entry& before,
                        const comm::Traffic::Entry& after,
                        RunResult& result) {
  if (!result.updates.empty()) {
    result.updates[static_cast<std::size_t>(world.rank())] = {
        .calls = after.calls - before.calls,
        .messages = after.messages - before.messages,
        .bytes = after.bytes - before.bytes,
        .cross_host_messages = after.cross_host_messages - before.cross_host_messages,
        .cross_host_bytes = after.cross_host_bytes - before.cross_host_bytes};
  }
}

/// Notes how many blocks of the first set were looked up, and in how many jobs.
inline void note_lookups(SparseStep& sparse, RunResult& result) {
  const ReplicaSetStep& step = sparse.set(0);
  result.blocks = 0;
  for (std::int64_t b = 0; b < step.input.incoming.blocks.size(); ++b) {
    result.blocks += step.input.incoming.blocks.at_place(b).lookup.bags > 0 ? 1 : 0;
  }
  result.lookups = std::ssize(step.lookups.front());
}

/// Runs the steps on the ranks of `world`; `result` is filled on rank 0.
inline void run_on(comm::Communicator& world,
                   const spec::Config& config,
                   const RunOptions& options,
                   RunResult& result) {
  spec::Plan plan =
      options.plan != nullptr ? *options.plan : planner::make_plan(config, two_hosts(world.size()));
  plan.parts = options.parts;
  planner::check_plan(plan, config);
  std::vector<std::int64_t> sizes = options.sizes;
  if (sizes.empty()) {
    sizes.assign(static_cast<std::size_t>(options.steps), options.samples);
  }
  const auto device = make_device({.kind = options.device, .threads = options.threads});
  ShardedEmbeddings embeddings(config, plan, world, *device, {.row_sums = options.row_sums});
  const auto sparse = embeddings.make_step();
  const auto stream = device->make_stream({.name = "test"});
  const auto stage = [&](const Stage& body) {
    stream->enqueue(body);
    stream->synchronize();
  };
  const std::vector<std::byte> control(8);
  const std::int64_t cuts = config.pipeline.cuts().count();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t size = sizes[i];
    const auto step = static_cast<std::int64_t>(i) + 1;
    const Range positions = rank_samples(size, options.parts, world.size(), world.rank());
    const KeyedJaggedTensor batch = make_batch(config, step, positions, options.most_ids);
    const BatchView view{.sparse = batch, .step = step, .global_size = size, .sample_ids = {}};
    stage([&](Context& ctx) { embeddings.exchange_counts(ctx, *sparse, view, control); });
    stage([&](Context& ctx) { embeddings.exchange_ids(ctx, *sparse); });
    for (std::int64_t cut = 0; cut < cuts; ++cut) {
      stage([&](Context& ctx) { embeddings.lookup(ctx, *sparse, cut); });
      stage([&](Context& ctx) { embeddings.output_dist(ctx, *sparse, cut); });
    }
    if (world.rank() == 0) {
      note_lookups(*sparse, result);
    }
    stage([&](Context& ctx) {
      gather(ctx, world, values_of(sparse->outputs().pooled), result.pooled);
      for (const Matrix<float>& sequence : sparse->outputs().sequences) {
        gather(ctx, world, values_of(sequence), result.sequences);
      }
      fill_gradients(*sparse, batch, step, positions.begin, options.gradients);
    });
    stage([&](Context& ctx) { embeddings.coalesce(ctx, *sparse); });
    for (std::int64_t cut = 0; cut < cuts; ++cut) {
      stage([&](Context& ctx) { embeddings.grad_dist(ctx, *sparse, cut); });
    }
    stage([&](Context& ctx) {
      const comm::Traffic::Entry before = embeddings.vector_traffic().total();
      embeddings.update(ctx, *sparse,
                        {.learning_rate_factor = 1.0, .step = step, .seed = config.seed});
      note_update(world, before, embeddings.vector_traffic().total(), result);
      if (config.mesh.syncs_after(step) || i + 1 == sizes.size()) {
        embeddings.sync_replicas(ctx, step);
      }
    });
  }
  std::vector<const StateSource*> sources;
  for (embedding::TableShard* shard : embeddings.shards()) {
    sources.push_back(shard);
  }
  std::vector<const StateSource*> copied = sources;
  for (embedding::TableShard* hot : embeddings.hot_shards()) {
    copied.push_back(hot);
  }
  stage([&](Context& ctx) {
    embeddings.store_hot_rows(ctx);
    checkpoint::compare_replicas(world, ctx, copied);
    const checkpoint::StateHash hash = checkpoint::hash_state(world, ctx, sources);
    if (world.rank() == 0) {
      result.hash = hash;
    }
  });
}

/// The same on ranks as threads.
inline RunResult run(const spec::Config& config, const RunOptions& options) {
  RunResult result;
  result.updates.resize(static_cast<std::size_t>(options.ranks));
  comm::run_local(options.ranks, {.timeout_s = 60, .hosts = options.hosts},
                  [&](comm::Communicator& world) { run_on(world, config, options, result); });
  return result;
}

inline spec::SparseOptimizer make_optimizer(SparseOptimizerKind kind) {
  spec::SparseOptimizer optimizer;
  optimizer.type = kind;
  optimizer.learning_rate = 0.05;
  return optimizer;
}

inline constexpr std::array<spec::Sharding, 7> kShardings = {
    spec::Sharding::kTableWise,    spec::Sharding::kRowWise,      spec::Sharding::kColumnWise,
    spec::Sharding::kDataParallel, spec::Sharding::kTableRowWise, spec::Sharding::kTableColumnWise,
    spec::Sharding::kGridShard};

inline constexpr std::array<SparseOptimizerKind, 5> kSparseOptimizers = {
    SparseOptimizerKind::kSgd, SparseOptimizerKind::kAdagrad, SparseOptimizerKind::kRowWiseAdagrad,
    SparseOptimizerKind::kAdam, SparseOptimizerKind::kRowWiseAdam};

/// Rows start at zero and move by integers, so pooled sums are exact in any order too.
inline spec::Config make_integer_config(spec::Sharding sharding) {
  spec::SparseOptimizer sgd = make_optimizer(SparseOptimizerKind::kSgd);
  sgd.learning_rate = 1.0;
  spec::Config config = make_config(sharding, sgd);
  for (spec::Table& table : config.tables) {
    table.init = spec::TableInit::kZero;
  }
  return config;
}

/// Two runs that end with the same bits.
inline void expect_equal(const RunResult& got, const RunResult& expected, const std::string& what) {
  EXPECT_EQ(got.hash, expected.hash) << what;
  EXPECT_EQ(got.pooled, expected.pooled) << what;
  EXPECT_EQ(got.sequences, expected.sequences) << what;
}

}  // namespace weft::sharding
