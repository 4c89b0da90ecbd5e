#include "weft/sharding/owned_rows.h"

#include <algorithm>

#include "weft/base/at.h"
#include "weft/base/thread_pool.h"

namespace weft::sharding {

OwnedRows::OwnedRows(std::size_t groups, const TouchedRows* touched)
    : groups_(groups), touched_(touched) {
}

void OwnedRows::cut(Context& ctx, std::span<const Shard> shards, std::int64_t round_bytes) {
  shards_ = shards;
  blocks_.clear();
  round_ends_.clear();
  std::int64_t left = round_bytes;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const Shard& shard = shards[s];
    const std::int64_t row_bytes = shard.row_bytes;
    const std::int64_t rows =
        shard.list == kAllRows ? shard.rows : std::ssize(touched_->rows(shard.list));
    const std::int64_t at_once = shard.most_rows > 0 ? shard.most_rows : rows;
    for (std::int64_t begin = 0; begin < rows;) {
      if (left < row_bytes && left < round_bytes) {
        round_ends_.push_back(blocks_.size());
        left = round_bytes;
      }
      const std::int64_t fit =
          std::clamp<std::int64_t>(left / row_bytes, 1, std::max<std::int64_t>(1, at_once));
      const std::int64_t end = std::min(rows, begin + fit);
      RowBlock& block = blocks_.emplace_back();
      block.shard = s;
      block.rows = {begin, end};
      left -= (end - begin) * row_bytes;
      if (shard.most_rows > 0 && end < rows) {
        left = 0;  // the rest comes when these have given up their slots
      }
      begin = end;
    }
  }
  if (!blocks_.empty()) {
    round_ends_.push_back(blocks_.size());
  }
  deal(ctx);
}

std::span<RowBlock> OwnedRows::round(std::size_t number) {
  const std::size_t begin = number == 0 ? 0 : round_ends_[number - 1];
  return std::span(blocks_).subspan(begin, round_ends_[number] - begin);
}

std::span<const std::int32_t> OwnedRows::listed(const RowBlock& block) const {
  return touched_->rows(shards_[block.shard].list)
      .subspan(at(block.rows.begin), at(block.rows.size()));
}

/// Of listed rows those of each owner, one owner's behind the other's, block by block.
void OwnedRows::deal(Context& ctx) {
  std::size_t places = 0;
  std::size_t begins = 0;
  for (RowBlock& block : blocks_) {
    if (!is_listed(block)) {
      continue;
    }
    block.first_place = places;
    block.first_begin = begins;
    places += at(block.rows.size());
    begins += groups_ + 1;
  }
  places_.resize(places);
  owner_begins_.resize(begins);
  ctx.pool->parallel_for(static_cast<std::int64_t>(blocks_.size()), [&](std::int64_t b) {
    if (is_listed(blocks_[at(b)])) {
      deal_block(blocks_[at(b)]);
    }
  });
}

void OwnedRows::deal_block(const RowBlock& block) {
  const std::span<const std::int32_t> rows = listed(block);
  std::int64_t* const begins = owner_begins_.data() + block.first_begin;
  const auto owner = [&](std::int64_t place) {
    return static_cast<std::size_t>(rows[at(place)]) % groups_;
  };
  std::fill_n(begins, groups_ + 1, 0);
  for (std::int64_t place = 0; place < block.rows.size(); ++place) {
    ++begins[owner(place) + 1];
  }
  for (std::size_t g = 0; g < groups_; ++g) {
    begins[g + 1] += begins[g];
  }
  for (std::int64_t place = 0; place < block.rows.size(); ++place) {
    places_[block.first_place + at(begins[owner(place)]++)] = static_cast<std::int32_t>(place);
  }
  for (std::size_t g = groups_; g > 0; --g) {  // each has become the next one's
    begins[g] = begins[g - 1];
  }
  begins[0] = 0;
}

kernels::RowChoice OwnedRows::of(const RowBlock& block, std::size_t group) const {
  kernels::RowChoice rows;
  if (is_listed(block)) {
    const std::int64_t* const begins = owner_begins_.data() + block.first_begin;
    rows.count = begins[group + 1] - begins[group];
    rows.places = places_.data() + block.first_place + begins[group];
    rows.rows = listed(block).data();
    return rows;
  }
  const auto groups = static_cast<std::int64_t>(groups_);
  const std::int64_t ahead =
      (static_cast<std::int64_t>(group) - block.rows.begin % groups + groups) % groups;
  rows.first = block.rows.begin + ahead;
  rows.step = groups;
  rows.count = rows.first < block.rows.end ? (block.rows.end - rows.first - 1) / groups + 1 : 0;
  return rows;
}

}  // namespace weft::sharding
