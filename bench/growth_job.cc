#include "bench/growth_job.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <malloc.h>
#include <sys/resource.h>

#include "bench/timing.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/host_layout.h"
#include "weft/base/parts.h"
#include "weft/base/philox.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/planner/place.h"
#include "weft/planner/sample_tables.h"
#include "weft/spec/yaml.h"
#include "weft/tensor/memory_use.h"
#include "weft/train/batch_control.h"
#include "weft/train/engine.h"
#include "weft/train/step_report.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kColumns = 16;
constexpr std::int64_t kMostRows = 4096;
constexpr std::int64_t kWholeRows = 1024;  // of whole tables that are dealt evenly
constexpr std::int64_t kFewRows = 64;
constexpr std::int64_t kWarmUp = 2;
constexpr std::int64_t kTurns = 5;  // of which a time is the median
constexpr std::int64_t kTasks = 1;

/// A rank sends a header and a control block to each rank (weft/sharding/input_dist.h); between two
/// hosts a check word comes before those. In bytes.
constexpr std::int64_t kCountsHeader = 40;
constexpr std::int64_t kCheckWord = 8;
constexpr std::string_view kCountsMagic = "WEFT";

std::int64_t hosts_of(std::int64_t ranks) {
  return std::max<std::int64_t>(1, ranks / kGrowthPerHost);
}

/// Tables that stay whole come last, so that they are the last slots of their ranks.
std::vector<planner::TableUse> tables_of(const GrowthJob& job, std::int64_t& whole) {
  std::vector<planner::TableUse> tables = planner::table_set(job.tables);
  std::stable_partition(tables.begin(), tables.end(), [&](const planner::TableUse& table) {
    return job.cut != GrowthCut::kEven || table.rows >= kMostRows;
  });
  const auto small = std::count_if(tables.begin(), tables.end(),
                                   [](const auto& table) { return table.rows < kMostRows; });
  const std::int64_t hosts = hosts_of(job.ranks);
  whole = job.cut == GrowthCut::kEven ? small / hosts * hosts : 0;
  const auto first_whole = std::ssize(tables) - whole;
  for (std::int64_t t = 0; t < std::ssize(tables); ++t) {
    planner::TableUse& table = tables[at(t)];
    table.rows = job.cut == GrowthCut::kMixed ? std::min(table.rows, kMostRows)
                 : t < first_whole            ? kMostRows
                                              : kWholeRows;
    table.dim = kColumns;
    table.mean_length = 1.0;
    table.max_length = 1;
  }
  return tables;
}

spec::Config make_config(const GrowthJob& job, std::int64_t& whole) {
  spec::Config config = planner::to_config(tables_of(job, whole));
  for (spec::Table& table : config.tables) {
    table.sharding = table.num_embeddings >= kMostRows ? spec::Sharding::kRowWise
                     : table.num_embeddings < kFewRows ? spec::Sharding::kDataParallel
                                                       : spec::Sharding::kTableWise;
  }
  config.batch_size = kGrowthSamples * job.ranks;
  config.numerics.parts = 2 * job.ranks;
  config.model.bottom_mlp = {kColumns};
  config.model.top_mlp = {8};
  config.model.projection_dim = 0;  // all tables have the same columns
  config.pipeline.schedule =
      job.nested ? spec::PipelineSchedule::kNested : spec::PipelineSchedule::kSync;
  config.pipeline.micro_batches = {{1, 1}};
  spec::validate(config);
  return config;
}

/// The samples of a rank. What repeats does so as an image's ids do: rows move by as many shards as
/// the image by ranks, and a whole table's ids go to that of the host as many hosts on.
data::Batch make_batch(const GrowthRun& run, std::int64_t rank) {
  const spec::Config& config = run.config;
  const std::int64_t ranks = run.plan.world();
  const std::int64_t moved = run.real > 0 ? rank / run.real * run.real : 0;
  const std::int64_t hosts = hosts_of(ranks);
  const std::int64_t first_whole = std::ssize(config.tables) - run.tables_whole;
  data::Batch batch;
  batch.global_size = config.batch_size;
  batch.positions = rank_samples(config.batch_size, run.plan.parts, ranks, rank);
  const Range drawn = rank_samples(config.batch_size, run.plan.parts, ranks, rank - moved);
  batch.sparse.batch = batch.size();
  batch.sparse.offsets.push_back(0);
  for (std::int64_t f = 0; f < std::ssize(config.sparse_features); ++f) {
    const spec::SparseFeature& feature = config.sparse_features[at(f)];
    batch.sparse.keys.push_back(feature.name);
    const std::int64_t rows = config.tables[at(spec::table_index(config, feature))].num_embeddings;
    const bool is_whole = f >= first_whole;
    std::int64_t draw = f;
    if (is_whole) {
      const std::int64_t w = f - first_whole;
      draw = first_whole + w / hosts * hosts + (w % hosts + hosts - moved / kGrowthPerHost) % hosts;
    }
    const std::int64_t shift = is_whole || moved == 0 ? 0 : moved * (rows / ranks);
    for (std::int64_t p = drawn.begin; p < drawn.end; ++p) {
      const auto id = static_cast<std::int64_t>(
          philox(static_cast<std::uint64_t>(draw), static_cast<std::uint64_t>(p), 0)[0] %
          static_cast<std::uint64_t>(rows));
      batch.sparse.values.push_back((id + shift) % rows);
      batch.sparse.weights.push_back(1.0F);
      batch.sparse.offsets.push_back(std::ssize(batch.sparse.values));
    }
  }
  for (std::int64_t p = batch.positions.begin; p < batch.positions.end; ++p) {
    batch.sample_ids.push_back(p);
  }
  const std::size_t size = at(batch.size());
  batch.dense.assign(size * config.dense_features.size(), 0.5F);
  batch.labels.assign(size * config.tasks.size(), 1.0F);
  batch.label_weights.assign(size * config.tasks.size(), 1.0F);
  return batch;
}

StepCounts count(const trace::Recorder& recorder) {
  StepCounts own;
  for (const trace::Track& track : recorder.tracks()) {
    const auto spans = track.spans();
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (spans[i].collective < 0) {
        continue;
      }
      const trace::Collective& one = track.collective(spans[i]);
      own.all_messages += static_cast<double>(one.messages);
      own.all_bytes += static_cast<double>(one.bytes);
      for (std::size_t j = i + 1; j < spans.size(); ++j) {
        const auto part = std::find(kStepPartNames.begin(), kStepPartNames.end(),
                                    std::string_view(spans[j].name));
        if (part != kStepPartNames.end() && spans[j].begin_ns <= spans[i].begin_ns) {
          const auto p = static_cast<std::size_t>(part - kStepPartNames.begin());
          own.messages[p] += static_cast<double>(one.messages);
          own.bytes[p] += static_cast<double>(one.bytes);
          break;
        }
      }
    }
  }
  return own;
}

/// Returns the seconds that the spans of each part of a step last together, on average of `steps`.
std::array<double, kStepParts> part_seconds(const trace::Recorder& recorder, std::int64_t steps) {
  std::array<double, kStepParts> seconds{};
  for (const trace::Track& track : recorder.tracks()) {
    for (const trace::Span& span : track.spans()) {
      const auto part =
          std::find(kStepPartNames.begin(), kStepPartNames.end(), std::string_view(span.name));
      if (part != kStepPartNames.end()) {
        seconds[static_cast<std::size_t>(part - kStepPartNames.begin())] +=
            1e-9 * static_cast<double>(span.end_ns - span.begin_ns) / static_cast<double>(steps);
      }
    }
  }
  return seconds;
}

/// Returns the bytes that the heap holds beside blocks that host_memory_use() counts.
double heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd) -
         static_cast<double>(host_memory_use().heap);
}

/// A rank that is measured: all ranks stand still where its process is looked at.
class Probe {
 public:
  Probe(comm::Communicator& world, const GrowthRun& run, Device& device)
      : world_(world), run_(run), host_{.device = &device, .pool = &device.pool()} {}

  /// Seconds of a processor, those of the transport of an imitated world left out.
  double seconds() {
    world_.barrier(host_);
    const double now =
        processor_s() - (run_.transport != nullptr ? run_.transport->seconds() : 0.0);
    world_.barrier(host_);
    return now;
  }

  double heap() {
    world_.barrier(host_);
    const double now = heap_bytes();
    world_.barrier(host_);
    return now;
  }

  void train(train::Engine& engine, const data::Batch& batch, std::int64_t steps) {
    for (std::int64_t i = 0; i < steps; ++i) {
      engine.train_step({.batch = batch, .step = ++step_});
    }
  }

  /// Returns the seconds that one of `steps` steps takes a rank: the median of kTurns turns of
  /// them.
  double step_seconds(train::Engine& engine, const data::Batch& batch, std::int64_t steps) {
    std::vector<double> turns;
    for (std::int64_t turn = 0; turn < kTurns; ++turn) {
      const double begin = seconds();
      train(engine, batch, steps);
      turns.push_back(share(seconds() - begin) / static_cast<double>(steps));
    }
    return median(std::move(turns));
  }

  void restart() { step_ = 0; }

  [[nodiscard]] double share(double of_process) const {
    return of_process / static_cast<double>(run_.here);
  }

 private:
  comm::Communicator& world_;
  const GrowthRun& run_;
  Context host_;
  std::int64_t step_ = 0;
};

/// Bytes of the checkpoint of this moment.
void save(comm::Communicator& world,
          const GrowthRun& run,
          train::Engine& engine,
          RankGrowth& figures) {
  checkpoint::SaveOptions options{.directory = run.folder, .metadata = {}, .blobs = {}};
  options.metadata.step = 1;
  options.metadata.parts = run.plan.parts;
  options.metadata.config_yaml = spec::to_yaml(run.config);
  options.metadata.plan_yaml = spec::plan_to_yaml(run.plan);
  const auto sources = engine.sources();
  std::string saved;
  engine.run_stage([&](Context& ctx) { saved = checkpoint::save(world, ctx, options, sources); });
  Context ctx;
  world.barrier(ctx);
  std::uintmax_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(run.folder)) {
    bytes += file.is_regular_file() ? file.file_size() : 0;
  }
  figures.checkpoint = static_cast<double>(bytes);
  figures.manifest = static_cast<double>(std::filesystem::file_size(saved + "/manifest.json"));
  figures.manifest_most = most_manifest_bytes(run);
  world.barrier(ctx);
}

}  // namespace

std::string to_string(GrowthCut cut) {
  return cut == GrowthCut::kMixed ? "mixed" : cut == GrowthCut::kRowWise ? "row-wise" : "even";
}

GrowthRun make_growth_run(const GrowthJob& job) {
  GrowthRun run;
  run.config = make_config(job, run.tables_whole);
  std::vector<std::int64_t> hosts;
  for (std::int64_t r = 0; r < job.ranks; ++r) {
    hosts.push_back(r / kGrowthPerHost);
  }
  run.plan = planner::make_plan(run.config, {.ranks = job.ranks, .hosts = hosts});
  const auto form = job.ranks > kGrowthPerHost ? spec::CollectiveForm::kHierarchical
                                               : spec::CollectiveForm::kFlat;
  const HostLayout layout(std::vector<int>(hosts.begin(), hosts.end()));
  run.plan.collectives = {
      .ids = form,
      .vectors = form,
      .dense = job.ranks > kGrowthPerHost ? planner::hierarchical_sum(layout) : form};
  const std::int64_t first_whole = std::ssize(run.plan.tables) - run.tables_whole;
  for (std::int64_t w = 0; w < run.tables_whole; ++w) {
    const std::int64_t hosts_count = hosts_of(job.ranks);
    const std::int64_t rank = w % hosts_count * kGrowthPerHost + w / hosts_count % kGrowthPerHost;
    run.plan.tables[at(first_whole + w)].shards.edit(
        [&](std::vector<spec::Shard>& shards) { shards.front().rank = rank; });
  }
  return run;
}

void StepCounts::most_of(const StepCounts& other) {
  for (std::size_t p = 0; p < kStepParts; ++p) {
    messages[p] = std::max(messages[p], other.messages[p]);
    bytes[p] = std::max(bytes[p], other.bytes[p]);
  }
  all_messages = std::max(all_messages, other.all_messages);
  all_bytes = std::max(all_bytes, other.all_bytes);
}

RankGrowth measure_growth(comm::Communicator& world, const GrowthRun& run) {
  RankGrowth figures;
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  Probe probe(world, run, *device);
  const data::Batch batch = make_batch(run, world.rank());
  spec::Config without_model = run.config;
  without_model.debug.skip = {"dense"};
  {
    const double heap = probe.heap();
    const double begin = probe.seconds();
    train::Engine engine(without_model, run.plan, world, *device, {});
    figures.start_s = probe.share(probe.seconds() - begin);
    probe.train(engine, batch, kWarmUp);
    figures.library_s = probe.step_seconds(engine, batch, run.steps);
    figures.heap = probe.share(probe.heap() - heap);
    if (!run.folder.empty()) {
      save(world, run, engine, figures);
    }
    probe.seconds();
  }
  probe.restart();
  trace::Recorder recorder;
  train::Engine engine(run.config, run.plan, world, *device, {.recorder = &recorder});
  probe.train(engine, batch, kWarmUp);
  figures.step_s = probe.step_seconds(engine, batch, run.steps);
  figures.buffers = static_cast<double>(host_memory_use().now);
  figures.tables = static_cast<double>(engine.embeddings().bytes());
  recorder.start();
  probe.train(engine, batch, 1);
  recorder.stop();
  figures.counts = count(recorder);
  recorder.start();
  probe.train(engine, batch, run.steps);
  recorder.stop();
  figures.part_s = part_seconds(recorder, 1 + run.steps);
  return figures;
}

double most_manifest_bytes(const GrowthRun& run) {
  std::int64_t cuts = 0;
  for (const spec::TablePlan& table : run.plan.tables) {
    cuts += std::ssize(table.shards.rules());
  }
  const std::int64_t texts =
      std::ssize(spec::to_yaml(run.config)) + std::ssize(spec::plan_to_yaml(run.plan));
  return static_cast<double>(4096 + 1024 * std::ssize(run.plan.tables) + 384 * cuts +
                             48 * run.plan.world() + texts);
}

namespace {

/// Parts of ranks, without a sample that counts.
void write_report(const spec::Plan& plan, Range ranks, std::span<std::byte> block) {
  train::StepReport report(plan.parts, kTasks);
  const Range run{rank_parts(plan.parts, plan.world(), ranks.begin).begin,
                  rank_parts(plan.parts, plan.world(), ranks.end - 1).end};
  if (std::ssize(block) == report.bytes()) {
    report.clear();
    report.sums.assign(run, std::vector<metrics::BinarySums>(at(run.size() * kTasks)));
    report.encode(block);
  }
}

/// A message of counts, or, between hosts, those of all pairs of their ranks: the control block
/// that each has, `block` bytes, is of its sender's parts.
void move_control(const spec::Plan& plan,
                  std::int64_t block,
                  std::int64_t sender,
                  std::span<std::byte> message) {
  train::BatchControl control(plan.parts, kTasks);
  const std::int64_t one = kCountsHeader + block;
  const bool relayed = std::ssize(message) == kCheckWord + kGrowthPerHost * kGrowthPerHost * one;
  const std::int64_t begin = relayed ? kCheckWord : 0;
  if (!(relayed || std::ssize(message) == one) ||
      std::memcmp(message.data() + begin, kCountsMagic.data(), kCountsMagic.size()) != 0) {
    return;
  }
  const std::int64_t first = relayed ? sender / kGrowthPerHost * kGrowthPerHost : sender;
  for (std::int64_t i = 0; i < (std::ssize(message) - begin) / one; ++i) {
    const Range run = rank_parts(plan.parts, plan.world(), first + i / kGrowthPerHost);
    control.weights.assign(
        run, std::vector<double>(at(run.size() * kTasks), static_cast<double>(kGrowthSamples) /
                                                              static_cast<double>(run.size())));
    control.encode(message.subspan(at(begin + i * one + kCountsHeader), at(block)));
  }
}

}  // namespace

ImitatedOptions imitate(const GrowthRun& run, std::int64_t real) {
  const std::int64_t control = train::BatchControl(run.plan.parts, kTasks).bytes(run.plan.world());
  return {
      .ranks = run.plan.world(),
      .real = real,
      .per_host = kGrowthPerHost,
      .merged = [&plan = run.plan](
                    Range ranks, std::span<std::byte> block) { write_report(plan, ranks, block); },
      .moved = [&plan = run.plan, control](
                   std::int64_t sender,
                   std::span<std::byte> message) { move_control(plan, control, sender, message); }};
}

double processor_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace weft::bench
