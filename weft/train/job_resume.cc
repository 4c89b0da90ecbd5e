// What a resumed job takes over from its checkpoint, and what it refuses.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/row_draws.h"
#include "weft/checkpoint/agree.h"
#include "weft/spec/yaml.h"
#include "weft/train/mesh.h"
#include "weft/train/one_job.h"

namespace weft::train {
namespace {

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

/// Rows of fp16 and bf16 go on to be rounded as they were from the job's beginning.
void keep_row_draws(const checkpoint::Metadata& saved,
                    const std::string& resume,
                    spec::Config& config) {
  constexpr auto kNewest = static_cast<std::int64_t>(kNewestDrawRule);
  if (saved.row_draws > kNewest) {
    fail(
        ErrorCode::kCheckpoint,
        "resume from {}: numerics.row_draws is {} there, and this build knows 1 to {}: use a build "
        "that knows it",
        resume, saved.row_draws, kNewest);
  }
  if (config.numerics.row_draws != 0 && config.numerics.row_draws != saved.row_draws) {
    fail(ErrorCode::kCheckpoint,
         "resume from {}: numerics.row_draws is {} there and {} in the configuration; it decides "
         "how "
         "rows of fp16 and bf16 are rounded and is kept on resume: remove the key or set it to {}",
         resume, saved.row_draws, config.numerics.row_draws, saved.row_draws);
  }
  config.numerics.row_draws = saved.row_draws;
}

}  // namespace

void Job::check_resume() {
  const checkpoint::Metadata& saved = manifest_->metadata;
  if (config_.numerics.parts != 0 && config_.numerics.parts != saved.parts) {
    fail(ErrorCode::kCheckpoint,
         "resume from {}: numerics.parts is {} there and {} in the configuration; parts decide "
         "the order of sums and are kept on resume: remove the key or set it to {}",
         options_.resume, saved.parts, config_.numerics.parts, saved.parts);
  }
  config_.numerics.parts = saved.parts;
  keep_row_draws(saved, options_.resume, config_);
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
    checkpoint::load(engine_->control_comm(), ctx,
                     {.path = options_.resume,
                      .extra = checkpoint::ExtraItems::kRefuse,
                      .left_out = left_out,
                      .increments = &increments_},
                     sinks);
  });
  convert_moments();
  engine_->restored();
  if (first()) {
    log_info("resumed at step {} from {}", manifest_->metadata.step,
             checkpoint::find_checkpoint(options_.resume));
  }
}

std::string Job::saved_residual_layout(const char* key) const {
  const auto extra = nlohmann::json::parse(manifest_->metadata.extra_json, nullptr, false);
  const auto found = extra.is_object() ? extra.find(key) : extra.end();
  return found != extra.end() && found->is_string() ? found->get<std::string>() : "";
}

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

}  // namespace weft::train
