#include "weft/spec/shards.h"

#include <algorithm>
#include <optional>

namespace weft::spec {
namespace {

/// How many shards a rule stands for.
std::size_t count_of(const CutRule& rule) {
  return rule.is_sound() ? static_cast<std::size_t>(rule.blocks_with_rows()) : 1;
}

Shard shard_of(const CutRule& rule, std::size_t i) {
  return rule.is_sound() ? rule.block(rule.with_rows(static_cast<std::int64_t>(i)))
                         : Shard{rule.first_rank, rule.rows, rule.cols};
}

/// The rule of all of them, if there is one.
std::optional<CutRule> rule_of_all(const std::vector<Shard>& list) {
  const bool may_be = std::all_of(list.begin(), list.end(), [&](const Shard& shard) {
    return shard.cols == list.front().cols && shard.rows.step > 0 &&
           shard.rows.begin < shard.rows.end;
  });
  return list.size() < 2 || !may_be ? std::nullopt : rule_of(list);
}

}  // namespace

Shards::Shards(std::vector<Shard> list) : size_(list.size()) {
  if (const std::optional<CutRule> rule = rule_of_all(list)) {
    rules_.push_back(*rule);
    return;
  }
  rules_.reserve(list.size());
  for (const Shard& shard : list) {
    rules_.push_back({.rows = shard.rows, .cols = shard.cols, .first_rank = shard.rank});
  }
}

Shards Shards::as_written(std::vector<CutRule> rules) {
  Shards shards;
  shards.rules_ = std::move(rules);
  for (const CutRule& rule : shards.rules_) {
    shards.size_ += count_of(rule);
  }
  return shards;
}

Shard Shards::operator[](std::size_t i) const {
  if (rules_.size() == size_) {
    return shard_of(rules_[i], 0);
  }
  for (const CutRule& rule : rules_) {
    const std::size_t count = count_of(rule);
    if (i < count) {
      return shard_of(rule, i);
    }
    i -= count;
  }
  return {};
}

std::vector<Shard> Shards::list() const {
  std::vector<Shard> all;
  all.reserve(size_);
  for (const CutRule& rule : rules_) {
    for (std::size_t i = 0; i < count_of(rule); ++i) {
      all.push_back(shard_of(rule, i));
    }
  }
  return all;
}

}  // namespace weft::spec
