#include "weft/train/job.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/data/vocabulary.h"
#include "weft/nn/model.h"
#include "weft/planner/place.h"
#include "weft/planner/search.h"
#include "weft/spec/plan.h"
#include "weft/spec/yaml.h"
#include "weft/tensor/memory_use.h"
#include "weft/topology/yaml.h"
#include "weft/train/agreement.h"
#include "weft/train/checkpoint_folder.h"
#include "weft/train/codec_losses.h"
#include "weft/train/evaluation.h"
#include "weft/train/event_file.h"
#include "weft/train/mesh.h"
#include "weft/train/process_memory.h"
#include "weft/train/resume_plan.h"
#include "weft/train/trainer.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kVocabularyBlob = "vocabularies";
constexpr const char* kResidualLayout = "dense_residuals";
constexpr const char* kSyncResidualLayout = "sync_residuals";

DeviceKind device_kind(spec::DeviceChoice choice) {
  switch (choice) {
    case spec::DeviceChoice::kCpu:
      return DeviceKind::kCpu;
    case spec::DeviceChoice::kCheck:
      return DeviceKind::kCheck;
    case spec::DeviceChoice::kCuda:
      fail(ErrorCode::kConfig,
           "train.device: cuda: this version of Weft has no CUDA kernels; set train.device: cpu");
  }
  fail(ErrorCode::kInternal, "device {} has no name", static_cast<int>(choice));
}

planner::PlanTarget plan_target(const comm::Communicator& world) {
  planner::PlanTarget target{.ranks = world.size()};
  for (int r = 0; r < world.size(); ++r) {
    target.hosts.push_back(world.host(r));
  }
  return target;
}

std::string read_plan_file(const std::string& path) {
  constexpr std::streamsize kLimit = std::streamsize{16} << 20;
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(kLimit), '\0');
  in.read(text.data(), kLimit);
  if (!in.is_open() || in.bad()) {
    fail(ErrorCode::kConfig, "cannot read plan {}; it must be a plan's file, as --out writes it",
         path);
  }
  if (in.gcount() == kLimit) {
    fail(ErrorCode::kConfig, "plan {} is longer than 16 MiB; it must be a plan's file", path);
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

std::string read_stats_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) {
    fail(ErrorCode::kConfig,
         "cannot read statistics {}; they must be what weft data stats --format json prints", path);
  }
  return text;
}

/// A plan for this configuration; messages name the file.
spec::Plan load_plan(const std::string& path, const spec::Config& config) {
  spec::Plan plan = spec::plan_from_yaml(read_plan_file(path), path);
  try {
    planner::check_plan(plan, config);
    planner::check_pins(plan, config);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", path, error.what());
  }
  return plan;
}

void write_file(const fs::path& path, const std::string& text, std::ios::openmode mode) {
  std::ofstream out(path, std::ios::binary | mode);
  out << text;
  out.flush();
  if (!out) {
    fail(ErrorCode::kIo, "cannot write {}; check space and permissions", path.string());
  }
}

nlohmann::json to_json_value(const std::vector<metrics::BinarySums>& sums) {
  nlohmann::json list = nlohmann::json::array();
  for (const metrics::BinarySums& s : sums) {
    list.push_back({s.count, s.weight, s.label, s.loss, s.prediction});
  }
  return list;
}

std::vector<metrics::BinarySums> sums_from_json(const nlohmann::json& list) {
  std::vector<metrics::BinarySums> sums;
  for (const auto& s : list) {
    metrics::BinarySums& to = sums.emplace_back();
    to.count = s.at(0);
    to.weight = s.at(1);
    to.label = s.at(2);
    to.loss = s.at(3);
    to.prediction = s.at(4);
  }
  return sums;
}

/// One rank's run: what has been opened and made, in the order in which it is.
class Job {
 public:
  Job(comm::Communicator& launched, const JobOptions& options)
      : launched_(launched), options_(options), config_(options.config) {
    device_ = make_device({.kind = device_kind(config_.train.device), .threads = options.threads});
    host_ = make_device({.kind = DeviceKind::kCpu, .threads = 1});
    host_context_ = {.device = host_.get(), .pool = &host_->pool()};
    agree_on_job(world(), host_context_,
                 {.config_yaml = spec::to_yaml(config_), .resumes = !options_.resume.empty()});
    check_skipped();
    target_ = agree_on_target(world(), host_context_, config_);
    checkpoints_ = open_checkpoints(world(), host_context_,
                                    {.directory = options_.checkpoint_dir,
                                     .resume = options_.resume,
                                     .timeout_s = config_.train.timeout_s});
    options_.resume = checkpoints_.resume;
    if (!options_.resume.empty()) {
      manifest_ = checkpoint::read_manifest(options_.resume);
      saved_ = saved_job(manifest_->metadata, options_.resume);
      check_resume();
    }
    plan_ = choose_plan();
    config_.mesh = spec::mesh_of(config_.mesh, plan_);
    warn_of_another_config();
    by_position_ = order_by_position(launched_, plan_);
    say_which_groups();
    explain_losses();
    advise_on_parts();
    check_checkpoint_interval(config_.mesh, options_.checkpoint_every);
    check_one_state(config_.mesh, options_.checkpoint_dir);
  }

  Summary train();
  Summary eval();

 private:
  [[nodiscard]] bool first() const { return world().rank() == 0; }

  /// From the plan on its ranks are positions of the mesh.
  [[nodiscard]] comm::Communicator& world() const {
    return by_position_ ? *by_position_ : launched_;
  }

  void check_skipped() const;
  void check_resume();
  void warn_of_another_config() const;
  spec::Plan choose_plan();
  spec::Plan given_plan();
  [[nodiscard]] spec::Plan plan_for_cluster() const;
  void say_if_not_the_saved(const spec::Plan& plan, const std::string& what) const;
  void say_what_is_not_asked() const;
  void say_which_groups() const;
  void explain_losses() const;
  void warn_of_an_end_between_syncs() const;
  void say_if_for_other_hosts(const spec::Plan& plan, const std::string& what) const;
  void advise_on_parts() const;
  void open_vocabularies(data::Source& train);
  void make_engine(std::uint64_t fingerprint);
  void load();
  [[nodiscard]] std::string saved_residual_layout(const char* key) const;
  void warn_of_residuals() const;
  void convert_moments();
  void restore_figures(Trainer& trainer) const;
  void save(std::int64_t step,
            const data::ReaderPosition& position,
            const TrainingFigures& figures);
  std::optional<EvalFigures> evaluate();
  void finish(Summary& summary, Clock::time_point start);
  void sum_up_memory(Summary& summary);
  void prepare_out() const;
  void prepare_trace();
  void append_metrics(const std::string& line) const;
  ProgressSink progress();

  comm::Communicator& launched_;
  std::unique_ptr<comm::Communicator> by_position_;  // where positions of the mesh are not ranks
  JobOptions options_;                               // resume: the checkpoint itself
  spec::Config config_;
  CheckpointFolder checkpoints_;
  std::unique_ptr<Device> device_, host_;
  Context host_context_;
  kernels::Target target_{};
  std::optional<checkpoint::Manifest> manifest_;
  std::optional<SavedJob> saved_;  // with manifest_
  spec::Plan plan_;
  data::Vocabularies vocabularies_;
  std::string vocabulary_bytes_;
  std::int64_t program_bytes_ = rss_bytes();
  std::optional<TraceSession> trace_;
  std::optional<EventFile> events_;
  std::unique_ptr<Engine> engine_;
};

/// With stages left out a job measures, and must not be taken for one that trains.
void Job::check_skipped() const {
  const std::vector<std::string>& skip = config_.debug.skip;
  if (skip.empty()) {
    return;
  }
  if (!options_.checkpoint_dir.empty() || !options_.resume.empty()) {
    fail(ErrorCode::kConfig,
         "debug.skip leaves out {}: the weights mean nothing; remove it, or --checkpoint and "
         "--resume",
         fmt::join(skip, ", "));
  }
  if (first()) {
    log_warning(
        "debug.skip leaves out {}: this is no training, no figure of it means anything but "
        "its times",
        fmt::join(skip, ", "));
  }
}

/// A resume keeps the parts, and says what else has changed.
void Job::check_resume() {
  const checkpoint::Metadata& saved = manifest_->metadata;
  if (config_.numerics.parts != 0 && config_.numerics.parts != saved.parts) {
    fail(ErrorCode::kCheckpoint,
         "resume from {}: numerics.parts is {} there and {} in the configuration; parts decide "
         "the order of sums and are kept on resume: remove the key or set it to {}",
         options_.resume, saved.parts, config_.numerics.parts, saved.parts);
  }
  config_.numerics.parts = saved.parts;
  if (!first()) {
    return;
  }
  if (saved.target != to_string(target_)) {
    log_warning(
        "resume: the checkpoint was made with target {}, this run uses {}; the same bits "
        "are promised at equal target only",
        saved.target, to_string(target_));
  }
}

/// Once the plan has said what the configuration leaves open.
void Job::warn_of_another_config() const {
  if (first() && manifest_ && manifest_->metadata.config_hash != spec::config_hash(config_)) {
    log_warning("resume: the configuration differs from the checkpoint's in what decides results");
  }
}

void Job::say_if_for_other_hosts(const spec::Plan& plan, const std::string& what) const {
  const planner::PlanTarget group = planner::first_positions(
      {.groups = plan.groups, .layout = plan.layout}, plan_target(world()), plan.most_ranks());
  const auto planned = planner::host_numbers({.ranks = plan.most_ranks(), .hosts = plan.hosts});
  if (first() && planned != planner::host_numbers(group)) {
    log_info("{} is for other hosts than this job's: what it keeps on one host may travel", what);
  }
}

void Job::say_if_not_the_saved(const spec::Plan& plan, const std::string& what) const {
  if (first() && saved_ && plan != saved_->plan) {
    log_info(
        "resume: {} is another plan than the checkpoint's; where bags are split between cuts of "
        "rows, bits are those of another order of sums",
        what);
  }
}

/// Without a cluster nothing is chosen.
void Job::say_what_is_not_asked() const {
  std::vector<std::string> tables;
  for (const spec::Table& table : config_.tables) {
    const auto& allow = table.allow;
    if (!allow.empty() && planner::may_be_whole(table) &&
        std::find(allow.begin(), allow.end(), "table_wise") == allow.end()) {
      tables.push_back(table.name);
    }
  }
  if (first() && !tables.empty()) {
    log_info(
        "allow is for a plan for a cluster: without --cluster these tables are whole on one rank: "
        "{}; set their sharding, or give --cluster or --plan",
        fmt::join(tables, ", "));
  }
}

/// The same on all ranks, which compare it later.
spec::Plan Job::plan_for_cluster() const {
  const topology::Cluster cluster =
      planner::resized(topology::load_cluster(options_.cluster_file), world().size());
  const std::string& file = options_.stats_file;
  const planner::Workload workload =
      file.empty() ? planner::make_workload(config_)
                   : planner::make_workload(config_, read_stats_file(file), file);
  const planner::SearchResult found = planner::search(config_, cluster, workload);
  if (!found.best().fits()) {
    planner::refuse(found, config_, cluster, workload);
  }
  if (first()) {
    log_info("planned for {}: {}, {:.3f} ms a step as predicted", options_.cluster_file,
             found.best().name, 1e3 * found.best().cost.step_s);
    if (found.best().plan.groups > 1) {
      const spec::Plan& plan = found.best().plan;
      const spec::Mesh mesh = spec::mesh_of(config_.mesh, plan);
      log_info("replica groups: {} of {} ranks, {}, sync {} every {} steps", plan.groups,
               plan.ranks, to_string(plan.layout), to_string(mesh.sync), mesh.sync_every);
    }
  }
  say_if_for_other_hosts(found.best().plan, "cluster " + options_.cluster_file);
  say_if_not_the_saved(found.best().plan, "that for cluster " + options_.cluster_file);
  return found.best().plan;
}

/// That of --plan.
spec::Plan Job::given_plan() {
  spec::Plan plan = load_plan(options_.plan_file, config_);
  if (plan.world() != world().size()) {
    fail(ErrorCode::kConfig, "plan {} is for {} ranks and this job has {}; make a new plan",
         options_.plan_file, plan.world(), world().size());
  }
  if (config_.numerics.parts != 0 && config_.numerics.parts != plan.parts) {
    fail(ErrorCode::kConfig,
         "plan {} has {} parts and {} {}; parts decide the order of sums: make a new plan, or "
         "leave --plan out",
         options_.plan_file, plan.parts,
         manifest_ ? "the checkpoint" : "numerics.parts of the configuration is",
         config_.numerics.parts);
  }
  config_.numerics.parts = plan.parts;
  say_if_for_other_hosts(plan, "plan " + options_.plan_file);
  say_if_not_the_saved(plan, "plan " + options_.plan_file);
  return plan;
}

/// What is asked for; else the checkpoint's, where it fits; else a new one.
spec::Plan Job::choose_plan() {
  if (!options_.plan_file.empty()) {
    return given_plan();
  }
  if (!options_.cluster_file.empty()) {
    return plan_for_cluster();
  }
  const planner::PlanTarget target = plan_target(world());
  const std::string why = saved_ ? why_another_plan(*saved_, config_, target) : std::string();
  if (saved_ && why.empty()) {
    return saved_->plan;
  }
  const std::string& file = options_.stats_file;
  spec::Plan made = planner::make_plan(
      config_, target,
      file.empty() ? std::vector<planner::HotRows>{}
                   : planner::measured_hot_rows(config_, read_stats_file(file), file));
  say_what_is_not_asked();
  if (first() && saved_ && made != saved_->plan) {
    log_info("resume: {}; made a new plan for {} ranks, with the same {} parts", why, made.world(),
             made.parts);
  }
  return made;
}

void Job::say_which_groups() const {
  const bool changed = saved_ && saved_->plan.groups != plan_.groups;
  const bool converts = changed && saved_moment_scales(manifest_->metadata.extra_json) !=
                                       moment_scales(config_, plan_);
  if (first() && plan_.groups > 1) {
    log_info("{} replica groups of {} ranks: {}", plan_.groups, plan_.ranks,
             describe_groups(plan_));
  }
  if (first() && changed) {
    log_info("resume: the checkpoint is of {} replica groups of {} ranks, this job has {} of {}{}",
             saved_->plan.groups, saved_->plan.ranks, plan_.groups, plan_.ranks,
             converts ? "; Adagrad's sums are converted to its moment scale" : "");
  }
}

/// Called when ranks have not come to the end after an error, by another thread.
void Job::explain_losses() const {
  if (plan_.groups == 1) {
    return;
  }
  launched_.explain_loss([plan = plan_, folder = options_.checkpoint_dir,
                          resumed = options_.resume](std::span<const int> ranks) {
    std::error_code unreadable;
    const bool saved = !folder.empty() && fs::exists(fs::path(folder) / "latest", unreadable);
    return describe_loss(plan, ranks, saved ? folder : resumed);
  });
}

/// At its end a job averages its replicas, wherever that is.
void Job::warn_of_an_end_between_syncs() const {
  if (!first() || !saved_ || !saved_->config) {
    return;
  }
  const spec::Mesh& mesh = saved_->config->mesh;
  const std::int64_t step = manifest_->metadata.step;
  const bool goes_on = config_.train.steps == 0 || config_.train.steps > step;
  if (goes_on && mesh.averages() && !mesh.syncs_after(step)) {
    log_warning(
        "resume: the checkpoint of step {} is of a job that ended there, between two syncs "
        "(mesh.sync_every {}), and averaged its replicas: trained on, it is not the job that would "
        "have gone on; for that resume from a checkpoint of step {}, or end at a multiple of {}",
        step, mesh.sync_every, step / mesh.sync_every * mesh.sync_every, mesh.sync_every);
  }
}

/// A slice of a part is one task of the dense model: with fewer of them than threads some of these
/// have nothing to do. Said and not changed, because parts decide the order of sums.
void Job::advise_on_parts() const {
  const std::int64_t parts = plan_.parts / world().size();
  const std::int64_t samples = config_.batch_size / plan_.parts;
  const std::int64_t slices =
      parts * std::max<std::int64_t>(1, (samples + nn::kMaxSlice - 1) / nn::kMaxSlice);
  if (first() && slices < options_.threads) {
    log_info(
        "numerics.parts is {}: a rank has {} parts of {} samples for its {} threads, {} tasks at "
        "once; for speed set a multiple of {} (that changes the order of sums, so choose before "
        "training)",
        plan_.parts, parts, samples, options_.threads, slices,
        static_cast<std::int64_t>(options_.threads) * world().size());
  }
}

/// Built by rank 0 or taken from the checkpoint, the same on all ranks.
void Job::open_vocabularies(data::Source& train) {
  if (!data::needs_vocabularies(config_)) {
    return;
  }
  if (manifest_) {
    vocabulary_bytes_ = checkpoint::read_blob(options_.resume, kVocabularyBlob);
  } else {
    // One reading of all the data may take longer than a rank is waited for.
    checkpoint::agree(world(), host_context_, [&] {
      if (first()) {
        const auto bytes = data::build_vocabularies(train, config_, &device_->pool()).serialize();
        vocabulary_bytes_.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    });
    broadcast_bytes(world(), host_context_, vocabulary_bytes_);
  }
  vocabularies_ = data::Vocabularies::parse(std::as_bytes(std::span(vocabulary_bytes_)),
                                            manifest_ ? options_.resume : "rank 0");
  data::check_vocabularies(vocabularies_, config_);
}

void Job::make_engine(std::uint64_t fingerprint) {
  agree_on_job(world(), host_context_,
               {.config_yaml = spec::to_yaml(config_),
                .plan_yaml = spec::plan_to_yaml(plan_),
                .data = fingerprint,
                .vocabularies = vocabulary_bytes_,
                .resumes = !options_.resume.empty()});
  EngineOptions engine = options_.engine;
  engine.recorder = trace_ ? &trace_->recorder() : nullptr;
  engine_ = std::make_unique<Engine>(config_, plan_, world(), *device_, engine);
  if (manifest_) {
    load();
  }
}

void Job::load() {
  std::vector<std::string> left_out;
  const auto restores = [&](const char* key, const std::string& own, const char* parameter) {
    const std::string saved = saved_residual_layout(key);
    if (!saved.empty() && saved == own) {
      return Residuals::kRestored;
    }
    left_out.emplace_back(parameter);
    return Residuals::kDropped;
  };
  const Residuals of_dense =
      restores(kResidualLayout, engine_->residual_layout(), kResidualParameter);
  const Residuals of_syncs = restores(kSyncResidualLayout, engine_->sync_residual_layout(),
                                      sharding::kSyncResidualParameter);
  const auto sinks = engine_->sinks(of_dense, of_syncs);
  engine_->run_stage([&](Context& ctx) {
    checkpoint::load(
        engine_->control_comm(), ctx,
        {.path = options_.resume, .extra = checkpoint::ExtraItems::kRefuse, .left_out = left_out},
        sinks);
  });
  convert_moments();
  engine_->restored();
  if (first()) {
    log_info("resumed at step {} from {}", manifest_->metadata.step,
             checkpoint::find_checkpoint(options_.resume));
  }
}

/// As the checkpoint says it; empty where it has no residuals.
std::string Job::saved_residual_layout(const char* key) const {
  const auto extra = nlohmann::json::parse(manifest_->metadata.extra_json, nullptr, false);
  const auto found = extra.is_object() ? extra.find(key) : extra.end();
  return found != extra.end() && found->is_string() ? found->get<std::string>() : "";
}

/// What a resumed training cannot take over.
void Job::warn_of_residuals() const {
  const auto warn = [this](const char* key, const std::string& own, std::string_view codec) {
    const std::string saved = manifest_ ? saved_residual_layout(key) : "";
    if (first() && !saved.empty() && saved != own) {
      log_warning(
          "resume: what the codec of {} had rounded away is dropped: it is of {} in the "
          "checkpoint, this run has {}; the same bits are promised on equal ones only",
          codec, saved, own.empty() ? "none" : own);
    }
  };
  warn(kResidualLayout, engine_->residual_layout(), "dense gradients");
  warn(kSyncResidualLayout, engine_->sync_residual_layout(), "syncs of replica groups");
}

/// From the scales of the mesh that saved them to those of this one.
void Job::convert_moments() {
  const MomentScales saved = saved_moment_scales(manifest_->metadata.extra_json);
  const MomentScales own = moment_scales(config_, plan_);
  const auto scale_of = [](const MomentScales& scales, const std::string& table) {
    const auto found = scales.find(table);
    return found == scales.end() ? MomentScale{} : found->second;
  };
  engine_->run_stage([&](Context& /*ctx*/) {
    for (embedding::TableShard* shard : engine_->embeddings().shards()) {
      const std::string& table = shard->table().name;
      rescale_moments(*shard, scale_of(saved, table), scale_of(own, table));
    }
  });
}

void Job::save(std::int64_t step,
               const data::ReaderPosition& position,
               const TrainingFigures& figures) {
  checkpoint::SaveOptions options;
  options.directory = options_.checkpoint_dir;
  options.keep = options_.checkpoint_keep;
  options.folder = checkpoints_.folder.get();
  options.metadata = {.weft_version = version(),
                      .step = step,
                      .epoch = position.epoch,
                      .sample = position.sample,
                      .ranks = world().size(),
                      .parts = plan_.parts,
                      .target = std::string(to_string(target_)),
                      .config_yaml = spec::to_yaml(config_),
                      .plan_yaml = spec::plan_to_yaml(plan_),
                      .config_hash = spec::config_hash(config_),
                      .plan_hash = spec::plan_hash(plan_)};
  nlohmann::json extra{{"lifetime", to_json_value(figures.lifetime())},
                       {"moment_scales", moment_scales(config_, plan_)},
                       {kSavedHosts, planner::host_numbers(plan_target(launched_))}};
  if (const std::string residuals = engine_->residual_layout(); !residuals.empty()) {
    extra[kResidualLayout] = residuals;
  }
  if (const std::string residuals = engine_->sync_residual_layout(); !residuals.empty()) {
    extra[kSyncResidualLayout] = residuals;
  }
  options.metadata.extra_json = extra.dump();
  if (!vocabulary_bytes_.empty()) {
    options.blobs.push_back({kVocabularyBlob, vocabulary_bytes_});
  }
  std::string where;
  const auto sources = engine_->sources();
  engine_->run_stage([&](Context& ctx) {
    where = checkpoint::save(engine_->control_comm(), ctx, options, sources);
  });
  if (first() && options_.progress.on_note) {
    options_.progress.on_note("checkpoint " + where);
  }
}

void Job::restore_figures(Trainer& trainer) const {
  const auto extra = nlohmann::json::parse(manifest_->metadata.extra_json, nullptr, false);
  try {
    std::vector<metrics::BinarySums> lifetime = sums_from_json(extra.at("lifetime"));
    if (lifetime.size() == config_.tasks.size()) {
      trainer.figures().restore_lifetime(std::move(lifetime));
    }
  } catch (const nlohmann::json::exception& error) {
    log_warning("resume: the checkpoint's lifetime figures are not readable ({}); they start anew",
                error.what());
  }
}

std::optional<EvalFigures> Job::evaluate() {
  auto source = data::open_source(config_, data::Split::kEval);
  data::Loader loader(
      std::move(source), config_, vocabularies_,
      data::LoaderOptions::eval(config_, world().rank(), world().size(), plan_.parts));
  return train::evaluate(*engine_, loader, config_, plan_, options_.stop);
}

ProgressSink Job::progress() {
  if (!first()) {
    return {};
  }
  ProgressSink sink = options_.progress;
  sink.on_window = [this](const WindowFigures& window) {
    append_metrics(window_to_json_line(window));
    if (events_) {
      events_->add(window.step, figures_of(window));
    }
    if (options_.progress.on_window) {
      options_.progress.on_window(window);
    }
  };
  sink.on_eval = [this](const EvalFigures& eval) {
    append_metrics(eval_to_json_line(eval));
    if (events_) {
      events_->add(eval.step, figures_of(eval));
    }
    if (options_.progress.on_eval) {
      options_.progress.on_eval(eval);
    }
  };
  return sink;
}

void Job::prepare_out() const {
  if (options_.out_dir.empty() || !first()) {
    return;
  }
  std::error_code error;
  fs::create_directories(options_.out_dir, error);
  if (error) {
    fail(ErrorCode::kIo, "cannot make --out {}: {}", options_.out_dir, error.message());
  }
  const fs::path out = options_.out_dir;
  write_file(out / "config.yaml", spec::to_yaml(config_), std::ios::trunc);
  write_file(out / "plan.yaml", spec::plan_to_yaml(plan_), std::ios::trunc);
  if (!manifest_) {
    write_file(out / "metrics.jsonl", "", std::ios::trunc);
  }
}

void Job::prepare_trace() {
  if (!options_.trace.folder.empty()) {
    trace_.emplace(options_.trace, manifest_ ? manifest_->metadata.step : 0);
  }
}

void Job::append_metrics(const std::string& line) const {
  if (!options_.out_dir.empty()) {
    write_file(fs::path(options_.out_dir) / "metrics.jsonl", line, std::ios::app);
  }
}

void Job::finish(Summary& summary, Clock::time_point start) {
  // Replicas differ where gradients were not exchanged.
  const checkpoint::StateHash hash =
      engine_->skips_stages() ? checkpoint::StateHash{} : engine_->hash();
  summary.weights_hash = hash.weights;
  summary.state_hash = hash.state;
  summary.ranks = world().size();
  summary.threads = options_.threads;
  summary.parts = plan_.parts;
  summary.target = to_string(target_);
  summary.plan_hash = fmt::format("{:016x}", spec::plan_hash(plan_));
  summary.config_yaml = spec::to_yaml(config_);
  summary.skipped_stages = config_.debug.skip;
  sum_up_memory(summary);
  summary.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
  if (first() && !options_.out_dir.empty()) {
    write_file(fs::path(options_.out_dir) / "summary.json", to_json(summary), std::ios::trunc);
  }
}

/// Ranks may be threads of one process: what belongs to it is the largest any rank saw.
void Job::sum_up_memory(Summary& summary) {
  std::int64_t tables = engine_->embeddings().bytes();
  std::array<std::int64_t, 4> of_process = {peak_rss_bytes(), host_memory_use().peak, heap_bytes(),
                                            program_bytes_};
  engine_->run_stage([&](Context& ctx) {
    engine_->control_comm().all_reduce(ctx, &tables, 1, comm::ReduceOp::kSum);
    engine_->control_comm().all_reduce(ctx, of_process.data(), of_process.size(),
                                       comm::ReduceOp::kMax);
  });
  summary.peak_rss_bytes = of_process[0];
  summary.memory = {.tables = tables,
                    .buffers_peak = of_process[1],
                    .heap = of_process[2],
                    .program = of_process[3]};
}

Summary Job::train() {
  const auto start = Clock::now();
  auto source = data::open_source(config_, data::Split::kTrain);
  const auto eval_source = data::open_source(config_, data::Split::kEval);
  open_vocabularies(*source);
  prepare_out();
  prepare_trace();
  warn_of_an_end_between_syncs();
  if (first() && !options_.tensorboard_dir.empty()) {
    events_.emplace(options_.tensorboard_dir);
  }
  make_engine(source->fingerprint() + (eval_source ? eval_source->fingerprint() : 0));
  warn_of_residuals();

  data::LoaderOptions reading =
      data::LoaderOptions::train(config_, world().rank(), world().size(), plan_.parts);
  if (config_.train.steps > 0) {
    reading.epochs = 0;
  }
  TrainerOptions options;
  if (manifest_) {
    reading.start = {manifest_->metadata.epoch, manifest_->metadata.sample};
    reading.first_step = manifest_->metadata.step;
    options.first_step = manifest_->metadata.step;
  }
  options.samples_per_epoch = source->size();
  options.stop = options_.stop;
  options.progress = progress();
  options.trace = trace_ ? &*trace_ : nullptr;
  if (trace_) {
    reading.track = &trace_->recorder().make_track("reader", trace::TrackKind::kThread);
  }
  if (eval_source != nullptr && !engine_->skips_stages()) {
    options.evaluate = [this](std::int64_t) { return evaluate(); };
  }
  data::Loader loader(std::move(source), config_, vocabularies_, reading);
  Trainer* running = nullptr;
  if (!options_.checkpoint_dir.empty()) {
    options.checkpoint_every = options_.checkpoint_every;
    options.saved_step = checkpoints_.has_resumed ? options.first_step : -1;
    options.save = [&](std::int64_t step) { save(step, loader.position(), running->figures()); };
  }
  Trainer trainer(config_, *engine_, loader, options);
  running = &trainer;
  if (manifest_) {
    restore_figures(trainer);
  }
  trainer.run();

  Summary summary;
  trainer.report(summary);
  finish(summary, start);
  return summary;
}

Summary Job::eval() {
  const auto start = Clock::now();
  if (!config_.debug.skip.empty()) {
    fail(ErrorCode::kConfig, "debug.skip: an evaluation needs all stages; remove the key");
  }
  const auto source = data::open_source(config_, data::Split::kEval);
  if (source == nullptr) {
    fail(ErrorCode::kConfig,
         "there is no evaluation data; set data.eval_path or data.eval_fraction");
  }
  if (data::needs_vocabularies(config_) && !manifest_) {
    auto train_source = data::open_source(config_, data::Split::kTrain);
    open_vocabularies(*train_source);
  } else {
    open_vocabularies(*source);
  }
  prepare_out();
  make_engine(source->fingerprint());
  Summary summary;
  summary.last_step = manifest_ ? manifest_->metadata.step : 0;
  summary.eval = evaluate();
  summary.stopped = !summary.eval;
  if (summary.eval) {
    summary.eval->step = summary.last_step;
  }
  const CodecReport losses = sum_losses(*engine_, config_, summary);
  if (first()) {
    warn_of_losses(config_, losses, {}, "of the evaluation");
  }
  if (summary.eval && first() && options_.progress.on_eval) {
    options_.progress.on_eval(*summary.eval);
  }
  finish(summary, start);
  return summary;
}

}  // namespace

Summary run_train(comm::Communicator& world, const JobOptions& options) {
  return Job(world, options).train();
}

Summary run_eval(comm::Communicator& world, const JobOptions& options) {
  return Job(world, options).eval();
}

}  // namespace weft::train
