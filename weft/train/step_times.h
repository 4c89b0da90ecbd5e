/// When the parts of a step ran: what the engine notes of every step, and benchmarks read.
///
/// Two readings of the steady clock per part and no allocation: about a microsecond a step, always
/// on. Times decide nothing. kReduce and kSyncReplicas run beside others where train.overlap is on,
/// so parts may add up to more than the step.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::train {

/// The parts of a step, in the order of ARCHITECTURE.md.
enum class StepPart : std::uint8_t {
  kPrepare,          ///< sums of label weights, the control block
  kExchangeCounts,   ///< ids cut into slots, counts exchanged
  kExchangeIds,      ///< ids exchanged and placed on the device
  kLoad,             ///< dense values and labels placed on the device
  kLookup,           ///< rows read and pooled
  kOutputDist,       ///< vectors to the samples
  kForwardBackward,  ///< dense model, loss, sums over this rank's parts
  kReduce,           ///< all-reduce of the dense gradients, on the dense stream
  kExchangeFlags,    ///< is anything not finite, anywhere?
  kCoalesce,         ///< entries sorted by row and part
  kGradDist,         ///< gradients to the rows' owners
  kUpdateRows,       ///< sums up the tree of parts, sparse optimizer
  kSyncReplicas,     ///< replicas of the groups averaged, on the sync stream
  kUpdateDense,      ///< dense optimizer
};

inline constexpr std::size_t kStepParts = 14;

/// As in benchmarks' tables, e.g. "forward_backward".
std::string_view to_string(StepPart part);

struct StepTimes {
  using Clock = std::chrono::steady_clock;

  struct Span {
    Clock::time_point begin, end;

    [[nodiscard]] double seconds() const {
      return std::chrono::duration<double>(end - begin).count();
    }
  };

  Span step;                           ///< from the call to its return
  std::array<Span, kStepParts> parts;  ///< zero seconds: did not run

  /// Whether kSyncReplicas ran beside other parts: then it is that of an earlier step, which was
  /// over before this one's lookup.
  bool sync_beside = false;
  Span sync_wait;  ///< of the lookup, for it; zero seconds: did not wait

  [[nodiscard]] const Span& of(StepPart part) const {
    return parts[static_cast<std::size_t>(part)];
  }
};

/// Where one rank's time went over some steps, from batch to batch; seconds.
struct StepBreakdown {
  double data = 0;  ///< waiting for a batch
  /// Counts, ids, vectors, flags and gradients between ranks, with their packing; averages of
  /// replica groups, of those beside other parts the time that somebody waits for them.
  double exchange = 0;
  double lookup = 0;
  double dense = 0;   ///< forward, backward, optimizer of the dense model
  double update = 0;  ///< of rows, with the sorting of their ids
  double total = 0;   ///< the rest of it: figures, and a dense all-reduce that nothing hides

  /// One more step, which took `total` seconds, `data` of them before it began.
  void add(const StepTimes& step, double data_s, double total_s);

  /// Shares in per cent, "data 1 exchange 12 lookup 4 dense 70 update 12 %".
  [[nodiscard]] std::string text() const;
};

}  // namespace weft::train
