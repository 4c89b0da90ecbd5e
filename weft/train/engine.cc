#include "weft/train/engine.h"

#include <algorithm>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/comm/messages.h"
#include "weft/sharding/batch_error.h"
#include "weft/train/dense_pass.h"

namespace weft::train {
namespace {

using pipeline::StreamRole;

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

/// Whether the compute stream is the thread that issues.
bool Engine::computes_on_caller() const {
  return device_.kind() == DeviceKind::kCpu && !runs_beside(StreamRole::kCompute);
}

/// What a stream of its own would wait for is not known before it gets there.
bool Engine::would_wait_for(const pipeline::StageOf& stage) const {
  return computes_on_caller() && lineup_.is_being_written(pipeline::Resource::kVectors, stage);
}

void Engine::make_streams() {
  constexpr std::array<const char*, pipeline::kStreamRoles> kNames = {"compute", "ids", "vectors",
                                                                      "dense all_reduce", "sync"};
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const auto role = static_cast<StreamRole>(i);
    const bool is_compute = role == StreamRole::kCompute;
    if (is_compute || runs_beside(role)) {
      streams_[i] = device_.make_stream({.name = kNames[i],
                                         .is_inline = is_compute && computes_on_caller(),
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
  if (stage.cut == 0) {  // a part has one stream, and its stage may run from here on
    state.times.beside[static_cast<std::size_t>(stage.part)] =
        &stream(on) != &stream(StreamRole::kCompute);
  }
  lineup_.add(stream(on),
              state.stages[static_cast<std::size_t>(stage.part) * at(cuts_) + at(stage.cut)],
              stage);
}

bool Engine::averages_behind(std::int64_t batch) const {
  return config_.mesh.averages() && config_.mesh.syncs_after(states_[at(batch)]->step) &&
         !skipped_.exchange;
}

bool Engine::reads_disk() const {
  return spec::has_tables_on_disks(config_);
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
  const std::int64_t place = begun_ == 0 ? 1 : 0;
  WEFT_CHECK(place < options_.batches_in_flight,
             "a batch is in flight, and there is no other place");
  return place;
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
  settle();
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

void Engine::settle() noexcept {
  for (const auto& own : streams_) {
    try {
      if (own != nullptr) {
        own->synchronize();
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): told elsewhere, or nobody needs it
    }
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
      const trace::Scope scope(ctx.track, to_string(StepPart::kSyncReplicas).data(),
                               trace::Kind::kCompute, step);
      sparse_.sync_replicas(ctx, step);
    });
  }
}

StepReport Engine::flush() {
  std::optional<StepReport> report;
  run_stage([&](Context& ctx) { report = sparse_.flush(ctx); });
  return *report;
}

void Engine::run_stage(const Stage& body) {
  Stream& compute = stream(StreamRole::kCompute);
  lineup_.add_exclusive(compute, body);
  compute.synchronize();
}

}  // namespace weft::train
