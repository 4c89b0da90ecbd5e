// What a job says before it begins: what differs from before, what is lost, what would help.
#include <optional>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/text.h"
#include "weft/layout/dense_memory.h"
#include "weft/planner/place.h"
#include "weft/spec/yaml.h"
#include "weft/topology/yaml.h"
#include "weft/train/link_report.h"
#include "weft/train/mesh.h"
#include "weft/train/one_job.h"

namespace weft::train {

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

void Job::say_what_carries() {
  if (launched_.carrier().empty() || launched_.size() == 1) {
    return;
  }
  const LinkFigures figures = measure_links(launched_, host_context_, options_.system_root);
  if (!first()) {
    return;
  }
  std::optional<topology::Cluster> cluster;
  if (!options_.cluster_file.empty()) {
    cluster = topology::load_cluster(options_.cluster_file);
  }
  const LinkNotes notes = describe_links(
      figures, {.cluster = cluster ? &*cluster : nullptr, .name = options_.cluster_file});
  log_info("{}", notes.info);
  for (const std::string& warning : notes.warnings) {
    log_warning("{}", warning);
  }
}

void Job::explain_lost_ranks() const {
  if (plan_.groups == 1) {
    return;
  }
  launched_.explain_lost_ranks([plan = plan_, saved = has_saved_, folder = options_.checkpoint_dir,
                                resumed = options_.resume](std::span<const int> ranks) {
    // No look at the disk, which may be what does not answer.
    const Saved known = *saved;
    if (known == Saved::kMaybe && resumed.empty()) {
      return describe_lost_ranks(plan, ranks, kResumeAuto);
    }
    return describe_lost_ranks(plan, ranks, known == Saved::kSomething ? folder : resumed);
  });
}

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

void Job::advise_on_parts() const {
  const std::int64_t parts = plan_.parts / world().size();
  const std::int64_t samples = config_.batch_size / plan_.parts;
  const std::int64_t slices = parts * std::max<std::int64_t>(1, layout::num_slices(samples));
  if (first() && slices < options_.threads) {
    log_info(
        "numerics.parts is {}: a rank has {} of {} for its {} threads, {} at once; for speed set "
        "a multiple of {} (that changes the order of sums, so choose before training)",
        plan_.parts, counted(parts, "part"), counted(samples, "sample"), options_.threads,
        counted(slices, "task"), static_cast<std::int64_t>(options_.threads) * world().size());
  }
}

/// Of a training: an evaluation is not clustered, so it may run on any ranks.
void Job::check_clustering() const {
  spec::check_cluster_parts(config_.pipeline, plan_.parts, world().size());
  const std::int64_t run = config_.pipeline.cluster_parts;
  if (first() && run > 0 && plan_.parts % run != 0) {
    log_info("pipeline.cluster_parts: {} does not divide {}; the last run is of {}", run,
             counted(plan_.parts, "part"), counted(plan_.parts % run, "part"));
  }
}

void Job::advise_on_cuts() const {
  const std::int64_t cuts = config_.pipeline.cuts().count();
  const std::int64_t ranks = world().size();
  const std::int64_t least = plan_.parts / ranks;
  if (first() && least < cuts) {
    log_info(
        "numerics.parts is {}: a rank has {} for {}, so some are empty; for schedule {} set {} or "
        "more (that changes the order of sums, so choose before training)",
        plan_.parts, counted(least, "part"), counted(cuts, "micro-batch", "micro-batches"),
        to_string(config_.pipeline.schedule), cuts * ranks);
  }
}

void Job::explain_no_steps() const {
  const std::string note = train::explain_no_steps(reading_, config_);
  if (first() && !reading_.complete) {
    log_info("{}", note);
  }
}

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

}  // namespace weft::train
