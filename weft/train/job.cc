// A job in the order of its life: ranks agree, the plan is chosen, data are opened, the engine is
// made, steps are trained. What it says is in job_notes.cc, what it takes over from a checkpoint in
// job_resume.cc, what it writes in job_output.cc.
#include "weft/train/job.h"

#include <memory>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/checkpoint/agree.h"
#include "weft/comm/work_watch.h"
#include "weft/data/loader.h"
#include "weft/spec/yaml.h"
#include "weft/train/agreement.h"
#include "weft/train/codec_clips.h"
#include "weft/train/evaluation.h"
#include "weft/train/mesh.h"
#include "weft/train/one_job.h"
#include "weft/train/plan_choice.h"
#include "weft/train/resume_plan.h"

namespace weft::train {
namespace {

DeviceKind device_kind(spec::DeviceChoice choice) {
  switch (choice) {
    case spec::DeviceChoice::kCpu:
      return DeviceKind::kCpu;
    case spec::DeviceChoice::kCheck:
      return DeviceKind::kCheck;
    case spec::DeviceChoice::kCuda:
      return DeviceKind::kCuda;
  }
  fail(ErrorCode::kInternal, "device {} has no name", static_cast<int>(choice));
}

}  // namespace

Job::Job(comm::Communicator& launched, const JobOptions& options)
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
    manifest_ = checkpoint::open_checkpoint(world(), host_context_, options_.resume).manifest;
    saved_ = saved_job(manifest_->metadata, options_.resume);
    check_resume();
  }
  plan_ = choose_plan({.plan_file = options_.plan_file,
                       .cluster_file = options_.cluster_file,
                       .stats_file = options_.stats_file,
                       .saved = saved_ ? &*saved_ : nullptr},
                      launched_, host_context_, config_);
  config_.mesh = spec::mesh_of(config_.mesh, plan_);
  config_.pipeline = spec::pipeline_of(config_.pipeline, plan_);
  warn_of_another_config();
  say_what_carries();
  by_position_ = order_by_position(launched_, plan_);
  say_which_groups();
  explain_lost_ranks();
  advise_on_parts();
  advise_on_cuts();
  check_checkpoint_interval(config_.mesh, options_.checkpoint_every);
}

void Job::open_vocabularies(data::Source& train) {
  if (!data::needs_vocabularies(config_)) {
    return;
  }
  if (manifest_) {
    vocabulary_bytes_ =
        checkpoint::share_blob(world(), host_context_, options_.resume, kVocabularyBlob);
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
    world().share(host_context_, vocabulary_bytes_, 0);
  }
  vocabularies_ = data::Vocabularies::parse(std::as_bytes(std::span(vocabulary_bytes_)),
                                            manifest_ ? options_.resume : "rank 0");
  data::check_vocabularies(vocabularies_, config_);
}

void Job::look_at_data(const std::function<void(WorkProgress&)>& work) {
  checkpoint::agree(world(), host_context_, [&](WorkProgress& progress) {
    const auto& paths = config_.data.path;
    progress.begin({.activity = "opening",
                    .place = paths.empty() ? "data" : fmt::format("'{}'", paths.front())});
    work(progress);
  });
}

void Job::agree_on_data(std::uint64_t fingerprint) {
  config_yaml_ = spec::to_yaml(config_);
  agree_on_job(world(), host_context_,
               {.config_yaml = config_yaml_,
                .plan_yaml = spec::plan_to_yaml(plan_),
                .data = fingerprint,
                .vocabularies = vocabulary_bytes_,
                .resumes = !options_.resume.empty()});
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
  for (StateSink* sink : engine_->sinks(Residuals::kDropped, Residuals::kRestored)) {
    if (RowState* rows = sink->row_sink()) {
      increments_.rows.push_back(rows);
    }
  }
  if (manifest_) {
    load();
  }
}

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

Summary Job::train() {
  const auto start = Clock::now();
  check_clustering();
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

Summary run_train(comm::Communicator& world, const JobOptions& options) {
  return Job(world, options).train();
}

Summary run_eval(comm::Communicator& world, const JobOptions& options) {
  return Job(world, options).eval();
}

}  // namespace weft::train
