#include "weft/spec/pipeline.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/base/text.h"
#include "weft/spec/walk.h"

namespace weft::spec {
namespace {

constexpr std::array<std::string_view, 6> kPipelineSchedules = {"auto", "sync", "prefetch",
                                                                "dbp",  "fwp",  "nested"};

/// The divisor of `whole` next to `number`, rather the smaller, that is at least 2; 0 where there
/// is none.
std::int64_t divisor_near(std::int64_t number, std::int64_t whole) {
  for (std::int64_t below = std::min(number, whole); below >= 2; --below) {
    if (whole % below == 0) {
      return below;
    }
  }
  for (std::int64_t above = number + 1; above <= whole; ++above) {
    if (whole % above == 0) {
      return above;
    }
  }
  return 0;
}

/// The multiple of `whole` next to `number`, at least one of it.
std::int64_t multiple_near(std::int64_t number, std::int64_t whole) {
  return std::max<std::int64_t>(1, (number + whole / 2) / whole) * whole;
}

/// What to set instead: a number of parts may be too large for any job.
std::string remedy(const Pipeline& pipeline, std::int64_t parts, std::int64_t ranks) {
  std::int64_t common = 0;  // divides the first part of every rank
  for (std::int64_t r = 1; r < ranks; ++r) {
    common = std::gcd(common, rank_parts(parts, ranks, r).begin);
  }
  const std::int64_t run = divisor_near(pipeline.cluster_parts, common);
  std::string text = run == 0 ? std::string(
                                    "set pipeline.cluster_parts=0, since no run of 2 or more "
                                    "parts fits these ranks")
                              : fmt::format("set pipeline.cluster_parts={}", run);
  const std::int64_t whole = pipeline.cluster_parts * ranks;
  if (whole <= static_cast<std::int64_t>(kMaxRanks)) {
    text += fmt::format(", or numerics.parts={} (that changes the order of sums)",
                        multiple_near(parts, whole));
  }
  return text;
}

}  // namespace

std::string_view to_string(PipelineSchedule schedule) {
  return kPipelineSchedules[static_cast<std::size_t>(schedule)];
}

std::string describe(const Pipeline& pipeline) {
  if (!cuts_batches(pipeline.schedule)) {
    return std::string(to_string(pipeline.schedule));
  }
  const std::vector<std::int64_t>& sizes = pipeline.micro_batches.sizes;
  const bool are_equal = std::ranges::count(sizes, sizes.front()) == std::ssize(sizes);
  return fmt::format("{}, {}, {} ahead", to_string(pipeline.schedule),
                     are_equal ? counted(std::ssize(sizes), "micro-batch", "micro-batches")
                               : fmt::format("micro-batches [{}]", fmt::join(sizes, ", ")),
                     pipeline.lookahead);
}

void walk_overlap(Visitor& v, Pipeline& c) {
  v.value(
      {.name = "schedule",
       .meaning = "What overlaps: sync = one batch after the other; prefetch = the next batch's "
                  "ids travel beside this one's compute; dbp = its rows and vectors too; fwp = "
                  "micro-batches of a batch overlap; nested = dbp and fwp; auto = what a plan "
                  "for a cluster (--cluster) predicts to be fastest, else sync. Results have "
                  "the same bits.",
       .decides_weights = false},
      choice(c.schedule, kPipelineSchedules));
  v.value({.name = "micro_batches",
           .meaning = "Of schedules fwp and nested: into how many equal micro-batches a batch is "
                      "cut, or their relative sizes, such as [1, 2, 4, 4, 4, 1]. Cuts lie between "
                      "parts (numerics.parts).",
           .bounds = at_least(1, kMostCuts),
           .decides_weights = false},
          &c.micro_batches);
  v.value({.name = "lookahead",
           .meaning = "Of schedules fwp and nested: how many micro-batches' vectors are on their "
                      "way before they are computed with.",
           .unit = "micro-batches",
           .bounds = at_least(1, kMostCuts),
           .decides_weights = false},
          &c.lookahead);
}

void walk(Visitor& v, Pipeline& c) {
  walk_overlap(v, c);
  v.value({.name = "cluster_parts",
           .meaning = "Training samples are permuted inside aligned runs of so many parts, so that "
                      "samples which read the same rows are in the same part: for tables with "
                      "pooled_at sample, which send a partial gradient for each row and part "
                      "(docs/pipeline_cluster.md). A rank has whole runs only: its first part is a "
                      "multiple of it. 0 = off.",
           .unit = "parts",
           .bounds = at_least(0, kMaxRanks),
           .unhashed = "0"},
          &c.cluster_parts);
}

void check_cluster_parts(const Pipeline& pipeline, std::int64_t parts, std::int64_t ranks) {
  const std::int64_t c = pipeline.cluster_parts;
  if (c == 0) {
    return;
  }
  for (std::int64_t r = 1; r < ranks; ++r) {
    const std::int64_t first = rank_parts(parts, ranks, r).begin;
    if (first % c != 0) {
      const std::int64_t begin = first / c * c;
      fail(ErrorCode::kConfig,
           "pipeline.cluster_parts: rank {} of {} begins at part {} of {}, inside the run of parts "
           "{} to {} whose samples are clustered together; {}",
           r, ranks, first, parts, begin, std::min(begin + c, parts) - 1,
           remedy(pipeline, parts, ranks));
    }
  }
}

}  // namespace weft::spec
