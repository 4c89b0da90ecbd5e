#include "weft/train/sparse_engine.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/sharding/batch_error.h"
#include "weft/sharding/sync_residuals.h"

namespace weft::train {
namespace {

kernels::CodecClips difference(const kernels::CodecClips& now, const kernels::CodecClips& before) {
  return {.non_finite = now.non_finite - before.non_finite,
          .clipped = now.clipped - before.clipped};
}

/// A block of state by its name.
using ItemName = std::tuple<std::string, std::string, std::int64_t, std::int64_t>;

ItemName name_of(const StateItem& item) {
  return {item.parameter, item.kind, item.row_begin, item.col_begin};
}

/// An item of a shard.
struct ShardItem {
  const embedding::TableShard* shard = nullptr;
  std::size_t index = 0;
};

/// The initial values of what the shards hold, for the hash. What syncs have lost begins with 0,
/// and so it is the same whether rows that have lost nothing take space or not.
checkpoint::InitialValues initial_values(const std::vector<embedding::TableShard*>& shards) {
  std::map<ItemName, ShardItem> items;
  for (const embedding::TableShard* shard : shards) {
    const auto own = shard->state_items();
    for (std::size_t i = 0; i < own.size(); ++i) {
      items.try_emplace(name_of(own[i]), ShardItem{.shard = shard, .index = i});
    }
  }
  return [items = std::make_shared<const std::map<ItemName, ShardItem>>(std::move(items))](
             const StateItem& item, std::int64_t row_begin, std::int64_t rows, void* out) {
    if (item.parameter == sharding::kSyncResidualParameter) {
      std::memset(out, 0, at(rows * (item.col_end - item.col_begin) * size_of(item.dtype)));
      return true;
    }
    const auto found = items->find(name_of(item));
    if (found == items->end()) {
      return false;
    }
    found->second.shard->initial_state(found->second.index, row_begin, rows, out);
    return true;
  };
}

}  // namespace

SparseEngine::SparseEngine(const spec::Config& config,
                           const spec::Plan& plan,
                           comm::Communicator& world,
                           Device& device)
    : config_(config),
      plan_(plan),
      tasks_(static_cast<std::int64_t>(config.tasks.size())),
      rank_(world.rank()),
      other_control_(plan.parts, tasks_),
      control_bytes_(other_control_.bytes(world.size())),
      other_report_(plan.parts, tasks_),
      control_comm_(world.duplicate("control")),
      groups_comm_(plan.most_ranks() == world.size()
                       ? nullptr
                       : world.split(static_cast<int>(world.rank() % plan.most_ranks()),
                                     static_cast<int>(world.rank() / plan.most_ranks()),
                                     "control of groups")),
      tables_(config, plan, world, device, {.control_bytes = control_bytes_}) {
  if (groups_comm_ != nullptr) {
    const std::int64_t groups = groups_comm_->size();
    group_block_.resize(at(other_control_.bytes(groups)));
    group_bytes_.resize(group_block_.size() * at(groups));
  }
}

std::unique_ptr<SparseState> SparseEngine::make_state() {
  auto state = std::make_unique<SparseState>(plan_.parts, tasks_, tables_.make_step());
  state->control_bytes.resize(at(control_bytes_));
  return state;
}

void SparseEngine::begin(SparseState& state,
                         const sharding::BatchView& batch,
                         std::span<const double> weights) {
  state.batch = batch;
  state.control.weights.assign(rank_parts(plan_.parts, control_comm_->size(), rank_), weights);
  state.control.stop = false;
  state.control.refused = false;
  state.report.clear();
}

void SparseEngine::exchange_counts(Context& ctx, SparseState& state) {
  state.control.encode(state.control_bytes);
  try {
    tables_.exchange_counts(ctx, *state.tables, state.batch, state.control_bytes);
  } catch (const sharding::BatchError&) {
    refuse_in_groups(ctx, state);
    throw;
  }
  const std::int64_t ranks = plan_.most_ranks();  // looks at all tables
  for (std::int64_t place = 0; place < ranks; ++place) {
    BatchControl& to = place == 0 ? state.control : other_control_;
    to.decode(state.tables->control(place));
    if (place > 0) {
      state.control.append(other_control_);
    }
  }
  if (groups_comm_ != nullptr) {
    gather_groups(ctx, state.control);
  }
  if (state.control.refused) {
    throw sharding::BatchError(
        Error(ErrorCode::kData, "a rank of another replica group has no batch"),
        sharding::BatchError::Of::kAnotherGroup);
  }
}

void SparseEngine::refuse_batch(Context& ctx, SparseState& state, const Error& error) {
  try {
    tables_.refuse_batch(ctx, *state.tables, state.batch.step, error);
  } catch (const sharding::BatchError&) {
    refuse_in_groups(ctx, state);
    throw;
  }
}

/// The other groups wait for this one's block.
void SparseEngine::refuse_in_groups(Context& ctx, SparseState& state) {
  state.control.refused = true;
  if (groups_comm_ != nullptr) {
    gather_groups(ctx, state.control);
  }
}

/// From the block of the own group, one of the largest that tables have, to that of all groups.
void SparseEngine::gather_groups(Context& ctx, BatchControl& control) {
  const std::size_t block = group_block_.size();
  control.encode(group_block_);
  groups_comm_->all_gather(ctx, group_block_.data(), group_bytes_.data(), std::ssize(group_block_));
  for (int group = 0; group < groups_comm_->size(); ++group) {
    BatchControl& to = group == 0 ? control : other_control_;
    to.decode(std::span(group_bytes_).subspan(at(group) * block, block));
    if (group > 0) {
      control.append(other_control_);
    }
  }
}

/// What arose after the report before.
void SparseEngine::add_late(StepReport& report) {
  report.codecs.clips.backward = difference(late_.backward, reported_.backward);
  report.codecs.dense = difference(late_.dense, reported_.dense);
  report.codecs.sync = {.codec = difference(late_.sync.codec, reported_.sync.codec),
                        .kept = late_.sync.kept - reported_.sync.kept};
  if (late_table_ >= 0 && (report.codecs.table < 0 || late_table_ < report.codecs.table)) {
    report.codecs.table = late_table_;
  }
  report.late_step = std::max({late_.rows_step, late_.dense_step, late_.sync_step});
  report.overflow = late_.rows_overflow.count > 0 ? late_.rows_overflow : late_.dense_overflow;
  report.overflow_rank = report.overflow.count > 0 ? rank_ : -1;
  reported_ = late_;
  late_table_ = -1;
}

void SparseEngine::merge_reports(Context& ctx, StepReport& report) {
  report_bytes_.resize(at(report.bytes()));
  report.encode(report_bytes_);
  control_comm_->merge(ctx, report_bytes_, [&](auto block, auto later) {
    report.decode(block);
    other_report_.decode(later);
    report.append(other_report_);
    report.encode(block);
  });
  report.decode(report_bytes_);
}

void SparseEngine::exchange_report(Context& ctx, SparseState& state) {
  StepReport& report = state.report;
  for (std::int64_t table = 0; table < num_tables(); ++table) {
    const kernels::CodecClips clips = state.tables->batch_clips(table).forward;
    report.codecs.clips.forward += clips;
    if (report.codecs.table < 0 && clips != kernels::CodecClips{}) {
      report.codecs.table = table;
    }
  }
  if (report.non_finite.position < 0 && report.codecs.clips.forward.non_finite > 0) {
    // After those that name a sample.
    report.non_finite = {.position = state.batch.global_size, .rank = rank_};
  }
  add_late(report);
  merge_reports(ctx, report);
  if (!config_.debug.skip.empty()) {
    report.non_finite = {};  // of values that mean nothing
  }
  state.apply = report.non_finite.position < 0;
}

void SparseEngine::update(Context& ctx, SparseState& state, const embedding::UpdateStep& step) {
  tables_.update(ctx, *state.tables, step);
  for (std::int64_t table = 0; table < num_tables(); ++table) {
    const kernels::CodecClips clips = state.tables->batch_clips(table).backward;
    late_.backward += clips;
    if (clips != kernels::CodecClips{} && (late_table_ < 0 || table < late_table_)) {
      late_table_ = table;
    }
  }
  late_.rows_overflow = tables_.overflow();
  late_.rows_step = step.step;
}

void SparseEngine::sync_replicas(Context& ctx, std::int64_t step) {
  tables_.sync_replicas(ctx, step);
  late_.sync = tables_.sync_clips();
  late_.sync_step = step;
}

void SparseEngine::note_dense(std::int64_t step,
                              const kernels::CodecClips& clips,
                              const sharding::TableOverflow& overflow) {
  late_.dense = clips;
  late_.dense_overflow = overflow;
  late_.dense_step = step;
}

StepReport SparseEngine::flush(Context& ctx) {
  StepReport report(plan_.parts, tasks_);
  add_late(report);
  merge_reports(ctx, report);
  return report;
}

checkpoint::StateHash SparseEngine::hash(Context& ctx,
                                         std::span<const StateSource* const> sources) {
  std::vector<const StateSource*> copied(sources.begin(), sources.end());
  for (const embedding::TableShard* hot : tables_.hot_shards()) {
    copied.push_back(hot);
  }
  checkpoint::compare_replicas(*control_comm_, ctx, copied);
  return checkpoint::hash_state(*control_comm_, ctx, sources, initial_values(tables_.shards()));
}

/// Who owns a row at a sync follows from the groups and from where the plan puts it; what is lost
/// of Adagrad's sums is a multiple as they are.
std::string SparseEngine::sync_residual_layout() const {
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

}  // namespace weft::train
