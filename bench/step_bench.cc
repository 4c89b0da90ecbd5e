// Training steps of a configuration, whole: samples/s, what each part of a step takes, and what it
// would take at this machine's limits (bench/step_work.h).
//
// Variants (overrides of the configuration, e.g. fp32 and bf16) take turns of some steps within
// every round, and the limits are measured again in every round, so that whatever else happens on
// the machine hits all of them. Batches come from a weft file that is generated once, and are held
// in memory, so many that a batch's rows have left the caches before it comes again. Ranks are
// threads of this process, or the processes that mpirun started.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/limits.h"
#include "bench/report.h"
#include "bench/step_figures.h"
#include "bench/step_variant.h"
#include "bench/step_work.h"
#include "bench/timing.h"
#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/data/loader.h"
#include "weft/train/agreement.h"
#include "weft/train/engine.h"
#include "weft/train/tier_figures.h"

namespace weft::bench {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string config;
  std::vector<std::string> overrides;  // of all variants
  std::vector<std::string> variants = {"fp32:"};
  std::string data_dir = "build/bench/data";
  std::string out;
  int ranks = 1;
  int threads = 1;
  int rounds = 5;
  std::vector<std::string> ratios;
  double turn_s = 1.0;
  double probe_s = 0.03;
  double memory_gib = 4.0;  // of all ranks' row probes together
  bool reader = false;
};

/// Ids in the lists of the row probes: so many batches that caches forget the first before it comes
/// again, as in the steps.
constexpr std::int64_t kProbedIds = 1 << 23;

/// One rank's benchmark.
class StepBench {
 public:
  StepBench(comm::Communicator& world, const Options& options)
      : world_(world.duplicate("bench")),
        options_(options),
        device_(make_device({.kind = DeviceKind::kCpu, .threads = options.threads})),
        host_{.device = device_.get(), .pool = &device_->pool(), .native_stream = nullptr},
        limits_(*device_,
                {.memory_bytes =
                     static_cast<std::int64_t>(options.memory_gib * (1 << 30)) / world.size(),
                 .budget_s = options.probe_s,
                 .align = [this] { world_->barrier(host_); }}) {
    for (const std::string& text : options.variants) {
      variants_.push_back(make_variant(
          {.config = options.config, .overrides = options.overrides, .text = text}, world.size()));
    }
    turns_.resize(variants_.size());
    engines_.resize(variants_.size());
    steps_.resize(variants_.size());
    train::agree_on_target(*world_, host_, variants_.front().config);
    open_data();
    count_work();
    decide_on_memory();
  }

  /// The figures, on rank 0. Collective.
  std::vector<Figure> run();

 private:
  void open_data();
  void count_work();
  void decide_on_memory();
  [[nodiscard]] data::LoaderOptions reading(std::int64_t ranks) const;
  std::unique_ptr<data::Loader> make_loader(std::int64_t ranks);
  void make_engine(std::size_t v);
  void take_burst(std::size_t v, std::int64_t bursts, Turn& turn);
  void take_turns();
  double run_steps(std::size_t v, std::int64_t count, Turn* mean);
  [[nodiscard]] std::int64_t misses(std::size_t v) const;
  double run_steps_with_reader(std::size_t v, std::int64_t count);
  double reader_rate();
  void measure_limits(std::size_t v, std::map<GemmShape, double>& shapes);
  [[nodiscard]] std::size_t find_variant(const std::string& label) const;
  using Seconds = double Turn::*;
  [[nodiscard]] Figure ratio(const std::string& text,
                             const std::string& name,
                             Seconds seconds) const;
  [[nodiscard]] std::vector<Figure> figures() const;

  template <typename T>
  T agreed(T value) {
    world_->broadcast(host_, &value, sizeof(T), 0);
    return value;
  }

  [[nodiscard]] std::map<std::string, std::string> parameters(std::size_t v) const;

  std::unique_ptr<comm::Communicator> world_;
  const Options& options_;
  std::unique_ptr<Device> device_;
  Context host_;
  Limits limits_;
  std::vector<Variant> variants_;
  std::vector<data::Batch> batches_;
  data::Vocabularies no_vocabularies_;
  std::unique_ptr<data::Loader> loader_;  // of the turns with the reader
  StepWork work_;
  bool keep_engines_ = false;
  std::vector<std::unique_ptr<train::Engine>> engines_;  // by variant
  std::vector<std::int64_t> steps_;  // so far, by variant: batches go on where it stopped
  std::int64_t steps_per_turn_ = 0;
  std::vector<std::vector<Turn>> turns_;  // by variant and round
  std::vector<double> reader_rates_;
};

data::LoaderOptions StepBench::reading(std::int64_t ranks) const {
  const Variant& first = variants_.front();
  data::LoaderOptions reading = data::LoaderOptions::train(
      first.config, ranks == 1 ? 0 : world_->rank(), ranks, first.plan.parts);
  reading.epochs = 0;
  return reading;
}

std::unique_ptr<data::Loader> StepBench::make_loader(std::int64_t ranks) {
  const spec::Config& config = variants_.front().config;
  return std::make_unique<data::Loader>(data::open_source(config, data::Split::kTrain), config,
                                        no_vocabularies_, reading(ranks));
}

/// Generates the log where it is not there yet, and reads one epoch of whole batches.
void StepBench::open_data() {
  if (world_->rank() == 0) {
    generate_data(options_.data_dir, variants_.front());
  }
  world_->barrier(host_);
  const std::string path = generate_data(options_.data_dir, variants_.front());
  for (Variant& variant : variants_) {
    variant.config.data.format = spec::DataFormat::kWeft;
    variant.config.data.path = {path};
  }
  const spec::Config& config = variants_.front().config;
  const std::int64_t count = config.data.synthetic.samples / config.batch_size;
  if (count < 2) {
    fail(ErrorCode::kUsage, "{} samples make {} batches of {}; set data.synthetic.samples higher",
         config.data.synthetic.samples, count, config.batch_size);
  }
  const auto loader = make_loader(world_->size());
  batches_.resize(static_cast<std::size_t>(count));
  for (data::Batch& batch : batches_) {
    loader->next(batch);
  }
}

void StepBench::count_work() {
  const auto loader = make_loader(1);
  std::vector<data::Batch> whole;
  for (std::int64_t ids = 0; ids < kProbedIds && whole.size() < batches_.size();) {
    loader->next(whole.emplace_back());
    ids += static_cast<std::int64_t>(whole.back().sparse.values.size());
  }
  work_ = step_work(variants_.front().config, whole, limits_.memory_bytes());
}

/// Variants stay in memory from round to round where they all fit; otherwise one at a time.
void StepBench::decide_on_memory() {
  double need = options_.memory_gib * (1 << 30);
  for (const Variant& variant : variants_) {
    need += static_cast<double>(table_bytes(variant.config));
  }
  keep_engines_ = agreed(need < 0.8 * static_cast<double>(available_memory()));
}

void StepBench::make_engine(std::size_t v) {
  if (engines_[v] == nullptr) {
    const Variant& variant = variants_[v];
    engines_[v] = std::make_unique<train::Engine>(variant.config, variant.plan, *world_, *device_);
  }
}

/// Seconds per step of the next `count` steps, each of which begins the one after it where the
/// schedule looks ahead; what they are made of to `mean`.
double StepBench::run_steps(std::size_t v, std::int64_t count, Turn* mean) {
  train::Engine& engine = *engines_[v];
  world_->barrier(host_);
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto input = [&](std::int64_t step) {
      return train::StepInput{.batch = batches_[static_cast<std::size_t>(step) % batches_.size()],
                              .step = step};
    };
    const train::StepInput now = input(++steps_[v]);
    const train::StepInput next = input(steps_[v] + 1);
    engine.train_step(now, i + 1 < count ? &next : nullptr);
    if (mean != nullptr) {
      const double share = 1.0 / static_cast<double>(count);
      mean->sparse_s += share * sparse_seconds(engine.times());
      for (std::size_t p = 0; p < mean->parts.size(); ++p) {
        mean->parts[p] += share * engine.times().parts[p].seconds();
      }
    }
  }
  return seconds_since(start) / static_cast<double>(count);
}

/// Rows that have found no slot since the engine was made.
std::int64_t StepBench::misses(std::size_t v) const {
  const train::Engine& engine = *engines_[v];
  std::int64_t count = 0;
  for (const train::TableTier& one :
       train::own_tier_figures(engine.config(), engine.embeddings()).tables) {
    count += one.counts.asked - one.counts.hits;
  }
  return count;
}

double StepBench::run_steps_with_reader(std::size_t v, std::int64_t count) {
  data::Batch batch;
  if (loader_ == nullptr) {
    loader_ = make_loader(world_->size());
  }
  for (std::int64_t i = 0; i <= variants_[v].config.data.read_ahead; ++i) {
    loader_->next(batch);  // what was read ahead while others ran
  }
  world_->barrier(host_);
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < count; ++i) {
    loader_->next(batch);
    engines_[v]->train_step({.batch = batch, .step = ++steps_[v]});
  }
  return seconds_since(start) / static_cast<double>(count);
}

/// Samples per second of reader and mapping alone, on the loader's one thread.
double StepBench::reader_rate() {
  const auto loader = make_loader(world_->size());
  data::Batch batch;
  for (int i = 0; i < 4; ++i) {
    loader->next(batch);
  }
  std::int64_t samples = 0;
  const auto start = std::chrono::steady_clock::now();
  while (seconds_since(start) < options_.turn_s) {
    loader->next(batch);
    samples += batch.size();
  }
  return static_cast<double>(samples) / seconds_since(start);
}

/// A burst of steps, added to the turn as 1/bursts of it.
void StepBench::take_burst(std::size_t v, std::int64_t bursts, Turn& turn) {
  // Buffers grow, primitives are made, caches forget the other variants.
  constexpr std::int64_t kWarmUp = 3;
  const double share = 1.0 / static_cast<double>(bursts);
  run_steps(v, kWarmUp, nullptr);
  if (steps_per_turn_ == 0) {
    const double step_s = agreed(run_steps(v, 2, nullptr));
    steps_per_turn_ = std::clamp<std::int64_t>(std::llround(options_.turn_s / step_s), 2, 1000);
  }
  const std::int64_t steps = std::max<std::int64_t>(2, steps_per_turn_ / bursts);
  Turn mean;
  const std::int64_t misses_before = misses(v);
  turn.step_s += share * run_steps(v, steps, &mean);
  turn.sparse_s += share * mean.sparse_s;
  turn.misses +=
      share * static_cast<double>(misses(v) - misses_before) / static_cast<double>(steps);
  for (std::size_t p = 0; p < mean.parts.size(); ++p) {
    turn.parts[p] += share * mean.parts[p];
  }
  if (options_.reader) {
    turn.step_with_reader_s += share * run_steps_with_reader(v, steps);
  }
}

/// One turn of every variant. Where all stay in memory they alternate in bursts, so that a slower
/// moment of the machine hits all.
void StepBench::take_turns() {
  const std::int64_t bursts = keep_engines_ ? 4 : 1;
  for (auto& turns : turns_) {
    turns.emplace_back();
  }
  for (std::int64_t burst = 0; burst < bursts; ++burst) {
    for (std::size_t v = 0; v < variants_.size(); ++v) {
      make_engine(v);
      take_burst(v, bursts, turns_[v].back());
      if (!keep_engines_) {
        engines_[v].reset();
      }
    }
  }
}

/// Of the moment, into the variant's last turn.
void StepBench::measure_limits(std::size_t v, std::map<GemmShape, double>& shapes) {
  const Variant& variant = variants_[v];
  Turn& turn = turns_[v].back();
  const std::int64_t ranks = world_->size();
  turn.limits = part_limits(limits_, variant.config, work_,
                            {.ranks = ranks,
                             .parts = variant.plan.parts / ranks,
                             .samples_per_part = variant.config.batch_size / variant.plan.parts},
                            shapes);
  for (const DenseProduct& product :
       dense_products(variant.config, variant.config.batch_size / ranks)) {
    turn.dense_flops += product.shape.flops();
  }
  constexpr std::int64_t kSide = 1024;
  const DType type =
      variant.config.model.compute == spec::Compute::kBf16 ? DType::kBFloat16 : DType::kFloat32;
  turn.peak_flops_per_s = limits_.gemm_flops_per_s({kSide, kSide, kSide, type, type});
}

std::vector<Figure> StepBench::run() {
  for (int round = 0; round < options_.rounds; ++round) {
    take_turns();
    std::map<GemmShape, double> shapes;
    for (std::size_t v = 0; v < variants_.size(); ++v) {
      measure_limits(v, shapes);
    }
    if (options_.reader) {
      reader_rates_.push_back(reader_rate());
    }
    if (world_->rank() == 0) {
      std::fprintf(stderr, "step_bench: round %d of %d\n", round + 1, options_.rounds);
    }
  }
  return figures();
}

std::map<std::string, std::string> StepBench::parameters(std::size_t v) const {
  const Variant& variant = variants_[v];
  return {{"model", fs::path(options_.config).stem().string()},
          {"batch", std::to_string(variant.config.batch_size)},
          {"ranks", std::to_string(world_->size())},
          {"threads", std::to_string(options_.threads)},
          {"backend", comm::launched_by_mpi() ? "mpi" : "local"},
          {"parts", std::to_string(variant.plan.parts)},
          {"variant", variant.label}};
}

std::size_t StepBench::find_variant(const std::string& label) const {
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    if (variants_[v].label == label) {
      return v;
    }
  }
  fail(ErrorCode::kUsage, "--ratio: there is no variant '{}'", label);
}

/// "A/B": how many times as much a step of A, or its tables, takes as those of B, round by round.
Figure StepBench::ratio(const std::string& text, const std::string& name, Seconds seconds) const {
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::size_t a = find_variant(text.substr(0, slash));
  const std::size_t b = find_variant(text.substr(std::min(slash + 1, text.size())));
  Figure figure{name, parameters(a), "x", Better::kLower, {}, {}};
  figure.parameters["variant"] = text;
  for (std::size_t round = 0; round < turns_[a].size(); ++round) {
    figure.values.push_back(turns_[a][round].*seconds / turns_[b][round].*seconds);
  }
  return figure;
}

std::vector<Figure> StepBench::figures() const {
  std::vector<Figure> all;
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    for (Figure& figure : step_figures(variants_[v].config, turns_[v])) {
      figure.parameters = parameters(v);
      all.push_back(std::move(figure));
    }
  }
  for (const std::string& text : options_.ratios) {
    all.push_back(ratio(text, "step_ratio", &Turn::step_s));
    all.push_back(ratio(text, "sparse_ratio", &Turn::sparse_s));
  }
  if (options_.reader) {
    all.push_back({"reader", parameters(0), "samples/s", Better::kHigher, reader_rates_, {}});
    all.back().parameters.erase("variant");
  }
  return all;
}

void run_rank(comm::Communicator& world, const Options& options) {
  StepBench bench(world, options);
  const std::vector<Figure> figures = bench.run();
  if (world.rank() == 0) {
    fmt::print("{}", to_text(figures));
    if (!options.out.empty()) {
      write_json(options.out, "step", figures);
    }
  }
}

void run(const Options& options) {
  constexpr double kTimeout = 900.0;  // a log is generated while others wait
  const auto body = [&](comm::Communicator& world) { run_rank(world, options); };
  if (comm::launched_by_mpi()) {
    comm::MpiSession session({.timeout_s = kTimeout});
    session.run(body);
  } else {
    comm::run_local(options.ranks, {.timeout_s = kTimeout}, body);
  }
}

void add_options(Arguments& arguments, Options& options) {
  arguments.add("config", options.config, "A configuration with generated data").required();
  arguments.add("--set", options.overrides, "PATH=VALUE: override a value of the configuration")
      .one_at_a_time();
  arguments.add("--variant", options.variants, "LABEL:PATH=VALUE,..: what takes turns; repeat it")
      .one_at_a_time();
  arguments.add("--ratio", options.ratios, "A/B: times of variant A over those of B; repeat it")
      .one_at_a_time();
  arguments.add("--ranks", options.ranks, "Ranks as threads (under mpirun: leave out)")
      .within(1, 64);
  arguments.add("--threads", options.threads, "Threads per rank").within(1, 1024);
  arguments.add("--rounds", options.rounds, "Turns of every variant").within(1, 1000);
  arguments.add("--turn-seconds", options.turn_s, "About how long a turn is");
  arguments.add("--probe-seconds", options.probe_s, "About how long a limit is measured");
  arguments.add("--probe-gib", options.memory_gib, "Memory of the random-row probes, all ranks");
  arguments.add_flag("--reader", options.reader,
                     "Also the reader alone, and steps that wait for it");
  arguments.add("--data", options.data_dir, "Folder for generated logs");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments("Measures training steps against the machine's limits");
  weft::bench::add_options(arguments, options);
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "step_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
