// A small job with every kind of feature, run on ranks as threads, and what tests ask of it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/comm/local/local.h"
#include "weft/planner/place.h"
#include "weft/spec/plan.h"
#include "weft/spec/yaml.h"
#include "weft/train/job.h"

namespace weft::train {

// Shapes: a table of one row, one of three, a table that two features share, per-id weights, means,
// a sequence with target attention, dims that are no multiple of 16, a column that is often empty.
inline constexpr const char* kJob = R"(
version: 1
seed: 3
batch_size: 61
data:
  format: synthetic
  synthetic:
    samples: 430
    eval_samples: 150
    dense_columns: 4
    visitors: 50
    columns:
      - {name: one, cardinality: 1}
      - {name: few, cardinality: 3}
      - {name: item, cardinality: 300}
      - {name: seen, cardinality: 300, min_length: 1, max_length: LENGTH, missing: 0.2}
      - {name: tags, cardinality: 40, min_length: 1, max_length: LENGTH, weighted: true}
      - {name: rare, cardinality: 1000, missing: 0.95}
      - {name: past, cardinality: 300, min_length: 1, max_length: 4, missing: 0.1}
dense_features:
  - {name: "d{1..4}", transform: log}
sparse_features:
  - {name: one, mapping: identity}
  - {name: few, mapping: identity}
  - {name: item, mapping: identity}
  - {name: seen, table: item, mapping: identity, pooling: mean}
  - {name: tags, mapping: modulo, weighted: true}
  - {name: rare, mapping: hash}
  - {name: past, table: item, mapping: identity, pooling: none, target: item}
tables:
  - {name: one, num_embeddings: 1, embedding_dim: 24}
  - {name: few, num_embeddings: 3, embedding_dim: 24}
  - {name: item, num_embeddings: 300, embedding_dim: 24}
  - {name: tags, num_embeddings: 40, embedding_dim: 24}
  - {name: rare, num_embeddings: 500, embedding_dim: 24}
model: {type: dlrm, bottom_mlp: [16, 24], top_mlp: [16], attention_mlp: [8]}
dense_optimizer: {type: adam, learning_rate: 0.01, clip_norm: 5.0}
schedule: {warmup_steps: 3}
train: {log_every: 2, timeout_s: 60}
)";

/// The job as a configuration. `longest` is the longest bag of the pooled features: 1 keeps
/// row_wise from splitting bags.
inline spec::Config make_job(const std::vector<std::string>& overrides = {}, int longest = 3) {
  std::string text = kJob;
  for (std::size_t at = text.find("LENGTH"); at != std::string::npos; at = text.find("LENGTH")) {
    text.replace(at, 6, std::to_string(longest));
  }
  return spec::parse_config(text, "job", overrides);
}

/// Overrides that give every table one sharding.
inline std::vector<std::string> all_tables(const std::string& key, const std::string& value) {
  std::vector<std::string> overrides;
  for (const char* table : {"one", "few", "item", "tags", "rare"}) {
    overrides.push_back(std::string("tables.") + table + "." + key + "=" + value);
  }
  return overrides;
}

inline std::vector<std::string> joined(std::vector<std::string> a,
                                       const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Overrides for a mesh of so many groups.
inline std::vector<std::string> mesh(int groups, const std::string& sync) {
  return {"mesh.groups=" + std::to_string(groups), "mesh.sync=" + sync};
}

/// Returns the same job with all rows in memory, under `sync` on the cpu device.
inline spec::Config in_memory(spec::Config config) {
  for (spec::Table& table : config.tables) {
    table.memory = {};
  }
  config.tiers = {};
  config.pipeline = {.schedule = spec::PipelineSchedule::kSync};
  config.train.device = spec::DeviceChoice::kCpu;
  return config;
}

inline JobOptions job_options(const spec::Config& config) {
  JobOptions options;
  options.config = config;
  return options;
}

/// Trains on ranks as threads; the summary of rank 0. `hosts`: where they pretend to be.
inline Summary train_on(int ranks, const JobOptions& options, const std::vector<int>& hosts = {}) {
  Summary summary;
  comm::run_local(ranks, {.timeout_s = options.config.train.timeout_s, .hosts = hosts},
                  [&](comm::Communicator& world) {
                    Summary own = run_train(world, options);
                    if (world.rank() == 0) {
                      summary = std::move(own);
                    }
                  });
  return summary;
}

/// Trains on ranks as threads that pass for those of hosts: [ranks] host of each.
inline Summary train_on_hosts(const std::vector<std::int64_t>& hosts,
                              JobOptions options,
                              const std::string& folder) {
  const auto ranks = static_cast<int>(hosts.size());
  options.plan_file = folder + "/plan.yaml";
  std::ofstream(options.plan_file)
      << spec::plan_to_yaml(planner::make_plan(options.config, {.ranks = ranks, .hosts = hosts}));
  return train_on(ranks, options);
}

/// Options with a plan file in which row 0 and `rows` of a table are hot, where it has some of
/// these.
inline JobOptions with_hot_rows(JobOptions options,
                                int ranks,
                                const Range& rows,
                                const std::string& folder) {
  spec::Plan plan = planner::make_plan(options.config, ranks);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const std::int64_t all = options.config.tables[t].num_embeddings;
    if (rows.begin < all && plan.tables[t].sharding != spec::Sharding::kDataParallel) {
      plan.tables[t].hot = {{0, 1}, {rows.begin, std::min(rows.end, all)}};
    }
  }
  options.plan_file = folder + "/plan-" + std::to_string(rows.begin) + ".yaml";
  std::ofstream(options.plan_file) << spec::plan_to_yaml(plan);
  return options;
}

/// Two trainings that end with the same bits.
inline void expect_same(const Summary& got, const Summary& expected, const std::string& what) {
  EXPECT_EQ(got.weights_hash, expected.weights_hash) << what;
  EXPECT_EQ(got.state_hash, expected.state_hash) << what;
  EXPECT_EQ(got.lifetime_ne, expected.lifetime_ne) << what;
  ASSERT_TRUE(got.eval.has_value()) << what;
  EXPECT_EQ(got.eval->tasks.front().auc, expected.eval->tasks.front().auc) << what;
  EXPECT_EQ(got.eval->tasks.front().ne, expected.eval->tasks.front().ne) << what;
}

/// The message of the Error of this code that `run` ends with.
inline std::string message_of(const std::function<void()>& run,
                              ErrorCode code = ErrorCode::kConfig) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

/// Warnings with some words, while it lives.
class Warnings {
 public:
  explicit Warnings(std::string_view words) : words_(words) {
    set_log_sink([this](LogLevel level, std::string_view text) {
      const std::scoped_lock lock(mutex_);
      if (level == LogLevel::kWarning && text.find(words_) != std::string_view::npos) {
        texts_.emplace_back(text);
      }
    });
  }

  ~Warnings() { set_log_sink(nullptr); }

  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  [[nodiscard]] std::vector<std::string> all() const {
    const std::scoped_lock lock(mutex_);
    return texts_;
  }

  /// Those since it was last asked.
  std::vector<std::string> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(texts_, {});
  }

 private:
  mutable std::mutex mutex_;
  std::string words_;
  std::vector<std::string> texts_;
};

/// A folder that is removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-train-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }

  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] std::string path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace weft::train
