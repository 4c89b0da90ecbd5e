#include "weft/train/engine.h"

#include <thread>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/optim/schedule.h"

namespace weft::train {
namespace {

StreamOptions compute_options(const Device& device, trace::Recorder* recorder) {
  return {.name = "compute", .is_inline = device.kind() == DeviceKind::kCpu, .recorder = recorder};
}

trace::Kind kind_of(StepPart part) {
  return part == StepPart::kLookup || part == StepPart::kUpdateRows ? trace::Kind::kLookup
                                                                    : trace::Kind::kCompute;
}

/// Of a part's spans.
const char* name_of(StepPart part) {
  return to_string(part).data();  // a literal
}

}  // namespace

Engine::Engine(const spec::Config& config,
               const spec::Plan& plan,
               comm::Communicator& world,
               Device& device,
               const EngineOptions& options)
    : config_(config),
      plan_(plan),
      device_(device),
      options_(options),
      tasks_(static_cast<std::int64_t>(config.tasks.size())),
      rank_(world.rank()),
      own_parts_(rank_parts(plan.parts, world.size(), world.rank()).size()),
      codec_(plan.parts, world.size(), tasks_),
      control_comm_(world.duplicate("control")),
      dense_comm_(world.duplicate("dense", sharding::form_of(plan.collectives.dense))),
      groups_comm_(plan.most_ranks() == world.size()
                       ? nullptr
                       : world.split(static_cast<int>(world.rank() % plan.most_ranks()),
                                     static_cast<int>(world.rank() / plan.most_ranks()),
                                     "control of groups")),
      embeddings_(config, plan, world, device, {.control_bytes = codec_.bytes()}),
      sparse_(embeddings_.make_step()),
      dense_(config, plan, embeddings_.routing(), *dense_comm_, device),
      compute_(device.make_stream(compute_options(device, options.recorder))),
      control_bytes_(at(codec_.bytes())),
      gathered_bytes_(at(codec_.bytes() * world.size())),
      flags_(at(world.size())) {
  for (const std::string& stage : config.debug.skip) {
    skipped_.lookup |= stage == "lookup";
    skipped_.exchange |= stage == "exchange";
    skipped_.dense |= stage == "dense";
    skipped_.update |= stage == "update";
  }
  if (options.recorder != nullptr) {
    caller_track_ = &options.recorder->make_track("trainer", trace::TrackKind::kThread);
  }
  if (config.train.overlap) {
    dense_stream_ = device.make_stream({.name = "dense all_reduce", .recorder = options.recorder});
  }
  syncs_beside_ = config.train.overlap && config.mesh.averages();
  if (syncs_beside_) {
    sync_stream_ = device.make_stream({.name = "sync", .recorder = options.recorder});
  }
  make_stages();
}

// The streams end before the stages and vectors that they use: after an error on the compute stream
// the all-reduce may still run, and an average at any time. The other ranks run it too, or end with
// an error, which ends it here. An average that has not begun does so: others may wait in it.
Engine::~Engine() {
  try {
    if (sync_stream_ != nullptr) {
      sync_stream_->synchronize();
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): nobody is left who could be told
  }
  sync_stream_.reset();
  dense_stream_.reset();
  compute_.reset();
}

/// Notes when `body` ran.
template <typename Body>
void Engine::timed(trace::Track* track, StepPart part, const Body& body) {
  const trace::Scope scope(track, name_of(part), kind_of(part));
  StepTimes::Span& span = times_.parts[static_cast<std::size_t>(part)];
  span.begin = StepTimes::Clock::now();
  body();
  span.end = StepTimes::Clock::now();
}

void Engine::make_stages() {
  input_stage_ = [this](Context& ctx) { exchange_input(ctx); };
  lookup_stage_ = [this](Context& ctx) {
    if (lookup_waits_) {
      times_.sync_wait = {times_.of(StepPart::kLoad).end, StepTimes::Clock::now()};
    }
    if (!skipped_.lookup) {
      timed(ctx.track, StepPart::kLookup, [&] { embeddings_.lookup(ctx, *sparse_); });
    }
    if (!skipped_.exchange) {
      timed(ctx.track, StepPart::kOutputDist, [&] { embeddings_.output_dist(ctx, *sparse_); });
    }
  };
  train_stage_ = [this](Context& ctx) {
    if (skipped_.dense) {
      logits_.assign(batch_->labels.size(), 0.0F);
      return;
    }
    timed(ctx.track, StepPart::kForwardBackward, [&] {
      dense_.forward_backward(ctx, global_.weights);
      dense_.read_logits(ctx, logits_);
    });
  };
  eval_stage_ = [this](Context& ctx) {
    const trace::Scope scope(ctx.track, "forward", trace::Kind::kCompute);
    dense_.forward(ctx);
    dense_.read_logits(ctx, logits_);
  };
  reduce_stage_ = [this](Context& ctx) {
    std::this_thread::sleep_for(options_.dense_delay);
    if (!skipped_.exchange && !skipped_.dense) {
      timed(ctx.track, StepPart::kReduce, [&] { dense_.reduce(ctx); });
    }
  };
  flag_stage_ = [this](Context& ctx) {
    timed(ctx.track, StepPart::kExchangeFlags, [&] { exchange_flags(ctx); });
  };
  backward_stage_ = [this](Context& ctx) {
    take_sync_times();
    update_rows(ctx);
    sync_step_ = step_;  // the next step's number may come before the average has begun
  };
  sync_stage_ = [this](Context& ctx) { average_replicas(ctx); };
  dense_update_stage_ = [this](Context& ctx) { update_dense(ctx); };
}

/// Ids to the ranks that hold their rows, and this rank's own inputs onto its device.
void Engine::exchange_input(Context& ctx) {
  timed(ctx.track, StepPart::kExchangeCounts, [&] {
    const sharding::BatchView view{.sparse = &batch_->sparse,
                                   .step = step_,
                                   .global_size = batch_->global_size,
                                   .sample_ids = batch_->sample_ids};
    embeddings_.exchange_counts(ctx, *sparse_, view, control_bytes_);
    if (groups_comm_ != nullptr) {
      gather_control(ctx);
    }
    codec_.merge(
        [this](std::int64_t r) {
          return groups_comm_ == nullptr ? sparse_->control(r) : gathered_control(r);
        },
        global_);
    check_overflow(global_);
  });
  timed(ctx.track, StepPart::kExchangeIds, [&] { embeddings_.exchange_ids(ctx, *sparse_); });
  if (skips_stages()) {
    sparse_->clear_grown(ctx);
  }
  timed(ctx.track, StepPart::kLoad,
        [&] { dense_.load(ctx, *batch_, sparse_->outputs(), sparse_->gradients()); });
}

/// The blocks of the own group, one of the largest that tables have, to the same places of the
/// others, so that all have all.
void Engine::gather_control(Context& ctx) {
  group_bytes_.clear();
  const std::int64_t ranks = plan_.most_ranks();
  for (std::int64_t place = 0; place < ranks; ++place) {
    const std::span<const std::byte> block = sparse_->control(place);
    group_bytes_.insert(group_bytes_.end(), block.begin(), block.end());
  }
  groups_comm_->all_gather(ctx, group_bytes_.data(), gathered_bytes_.data(),
                           static_cast<std::int64_t>(group_bytes_.size()));
}

std::span<const std::byte> Engine::gathered_control(std::int64_t rank) const {
  return std::span(gathered_bytes_).subspan(at(rank * codec_.bytes()), at(codec_.bytes()));
}

/// Messages name ranks of the world.
int Engine::world_rank(std::int64_t position) const {
  return control_comm_->world_rank(static_cast<int>(position));
}

CodecReport Engine::codec_report() const {
  CodecReport report{.clips = {}, .dense = dense_.codec_clips(), .sync = embeddings_.sync_clips()};
  for (std::size_t t = 0; t < config_.tables.size(); ++t) {
    const auto table = static_cast<std::int64_t>(t);
    const sharding::TableClips clips = sparse_->codec_clips(table);
    report.clips.forward += clips.forward;
    report.clips.backward += clips.backward;
    if (report.table < 0 && clips != sharding::TableClips{}) {
      report.table = table;
    }
  }
  return report;
}

/// What this rank says; local_.weights have been set.
void Engine::encode_control(bool stop) {
  local_.stop = stop;
  local_.overflow = embeddings_.overflow();
  if (local_.overflow.count == 0) {
    local_.overflow = dense_overflow_;
  }
  local_.codecs = codec_report();
  encoded_non_finite_ = local_.codecs.clips.forward.non_finite;
  local_.has_previous = has_previous_;
  local_.previous = dense_.sums();
  codec_.encode(local_, rank_, control_bytes_);
}

void Engine::begin(const data::Batch& batch, std::int64_t step, bool stop) {
  batch_ = &batch;
  step_ = step;
  lookup_waits_ = syncing_ && options_.sync_wait == SyncWait::kKept;
  times_ = {};
  times_.step.begin = StepTimes::Clock::now();
  timed(caller_track_, StepPart::kPrepare, [&] {
    dense_.weight_sums(batch, local_.weights);
    encode_control(stop);
  });
}

StepOutcome Engine::train_step(const data::Batch& batch, std::int64_t step, bool stop) {
  begin(batch, step, stop);
  compute_->enqueue(input_stage_);
  if (lookup_waits_) {
    wait_for_sync();
  }
  compute_->enqueue(lookup_stage_);
  compute_->enqueue(train_stage_);
  Event reduced;
  if (dense_stream_ != nullptr) {
    dense_stream_->wait(compute_->record());
    dense_stream_->enqueue(reduce_stage_);
    reduced = dense_stream_->record();
  } else {
    compute_->enqueue(reduce_stage_);
  }
  compute_->enqueue(flag_stage_);
  wait_for_sync();  // where the lookup has not
  compute_->enqueue(backward_stage_);
  enqueue_sync(step);
  if (dense_stream_ != nullptr && options_.dense_wait == DenseWait::kKept) {
    compute_->wait(reduced);
  }
  compute_->enqueue(dense_update_stage_);
  compute_->synchronize();
  if (dense_stream_ != nullptr) {
    dense_stream_->synchronize();
  }
  times_.step.end = StepTimes::Clock::now();
  has_previous_ = apply_;
  StepOutcome outcome{.control = global_, .skipped = !apply_, .non_finite = first_flag_};
  if (outcome.skipped && config_.train.on_non_finite == spec::OnNonFinite::kStop) {
    if (first_flag_.sample < 0) {
      throw Error(ErrorCode::kNonFinite,
                  fmt::format("step {}: a looked-up vector that rank {} encoded was not finite; "
                              "nothing was updated. Lower the learning rate, or set "
                              "train.on_non_finite: skip",
                              step, world_rank(first_flag_.rank)),
                  world_rank(first_flag_.rank));
    }
    throw Error(
        ErrorCode::kNonFinite,
        fmt::format("step {}: a loss or gradient is not finite, first on rank {} for "
                    "sample {} (position {} of the batch); nothing was updated. Lower the "
                    "learning rate, clip gradients (dense_optimizer.clip_norm), or set "
                    "train.on_non_finite: skip",
                    step, world_rank(first_flag_.rank), first_flag_.sample, first_flag_.position),
        world_rank(first_flag_.rank));
  }
  return outcome;
}

bool Engine::eval_step(const data::Batch& batch, bool stop) {
  begin(batch, batch.step, stop);
  compute_->enqueue(input_stage_);
  wait_for_sync();
  compute_->enqueue(lookup_stage_);
  compute_->enqueue(eval_stage_);
  compute_->synchronize();
  times_.step.end = StepTimes::Clock::now();
  has_previous_ = false;
  return global_.stop;
}

/// One flag after the last backward stage; rows and weights are updated only behind it.
void Engine::exchange_flags(Context& ctx) {
  NonFinite own = dense_.non_finite();
  if (own.position < 0 && codec_report().clips.forward.non_finite > encoded_non_finite_) {
    own = {.position = batch_->global_size,
           .rank = control_comm_->rank()};  // behind those that name a sample
  }
  control_comm_->all_gather(ctx, &own, flags_.data(), sizeof(NonFinite));
  first_flag_ = NonFinite{};
  for (const NonFinite& flag : flags_) {
    if (flag.position >= 0 && (first_flag_.position < 0 || flag.position < first_flag_.position)) {
      first_flag_ = flag;
    }
  }
  if (skips_stages()) {
    first_flag_ = NonFinite{};  // of values that mean nothing
  }
  apply_ = first_flag_.position < 0;
}

void Engine::update_rows(Context& ctx) {
  if (!apply_) {
    return;
  }
  const embedding::UpdateStep step{
      .learning_rate_factor = optim::learning_rate_factor(config_.schedule, step_),
      .step = step_,
      .seed = config_.seed};
  if (!skipped_.update) {
    timed(ctx.track, StepPart::kCoalesce, [&] { embeddings_.coalesce(ctx, *sparse_); });
  }
  if (!skipped_.exchange) {
    timed(ctx.track, StepPart::kGradDist, [&] { embeddings_.grad_dist(ctx, *sparse_); });
  }
  if (!skipped_.update) {
    timed(ctx.track, StepPart::kUpdateRows, [&] { embeddings_.update(ctx, *sparse_, step); });
  }
}

void Engine::update_dense(Context& ctx) {
  if (!apply_ || skipped_.update) {
    return;
  }
  optim::DenseStep done;
  timed(ctx.track, StepPart::kUpdateDense, [&] {
    done = dense_.update(ctx, optim::learning_rate_factor(config_.schedule, step_), step_);
  });
  if (done.first_non_finite >= 0 && dense_overflow_.count++ == 0) {
    dense_overflow_.row = done.first_non_finite;
  }
}

/// Behind the update of rows of `step`.
void Engine::enqueue_sync(std::int64_t step) {
  if (!config_.mesh.averages() || !config_.mesh.syncs_after(step) || skipped_.exchange) {
    return;
  }
  if (!syncs_beside_) {
    compute_->enqueue(sync_stage_);
    return;
  }
  sync_stream_->wait(compute_->record());
  sync_stream_->enqueue(sync_stage_);
  synced_ = sync_stream_->record();
  syncing_ = true;
}

/// After sync_step_. Where it runs beside others, times_ is that of another step by now.
void Engine::average_replicas(Context& ctx) {
  std::this_thread::sleep_for(options_.sync_delay);
  const trace::Scope scope(ctx.track, name_of(StepPart::kSyncReplicas),
                           kind_of(StepPart::kSyncReplicas), sync_step_);
  StepTimes::Span span;
  span.begin = StepTimes::Clock::now();
  embeddings_.sync_replicas(ctx, sync_step_);
  span.end = StepTimes::Clock::now();
  if (syncs_beside_) {
    sync_span_ = span;
  } else {
    times_.parts[static_cast<std::size_t>(StepPart::kSyncReplicas)] = span;
  }
}

/// Later stages of the compute stream run behind the average that is under way, if one is, and take
/// over its exception.
void Engine::wait_for_sync() {
  if (syncing_) {
    compute_->wait(synced_);
    syncing_ = false;
  }
}

/// On the compute stream, behind the wait for it.
void Engine::take_sync_times() {
  if (sync_span_) {
    times_.parts[static_cast<std::size_t>(StepPart::kSyncReplicas)] = *sync_span_;
    times_.sync_beside = true;
    sync_span_.reset();
  }
}

void Engine::await_sync() {
  wait_for_sync();
  compute_->synchronize();
}

void Engine::sync_replicas(std::int64_t step) {
  if (config_.mesh.averages() && !skipped_.exchange) {
    run_stage([&](Context& ctx) {
      const trace::Scope scope(ctx.track, name_of(StepPart::kSyncReplicas),
                               kind_of(StepPart::kSyncReplicas), step);
      embeddings_.sync_replicas(ctx, step);
    });
  }
}

const std::vector<metrics::BinarySums>& Engine::part_sums() const {
  return dense_.sums();
}

GlobalControl Engine::flush() {
  local_.weights.assign(at(own_parts_ * tasks_), 0.0);
  encode_control(false);
  run_stage([this](Context& ctx) {
    control_comm_->all_gather(ctx, control_bytes_.data(), gathered_bytes_.data(), codec_.bytes());
  });
  has_previous_ = false;
  GlobalControl global;
  codec_.merge([this](std::int64_t r) { return gathered_control(r); }, global);
  return global;
}

void Engine::check_overflow(const GlobalControl& control) const {
  if (control.overflow.count == 0 || skips_stages()) {
    return;
  }
  const std::int64_t row = control.overflow.row;
  const std::string where =
      control.overflow.table < 0
          ? fmt::format("dense parameter {}", dense_.layout().at(row).name)
          : fmt::format("table {}, row {}", config_.tables[at(control.overflow.table)].name, row);
  throw Error(ErrorCode::kNonFinite,
              fmt::format("{}: a sum of finite gradients or its update overflowed ({} in all, "
                          "first on rank {}); they were not applied. Lower the learning rate or "
                          "the task weights",
                          where, control.overflow.count, world_rank(control.overflow_rank)),
              world_rank(control.overflow_rank));
}

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

void Engine::run_stage(const Stage& body) {
  wait_for_sync();
  compute_->enqueue(body);
  compute_->synchronize();
}

}  // namespace weft::train
