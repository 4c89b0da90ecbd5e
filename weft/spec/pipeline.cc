#include "weft/spec/pipeline.h"

#include <array>

#include "weft/spec/walk.h"

namespace weft::spec {
namespace {

constexpr std::array<std::string_view, 6> kPipelineSchedules = {"auto", "sync", "prefetch",
                                                                "dbp",  "fwp",  "nested"};

}  // namespace

std::string_view to_string(PipelineSchedule schedule) {
  return kPipelineSchedules[static_cast<std::size_t>(schedule)];
}

void walk(Visitor& v, Pipeline& c) {
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

}  // namespace weft::spec
