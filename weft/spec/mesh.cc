#include "weft/spec/mesh.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/spec/walk.h"

namespace weft::spec {
namespace {

// Spellings, in the order of the enumerators.
constexpr std::array<std::string_view, 3> kLayouts = {"auto", "local_all_to_all",
                                                      "local_all_reduce"};
constexpr std::array<std::string_view, 4> kSyncForms = {"auto", "dense", "touched", "gradients"};
constexpr std::array<std::string_view, 4> kPlanSyncs = {"configured", "dense", "touched",
                                                        "gradients"};

}  // namespace

std::string_view to_string(MeshLayout layout) {
  return kLayouts[static_cast<std::size_t>(layout)];
}

std::string_view to_string(SyncForm form) {
  return kSyncForms[static_cast<std::size_t>(form)];
}

Choice layout_choice(MeshLayout& layout) {
  return choice(layout, kLayouts);
}

Choice resolved_layout_choice(MeshLayout& layout) {
  return resolved_choice(layout, kLayouts);
}

Choice plan_sync_choice(SyncForm& form) {
  return choice(form, kPlanSyncs);
}

void walk(Visitor& v, Mesh& c) {
  v.value({.name = "groups",
           .meaning = "Replica groups M: tables are sharded over the ranks of a group, and each "
                      "group has a replica of them. Divides the ranks. 1 = one group of all ranks. "
                      "0 = what a plan for a cluster (--cluster) predicts to be fastest, else 1.",
           .unit = "groups",
           .bounds = at_least(0, kMaxRanks)},
          &c.groups);
  v.value({.name = "layout",
           .meaning = "Which ranks are a group. local_all_to_all: ranks that follow each other; "
                      "local_all_reduce: every M-th, so that replicas of a shard follow each "
                      "other. auto: what a plan for a cluster predicts to be faster, else "
                      "local_all_to_all.",
           .decides_weights = false},
          layout_choice(c.layout));
  v.value(
      {.name = "sync",
       .meaning = "How replicas become equal again. dense: all rows and their optimizer state "
                  "are averaged; touched: those that were touched since the last sync, with the "
                  "same result; gradients: row gradients are summed over the groups before "
                  "the optimizer; auto: what a plan for a cluster predicts to be fastest, else "
                  "dense."},
      choice(c.sync, kSyncForms));
  v.value({.name = "sync_every",
           .meaning = "From sync to sync. Evaluations and checkpoints are made at syncs only. 0 = "
                      "the least power of two with which a plan for a cluster predicts that syncs "
                      "take a tenth of the other work or less, else 1.",
           .unit = "steps",
           .bounds = at_least(0, 0x1.0p30)},
          &c.sync_every);
  v.value({.name = "moment_scale",
           .meaning = "Adagrad and row_wise_adagrad where replicas are averaged: the statistic is "
                      "divided by it where it is used, since the groups' squares add up to more "
                      "than the squares of their sum. 0 = groups, 1 = none. More than 1 is refused "
                      "where nothing is averaged: one group, or sync gradients.",
           .bounds = at_least(0, 65536)},
          &c.moment_scale);
  v.gone(
      {.name = "own_squares", .value = "whole", .now = "a step's own squares always count whole"});
  v.gone({.name = "sync_state",
          .value = "true",
          .now = "replicas' optimizer state is always averaged"});
}

std::string nearest_divisors(std::int64_t number, std::int64_t whole) {
  std::int64_t below = std::min(number, whole);
  while (whole % below != 0) {
    --below;
  }
  std::int64_t above = std::min(number, whole);
  while (whole % above != 0) {
    ++above;
  }
  return below == above ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

void check_groups(std::int64_t groups, std::int64_t ranks) {
  if (ranks % groups != 0) {
    fail(ErrorCode::kConfig, "mesh.groups: {} groups do not divide {} ranks; set {}", groups, ranks,
         nearest_divisors(groups, ranks));
  }
}

}  // namespace weft::spec
