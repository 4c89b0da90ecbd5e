/// Engine: one rank's tables, model and streams, and the schedule of a step.
///
///   compute stream  counts - ids - (wait for the sync stream) lookup - output dist
///                   - dense forward/backward - flag - coalesce - grad dist - update of rows
///                   - (wait for the dense stream) update of dense parameters
///   dense stream    behind forward/backward: dense all-reduce
///   sync stream     behind the update of rows, where replica groups are averaged after this step:
///                   their average
///
/// The dense all-reduce runs beside the embeddings' backward; both updates come behind the flag, so
/// a step with a non-finite value changes nothing on any rank. The average runs beside the dense
/// update, and, when train_step() has returned, beside what the caller does and the next step's
/// counts and ids, none of which reads a row. The next lookup waits for it, of a training or an
/// evaluation, and so does every other method that runs a stage. Without train.overlap the compute
/// stream does both itself. With sync gradients there is nothing to average: the update has them.
///
/// Threads       methods are called by one thread, and block until the step is done, but for the
///               average of replica groups.
/// Determinism   the schedule changes no bit: tests/train compares overlap on and off, and shows
///               that leaving out either wait would be seen.
/// Errors        what a stage throws, of the sync stream when its end is waited for;
///               Error(kNonFinite) naming step, rank and first sample, or, at the exchange of
///               counts after it, the table and row whose sum overflowed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint/state_hash.h"
#include "weft/comm/communicator.h"
#include "weft/data/batch.h"
#include "weft/sharding/sharded_embeddings.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"
#include "weft/tensor/device.h"
#include "weft/tensor/stream.h"
#include "weft/trace/recorder.h"
#include "weft/train/control.h"
#include "weft/train/dense_pass.h"
#include "weft/train/step_times.h"

namespace weft::train {

/// For tests: whether the dense update waits for the dense all-reduce.
enum class DenseWait { kKept, kLeftOut };

/// For tests: whether a training's lookup waits for the average of replica groups. Where that is
/// left out, the update of rows still waits.
enum class SyncWait { kKept, kLeftOut };

/// The recorder of an engine, which outlives it, and changes of its schedule for tests.
struct EngineOptions {
  DenseWait dense_wait = DenseWait::kKept;
  SyncWait sync_wait = SyncWait::kKept;
  std::chrono::microseconds dense_delay{0};  ///< for tests: how late the dense all-reduce begins
  std::chrono::microseconds sync_delay{0};   ///< for tests: how late a step's average begins
  trace::Recorder* recorder = nullptr;       ///< gets what the streams do; null: nothing is traced
};

/// Whether what a codec has lost is taken over from a checkpoint.
enum class Residuals : std::uint8_t { kRestored, kDropped };

/// What a step found out, equal on all ranks.
struct StepOutcome {
  /// From the exchange of counts: stop, overflows, the step before. The engine's, until its next
  /// step.
  const GlobalControl& control;
  bool skipped = false;  ///< a non-finite value, with on_non_finite: skip
  NonFinite non_finite;
};

class Engine {
 public:
  /// Collective. Config, plan, world and device outlive it; world's ranks are the positions of the
  /// plan's mesh.
  Engine(const spec::Config& config,
         const spec::Plan& plan,
         comm::Communicator& world,
         Device& device,
         const EngineOptions& options = {});
  ~Engine();

  /// One training step, counted from 1 over the whole job. Collective. `stop`: this rank was asked
  /// to stop. Throws Error(kNonFinite) on all ranks, before anything is updated, unless skipping.
  /// May return while replica groups are averaged after it: see await_sync().
  StepOutcome train_step(const data::Batch& batch, std::int64_t step, bool stop);

  /// Forward only: logits() and part_sums(). Collective. `stop`: this rank was asked to stop;
  /// returns whether any rank was.
  bool eval_step(const data::Batch& batch, bool stop);

  /// Makes the replicas of all groups equal after `step`, the last one, where they are not.
  /// Collective. train_step() does so itself every mesh.sync_every steps.
  void sync_replicas(std::int64_t step);

  /// Waits for an average of replica groups that still runs, and throws what it threw. All methods
  /// that need its end wait themselves; this one is for those who measure. No exchange of its own.
  void await_sync();

  /// Logits [B, T] of this rank's samples in the last step.
  [[nodiscard]] const std::vector<float>& logits() const { return logits_; }

  /// When the parts of the last step ran on this rank. An average that runs beside others is in
  /// the times of the next training step.
  [[nodiscard]] const StepTimes& times() const { return times_; }

  /// Metric sums of this rank's parts in the last step, [own parts][T].
  [[nodiscard]] const std::vector<metrics::BinarySums>& part_sums() const;

  /// Exchanges what the last step left to say (its metric sums, overflows). Collective.
  GlobalControl flush();

  /// Values that this rank's codecs have clipped or found non-finite since the start of the run,
  /// and those of one table's vectors and gradients.
  [[nodiscard]] CodecReport codec_report() const;
  [[nodiscard]] sharding::TableClips codec_clips(std::int64_t table) const {
    return sparse_->codec_clips(table);
  }

  /// Throws Error(kNonFinite) naming table and row where an update overflowed on any rank.
  void check_overflow(const GlobalControl& control) const;

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
  [[nodiscard]] std::string sync_residual_layout() const;

  /// Runs `body` on the compute stream, behind an average that still runs, and waits for it.
  void run_stage(const Stage& body);

  /// Of the thread that calls train_step; null where nothing is traced.
  [[nodiscard]] trace::Track* caller_track() { return caller_track_; }

  /// For control traffic of the trainer: metrics, agreement, checkpoints.
  [[nodiscard]] comm::Communicator& control_comm() { return *control_comm_; }

  [[nodiscard]] const spec::Config& config() const { return config_; }

  [[nodiscard]] const sharding::ShardedEmbeddings& embeddings() const { return embeddings_; }

  [[nodiscard]] std::int64_t tasks() const { return tasks_; }

 private:
  void make_stages();
  template <typename Body>
  void timed(trace::Track* track, StepPart part, const Body& body);
  void begin(const data::Batch& batch, std::int64_t step, bool stop);
  void exchange_input(Context& ctx);
  void gather_control(Context& ctx);
  [[nodiscard]] std::span<const std::byte> gathered_control(std::int64_t rank) const;
  void exchange_flags(Context& ctx);
  void update_rows(Context& ctx);
  void enqueue_sync(std::int64_t step);
  void average_replicas(Context& ctx);
  void wait_for_sync();
  void take_sync_times();
  [[nodiscard]] int world_rank(std::int64_t position) const;
  void update_dense(Context& ctx);
  void encode_control(bool stop);
  const spec::Config& config_;
  const spec::Plan& plan_;
  Device& device_;

  /// debug.skip
  struct Skipped {
    bool lookup = false;
    bool exchange = false;
    bool dense = false;
    bool update = false;
  };

  EngineOptions options_;
  Skipped skipped_;
  trace::Track* caller_track_ = nullptr;
  std::int64_t tasks_;
  std::int64_t rank_;
  std::int64_t own_parts_;
  ControlCodec codec_;
  std::unique_ptr<comm::Communicator> control_comm_, dense_comm_;
  std::unique_ptr<comm::Communicator>
      groups_comm_;  // own place of all groups of the first set of tables; null where it has one
  sharding::ShardedEmbeddings embeddings_;
  std::unique_ptr<sharding::SparseStep> sparse_;  // of the step in flight
  DensePass dense_;
  std::unique_ptr<Stream> compute_, dense_stream_;
  std::unique_ptr<Stream> sync_stream_;  // null where nothing is averaged beside others
  bool syncs_beside_ = false;            // whether it is there

  // The step in flight.
  const data::Batch* batch_ = nullptr;
  std::int64_t step_ = 0;
  std::vector<std::byte> control_bytes_, gathered_bytes_, group_bytes_;
  LocalControl local_;
  GlobalControl global_;
  std::vector<NonFinite> flags_;
  NonFinite first_flag_;
  bool apply_ = true;
  bool has_previous_ = false;
  sharding::TableOverflow dense_overflow_;
  std::int64_t encoded_non_finite_ = 0;  // vectors' numbers, before the step in flight
  std::vector<float> logits_;
  StepTimes times_;  // each part is written by the stream it runs on

  // The average that runs beside others.
  bool syncing_ = false;  // nobody has waited for it; of the thread that calls
  Event synced_;
  bool lookup_waits_ = false;                 // of the step in flight, for one before it
  std::int64_t sync_step_ = 0;                // whose it is; written before it begins
  std::optional<StepTimes::Span> sync_span_;  // not yet in times_; read when it is over

  Stage input_stage_, lookup_stage_, train_stage_, eval_stage_, reduce_stage_, flag_stage_,
      backward_stage_, sync_stage_, dense_update_stage_;
};

}  // namespace weft::train
