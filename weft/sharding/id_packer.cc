#include "weft/sharding/id_packer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::sharding {
namespace {}  // namespace

IdPacker::IdPacker(const Routing& routing, std::int64_t rank)
    : routing_(routing),
      rank_(rank),
      cuts_(routing.features.size()),
      sent_(routing.served.size()),
      pieces_(at(routing.ranks)),
      own_blocks_(routing.served[at(rank)].size() +
                  routing.served[at(routing.replicated())].size()) {
  for (std::size_t s = 0; s < sent_.size(); ++s) {
    sent_[s].resize(routing.served[s].size());
  }
  for (std::size_t t = 0; t < routing.fetches.size(); ++t) {
    unique_.emplace_back(routing, static_cast<std::int64_t>(t), rank);
  }
  std::int64_t writers = 0;
  for (std::size_t f = 0; f < cuts_.size(); ++f) {
    const FeatureRoute& feature = routing.features[f];
    FeatureCut& cut = cuts_[f];
    weighted_ |= feature.weighted;
    if (feature.fetched()) {
      cut.path = Path::kFetched;
    } else if (feature.split()) {
      cut.path = Path::kSplit;
      cut.owner = RowOwner(feature);
      cut.shards = feature.row_cuts();
      cut.writers_begin = writers;
      writers += cut.shards;
      for (std::int64_t k = 0; k < cut.shards; ++k) {
        for (const SlotAddress& address : feature.row_cut(k)) {
          if (routing.served_by(address, rank)) {
            cut.own.push_back({k, address});
          }
        }
      }
    } else if (!std::all_of(feature.slots.begin(), feature.slots.end(),
                            [&](const auto& address) { return routing.in_place(address, rank); })) {
      cut.path = Path::kWhole;
    }
  }
  writers_.resize(at(writers));
}

SlotCounts IdPacker::counts(const SlotAddress& address) const {
  const Slot& slot = routing_.slot(address);
  SlotCounts counts{.batch = static_cast<std::int32_t>(batch_.sparse.batch),
                    .length_bytes = sent(address).length_bytes,
                    .ids = static_cast<std::int32_t>(ids(address))};
  if (slot.packed) {
    counts.packed_bytes =
        static_cast<std::int32_t>(std::ssize(unique(slot).wire_ids(row_cut(slot))));
  }
  return counts;
}

const std::int32_t* IdPacker::rows(const SlotAddress& address) const {
  const Slot& asked = routing_.slot(address);
  if (asked.of_rows()) {
    return unique(asked).places(row_cut(asked));
  }
  const SentSlot& slot = sent(address);
  return slot.rows_at < 0 ? nullptr : rows_.data() + slot.rows_at;
}

std::int64_t IdPacker::gradients(const SlotAddress& address) const {
  return routing_.slot(address).of_rows() ? ids(address) : vectors(address);
}

const std::int32_t* IdPacker::gradient_rows(const SlotAddress& address) const {
  const Slot& asked = routing_.slot(address);
  return asked.of_rows() ? unique(asked).gradients(row_cut(asked)) : rows(address);
}

const std::int64_t* IdPacker::row_ids(const SlotAddress& address) const {
  const Slot& asked = routing_.slot(address);
  return unique(asked).ids(row_cut(asked));
}

std::span<const std::int32_t> IdPacker::runs(const SlotAddress& address) const {
  const Slot& asked = routing_.slot(address);
  return unique(asked).lengths(row_cut(asked));
}

void IdPacker::pack(ThreadPool& pool, const BatchView& batch) {
  WEFT_CHECK(!weighted_ || batch.sparse.weights.size() == batch.sparse.values.size(),
             "{} weights for {} ids", batch.sparse.weights.size(), batch.sparse.values.size());
  batch_ = batch;
  num_bytes_ = num_rows_ = num_own_ids_ = num_own_offsets_ = 0;
  cut_tasks();
  lay_out_whole();
  check_tasks_.run(pool, [this](std::int64_t f, std::int64_t task) { check_task(f, task); });
  find_unique(pool);
  join_counts();
  fill_tasks_.run(pool, [this](std::int64_t f, std::int64_t task) { fill_task(f, task); });
  pool.parallel_for(static_cast<std::int64_t>(cuts_.size()),
                    [this](std::int64_t f) { narrow_lengths_of(f); });
  pool.parallel_for(static_cast<std::int64_t>(unique_.size()),
                    [this](std::int64_t t) { fill_own_fetched(t); });
  describe_lanes();
}

/// Runs of bags with about equal numbers of ids, by the shape of the batch alone.
void IdPacker::cut_tasks() {
  const std::int64_t batch = batch_.sparse.batch;
  check_tasks_.clear();
  std::int64_t counts = 0;
  for (std::size_t f = 0; f < cuts_.size(); ++f) {
    FeatureCut& cut = cuts_[f];
    const std::int64_t ids = bags_of(static_cast<std::int64_t>(f)).num_values();
    WEFT_CHECK(ids <= std::numeric_limits<std::int32_t>::max(), "{} ids of one feature in a batch",
               ids);
    cut.bags_per_task =
        std::max<std::int64_t>(1, batch * kIdsPerTask / std::max({ids, batch, std::int64_t{1}}));
    // Where it is served its ids are checked.
    cut.tasks = routing_.features[f].elsewhere() ? 0 : task_count(batch, cut.bags_per_task);
    cut.counts_begin = counts;
    counts += cut.tasks * cut.shards;
    check_tasks_.add(cut.tasks);
  }
  grow(counts_, counts);
  std::fill_n(counts_.begin(), counts, ShardCount{});
}

Range IdPacker::task_bags(const FeatureCut& cut, std::int64_t task) const {
  return {task * cut.bags_per_task, std::min((task + 1) * cut.bags_per_task, batch_.sparse.batch)};
}

std::int64_t IdPacker::take_bytes(std::int64_t bytes) {
  const std::int64_t begin = num_bytes_;
  num_bytes_ += (bytes + 7) / 8 * 8;  // keeps every section aligned
  return begin;
}

void IdPacker::lay_out_whole() {
  const std::int64_t batch = batch_.sparse.batch;
  for (std::size_t f = 0; f < cuts_.size(); ++f) {
    if (cuts_[f].path == Path::kSplit || cuts_[f].path == Path::kFetched) {
      continue;
    }
    const FeatureRoute& feature = routing_.features[f];
    SentSlot section;
    section.ids = bags_of(static_cast<std::int64_t>(f)).num_values();
    section.vectors = section.ids;  // of a sequence; otherwise counted below
    if (cuts_[f].path == Path::kWhole) {
      section.lengths_at = take_bytes(4 * batch);
      section.ids_at = take_bytes(id_bytes(static_cast<std::int64_t>(f)) * section.ids);
    }
    for (const SlotAddress& address : feature.slots) {
      sent(address) = section;
    }
  }
  grow(bytes_, num_bytes_);
}

void IdPacker::check_task(std::int64_t f, std::int64_t task) {
  const FeatureCut& cut = cuts_[at(f)];
  const Range bags = task_bags(cut, task);
  const JaggedView view = bags_of(f);
  check_ids(f, {view.offsets[at(bags.begin)], view.offsets[at(bags.end)]});
  const std::span counts(&counts_[at(cut.counts_begin + task * cut.shards)], at(cut.shards));
  if (cut.path == Path::kWhole) {
    pack_whole(f, bags, counts.front());
  } else if (cut.path == Path::kSplit) {
    count_split(f, bags, counts);
  }
}

/// `ids`: positions in the batch's values.
void IdPacker::check_ids(std::int64_t f, Range ids) const {
  const std::int64_t rows = route(f).num_embeddings;
  const JaggedView bags = bags_of(f);
  // The sign bit of an id or of its distance to the last row. Unsigned: it may overflow.
  const auto last = static_cast<std::uint64_t>(rows - 1);
  std::uint64_t outside = 0;
  for (std::int64_t i = ids.begin; i < ids.end; ++i) {
    const auto id = static_cast<std::uint64_t>(bags.values[i]);
    outside |= id | (last - id);
  }
  if (outside >> 63 == 0) {
    return;
  }
  const auto* const bad = std::find_if(bags.values + ids.begin, bags.values + ids.end,
                                       [rows](std::int64_t id) { return id < 0 || id >= rows; });
  const auto bag = std::upper_bound(bags.offsets.begin(), bags.offsets.end(), bad - bags.values);
  const std::int64_t b = bag - bags.offsets.begin() - 1;
  const std::int64_t sample = batch_.sample_ids.empty() ? b : batch_.sample_ids[at(b)];
  fail(ErrorCode::kData,
       "feature {}, sample {}: id {} is outside its table of {} rows; map ids with hash, "
       "modulo or vocabulary, or enlarge num_embeddings",
       route(f).name, sample, *bad, rows);
}

void IdPacker::pack_whole(std::int64_t f, Range bags, ShardCount& count) {
  const JaggedView view = bags_of(f);
  const SlotAddress& address = route(f).slots.front();
  const SentSlot& section = sent(address);
  auto* const lengths = reinterpret_cast<std::int32_t*>(bytes_.data() + section.lengths_at);
  std::int64_t non_empty = 0;
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    lengths[b] = static_cast<std::int32_t>(view.length(b));
    non_empty += lengths[b] > 0 ? 1 : 0;
  }
  count.bags = non_empty;
  const std::int64_t begin = view.offsets[at(bags.begin)] - view.offsets.front();
  const std::int64_t end = view.offsets[at(bags.end)] - view.offsets.front();
  const std::int64_t* const ids = view.values + view.offsets.front();
  visit_width(id_bytes(f), [&]<typename Id>(Id) {
    auto* const out = reinterpret_cast<Id*>(bytes_.data() + section.ids_at);
    for (std::int64_t i = begin; i < end; ++i) {
      out[i] = static_cast<Id>(ids[i]);
    }
  });
}

void IdPacker::count_split(std::int64_t f, Range bags, std::span<ShardCount> counts) const {
  const JaggedView view = bags_of(f);
  cuts_[at(f)].owner.visit([&](const auto& owner) {
    for (std::int64_t b = bags.begin; b < bags.end; ++b) {
      for (const std::int64_t id : view.bag(b)) {
        ShardCount& count = counts[owner.place_of(id).cut];
        ++count.ids;
        count.bags += count.last_bag == b ? 0 : 1;
        count.last_bag = b;
      }
    }
  });
}

/// Turns what tasks have counted into the places that they fill, and lays those out.
void IdPacker::join_counts() {
  fill_tasks_.clear();
  for (std::size_t f = 0; f < cuts_.size(); ++f) {
    const FeatureCut& cut = cuts_[f];
    const FeatureRoute& feature = routing_.features[f];
    bool fill = cut.path == Path::kSplit;
    if (cut.path == Path::kSplit) {
      lay_out_split(static_cast<std::int64_t>(f));
    } else if (cut.path == Path::kWhole && feature.pooling != spec::Pooling::kNone) {
      const ShardCount total = join_shard(cut, 0);
      fill = total.bags < batch_.sparse.batch;
      for (const SlotAddress& address : feature.slots) {
        sent(address).vectors = total.bags;
        sent(address).rows_at = fill ? num_rows_ : -1;
      }
      num_rows_ += fill ? total.bags : 0;
    }
    fill_tasks_.add(fill ? cut.tasks : 0);
  }
  for (std::size_t t = 0; t < unique_.size(); ++t) {
    lay_out_fetched(static_cast<std::int64_t>(t));
  }
  grow(rows_, num_rows_ + 1);  // so that an empty list is not null, which means all bags
  grow(bytes_, num_bytes_);
  grow(own_ids_, num_own_ids_);
  grow(own_offsets_, num_own_offsets_);
  for (std::size_t f = 0; f < cuts_.size(); ++f) {
    if (cuts_[f].path == Path::kSplit) {
      make_writers(static_cast<std::int64_t>(f));
    }
  }
}

/// Exclusive sums over the tasks; returns the total.
IdPacker::ShardCount IdPacker::join_shard(const FeatureCut& cut, std::int64_t shard) {
  ShardCount total;
  for (std::int64_t task = 0; task < cut.tasks; ++task) {
    ShardCount& count = counts_[at(cut.counts_begin + task * cut.shards + shard)];
    const ShardCount before{
        .first_id = total.ids, .first_bag = total.bags, .ids = total.ids, .bags = total.bags};
    total.ids += count.ids;
    total.bags += count.bags;
    count = before;
  }
  return total;
}

const IdPacker::OwnCut* IdPacker::own_cut(const FeatureCut& cut, std::int64_t row_cut) const {
  for (const OwnCut& own : cut.own) {
    if (own.row_cut == row_cut) {
      return &own;
    }
  }
  return nullptr;
}

void IdPacker::lay_out_split(std::int64_t f) {
  const FeatureRoute& feature = route(f);
  const FeatureCut& cut = cuts_[at(f)];
  const bool sequence = feature.pooling == spec::Pooling::kNone;
  for (std::int64_t k = 0; k < cut.shards; ++k) {
    const std::span addresses = feature.row_cut(k);
    const Slot& slot = routing_.slot(addresses.front());
    const OwnCut* const own = own_cut(cut, k);
    const ShardCount total = join_shard(cut, k);
    SentSlot section{.ids = total.ids, .vectors = sequence ? total.ids : total.bags};
    section.rows_at = num_rows_;
    num_rows_ += section.vectors;
    section.lengths_at = take_bytes(4 * batch_.sparse.batch);
    section.ids_at = take_bytes(slot.id_bytes * total.ids);
    const bool sent_away = own == nullptr || addresses.size() > 1;
    section.weights_at = slot.weighted && sent_away ? take_bytes(4 * total.ids) : -1;
    for (const SlotAddress& address : addresses) {
      sent(address) = section;
    }
    if (own != nullptr) {
      lay_out_own(own->address, total);
    }
  }
}

void IdPacker::lay_out_own(const SlotAddress& address, const ShardCount& total) {
  const Slot& slot = routing_.slot(address);
  const std::int64_t batch = batch_.sparse.batch;
  IncomingBlock& block = own_blocks_[own_index(address)];
  block = {.origin = IdOrigin::kPacked, .ids_begin = num_own_ids_, .num_ids = total.ids};
  block.vectors = block.gradients = slot.sequence ? total.ids : total.bags;
  block.weights_begin = slot.weighted ? num_own_ids_ : -1;
  if (slot.weighted) {
    grow(own_weights_, num_own_ids_ + total.ids);
  }
  num_own_ids_ += total.ids;
  block.gradient = {batch, num_own_offsets_};
  num_own_offsets_ += batch + 1;
  block.lookup = block.gradient;
  if (!slot.sequence) {
    block.lookup = {total.bags, num_own_offsets_};
    num_own_offsets_ += total.bags + 1;
  }
}

void IdPacker::make_writers(std::int64_t f) {
  const FeatureRoute& feature = route(f);
  const FeatureCut& cut = cuts_[at(f)];
  for (std::int64_t k = 0; k < cut.shards; ++k) {
    const SlotAddress& address = feature.row_cut(k).front();
    const Slot& slot = routing_.slot(address);
    const SentSlot& section = sent(address);
    Writer& writer = writers_[at(cut.writers_begin + k)];
    writer = {.lengths = reinterpret_cast<std::int32_t*>(bytes_.data() + section.lengths_at),
              .ids = bytes_.data() + section.ids_at,
              .weights = nullptr,
              .rows = rows_.data() + section.rows_at};
    const OwnCut* const own = own_cut(cut, k);
    if (own != nullptr) {
      own_offsets_[at(own_block(own->address).gradient.offsets_begin)] = 0;
      own_offsets_[at(own_block(own->address).lookup.offsets_begin)] = 0;
    }
    if (slot.weighted) {
      writer.weights = section.weights_at < 0
                           ? own_weights_.data() + own_block(own->address).weights_begin
                           : reinterpret_cast<float*>(bytes_.data() + section.weights_at);
    }
  }
}

void IdPacker::fill_task(std::int64_t f, std::int64_t task) {
  const FeatureCut& cut = cuts_[at(f)];
  const std::span places(&counts_[at(cut.counts_begin + task * cut.shards)], at(cut.shards));
  if (cut.path == Path::kSplit) {
    fill_split(f, task_bags(cut, task), places);
  } else {
    list_rows(f, task_bags(cut, task), places.front().bags);
  }
}

/// The non-empty bags of a whole feature that has empty ones.
void IdPacker::list_rows(std::int64_t f, Range bags, std::int64_t place) {
  const JaggedView view = bags_of(f);
  std::int32_t* next = rows_.data() + sent(route(f).slots.front()).rows_at + place;
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    if (view.length(b) > 0) {
      *next++ = static_cast<std::int32_t>(b);
    }
  }
}

/// Every id to its shard, keeping the order inside the bag. Which shard is next cannot be guessed,
/// so nothing here branches on it.
template <bool kSequence, typename Owner, typename StoreId>
void IdPacker::split_bags(std::int64_t f,
                          Range bags,
                          std::span<ShardCount> places,
                          const Owner& owner,
                          const StoreId& store) {
  const JaggedView view = bags_of(f);
  const FeatureCut& cut = cuts_[at(f)];
  const std::span writers(&writers_[at(cut.writers_begin)], places.size());
  const bool weighted = routing_.slot(route(f).slots.front()).weighted;
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    for (std::int64_t i = view.offsets[at(b)]; i < view.offsets[at(b) + 1]; ++i) {
      const auto [k, row] = owner.place_of(view.values[i]);
      const Writer& writer = writers[k];
      ShardCount& place = places[k];
      if constexpr (kSequence) {
        writer.rows[place.ids] = static_cast<std::int32_t>(i - view.offsets.front());
      } else {
        const std::int64_t known = place.last_bag == b ? 1 : 0;
        writer.rows[place.bags - known] = static_cast<std::int32_t>(b);
        place.bags += 1 - known;
        place.last_bag = b;
      }
      ++writer.lengths[b];
      if (weighted) {
        writer.weights[place.ids] = view.weights[i];
      }
      store(k, place.ids, row);
      ++place.ids;
    }
  }
}

void IdPacker::fill_split(std::int64_t f, Range bags, std::span<ShardCount> places) {
  const FeatureCut& cut = cuts_[at(f)];
  const std::span writers(&writers_[at(cut.writers_begin)], places.size());
  for (const Writer& writer : writers) {
    std::fill_n(writer.lengths + bags.begin, bags.size(), 0);
  }
  const bool sequence = route(f).pooling == spec::Pooling::kNone;
  visit_width(id_bytes(f), [&]<typename Id>(Id) {
    const auto store = [&](std::size_t k, std::int64_t place, std::int64_t id) {
      reinterpret_cast<Id*>(writers[k].ids)[place] = static_cast<Id>(id);
    };
    cut.owner.visit([&](const auto& owner) {
      sequence ? split_bags<true>(f, bags, places, owner, store)
               : split_bags<false>(f, bags, places, owner, store);
    });
  });
  for (const OwnCut& own : cut.own) {
    fill_own(f, bags, own, places[at(own.row_cut)]);
  }
}

/// The own shard's ids as lookups take them, from those that are sent to the others of its rows.
void IdPacker::fill_own(std::int64_t f, Range bags, const OwnCut& cut, const ShardCount& place) {
  const Slot& slot = routing_.slot(cut.address);
  const IncomingBlock& block = own_block(cut.address);
  const Writer& writer = writers_[at(cuts_[at(f)].writers_begin + cut.row_cut)];
  const Range own{place.first_id, place.ids};
  std::int64_t* const ids = own_ids_.data() + block.ids_begin;
  visit_width(slot.id_bytes, [&]<typename Id>(Id) {
    const auto* const narrow = reinterpret_cast<const Id*>(writer.ids);
    std::copy(narrow + own.begin, narrow + own.end, ids + own.begin);
  });
  if (slot.weighted && sent(cut.address).weights_at >= 0) {
    std::copy(writer.weights + own.begin, writer.weights + own.end,
              own_weights_.data() + block.weights_begin + own.begin);
  }
  // Every task writes the offsets behind its bags.
  std::int64_t* const gradient = own_offsets_.data() + block.gradient.offsets_begin;
  std::int64_t offset = place.first_id;
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    offset += writer.lengths[b];
    gradient[b + 1] = offset;
  }
  std::int64_t* const lookup = own_offsets_.data() + block.lookup.offsets_begin;
  for (std::int64_t v = place.first_bag; v < place.bags && !slot.sequence; ++v) {
    lookup[v + 1] = gradient[writer.rows[v] + 1];
  }
}

/// Of what is sent, once nobody needs the lengths as they are.
void IdPacker::narrow_lengths_of(std::int64_t f) {
  const FeatureCut& cut = cuts_[at(f)];
  const FeatureRoute& feature = route(f);
  const auto narrow = [&](std::span<const SlotAddress> addresses) {
    auto* const lengths =
        reinterpret_cast<std::int32_t*>(bytes_.data() + sent(addresses.front()).lengths_at);
    const std::int32_t bytes = narrow_lengths(lengths, batch_.sparse.batch);
    for (const SlotAddress& address : addresses) {
      sent(address).length_bytes = bytes;
    }
  };
  if (cut.path == Path::kWhole) {
    narrow(feature.slots);
  } else if (cut.path == Path::kSplit) {
    for (std::int64_t k = 0; k < cut.shards; ++k) {
      if (own_cut(cut, k) == nullptr || feature.row_cut(k).size() > 1) {
        narrow(feature.row_cut(k));
      }
    }
  }
}

/// The rows of fetched tables, a task each; ids have been checked.
void IdPacker::find_unique(ThreadPool& pool) {
  if (unique_.empty()) {
    return;
  }
  places_.resize(batch_.sparse.values.size());
  pool.parallel_for(static_cast<std::int64_t>(unique_.size()),
                    [this](std::int64_t t) { unique_[at(t)].find(batch_, places_); });
}

void IdPacker::lay_out_fetched(std::int64_t fetch) {
  for (const SlotAddress& address : routing_.fetches[at(fetch)].slots) {
    const std::int64_t cut = row_cut(routing_.slot(address));
    const UniqueRows& rows = unique_[at(fetch)];
    sent(address) = {.ids = rows.entries(cut), .vectors = rows.vectors(cut)};
    if (!routing_.served_by(address, rank_)) {
      continue;
    }
    const auto runs = static_cast<std::int64_t>(rows.lengths(cut).size());
    IncomingBlock& block = own_blocks_[own_index(address)];
    block = {.origin = IdOrigin::kPacked,
             .ids_begin = num_own_ids_,
             .num_ids = rows.entries(cut),
             .lookup = {runs / 2, num_own_offsets_},
             .gradient = {runs, num_own_offsets_},
             .vectors = rows.vectors(cut),
             .gradients = rows.entries(cut)};
    num_own_ids_ += rows.entries(cut);
    num_own_offsets_ += runs + 1;
  }
}

void IdPacker::fill_own_fetched(std::int64_t fetch) {
  for (const SlotAddress& address : routing_.fetches[at(fetch)].slots) {
    if (!routing_.served_by(address, rank_)) {
      continue;
    }
    const std::int64_t cut = row_cut(routing_.slot(address));
    const UniqueRows& rows = unique_[at(fetch)];
    const IncomingBlock& block = own_block(address);
    std::copy_n(rows.ids(cut), block.num_ids, own_ids_.data() + block.ids_begin);
    std::int64_t* offset = own_offsets_.data() + block.gradient.offsets_begin;
    *offset = 0;
    for (const std::int32_t length : rows.lengths(cut)) {
      offset[1] = offset[0] + length;
      ++offset;
    }
  }
}

/// Lengths of the runs, and ids.
void IdPacker::add_fetched_pieces(const Slot& slot, std::vector<comm::Piece>& pieces) const {
  const UniqueRows& rows = unique(slot);
  const std::int64_t cut = row_cut(slot);
  const std::span<const std::int32_t> lengths = rows.lengths(cut);
  const std::span<const std::byte> ids = rows.wire_ids(cut);
  // Only read.
  pieces.push_back(
      {const_cast<std::int32_t*>(lengths.data()), static_cast<std::int64_t>(lengths.size_bytes())});
  pieces.push_back({const_cast<std::byte*>(ids.data()), std::ssize(ids)});
}

void IdPacker::describe_lanes() {
  const KeyedJaggedView& sparse = batch_.sparse;
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    auto& pieces = pieces_[at(r)];
    pieces.clear();
    for (std::size_t j = 0; j < sent_[at(r)].size() && r != rank_; ++j) {
      const Slot& slot = routing_.served[at(r)][j];
      const SentSlot& section = sent_[at(r)][j];
      if (slot.of_rows()) {
        add_fetched_pieces(slot, pieces);
        continue;
      }
      pieces.push_back({bytes_.data() + section.lengths_at, section.length_bytes * sparse.batch});
      pieces.push_back({bytes_.data() + section.ids_at, slot.id_bytes * section.ids});
      if (slot.weighted && section.weights_at < 0) {
        const float* const weights = sparse.weights.data() + bags_of(slot.feature).offsets.front();
        pieces.push_back({const_cast<float*>(weights), 4 * section.ids});  // only read
      } else if (slot.weighted) {
        pieces.push_back({bytes_.data() + section.weights_at, 4 * section.ids});
      }
    }
  }
}

}  // namespace weft::sharding
