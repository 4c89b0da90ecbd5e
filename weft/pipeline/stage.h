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
  kControl,         ///< stop and label weights, agreed on; the batch's ids, cut into slots
  kIds,             ///< ids that this rank serves, on the device
  kRuns,            ///< entries sorted by row and part, and their sums
  kVectors,         ///< vectors and gradients that this rank serves; vectors of its samples
  kGradients,       ///< gradients of its samples
  kScores,          ///< logits, metric sums, the first value that is not finite
  kResult,          ///< what all ranks know of the step: whether it is applied
};

/// Names in the order of the enumerators, for messages and tests.
inline constexpr std::array<std::string_view, 11> kResourceNames = {
    "rows", "parameters", "dense_inputs", "dense_gradients", "control", "ids",
    "runs", "vectors",    "gradients",    "scores",          "result"};

/// The number of resources; enumerators are 0 to kResources - 1.
inline constexpr std::size_t kResources = kResourceNames.size();

/// The number of resources of the job, which come first.
inline constexpr std::size_t kJobResources = 4;

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
/// The average of replicas touches nothing of a batch, so it may outlast the step it follows. The
/// exchange of results reads rows and parameters because it reports what earlier updates of them
/// have counted.
constexpr Accesses accesses_of(StepPart part) {
  using enum Resource;
  switch (part) {
    case StepPart::kPrepare:
      return {};
    case StepPart::kExchangeCounts:
      return {.reads = {}, .writes = {kControl}};
    case StepPart::kExchangeIds:
      return {.reads = {kControl}, .writes = {kIds, kVectors, kGradients}};
    case StepPart::kLoad:
      return {.reads = {kIds}, .writes = {kDenseInputs}};
    case StepPart::kLookup:
      return {.reads = {kIds, kRows}, .writes = {kVectors}};
    case StepPart::kOutputDist:
      return {.reads = {kIds}, .writes = {kVectors}};
    case StepPart::kForwardBackward:
      return {.reads = {kControl, kDenseInputs, kVectors, kParameters},
              .writes = {kGradients, kDenseGradients, kScores}};
    case StepPart::kReduce:
      return {.reads = {}, .writes = {kDenseGradients}};
    case StepPart::kExchangeFlags:
      return {.reads = {kScores, kVectors, kRows, kParameters}, .writes = {kResult}};
    case StepPart::kCoalesce:
      return {.reads = {kIds, kResult}, .writes = {kRuns}};
    case StepPart::kGradDist:
      return {.reads = {kIds, kResult}, .writes = {kVectors, kGradients, kRuns}};
    case StepPart::kUpdateRows:
      return {.reads = {kIds, kVectors, kGradients, kResult}, .writes = {kRuns, kRows}};
    case StepPart::kSyncReplicas:
      return {.reads = {}, .writes = {kRows}};
    case StepPart::kUpdateDense:
      return {.reads = {kResult}, .writes = {kDenseGradients, kParameters}};
  }
  return {};
}

}  // namespace weft::pipeline
