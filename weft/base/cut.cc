#include "weft/base/cut.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

namespace weft {
namespace {

auto order_of(const RankBlock& block) {
  return std::tuple(block.cols.begin, block.cols.end, block.rows.begin, block.rank);
}

/// Whether the rule has these blocks, in their order, and beside them only empty ones.
bool makes(const CutRule& rule, std::span<const RankBlock> blocks) {
  std::size_t next = 0;
  for (std::int64_t i = 0; i < rule.count; ++i) {
    const RankBlock block = rule.block(i);
    if (block.rows.size() == 0) {
      continue;
    }
    if (next == blocks.size() || !(block == blocks[next])) {
      return false;
    }
    ++next;
  }
  return next == blocks.size();
}

}  // namespace

RankBlock CutRule::block(std::int64_t i) const {
  const std::int64_t rank = first_rank + i * rank_step;
  if (count == 1 || by == CutBy::kCopy) {
    return {rank, rows, cols};
  }
  if (by == CutBy::kModulo) {
    return {rank, {rows.begin + i, rows.end, count}, cols};
  }
  const Range part = piece(rows.end - rows.begin, count, i);
  return {rank, Range{rows.begin + part.begin, rows.begin + part.end}, cols};
}

std::int64_t CutRule::blocks_with_rows() const {
  return count == 1 || by == CutBy::kCopy ? count : std::min(count, rows.size());
}

std::int64_t CutRule::with_rows(std::int64_t i) const {
  const std::int64_t size = rows.size();
  if (by != CutBy::kRange || size >= count) {
    return i;
  }
  // Row i alone is a piece: the first whose end is behind it.
  return ((i + 1) * count + size - 1) / size - 1;
}

bool CutRule::is_sound() const {
  constexpr std::int64_t kMaxCount = std::int64_t{1} << 20;
  std::int64_t last = 0;
  std::int64_t product = 0;
  return count >= 1 && count <= kMaxCount && 0 <= rows.begin && rows.begin < rows.end &&
         rows.step >= 1 && (count == 1 || rows.step == 1) && 0 <= cols.begin &&
         cols.begin < cols.end && first_rank >= 0 && rank_step >= 0 &&
         !__builtin_mul_overflow(rows.end, count, &product) &&
         rows.end <= std::numeric_limits<std::int64_t>::max() - count &&
         !__builtin_mul_overflow(count - 1, rank_step, &last) &&
         !__builtin_add_overflow(first_rank, last, &last) && last >= 0 && last <= kMaxCount;
}

std::optional<CutRule> rule_of(std::span<const RankBlock> blocks) {
  const RankBlock& first = blocks.front();
  const RankBlock& last = blocks.back();
  CutRule rule{.rows = first.rows, .cols = first.cols, .first_rank = first.rank};
  if (blocks.size() == 1) {
    return rule;
  }
  rule.count = static_cast<std::int64_t>(blocks.size());
  rule.rank_step = blocks[1].rank - first.rank;
  if (first.rows == last.rows) {
    rule.by = CutBy::kCopy;
  } else {
    rule.by = first.rows.step == 1 ? CutBy::kRange : CutBy::kModulo;
    rule.rows = {first.rows.begin, last.rows.end};
  }
  if (rule.is_sound() && makes(rule, blocks)) {
    return rule;
  }
  // Of more ranks than rows some have none, but the last one has.
  rule.first_rank = 0;
  rule.rank_step = 1;
  rule.count = last.rank + 1;
  return rule.is_sound() && makes(rule, blocks) ? std::optional(rule) : std::nullopt;
}

std::vector<CutRule> rules_of(std::vector<RankBlock> blocks) {
  std::erase_if(blocks, [](const RankBlock& block) { return block.rows.size() == 0; });
  std::sort(blocks.begin(), blocks.end(),
            [](const RankBlock& a, const RankBlock& b) { return order_of(a) < order_of(b); });
  std::vector<CutRule> rules;
  bool regular = true;
  for (auto begin = blocks.begin(); begin != blocks.end() && regular;) {
    const auto end = std::find_if(begin, blocks.end(),
                                  [&](const RankBlock& one) { return !(one.cols == begin->cols); });
    const auto rule = rule_of({begin, end});
    regular = rule.has_value();
    if (rule) {
      rules.push_back(*rule);
    }
    begin = end;
  }
  if (!regular) {
    rules.clear();
    for (const RankBlock& block : blocks) {
      rules.push_back({.rows = block.rows, .cols = block.cols, .first_rank = block.rank});
    }
  }
  return rules;
}

}  // namespace weft
