// begin_fetch: distinct rows;  within the gate: look up, pin, take slots, write back what leaves
//   them;  begin to read
// finish_fetch: chunk by chunk: wait, unpack, begin the next;  make what nobody has;  wait for rows
//   that other batches were reading;  ids in slots
// begin_fetch_late, fetch_late: the same of what lacks a slot

#include "weft/storage/row_cache_batch.h"

#include <algorithm>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/kernels/row_moves.h"

namespace weft::storage {

RowCache::Batch::Batch(RowCache& cache, Order order)
    : cache_(cache),
      order_(order),
      stream_(make_inline_stream(cache.device_)),
      reads_(cache.backing_.make_reads()),
      buffers_(cache.device_),
      slots_(cache.device_),
      ids_(cache.device_),
      selected_(cache.device_),
      placed_rows_(cache.device_),
      placed_slots_(cache.device_),
      leaving_rows_(cache.device_),
      leaving_slots_(cache.device_),
      absent_(cache.device_) {
}

RowCache::Batch::~Batch() {
  try {
    release(Release::kUnchanged);
  } catch (...) {  // whoever calls the cache next gets it
    cache_.note_failure(std::current_exception());
  }
  const Lock lock(cache_.mutex_);
  --cache_.made_batches_;
}

void RowCache::Batch::begin_fetch(Context& ctx, std::span<const kernels::Bags> rows) {
  WEFT_CHECK(!is_held_, "a batch of table '{}' fetches again before its release",
             cache_.options_.table.name);
  const kernels::DistinctJob job{
      .lists = rows, .rows = cache_.options_.rows, .buffers = &buffers_, .distinct = &distinct_};
  kernels::find_distinct_rows(ctx, std::span(&job, 1));
  list_ids_.clear();
  for (const kernels::Bags& bags : rows) {
    list_ids_.push_back(bags.ids);
  }
  slots_.resize_for(layout::batch_slot_lengths(distinct_.num_ids, distinct_.num_rows).slots);
  is_translated_ = false;
  load_ = {};
  take(ctx, Pass::kFirst);
}

/// Within the gate. What is read is on its way when it returns.
void RowCache::Batch::take(Context& ctx, Pass pass) {
  const Exclusive gate(cache_);
  std::int64_t leaving = 0;
  {
    const Lock lock(cache_.mutex_);
    const bool is_anew = pass == Pass::kFirst || phase_ == Phase::kLost;
    if (pass == Pass::kFirst) {
      time_ = {.policy = cache_.options_.policy,
               .now = ++cache_.now_,
               .half_life = static_cast<std::uint32_t>(cache_.options_.half_life)};
      is_held_ = true;
      cache_.batches_.insert(
          order_ == Order::kBefore ? cache_.batches_.begin() : cache_.batches_.end(), this);
    }
    phase_ = pass == Pass::kFirst ? Phase::kFetching : Phase::kInUse;
    if (is_anew) {
      lacking_ = distinct_.num_rows;
      has_pins_ = true;
      cache_.counts_.asked += pass == Pass::kFirst ? distinct_.num_rows : lost_;
    }
    const std::int64_t room = cache_.room_for(*this);
    kernels::CacheTaken taken;
    const kernels::CacheTake job{
        .cache = cache_.slots(),
        .time = time_,
        .which = is_anew ? kernels::CacheRows::kAll : kernels::CacheRows::kLacking,
        .count = distinct_.num_rows,
        .rows = distinct_.rows,
        .slots = slots_.as<std::int64_t>(),
        .room = room,
        .taken = &taken};
    kernels::take_cached_rows(ctx, std::span(&job, 1));
    cache_.free_ -= taken.fresh;
    cache_.counts_.hits += taken.found;
    lacking_ -= taken.found;
    load_.waits_before = taken.loading > 0 ? cache_.next_ticket_ : 0;
    leaving = place(ctx, pass, room - taken.fresh);
  }
  try {
    cache_.write_back(ctx, leaving, leaving_rows_.as<std::int64_t>(),
                      leaving_slots_.as<std::int64_t>());
    begin_reads(ctx);
  } catch (...) {
    cache_.note_failure(std::current_exception());
    throw;
  }
}

/// With the cache's lock. Returns how many changed rows leave their slots.
std::int64_t RowCache::Batch::place(Context& ctx, Pass pass, std::int64_t room) {
  load_.rows = load_.begun = load_.done = 0;
  if (lacking_ == 0) {
    return 0;
  }
  const auto lengths = layout::moved_row_lengths(std::min(lacking_, room));
  kernels::CachePlaced placed;
  const kernels::CachePlace job{.cache = cache_.slots(),
                                .time = time_,
                                .count = distinct_.num_rows,
                                .rows = distinct_.rows,
                                .slots = slots_.as<std::int64_t>(),
                                .room = room,
                                .hands = &cache_.hands_,
                                .placed_rows = placed_rows_.resize_for(lengths.placed_rows),
                                .placed_slots = placed_slots_.resize_for(lengths.placed_slots),
                                .leaving_rows = leaving_rows_.resize_for(lengths.leaving_rows),
                                .leaving_slots = leaving_slots_.resize_for(lengths.leaving_slots),
                                .result = &placed};
  kernels::place_rows(ctx, std::span(&job, 1));
  lacking_ -= placed.placed;
  cache_.free_ -= placed.placed;
  cache_.counts_.spilled += placed.spilled;
  cache_.counts_.evicted += placed.evicted;
  cache_.counts_.written += placed.changed;
  cache_.counts_.late += pass == Pass::kFirst ? lacking_ : 0;
  if (placed.placed > 0) {
    load_.rows = placed.placed;
    load_.is_open = true;
    load_.ticket = cache_.next_ticket_++;
    cache_.loads_.push_back(load_.ticket);
  }
  return placed.changed;
}

void RowCache::Batch::begin_reads(Context& ctx) {
  if (load_.rows == 0) {
    return;
  }
  const std::int64_t bytes = load_.rows * std::int64_t{8};
  auto* const rows = host_placed_.at_least_of<std::int64_t>(2 * load_.rows);
  ctx.device->copy_to_host(ctx, rows, placed_rows_.as<void>(), bytes);
  ctx.device->copy_to_host(ctx, rows + load_.rows, placed_slots_.as<void>(), bytes);
  begin_chunk();
}

void RowCache::Batch::begin_chunk() {
  const std::int64_t count =
      std::min(load_.rows - load_.done, layout::rows_read_at_once(cache_.row_bytes()));
  auto* const packed = packed_.at_least_of<std::byte>(count * cache_.row_bytes());
  found_.at_least(count);
  const auto* const rows = static_cast<const std::int64_t*>(host_placed_.data());
  reads_->begin(std::span(rows + load_.done, at(count)), packed);
  load_.begun = load_.done + count;
}

void RowCache::Batch::finish_fetch(Context& ctx) {
  finish_load(ctx);
  if (cache_.options_.left_out == CacheLeftOut::kPins) {
    give_up_pins(ctx, Release::kUnchanged);
  }
  if (lacking_ == 0) {
    translate(ctx);
  }
  const Lock lock(cache_.mutex_);
  phase_ = Phase::kFetched;
  cache_.changed_.notify_all();
}

/// Puts rows into their slots, and waits for those that other batches put there.
void RowCache::Batch::finish_load(Context& ctx) {
  if (load_.is_open) {
    try {
      while (load_.done < load_.rows) {
        put_chunk(ctx);
      }
    } catch (...) {
      cache_.note_failure(std::current_exception());
      load_.done = load_.begun = load_.rows;
    }
  }
  Lock lock(cache_.mutex_);
  if (std::exchange(load_.is_open, false)) {
    const kernels::CacheMark job{.cache = cache_.slots(),
                                 .count = load_.rows,
                                 .slots = placed_slots_.as<std::int64_t>(),
                                 .clear = kernels::SlotFlag::kLoading};
    kernels::mark_slots(ctx, std::span(&job, 1));
    cache_.end_load(load_.ticket);
  }
  cache_.wait_for_loads(lock, std::exchange(load_.waits_before, 0));
}

/// Rows that have been read into their slots; the next ones are on their way when it returns.
void RowCache::Batch::put_chunk(Context& ctx) {
  if (load_.begun == load_.done) {
    begin_chunk();
  }
  const std::int64_t count = load_.begun - load_.done;
  const std::span found(static_cast<std::uint8_t*>(found_.data()), at(count));
  reads_->wait(found);
  const auto held = std::count(found.begin(), found.end(), std::uint8_t{1});
  if (held > 0) {  // what lies between them is overwritten below
    const kernels::RowMove job = cache_.move(count, placed_slots_.as<std::int64_t>() + load_.done,
                                             static_cast<const std::byte*>(packed_.data()));
    kernels::unpack_rows(ctx, std::span(&job, 1));
  }
  if (held < count) {
    make_absent(ctx, found);
  }
  {
    const Lock lock(cache_.mutex_);
    cache_.counts_.read += held;
    cache_.counts_.made += count - held;
  }
  load_.done = load_.begun;
  if (load_.done < load_.rows) {
    begin_chunk();
  }
}

void RowCache::Batch::make_absent(Context& ctx, std::span<const std::uint8_t> found) {
  const auto* const rows = static_cast<const std::int64_t*>(host_placed_.data()) + load_.done;
  const std::int64_t* const slots = rows + load_.rows;
  const std::int64_t count = std::count(found.begin(), found.end(), std::uint8_t{0});
  auto* const absent = host_absent_.at_least_of<std::int64_t>(2 * count);
  std::int64_t k = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == 0) {
      absent[k] = rows[i];
      absent[count + k] = slots[i];
      ++k;
    }
  }
  auto* const there = absent_.resize_for<std::int64_t>(2 * count);
  ctx.device->copy_to_device(ctx, there, absent, 2 * count * std::int64_t{8});
  cache_.maker_(ctx, cache_.view(), std::span(there, at(count)),
                std::span(there + count, at(count)));
}

void RowCache::Batch::translate(Context& ctx) {
  if (std::exchange(is_translated_, true)) {
    return;
  }
  const kernels::PlaceSlots job{
      .count = distinct_.num_ids,
      .places = distinct_.places,
      .slots = slots_.as<std::int64_t>(),
      .out =
          ids_.resize_for(layout::batch_slot_lengths(distinct_.num_ids, distinct_.num_rows).ids)};
  kernels::slots_of_places(ctx, std::span(&job, 1));
}

/// From here on its rows stay in their slots.
void RowCache::Batch::enter_use() {
  const Lock lock(cache_.mutex_);
  if (phase_ == Phase::kFetched) {
    phase_ = Phase::kInUse;
  }
}

/// Leaves what has to wait for pins to fetch_late(): the fetch that it would wait for may wait for
/// late rows of another table, which nobody finishes meanwhile.
void RowCache::Batch::begin_fetch_late(Context& ctx) {
  const std::lock_guard one(late_);
  enter_use();
  if (lacking_ > 0 && !is_late_ && cache_.has_room_for(*this)) {
    take(ctx, Pass::kLate);
    is_late_ = true;
  }
}

void RowCache::Batch::fetch_late(Context& ctx) {
  const std::lock_guard one(late_);
  enter_use();
  if (std::exchange(is_late_, false)) {
    finish_load(ctx);
  }
  if (lacking_ > 0) {
    cache_.take_back_pins(ctx, *this);
    take(ctx, Pass::kLate);
    finish_load(ctx);
  }
  if (lacking_ > 0) {
    const spec::Table& table = cache_.options_.table;
    const std::int64_t slots = cache_.shape().slots();
    const std::int64_t bytes = layout::cache_bytes(table, cache_.options_.cols,
                                                   {.sets = cache_.shape().sets,
                                                    .ways = cache_.shape().ways,
                                                    .spill = cache_.shape().spill + lacking_});
    fail(
        ErrorCode::kResource,
        "the cache of table '{}' has {} slots, and no room for {} of the {} rows of a batch: raise "
        "tables[].memory.cache_bytes of '{}' to {} ({}) at least, use a smaller batch, or more "
        "ranks",
        table.name, slots, lacking_, distinct_.num_rows, table.name, bytes,
        format_bytes(static_cast<std::uint64_t>(bytes)));
  }
  translate(ctx);
}

kernels::Bags RowCache::Batch::resolve(std::size_t list, const kernels::Bags& bags) const {
  WEFT_CHECK(is_held_ && is_translated_ && list < list_ids_.size() && bags.ids == list_ids_[list],
             "list {} of a batch of table '{}' is looked up before fetch_late(), or is another",
             list, cache_.options_.table.name);
  kernels::Bags slots = bags;
  slots.ids = distinct_.num_ids == 0 ? nullptr : ids_.as<std::int64_t>() + distinct_.shifts[list];
  return slots;
}

std::span<const std::int64_t> RowCache::Batch::resolve(Context& ctx,
                                                       std::span<const std::int64_t> rows) {
  if (std::ssize(rows) == distinct_.num_rows) {
    return {slots_.as<std::int64_t>(), rows.size()};  // all of them
  }
  const auto length = layout::batch_slot_lengths(distinct_.num_ids, std::ssize(rows)).selected;
  const kernels::RowSlots job{.known = distinct_.num_rows,
                              .known_rows = distinct_.rows,
                              .slots = slots_.as<std::int64_t>(),
                              .count = std::ssize(rows),
                              .rows = rows.data(),
                              .out = selected_.resize_for(length)};
  kernels::slots_of_rows(ctx, std::span(&job, 1));
  return {job.out, rows.size()};
}

void RowCache::Batch::lose_pins(Context& ctx) {
  unpin(ctx, Release::kUnchanged);
  lost_ = distinct_.num_rows - lacking_;
  lacking_ = distinct_.num_rows;
  is_translated_ = false;
  phase_ = Phase::kLost;
}

void RowCache::Batch::give_up_pins(Context& ctx, Release how) {
  const Lock lock(cache_.mutex_);
  unpin(ctx, how);
}

/// With the cache's lock.
void RowCache::Batch::unpin(Context& ctx, Release how) {
  std::int64_t freed = 0;
  const kernels::CacheMark job{
      .cache = cache_.slots(),
      .count = distinct_.num_rows,
      .slots = slots_.as<std::int64_t>(),
      .set = how == Release::kUpdated ? kernels::SlotFlag::kChanged : kernels::SlotFlag::kNone,
      .pins =
          std::exchange(has_pins_, false) ? kernels::CachePins::kGiveUp : kernels::CachePins::kKeep,
      .freed = &freed};
  kernels::mark_slots(ctx, std::span(&job, 1));
  cache_.free_ += freed;
}

void RowCache::Batch::release(Release how) {
  if (!is_held_) {
    return;
  }
  run_as_stage(*stream_, [&](Context& ctx) {
    if (load_.is_open) {  // nobody has waited for it
      try {
        finish_load(ctx);
      } catch (...) {  // a later call throws it
      }
    }
    give_up_pins(ctx, how);
    const Lock lock(cache_.mutex_);
    std::erase(cache_.batches_, this);
    lacking_ = 0;
    is_late_ = false;
    is_held_ = false;
    is_translated_ = false;
    phase_ = Phase::kNone;
    cache_.changed_.notify_all();
  });
}

}  // namespace weft::storage
