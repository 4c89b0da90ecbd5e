/// When the parts of a step ran: what the engine notes of every step, and benchmarks read.
///
/// Two readings of the steady clock per part and micro-batch and no allocation: about a microsecond
/// a step, always on. Times decide nothing. Where train.overlap is on, parts run beside others, as
/// the schedule says, and may add up to more than the step.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/base/step_part.h"

namespace weft::train {

/// The times of one step's parts on this rank.
struct StepTimes {
  using Clock = std::chrono::steady_clock;

  /// A stretch of time. A default one has zero seconds: what it stands for did not run.
  struct Span {
    Clock::time_point begin, end;
    Clock::duration pauses{0};  ///< in it, between the micro-batches of a part

    [[nodiscard]] double seconds() const {
      return std::chrono::duration<double>(end - begin - pauses).count();
    }
  };

  Span step;                           ///< from the call to its return
  std::array<Span, kStepParts> parts;  ///< zero seconds: did not run

  /// Whether a part had a stream of its own. Then a step loses what its compute stream waits.
  std::array<bool, kStepParts> beside = {};
  /// By the compute stream, where it is the calling thread's; without sync_wait, and without the
  /// wait of the dense update for its sum.
  double waited_s = 0;
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
  /// Counts, ids, vectors, reports and gradients between ranks, with their packing, and averages of
  /// replica groups; of what runs beside other parts, the time that the step waits for it.
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
