/// Engine: one rank's tables (SparseEngine), dense model (DenseSide) and streams. It implements
/// what schedules are written against (weft/pipeline/schedule.h); train_step() walks the one that
/// the configuration names.
///
/// Streams       compute, on the calling thread where the device allows it; ids and vectors, for
///               schedules that use them; dense, for the all-reduce of dense gradients; sync, for
///               averages of replica groups. Which stage waits for which follows from what stages
///               declare (weft/pipeline/stage.h). Without train.overlap all stages run on the
///               compute stream.
/// Ahead         a schedule that looks ahead begins the next batch in the step before. Stages of it
///               may run when train_step() has returned, and use the batch: settle() waits for them
///               where the batch is not trained on. Nobody but stages writes rows between two
///               steps.
/// Averages      of replica groups run on when train_step() has returned, beside what the caller
///               does and the next step's counts and ids, none of which reads a row; where lookups
///               of the next batch are issued in the step, it waits for the average. The next
///               lookup waits for them, of a training or an evaluation, and so does every other
///               method that runs a stage. With sync gradients there is nothing to average: the
///               update has them.
/// Report        both updates come after the exchange of reports (step_report.h), so a step with a
///               non-finite value changes nothing on any rank.
/// Threads       methods are called by one thread, and block until the step is done, but for the
///               average of replica groups.
/// Determinism   the schedule changes no bit: tests/train compares overlap on and off, two steps in
///               flight and one, and shows that leaving out a declared dependency would be seen.
/// Errors        what a stage throws ends its batch: later stages of the batch do nothing, and its
///               step throws it. It is the world's error at once, since other ranks wait for these
///               stages, but for a batch that a rank does not have or cannot send: all ranks learn
///               that in the exchange of counts (weft/sharding/batch_error.h) and finish the step
///               before. What the sync stream throws is thrown when its end is waited for. A value
///               that is not finite is Error(kNonFinite), naming step, rank and first sample, or,
///               at the next report, the table and row whose sum overflowed.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint/state_hash.h"
#include "weft/comm/communicator.h"
#include "weft/pipeline/lineup.h"
#include "weft/pipeline/schedule.h"
#include "weft/sharding/sharded_embeddings.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"
#include "weft/tensor/device.h"
#include "weft/tensor/stream.h"
#include "weft/trace/recorder.h"
#include "weft/train/dense_side.h"
#include "weft/train/sparse_engine.h"
#include "weft/train/step_report.h"
#include "weft/train/step_state.h"
#include "weft/train/step_times.h"

namespace weft::train {

/// For tests: how late a stage begins, on its stream.
struct StageDelay {
  StepPart part = StepPart::kPrepare;
  std::chrono::microseconds delay{0};
};

/// For tests: a stage that throws Error(kResource) in a step, on the rank whose options have it.
struct StageFailure {
  StepPart part = StepPart::kPrepare;
  std::int64_t step = 0;
};

/// What a dense model is made of; `comm` is for its reduce() alone. All outlive the model.
struct DenseSideParts {
  const spec::Config& config;
  const spec::Plan& plan;
  const sharding::Routing& routing;
  comm::Communicator& comm;
  Device& device;
};

/// The recorder of an engine, which outlives it, and what schedules of the caller and tests need.
struct EngineOptions {
  std::int64_t batches_in_flight = 0;  ///< places of begin(); 0: as many as the schedule needs
  /// Roles that get a stream with a thread of its own beside those that train.overlap gives; with
  /// kCompute the compute stream has one too.
  std::vector<pipeline::StreamRole> beside = {};
  std::vector<pipeline::LeftOut> left_out =
      {};                                   ///< for tests: dependencies that are not waited for
  std::vector<StageDelay> delays = {};      ///< for tests
  std::vector<StageFailure> failures = {};  ///< for tests
  /// For tests: every stage begins late by up to this, as drawn by rank, step, part and
  /// micro-batch.
  std::chrono::microseconds random_delay{0};
  /// Makes the dense model; empty: a DensePass of the configured model.
  std::function<std::unique_ptr<DenseSide>(const DenseSideParts&)> make_dense = {};
  trace::Recorder* recorder = nullptr;  ///< gets what the streams do; null: nothing is traced
};

/// What a step found out, equal on all ranks.
struct StepOutcome {
  const StepReport& report;    ///< of all ranks; the engine's, until the next step at its place
  bool stop = false;           ///< a rank was asked to stop
  bool skipped = false;        ///< a non-finite value, with on_non_finite: skip
  data::ReaderPosition after;  ///< where the reader goes on after the step's batch
};

class Engine final : private pipeline::Issuer {
 public:
  /// Collective. Config, plan, world and device outlive it; world's ranks are the positions of the
  /// plan's mesh.
  Engine(const spec::Config& config,
         const spec::Plan& plan,
         comm::Communicator& world,
         Device& device,
         const EngineOptions& options = {});
  ~Engine() override;

  /// Whether steps begin the next batch, which train_step() is given then.
  [[nodiscard]] bool looks_ahead() const { return schedule_.looks_ahead; }

  /// One training step. Collective. `next` is the batch after it, which is begun where the schedule
  /// looks ahead; the next call is for that one, or there is none: the same on all ranks. Throws
  /// Error(kNonFinite) on all ranks, before anything is updated, unless skipping. May return while
  /// replica groups are averaged after it: see await_sync().
  StepOutcome train_step(const StepInput& input, const StepInput* next = nullptr);

  /// Begins the step of `input`, unless the step before has. Collective where it does; train_step()
  /// calls it. Afterwards stop_asked() may be asked.
  void begin_step(const StepInput& input);

  /// Whether a rank had been asked to stop when the step that was begun last began, equal on all
  /// ranks. Waits for the exchange of its counts, and throws what a stage of it has thrown. Only
  /// where the schedule looks ahead.
  [[nodiscard]] bool stop_asked();

  /// Throws what a stage of the batch that has been begun ahead has thrown, if it is known yet.
  void rethrow_ahead();

  /// Makes `error` the world's, so that stages in flight end, which wait for other ranks, and waits
  /// for them. Call while the batches are there.
  void give_up(const std::exception_ptr& error) noexcept;

  /// Waits for all stages that were issued, whatever they throw.
  void settle() noexcept;

  /// Forward only: logits() and the report's metric sums. Collective.
  StepOutcome eval_step(const StepInput& input);

  /// Puts a batch at a place of EngineOptions::batches_in_flight, whose step before is finished, to
  /// be trained on by a schedule of the caller that issues its stages to issuer().
  void begin(std::int64_t place, const StepInput& input);

  [[nodiscard]] pipeline::Issuer& issuer() { return *this; }

  /// Waits for the stages of a training step that were issued, and throws as train_step() does.
  /// After an error stages of other batches may still run: these batches outlive the engine.
  StepOutcome finish(std::int64_t place);

  /// Makes the replicas of all groups equal after `step`, the last one, where they are not.
  /// Collective. train_step() does so itself every mesh.sync_every steps.
  void sync_replicas(std::int64_t step);

  /// Waits for all stages that were issued, for those who measure. No exchange of its own.
  void drain();

  /// Waits for an average of replica groups that still runs, and throws what it threw. All methods
  /// that need its end wait themselves; this one is for those who measure. No exchange of its own.
  void await_sync();

  /// Logits [B, T] of this rank's samples in the step that was finished last.
  [[nodiscard]] const std::vector<float>& logits() const { return last_->logits; }

  /// When the parts of that step ran on this rank. An average that runs beside others is in the
  /// times of the next training step.
  [[nodiscard]] const StepTimes& times() const { return last_->times; }

  /// Brings what the last steps left to say: overflows, codec counts. Collective.
  StepReport flush();

  /// Values that this rank's codecs have clipped or found non-finite since the start of the run,
  /// and those of one table's vectors and gradients.
  [[nodiscard]] CodecReport codec_report() const;
  [[nodiscard]] sharding::TableClips codec_clips(std::int64_t table) const;

  /// Throws Error(kNonFinite) naming table and row where an update overflowed on any rank.
  void check_overflow(const StepReport& report) const;

  /// Whether stages are left out (debug.skip): then nothing is trained, and weights mean nothing.
  [[nodiscard]] bool skips_stages() const { return !config_.debug.skip.empty(); }

  /// Hashes over all ranks; also compares what several ranks hold. Collective.
  checkpoint::StateHash hash();

  /// All state of this rank as it is now; to be read inside run_stage(), before the next step.
  [[nodiscard]] std::vector<const StateSource*> sources();

  /// The same, to be written inside run_stage(); then restored() is called. Collective.
  [[nodiscard]] std::vector<StateSink*> sinks(Residuals residuals = Residuals::kRestored,
                                              Residuals of_syncs = Residuals::kRestored);
  void restored();

  /// What the residuals of dense gradients belong to, equal on all ranks; empty where there are
  /// none. State of another text is for sinks(Residuals::kDropped).
  [[nodiscard]] std::string residual_layout() const;

  /// The same of the residuals of syncs, for the second argument of sinks().
  [[nodiscard]] std::string sync_residual_layout() const { return sparse_.sync_residual_layout(); }

  /// Runs `body` on the compute stream, after an average that still runs, and waits for it.
  void run_stage(const Stage& body);

  /// Of the thread that calls train_step; null where nothing is traced.
  [[nodiscard]] trace::Track* caller_track() { return caller_track_; }

  /// For control traffic of the trainer: metrics, agreement, checkpoints.
  [[nodiscard]] comm::Communicator& control_comm() { return sparse_.control_comm(); }

  [[nodiscard]] const spec::Config& config() const { return config_; }

  [[nodiscard]] const sharding::ShardedEmbeddings& embeddings() const { return sparse_.tables(); }

  [[nodiscard]] std::int64_t tasks() const { return tasks_; }

 private:
  /// debug.skip
  struct Skipped {
    bool lookup = false;
    bool exchange = false;
    bool dense = false;
    bool update = false;
  };

  /// An average of replica groups, which may outlast the step that it follows.
  struct Average {
    std::int64_t step = 0;                ///< written before it begins
    bool is_due = false;                  ///< likewise: the update before it has been done
    std::optional<StepTimes::Span> span;  ///< not yet in a step's times; read when it is over
  };

  void issue(const pipeline::StageOf& stage, pipeline::StreamRole on) override;
  [[nodiscard]] bool averages_behind(std::int64_t batch) const override;
  [[nodiscard]] bool reads_disk() const override;

  [[nodiscard]] std::int64_t cuts() const override { return cuts_; }

  [[nodiscard]] std::int64_t lookahead() const override { return config_.pipeline.lookahead; }

  [[nodiscard]] bool would_wait_for(const pipeline::StageOf& stage) const override;

  void make_streams();
  void make_state(StepState& state);
  void start(StepState& state, const StepInput& input, Pass pass);
  StepOutcome end(std::int64_t place);
  [[nodiscard]] std::int64_t free_place() const;
  void run(StepPart part, std::int64_t cut, Context& ctx, StepState& state);
  static void note_failure(StepState& state);
  void rethrow(const StepState& state);
  [[nodiscard]] int own_rank();
  void run_stage_of(StepPart part, std::int64_t cut, Context& ctx, StepState& state);
  void run_part(StepPart part, std::int64_t cut, Context& ctx, StepState& state);
  void disturb(StepPart part, std::int64_t cut, std::int64_t step) const;
  void note_waits(StepPart part, std::int64_t cut, StepState& state) const;
  template <typename Body>
  void timed(trace::Track* track, StepPart part, StepState& state, const Body& body);
  [[nodiscard]] bool is_left_out(StepPart part, const StepState& state) const;
  [[nodiscard]] bool runs_beside(pipeline::StreamRole role) const;
  [[nodiscard]] bool computes_on_caller() const;
  [[nodiscard]] Stream& stream(pipeline::StreamRole role) const;
  void forward_backward(Context& ctx, StepState& state, std::int64_t cut);
  void exchange_report(Context& ctx, StepState& state);
  void update_dense(Context& ctx, StepState& state);
  void average_replicas(Context& ctx, StepState& state);
  void take_average_times(StepState& state);
  void fail_of_non_finite(const StepState& state) const;
  [[nodiscard]] double learning_rate_factor(const StepState& state) const;

  const spec::Config& config_;
  const spec::Plan& plan_;
  Device& device_;
  EngineOptions options_;
  const pipeline::Schedule& schedule_;
  std::int64_t cuts_;
  Skipped skipped_;
  trace::Track* caller_track_ = nullptr;
  std::int64_t tasks_;
  Range own_parts_;
  SparseEngine sparse_;
  std::unique_ptr<comm::Communicator> dense_comm_;
  std::unique_ptr<DenseSide> dense_;
  std::vector<std::unique_ptr<StepState>> states_;                       // [batches in flight]
  StepState* last_ = nullptr;                                            // finished last
  std::int64_t begun_ = pipeline::kNoBatch;                              // place of begin_step()
  bool is_ahead_ = false;                                                // begun by the step before
  StepTimes::Clock::time_point issued_;                                  // the last stage
  std::array<std::unique_ptr<Stream>, pipeline::kStreamRoles> streams_;  // null: on compute
  pipeline::Lineup lineup_;
  sharding::TableOverflow dense_overflow_;
  Average average_;
};

}  // namespace weft::train
