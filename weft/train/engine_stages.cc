// The bodies of the engine's stages, and what is noted of them.
#include <algorithm>
#include <thread>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/comm/messages.h"
#include "weft/optim/schedule.h"
#include "weft/sharding/batch_error.h"
#include "weft/train/engine.h"

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
    case StepPart::kReduce:  // without the dense model it moves as many bytes, of no terms
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
    control_comm().abort(comm::as_error(std::current_exception(), own_rank()));
  }
}

void Engine::note_failure(StepState& state) {
  if (!state.is_failing.test_and_set()) {  // of several streams the first
    state.failure = std::current_exception();
    state.has_failed = true;
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
  if (part == StepPart::kLookup && cut == 0 && state.behind_average) {
    state.times.sync_wait = {state.lookup_issued, StepTimes::Clock::now()};
  } else if (computes_on_caller() && !state.times.beside[static_cast<std::size_t>(part)] &&
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
      dense_->weight_gradients(ctx, cut);
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

}  // namespace weft::train
