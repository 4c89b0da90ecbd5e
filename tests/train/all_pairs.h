// Jobs in which every pair of two things that a step depends on occurs, drawn by a seed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/hash.h"

namespace weft::train {

using Overrides = std::vector<std::string>;

/// One value of a factor: what it is called and what it sets.
struct Level {
  std::string name;
  Overrides sets;
  int ranks = 0;  // of the factor that has them
};

/// A thing that a step depends on, with its values.
struct Factor {
  std::string name;
  std::vector<Level> levels;
};

/// A level of every factor.
using Row = std::vector<std::size_t>;

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}

  std::size_t below(std::size_t bound) {
    state_ = mix64(state_ + 0x9e3779b97f4a7c15ULL);
    return static_cast<std::size_t>(state_ % bound);
  }

 private:
  std::uint64_t state_;
};

/// Rows in which every pair of levels of two factors occurs, as drawn by `seed`.
inline std::vector<Row> all_pairs(const std::vector<Factor>& all, std::uint64_t seed) {
  using Pair = std::pair<std::pair<std::size_t, std::size_t>, std::pair<std::size_t, std::size_t>>;
  const auto pairs_of = [&](const Row& row) {
    std::vector<Pair> pairs;
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) {
        pairs.push_back({{a, row[a]}, {b, row[b]}});
      }
    }
    return pairs;
  };
  std::set<Pair> open;
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      for (std::size_t i = 0; i < all[a].levels.size(); ++i) {
        for (std::size_t j = 0; j < all[b].levels.size(); ++j) {
          open.insert({{a, i}, {b, j}});
        }
      }
    }
  }
  Draws draws(seed);
  std::vector<Row> rows;
  while (!open.empty()) {
    Row best;
    std::size_t most = 0;
    for (int attempt = 0; attempt < 30; ++attempt) {
      Row row;
      for (const Factor& factor : all) {
        row.push_back(draws.below(factor.levels.size()));
      }
      // One open pair at least.
      auto wanted = open.begin();
      std::advance(wanted, static_cast<std::ptrdiff_t>(draws.below(open.size())));
      row[wanted->first.first] = wanted->first.second;
      row[wanted->second.first] = wanted->second.second;
      const auto pairs = pairs_of(row);
      const auto found = static_cast<std::size_t>(std::count_if(
          pairs.begin(), pairs.end(), [&](const Pair& pair) { return open.contains(pair); }));
      if (found > most) {
        most = found;
        best = row;
      }
    }
    for (const Pair& pair : pairs_of(best)) {
      open.erase(pair);
    }
    rows.push_back(best);
  }
  return rows;
}

inline std::string name_of(const std::vector<Factor>& all, const Row& row) {
  std::vector<std::string> names;
  for (std::size_t f = 0; f < all.size(); ++f) {
    names.push_back(all[f].name + " " + all[f].levels[row[f]].name);
  }
  return fmt::format("{}", fmt::join(names, "; "));
}

}  // namespace weft::train
