#include "weft/planner/step_counts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "weft/base/parts.h"
#include "weft/layout/listed_bags.h"

namespace weft::planner {

bool has_fixed_length(const FeatureUse& use) {
  return use.present == 1.0 && use.length == std::floor(use.length);
}

/// Lengths are as good as always in one byte, or none where a slot gets all bags, each of one id,
/// or no id. Those of a slot with few ids of split bags are not sent.
double bag_bytes(const FeatureUse& use, double share, bool is_split, double samples) {
  const double ids = samples * use.length * share;
  const auto bags = static_cast<std::int64_t>(std::ceil(samples));
  if (is_split && layout::lists_bags(ids, bags)) {
    return ids * static_cast<double>(layout::listed_bag_bytes(bags));
  }
  const bool all_of_one = share >= 1.0 && use.length == 1.0 && use.present == 1.0;
  return all_of_one || share <= 0.0 ? 0.0 : samples;
}

RankKinds rank_kinds(const spec::Config& config, const spec::Plan& plan, const MicroBatches& cuts) {
  std::int64_t group = 0;
  std::int64_t most = 0;
  for (std::int64_t g = 0; g < plan.groups; ++g) {
    const auto samples = rank_samples(config.batch_size, plan.parts, plan.groups, g).size();
    group = samples > most ? g : group;
    most = std::max(most, samples);
  }
  RankKinds all{.batch = static_cast<double>(most), .kinds = {}, .kind_of = {}};
  std::map<std::vector<double>, std::size_t> known;
  for (std::int64_t rank = 0; rank < plan.ranks; ++rank) {
    const std::int64_t position = group * plan.ranks + rank;
    const Range own = rank_parts(plan.parts, plan.world(), position);
    RankKind kind{.samples = static_cast<double>(
                      rank_samples(config.batch_size, plan.parts, plan.world(), position).size()),
                  .parts = static_cast<double>(own.size())};
    for (const Range& subtree : maximal_subtrees(plan.parts, own)) {
      kind.subtrees.push_back(static_cast<double>(subtree.size()) / kind.parts);
    }
    kind.cuts.clear();
    for (std::int64_t cut = 0; cut < cuts.count(); ++cut) {
      kind.cuts.push_back(static_cast<double>(cuts.parts(own, cut).size()) / kind.parts);
    }
    kind.largest_cut = std::ranges::max(kind.cuts);
    std::vector<double> key = kind.subtrees;
    key.push_back(kind.samples);
    const auto found = known.try_emplace(key, all.kinds.size());
    if (found.second) {
      all.kinds.push_back(kind);
    }
    all.kind_of.push_back(found.first->second);
    ++all.kinds[all.kind_of.back()].ranks;
  }
  return all;
}

Expected ids_of(const JointUse& table, double samples) {
  Expected ids;
  for (const FeatureUse* use : table.features) {
    ids += {samples * use->length, !has_fixed_length(*use)};
  }
  return ids;
}

Partials partials_of(const RankKind& kind, const FeatureUse& use, double ids) {
  Partials made{.segments = {kind.parts * unique_rows(use, ids / kind.parts), true},
                .sums = {0.0, true}};
  for (const double share : kind.subtrees) {
    made.sums.value += unique_rows(use, ids * share);
  }
  return made;
}

AskedRows asked_rows(const RankKind& kind, const FeatureUse& use, std::int64_t rows) {
  const double own = kind.samples * use.length * share_of_rows(use, Range{0, rows}, rows);
  const FeatureUse held = use_of_rows(use, Range{0, rows}, rows);
  AskedRows asked{.rows = unique_rows(held, own), .sums = partials_of(kind, held, own).sums.value};
  if (asked.rows > 0.0 && kind.cuts.size() > 1) {
    asked.largest_cut = 0.0;
    double share = 0.0;
    double before = 0.0;
    for (const double cut : kind.cuts) {
      share += cut;
      const double so_far = unique_rows(held, own * share) / asked.rows;
      asked.largest_cut = std::max(asked.largest_cut, so_far - before);
      before = so_far;
    }
  }
  return asked;
}

CutCounts::CutCounts(const RankKinds& ranks, const JointUse& table, std::int64_t rows, bool cut)
    : ranks_(ranks),
      table_(table),
      rows_(rows),
      cut_(cut),
      distinct_(std::any_of(table.features.begin(),
                            table.features.end(),
                            [](const FeatureUse* use) { return use->by_frequency || use->hot; })) {
}

HeldRows& CutCounts::find(const RowSet& rows) {
  const RowSet key = distinct_ ? rows : RowSet(0, rows.size());
  const auto known = std::find_if(held_.begin(), held_.end(),
                                  [&](const HeldRows& one) { return one.rows == key; });
  if (known != held_.end()) {
    return *known;
  }
  if (held_.size() == kMostHeld) {
    held_.clear();
  }
  HeldRows held{.rows = key, .entries = {}, .vectors = {}, .shares = {}};
  for (const FeatureUse* use : table_.features) {
    const double share = share_of_rows(*use, rows, rows_);
    const bool varies = cut_ || !has_fixed_length(*use);
    held.shares.push_back(share);
    held.entries += {ranks_.batch * use->length * share, varies};
    for (const RankKind& source : ranks_.kinds) {
      held.vectors.push_back({use->pooled ? bags_of(*use, share, source.samples)
                                          : source.samples * use->length * share,
                              varies});
    }
  }
  held_.push_back(std::move(held));
  return held_.back();
}

double CutCounts::unique_rows(const RowSet& rows) {
  HeldRows& held = find(rows);
  if (!held.unique) {
    held.unique = planner::unique_rows(use_of_rows(table_.joined, rows, rows_), held.entries.value);
  }
  return *held.unique;
}

}  // namespace weft::planner
