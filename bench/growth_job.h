/// The jobs whose growth with the ranks is measured (docs/scaling.md), and what one rank of them
/// costs: messages, bytes, processor time, memory, start. Ranks may be threads, processes, or those
/// of an imitated world.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "bench/imitated_world.h"
#include "weft/base/step_part.h"
#include "weft/comm/communicator.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::bench {

inline constexpr std::int64_t kGrowthPerHost = 8;
inline constexpr std::int64_t kGrowthSamples = 16;  ///< of a rank

/// Who holds the tables of a set, all of which have 16 columns and one id a sample.
enum class GrowthCut : std::uint8_t {
  /// At most 4,096 rows: those of 4,096 are cut by rows, those of fewer than 64 are on all ranks,
  /// the others are whole.
  kMixed,
  /// All have 4,096 rows, and are cut by rows over all ranks.
  kRowWise,
  /// Tables are cut as with kRowWise, but as many of those with fewer than 4,096 rows as hosts
  /// divide are whole, of 1,024 rows: every host has as many.
  kEven,
};

/// Returns "mixed", "row-wise" or "even".
std::string to_string(GrowthCut cut);

/// One job.
struct GrowthJob {
  std::string tables;  ///< as planner::table_set() takes it
  GrowthCut cut = GrowthCut::kMixed;
  std::int64_t ranks = 8;
  bool nested = false;  ///< under `nested` with 2 micro-batches, else `sync`
};

/// A job as a rank of it runs.
struct GrowthRun {
  spec::Config config;
  spec::Plan plan;
  std::int64_t tables_whole = 0;  ///< of kEven: the last ones
  std::int64_t real = 0;          ///< batches repeat, moved, after so many ranks; 0: never
  std::int64_t here = 1;          ///< ranks of this process
  std::int64_t steps = 4;         ///< of a turn; times are medians of five turns
  std::string folder;             ///< where to save a checkpoint; empty: none
  const TransportTime* transport = nullptr;  ///< of an imitated world
};

/// Makes configuration and plan; the caller sets the rest. Collectives are hierarchical but on one
/// host.
GrowthRun make_growth_run(const GrowthJob& job);

/// The messages and bytes that a rank sent in a step.
struct StepCounts {
  std::array<double, kStepParts> messages{};
  std::array<double, kStepParts> bytes{};
  double all_messages = 0.0;
  double all_bytes = 0.0;

  friend bool operator==(const StepCounts&, const StepCounts&) = default;

  /// Takes the greater of each.
  void most_of(const StepCounts& other);
};

/// A rank's figures; those of its process are divided by the ranks in it.
struct RankGrowth {
  StepCounts counts;
  double step_s = 0.0;     ///< of a processor, with the dense model; the median of five turns
  double library_s = 0.0;  ///< the same without it, and without an imitated world's transport
  double start_s = 0.0;    ///< of a processor, without plan and data
  std::array<double, kStepParts> part_s{};  ///< of a step's parts, as a trace has them
  double tables = 0.0;                      ///< bytes of the rank's tables
  double buffers = 0.0;                     ///< bytes that the process has, tables among them
  double heap = 0.0;                        ///< bytes of lists on the heap beside these
  double manifest = 0.0;                    ///< bytes, of a checkpoint that was saved
  double manifest_most = 0.0;               ///< what docs/checkpoint_format.md says it has at most
  double checkpoint = 0.0;                  ///< bytes of all of its files
};

/// Starts the job, trains, counts one step, and times the parts of further ones. Collective over
/// `world`.
RankGrowth measure_growth(comm::Communicator& world, const GrowthRun& run);

/// Returns the options of an imitated world of the job's ranks, of which `real` exist. They refer
/// to `run`, which outlives them.
ImitatedOptions imitate(const GrowthRun& run, std::int64_t real);

/// Returns the bytes that a manifest of the job has at most by docs/checkpoint_format.md, with one
/// segment of rows of each rank, and the texts of configuration and plan. Dense parameters, which
/// are stored in blocks, come on top.
double most_manifest_bytes(const GrowthRun& run);

/// Seconds of a processor that this process has taken.
double processor_s();

}  // namespace weft::bench
