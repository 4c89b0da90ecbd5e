// What an engine saves, restores, hashes and compares.
#include <fmt/format.h>

#include "weft/train/engine.h"

namespace weft::train {

std::vector<const StateSource*> Engine::sources() {
  run_stage([this](Context& ctx) { embeddings_.store_hot_rows(ctx); });
  std::vector<const StateSource*> all;
  for (embedding::TableShard* shard : embeddings_.shards()) {
    all.push_back(shard);
  }
  all.push_back(&dense_.state());
  all.push_back(&dense_.residuals());
  for (const sharding::SyncResiduals* residuals : embeddings_.sync_residuals()) {
    all.push_back(residuals);
  }
  return all;
}

std::vector<StateSink*> Engine::sinks(Residuals residuals, Residuals of_syncs) {
  std::vector<StateSink*> all;
  for (embedding::TableShard* shard : embeddings_.shards()) {
    all.push_back(shard);
  }
  all.push_back(&dense_.state());
  if (residuals == Residuals::kRestored) {
    all.push_back(&dense_.residuals());
  }
  if (of_syncs == Residuals::kRestored) {
    for (sharding::SyncResiduals* of_rows : embeddings_.sync_residuals()) {
      all.push_back(of_rows);
    }
  }
  return all;
}

std::string Engine::residual_layout() const {
  const std::string& layout = dense_.residual_layout();
  return layout.empty() || plan_.groups == 1
             ? layout
             : fmt::format("{}, mesh of {} {} groups", layout, plan_.groups,
                           spec::to_string(plan_.layout));
}

/// Who owns a row at a sync follows from the groups and from where the plan puts it; what is lost
/// of Adagrad's sums is a multiple as they are.
std::string Engine::sync_residual_layout() const {
  // Of all groups or of none: a rank may hold no table.
  if (config_.codecs.sync == CodecFormat::kFp32 || !config_.codecs.error_feedback ||
      !config_.mesh.averages()) {
    return "";
  }
  const spec::Codecs& codecs = config_.codecs;
  return fmt::format(
      "{}{}, mesh of {} {} groups of {} ranks, moment_scale {}, plan {:016x}",
      to_string(codecs.sync),
      is_grouped(codecs.sync) ? fmt::format(" in groups of {}", codecs.group_size) : "",
      plan_.groups, spec::to_string(plan_.layout), plan_.ranks, config_.mesh.moment_scale,
      spec::plan_hash(plan_));
}

void Engine::restored() {
  run_stage([this](Context& ctx) { embeddings_.load_hot_rows(ctx); });
}

checkpoint::StateHash Engine::hash() {
  const auto shards = embeddings_.shards();
  const checkpoint::InitialValues initial = [&shards](const StateItem& item, std::int64_t row_begin,
                                                      std::int64_t rows, void* out) {
    for (const embedding::TableShard* shard : shards) {
      const auto items = shard->state_items();
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (items[i].parameter == item.parameter && items[i].kind == item.kind &&
            items[i].row_begin == item.row_begin && items[i].col_begin == item.col_begin) {
          shard->initial_state(i, row_begin, rows, out);
          return true;
        }
      }
    }
    return false;
  };
  checkpoint::StateHash hash;
  const auto all = sources();
  std::vector<const StateSource*> copied = all;
  for (const embedding::TableShard* hot : embeddings_.hot_shards()) {
    copied.push_back(hot);
  }
  run_stage([&](Context& ctx) {
    checkpoint::compare_replicas(*control_comm_, ctx, copied);
    hash = checkpoint::hash_state(*control_comm_, ctx, all, initial);
  });
  return hash;
}

}  // namespace weft::train
