#include "weft/train/job.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/text.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/comm/work_watch.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/data/vocabulary.h"
#include "weft/nn/model.h"
#include "weft/planner/place.h"
#include "weft/spec/plan.h"
#include "weft/spec/yaml.h"
#include "weft/tensor/memory_use.h"
#include "weft/train/agreement.h"
#include "weft/train/checkpoint_age.h"
#include "weft/train/checkpoint_folder.h"
#include "weft/train/codec_clips.h"
#include "weft/train/data_identity.h"
#include "weft/train/evaluation.h"
#include "weft/train/memory_check.h"
#include "weft/train/mesh.h"
#include "weft/train/plan_choice.h"
#include "weft/train/process_memory.h"
#include "weft/train/records.h"
#include "weft/train/resume_plan.h"
#include "weft/train/trainer.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kVocabularyBlob = "vocabularies";
constexpr const char* kResidualLayout = "dense_residuals";
constexpr const char* kSyncResidualLayout = "sync_residuals";
constexpr const char* kSkipsOwed = "skipped_steps_owed";

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
      checkpoint::agree(world(), host_context_, [&](WorkProgress& progress) {
        progress.begin({.activity = "opening", .place = fmt::format("'{}'", options_.resume)});
        manifest_ = checkpoint::read_manifest(options_.resume);
      });
      saved_ = saved_job(manifest_->metadata, options_.resume);
      check_resume();
    }
    plan_ = choose_plan({.plan_file = options_.plan_file,
                         .cluster_file = options_.cluster_file,
                         .stats_file = options_.stats_file,
                         .saved = saved_ ? &*saved_ : nullptr},
                        launched_, config_);
    config_.mesh = spec::mesh_of(config_.mesh, plan_);
    warn_of_another_config();
    by_position_ = order_by_position(launched_, plan_);
    say_which_groups();
    explain_lost_ranks();
    advise_on_parts();
    check_checkpoint_interval(config_.mesh, options_.checkpoint_every);
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
  void say_which_groups() const;
  void explain_lost_ranks() const;
  void warn_of_an_end_between_syncs() const;
  void advise_on_parts() const;
  void open_vocabularies(data::Source& train);
  void look_at_data(const std::function<void(WorkProgress&)>& work);
  void agree_on_data(std::uint64_t fingerprint);
  void resume_data(data::Source& train);
  void explain_no_steps() const;
  void make_engine();
  void load();
  [[nodiscard]] std::string saved_residual_layout(const char* key) const;
  void warn_of_residuals() const;
  void convert_moments();
  void restore_figures(Trainer& trainer) const;
  [[nodiscard]] std::unique_ptr<data::Source> open_source(data::Split split) const;
  bool save(const Trainer& trainer, SaveKind kind);
  void begin_checkpoint_age();
  std::optional<EvalFigures> evaluate();
  void finish(Summary& summary, Clock::time_point start);
  void sum_up_ranks(Summary& summary);
  void prepare_records();
  void prepare_trace();
  ProgressSink progress();
  void say(Phase phase) const;

  comm::Communicator& launched_;
  std::unique_ptr<comm::Communicator> by_position_;  // where positions of the mesh are not ranks
  JobOptions options_;                               // resume: the checkpoint itself
  spec::Config config_;
  CheckpointFolder checkpoints_;
  // Shared with the text of a loss, which another thread makes when this job may be gone.
  std::shared_ptr<std::atomic<bool>> has_saved_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<Device> device_, host_;
  Context host_context_;
  kernels::Target target_{};
  std::optional<checkpoint::Manifest> manifest_;
  std::optional<SavedJob> saved_;  // with manifest_
  spec::Plan plan_;
  Reading reading_;  // of a training
  data::Vocabularies vocabularies_;
  std::string vocabulary_bytes_;
  std::int64_t program_bytes_ = rss_bytes();
  std::optional<TraceSession> trace_;
  std::optional<Records> records_;  // of a training, on rank 0
  std::optional<CheckpointAge> checkpoint_age_;
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
  check_salts({.metadata = saved, .name = options_.resume}, config_);
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

void Job::say_which_groups() const {
  const bool changed = saved_ && saved_->plan.groups != plan_.groups;
  const bool converts = changed && saved_moment_scales(manifest_->metadata.extra_json) !=
                                       moment_scales(config_, plan_);
  if (first() && plan_.groups > 1) {
    log_info("{} replica groups of {}: {}", plan_.groups, counted(plan_.ranks, "rank"),
             describe_groups(plan_));
  }
  if (first() && changed) {
    log_info("resume: the checkpoint is of {} replica groups of {} ranks, this job has {} of {}{}",
             saved_->plan.groups, saved_->plan.ranks, plan_.groups, plan_.ranks,
             converts ? "; Adagrad's sums are converted to its moment scale" : "");
  }
}

/// Called when ranks have not come to the end after an error, by another thread.
void Job::explain_lost_ranks() const {
  if (plan_.groups == 1) {
    return;
  }
  launched_.explain_lost_ranks([plan = plan_, saved = has_saved_, folder = options_.checkpoint_dir,
                                resumed = options_.resume](std::span<const int> ranks) {
    // No look at the disk, which may be what does not answer.
    return describe_lost_ranks(plan, ranks, *saved ? folder : resumed);
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
        "numerics.parts is {}: a rank has {} of {} for its {} threads, {} at once; for speed set "
        "a multiple of {} (that changes the order of sums, so choose before training)",
        plan_.parts, counted(parts, "part"), counted(samples, "sample"), options_.threads,
        counted(slices, "task"), static_cast<std::int64_t>(options_.threads) * world().size());
  }
}

/// Built by rank 0 or taken from the checkpoint, the same on all ranks.
void Job::open_vocabularies(data::Source& train) {
  if (!data::needs_vocabularies(config_)) {
    return;
  }
  if (manifest_) {
    checkpoint::agree(world(), host_context_, [&](WorkProgress& progress) {
      progress.begin({.activity = "reading", .place = fmt::format("'{}'", options_.resume)});
      vocabulary_bytes_ = checkpoint::read_blob(options_.resume, kVocabularyBlob);
    });
  } else {
    say(Phase::kVocabularies);
    // One reading of all the data may take longer than a rank is waited for.
    checkpoint::agree(world(), host_context_, [&](WorkProgress& progress) {
      if (first()) {
        const auto bytes =
            data::build_vocabularies(train, config_, &device_->pool(), &progress).serialize();
        vocabulary_bytes_.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    });
    broadcast_bytes(world(), host_context_, vocabulary_bytes_);
  }
  vocabularies_ = data::Vocabularies::parse(std::as_bytes(std::span(vocabulary_bytes_)),
                                            manifest_ ? options_.resume : "rank 0");
  data::check_vocabularies(vocabularies_, config_);
}

/// Files are opened and read at some places, by every rank for itself: one whose file system does
/// not answer is named.
void Job::look_at_data(const std::function<void(WorkProgress&)>& work) {
  checkpoint::agree(world(), host_context_, [&](WorkProgress& progress) {
    const auto& paths = config_.data.path;
    progress.begin({.activity = "opening",
                    .place = paths.empty() ? "data" : fmt::format("'{}'", paths.front())});
    work(progress);
  });
}

void Job::agree_on_data(std::uint64_t fingerprint) {
  agree_on_job(world(), host_context_,
               {.config_yaml = spec::to_yaml(config_),
                .plan_yaml = spec::plan_to_yaml(plan_),
                .data = fingerprint,
                .vocabularies = vocabulary_bytes_,
                .resumes = !options_.resume.empty()});
}

/// Once the ranks have agreed on them, so that a rank with other data than the others is named.
void Job::resume_data(data::Source& train) {
  if (!manifest_) {
    return;
  }
  look_at_data([&](WorkProgress& progress) {
    const data::ProgressUse use(train, progress);
    resume_reading(reading_, {manifest_->metadata, options_.resume, options_.resume_data}, train,
                   config_);
  });
  if (first() && !reading_.warning.empty()) {
    log_warning("{}", reading_.warning);
  }
  if (first() && !reading_.note.empty()) {
    log_info("{}", reading_.note);
  }
}

void Job::explain_no_steps() const {
  const std::string note = train::explain_no_steps(reading_, config_);
  if (first() && !reading_.complete) {
    log_info("{}", note);
  }
}

void Job::make_engine() {
  check_memory(world(), host_context_, config_, plan_,
               {.threads = options_.threads,
                .on_shortage = options_.on_shortage,
                .root = options_.system_root});
  say(Phase::kFilling);
  EngineOptions engine = options_.engine;
  engine.recorder = trace_ ? &trace_->recorder() : nullptr;
  engine_ = std::make_unique<Engine>(config_, plan_, world(), *device_, engine);
  if (manifest_) {
    load();
  }
}

void Job::load() {
  say(Phase::kLoading);
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

/// Whether it was written; a final one always is, or the error is thrown.
bool Job::save(const Trainer& trainer, SaveKind kind) {
  say(Phase::kSaving);
  const std::int64_t step = trainer.step();
  const data::ReaderPosition& position = trainer.position();
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
                      .plan_hash = spec::plan_hash(plan_),
                      .data = reading_.data};
  nlohmann::json extra{{"lifetime", to_json_value(trainer.figures().lifetime())},
                       {kSkipsOwed, trainer.skips().owed()},
                       {"moment_scales", moment_scales(config_, plan_)},
                       {kSavedHosts, planner::host_numbers(rank_layout(launched_))}};
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
  std::optional<Error> failed;  // on all ranks alike
  const auto sources = engine_->sources();
  engine_->run_stage([&](Context& ctx) {
    try {
      where = checkpoint::save(engine_->control_comm(), ctx, options, sources);
      *has_saved_ = true;
    } catch (const Error& error) {
      engine_->control_comm().check();  // an error of the world is none of the checkpoint's
      failed = error;
    }
  });
  if (failed) {
    const std::string warning = checkpoint_age_->failed(step, kind, *failed);
    if (first()) {
      log_warning("{}", warning);
    }
    return false;
  }
  checkpoint_age_->saved(step);
  if (first() && options_.progress.on_note) {
    options_.progress.on_note("checkpoint " + where);
  }
  return true;
}

void Job::begin_checkpoint_age() {
  std::int64_t max_age = options_.checkpoint_max_age;
  world().broadcast(host_context_, &max_age, sizeof max_age, 0);
  checkpoint_age_.emplace(manifest_ ? manifest_->metadata.step : 0, options_.checkpoint_every,
                          max_age);
}

void Job::restore_figures(Trainer& trainer) const {
  const auto extra = nlohmann::json::parse(manifest_->metadata.extra_json, nullptr, false);
  try {
    trainer.skips().restore(extra.value(kSkipsOwed, std::int64_t{0}));  // older ones do not say
    std::vector<metrics::BinarySums> lifetime = sums_from_json(extra.at("lifetime"));
    if (lifetime.size() == config_.tasks.size()) {
      trainer.figures().restore_lifetime(std::move(lifetime));
    }
  } catch (const nlohmann::json::exception& error) {
    log_warning("resume: the checkpoint's lifetime figures are not readable ({}); they start anew",
                error.what());
  }
}

/// The caller's source, or the configured files.
std::unique_ptr<data::Source> Job::open_source(data::Split split) const {
  return options_.open_source ? options_.open_source(config_, split)
                              : data::open_source(config_, split);
}

std::optional<EvalFigures> Job::evaluate() {
  say(Phase::kEvaluating);
  auto source = open_source(data::Split::kEval);
  data::Loader loader(
      std::move(source), config_, vocabularies_,
      data::LoaderOptions::eval(config_, world().rank(), world().size(), plan_.parts));
  return train::evaluate(
      *engine_, loader, config_,
      {.stop = options_.stop, .on_activity = first() ? options_.progress.on_activity : nullptr});
}

void Job::say(Phase phase) const {
  if (first() && options_.progress.on_activity) {
    options_.progress.on_activity({.phase = phase});
  }
}

ProgressSink Job::progress() {
  return records_ ? records_->sink(options_.progress) : ProgressSink{};
}

void Job::prepare_records() {
  if (first()) {
    records_.emplace(RecordsOptions{
        .folder = options_.out_dir,
        .tensorboard = options_.tensorboard_dir,
        .resumed_step = manifest_ ? std::optional(manifest_->metadata.step) : std::nullopt,
        .config_yaml = spec::to_yaml(config_),
        .plan_yaml = spec::plan_to_yaml(plan_),
        .run = [this](const std::string& path, const std::function<void()>& write) {
          comm::run_watched(world(), [&](WorkProgress& progress) {
            progress.begin({.activity = "writing", .place = fmt::format("'{}'", path)});
            write();
          });
        }});
  }
}

void Job::prepare_trace() {
  if (!options_.trace.folder.empty()) {
    comm::run_watched(world(), [&](WorkProgress& progress) {
      progress.begin({.activity = "writing", .place = fmt::format("'{}'", options_.trace.folder)});
      trace_.emplace(options_.trace, manifest_ ? manifest_->metadata.step : 0);
    });
  }
}

void Job::finish(Summary& summary, Clock::time_point start) {
  say(Phase::kHashing);
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
  sum_up_ranks(summary);
  summary.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
}

/// Ranks may be threads of one process: what belongs to it is the largest any rank saw.
void Job::sum_up_ranks(Summary& summary) {
  std::array<std::int64_t, 2> of_ranks = {engine_->embeddings().bytes(),
                                          trace_ && trace_->is_lost() ? 1 : 0};
  std::array<std::int64_t, 4> of_process = {peak_rss_bytes(), host_memory_use().peak, heap_bytes(),
                                            program_bytes_};
  engine_->run_stage([&](Context& ctx) {
    engine_->control_comm().all_reduce(ctx, of_ranks.data(), of_ranks.size(), comm::ReduceOp::kSum);
    engine_->control_comm().all_reduce(ctx, of_process.data(), of_process.size(),
                                       comm::ReduceOp::kMax);
  });
  summary.peak_rss_bytes = of_process[0];
  summary.lost = records_ ? records_->lost() : LostRecords{};
  summary.lost.traces = of_ranks[1];
  summary.lost.checkpoints = checkpoint_age_ ? checkpoint_age_->failures() : 0;
  summary.memory = {.tables = of_ranks[0],
                    .buffers_peak = of_process[1],
                    .heap = of_process[2],
                    .program = of_process[3]};
}

Summary Job::train() {
  const auto start = Clock::now();
  say(Phase::kReading);
  std::unique_ptr<data::Source> source;
  std::unique_ptr<data::Source> eval_source;
  std::uint64_t fingerprint = 0;
  look_at_data([&](WorkProgress& progress) {
    source = open_source(data::Split::kTrain);
    eval_source = open_source(data::Split::kEval);
    const data::ProgressUse use(*source, progress);
    reading_ = begin_reading(*source, config_);
    fingerprint = fingerprint_of(reading_.data) + (eval_source ? eval_source->fingerprint() : 0);
  });
  open_vocabularies(*source);
  agree_on_data(fingerprint);
  resume_data(*source);
  prepare_records();
  begin_checkpoint_age();
  prepare_trace();
  warn_of_an_end_between_syncs();
  make_engine();
  warn_of_residuals();

  data::LoaderOptions reading =
      data::LoaderOptions::train(config_, world().rank(), world().size(), plan_.parts);
  if (config_.train.steps > 0) {
    reading.epochs = 0;
  }
  TrainerOptions options;
  if (manifest_) {
    reading.start = reading_.start;
    reading.first_step = manifest_->metadata.step;
    options.first_step = manifest_->metadata.step;
    options.start = reading_.start;
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
  if (!options_.checkpoint_dir.empty()) {
    options.checkpoint_every = options_.checkpoint_every;
    options.saved_step = checkpoints_.has_resumed ? options.first_step : -1;
    options.save = [&, first_step = options.first_step](const Trainer& trainer, SaveKind kind) {
      if (!reading_.same_data && trainer.step() == first_step) {
        return true;  // no step of the new data: the checkpoint resumed from says all
      }
      reading_.data.samples = std::max(reading_.data.samples, loader.epoch_samples());
      return save(trainer, kind);
    };
  }
  Trainer trainer(config_, *engine_, loader, options);
  if (manifest_) {
    restore_figures(trainer);
  }
  trainer.run();
  if (manifest_ && trainer.trained_nothing()) {
    explain_no_steps();
  }

  Summary summary;
  trainer.report(summary);
  finish(summary, start);
  if (records_) {
    records_->write_summary(summary);
  }
  return summary;
}

Summary Job::eval() {
  const auto start = Clock::now();
  if (!config_.debug.skip.empty()) {
    fail(ErrorCode::kConfig, "debug.skip: an evaluation needs all stages; remove the key");
  }
  say(Phase::kReading);
  std::unique_ptr<data::Source> source;
  std::uint64_t fingerprint = 0;
  look_at_data([&](WorkProgress& /*progress*/) {
    source = open_source(data::Split::kEval);
    fingerprint = source ? source->fingerprint() : 0;
  });
  if (source == nullptr) {
    fail(ErrorCode::kConfig,
         "there is no evaluation data; set data.eval_path or data.eval_fraction");
  }
  if (data::needs_vocabularies(config_) && !manifest_) {
    auto train_source = open_source(data::Split::kTrain);
    open_vocabularies(*train_source);
  } else {
    open_vocabularies(*source);
  }
  if (first() && !options_.out_dir.empty()) {
    make_record_folder(options_.out_dir, "--out");
  }
  agree_on_data(fingerprint);
  make_engine();
  Summary summary;
  summary.last_step = manifest_ ? manifest_->metadata.step : 0;
  summary.eval = evaluate();
  summary.stopped = !summary.eval;
  if (summary.eval) {
    summary.eval->step = summary.last_step;
  }
  const CodecReport clips = sum_clips(*engine_, config_, summary);
  if (first()) {
    warn_of_clips(config_, clips, {}, "of the evaluation");
  }
  if (summary.eval && first() && options_.progress.on_eval) {
    options_.progress.on_eval(*summary.eval);
  }
  finish(summary, start);
  if (first() && !options_.out_dir.empty()) {
    write_evaluation(options_.out_dir, summary);
  }
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
