#include "bench/plan_cases.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/pipeline/schedule.h"
#include "weft/planner/place.h"
#include "weft/spec/yaml.h"

namespace weft::bench {
namespace {

using spec::Sharding;

/// Of one group in memory, at most and at least.
constexpr std::int64_t kIds = std::int64_t{1} << 23;
constexpr std::int64_t kBatches = 24;

PlanModel narrow() {
  return {.name = "dlrm_d16",
          .tables = 26,
          .dims = {16},
          .rows = {1'000'000, 300'000, 100'000, 500'000, 200'000},
          .lengths = {1, 1, 1, 2, 1, 4},
          .optimizer = "sgd",
          .dense = "{type: dlrm, bottom_mlp: [64, 16], top_mlp: [64]}"};
}

PlanModel wide() {
  return {.name = "dlrm_d64",
          .tables = 8,
          .dims = {64},
          .rows = {1'000'000, 100'000, 600'000, 200'000},
          .lengths = {20, 5, 1, 10, 2, 20, 1, 8},
          .optimizer = "row_wise_adagrad",
          .dense = "{type: dlrm, bottom_mlp: [128, 64], top_mlp: [128, 64]}"};
}

PlanModel crossed() {
  return {.name = "dcnv2_d32",
          .tables = 12,
          .dims = {32},
          .rows = {400'000, 100'000, 800'000},
          .lengths = {3, 1, 10, 1},
          .optimizer = "adagrad",
          .dense =
              "{type: dcnv2, bottom_mlp: [64, 32], cross_layers: 2, cross_rank: 64, "
              "top_mlp: [128, 64]}"};
}

// ---- held out: other interactions, widths, optimizers, types of rows, lengths of bags -----------

PlanModel factorised() {
  return {.name = "deepfm_d32_adam",
          .held_out = true,
          .tables = 10,
          .dims = {32},
          .rows = {300'000, 800'000, 50'000},
          .lengths = {30, 1, 60, 5},
          .optimizer = "adam",
          .dense = "{type: deepfm, bottom_mlp: [32], top_mlp: [64]}"};
}

PlanModel half() {
  return {.name = "dlrm_d128_bf16",
          .held_out = true,
          .tables = 6,
          .dims = {128},
          .rows = {500'000, 1'500'000, 100'000},
          .lengths = {50, 4, 1},
          .optimizer = "row_wise_adagrad",
          .dtype = "bf16",
          .dense = "{type: dlrm, bottom_mlp: [128], top_mlp: [64], compute: bf16}"};
}

PlanModel mixed_widths() {
  return {.name = "dcnv2_mixed",
          .held_out = true,
          .tables = 16,
          .dims = {16, 128, 32, 64},
          .rows = {1'000'000, 200'000, 600'000},
          .lengths = {10, 1, 40, 2, 5},
          .optimizer = "sgd",
          .dense =
              "{type: dcnv2, bottom_mlp: [16], cross_layers: 1, cross_rank: 16, "
              "top_mlp: [32]}"};
}

PlanModel sequential() {
  return {.name = "dlrm_sequences",
          .held_out = true,
          .tables = 8,
          .dims = {32},
          .rows = {1'000'000, 300'000},
          .lengths = {1, 2, 12, 20},
          .sequences = 4,
          .optimizer = "sgd",
          .dense = "{type: dlrm, bottom_mlp: [32], top_mlp: [64], sequence: mean}"};
}

std::vector<std::int64_t> cycle(const std::vector<std::int64_t>& values, std::int64_t count) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) {
    all.push_back(values[static_cast<std::size_t>(i) % values.size()]);
  }
  return all;
}

spec::Config config_of(const PlanGroup& group) {
  const PlanModel& model = group.model;
  const auto rows = cycle(model.rows, model.tables);
  const auto lengths = cycle(model.lengths, model.tables);
  const auto dims = cycle(model.dims, model.tables);
  std::vector<std::string> poolings(static_cast<std::size_t>(model.tables), "sum");
  std::fill_n(poolings.rbegin(), model.sequences, "none");
  std::int64_t ids = 0;
  for (const std::int64_t length : lengths) {
    ids += length * group.batch;
  }
  const std::int64_t batches = std::clamp<std::int64_t>(kIds / ids, kBatches, 4 * kBatches);
  const std::string text = fmt::format(
      "version: 1\n"
      "batch_size: {batch}\n"
      "data: {{format: synthetic, synthetic: {{samples: {samples}, eval_samples: 0, "
      "dense_columns: 13, columns: [{{name: 'C{{1..{tables}}}', cardinality: [{rows}], "
      "min_length: [{lengths}], max_length: [{lengths}]}}]}}}}\n"
      "dense_features: [{{name: 'd{{1..13}}', transform: log}}]\n"
      "sparse_features: [{{name: 'C{{1..{tables}}}', mapping: hash, "
      "pooling: [{poolings}]}}]\n"
      "tables: [{{name: 'C{{1..{tables}}}', num_embeddings: [{rows}], "
      "embedding_dim: [{dims}], dtype: {dtype}}}]\n"
      "sparse_optimizer: {{type: {optimizer}, learning_rate: 0.01}}\n"
      "model: {dense}\n"
      "dense_optimizer: {{type: sgd, learning_rate: 0.01}}\n",
      fmt::arg("batch", group.batch), fmt::arg("samples", batches * group.batch),
      fmt::arg("tables", model.tables), fmt::arg("rows", fmt::join(rows, ", ")),
      fmt::arg("lengths", fmt::join(lengths, ", ")), fmt::arg("dims", fmt::join(dims, ", ")),
      fmt::arg("poolings", fmt::join(poolings, ", ")), fmt::arg("dtype", model.dtype),
      fmt::arg("optimizer", model.optimizer), fmt::arg("dense", model.dense));
  return spec::parse_config(text, model.name);
}

/// Small tables on every rank, long ones cut by rows, the others whole.
void mix(spec::Config& config) {
  for (spec::Table& table : config.tables) {
    table.sharding = table.num_embeddings <= 100'000   ? Sharding::kDataParallel
                     : table.num_embeddings >= 600'000 ? Sharding::kRowWise
                                                       : Sharding::kTableWise;
  }
}

/// Every fourth table on the last rank, the others on the first.
void lean(spec::Config& config, std::int64_t ranks) {
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    config.tables[t].sharding = Sharding::kTableWise;
    config.tables[t].rank = t % 4 == 3 ? ranks - 1 : 0;
  }
}

spec::PipelineSchedule schedule_of(std::string_view name) {
  using enum spec::PipelineSchedule;
  for (const spec::PipelineSchedule one : {kSync, kPrefetch, kDbp, kFwp, kNested}) {
    if (to_string(one) == name) {
      return one;
    }
  }
  fail(ErrorCode::kInternal, "no configuration says schedule '{}'", name);
}

}  // namespace

std::vector<PlanGroup> plan_groups(std::int64_t ranks, bool quick) {
  if (quick) {
    PlanModel tiny = wide();
    tiny.rows = {1000, 300};
    return {{tiny, 64, true}, {tiny, 256}};
  }
  if (ranks == 1) {
    return {{narrow(), 2048}, {wide(), 2048}, {crossed(), 2048}, {factorised(), 1024}};
  }
  return {{narrow(), 512},      {narrow(), 8192},       {wide(), 512},
          {wide(), 4096, true}, {crossed(), 2048},      {factorised(), 1024},
          {half(), 2048, true}, {mixed_widths(), 1024}, {sequential(), 1024}};
}

std::vector<PlanCase> plan_cases(const PlanGroup& group, std::int64_t ranks) {
  const auto all = [](Sharding sharding) {
    return [sharding](spec::Config& config) {
      for (spec::Table& table : config.tables) {
        table.sharding = sharding;
        table.rank = -1;
      }
    };
  };
  const auto first = [](spec::Config& config) {
    for (spec::Table& table : config.tables) {
      table.sharding = Sharding::kTableWise;
      table.rank = 0;
    }
  };
  std::vector<std::pair<std::string, std::function<void(spec::Config&)>>> ways = {
      {"table_wise", all(Sharding::kTableWise)}};
  if (ranks > 1) {
    ways.emplace_back("one_rank", first);
    ways.emplace_back("leaning", [ranks](spec::Config& config) { lean(config, ranks); });
    ways.emplace_back("row_wise", all(Sharding::kRowWise));
    if (std::ranges::min(group.model.dims) > spec::kColumnBlock) {
      ways.emplace_back("column_wise", all(Sharding::kColumnWise));
    }
    ways.emplace_back("data_parallel", all(Sharding::kDataParallel));
    ways.emplace_back("mixed", mix);
  }
  std::vector<PlanCase> cases;
  for (const auto& [name, apply] : ways) {
    PlanCase one{.plan = name, .config = config_of(group), .made = {}};
    apply(one.config);
    one.made = planner::make_plan(one.config, ranks);
    cases.push_back(std::move(one));
  }
  for (const pipeline::Schedule& schedule : pipeline::schedules()) {
    if (group.schedules && ranks > 1) {
      PlanCase one{.plan = fmt::format("table_wise, {}", schedule.name),
                   .config = cases.front().config,
                   .made = cases.front().made};
      one.config.pipeline.schedule = schedule_of(schedule.name);
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

}  // namespace weft::bench
