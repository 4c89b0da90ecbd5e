/// What the stages of a step read and write, as plain values. Waits between streams follow from
/// these declarations (lineup.h); a schedule (schedule.h) only says in which order stages are
/// issued, and on which stream.
///
/// A stage is named by the part of the step that it runs (weft/base/step_part.h). Rows, parameters
/// and the memory of the dense model belong to the job; other resources exist once per batch in
/// flight, and vectors and gradients once per micro-batch of it. A stage of a whole batch uses
/// those of all its micro-batches.
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
  kDenseInputs,     ///< of the job: what the dense model has loaded and computed of its batch
  kDenseGradients,  ///< of the job: partial sums of the parameters' gradients, then their sum
  kIdsLink,         ///< of the job: the communicators of counts and ids, and their scratch
  kVectorsLink,     ///< of the job: those of vectors and gradients
  kRowsLink,        ///< of the job: those of row statistics and of copies of rows
  kReportLink,      ///< of the job: that of reports, and what they have reported
  kSlots,           ///< of the job: slots that fetches give to rows, batch after batch
  kControl,         ///< stop and label weights, agreed on; the batch's ids, cut into slots
  kIds,             ///< ids that this rank serves, on the device
  kResident,        ///< that rows which the batch reads or updates can be reached
  kRuns,            ///< entries sorted by row and part, and their sums
  kScores,          ///< logits, metric sums, the first value that is not finite, of the batch
  kResult,          ///< what all ranks know of the step: whether it is applied
  kVectors,         ///< of a micro-batch: vectors and gradients that this rank serves; vectors of
                    ///< its samples
  kGradients,       ///< of a micro-batch: gradients of its samples
};

/// Names in the order of the enumerators, for messages and tests.
inline constexpr std::array<std::string_view, 17> kResourceNames = {
    "rows",      "parameters",  "dense_inputs", "dense_gradients", "ids_link", "vectors_link",
    "rows_link", "report_link", "slots",        "control",         "ids",      "resident",
    "runs",      "scores",      "result",       "vectors",         "gradients"};

/// The number of resources; enumerators are 0 to kResources - 1.
inline constexpr std::size_t kResources = kResourceNames.size();

/// The number of resources of the job, which come first, and of micro-batches, which come last.
inline constexpr std::size_t kJobResources = 9;
inline constexpr std::size_t kCutResources = 2;

/// Returns the name of a resource.
constexpr std::string_view to_string(Resource resource) {
  return kResourceNames[static_cast<std::size_t>(resource)];
}

/// Whether a resource exists once for the job, rather than once per batch in flight.
constexpr bool is_of_job(Resource resource) {
  return static_cast<std::size_t>(resource) < kJobResources;
}

/// Whether a resource exists once per micro-batch.
constexpr bool is_of_cut(Resource resource) {
  return static_cast<std::size_t>(resource) >= kResources - kCutResources;
}

/// Whether a stage is of one micro-batch; the others are of a whole batch.
constexpr bool is_of_cut(StepPart part) {
  return part == StepPart::kLookup || part == StepPart::kOutputDist ||
         part == StepPart::kForwardBackward || part == StepPart::kGradDist;
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
/// updates of them have counted. Fetches run in the order of batches, because slots that a batch
/// lacks are kept from later ones (weft/storage/residency.h); rows that an update or an average of
/// replica groups fetches for itself stand before all batches, so these stages need no such order
/// and never wait for a batch ahead. Entries are sorted and gradients
/// travel whether or not the step will be applied: the updates alone depend on the result.
constexpr Accesses accesses_of(StepPart part) {
  using enum Resource;
  switch (part) {
    case StepPart::kPrepare:
      return {};
    case StepPart::kExchangeCounts:
      return {.reads = {}, .writes = {kIdsLink, kControl, kVectors}};
    case StepPart::kExchangeIds:
      return {.reads = {kControl}, .writes = {kIdsLink, kIds, kRuns, kVectors, kGradients}};
    case StepPart::kFetch:
      return {.reads = {kControl, kIds}, .writes = {kSlots, kResident}};
    case StepPart::kLoad:
      return {.reads = {kIds}, .writes = {kDenseInputs}};
    case StepPart::kLookup:
      return {.reads = {kControl, kIds, kResident, kRows}, .writes = {kVectors}};
    case StepPart::kOutputDist:
      return {.reads = {kControl, kIds}, .writes = {kVectorsLink, kVectors}};
    case StepPart::kForwardBackward:
      return {.reads = {kControl, kVectors, kParameters},
              .writes = {kDenseInputs, kGradients, kScores}};
    case StepPart::kWeightGradients:
      return {.reads = {kDenseInputs}, .writes = {kDenseGradients, kScores}};
    case StepPart::kReduce:
      return {.reads = {}, .writes = {kDenseGradients}};
    case StepPart::kExchangeReport:
      return {.reads = {kScores, kRows, kParameters}, .writes = {kReportLink, kResult}};
    case StepPart::kCoalesce:
      return {.reads = {kControl, kIds}, .writes = {kRuns}};
    case StepPart::kGradDist:
      return {.reads = {kControl, kIds}, .writes = {kVectorsLink, kVectors, kGradients, kRuns}};
    case StepPart::kUpdateRows:
      return {.reads = {kControl, kIds, kResident, kVectors, kGradients, kResult},
              .writes = {kRowsLink, kRuns, kRows}};
    case StepPart::kSyncReplicas:
      return {.reads = {}, .writes = {kRows}};
    case StepPart::kUpdateDense:
      return {.reads = {kResult}, .writes = {kDenseGradients, kParameters}};
  }
  return {};
}

}  // namespace weft::pipeline
