// Several batches in flight in the tables, and steps that work in the caller's memory.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/sparse_run.h"
#include "weft/base/error.h"

namespace weft::sharding {
namespace {

/// Every path: whole bags and copies, cut columns, split bags, unique rows and hot rows of both.
spec::Config every_path(const spec::Codecs& codecs) {
  spec::Config config =
      make_config(spec::Sharding::kTableWise, make_optimizer(SparseOptimizerKind::kAdagrad));
  config.codecs = codecs;
  const auto add = [&config](const std::string& name, spec::Sharding sharding,
                             spec::PooledAt pooled_at) {
    spec::Table table = make_table(name, 61, 48);
    table.optimizer = config.tables.front().optimizer;
    table.sharding = sharding;
    table.pooled_at = pooled_at;
    config.tables.push_back(table);
    config.sparse_features.push_back(make_feature(name + "/mean", name, spec::Pooling::kMean));
    config.sparse_features.push_back(make_feature(name + "/seq", name, spec::Pooling::kNone));
  };
  config.tables[1].sharding = spec::Sharding::kDataParallel;
  add("columns", spec::Sharding::kColumnWise, spec::PooledAt::kOwner);
  add("split", spec::Sharding::kRowWise, spec::PooledAt::kOwner);
  add("rows", spec::Sharding::kRowWise, spec::PooledAt::kSample);
  add("grid", spec::Sharding::kGridShard, spec::PooledAt::kOwner);
  return config;
}

spec::Plan plan_of_every_path(const spec::Config& config, int ranks) {
  spec::Plan plan = planner::make_plan(config, two_hosts(ranks));
  plan.parts = kParts;
  plan.tables[4].hot = {{0, 3}, {7, 8}};
  plan.tables[5].hot = {{0, 5}};
  planner::check_plan(plan, config);
  return plan;
}

const spec::Codecs kStochasticInt8{.forward = CodecFormat::kInt8,
                                   .backward = CodecFormat::kInt8,
                                   .group_size = 16,
                                   .rounding = CodecRounding::kStochastic};

/// One rank of a job whose steps a test calls one by one.
class Job {
 public:
  Job(comm::Communicator& world, const spec::Config& config, DeviceKind kind)
      : world_(world),
        config_(config),
        plan_(plan_of_every_path(config, world.size())),
        device_(make_device({.kind = kind, .threads = 2})),
        stream_(device_->make_stream({.name = "test"})),
        embeddings_(config_, plan_, world, *device_, {}) {}

  ~Job() { stream_->synchronize(); }

  ShardedEmbeddings& embeddings() { return embeddings_; }

  void stage(const Stage& body) {
    stream_->enqueue(body);
    stream_->synchronize();
  }

  /// This rank's samples of a step's batch.
  [[nodiscard]] Range positions(std::int64_t step) const {
    return rank_samples(size_of(step), kParts, world_.size(), world_.rank());
  }

  [[nodiscard]] KeyedJaggedTensor batch(std::int64_t step) const {
    return make_batch(config_, step, positions(step));
  }

  void exchange_ids(SparseStep& sparse, const KeyedJaggedTensor& batch, std::int64_t step) {
    const BatchView view{
        .sparse = batch, .step = step, .global_size = size_of(step), .sample_ids = {}};
    stage([&](Context& ctx) {
      embeddings_.exchange_counts(ctx, sparse, view, std::vector<std::byte>(8));
      embeddings_.exchange_ids(ctx, sparse);
    });
  }

  void forward(SparseStep& sparse) {
    stage([&](Context& ctx) { embeddings_.lookup(ctx, sparse); });
    stage([&](Context& ctx) { embeddings_.output_dist(ctx, sparse); });
  }

  void backward(SparseStep& sparse, std::int64_t step) {
    stage([&](Context& ctx) { embeddings_.grad_dist(ctx, sparse); });
    stage([&](Context& ctx) {
      embeddings_.update(ctx, sparse,
                         {.learning_rate_factor = 1.0, .step = step, .seed = config_.seed});
    });
  }

  checkpoint::StateHash hash() {
    checkpoint::StateHash hash;
    stage([&](Context& ctx) {
      embeddings_.store_hot_rows(ctx);
      std::vector<const StateSource*> sources;
      for (embedding::TableShard* shard : embeddings_.shards()) {
        sources.push_back(shard);
      }
      hash = checkpoint::hash_state(world_, ctx, sources);
    });
    return hash;
  }

 private:
  /// Global batches grow and shrink.
  static std::int64_t size_of(std::int64_t step) { return 20 + 13 * (step % 3); }

  comm::Communicator& world_;
  spec::Config config_;
  spec::Plan plan_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  ShardedEmbeddings embeddings_;
};

constexpr std::int64_t kStepsInTurns = 4;

/// Whether the ids of the next batch are exchanged and coalesced before this one's gradients are.
enum class Order { kOneByOne, kIdsAhead };

checkpoint::StateHash run_in(Order order, const spec::Config& config, int ranks, DeviceKind kind) {
  checkpoint::StateHash hash;
  comm::run_local(ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    Job job(world, config, kind);
    std::array<std::unique_ptr<SparseStep>, 2> steps = {job.embeddings().make_step(),
                                                        job.embeddings().make_step()};
    std::array<KeyedJaggedTensor, 2> batches;
    const auto begin = [&](std::int64_t step) {
      const auto i = static_cast<std::size_t>(step % 2);
      batches[i] = job.batch(step);
      job.exchange_ids(*steps[i], batches[i], step);
      job.stage([&](Context& ctx) { job.embeddings().coalesce(ctx, *steps[i]); });
    };
    for (std::int64_t step = 1; step <= kStepsInTurns; ++step) {
      SparseStep& sparse = *steps[static_cast<std::size_t>(step % 2)];
      if (order == Order::kOneByOne || step == 1) {
        begin(step);
      }
      job.forward(sparse);
      if (order == Order::kIdsAhead && step < kStepsInTurns) {
        begin(step + 1);
      }
      job.stage([&](Context&) {
        fill_gradients(sparse, batches[static_cast<std::size_t>(step % 2)], step,
                       job.positions(step).begin, Gradients::kRounded);
      });
      job.backward(sparse, step);
    }
    const checkpoint::StateHash own = job.hash();
    if (world.rank() == 0) {
      hash = own;
    }
  });
  return hash;
}

TEST(SparseStep, TwoMayBeAlive) {
  for (const spec::Codecs& codecs : {spec::Codecs{}, kStochasticInt8}) {
    const spec::Config config = every_path(codecs);
    for (const int ranks : {1, 3, 4}) {
      const auto expected = run_in(Order::kOneByOne, config, ranks, DeviceKind::kCpu);
      for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCheck}) {
        EXPECT_EQ(run_in(Order::kIdsAhead, config, ranks, kind), expected) << ranks << " ranks";
      }
    }
  }
}

/// Matrices of the shapes of `like`, in vectors.
struct Memory {
  explicit Memory(const FeatureMatrices& like) : sequences(like.sequences.size()) {
    const auto make = [](const Matrix<float>& m, std::vector<float>& values) {
      values.assign(static_cast<std::size_t>(m.rows * m.cols), -1.0F);
      return matrix(values.data(), m.rows, m.cols);
    };
    matrices.pooled = make(like.pooled, pooled);
    for (std::size_t f = 0; f < sequences.size(); ++f) {
      matrices.sequences.push_back(make(like.sequences[f], sequences[f]));
    }
  }

  friend bool operator==(const Memory& a, const Memory& b) {
    return a.pooled == b.pooled && a.sequences == b.sequences;
  }

  std::vector<float> pooled;
  std::vector<std::vector<float>> sequences;
  FeatureMatrices matrices;
};

void copy(const FeatureMatrices& from, const FeatureMatrices& to) {
  std::copy_n(from.pooled.data, from.pooled.rows * from.pooled.cols, to.pooled.data);
  for (std::size_t f = 0; f < from.sequences.size(); ++f) {
    const Matrix<float>& m = from.sequences[f];
    std::copy_n(m.data, m.rows * m.cols, to.sequences[f].data);
  }
}

/// Runs in the caller's memory beside a step of its own, over one batch; returns whether the
/// gradients are as they were.
bool expect_callers_memory(const spec::Config& config, int ranks, GradientUse use) {
  std::atomic<bool> kept = true;  // ranks are threads
  comm::run_local(ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    Job plain(world, config, DeviceKind::kCpu);
    Job job(world, config, DeviceKind::kCpu);
    const auto expected = plain.embeddings().make_step();
    const auto sparse = job.embeddings().make_step(
        {.outputs = MatrixOwner::kCaller, .gradients = MatrixOwner::kCaller, .gradient_use = use});
    for (std::int64_t step = 1; step <= 3; ++step) {
      const KeyedJaggedTensor batch = job.batch(step);
      plain.exchange_ids(*expected, batch, step);
      plain.forward(*expected);
      fill_gradients(*expected, batch, step, job.positions(step).begin, Gradients::kRounded);

      job.exchange_ids(*sparse, batch, step);
      const Memory outputs(sparse->outputs());
      const Memory gradients(sparse->gradients());
      sparse->use_outputs(outputs.matrices);
      job.forward(*sparse);
      EXPECT_EQ(outputs.pooled, values_of(expected->outputs().pooled));
      for (std::size_t f = 0; f < outputs.sequences.size(); ++f) {
        EXPECT_EQ(outputs.sequences[f], values_of(expected->outputs().sequences[f]));
      }
      copy(expected->gradients(), gradients.matrices);
      Memory before(sparse->gradients());
      copy(expected->gradients(), before.matrices);
      sparse->use_gradients(gradients.matrices);
      job.stage([&](Context& ctx) { job.embeddings().coalesce(ctx, *sparse); });
      job.backward(*sparse, step);
      if (!(gradients == before)) {
        kept = false;
      }
      plain.stage([&](Context& ctx) { plain.embeddings().coalesce(ctx, *expected); });
      plain.backward(*expected, step);
    }
    const checkpoint::StateHash own = job.hash();
    const checkpoint::StateHash other = plain.hash();
    if (world.rank() == 0) {
      EXPECT_EQ(own, other);
    }
  });
  return kept;
}

TEST(SparseStep, WorksInTheCallersMemory) {
  for (const spec::Codecs& codecs : {spec::Codecs{}, kStochasticInt8}) {
    for (const int ranks : {1, 3}) {
      const spec::Config config = every_path(codecs);
      EXPECT_TRUE(expect_callers_memory(config, ranks, GradientUse::kKeep)) << ranks << " ranks";
      EXPECT_FALSE(expect_callers_memory(config, ranks, GradientUse::kChange)) << ranks << " ranks";
    }
  }
}

TEST(SparseStep, OtherShapesAreRefused) {
  const spec::Config config = every_path({});
  comm::run_local(1, {.timeout_s = 60}, [&](comm::Communicator& world) {
    Job job(world, config, DeviceKind::kCpu);
    const auto sparse = job.embeddings().make_step({.outputs = MatrixOwner::kCaller});
    const KeyedJaggedTensor batch = job.batch(1);
    job.exchange_ids(*sparse, batch, 1);
    const auto expect_refused = [&](const FeatureMatrices& matrices, const std::string& what) {
      try {
        sparse->use_outputs(matrices);
        FAIL() << "accepted: " << what;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUsage);
        EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
      }
    };
    const Memory memory(sparse->outputs());
    FeatureMatrices wrong = memory.matrices;
    --wrong.pooled.rows;
    expect_refused(wrong, "outputs of pooled features: a matrix of");
    wrong = memory.matrices;
    ++wrong.sequences[5].rows;
    expect_refused(wrong, "outputs of feature s: a matrix of");
    wrong = memory.matrices;
    wrong.sequences.pop_back();
    expect_refused(wrong, "sequences are given for");
    expect_refused(sparse->outputs(), "outputs of pooled features: a matrix of");  // no memory
    sparse->use_outputs(memory.matrices);
  });
}

// The matrices of one batch are not written for the next.
TEST(SparseStep, EveryBatchNeedsTheCallersMatrices) {
  const spec::Config config = every_path({});
  comm::run_local(1, {.timeout_s = 60}, [&](comm::Communicator& world) {
    Job job(world, config, DeviceKind::kCpu);
    const auto sparse = job.embeddings().make_step({.outputs = MatrixOwner::kCaller});
    for (std::int64_t step = 1; step <= 2; ++step) {
      const KeyedJaggedTensor batch = job.batch(step);
      job.exchange_ids(*sparse, batch, step);
      const Memory memory(sparse->outputs());
      if (step == 1) {
        sparse->use_outputs(memory.matrices);
        job.stage([&](Context& ctx) { job.embeddings().lookup(ctx, *sparse); });
      } else {
        job.stage(
            [&](Context& ctx) { EXPECT_THROW(job.embeddings().lookup(ctx, *sparse), Error); });
      }
    }
  });
}

TEST(SparseStep, CountsClipsPerBatch) {
  spec::Config config;
  config.tables = {make_table("t", 10, 32)};
  config.sparse_features = {make_feature("f", "t", spec::Pooling::kSum)};
  config.codecs = {.forward = CodecFormat::kFp32, .backward = CodecFormat::kFp16};
  comm::run_local(1, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const spec::Plan plan = planner::make_plan(config, 1);
    const auto device = make_device({.threads = 1});
    ShardedEmbeddings embeddings(config, plan, world, *device, {});
    const auto sparse = embeddings.make_step();
    Context ctx{.device = device.get(), .pool = &device->pool()};
    std::int64_t total = 0;
    for (std::int64_t step = 1; step <= 3; ++step) {
      KeyedJaggedTensor batch = make_batch(config, step, {0, 8});
      embeddings.exchange_counts(
          ctx, *sparse, {.sparse = batch, .step = step, .global_size = 8, .sample_ids = {}},
          std::vector<std::byte>(8));
      EXPECT_EQ(sparse->batch_clips(0), TableClips{});
      embeddings.exchange_ids(ctx, *sparse);
      embeddings.lookup(ctx, *sparse);
      embeddings.output_dist(ctx, *sparse);
      std::fill_n(sparse->gradients().pooled.data, 8 * 32, 1.0F);
      std::fill_n(sparse->gradients().pooled.data, step, 1e9F);  // fp16 ends at 65504
      embeddings.coalesce(ctx, *sparse);
      embeddings.grad_dist(ctx, *sparse);
      total += step;
      EXPECT_EQ(sparse->batch_clips(0).backward.clipped, step);
      EXPECT_EQ(sparse->codec_clips(0).backward.clipped, total);
      EXPECT_EQ(sparse->codec_clips(0).forward, kernels::CodecClips{});
    }
  });
}

}  // namespace
}  // namespace weft::sharding
