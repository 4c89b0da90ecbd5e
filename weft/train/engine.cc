#include "weft/train/engine.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/comm/messages.h"
#include "weft/optim/schedule.h"
#include "weft/sharding/batch_error.h"
#include "weft/train/dense_pass.h"

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

/// Of a configuration whose plan is not known nothing overlaps.
const pipeline::Schedule& schedule_of(const spec::Pipeline& pipeline) {
  const bool is_open = pipeline.schedule == spec::PipelineSchedule::kAuto;
  return pipeline::schedule_called(is_open ? "sync" : to_string(pipeline.schedule));
}

EngineOptions with_places(EngineOptions options, const pipeline::Schedule& schedule) {
  if (options.batches_in_flight == 0) {
    options.batches_in_flight = schedule.looks_ahead ? 2 : 1;
  }
  return options;
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
      options_(with_places(options, schedule_of(config.pipeline))),
      schedule_(schedule_of(config.pipeline)),
      cuts_(config.pipeline.cuts().count()),
      tasks_(static_cast<std::int64_t>(config.tasks.size())),
      own_parts_(rank_parts(plan.parts, world.size(), world.rank())),
      sparse_(config, plan, world, device),
      dense_comm_(world.duplicate("dense", sharding::form_of(plan.collectives.dense))),
      lineup_(options_.batches_in_flight, cuts_) {
  const DenseSideParts parts{.config = config,
                             .plan = plan,
                             .routing = sparse_.tables().routing(),
                             .comm = *dense_comm_,
                             .device = device};
  dense_ = options.make_dense
               ? options.make_dense(parts)
               : std::make_unique<DensePass>(config, plan, parts.routing, *dense_comm_, device);
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
  for (std::int64_t i = 0; i < options_.batches_in_flight; ++i) {
    make_state(*states_.emplace_back(std::make_unique<StepState>()));
  }
  last_ = states_.front().get();
}

bool Engine::runs_beside(StreamRole role) const {
  const bool asked =
      std::find(options_.beside.begin(), options_.beside.end(), role) != options_.beside.end();
  const bool scheduled = std::find(schedule_.streams.begin(), schedule_.streams.end(), role) !=
                         schedule_.streams.end();
  return asked ||
         (config_.train.overlap && (scheduled || role == StreamRole::kDense ||
                                    (role == StreamRole::kSync && config_.mesh.averages())));
}

void Engine::make_streams() {
  constexpr std::array<const char*, pipeline::kStreamRoles> kNames = {"compute", "ids", "vectors",
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
  state.sparse = sparse_.make_state();
  for (std::size_t i = 0; i < kStepParts; ++i) {
    for (std::int64_t cut = 0; cut < cuts_; ++cut) {
      const auto part = static_cast<StepPart>(i);
      state.stages.emplace_back(
          [this, &state, part, cut](Context& ctx) { run(part, cut, ctx, state); });
    }
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
  issued_ = StepTimes::Clock::now();
  if (stage.part == StepPart::kLookup && stage.cut == 0) {
    state.behind_average =
        runs_beside(StreamRole::kSync) &&
        lineup_.writer_of(pipeline::Resource::kRows) == &stream(StreamRole::kSync);
    state.lookup_issued = issued_;
  }
  state.times.beside[static_cast<std::size_t>(stage.part)] =
      &stream(on) != &stream(StreamRole::kCompute);
  lineup_.add(stream(on),
              state.stages[static_cast<std::size_t>(stage.part) * at(cuts_) + at(stage.cut)],
              stage);
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
  const auto begin = StepTimes::Clock::now();
  const bool is_first = span.end == StepTimes::Clock::time_point{};
  if (is_first) {
    span.begin = begin;
  } else {
    span.pauses += begin - span.end;
  }
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
    case StepPart::kWeightGradients:
      return skipped_.dense;
    case StepPart::kReduce:
      return skipped_.exchange || skipped_.dense;
    case StepPart::kGradDist:
      return skipped_.exchange;
    case StepPart::kCoalesce:
      return skipped_.update;
    case StepPart::kUpdateRows:
    case StepPart::kUpdateDense:
      return skipped_.update || !state.sparse->apply;
    default:
      return false;
  }
}

/// The body of a stage. What it throws ends the batch, and neither its stream nor other batches.
void Engine::run(StepPart part, std::int64_t cut, Context& ctx, StepState& state) {
  if (part == StepPart::kSyncReplicas) {
    average_replicas(ctx, state);
    return;
  }
  if (state.has_failed) {
    return;
  }
  try {
    run_stage_of(part, cut, ctx, state);
  } catch (const sharding::BatchError&) {
    note_failure(state);  // all ranks have it, and finish the step before
  } catch (...) {
    note_failure(state);
    give_up(std::current_exception());
  }
}

void Engine::note_failure(StepState& state) {
  if (!state.is_failing.test_and_set()) {  // of several streams the first
    state.failure = std::current_exception();
    state.has_failed = true;
  }
}

/// Throws what a stage of the batch has thrown. Where that only says that a rank of another group
/// has no batch, waits for that rank to say why.
void Engine::rethrow(const StepState& state) {
  try {
    std::rethrow_exception(state.failure);
  } catch (const sharding::BatchError& error) {
    if (error.is_of_another_group()) {
      Context ctx{.device = &device_};
      control_comm().barrier(ctx);
    }
    throw;
  }
}

void Engine::run_stage_of(StepPart part, std::int64_t cut, Context& ctx, StepState& state) {
  disturb(part, cut, state.step);
  note_waits(part, cut, state);
  if (part == StepPart::kForwardBackward) {
    forward_backward(ctx, state, cut);
  } else if (!is_left_out(part, state)) {
    timed(ctx.track, part, state, [&] { run_part(part, cut, ctx, state); });
  }
  if (part == StepPart::kUpdateRows) {
    sparse_.tables().release(*state.sparse->tables);  // where no update has
    if (!state.sparse->apply) {
      state.sparse->tables->forget_gradient_clips();
    }
    average_.step = state.step;  // the next step's number may come before its average has begun
    average_.is_due = true;
  }
  if (part == StepPart::kUpdateDense) {  // the reduction has encoded, also where nothing is applied
    sparse_.note_dense(state.step, dense_->codec_clips(), dense_overflow_);
  }
}

/// For tests.
void Engine::disturb(StepPart part, std::int64_t cut, std::int64_t step) const {
  for (const StageDelay& delay : options_.delays) {
    if (delay.part == part) {
      std::this_thread::sleep_for(delay.delay);
    }
  }
  for (const StageFailure& failure : options_.failures) {
    if (failure.part == part && failure.step == step) {
      fail(ErrorCode::kResource, "step {}: {} was told to fail", step, to_string(part));
    }
  }
  if (options_.random_delay.count() > 0) {
    const std::uint64_t stage = static_cast<std::uint64_t>(step) << 32 |
                                static_cast<std::uint64_t>(cut) << 8 |
                                static_cast<std::uint64_t>(part);
    const std::uint64_t draw =
        hash_combine(mix64(stage), static_cast<std::uint64_t>(own_parts_.begin));
    std::this_thread::sleep_for(std::chrono::microseconds(
        draw % static_cast<std::uint64_t>(options_.random_delay.count() + 1)));
  }
}

/// Of a stage that has just begun, where the compute stream is the calling thread's.
void Engine::note_waits(StepPart part, std::int64_t cut, StepState& state) const {
  const bool has_thread = runs_beside(StreamRole::kCompute) || device_.kind() != DeviceKind::kCpu;
  if (part == StepPart::kLookup && cut == 0 && state.behind_average) {
    state.times.sync_wait = {state.lookup_issued, StepTimes::Clock::now()};
  } else if (!has_thread && !state.times.beside[static_cast<std::size_t>(part)] &&
             part != StepPart::kUpdateDense) {
    state.times.waited_s +=
        std::chrono::duration<double>(StepTimes::Clock::now() - issued_).count();
  }
}

void Engine::run_part(StepPart part, std::int64_t cut, Context& ctx, StepState& state) {
  sharding::SparseStep& tables = *state.sparse->tables;
  switch (part) {
    case StepPart::kExchangeCounts:
      if (state.input_error != nullptr) {
        sparse_.refuse_batch(ctx, *state.sparse, comm::as_error(state.input_error, own_rank()));
      }
      sparse_.exchange_counts(ctx, *state.sparse);
      break;
    case StepPart::kExchangeIds:
      sparse_.tables().exchange_ids(ctx, tables);
      if (skips_stages()) {
        tables.clear_grown(ctx);
      }
      break;
    case StepPart::kFetch:
      sparse_.tables().fetch(ctx, tables);
      break;
    case StepPart::kLoad:
      dense_->load(ctx, *state.batch, tables.outputs(), tables.gradients());
      break;
    case StepPart::kLookup:
      sparse_.tables().lookup(ctx, tables, cut);
      break;
    case StepPart::kOutputDist:
      sparse_.tables().output_dist(ctx, tables, cut);
      break;
    case StepPart::kWeightGradients:
      dense_->weight_gradients(ctx);
      state.sparse->report.non_finite = dense_->non_finite();
      break;
    case StepPart::kReduce:
      dense_->reduce(ctx);
      break;
    case StepPart::kExchangeReport:
      exchange_report(ctx, state);
      break;
    case StepPart::kCoalesce:
      sparse_.tables().coalesce(ctx, tables);
      break;
    case StepPart::kGradDist:
      sparse_.tables().grad_dist(ctx, tables, cut);
      break;
    case StepPart::kUpdateRows:
      sparse_.update(ctx, *state.sparse,
                     {.learning_rate_factor = learning_rate_factor(state),
                      .step = state.step,
                      .seed = config_.seed});
      break;
    case StepPart::kUpdateDense:
      update_dense(ctx, state);
      break;
    default:
      WEFT_CHECK(false, "'{}' is no stage of a stream", to_string(part));
  }
}

double Engine::learning_rate_factor(const StepState& state) const {
  return optim::learning_rate_factor(config_.schedule, state.step);
}

sharding::TableClips Engine::codec_clips(std::int64_t table) const {
  sharding::TableClips clips;
  for (const auto& state : states_) {
    const sharding::TableClips own = state->sparse->tables->codec_clips(table);
    clips.forward += own.forward;
    clips.backward += own.backward;
  }
  return clips;
}

CodecReport Engine::codec_report() const {
  CodecReport report{
      .clips = {}, .dense = dense_->codec_clips(), .sync = sparse_.tables().sync_clips()};
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

void Engine::start(StepState& state, const StepInput& input, Pass pass) {
  const data::Batch& batch = input.batch;
  WEFT_CHECK(!state.is_in_flight, "step {} begins where step {} is in flight", input.step,
             state.step);
  state.is_in_flight = true;
  state.has_failed = false;
  state.is_failing.clear();
  state.failure = nullptr;
  state.batch = &batch;
  state.step = input.step;
  state.after = input.after;
  state.input_error = input.error;
  state.pass = pass;
  state.times = {};
  state.times.step.begin = StepTimes::Clock::now();
  timed(caller_track_, StepPart::kPrepare, state, [&] {
    if (input.error != nullptr) {
      state.weight_sums.assign(at(own_parts_.size() * tasks_), 0.0);
      sparse_.begin(*state.sparse, {.step = input.step}, state.weight_sums);
      return;
    }
    dense_->weight_sums(batch, state.weight_sums);
    sparse_.begin(*state.sparse,
                  {.sparse = batch.sparse,
                   .step = input.step,
                   .global_size = batch.global_size,
                   .sample_ids = batch.sample_ids},
                  state.weight_sums);
    state.sparse->control.stop = input.stop;
  });
}

void Engine::begin(std::int64_t place, const StepInput& input) {
  start(*states_[at(place)], input, Pass::kTraining);
}

/// After all stages of the step at `place`.
StepOutcome Engine::end(std::int64_t place) {
  StepState& state = *states_[at(place)];
  state.is_in_flight = false;
  lineup_.wait_for_batch(place);
  sparse_.tables().release(*state.sparse->tables);
  if (state.has_failed) {
    rethrow(state);
  }
  state.times.step.end = StepTimes::Clock::now();
  last_ = &state;
  return {.report = state.sparse->report,
          .stop = state.sparse->control.stop,
          .skipped = !state.sparse->apply,
          .after = state.after};
}

StepOutcome Engine::finish(std::int64_t place) {
  const StepOutcome outcome = end(place);
  if (outcome.skipped && config_.train.on_non_finite == spec::OnNonFinite::kStop) {
    fail_of_non_finite(*last_);
  }
  return outcome;
}

/// A place whose step is finished: any but that of the batch that has been begun ahead.
std::int64_t Engine::free_place() const {
  return begun_ == 0 ? 1 : 0;
}

void Engine::begin_step(const StepInput& input) {
  if (begun_ == pipeline::kNoBatch) {
    begun_ = free_place();
    begin(begun_, input);
    schedule_.begin(*this, begun_);
  }
  const std::int64_t step = states_[at(begun_)]->step;
  WEFT_CHECK(step == input.step, "step {} was begun, and {} is asked for", step, input.step);
}

bool Engine::stop_asked() {
  lineup_.wait_for(pipeline::Resource::kControl, begun_);
  rethrow_ahead();
  return states_[at(begun_)]->sparse->control.stop;
}

void Engine::rethrow_ahead() {
  if (begun_ != pipeline::kNoBatch && states_[at(begun_)]->has_failed) {
    rethrow(*states_[at(begun_)]);
  }
}

int Engine::own_rank() {
  const comm::Communicator& world = control_comm();
  return world.world_rank(world.rank());
}

void Engine::give_up(const std::exception_ptr& error) noexcept {
  control_comm().abort(comm::as_error(error, own_rank()));
}

StepOutcome Engine::train_step(const StepInput& input, const StepInput* next) {
  begin_step(input);
  const std::int64_t now = begun_;
  begun_ = pipeline::kNoBatch;
  if (next != nullptr && looks_ahead()) {
    begun_ = 1 - now;
    begin(begun_, *next);
  }
  if (std::exchange(is_ahead_, begun_ != pipeline::kNoBatch)) {
    states_[at(now)]->times.step.begin = StepTimes::Clock::now();
  }
  schedule_.step(*this, now, begun_);
  return finish(now);
}

StepOutcome Engine::eval_step(const StepInput& input) {
  const std::int64_t place = free_place();
  start(*states_[at(place)], input, Pass::kEvaluation);
  pipeline::evaluation(*this, place);
  return end(place);
}

void Engine::fail_of_non_finite(const StepState& state) const {
  const NonFinite& first = state.sparse->report.non_finite;
  const int rank = sparse_.world_rank(first.rank);
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

void Engine::forward_backward(Context& ctx, StepState& state, std::int64_t cut) {
  const bool is_last = cut + 1 == cuts_;
  if (state.pass == Pass::kEvaluation) {
    const trace::Scope scope(ctx.track, "forward", trace::Kind::kCompute);
    dense_->forward(ctx, cut);
  } else if (!skipped_.dense) {
    timed(ctx.track, StepPart::kForwardBackward, state,
          [&] { dense_->forward_backward(ctx, state.sparse->control.weights.total(), cut); });
  }
  if (!is_last) {
    return;
  }
  if (skipped_.dense && state.pass == Pass::kTraining) {
    state.logits.assign(state.batch->labels.size(), 0.0F);
  } else {
    dense_->read_logits(ctx, state.logits);
  }
  state.sparse->report.sums.assign(own_parts_, dense_->sums());
}

/// One report after the last backward stage; rows and weights are updated only after it.
void Engine::exchange_report(Context& ctx, StepState& state) {
  if (state.pass == Pass::kTraining) {
    take_average_times(state);
  }
  sparse_.exchange_report(ctx, *state.sparse);
  check_overflow(state.sparse->report);
}

void Engine::update_dense(Context& ctx, StepState& state) {
  const optim::DenseStep done = dense_->update(ctx, learning_rate_factor(state), state.step);
  const bool is_first = control_comm().rank() == 0;  // all ranks have the same parameters
  if (done.first_non_finite >= 0 && is_first && dense_overflow_.count++ == 0) {
    dense_overflow_.row = done.first_non_finite;
  }
}

/// After the update of the step that average_ names. Where it runs beside others, `state` is that
/// of another step by now, and may not be touched.
void Engine::average_replicas(Context& ctx, StepState& state) {
  if (!std::exchange(average_.is_due, false)) {
    return;  // the update has failed
  }
  disturb(StepPart::kSyncReplicas, 0, average_.step);
  const trace::Scope scope(ctx.track, name_of(StepPart::kSyncReplicas),
                           kind_of(StepPart::kSyncReplicas), average_.step);
  StepTimes::Span span;
  span.begin = StepTimes::Clock::now();
  sparse_.sync_replicas(ctx, average_.step);
  span.end = StepTimes::Clock::now();
  if (runs_beside(StreamRole::kSync)) {
    average_.span = span;
  } else {
    state.times.parts[static_cast<std::size_t>(StepPart::kSyncReplicas)] = span;
  }
}

/// On the compute stream, after the wait for the average.
void Engine::take_average_times(StepState& state) {
  if (average_.span) {
    state.times.parts[static_cast<std::size_t>(StepPart::kSyncReplicas)] = *average_.span;
    state.times.sync_beside = true;
    average_.span.reset();
  }
}

void Engine::drain() {
  for (const auto& own : streams_) {
    if (own != nullptr) {
      own->synchronize();
    }
  }
}

void Engine::await_sync() {
  lineup_.wait_for(pipeline::Resource::kRows);
}

void Engine::sync_replicas(std::int64_t step) {
  if (config_.mesh.averages() && !skipped_.exchange) {
    run_stage([&](Context& ctx) {
      const trace::Scope scope(ctx.track, name_of(StepPart::kSyncReplicas),
                               kind_of(StepPart::kSyncReplicas), step);
      sparse_.sync_replicas(ctx, step);
    });
  }
}

StepReport Engine::flush() {
  std::optional<StepReport> report;
  run_stage([&](Context& ctx) { report = sparse_.flush(ctx); });
  return *report;
}

void Engine::check_overflow(const StepReport& report) const {
  const sharding::TableOverflow& overflow = report.overflow;
  if (overflow.count == 0 || skips_stages()) {
    return;
  }
  const std::string where =
      overflow.table < 0
          ? fmt::format("dense parameter {}", dense_->parameter_of(overflow.row))
          : fmt::format("table {}, row {}", config_.tables[at(overflow.table)].name, overflow.row);
  const int rank = sparse_.world_rank(report.overflow_rank);
  throw Error(
      ErrorCode::kNonFinite,
      fmt::format("{}: a sum of finite gradients or its update overflowed in step {} ({} in "
                  "all, first on rank {}); they were not applied. Lower the learning rate "
                  "or the task weights",
                  where, report.late_step, overflow.count, rank),
      rank);
}

void Engine::run_stage(const Stage& body) {
  Stream& compute = stream(StreamRole::kCompute);
  lineup_.add_exclusive(compute, body);
  compute.synchronize();
}

}  // namespace weft::train
