#include "weft/train/summary.h"

#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "weft/train/agreement.h"
#include "weft/train/json_number.h"

namespace weft::train {
namespace {

using Json = nlohmann::ordered_json;

void put(Json& json, const TaskFigures& figures) {
  json["loss"] = number(figures.loss);
  json["ne"] = number(figures.ne);
  json["auc"] = number(figures.auc);
  json["log_loss"] = number(figures.log_loss);
  json["calibration"] = number(figures.calibration);
  json["label_mean"] = number(figures.label_mean);
}

Json task_list(const std::vector<TaskFigures>& tasks) {
  Json list = Json::array();
  for (const TaskFigures& task : tasks) {
    Json entry = {{"task", task.task}, {"samples", task.samples}};
    put(entry, task);
    list.push_back(std::move(entry));
  }
  return list;
}

Json counts(const kernels::CodecClips& clips) {
  return Json{{"non_finite", clips.non_finite}, {"saturated", clips.clipped}};
}

Json tiers(const TierFigures& figures) {
  Json tables = Json::array();
  for (const TableTier& one : figures.tables) {
    const storage::TierCounts& counts = one.counts;
    tables.push_back({{"table", one.table},
                      {"tier", std::string(to_string(one.tier))},
                      {"rows_asked", counts.asked},
                      {"rows_hit", counts.hits},
                      {"rows_read", counts.read},
                      {"rows_made", counts.made},
                      {"rows_late", counts.late},
                      {"rows_spilled", counts.spilled},
                      {"rows_evicted", counts.evicted},
                      {"rows_written_back", counts.written}});
  }
  const storage::StoreCounts& disks = figures.disks;
  return {{"tables", std::move(tables)},
          {"disks",
           {{"rows_held", disks.rows_held},
            {"rows_read", disks.rows_read},
            {"rows_from_write_buffer", disks.rows_buffered},
            {"bytes_read", disks.bytes_read},
            {"rows_stored", disks.rows_stored},
            {"rows_moved", disks.rows_moved},
            {"bytes_written", disks.bytes_written},
            {"segment_bytes", disks.segment_bytes},
            {"live_bytes", disks.live_bytes},
            {"index_bytes", disks.index_bytes}}}};
}

Json codec_clips(const Summary& summary) {
  Json list = Json::array();
  for (const auto& [table, clips] : summary.codec_clips) {
    list.push_back({{"table", table},
                    {"forward", counts(clips.forward)},
                    {"backward", counts(clips.backward)}});
  }
  return list;
}

Json to_json_value(const EvalFigures& eval) {
  Json json;
  json["step"] = eval.step;
  json["samples"] = eval.tasks.empty() ? 0 : eval.tasks.front().samples;
  json["wall_s"] = number(eval.wall_s);
  json["samples_per_s"] =
      eval.tasks.empty() || eval.wall_s <= 0
          ? Json(nullptr)
          : number(static_cast<double>(eval.tasks.front().samples) / eval.wall_s);
  if (!eval.tasks.empty()) {
    put(json, eval.tasks.front());
  }
  if (eval.bayes_ne) {
    json["bayes_ne"] = number(*eval.bayes_ne);
  }
  if (eval.tasks.size() > 1) {
    json["tasks"] = task_list(eval.tasks);
  }
  return json;
}

}  // namespace

TaskFigures figures(const std::string& task, const metrics::BinarySums& sums) {
  TaskFigures figures;
  figures.task = task;
  figures.samples = sums.count;
  figures.loss = sums.log_loss();
  figures.ne = sums.ne();
  figures.auc = std::nan("");
  figures.log_loss = sums.log_loss();
  figures.calibration = sums.calibration();
  figures.label_mean = sums.label_mean();
  return figures;
}

std::string to_json(const Summary& summary) {
  Json json;
  json["version"] = 1;
  json["weft"] = version();
  json["samples"] = summary.samples;
  json["steps"] = summary.steps;
  json["last_step"] = summary.last_step;
  json["skipped_steps"] = summary.skipped_steps;
  json["wall_s"] = number(summary.wall_s);
  json["train_s"] = number(summary.train_s);
  json["samples_per_s"] = summary.train_s > 0
                              ? number(static_cast<double>(summary.samples) / summary.train_s)
                              : Json(nullptr);
  json["window_samples"] = summary.window_samples;
  put(json, summary.window.empty() ? figures("", {}) : summary.window.front());
  json["lifetime_ne"] =
      summary.lifetime_ne.empty() ? Json(nullptr) : number(summary.lifetime_ne.front());
  if (summary.window.size() > 1) {
    json["tasks"] = task_list(summary.window);
  }
  json["eval"] = summary.eval ? to_json_value(*summary.eval) : Json(nullptr);
  json["bayes_ne"] =
      summary.eval && summary.eval->bayes_ne ? number(*summary.eval->bayes_ne) : Json(nullptr);
  if (summary.skipped_stages.empty()) {
    json["weights_hash"] = fmt::format("{:016x}", summary.weights_hash);
    json["state_hash"] = fmt::format("{:016x}", summary.state_hash);
  } else {
    json["skipped_stages"] = summary.skipped_stages;
    json["weights_hash"] = json["state_hash"] = nullptr;
  }
  json["ranks"] = summary.ranks;
  json["threads"] = summary.threads;
  json["parts"] = summary.parts;
  json["target"] = summary.target;
  json["schedule"] = std::string(to_string(summary.pipeline.schedule));
  if (cuts_batches(summary.pipeline.schedule)) {
    json["micro_batches"] = summary.pipeline.micro_batches.sizes;
    json["lookahead"] = summary.pipeline.lookahead;
  }
  json["peak_rss_bytes"] = summary.peak_rss_bytes;
  json["memory"] = {{"tables_bytes", summary.memory.tables},
                    {"buffers_peak_bytes", summary.memory.buffers_peak},
                    {"heap_bytes", summary.memory.heap},
                    {"program_bytes", summary.memory.program}};
  if (!summary.tiers.empty()) {
    json["tiers"] = tiers(summary.tiers);
  }
  json["codec_losses"] = codec_clips(summary);
  json["dense_codec_losses"] = counts(summary.dense_codec_clips);
  json["sync_codec_losses"] = counts(summary.sync_codec_clips.codec);
  json["sync_codec_losses"]["kept"] = summary.sync_codec_clips.kept;
  json["lost_records"] = {{"metrics", summary.lost.metrics},
                          {"events", summary.lost.events},
                          {"traces", summary.lost.traces},
                          {"checkpoints", summary.lost.checkpoints}};
  json["stopped"] = summary.stopped;
  json["plan_hash"] = summary.plan_hash;
  json["config"] = summary.config_yaml;
  return json.dump(2) + "\n";
}

std::string eval_to_json_line(const EvalFigures& eval) {
  Json json = {{"version", 1}, {"type", "eval"}};
  json.update(to_json_value(eval));
  return json.dump() + "\n";
}

}  // namespace weft::train
