#include "weft/planner/hot_rows.h"

#include <algorithm>
#include <cmath>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::planner {
namespace {

bool is_by_frequency(const spec::Config& config, std::int64_t table) {
  bool any = false;
  for (const spec::SparseFeature& feature : config.sparse_features) {
    if (spec::table_index(config, feature) != table) {
      continue;
    }
    if (feature.mapping != spec::IdMapping::kVocabulary) {
      return false;
    }
    any = true;
  }
  return any;
}

/// Ascending rows as ranges that do not touch.
std::vector<Range> to_ranges(const std::vector<std::int64_t>& rows) {
  std::vector<Range> ranges;
  for (const std::int64_t row : rows) {
    if (!ranges.empty() && ranges.back().end == row) {
      ++ranges.back().end;
    } else {
      ranges.push_back({row, row + 1});
    }
  }
  return ranges;
}

/// What is known of hot rows that hashing scattered.
struct Measured {
  double share = 0.0;
  std::int64_t counted = 0;             ///< of the hot rows those that are listed
  std::vector<AccessSegment> segments;  ///< of the hot rows, absolute shares
};

/// Listed rows one by one at first, then ever more together: their shares fall slowly.
Measured measure(const HotRows& counted, const HotRanges& hot, double all_rows) {
  Measured measured;
  double listed = 0.0;
  double width = 1.0;
  AccessSegment open;
  for (const HotRow& row : counted.rows) {
    listed += row.share;
    if (!hot.contains(row.row)) {
      continue;
    }
    ++measured.counted;
    measured.share += row.share;
    open.rows += 1.0;
    open.share += row.share;
    if (open.rows >= width) {
      measured.segments.push_back(open);
      open = {};
      width = std::max(1.0, std::floor(0.25 * static_cast<double>(measured.counted)));
    }
  }
  if (open.rows > 0.0) {
    measured.segments.push_back(open);
  }
  // Rows that nobody listed share what the listed ones left.
  const double unlisted = static_cast<double>(hot.size() - measured.counted);
  const double others = all_rows - static_cast<double>(counted.rows.size());
  const double rest = others > 0.0 ? std::max(0.0, 1.0 - listed) * unlisted / others : 0.0;
  if (unlisted > 0.0) {
    measured.segments.push_back({.rows = unlisted, .share = rest});
    measured.share += rest;
  }
  measured.share = std::min(measured.share, 1.0);
  return measured;
}

void scale(std::vector<AccessSegment>& segments, double rows, double share) {
  for (AccessSegment& segment : segments) {
    segment.rows *= rows;
    segment.share *= share;
  }
}

double sum_of_shares(const std::vector<AccessSegment>& segments) {
  double sum = 0.0;
  for (const AccessSegment& segment : segments) {
    sum += segment.share;
  }
  return sum;
}

/// All but the first `rows`, as shares of themselves.
std::vector<AccessSegment> without_first(const std::vector<AccessSegment>& segments, double rows) {
  std::vector<AccessSegment> rest;
  for (const AccessSegment& segment : segments) {
    const double gone = std::min(rows, segment.rows);
    rows -= gone;
    if (segment.rows > gone) {
      rest.push_back({.rows = segment.rows - gone,
                      .share = segment.share * (segment.rows - gone) / segment.rows});
    }
  }
  const double sum = sum_of_shares(rest);
  if (sum > 0.0) {
    scale(rest, 1.0, 1.0 / sum);
  }
  return rest;
}

struct Split {
  double share = 0.0;
  FeatureUse hot;
  FeatureUse tail;
};

/// Rows by frequency: popularity is cut where the ranges of hot rows begin and end. In the tail the
/// hot rows stay, without ids, so that rows keep their numbers.
void split_by_frequency(const FeatureUse& use, const std::vector<Range>& ranges, Split& split) {
  split.hot.segments.clear();
  split.tail.segments.clear();
  double first = 0.0;
  for (const AccessSegment& segment : use.segments) {
    const double last = first + segment.rows;
    double from = first;
    const auto tail_to = [&](double end) {
      if (end > from) {
        split.tail.segments.push_back(
            {.rows = end - from, .share = segment.share * (end - from) / segment.rows});
        from = end;
      }
    };
    auto range = std::upper_bound(
        ranges.begin(), ranges.end(), first,
        [](double row, const Range& one) { return row < static_cast<double>(one.end); });
    for (; range != ranges.end() && static_cast<double>(range->begin) < last; ++range) {
      tail_to(std::max(first, static_cast<double>(range->begin)));
      const double end = std::min(last, static_cast<double>(range->end));
      const double share = segment.share * (end - from) / segment.rows;
      split.hot.segments.push_back({.rows = end - from, .share = share});
      split.tail.segments.push_back({.rows = end - from, .share = 0.0});
      split.share += share;
      from = end;
    }
    tail_to(last);
    first = last;
  }
}

Split split_use(const FeatureUse& use,
                const std::shared_ptr<const HotRanges>& rows,
                const Measured* measured,
                double all_rows) {
  Split split{.share = 0.0, .hot = use, .tail = use};
  const double part = static_cast<double>(rows->size()) / all_rows;
  if (use.by_frequency) {
    split_by_frequency(use, rows->ranges(), split);
  } else if (measured != nullptr) {
    split.share = measured->share;
    split.hot.segments = measured->segments;
    split.tail.segments = without_first(use.segments, static_cast<double>(rows->size()));
    split.tail.part = 1.0 - split.share;
    split.tail.hot = rows;
  } else {
    split.share = part;
    scale(split.hot.segments, part, part);
    scale(split.tail.segments, 1.0 - part, 1.0);
    split.tail.part = 1.0 - part;
    split.tail.hot = rows;
  }
  // The hot rows as a feature of its own, which is always by itself.
  split.hot.by_frequency = false;
  const double sum = sum_of_shares(split.hot.segments);
  scale(split.hot.segments, 1.0, sum > 0.0 ? 1.0 / sum : 0.0);
  split.hot.length = use.length * split.share;
  split.hot.present = bags_of(use, split.share, 1.0);
  return split;
}

}  // namespace

std::int64_t most_hot_rows(const spec::Config& config,
                           std::int64_t table,
                           const std::vector<HotRows>& measured) {
  const std::int64_t others = config.tables[at(table)].num_embeddings - 1;
  if (is_by_frequency(config, table)) {
    return others;
  }
  return measured.empty()
             ? 0
             : std::min(others, static_cast<std::int64_t>(measured[at(table)].rows.size()));
}

std::vector<Range> hottest_rows(const spec::Config& config,
                                std::int64_t table,
                                const std::vector<HotRows>& measured,
                                std::int64_t rows) {
  const spec::Table& asked = config.tables[at(table)];
  if (rows == 0) {
    return {};
  }
  if (is_by_frequency(config, table)) {
    return {{0, rows}};
  }
  constexpr const char* kCommand = "weft data stats CONFIG --format json --hot-rows";
  const HotRows* const counted = measured.empty() ? nullptr : &measured[at(table)];
  if (counted == nullptr || counted->most == 0) {
    fail(ErrorCode::kConfig,
         "tables.{}.hot_rows: {} rows of the table are to be on every rank, and nothing says which "
         "are most frequent; count them with {} {} > stats.json and give --stats stats.json",
         asked.name, rows, kCommand, rows);
  }
  if (counted->most < rows) {
    fail(ErrorCode::kConfig,
         "tables.{}.hot_rows: {} rows of the table are to be on every rank, and the statistics "
         "list {} only; count them with {} {}",
         asked.name, rows, counted->most, kCommand, rows);
  }
  if (counted->rows.empty()) {
    fail(ErrorCode::kConfig,
         "tables.{}.hot_rows: the statistics list no row of the table, so no id was counted; "
         "remove the key, or count other data",
         asked.name);
  }
  std::vector<std::int64_t> numbers;
  for (const HotRow& row : counted->rows) {
    if (static_cast<std::int64_t>(numbers.size()) < rows) {
      numbers.push_back(row.row);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return to_ranges(numbers);
}

const FeatureUse& of_feature(const JointUse& uses, std::int64_t feature) {
  return **std::find_if(uses.features.begin(), uses.features.end(),
                        [feature](const FeatureUse* use) { return use->feature == feature; });
}

HotUses::HotUses(const spec::Config& config, const Workload& workload)
    : workload_(workload), features_(config.tables.size()) {
  for (const spec::Table& table : config.tables) {
    rows_.push_back(table.num_embeddings);
  }
  for (const FeatureUse& use : workload.features) {
    features_[at(use.table)].push_back(&use);
  }
}

std::shared_ptr<const HotUse> HotUses::of(std::int64_t table, const std::vector<Range>& hot) const {
  if (hot.empty()) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  std::vector<Known>& known = known_[table];
  for (const Known& one : known) {
    if (one.hot == hot) {
      return one.use;
    }
  }
  known.push_back({.hot = hot, .use = make(table, hot)});
  return known.back().use;
}

std::shared_ptr<const HotUse> HotUses::make(std::int64_t table,
                                            const std::vector<Range>& hot) const {
  auto hot_use = std::make_shared<HotUse>();
  hot_use->rows = std::make_shared<const HotRanges>(hot);
  const auto all_rows = static_cast<double>(rows_[at(table)]);
  Measured measured;
  const bool is_measured = !workload_.hot_rows.empty() && workload_.hot_rows[at(table)].most > 0;
  if (is_measured) {
    measured = measure(workload_.hot_rows[at(table)], *hot_use->rows, all_rows);
  }
  const std::vector<const FeatureUse*>& uses = features_[at(table)];
  const auto split = [&](const FeatureUse& use) {
    return split_use(use, hot_use->rows, is_measured ? &measured : nullptr, all_rows);
  };
  const Split joint = split(uses.empty() ? unread() : joined(uses));
  hot_use->share = joint.share;
  hot_use->hot.joined = joint.hot;
  hot_use->tail.joined = joint.tail;
  std::vector<FeatureUse> tails;
  for (const FeatureUse* use : uses) {
    Split one = split(*use);
    hot_use->features.push_back(std::move(one.hot));
    tails.push_back(std::move(one.tail));
  }
  hot_use->features.insert(hot_use->features.end(), tails.begin(), tails.end());
  for (std::size_t f = 0; f < hot_use->features.size(); ++f) {
    JointUse& part = f < uses.size() ? hot_use->hot : hot_use->tail;
    part.features.push_back(&hot_use->features[f]);
  }
  return hot_use;
}

}  // namespace weft::planner
