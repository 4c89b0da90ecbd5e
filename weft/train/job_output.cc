// What a job writes: checkpoints, records, traces, its summary.
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/log.h"
#include "weft/comm/work_watch.h"
#include "weft/planner/place.h"
#include "weft/spec/yaml.h"
#include "weft/tensor/memory_use.h"
#include "weft/train/agreement.h"
#include "weft/train/mesh.h"
#include "weft/train/one_job.h"
#include "weft/train/plan_choice.h"

namespace weft::train {
namespace {

nlohmann::json to_json_value(const std::vector<metrics::BinarySums>& sums) {
  nlohmann::json list = nlohmann::json::array();
  for (const metrics::BinarySums& s : sums) {
    list.push_back({s.count, s.weight, s.label, s.loss, s.prediction});
  }
  return list;
}

}  // namespace

void Job::begin_checkpoint_age() {
  std::int64_t max_age = options_.checkpoint_max_age;
  world().broadcast(host_context_, &max_age, sizeof max_age, 0);
  checkpoint_age_.emplace(manifest_ ? manifest_->metadata.step : 0, options_.checkpoint_every,
                          max_age);
}

checkpoint::SaveOptions Job::save_options(const Trainer& trainer) const {
  const data::ReaderPosition& position = trainer.position();
  checkpoint::SaveOptions options;
  options.directory = options_.checkpoint_dir;
  options.keep = options_.checkpoint_keep;
  options.folder = checkpoints_.folder.get();
  options.files = options_.checkpoint_files;
  options.metadata = {.weft_version = version(),
                      .step = trainer.step(),
                      .epoch = position.epoch,
                      .sample = position.sample,
                      .ranks = engine_->control_comm().size(),
                      .parts = plan_.parts,
                      .row_draws = static_cast<std::int64_t>(config_.numerics.draw_rule()),
                      .target = std::string(to_string(target_)),
                      .config_yaml = config_yaml_,
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
  return options;
}

bool Job::save(const Trainer& trainer, SaveKind kind) {
  say(Phase::kSaving);
  const std::int64_t step = trainer.step();
  if (open_save_ != nullptr && end_open_save(kind) && open_save_step_ == step) {
    return true;
  }
  checkpoint::SaveOptions options = save_options(trainer);
  options.increments = &increments_;
  const bool beside_steps =
      options_.checkpoint_background && kind == SaveKind::kInterval && !config_.mesh.averages();
  const auto sources = engine_->sources();
  std::string where;
  std::optional<Error> failed;  // on all ranks alike
  engine_->run_stage([&](Context& ctx) {
    Saved before = Saved::kNothing;
    has_saved_->compare_exchange_strong(before, Saved::kMaybe);
    try {
      if (beside_steps) {
        if (save_comm_ == nullptr) {
          save_comm_ = world().duplicate("saves");
        }
        open_save_ = std::make_unique<checkpoint::BackgroundSave>(*save_comm_, *ctx.device, options,
                                                                  sources);
        open_save_step_ = step;
        saved_before_open_ = before;
        return;
      }
      where = checkpoint::save(engine_->control_comm(), ctx, options, sources);
      *has_saved_ = Saved::kSomething;
    } catch (const Error& error) {
      engine_->control_comm().check();  // an error of the world is none of the checkpoint's
      failed = error;
      *has_saved_ = before;
    }
  });
  if (open_save_ != nullptr) {
    return !open_save_->is_open() && end_open_save(kind);
  }
  return end_save(step, kind, where, failed);
}

/// True where the checkpoint is there.
bool Job::end_open_save(SaveKind next) {
  std::string note;
  std::optional<Error> failed;
  const bool was_open = open_save_->is_open();
  try {
    note = open_save_->finish();
    *has_saved_ = Saved::kSomething;
    const checkpoint::BackgroundCosts& costs = open_save_->costs();
    if (was_open) {
      note += fmt::format(
          " of step {}, in {:.2f} s beside steps, which waited {:.3f} s for the cut and {:.3f} s "
          "in "
          "updates",
          open_save_step_, costs.total_s, costs.cut_s, costs.updates_s);
    }
  } catch (const Error& error) {
    save_comm_->check();
    failed = error;
    *has_saved_ = saved_before_open_;
  }
  open_save_.reset();
  if (failed && next == SaveKind::kFinal) {
    const std::string warning = checkpoint_age_->failed_before_final(open_save_step_, *failed);
    if (first()) {
      log_warning("{}", warning);
    }
    return false;
  }
  return end_save(open_save_step_, SaveKind::kInterval, note, failed);
}

bool Job::end_save(std::int64_t step,
                   SaveKind kind,
                   const std::string& note,
                   const std::optional<Error>& failed) {
  if (failed) {
    const std::string warning = checkpoint_age_->failed(step, kind, *failed);
    if (first()) {
      log_warning("{}", warning);
    }
    return false;
  }
  checkpoint_age_->saved(step);
  if (first() && options_.progress.on_note) {
    const std::string rows = checkpoint::describe(increments_.saved);
    options_.progress.on_note("checkpoint " + note +
                              (rows.empty() ? "" : fmt::format(" (rank 0: {})", rows)));
  }
  return true;
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
        .config_yaml = config_yaml_,
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
  summary.pipeline = config_.pipeline;
  summary.plan_hash = fmt::format("{:016x}", spec::plan_hash(plan_));
  summary.config_yaml = config_yaml_;
  summary.skipped_stages = config_.debug.skip;
  sum_up_ranks(summary);
  summary.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
}

void Job::sum_up_ranks(Summary& summary) {
  std::array<std::int64_t, 2> of_ranks = {engine_->embeddings().bytes(),
                                          trace_ && trace_->is_lost() ? 1 : 0};
  // Asking for the heap takes the longer the more threads have used it, so of ranks that lend each
  // other memory, being of one process, one asks.
  const bool asks = world().rank() == 0 || !world().lends();
  std::array<std::int64_t, 4> of_process = {peak_rss_bytes(), host_memory_use().peak,
                                            asks ? heap_bytes() : 0, program_bytes_};
  engine_->run_stage([&](Context& ctx) {
    engine_->control_comm().all_reduce(ctx, of_ranks.data(), of_ranks.size(), comm::ReduceOp::kSum);
    engine_->control_comm().all_reduce(ctx, of_process.data(), of_process.size(),
                                       comm::ReduceOp::kMax);
    summary.tiers = tier_figures(engine_->control_comm(), ctx, config_, engine_->embeddings());
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

}  // namespace weft::train
