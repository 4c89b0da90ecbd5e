#include "weft/train/engine.h"

#include <algorithm>
#include <thread>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/optim/schedule.h"

namespace weft::train {
namespace {

using pipeline::StreamRole;

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
      dense_(config, plan, embeddings_.routing(), *dense_comm_, device),
      lineup_(options.batches_in_flight) {
  for (const std::string& stage : config.debug.skip) {
    skipped_.lookup |= stage == "lookup";
    skipped_.exchange |= stage == "exchange";
    skipped_.dense |= stage == "dense";
    skipped_.update |= stage == "update";
  }
  if (options.recorder != nullptr) {
    caller_track_ = &options.recorder->make_track("trainer", trace::TrackKind::kThread);
  }
  make_streams();
  for (const pipeline::LeftOut& access : options.left_out) {
    lineup_.leave_out(access);
  }
  for (std::int64_t i = 0; i < options.batches_in_flight; ++i) {
    make_state(*states_.emplace_back(std::make_unique<StepState>()));
  }
  last_ = states_.front().get();
}

bool Engine::runs_beside(StreamRole role) const {
  const bool asked =
      std::find(options_.beside.begin(), options_.beside.end(), role) != options_.beside.end();
  return asked ||
         (config_.train.overlap &&
          (role == StreamRole::kDense || (role == StreamRole::kSync && config_.mesh.averages())));
}

void Engine::make_streams() {
  constexpr std::array<const char*, pipeline::kStreamRoles> kNames = {"compute", "ids",
                                                                      "dense all_reduce", "sync"};
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const auto role = static_cast<StreamRole>(i);
    const bool is_compute = role == StreamRole::kCompute;
    if (is_compute || runs_beside(role)) {
      streams_[i] = device_.make_stream(
          {.name = kNames[i],
           .is_inline = is_compute && !runs_beside(role) && device_.kind() == DeviceKind::kCpu,
           .recorder = options_.recorder});
    }
  }
}

Stream& Engine::stream(StreamRole role) const {
  const auto& own = streams_[static_cast<std::size_t>(role)];
  return own != nullptr ? *own : *streams_[static_cast<std::size_t>(StreamRole::kCompute)];
}

void Engine::make_state(StepState& state) {
  state.sparse = embeddings_.make_step();
  state.control_bytes.resize(at(codec_.bytes()));
  state.gathered_bytes.resize(at(codec_.bytes() * control_comm_->size()));
  state.flags.resize(at(control_comm_->size()));
  for (std::size_t i = 0; i < kStepParts; ++i) {
    const auto part = static_cast<StepPart>(i);
    state.stages[i] = [this, &state, part](Context& ctx) { run(part, ctx, state); };
  }
}

// The streams end before the states that their stages use: after an error on the compute stream the
// all-reduce may still run, and an average at any time. The other ranks run it too, or end with an
// error, which ends it here. An average that has not begun does so: others may wait in it.
Engine::~Engine() {
  try {
    if (runs_beside(StreamRole::kSync)) {
      stream(StreamRole::kSync).synchronize();
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): nothing is left that could be told
  }
  for (auto own = streams_.rbegin(); own != streams_.rend(); ++own) {
    own->reset();
  }
}

void Engine::issue(const pipeline::StageOf& stage, StreamRole on) {
  StepState& state = *states_[at(stage.batch)];
  if (stage.part == StepPart::kLookup) {
    state.behind_average = lineup_.waits_for(stream(on), pipeline::Resource::kRows);
  }
  lineup_.add(stream(on), state.stages[static_cast<std::size_t>(stage.part)], stage);
}

bool Engine::averages_behind(std::int64_t batch) const {
  return config_.mesh.averages() && config_.mesh.syncs_after(states_[at(batch)]->step) &&
         !skipped_.exchange;
}

/// Notes when `body` ran.
template <typename Body>
void Engine::timed(trace::Track* track, StepPart part, StepState& state, const Body& body) {
  const trace::Scope scope(track, name_of(part), kind_of(part));
  StepTimes::Span& span = state.times.parts[static_cast<std::size_t>(part)];
  span.begin = StepTimes::Clock::now();
  body();
  span.end = StepTimes::Clock::now();
}

/// Whether debug.skip leaves the stage out, or the step is not applied.
bool Engine::is_left_out(StepPart part, const StepState& state) const {
  switch (part) {
    case StepPart::kLookup:
      return skipped_.lookup;
    case StepPart::kOutputDist:
      return skipped_.exchange;
    case StepPart::kReduce:
      return skipped_.exchange || skipped_.dense;
    case StepPart::kGradDist:
      return skipped_.exchange || !state.apply;
    case StepPart::kCoalesce:
    case StepPart::kUpdateRows:
    case StepPart::kUpdateDense:
      return skipped_.update || !state.apply;
    default:
      return false;
  }
}

/// The body of a stage.
void Engine::run(StepPart part, Context& ctx, StepState& state) {
  for (const StageDelay& delay : options_.delays) {
    if (delay.part == part) {
      std::this_thread::sleep_for(delay.delay);
    }
  }
  if (part == StepPart::kSyncReplicas) {
    average_replicas(ctx, state);
  } else if (part == StepPart::kForwardBackward) {
    forward_backward(ctx, state);
  } else if (!is_left_out(part, state)) {
    timed(ctx.track, part, state, [&] { run_part(part, ctx, state); });
  }
}

void Engine::run_part(StepPart part, Context& ctx, StepState& state) {
  switch (part) {
    case StepPart::kExchangeCounts:
      exchange_counts(ctx, state);
      break;
    case StepPart::kExchangeIds:
      embeddings_.exchange_ids(ctx, *state.sparse);
      if (skips_stages()) {
        state.sparse->clear_grown(ctx);
      }
      break;
    case StepPart::kLoad:
      dense_.load(ctx, *state.batch, state.sparse->outputs(), state.sparse->gradients());
      break;
    case StepPart::kLookup:
      if (state.behind_average) {
        state.times.sync_wait = {state.times.of(StepPart::kLoad).end, StepTimes::Clock::now()};
      }
      embeddings_.lookup(ctx, *state.sparse);
      break;
    case StepPart::kOutputDist:
      embeddings_.output_dist(ctx, *state.sparse);
      break;
    case StepPart::kReduce:
      dense_.reduce(ctx);
      break;
    case StepPart::kExchangeFlags:
      exchange_flags(ctx, state);
      break;
    case StepPart::kCoalesce:
      embeddings_.coalesce(ctx, *state.sparse);
      break;
    case StepPart::kGradDist:
      embeddings_.grad_dist(ctx, *state.sparse);
      break;
    case StepPart::kUpdateRows:
      update_rows(ctx, state);
      break;
    case StepPart::kUpdateDense:
      update_dense(ctx, state);
      break;
    default:
      WEFT_CHECK(false, "'{}' is no stage of a stream", to_string(part));
  }
}

/// Ids cut into slots, and what ranks tell each other before the batch.
void Engine::exchange_counts(Context& ctx, StepState& state) {
  const sharding::BatchView view{.sparse = &state.batch->sparse,
                                 .step = state.step,
                                 .global_size = state.batch->global_size,
                                 .sample_ids = state.batch->sample_ids};
  embeddings_.exchange_counts(ctx, *state.sparse, view, state.control_bytes);
  if (groups_comm_ != nullptr) {
    gather_control(ctx, state);
  }
  codec_.merge(
      [&](std::int64_t r) {
        return groups_comm_ == nullptr ? state.sparse->control(r) : gathered_control(state, r);
      },
      state.global);
  check_overflow(state.global);
}

/// The blocks of the own group, one of the largest that tables have, to the same places of the
/// others, so that all have all.
void Engine::gather_control(Context& ctx, StepState& state) {
  state.group_bytes.clear();
  const std::int64_t ranks = plan_.most_ranks();
  for (std::int64_t place = 0; place < ranks; ++place) {
    const std::span<const std::byte> block = state.sparse->control(place);
    state.group_bytes.insert(state.group_bytes.end(), block.begin(), block.end());
  }
  groups_comm_->all_gather(ctx, state.group_bytes.data(), state.gathered_bytes.data(),
                           static_cast<std::int64_t>(state.group_bytes.size()));
}

std::span<const std::byte> Engine::gathered_control(const StepState& state,
                                                    std::int64_t rank) const {
  return std::span(state.gathered_bytes).subspan(at(rank * codec_.bytes()), at(codec_.bytes()));
}

/// Messages name ranks of the world.
int Engine::world_rank(std::int64_t position) const {
  return control_comm_->world_rank(static_cast<int>(position));
}

sharding::TableClips Engine::codec_clips(std::int64_t table) const {
  sharding::TableClips clips;
  for (const auto& state : states_) {
    const sharding::TableClips own = state->sparse->codec_clips(table);
    clips.forward += own.forward;
    clips.backward += own.backward;
  }
  return clips;
}

CodecReport Engine::codec_report() const {
  CodecReport report{.clips = {}, .dense = dense_.codec_clips(), .sync = embeddings_.sync_clips()};
  for (std::size_t t = 0; t < config_.tables.size(); ++t) {
    const auto table = static_cast<std::int64_t>(t);
    const sharding::TableClips clips = codec_clips(table);
    report.clips.forward += clips.forward;
    report.clips.backward += clips.backward;
    if (report.table < 0 && clips != sharding::TableClips{}) {
      report.table = table;
    }
  }
  return report;
}

/// What this rank says; state.local.weights have been set.
void Engine::encode_control(StepState& state, bool stop) {
  state.local.stop = stop;
  state.local.overflow = embeddings_.overflow();
  if (state.local.overflow.count == 0) {
    state.local.overflow = dense_overflow_;
  }
  state.local.codecs = codec_report();
  state.encoded_non_finite = state.local.codecs.clips.forward.non_finite;
  state.local.has_previous = has_previous_;
  state.local.previous = dense_.sums();
  codec_.encode(state.local, rank_, state.control_bytes);
}

void Engine::start(StepState& state, const StepInput& input, Pass pass) {
  state.batch = &input.batch;
  state.step = input.step;
  state.after = input.after;
  state.pass = pass;
  state.times = {};
  state.times.step.begin = StepTimes::Clock::now();
  timed(caller_track_, StepPart::kPrepare, state, [&] {
    dense_.weight_sums(input.batch, state.local.weights);
    encode_control(state, input.stop);
  });
}

void Engine::begin(std::int64_t place, const StepInput& input) {
  start(*states_[at(place)], input, Pass::kTraining);
}

StepOutcome Engine::finish(std::int64_t place) {
  StepState& state = *states_[at(place)];
  lineup_.wait_for_batch(place);
  state.times.step.end = StepTimes::Clock::now();
  last_ = &state;
  has_previous_ = state.apply;
  StepOutcome outcome{.control = state.global,
                      .skipped = !state.apply,
                      .non_finite = state.first_flag,
                      .after = state.after};
  if (outcome.skipped && config_.train.on_non_finite == spec::OnNonFinite::kStop) {
    fail_of_non_finite(state);
  }
  return outcome;
}

StepOutcome Engine::train_step(const StepInput& input) {
  begin(0, input);
  pipeline::sync(*this, 0);
  return finish(0);
}

bool Engine::eval_step(const StepInput& input) {
  StepState& state = *states_.front();
  start(state, input, Pass::kEvaluation);
  pipeline::evaluation(*this, 0);
  lineup_.wait_for_batch(0);
  state.times.step.end = StepTimes::Clock::now();
  last_ = &state;
  has_previous_ = false;
  return state.global.stop;
}

void Engine::fail_of_non_finite(const StepState& state) const {
  const NonFinite& first = state.first_flag;
  const int rank = world_rank(first.rank);
  if (first.sample < 0) {
    throw Error(ErrorCode::kNonFinite,
                fmt::format("step {}: a looked-up vector that rank {} encoded was not finite; "
                            "nothing was updated. Lower the learning rate, or set "
                            "train.on_non_finite: skip",
                            state.step, rank),
                rank);
  }
  throw Error(ErrorCode::kNonFinite,
              fmt::format("step {}: a loss or gradient is not finite, first on rank {} for "
                          "sample {} (position {} of the batch); nothing was updated. Lower the "
                          "learning rate, clip gradients (dense_optimizer.clip_norm), or set "
                          "train.on_non_finite: skip",
                          state.step, rank, first.sample, first.position),
              rank);
}

void Engine::forward_backward(Context& ctx, StepState& state) {
  if (state.pass == Pass::kEvaluation) {
    const trace::Scope scope(ctx.track, "forward", trace::Kind::kCompute);
    dense_.forward(ctx);
    dense_.read_logits(ctx, state.logits);
  } else if (skipped_.dense) {
    state.logits.assign(state.batch->labels.size(), 0.0F);
  } else {
    timed(ctx.track, StepPart::kForwardBackward, state, [&] {
      dense_.forward_backward(ctx, state.global.weights);
      dense_.read_logits(ctx, state.logits);
    });
  }
}

/// One flag after the last backward stage; rows and weights are updated only behind it.
void Engine::exchange_flags(Context& ctx, StepState& state) {
  take_average_times(state);
  NonFinite own = dense_.non_finite();
  if (own.position < 0 && codec_report().clips.forward.non_finite > state.encoded_non_finite) {
    own = {.position = state.batch->global_size,
           .rank = control_comm_->rank()};  // behind those that name a sample
  }
  control_comm_->all_gather(ctx, &own, state.flags.data(), sizeof(NonFinite));
  NonFinite& first = state.first_flag;
  first = NonFinite{};
  for (const NonFinite& flag : state.flags) {
    if (flag.position >= 0 && (first.position < 0 || flag.position < first.position)) {
      first = flag;
    }
  }
  if (skips_stages()) {
    first = NonFinite{};  // of values that mean nothing
  }
  state.apply = first.position < 0;
}

void Engine::update_rows(Context& ctx, StepState& state) {
  embeddings_.update(
      ctx, *state.sparse,
      {.learning_rate_factor = optim::learning_rate_factor(config_.schedule, state.step),
       .step = state.step,
       .seed = config_.seed});
}

void Engine::update_dense(Context& ctx, StepState& state) {
  const optim::DenseStep done =
      dense_.update(ctx, optim::learning_rate_factor(config_.schedule, state.step), state.step);
  if (done.first_non_finite >= 0 && dense_overflow_.count++ == 0) {
    dense_overflow_.row = done.first_non_finite;
  }
}

/// Behind the update of the step that average_ names. Where it runs beside others, `state` is that
/// of another step by now, and may not be touched.
void Engine::average_replicas(Context& ctx, StepState& state) {
  const trace::Scope scope(ctx.track, name_of(StepPart::kSyncReplicas),
                           kind_of(StepPart::kSyncReplicas), average_.step);
  StepTimes::Span span;
  span.begin = StepTimes::Clock::now();
  embeddings_.sync_replicas(ctx, average_.step);
  span.end = StepTimes::Clock::now();
  if (runs_beside(StreamRole::kSync)) {
    average_.span = span;
  } else {
    state.times.parts[static_cast<std::size_t>(StepPart::kSyncReplicas)] = span;
  }
}

/// On the compute stream, behind the wait for the average.
void Engine::take_average_times(StepState& state) {
  if (average_.span) {
    state.times.parts[static_cast<std::size_t>(StepPart::kSyncReplicas)] = *average_.span;
    state.times.sync_beside = true;
    average_.span.reset();
  }
  average_.step = state.step;  // the next step's number may come before its average has begun
}

void Engine::await_sync() {
  lineup_.wait_for(pipeline::Resource::kRows);
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
  StepState& state = *last_;
  state.local.weights.assign(at(own_parts_ * tasks_), 0.0);
  run_stage([&](Context& ctx) {
    encode_control(state, false);
    control_comm_->all_gather(ctx, state.control_bytes.data(), state.gathered_bytes.data(),
                              codec_.bytes());
  });
  has_previous_ = false;
  GlobalControl global;
  codec_.merge([&](std::int64_t r) { return gathered_control(state, r); }, global);
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

void Engine::run_stage(const Stage& body) {
  Stream& compute = stream(StreamRole::kCompute);
  lineup_.add_exclusive(compute, body);
  compute.synchronize();
}

}  // namespace weft::train
