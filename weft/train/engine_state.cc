// What an engine saves, restores, hashes and compares.
#include <fmt/format.h>

#include "weft/train/engine.h"

namespace weft::train {

std::vector<const StateSource*> Engine::sources() {
  run_stage([this](Context& ctx) { sparse_.tables().store_hot_rows(ctx); });
  std::vector<const StateSource*> all;
  for (embedding::TableShard* shard : embeddings().shards()) {
    all.push_back(shard);
  }
  dense_->list_sources(all);
  for (const sharding::ResidualState* residuals : embeddings().sync_residuals()) {
    all.push_back(residuals);
  }
  return all;
}

std::vector<StateSink*> Engine::sinks(Residuals residuals, Residuals of_syncs) {
  std::vector<StateSink*> all;
  for (embedding::TableShard* shard : embeddings().shards()) {
    all.push_back(shard);
  }
  dense_->list_sinks(residuals, all);
  if (of_syncs == Residuals::kRestored) {
    for (sharding::ResidualState* of_rows : embeddings().sync_residuals()) {
      all.push_back(of_rows);
    }
  }
  return all;
}

std::string Engine::residual_layout() const {
  const std::string& layout = dense_->residual_layout();
  return layout.empty() || plan_.groups == 1
             ? layout
             : fmt::format("{}, mesh of {} {} groups", layout, plan_.groups,
                           spec::to_string(plan_.layout));
}

void Engine::restored() {
  run_stage([this](Context& ctx) { sparse_.tables().load_hot_rows(ctx); });
}

checkpoint::StateHash Engine::hash() {
  checkpoint::StateHash hash;
  const std::vector<const StateSource*> all = sources();
  run_stage([&](Context& ctx) { hash = sparse_.hash(ctx, all); });
  return hash;
}

}  // namespace weft::train
