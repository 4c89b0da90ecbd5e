// An oracle of row versions: walks a schedule over random batches of rows whose value is the step
// that updated them last, with a store behind `fetch` that keeps most of them in slow memory, and
// compares what every lookup reads with what the step before has left.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "tests/pipeline/slow_store.h"
#include "weft/base/step_part.h"
#include "weft/pipeline/lineup.h"
#include "weft/pipeline/schedule.h"
#include "weft/tensor/device.h"
#include "weft/tensor/stream.h"

namespace weft::pipeline {

/// The streams that stages are issued to.
enum class Streams : std::uint8_t {
  kOfRoles,  ///< one per role, as a schedule says
  kAny,      ///< one of five by chance: what orders stages is what they declare, and nothing else
};

/// What is behind `fetch`.
enum class Stores : std::uint8_t {
  kSlow,   ///< a SlowStore, which can break rules
  kCache,  ///< a storage::RowCache (tests/pipeline/cached_versions.h)
};

struct OracleOptions {
  std::int64_t shards = 2;  ///< that the rank holds, a store each
  SlowStoreOptions store;   ///< of each shard; the seed differs
  Stores stores = Stores::kSlow;
  std::int64_t most_rows = 0;    ///< of a training batch and shard, at most as many as slots
  std::int64_t least_rows = 0;   ///< of every batch that is neither empty nor of one row
  std::int64_t eval_rows = 0;    ///< of an evaluation's batch, if above 0
  bool has_rare_batches = true;  ///< empty ones, and such of one row that all batches have
  std::int64_t cuts = 3;         ///< where a schedule cuts batches
  bool reads_disk = false;       ///< what a schedule is told
  std::chrono::microseconds stage_delay{200};  ///< the longest before one stage in four
  StepPart slow = StepPart::kPrepare;          ///< a stage that is often later than others
  std::chrono::microseconds slow_delay{0};     ///< the longest before that one
  Streams streams = Streams::kAny;
  std::vector<LeftOut> left_out = {};
  std::uint64_t seed = 1;
};

/// What lookups have read.
struct Reads {
  std::int64_t right = 0;
  std::int64_t old = 0;     ///< stale: an earlier version of the row
  std::int64_t other = 0;   ///< another row, or a version that no step before has made
  std::int64_t absent = 0;  ///< no slot had the row

  [[nodiscard]] std::int64_t wrong() const { return old + other + absent; }
};

class VersionOracle final : public Issuer {
 public:
  VersionOracle(const Schedule& schedule, const OracleOptions& options);
  ~VersionOracle() override;

  VersionOracle(const VersionOracle&) = delete;
  VersionOracle& operator=(const VersionOracle&) = delete;

  /// Trains `steps` steps, as train::Engine does, with an evaluation behind some. Called once.
  /// Throws what a stage threw.
  void run(std::int64_t steps);

  void issue(const StageOf& stage, StreamRole on) override;

  [[nodiscard]] bool averages_behind(std::int64_t batch) const override;

  [[nodiscard]] bool reads_disk() const override { return options_.reads_disk; }

  [[nodiscard]] std::int64_t cuts() const override { return cuts_; }

  [[nodiscard]] std::int64_t lookahead() const override { return 2; }

  [[nodiscard]] Reads reads() const;

  [[nodiscard]] SlowStoreCounts counts();

  /// Rows that lie below the slots in another version than the last step's, after a drain.
  [[nodiscard]] std::int64_t wrong_below();

 private:
  /// What one batch reads of one shard.
  struct ShardBatch {
    std::vector<std::int64_t> ids;       // with repeats
    std::vector<std::int64_t> offsets;   // two bags
    std::vector<std::int64_t> rows;      // distinct
    std::vector<std::int64_t> expected;  // of these, the last update before the batch
    kernels::Bags bags;
    std::unique_ptr<storage::ResidentRows> resident;
  };

  struct Batch {
    std::int64_t step = 0;
    bool is_applied = true;
    bool averages = false;
    std::vector<ShardBatch> shards;
    std::vector<std::array<Stage, kStepParts>> bodies;  // by micro-batch
    std::atomic<std::uint64_t> stages_begun = 0;        // for delays
  };

  enum class Pass : std::uint8_t { kTraining, kEvaluation };

  void draw_batch(Batch& batch, std::int64_t step, Pass pass);
  void draw_rows(ShardBatch& shard, std::int64_t size, std::int64_t least);
  void begin(std::int64_t place, std::int64_t step, Pass pass);
  void finish(std::int64_t place);
  void run_stage(Context& ctx, Batch& batch, StepPart part, std::int64_t cut);
  void delay(Batch& batch, StepPart part) const;
  void lookup(Context& ctx, Batch& batch, std::int64_t cut);
  void update(Context& ctx, Batch& batch);

  const Schedule& schedule_;
  OracleOptions options_;
  std::int64_t cuts_;
  std::mt19937_64 random_;                                        // of the thread that issues
  std::vector<std::vector<std::vector<std::int64_t>>> steps_of_;  // [shard][row] that updated it
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<VersionStore>> stores_;
  std::array<Batch, 2> batches_;
  std::atomic<std::int64_t> right_ = 0, old_ = 0, other_ = 0, absent_ = 0;
  Lineup lineup_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace weft::pipeline
