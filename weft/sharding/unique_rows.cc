#include "weft/sharding/unique_rows.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "weft/base/error.h"

namespace weft::sharding {

UniqueRows::UniqueRows(const Routing& routing, std::int64_t fetch, std::int64_t rank)
    : routing_(routing),
      fetch_(routing.fetches[at(fetch)]),
      rank_(rank),
      nodes_(routing.nodes(rank)),
      modulo_(fetch_.rows.front().step > 1),
      table_(std::size_t{1} << table_bits_),
      lengths_(at(fetch_.row_cuts() * runs())),
      next_(lengths_.size()),
      begins_(at(fetch_.row_cuts() + 1)),
      vectors_(at(fetch_.row_cuts())) {
  WEFT_CHECK(nodes_.size() <= 64, "{} subtrees of parts on one rank", nodes_.size());
  if (modulo_) {
    modulo_owner_ = ModuloOwner(fetch_.row_cuts());
  } else {
    range_owner_ = RangeOwner(fetch_.rows);
  }
}

void UniqueRows::find(const BatchView& batch, std::span<std::int64_t> places) {
  clear();
  const std::int64_t size = batch.global_size;
  const std::int64_t first = rank_samples(size, routing_.parts, routing_.ranks, rank_).begin;
  for (const std::int64_t f : fetch_.features) {
    const JaggedView bags = batch.sparse->feature(f);
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const std::int64_t b = part_samples(size, routing_.parts, nodes_[n].begin).begin - first;
      const std::int64_t e = part_samples(size, routing_.parts, nodes_[n].end - 1).end - first;
      for (std::int64_t i = bags.offsets[at(b)]; i < bags.offsets[at(e)]; ++i) {
        const std::size_t u = place_of(bags.values[i]);
        row_nodes_[u] |= std::uint64_t{1} << n;
        places[at(i)] = static_cast<std::int64_t>(u);
      }
    }
  }
  modulo_ ? count_entries(modulo_owner_) : count_entries(range_owner_);
  join_counts();
  fill_entries();
}

/// Forgets the batch before.
void UniqueRows::clear() {
  rows_.clear();
  row_nodes_.clear();
  if (++batch_ == 0) {
    std::fill(table_.begin(), table_.end(), HashSlot{});
    batch_ = 1;
  }
}

/// Rows that are near each other or far by a power of two go to different places.
std::size_t UniqueRows::first_slot(std::int64_t row) const {
  return at(static_cast<std::int64_t>((static_cast<std::uint64_t>(row) * 0x9E3779B97F4A7C15U) >>
                                      (64 - table_bits_)));
}

std::size_t UniqueRows::place_of(std::int64_t row) {
  const std::size_t mask = table_.size() - 1;
  std::size_t i = first_slot(row);
  for (; table_[i].batch == batch_; i = (i + 1) & mask) {
    if (table_[i].row == row) {
      return table_[i].place;
    }
  }
  const std::size_t place = rows_.size();
  table_[i] = {.row = row, .place = static_cast<std::uint32_t>(place), .batch = batch_};
  rows_.push_back(row);
  row_nodes_.push_back(0);
  if (2 * rows_.size() > table_.size()) {
    grow_table();
  }
  return place;
}

void UniqueRows::grow_table() {
  ++table_bits_;
  table_.assign(std::size_t{1} << table_bits_, HashSlot{});
  const std::size_t mask = table_.size() - 1;
  for (std::size_t u = 0; u < rows_.size(); ++u) {
    std::size_t i = first_slot(rows_[u]);
    while (table_[i].batch == batch_) {
      i = (i + 1) & mask;
    }
    table_[i] = {.row = rows_[u], .place = static_cast<std::uint32_t>(u), .batch = batch_};
  }
}

template <typename Owner>
void UniqueRows::count_entries(const Owner& owner) {
  const std::size_t nodes = nodes_.size();
  owners_.resize(rows_.size());
  std::fill(lengths_.begin(), lengths_.end(), 0);
  for (std::size_t u = 0; u < rows_.size(); ++u) {
    owners_[u] = owner.place_of(rows_[u]);
    std::int32_t* const lengths = lengths_.data() + owners_[u].cut * 2 * nodes;
    std::uint64_t left = row_nodes_[u];
    ++lengths[std::countr_zero(left)];
    for (left &= left - 1; left != 0; left &= left - 1) {
      ++lengths[nodes + static_cast<std::size_t>(std::countr_zero(left))];
    }
  }
}

/// Lays out the runs, those of a cut behind each other.
void UniqueRows::join_counts() {
  const std::size_t nodes = nodes_.size();
  std::int64_t total = 0;
  for (std::size_t k = 0; k < vectors_.size(); ++k) {
    begins_[k] = total;
    for (std::size_t run = 0; run < 2 * nodes; ++run) {
      vectors_[k] = run == nodes ? total - begins_[k] : vectors_[k];
      next_[k * 2 * nodes + run] = total;
      total += lengths_[k * 2 * nodes + run];
    }
  }
  begins_.back() = total;
  if (total > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorCode::kConfig,
         "{} rows of one table are asked for in a step by one rank, more than 2^31 - 1: use a "
         "smaller batch or more ranks",
         total);
  }
  ids_.resize(at(total));
  narrow_ids_.resize(at(total));
  places_.resize(at(total));
  gradients_.resize(at(total));
}

void UniqueRows::fill_entries() {
  const std::size_t nodes = nodes_.size();
  std::int32_t gradient = 0;
  for (std::size_t u = 0; u < rows_.size(); ++u) {
    std::int64_t* const next = next_.data() + owners_[u].cut * 2 * nodes;
    std::size_t behind = 0;  // of the runs that are looked at
    for (std::uint64_t left = row_nodes_[u]; left != 0; left &= left - 1) {
      const std::size_t entry =
          at(next[behind + static_cast<std::size_t>(std::countr_zero(left))]++);
      ids_[entry] = owners_[u].index;
      narrow_ids_[entry] = static_cast<std::int32_t>(owners_[u].index);
      places_[entry] = static_cast<std::int32_t>(u);
      gradients_[entry] = gradient++;
      behind = nodes;
    }
  }
}

}  // namespace weft::sharding
