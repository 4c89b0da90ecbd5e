/// Problems for tests of partitions, an exact answer for small ones, and what must hold of any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/philox.h"
#include "weft/planner/partition.h"

namespace weft::planner {

inline Problem costs_onto(const std::vector<double>& costs, std::size_t bins) {
  Problem problem;
  for (const double cost : costs) {
    problem.items.push_back({.cost = cost});
  }
  problem.bins.resize(bins);
  return problem;
}

/// Small whole numbers from a seed.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : key_(random_key(seed, RandomPurpose::kTest, "partition")) {}

  /// Uniform in [low, high].
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    const std::uint64_t word = philox(key_, count_++, 0)[0];
    return low + static_cast<std::int64_t>(word % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t key_;
  std::uint64_t count_ = 0;
};

/// All kinds of constraint: memory that is scarce, hosts, pins, groups, bins in use.
inline Problem constrained(std::uint64_t seed, std::int64_t items, std::int64_t bins) {
  Draw draw(seed);
  Problem problem;
  for (std::int64_t b = 0; b < bins; ++b) {
    problem.bins.push_back({.cost = static_cast<double>(draw(0, 3)),
                            .bytes = {draw(0, 4), draw(0, 1)},
                            .capacity = {draw(8, 30), draw(2, 20)}});
  }
  const std::int64_t groups = draw(1, std::max<std::int64_t>(items, 1));
  for (std::int64_t i = 0; i < items; ++i) {
    Item item{.cost = static_cast<double>(draw(0, 20)), .bytes = {draw(0, 9), draw(0, 3)}};
    const std::int64_t kind = draw(0, 5);
    if (kind == 0) {
      const std::int64_t begin = draw(0, bins - 1);
      item.bins = {begin, draw(begin + 1, bins)};
    } else if (kind == 1) {
      const std::int64_t only = draw(0, bins - 1);
      item.bins = {only, only + 1};
    }
    item.group = draw(0, 1) == 0 ? kNoGroup : draw(0, groups - 1);
    item.tag = i;
    problem.items.push_back(item);
  }
  return problem;
}

/// The lowest maximum cost of all assignments that keep every constraint; infinite if there is
/// none.
class Exact {
 public:
  explicit Exact(const Problem& problem) : problem_(problem), bins_(problem.bins) {
    for (const Bin& bin : bins_) {
      start_ = std::max(start_, bin.cost);
      for (std::size_t t = 0; t < kTiers; ++t) {
        possible_ = possible_ && bin.bytes[t] <= bin.capacity[t];
      }
    }
  }

  double operator()() {
    if (possible_) {
      try_item(0, start_);
    }
    return best_;
  }

 private:
  bool may_go(std::size_t i, std::size_t b) const {
    const Item& item = problem_.items[i];
    const auto bin = static_cast<std::int64_t>(b);
    bool fits = item.bins.empty() || (item.bins.begin <= bin && bin < item.bins.end);
    for (std::size_t t = 0; t < kTiers; ++t) {
      fits = fits && bins_[b].bytes[t] + item.bytes[t] <= bins_[b].capacity[t];
    }
    for (std::size_t other = 0; other < i; ++other) {
      fits = fits && (item.group == kNoGroup || problem_.items[other].group != item.group ||
                      where_[other] != b);
    }
    return fits;
  }

  void try_item(std::size_t i, double most) {
    if (most >= best_) {
      return;
    }
    if (i == problem_.items.size()) {
      best_ = most;
      return;
    }
    for (std::size_t b = 0; b < bins_.size(); ++b) {
      if (may_go(i, b)) {
        const Bin before = bins_[b];
        bins_[b].cost += problem_.items[i].cost;
        for (std::size_t t = 0; t < kTiers; ++t) {
          bins_[b].bytes[t] += problem_.items[i].bytes[t];
        }
        where_.push_back(b);
        try_item(i + 1, std::max(most, bins_[b].cost));
        where_.pop_back();
        bins_[b] = before;
      }
    }
  }

  const Problem& problem_;
  std::vector<Bin> bins_;
  std::vector<std::size_t> where_;
  double start_ = 0.0;
  bool possible_ = true;
  double best_ = std::numeric_limits<double>::infinity();
};

inline std::string wrong_sums(const Problem& problem, const Partition& p) {
  std::vector<Bin> bins = problem.bins;
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    if (p.bin[i] != kNowhere) {
      Bin& bin = bins.at(static_cast<std::size_t>(p.bin[i]));
      bin.cost += problem.items[i].cost;
      for (std::size_t t = 0; t < kTiers; ++t) {
        bin.bytes[t] += problem.items[i].bytes[t];
      }
    }
  }
  for (std::size_t b = 0; b < bins.size(); ++b) {
    if (p.bytes[b] != bins[b].bytes ||
        std::abs(p.cost[b] - bins[b].cost) > 1e-9 * (1.0 + bins[b].cost)) {
      return fmt::format("bin {} has wrong sums", b);
    }
  }
  return {};
}

/// What a partition breaks of the contract in partition.h; empty: nothing.
inline std::string broken(const Problem& problem, const Partition& p) {
  if (p.bin.size() != problem.items.size() || p.cost.size() != problem.bins.size()) {
    return "wrong sizes";
  }
  std::set<std::int64_t> left_out;
  for (const Misfit& misfit : p.misfits) {
    left_out.insert(misfit.item);
  }
  std::set<std::pair<std::int64_t, std::int64_t>> groups;
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    const Item& item = problem.items[i];
    const auto position = static_cast<std::int64_t>(i);
    if ((p.bin[i] == kNowhere) != (left_out.count(position) == 1)) {
      return fmt::format("item {} is nowhere and no misfit, or both placed and a misfit", i);
    }
    if (p.bin[i] == kNowhere) {
      continue;
    }
    if (!item.bins.empty() && (p.bin[i] < item.bins.begin || p.bin[i] >= item.bins.end)) {
      return fmt::format("item {} is in bin {}, where it may not be", i, p.bin[i]);
    }
    if (item.group != kNoGroup && !groups.emplace(item.group, p.bin[i]).second) {
      return fmt::format("bin {} has two items of group {}", p.bin[i], item.group);
    }
  }
  for (std::size_t b = 0; b < problem.bins.size(); ++b) {
    for (std::size_t t = 0; t < kTiers; ++t) {
      const Bin& bin = problem.bins[b];
      if (p.bytes[b][t] > bin.capacity[t] && p.bytes[b][t] != bin.bytes[t]) {
        return fmt::format("bin {} is over its capacity", b);
      }
    }
  }
  return wrong_sums(problem, p);
}

}  // namespace weft::planner
