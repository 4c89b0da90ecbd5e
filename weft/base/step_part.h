/// StepPart: the parts of a training step, in the order of ARCHITECTURE.md. The engine measures
/// them, the planner predicts them, traces and benchmarks name them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

enum class StepPart : std::uint8_t {
  kPrepare,          ///< sums of label weights, the control block
  kExchangeCounts,   ///< ids cut into slots, counts exchanged
  kExchangeIds,      ///< ids exchanged and placed on the device
  kFetch,            ///< rows that the batch will read or update made resident
  kLoad,             ///< dense values and labels placed on the device
  kLookup,           ///< rows read and pooled
  kOutputDist,       ///< vectors to the samples
  kForwardBackward,  ///< dense model, loss, gradients of the model's inputs
  kWeightGradients,  ///< gradients of the parameters, summed over this rank's parts
  kReduce,           ///< all-reduce of the dense gradients, on the dense stream
  kExchangeReport,   ///< the step's report: is anything not finite, anywhere; metric sums
  kCoalesce,         ///< entries sorted by row and part
  kGradDist,         ///< gradients to the rows' owners
  kUpdateRows,       ///< sums up the tree of parts, sparse optimizer
  kSyncReplicas,     ///< replicas of the groups averaged, on the sync stream
  kUpdateDense,      ///< dense optimizer
};

/// Names in traces and tables, in the order of the enumerators.
inline constexpr std::array<std::string_view, 16> kStepPartNames = {"prepare",
                                                                    "exchange_counts",
                                                                    "exchange_ids",
                                                                    "fetch",
                                                                    "load",
                                                                    "lookup",
                                                                    "output_dist",
                                                                    "forward_backward",
                                                                    "weight_gradients",
                                                                    "reduce",
                                                                    "exchange_report",
                                                                    "coalesce",
                                                                    "grad_dist",
                                                                    "update_rows",
                                                                    "sync_replicas",
                                                                    "update_dense"};

/// The number of parts of a step; enumerators are 0 to kStepParts - 1.
inline constexpr std::size_t kStepParts = kStepPartNames.size();

/// Returns the name in traces and tables.
constexpr std::string_view to_string(StepPart part) {
  return kStepPartNames[static_cast<std::size_t>(part)];
}

}  // namespace weft
