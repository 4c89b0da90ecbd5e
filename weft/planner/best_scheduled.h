/// Private to planner/: which proposal of a search the job gets, where its schedule is another one
/// than sync, under which proposals are compared.
///
///   compared   those that fit, up to kMostCompared, whose step of sync takes at most kMostOfBest
///              times the shortest one. Each is walked under all schedules (pipeline_choice.h),
///              which takes milliseconds: as if all of these fitted, so its step is no shorter
///   predicted  with memory, which takes seconds of thousands of ranks, in the order of these
///              steps, until none that is left can be shorter; kMostPredicted at most, and the one
///              with the shortest step of sync. Where schedules of so many do not fit, a better one
///              may be missed
///   taken      the shortest step under the schedule that each plan would get: the one of the
///              configuration, or where that leaves it open the best one that fits
///
/// Nothing is compared where the configuration asks for sync, where nothing fits, and where the
/// caches of the best proposal are divided by curves or have an open size: their reads depend on
/// the schedule. Plans that a touched sync cannot number are not taken for one. Deterministic.
#pragma once

#include <cstddef>

#include "weft/planner/search.h"
#include "weft/planner/workload.h"
#include "weft/spec/config.h"

namespace weft::planner {

/// Times the shortest step of sync, that of a proposal which is compared.
inline constexpr double kMostOfBest = 1.25;

/// Proposals that are compared, and of these the ones whose memory is predicted.
inline constexpr std::size_t kMostCompared = 16;
inline constexpr std::size_t kMostPredicted = 4;

/// Puts the proposal in front that the job gets, behind which the others keep their order. Sets
/// SearchResult::pipelines to its schedules where proposals were compared, and schedule_decided.
/// REQUIRES: proposals in the order of their steps of sync, those that fit before the others.
void put_best_scheduled_first(const spec::Config& config,
                              const Workload& workload,
                              SearchResult& found);

}  // namespace weft::planner
