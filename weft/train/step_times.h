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

#include "weft/base/step_part.h"

namespace weft::train {

/// The times of one step's parts on this rank.
struct StepTimes {
  using Clock = std::chrono::steady_clock;

  /// A stretch of time. A default one has zero seconds: what it stands for did not run.
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
