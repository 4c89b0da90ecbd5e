#include "weft/storage/row_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/storage/row_cache_batch.h"

namespace weft::storage {
namespace {

static_assert(sizeof(kernels::SlotMark) == sizeof(std::uint64_t), "layout::CacheLengths::marks");

}  // namespace

RowCache::RowCache(Device& device,
                   const RowCacheOptions& options,
                   RowBacking& backing,
                   RowMaker maker)
    : device_(device),
      options_(options),
      backing_(backing),
      maker_(std::move(maker)),
      store_(device, options.table, options.shape.slots(), options.cols),
      index_(device),
      free_(options.shape.slots()) {
  const layout::CacheShape& shape = options_.shape;
  WEFT_CHECK(shape.sets > 0 && (shape.ways == 8 || shape.ways == 32) && shape.spill >= 0 &&
                 shape.slots() < std::numeric_limits<std::int32_t>::max(),
             "{} sets of {} ways and {} slots behind them", shape.sets, shape.ways, shape.spill);
  WEFT_CHECK(options_.half_life > 0, "a half-life of {} batches", options_.half_life);
  WEFT_CHECK(backing_.row_bytes() == row_bytes(), "rows of {} bytes over rows of {}", row_bytes(),
             backing_.row_bytes());
  index_.resize_for<std::byte>(layout::total_bytes(layout::cache_lengths(shape)));
  run_as_stage(*make_inline_stream(device_), [this](Context& ctx) {
    const kernels::CacheClear job{slots()};
    kernels::clear_cache(ctx, std::span(&job, 1));
  });
}

RowCache::~RowCache() = default;

std::unique_ptr<ResidentRows> RowCache::make_batch() {
  return make_batch(Order::kBehind);
}

std::unique_ptr<ResidentRows> RowCache::make_inserted_batch() {
  return make_batch(Order::kBefore);
}

std::unique_ptr<ResidentRows> RowCache::make_batch(Order order) {
  const Lock lock(mutex_);
  WEFT_CHECK(made_batches_ < std::numeric_limits<std::uint8_t>::max(),
             "more than {} batches of table '{}'", made_batches_, options_.table.name);
  ++made_batches_;
  return std::make_unique<Batch>(*this, order);
}

std::int64_t RowCache::bytes() const {
  return layout::cache_bytes(options_.table, options_.cols, options_.shape);
}

TierCounts RowCache::counts() const {
  const Lock lock(mutex_);
  return counts_;
}

kernels::CacheSlots RowCache::slots() const {
  const layout::CacheLengths lengths = layout::cache_lengths(options_.shape);
  auto* const rows = index_.as<std::byte>();
  std::byte* const marks = rows + lengths.rows.bytes();
  std::byte* const nexts = marks + lengths.marks.bytes();
  std::byte* const heads = nexts + lengths.nexts.bytes();
  return {.sets = options_.shape.sets,
          .ways = options_.shape.ways,
          .spill = options_.shape.spill,
          .rows = reinterpret_cast<std::int64_t*>(rows),
          .marks = reinterpret_cast<kernels::SlotMark*>(marks),
          .heads = reinterpret_cast<std::int32_t*>(heads),
          .nexts = reinterpret_cast<std::int32_t*>(nexts)};
}

kernels::RowMove RowCache::move(std::int64_t count,
                                const std::int64_t* slots,
                                const std::byte* packed) const {
  return {.table = store_.view(),
          .state_floats = store_.state_floats(),
          .count = count,
          .slots = slots,
          .packed = const_cast<std::byte*>(packed)};  // written by pack_rows() alone
}

/// Slots that a batch may pin, with the lock: as many as earlier ones lack are kept for them.
std::int64_t RowCache::room_for(const Batch& batch) const {
  std::int64_t room = free_;
  for (const Batch* earlier : batches_) {
    if (earlier == &batch) {
      break;
    }
    room -= earlier->lacking();
  }
  return std::max<std::int64_t>(room, 0);
}

/// Whether a batch that is looked up finds slots for all that it lacks.
bool RowCache::has_room_for(const Batch& batch) const {
  const Lock lock(mutex_);
  return free_ >= batch.lacking();
}

/// Takes the pins of batches behind `batch` that have not been looked up, from the last on, until
/// there is room for what it lacks: rows that others have pinned cost a batch no room, so it may
/// hold slots that were kept for one before it. Waits for fetches that have begun: these wait for
/// nobody who waits here, since `batch` is not in the gate and reads nothing.
void RowCache::take_back_pins(Context& ctx, const Batch& batch) {
  Lock lock(mutex_);
  const auto behind = [&] { return std::find(batches_.begin(), batches_.end(), &batch) + 1; };
  changed_.wait(lock, [&] {
    return failure_ || free_ >= batch.lacking() ||
           std::none_of(behind(), batches_.end(),
                        [](const Batch* other) { return other->is_being_fetched(); });
  });
  check_failure();
  for (auto last = batches_.end(); last != behind() && free_ < batch.lacking(); --last) {
    Batch& other = **std::prev(last);
    if (other.may_lose_pins()) {
      other.lose_pins(ctx);
    }
  }
}

/// With the lock.
void RowCache::check_failure() const {
  if (failure_) {
    std::rethrow_exception(failure_);
  }
}

void RowCache::note_failure(std::exception_ptr failure) {
  const Lock lock(mutex_);
  if (!failure_) {
    failure_ = std::move(failure);
  }
  changed_.notify_all();
}

/// Gives changed rows to the slower memory, a bounded number at a time. Within the gate; lists are
/// on the device.
void RowCache::write_back(Context& ctx,
                          std::int64_t count,
                          const std::int64_t* rows,
                          const std::int64_t* slots) {
  const std::int64_t at_once = layout::rows_read_at_once(row_bytes());
  for (std::int64_t begin = 0; begin < count; begin += at_once) {
    const std::int64_t n = std::min(at_once, count - begin);
    auto* const packed = leaving_packed_.at_least_of<std::byte>(n * row_bytes());
    auto* const numbers = leaving_rows_.at_least_of<std::int64_t>(n);
    const kernels::RowMove job = move(n, slots + begin, packed);
    kernels::pack_rows(ctx, std::span(&job, 1));
    ctx.device->copy_to_host(ctx, numbers, rows + begin, n * std::int64_t{8});
    backing_.write(std::span<const std::int64_t>(numbers, at(n)), packed);
  }
}

/// With the lock, which it gives up meanwhile.
void RowCache::wait_for_loads(Lock& lock, std::uint64_t before) const {
  changed_.wait(lock, [&] { return failure_ || loads_.empty() || loads_.front() >= before; });
  check_failure();
}

/// With the lock.
void RowCache::end_load(std::uint64_t ticket) {
  std::erase(loads_, ticket);
  changed_.notify_all();
}

}  // namespace weft::storage
