#include "weft/train/trainer.h"

#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/train/codec_clips.h"
#include "weft/train/evaluation.h"
#include "weft/train/next_batch.h"

namespace weft::train {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Trainer::Trainer(const spec::Config& config,
                 Engine& engine,
                 data::Loader& loader,
                 const TrainerOptions& options)
    : config_(config),
      engine_(engine),
      loader_(loader),
      options_(options),
      figures_(static_cast<std::int64_t>(config.tasks.size()), config.train.log_every),
      throughput_(std::chrono::nanoseconds(0)),
      step_(options.first_step),
      position_(loader.position()),
      scores_(
          static_cast<std::int64_t>(config.tasks.size()), config.batch_size, options.window_scores),
      complete_scores_(scores_),
      skips_(config.train.max_skipped),
      saved_step_(options.saved_step) {
}

bool Trainer::stop_asked() const {
  return options_.stop != nullptr && options_.stop->load();
}

std::int64_t Trainer::total_steps() const {
  if (config_.train.steps > 0) {
    return config_.train.steps;
  }
  if (options_.samples_per_epoch < 0) {
    return 0;
  }
  const auto steps_of = [this](std::int64_t samples) {
    return (samples + config_.batch_size - 1) / config_.batch_size;
  };
  return options_.first_step - steps_of(options_.start.sample) +
         steps_of(options_.samples_per_epoch) * (config_.train.epochs - options_.start.epoch);
}

void Trainer::run() {
  try {
    train();
  } catch (...) {
    engine_.give_up(std::current_exception());
    throw;
  }
}

void Trainer::train() {
  say_training();
  while (!stopped_ && (config_.train.steps == 0 || step_ < config_.train.steps)) {
    if (options_.trace != nullptr) {
      options_.trace->before_step(step_ + 1, engine_);
    }
    const trace::Scope scope(engine_.caller_track(), "step", trace::Kind::kStep, step_ + 1);
    const auto start = Clock::now();
    engine_.rethrow_ahead();
    if (!std::exchange(has_next_, false) && !read(places_[now_], step_ + 1)) {
      break;
    }
    const StepInput& input = places_[now_].input;
    engine_.begin_step(input);
    const StepInput* const next = read_ahead(step_ + 1);
    const auto ready = Clock::now();
    const StepOutcome outcome = engine_.train_step(input, next);
    const data::Batch& batch = input.batch;
    now_ = 1 - now_;
    const auto stepped = Clock::now();
    if (saves_after(step_ + 1) || evaluates_after(step_ + 1)) {
      engine_.await_sync();  // they need its end, and it is not their time
    }
    const auto done = Clock::now();
    train_time_ += done - start;
    breakdown_.add(engine_.times(), std::chrono::duration<double>(ready - start).count(),
                   std::chrono::duration<double>(done - start).count());
    breakdown_.exchange += std::chrono::duration<double>(done - stepped).count();
    const trace::Scope rest(engine_.caller_track(), "figures", trace::Kind::kCompute);
    ++step_;
    position_ = outcome.after;
    samples_ += batch.global_size;
    say_training();
    throughput_.add(train_time_, batch.global_size);
    take(outcome);
    if (outcome.skipped) {
      count_skipped(outcome);
    } else {
      skips_.add_trained();
      add_scores(batch);
    }
    stop_agreed_ |= outcome.stop;
    stopped_ = stop_agreed_ && config_.mesh.syncs_after(step_);
    boundary(step_);
  }
  const auto stepped = Clock::now();
  engine_.settle();  // a batch begun ahead of an evaluation that was stopped
  engine_.sync_replicas(step_);
  train_time_ += Clock::now() - stepped;
  if (options_.trace != nullptr) {
    options_.trace->finish(engine_);
  }
  take_late();
  if (options_.save && saved_step_ != step_) {
    options_.save(*this, SaveKind::kFinal);
    saved_step_ = step_;
  }
  if (!stopped_ && evaluated_step_ != step_) {
    evaluate(step_);
  }
}

void Trainer::say_training() const {
  if (options_.progress.on_activity) {
    options_.progress.on_activity(
        {.phase = Phase::kTraining, .done = step_, .total = total_steps(), .samples = samples_});
  }
}

/// Reads the batch of `step`; false at the end of the data.
bool Trainer::read(Place& to, std::int64_t step) {
  const trace::Scope scope(engine_.caller_track(), "wait_for_batch", trace::Kind::kWait);
  if (!train::next_batch(loader_, engine_.control_comm(), to.batch)) {
    return false;
  }
  to.input.step = step;
  to.input.after = loader_.position();
  to.input.stop = stop_asked();
  return true;
}

/// The batch after `step`, where the schedule begins it in that step; null at the end.
const StepInput* Trainer::read_ahead(std::int64_t step) {
  if (!engine_.looks_ahead() || (config_.train.steps != 0 && step >= config_.train.steps)) {
    return nullptr;
  }
  const bool stops = engine_.stop_asked() || stop_agreed_;  // first, whether there is a batch
  if (stops && config_.mesh.syncs_after(step)) {
    return nullptr;
  }
  Place& next = places_[1 - now_];
  next.input.error = nullptr;
  try {
    has_next_ = read(next, step + 1);
  } catch (...) {
    next.input.step = step + 1;
    next.input.error = std::current_exception();  // that step throws it
    has_next_ = true;
  }
  return has_next_ ? &next.input : nullptr;
}

void Trainer::count_skipped(const StepOutcome& outcome) {
  const NonFinite& first = outcome.report.non_finite;
  const std::int64_t sample = first.sample;
  const std::string cause = fmt::format(
      "rank {} {}", engine_.control_comm().world_rank(static_cast<int>(first.rank)),
      sample < 0 ? "in a vector that it encoded" : fmt::format("for sample {}", sample));
  skips_.add_skipped(step_, cause);
  if (engine_.control_comm().rank() == 0) {
    log_warning("step {}: skipped, not finite on {}", step_, cause);
  }
}

/// Keeps the scores of the current and of the last complete window, for its AUC.
void Trainer::add_scores(const data::Batch& batch) {
  if (engine_.skips_stages()) {
    return;
  }
  scores_.add_step(engine_.logits(), batch.labels, batch.label_weights);
  if (++scored_steps_ == config_.train.log_every) {
    std::swap(complete_scores_, scores_);
    scores_.clear();
    window_is_complete_ = true;
    scored_steps_ = 0;
  }
}

/// What arose after the last report.
void Trainer::take_late() {
  const StepReport late = engine_.flush();
  engine_.check_overflow(late);
  codecs_ += late.codecs;
}

/// Takes in the metric sums of a step.
void Trainer::take(const StepOutcome& outcome) {
  codecs_ += outcome.report.codecs;
  if (outcome.skipped || !figures_.add(outcome.report.sums.total())) {
    return;
  }
  warn_of_codecs(codecs_);
  if (!options_.progress.on_window) {
    return;
  }
  WindowFigures window;
  window.step = step_;
  window.total_steps = total_steps();
  window.samples = samples_;
  window.total_samples =
      options_.samples_per_epoch < 0 ? 0 : options_.samples_per_epoch * config_.train.epochs;
  for (std::size_t t = 0; t < config_.tasks.size(); ++t) {
    window.tasks.push_back(train::figures(config_.tasks[t].name, figures_.window()[t]));
    window.lifetime_ne.push_back(figures_.lifetime()[t].ne());
  }
  window.samples_per_s = throughput_.window();
  window.elapsed_s = std::chrono::duration<double>(train_time_).count();
  const std::int64_t steps = step_ - options_.first_step;
  const std::int64_t left = window.total_steps - step_;
  if (left > 0 && steps > 0 && window.samples_per_s > 0) {
    const double samples_per_step = static_cast<double>(samples_) / static_cast<double>(steps);
    window.eta_s = samples_per_step * static_cast<double>(left) / window.samples_per_s;
  }
  window.breakdown = std::exchange(breakdown_, {});
  options_.progress.on_window(window);
}

/// Warns of values that encoders have clipped or found non-finite since the warning before.
void Trainer::warn_of_codecs(const CodecReport& codecs) {
  const CodecReport before = std::exchange(warned_codecs_, codecs);
  if (engine_.control_comm().rank() == 0) {
    warn_of_clips(config_, codecs, before, fmt::format("up to step {}", step_));
  }
}

bool Trainer::saves_after(std::int64_t step) const {
  return options_.save && options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0;
}

bool Trainer::evaluates_after(std::int64_t step) const {
  return config_.train.eval_every > 0 && step % config_.train.eval_every == 0;
}

void Trainer::boundary(std::int64_t step) {
  const bool save = saves_after(step) && skips_.owed() == 0;
  const bool evaluate_now = evaluates_after(step);
  if (!save && !evaluate_now) {
    return;
  }
  take_late();
  if (save) {
    const trace::Scope scope(engine_.caller_track(), "checkpoint", trace::Kind::kIo);
    saved_step_ = options_.save(*this, SaveKind::kInterval) ? step : saved_step_;
  }
  if (evaluate_now) {
    evaluate(step);
  }
  say_training();
}

void Trainer::evaluate(std::int64_t step) {
  if (!options_.evaluate) {
    return;
  }
  const trace::Scope scope(engine_.caller_track(), "evaluation", trace::Kind::kCompute);
  std::optional<EvalFigures> figures = options_.evaluate(step);
  if (!figures) {
    stopped_ = true;
    return;
  }
  codecs_ += figures->codecs;
  eval_ = std::move(figures);
  eval_->step = step;
  evaluated_step_ = step;
  if (options_.progress.on_eval) {
    options_.progress.on_eval(*eval_);
  }
}

void Trainer::report(Summary& summary) {
  summary.samples = samples_;
  summary.steps = step_ - options_.first_step;
  summary.last_step = step_;
  summary.skipped_steps = skips_.skipped();
  summary.train_s = std::chrono::duration<double>(train_time_).count();
  summary.stopped = stopped_;
  summary.eval = eval_;
  warn_of_codecs(sum_clips(engine_, config_, summary));  // after the last whole window
  for (std::size_t t = 0; t < config_.tasks.size(); ++t) {
    const metrics::BinarySums& sums = figures_.window()[t];
    TaskFigures task = train::figures(config_.tasks[t].name, sums);
    metrics::ScoreWindow& scores = window_is_complete_ ? complete_scores_ : scores_;
    if (!engine_.skips_stages()) {
      engine_.run_stage([&](Context& ctx) {
        task.auc = auc_over_ranks(engine_.control_comm(), ctx, scores.samples()[t]).auc;
      });
    }
    summary.window.push_back(std::move(task));
    summary.window_samples = sums.count;
    summary.lifetime_ne.push_back(figures_.lifetime()[t].ne());
  }
}

}  // namespace weft::train
