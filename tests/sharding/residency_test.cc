// What the stages ask of a store that keeps some rows elsewhere: the rows that a batch reads,
// before its first lookup, until its update or its release.
#include "weft/storage/residency.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/sparse_run.h"
#include "tests/sharding/watching_residency.h"
#include "weft/base/error.h"

namespace weft::sharding {
namespace {

constexpr std::int64_t kSamplesOfAStep = 29;

/// The rows of a shard that the samples of all ranks read in a step.
std::set<std::int64_t> rows_read(const spec::Config& config,
                                 const embedding::TableShard& shard,
                                 std::int64_t step) {
  const KeyedJaggedTensor batch = make_batch(config, step, {0, kSamplesOfAStep});
  std::set<std::int64_t> rows;
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    if (config.sparse_features[f].table != shard.table().name) {
      continue;
    }
    const std::int64_t begin = batch.offsets[f * kSamplesOfAStep];
    const std::int64_t end = batch.offsets[(f + 1) * kSamplesOfAStep];
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = batch.values[static_cast<std::size_t>(i)];
      if (shard.rows().contains(row)) {
        rows.insert(shard.rows().index(row));
      }
    }
  }
  return rows;
}

/// One rank of a job with a watcher at every shard.
class Watched {
 public:
  Watched(comm::Communicator& world, const spec::Config& config)
      : world_(world),
        config_(config),
        plan_(planner::make_plan(config, two_hosts(world.size()))),
        device_(make_device({.threads = 1})),
        stream_(device_->make_stream({.name = "test"})) {
    plan_.parts = kParts;
    embeddings_ = std::make_unique<ShardedEmbeddings>(config_, plan_, world_, *device_);
    for (embedding::TableShard* shard : embeddings_->shards()) {
      watchers_.push_back(std::make_unique<WatchingResidency>());
      shard->set_residency(watchers_.back().get());
    }
    sparse_ = embeddings_->make_step();
  }

  [[nodiscard]] std::vector<embedding::TableShard*> shards() const { return embeddings_->shards(); }

  [[nodiscard]] WatchingResidency& watcher(std::size_t shard) { return *watchers_[shard]; }

  void release() { embeddings_->release(*sparse_); }

  /// To the lookup.
  void forward(std::int64_t step) {
    const Range positions = rank_samples(kSamplesOfAStep, kParts, world_.size(), world_.rank());
    batch_ = make_batch(config_, step, positions);
    stage([&](Context& ctx) {
      embeddings_->exchange_counts(
          ctx, *sparse_,
          {.sparse = batch_, .step = step, .global_size = kSamplesOfAStep, .sample_ids = {}},
          std::vector<std::byte>(8));
      embeddings_->exchange_ids(ctx, *sparse_);
      embeddings_->fetch(ctx, *sparse_);
    });
    stage([&](Context& ctx) {
      embeddings_->lookup(ctx, *sparse_);
      embeddings_->output_dist(ctx, *sparse_);
    });
  }

  /// From there to the update.
  void backward(std::int64_t step) {
    const Range positions = rank_samples(kSamplesOfAStep, kParts, world_.size(), world_.rank());
    stage([&](Context& ctx) {
      fill_gradients(*sparse_, batch_, step, positions.begin);
      embeddings_->coalesce(ctx, *sparse_);
      embeddings_->grad_dist(ctx, *sparse_);
      embeddings_->update(ctx, *sparse_,
                          {.learning_rate_factor = 1.0, .step = step, .seed = config_.seed});
    });
  }

 private:
  void stage(const Stage& body) {
    stream_->enqueue(body);
    stream_->synchronize();
  }

  comm::Communicator& world_;
  spec::Config config_;
  spec::Plan plan_;
  std::vector<std::unique_ptr<WatchingResidency>> watchers_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<ShardedEmbeddings> embeddings_;
  KeyedJaggedTensor batch_;
  std::unique_ptr<SparseStep> sparse_;
};

/// Every sharding that has no copies on all ranks, bags added at the owner and at the sample.
std::vector<spec::Config> configs() {
  std::vector<spec::Config> all;
  for (const spec::Sharding sharding : kShardings) {
    if (sharding == spec::Sharding::kDataParallel) {
      continue;
    }
    all.push_back(make_config(sharding, make_optimizer(SparseOptimizerKind::kRowWiseAdagrad)));
    if (sharding == spec::Sharding::kRowWise || sharding == spec::Sharding::kGridShard) {
      all.push_back(all.back());
      for (spec::Table& table : all.back().tables) {
        table.pooled_at = spec::PooledAt::kSample;
      }
    }
  }
  return all;
}

TEST(Residency, IsAskedForTheRowsOfABatchUntilItsUpdate) {
  for (const spec::Config& config : configs()) {
    for (const int ranks : {1, 3, 4}) {
      comm::run_local(ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
        Watched job(world, config);
        for (std::int64_t step = 1; step <= 3; ++step) {
          job.forward(step);
          for (std::size_t s = 0; s < job.shards().size(); ++s) {
            EXPECT_EQ(job.watcher(s).held(), 1);
          }
          job.backward(step);
        }
        for (std::size_t s = 0; s < job.shards().size(); ++s) {
          const std::vector<WatchingResidency::Asked> asked = job.watcher(s).released();
          ASSERT_EQ(asked.size(), 3U);
          for (std::int64_t step = 1; step <= 3; ++step) {
            const WatchingResidency::Asked& one = asked[static_cast<std::size_t>(step - 1)];
            const std::string where = fmt::format("sharding {}, {} ranks, table {}, step {}",
                                                  static_cast<int>(config.tables[0].sharding),
                                                  ranks, job.shards()[s]->table().name, step);
            EXPECT_EQ(one.rows, rows_read(config, *job.shards()[s], step)) << where;
            EXPECT_GT(one.late_calls, 0) << where;
            EXPECT_EQ(one.how, storage::Release::kUpdated) << where;
          }
        }
      });
    }
  }
}

TEST(Residency, IsReleasedOnceWhereNothingIsUpdated) {
  const spec::Config config = configs().front();
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    Watched job(world, config);
    job.forward(1);
    job.release();
    job.release();
    job.forward(2);
    job.backward(2);
    job.release();
    for (std::size_t s = 0; s < job.shards().size(); ++s) {
      const std::vector<WatchingResidency::Asked> asked = job.watcher(s).released();
      ASSERT_EQ(asked.size(), 2U);
      EXPECT_EQ(asked[0].how, storage::Release::kUnchanged);
      EXPECT_EQ(asked[1].how, storage::Release::kUpdated);
    }
  });
}

// Their updates touch rows that only other ranks' samples have read.
TEST(Residency, IsRefusedForCopiesOnAllRanks) {
  const spec::Config config =
      make_config(spec::Sharding::kDataParallel, make_optimizer(SparseOptimizerKind::kSgd));
  comm::run_local(1, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto forward = [&] {
      Watched job(world, config);
      job.forward(1);
    };
    EXPECT_THROW(forward(), Error);
  });
}

}  // namespace
}  // namespace weft::sharding
