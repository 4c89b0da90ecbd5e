/// Models and plans on which a prediction of a step is tried: shards in good and in bad places, so
/// that steps of the same model and batch differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::bench {

/// Tables and what reads them, one feature each; lists are gone through in turn.
struct PlanModel {
  std::string name;
  bool held_out = false;  ///< nobody looked at its figures while formulas were made
  std::int64_t tables = 0;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> rows;     ///< of table i: rows[i mod size]
  std::vector<std::int64_t> lengths;  ///< ids of a bag, the same way
  std::int64_t sequences = 0;         ///< so many of the features, the last, are not pooled
  std::string optimizer;
  std::string dtype = "fp32";  ///< of rows
  std::string dense;           ///< `model` of the configuration, as YAML in one line
};

/// A model with a batch size; alternatives of one group are compared with each other.
struct PlanGroup {
  PlanModel model;
  std::int64_t batch = 0;
  bool schedules = false;  ///< whether its tables, whole, are also run under every schedule
};

struct PlanCase {
  std::string plan;     ///< how it is called
  spec::Config config;  ///< tables with the schemes of the plan
  spec::Plan made;

  /// Returns whether the case compares schedules: then its schedule is configured.
  [[nodiscard]] bool is_of_schedule() const {
    return config.pipeline.schedule != spec::PipelineSchedule::kAuto;
  }
};

/// What runs on ranks × threads. `quick`: two tiny ones.
std::vector<PlanGroup> plan_groups(std::int64_t ranks, bool quick);

/// The alternatives: one where there is one rank.
std::vector<PlanCase> plan_cases(const PlanGroup& group, std::int64_t ranks);

}  // namespace weft::bench
