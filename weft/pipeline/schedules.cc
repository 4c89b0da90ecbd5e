// The five schedules, and evaluation.
#include <algorithm>
#include <array>

#include "weft/base/error.h"
#include "weft/pipeline/schedule.h"

namespace weft::pipeline {
namespace {

using enum StreamRole;

/// Counts and ids. Nothing of them needs a row.
void issue_ids(Issuer& to, std::int64_t batch, StreamRole on) {
  to.issue({StepPart::kExchangeCounts, batch}, on);
  to.issue({StepPart::kExchangeIds, batch}, on);
}

/// One micro-batch's vectors, from rows to samples.
void issue_vectors(Issuer& to, std::int64_t batch, std::int64_t cut, StreamRole on) {
  to.issue({StepPart::kLookup, batch, cut}, kCompute);
  to.issue({StepPart::kOutputDist, batch, cut}, on);
}

/// The vectors of the micro-batches that a step expects to be on their way.
void issue_first_vectors(Issuer& to, std::int64_t batch) {
  for (std::int64_t cut = 0; cut < std::min(to.lookahead(), to.cuts()); ++cut) {
    issue_vectors(to, batch, cut, kVectors);
  }
}

/// Parameters' gradients of micro-batches before `cut`, from `from` on, as long as its vectors are
/// waited for. Returns the first that is left. When they are computed changes no bit: they are
/// added up the tree of parts.
std::int64_t fill_wait(Issuer& to, std::int64_t batch, std::int64_t from, std::int64_t cut) {
  while (from < cut && to.would_wait_for({StepPart::kOutputDist, batch, cut})) {
    to.issue({StepPart::kWeightGradients, batch, from++}, kCompute);
  }
  return from;
}

/// The dense model with one micro-batch after the other, gradients on their way behind each, and as
/// many vectors ahead as there may be.
void issue_window(Issuer& to, std::int64_t batch) {
  to.issue({StepPart::kLoad, batch}, kCompute);
  std::int64_t summed = 0;
  for (std::int64_t cut = 0; cut < to.cuts(); ++cut) {
    summed = fill_wait(to, batch, summed, cut);
    to.issue({StepPart::kForwardBackward, batch, cut}, kCompute);
    to.issue({StepPart::kGradDist, batch, cut}, kVectors);
    if (cut + to.lookahead() < to.cuts()) {
      issue_vectors(to, batch, cut + to.lookahead(), kVectors);
    }
  }
}

/// What is left of the parameters' gradients, their sum over the ranks, and what all ranks know of
/// the step. Nothing before has changed a weight; what comes after is left out if a value was not
/// finite.
void issue_result(Issuer& to, std::int64_t batch) {
  to.issue({StepPart::kWeightGradients, batch, to.cuts() - 1}, kCompute);
  to.issue({StepPart::kReduce, batch}, kDense);
  to.issue({StepPart::kExchangeReport, batch}, kCompute);
}

void issue_row_update(Issuer& to, std::int64_t batch) {
  to.issue({StepPart::kUpdateRows, batch}, kCompute);
  if (to.averages_behind(batch)) {
    to.issue({StepPart::kSyncReplicas, batch}, kSync);
  }
}

/// Both updates, with the next batch's first vectors between them, which need the new rows and not
/// the new parameters. Where replicas are averaged, vectors wait for that, and the parameters
/// first.
void issue_updates(Issuer& to, std::int64_t now, std::int64_t next) {
  issue_row_update(to, now);
  const bool update_first = to.averages_behind(now);
  if (next != kNoBatch && !update_first) {
    issue_first_vectors(to, next);
  }
  to.issue({StepPart::kUpdateDense, now}, kCompute);
  if (next != kNoBatch && update_first) {
    issue_first_vectors(to, next);
  }
}

void begin_nothing(Issuer& /*to*/, std::int64_t /*batch*/) {
}

void sync_step(Issuer& to, std::int64_t now, std::int64_t /*next*/) {
  issue_ids(to, now, kCompute);
  to.issue({StepPart::kFetch, now}, kCompute);
  to.issue({StepPart::kLoad, now}, kCompute);
  issue_vectors(to, now, 0, kCompute);
  to.issue({StepPart::kForwardBackward, now}, kCompute);
  issue_result(to, now);
  to.issue({StepPart::kCoalesce, now}, kCompute);
  to.issue({StepPart::kGradDist, now}, kCompute);
  issue_row_update(to, now);
  to.issue({StepPart::kUpdateDense, now}, kCompute);
}

/// Ids, and their order.
void begin_ids(Issuer& to, std::int64_t batch) {
  issue_ids(to, batch, kIds);
  to.issue({StepPart::kCoalesce, batch}, kIds);
}

/// Ids and rows.
void begin_rows(Issuer& to, std::int64_t batch) {
  begin_ids(to, batch);
  to.issue({StepPart::kFetch, batch}, kIds);
}

void prefetch_step(Issuer& to, std::int64_t now, std::int64_t next) {
  const bool rows_first = to.reads_disk();
  if (next != kNoBatch && rows_first) {
    begin_rows(to, next);
  }
  issue_vectors(to, now, 0, kCompute);
  if (next != kNoBatch && !rows_first) {
    begin_rows(to, next);
  }
  to.issue({StepPart::kLoad, now}, kCompute);
  to.issue({StepPart::kForwardBackward, now}, kCompute);
  issue_result(to, now);
  to.issue({StepPart::kGradDist, now}, kCompute);
  issue_row_update(to, now);
  to.issue({StepPart::kUpdateDense, now}, kCompute);
}

/// Ids, rows, and the first vectors.
void begin_vectors(Issuer& to, std::int64_t batch) {
  begin_rows(to, batch);
  issue_first_vectors(to, batch);
}

void dbp_step(Issuer& to, std::int64_t now, std::int64_t next) {
  if (next != kNoBatch) {
    begin_rows(to, next);
  }
  to.issue({StepPart::kLoad, now}, kCompute);
  to.issue({StepPart::kForwardBackward, now}, kCompute);
  issue_result(to, now);
  to.issue({StepPart::kGradDist, now}, kVectors);
  issue_updates(to, now, next);
}

void fwp_step(Issuer& to, std::int64_t now, std::int64_t /*next*/) {
  issue_ids(to, now, kCompute);
  to.issue({StepPart::kFetch, now}, kCompute);
  to.issue({StepPart::kCoalesce, now}, kIds);
  issue_first_vectors(to, now);
  issue_window(to, now);
  issue_result(to, now);
  issue_updates(to, now, kNoBatch);
}

void nested_step(Issuer& to, std::int64_t now, std::int64_t next) {
  if (next != kNoBatch) {
    begin_rows(to, next);
  }
  issue_window(to, now);
  issue_result(to, now);
  issue_updates(to, now, next);
}

constexpr std::array<StreamRole, 2> kIdsAndVectors = {kIds, kVectors};
constexpr std::span<const StreamRole> kIdsAlone = std::span(kIdsAndVectors).first(1);

constexpr std::array<Schedule, 5> kSchedules = {
    Schedule{.name = "sync", .begin = begin_nothing, .step = sync_step},
    Schedule{.name = "prefetch",
             .begin = begin_rows,
             .step = prefetch_step,
             .streams = kIdsAlone,
             .looks_ahead = true},
    Schedule{.name = "dbp",
             .begin = begin_vectors,
             .step = dbp_step,
             .streams = kIdsAndVectors,
             .looks_ahead = true},
    Schedule{.name = "fwp",
             .begin = begin_nothing,
             .step = fwp_step,
             .streams = kIdsAndVectors,
             .cuts_batches = true},
    Schedule{.name = "nested",
             .begin = begin_vectors,
             .step = nested_step,
             .streams = kIdsAndVectors,
             .looks_ahead = true,
             .cuts_batches = true}};

}  // namespace

std::span<const Schedule> schedules() {
  return kSchedules;
}

const Schedule& schedule_called(std::string_view name) {
  const auto* const found = std::find_if(kSchedules.begin(), kSchedules.end(),
                                         [&](const Schedule& one) { return one.name == name; });
  WEFT_CHECK(found != kSchedules.end(), "no schedule is called '{}'", name);
  return *found;
}

void evaluation(Issuer& to, std::int64_t batch) {
  issue_ids(to, batch, kCompute);
  to.issue({StepPart::kFetch, batch}, kCompute);
  to.issue({StepPart::kLoad, batch}, kCompute);
  for (std::int64_t cut = 0; cut < to.cuts(); ++cut) {
    issue_vectors(to, batch, cut, kCompute);
    to.issue({StepPart::kForwardBackward, batch, cut}, kCompute);
  }
  to.issue({StepPart::kExchangeReport, batch}, kCompute);
}

}  // namespace weft::pipeline
