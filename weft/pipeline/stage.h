/// What the stages of a step read and write, as plain values. Waits between streams follow from
/// these declarations (lineup.h); a schedule (schedule.h) only says in which order stages are
/// issued, and on which stream.
///
/// A stage is named by the part of the step that it runs (weft/base/step_part.h). Rows, parameters
/// and the memory of the dense model belong to the job; all other resources exist once per batch in
/// flight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "weft/base/step_part.h"

namespace weft::pipeline {

/// What stages share.
enum class Resource : std::uint8_t {
  kRows,            ///< of the job: rows, their optimizer state, and counts of their overflows
  kParameters,      ///< of the job: dense parameters, their optimizer state and overflows
  kDenseInputs,     ///< of the job: dense values and labels of the batch that is computed
  kDenseGradients,  ///< of the job: partial sums of the parameters' gradients, then their sum
  kIdsLink,         ///< of the job: the communicators of counts and ids, and their scratch
  kVectorsLink,     ///< of the job: those of vectors, gradients and row statistics
  kReportLink,      ///< of the job: that of reports, and what they have reported
  kControl,         ///< stop and label weights, agreed on; the batch's ids, cut into slots
  kIds,             ///< ids that this rank serves, on the device
  kRuns,            ///< entries sorted by row and part, and their sums
  kVectors,         ///< vectors and gradients that this rank serves; vectors of its samples
  kGradients,       ///< gradients of its samples
  kScores,          ///< logits, metric sums, the first value that is not finite, of the batch
  kResult,          ///< what all ranks know of the step: whether it is applied
};

/// Names in the order of the enumerators, for messages and tests.
inline constexpr std::array<std::string_view, 14> kResourceNames = {
    "rows",     "parameters",   "dense_inputs", "dense_gradients",
    "ids_link", "vectors_link", "report_link",  "control",
    "ids",      "runs",         "vectors",      "gradients",
    "scores",   "result"};

/// The number of resources; enumerators are 0 to kResources - 1.
inline constexpr std::size_t kResources = kResourceNames.size();

/// The number of resources of the job, which come first.
inline constexpr std::size_t kJobResources = 7;

/// Returns the name of a resource.
constexpr std::string_view to_string(Resource resource) {
  return kResourceNames[static_cast<std::size_t>(resource)];
}

/// Whether a resource exists once for the job, rather than once per batch in flight.
constexpr bool is_of_job(Resource resource) {
  return static_cast<std::size_t>(resource) < kJobResources;
}

/// A set of resources.
class ResourceSet {
 public:
  constexpr ResourceSet() = default;

  constexpr ResourceSet(std::initializer_list<Resource> resources) {
    for (const Resource resource : resources) {
      bits_ |= bit(resource);
    }
  }

  [[nodiscard]] constexpr bool contains(Resource resource) const {
    return (bits_ & bit(resource)) != 0;
  }

  constexpr void insert(Resource resource) { bits_ |= bit(resource); }

  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }

  friend constexpr bool operator==(const ResourceSet&, const ResourceSet&) = default;

 private:
  static constexpr std::uint32_t bit(Resource resource) {
    return std::uint32_t{1} << static_cast<unsigned>(resource);
  }

  std::uint32_t bits_ = 0;
};

/// What a stage reads, and what it writes (or reads and writes).
struct Accesses {
  ResourceSet reads, writes;
};

/// Returns the declaration of a stage. kPrepare has none: the thread that issues runs it.
///
/// Stages that use one communicator share a link, so its collectives run in the order of issue
/// whatever the streams. The all-reduce of dense gradients and the average of replicas have
/// communicators of their own. The average touches nothing of a batch, so it may outlast the step
/// it follows. The exchange of reports reads rows and parameters because it reports what earlier
/// updates of them have counted.
constexpr Accesses accesses_of(StepPart part) {
  using enum Resource;
  switch (part) {
    case StepPart::kPrepare:
      return {};
    case StepPart::kExchangeCounts:
      return {.reads = {}, .writes = {kIdsLink, kControl, kVectors}};
    case StepPart::kExchangeIds:
      return {.reads = {kControl}, .writes = {kIdsLink, kIds, kRuns, kVectors, kGradients}};
    case StepPart::kLoad:
      return {.reads = {kIds}, .writes = {kDenseInputs}};
    case StepPart::kLookup:
      return {.reads = {kControl, kIds, kRows}, .writes = {kVectors}};
    case StepPart::kOutputDist:
      return {.reads = {kControl, kIds}, .writes = {kVectorsLink, kVectors}};
    case StepPart::kForwardBackward:
      return {.reads = {kControl, kDenseInputs, kVectors, kParameters},
              .writes = {kGradients, kDenseGradients, kScores}};
    case StepPart::kReduce:
      return {.reads = {}, .writes = {kDenseGradients}};
    case StepPart::kExchangeReport:
      return {.reads = {kScores, kVectors, kRows, kParameters}, .writes = {kReportLink, kResult}};
    case StepPart::kCoalesce:
      return {.reads = {kControl, kIds, kResult}, .writes = {kRuns}};
    case StepPart::kGradDist:
      return {.reads = {kControl, kIds, kResult},
              .writes = {kVectorsLink, kVectors, kGradients, kRuns}};
    case StepPart::kUpdateRows:
      return {.reads = {kControl, kIds, kVectors, kGradients, kResult},
              .writes = {kVectorsLink, kRuns, kRows}};
    case StepPart::kSyncReplicas:
      return {.reads = {}, .writes = {kRows}};
    case StepPart::kUpdateDense:
      return {.reads = {kResult}, .writes = {kDenseGradients, kParameters}};
  }
  return {};
}

}  // namespace weft::pipeline
