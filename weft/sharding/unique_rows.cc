#include "weft/sharding/unique_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <limits>
#include <numeric>

#include "weft/base/error.h"
#include "weft/kernels/packed_ids.h"
#include "weft/sharding/wire_ids.h"

namespace weft::sharding {

UniqueRows::UniqueRows(const Routing& routing, std::int64_t fetch, std::int64_t rank)
    : routing_(routing),
      fetch_(routing.fetches[at(fetch)]),
      rank_(rank),
      id_bytes_(routing.kinds[at(fetch_.first_kind)].id_bytes),
      packed_(routing.kinds[at(fetch_.first_kind)].packed),
      runs_(routing.runs(rank)),
      nodes_(routing.nodes(rank)),
      owner_(fetch_),
      table_(std::size_t{1} << table_bits_),
      lengths_(at(fetch_.row_cuts() * runs())),
      next_(lengths_.size()),
      begins_(at(fetch_.row_cuts() + 1)),
      vectors_(at(fetch_.row_cuts())),
      wire_begins_(vectors_.size()),
      wire_bytes_(vectors_.size()) {
  WEFT_CHECK(nodes_.size() <= 64, "{} subtrees of parts on one rank", nodes_.size());
  for (const Range& run : runs_) {
    const auto node = std::find_if(nodes_.begin(), nodes_.end(),
                                   [&](const Range& one) { return run.begin < one.end; });
    run_nodes_.push_back(static_cast<std::size_t>(node - nodes_.begin()));
  }
  for (std::int64_t k = 0; k < fetch_.row_cuts(); ++k) {
    const CutSlots shards = routing.row_cut(fetch_, k);
    sent_.push_back(!std::all_of(shards.begin(), shards.end(), [&](const SlotAddress& address) {
      return routing.served_by(address, rank);
    }));
  }
}

void UniqueRows::find(const BatchView& batch, std::span<std::int64_t> places) {
  clear();
  const std::int64_t size = batch.global_size;
  const std::int64_t first = routing_.own_samples(size, rank_).begin;
  for (const std::int64_t f : fetch_.features) {
    const JaggedView bags = batch.sparse.feature(f);
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const std::int64_t b = part_samples(size, routing_.parts, runs_[r].begin).begin - first;
      const std::int64_t e = part_samples(size, routing_.parts, runs_[r].end - 1).end - first;
      for (std::int64_t i = bags.offsets[at(b)]; i < bags.offsets[at(e)]; ++i) {
        const std::size_t u = place_of(bags.values[i]);
        row_nodes_[u] |= std::uint64_t{1} << run_nodes_[r];
        first_runs_[u] = std::min(first_runs_[u], static_cast<std::int32_t>(r));
        places[at(i)] = static_cast<std::int64_t>(u);
      }
    }
  }
  owner_.visit([this](const auto& owner) { count_entries(owner); });
  join_counts();
  if (packed_) {
    sort_rows();
  }
  fill_entries();
  if (packed_) {
    pack_ids();
  } else {
    visit_width(id_bytes_, [this]<typename Id>(Id) { narrow_ids<Id>(); });
  }
}

/// Forgets the batch before.
void UniqueRows::clear() {
  rows_.clear();
  row_nodes_.clear();
  first_runs_.clear();
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
  first_runs_.push_back(std::numeric_limits<std::int32_t>::max());
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
  owners_.resize(rows_.size());
  std::fill(lengths_.begin(), lengths_.end(), 0);
  for (std::size_t u = 0; u < rows_.size(); ++u) {
    owners_[u] = owner.place_of(rows_[u]);
    std::int32_t* const lengths = lengths_.data() + owners_[u].cut * at(runs());
    ++lengths[first_runs_[u]];
    const std::uint64_t nodes = row_nodes_[u];
    for (std::uint64_t left = nodes & (nodes - 1); left != 0; left &= left - 1) {
      ++lengths[runs_.size() + static_cast<std::size_t>(std::countr_zero(left))];
    }
  }
}

/// Lays out the runs, those of a cut behind each other.
void UniqueRows::join_counts() {
  const auto runs = static_cast<std::size_t>(this->runs());
  std::int64_t total = 0;
  for (std::size_t k = 0; k < vectors_.size(); ++k) {
    begins_[k] = total;
    for (std::size_t run = 0; run < runs; ++run) {
      vectors_[k] = run == runs_.size() ? total - begins_[k] : vectors_[k];
      next_[k * runs + run] = total;
      total += lengths_[k * runs + run];
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
  places_.resize(at(total));
  gradients_.resize(at(total));
}

/// By row: from the lowest bits on, so many at a time that their counts stay in the first cache.
void UniqueRows::sort_rows() {
  constexpr int kBits = 11;
  order_.resize(rows_.size());
  sorted_.resize(rows_.size());
  std::uint64_t all = 0;
  for (std::size_t u = 0; u < rows_.size(); ++u) {
    order_[u] = {rows_[u], static_cast<std::int64_t>(u)};
    all |= static_cast<std::uint64_t>(rows_[u]);
  }
  for (int shift = 0; shift < static_cast<int>(std::bit_width(all)); shift += kBits) {
    const auto digit = [shift](const RowAndPlace& one) {
      return (static_cast<std::uint64_t>(one.row) >> shift) & ((1U << kBits) - 1);
    };
    std::array<std::uint32_t, 1U << kBits> next = {};
    for (const RowAndPlace& one : order_) {
      ++next[digit(one)];
    }
    std::exclusive_scan(next.begin(), next.end(), next.begin(), std::uint32_t{0});
    for (const RowAndPlace& one : order_) {
      sorted_[next[digit(one)]++] = one;
    }
    std::swap(order_, sorted_);
  }
}

void UniqueRows::fill_entries() {
  first_gradients_.resize(rows_.size());
  std::int32_t gradients = 0;
  for (std::size_t u = 0; u < rows_.size(); ++u) {
    first_gradients_[u] = gradients;
    gradients += std::popcount(row_nodes_[u]);
  }
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::size_t u = packed_ ? at(order_[i].place) : i;
    std::int64_t* const next = next_.data() + owners_[u].cut * at(runs());
    std::int32_t gradient = first_gradients_[u];
    std::size_t run = at(first_runs_[u]);
    std::uint64_t left = row_nodes_[u];
    do {
      const std::size_t entry = at(next[run]++);
      ids_[entry] = owners_[u].index;
      places_[entry] = static_cast<std::int32_t>(u);
      gradients_[entry] = gradient++;
      left &= left - 1;
      run = runs_.size() + static_cast<std::size_t>(std::countr_zero(left));
    } while (left != 0);
  }
}

template <typename Id>
void UniqueRows::narrow_ids() {
  wire_ids_.resize(ids_.size() * sizeof(Id));
  auto* const wire = reinterpret_cast<Id*>(wire_ids_.data());
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    wire[i] = static_cast<Id>(ids_[i]);
  }
  for (std::size_t k = 0; k < vectors_.size(); ++k) {
    wire_begins_[k] = begins_[k] * id_bytes_;
    wire_bytes_[k] = (begins_[k + 1] - begins_[k]) * id_bytes_;
  }
}

/// The runs of a cut behind each other.
void UniqueRows::pack_ids() {
  std::int64_t most = kernels::kPackedIdSlack;
  for (const std::int32_t length : lengths_) {
    most += kernels::most_packed_bytes(length, id_bytes_);
  }
  if (std::ssize(wire_ids_) < most) {
    wire_ids_.resize(at(most));
  }
  std::int64_t next = 0;
  for (std::size_t k = 0; k < vectors_.size(); ++k) {
    wire_begins_[k] = next;
    std::span left(ids_.data() + begins_[k], sent_[k] ? at(begins_[k + 1] - begins_[k]) : 0);
    for (std::size_t run = 0; !left.empty(); ++run) {
      const auto length = static_cast<std::size_t>(lengths_[k * at(runs()) + run]);
      next += kernels::pack_ids(left.first(length), id_bytes_, wire_ids_.data() + next);
      left = left.subspan(length);
    }
    wire_bytes_[k] = next - wire_begins_[k];
    if (wire_bytes_[k] > std::numeric_limits<std::int32_t>::max()) {
      fail(ErrorCode::kConfig,
           "{} bytes of packed rows of one table go to one rank in a step, more than 2^31 - 1: use "
           "a smaller batch or more ranks",
           wire_bytes_[k]);
    }
  }
}

}  // namespace weft::sharding
