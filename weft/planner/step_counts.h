/// Private to planner/: what a batch is expected to bring to the ranks of a plan: samples, ids,
/// rows and partial sums. Numbers of things alone; step_memory.cc asks weft/layout how long buffers
/// for them are.
///
/// Of a plan for several groups: of the group with most samples. Ranks with as many samples, in
/// parts that lie alike in the tree, are of one kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/base/micro_batches.h"
#include "weft/layout/lengths.h"
#include "weft/planner/hot_rows.h"
#include "weft/planner/workload.h"
#include "weft/spec/plan.h"

namespace weft::planner {

using layout::Expected;

struct RankKind {
  double samples = 0.0;
  std::vector<double> subtrees = {};  ///< shares of the samples
  std::vector<double> cuts = {1.0};   ///< those of the micro-batches
  double largest_cut = 1.0;           ///< of these
  double parts = 0.0;
  std::int64_t ranks = 0;
};

/// The ranks of a plan by kind.
struct RankKinds {
  double batch = 0.0;  ///< samples of all
  std::vector<RankKind> kinds;
  std::vector<std::size_t> kind_of;  ///< [ranks]
};

/// Whose batches are cut like that. O(ranks · (parts of a rank + micro-batches)).
RankKinds rank_kinds(const spec::Config& config, const spec::Plan& plan, const MicroBatches& cuts);

/// Ids of `samples` samples, for all that read a table.
Expected ids_of(const JointUse& table, double samples);

/// Whether every bag of a feature has as many ids.
bool has_fixed_length(const FeatureUse& use);

/// Expected bytes that say which bags the ids of `samples` samples of a feature are of, at a slot
/// that gets a `share` of them; `is_split`: bags may have ids in other slots.
double bag_bytes(const FeatureUse& use, double share, bool is_split, double samples);

/// Partial sums of a rank: per (row, part), and per (row, whole subtree of its parts).
struct Partials {
  Expected segments, sums;
};

/// Of so many ids of a rank's samples.
Partials partials_of(const RankKind& kind, const FeatureUse& use, double ids);

/// What a rank's samples want of a fetched table: different rows, and partial sums of gradients.
/// Rows come with the micro-batch that needs them first, sums go with the last.
struct AskedRows {
  double rows = 0.0, sums = 0.0;
  double largest_cut = 1.0;  ///< share of the rows that come with one micro-batch, at most
};

/// Of all rows that shards serve; `rows` is how many the table has.
AskedRows asked_rows(const RankKind& kind, const FeatureUse& use, std::int64_t rows);

/// What falls on a cut of rows of a table.
struct HeldRows {
  RowSet rows;  ///< as many from 0 on where rows are in no order, and none is hot
  Expected entries;
  std::vector<Expected> vectors;  ///< [uses][kinds]
  std::vector<double> shares;     ///< [uses] of the ids
  std::optional<double> unique = {};
};

/// What falls on the cuts of one table, of cuts that are alike once.
class CutCounts {
 public:
  /// `cut`: whether other rows lie elsewhere. All outlive it.
  CutCounts(const RankKinds& ranks, const JointUse& table, std::int64_t rows, bool cut);

  /// Valid until the next call.
  const HeldRows& of(const RowSet& rows) { return find(rows); }

  /// Different rows of a cut that a batch asks for.
  double unique_rows(const RowSet& rows);

 private:
  HeldRows& find(const RowSet& rows);

  static constexpr std::size_t kMostHeld = 8;

  const RankKinds& ranks_;
  const JointUse& table_;
  std::int64_t rows_;
  bool cut_;
  bool distinct_;
  std::vector<HeldRows> held_;
};

}  // namespace weft::planner
