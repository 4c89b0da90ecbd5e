// The rows of a RowCache as state: those that are changed in their slots, and those that the slower
// memory holds.

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/storage/row_cache.h"
#include "weft/storage/row_cache_batch.h"

namespace weft::storage {
namespace {

constexpr std::int64_t kSlotsAtOnce = std::int64_t{1} << 16;
constexpr std::int64_t kRowsAtOnce = 4096;

/// Calls body(first, count) for pieces of `total` rows.
template <typename Body>
void in_pieces(std::int64_t total, std::int64_t most, const Body& body) {
  for (std::int64_t begin = 0; begin < total; begin += most) {
    body(begin, std::min(most, total - begin));
  }
}

}  // namespace

/// Reads and finds rows for one caller.
class RowCache::Reader {
 public:
  explicit Reader(const RowCache& cache)
      : cache_(cache),
        reads_(cache.backing_.make_reads()),
        numbers_(cache.device_),
        slots_(cache.device_),
        places_(cache.device_) {}

  /// At most kRowsAtOnce rows to `packed`.
  void read(Context& ctx, std::span<const std::int64_t> rows, std::byte* packed) {
    find(ctx, rows, kernels::SlotFlag::kLoading);
    std::vector<std::int64_t> places;  // of rows that lie in slots
    std::vector<std::int64_t> slots;
    std::vector<std::int64_t> below;
    std::vector<std::int64_t> below_places;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (found_[i] >= 0) {
        places.push_back(static_cast<std::int64_t>(i));
        slots.push_back(found_[i]);
      } else {
        below.push_back(rows[i]);
        below_places.push_back(static_cast<std::int64_t>(i));
      }
    }
    packed_.resize(rows.size() * at(cache_.row_bytes()));
    std::byte* const own = packed_.data();
    pack(ctx, cache_.store_, slots, own);
    spread(places, own, packed);
    std::vector<std::uint8_t> held(below.size());
    reads_->begin(below, own);
    reads_->wait(held);
    std::vector<std::int64_t> absent;
    places.clear();
    for (std::size_t i = 0; i < below.size(); ++i) {
      if (held[i] == 0) {
        absent.push_back(below[i]);
        places.push_back(below_places[i]);
      } else {
        copy(own + at(i) * at(cache_.row_bytes()), packed, below_places[i]);
      }
    }
    make(ctx, absent, own);
    spread(places, own, packed);
  }

  /// Rows that are not changed in a slot.
  void unchanged(Context& ctx,
                 std::span<const std::int64_t> rows,
                 std::vector<std::int64_t>& unchanged_rows) {
    find(ctx, rows, kernels::SlotFlag::kNone);
    const std::vector<std::int64_t> in_slots = found_;
    find(ctx, rows, kernels::SlotFlag::kChanged);
    unchanged_rows.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (in_slots[i] < 0 || found_[i] >= 0) {
        unchanged_rows.push_back(rows[i]);
      }
    }
  }

  /// Unpacks rows that lie in slots, which are then as below.
  void write(Context& ctx, std::span<const std::int64_t> rows, const std::byte* packed) {
    find(ctx, rows, kernels::SlotFlag::kNone);
    std::vector<std::int64_t> slots;
    packed_.resize(rows.size() * at(cache_.row_bytes()));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (found_[i] >= 0) {
        std::memcpy(packed_.data() + slots.size() * at(cache_.row_bytes()),
                    packed + i * at(cache_.row_bytes()), at(cache_.row_bytes()));
        slots.push_back(found_[i]);
      }
    }
    const auto* const there = place(ctx, slots_, slots);
    const kernels::RowMove job = cache_.move(std::ssize(slots), there, packed_.data());
    kernels::unpack_rows(ctx, std::span(&job, 1));
    const Lock lock(cache_.mutex_);
    const kernels::CacheMark mark{.cache = cache_.slots(),
                                  .count = std::ssize(slots),
                                  .slots = there,
                                  .clear = kernels::SlotFlag::kChanged};
    kernels::mark_slots(ctx, std::span(&mark, 1));
  }

 private:
  /// found_[i] is the slot of rows[i], or -1.
  void find(Context& ctx, std::span<const std::int64_t> rows, kernels::SlotFlag but) {
    const auto count = std::ssize(rows);
    const std::int64_t* const numbers = place(ctx, numbers_, rows);
    auto* const slots = slots_.resize_for<std::int64_t>(count);
    {
      const Lock lock(cache_.mutex_);
      const kernels::CacheProbe job{
          .cache = cache_.slots(), .count = count, .rows = numbers, .slots = slots, .but = but};
      kernels::probe_cache(ctx, std::span(&job, 1));
    }
    found_.resize(rows.size());
    ctx.device->copy_to_host(ctx, found_.data(), slots, count * std::int64_t{8});
  }

  static const std::int64_t* place(Context& ctx,
                                   Buffer& buffer,
                                   std::span<const std::int64_t> values) {
    auto* const there = buffer.resize_for<std::int64_t>(std::ssize(values));
    ctx.device->copy_to_device(ctx, there, values.data(), std::ssize(values) * std::int64_t{8});
    return there;
  }

  void pack(Context& ctx,
            const RowStore& store,
            std::span<const std::int64_t> slots,
            std::byte* packed) {
    const kernels::RowMove job{.table = store.view(),
                               .state_floats = store.state_floats(),
                               .count = std::ssize(slots),
                               .slots = place(ctx, places_, slots),
                               .packed = packed};
    kernels::pack_rows(ctx, std::span(&job, 1));
  }

  /// Initial values, in rows that are nobody's.
  void make(Context& ctx, std::span<const std::int64_t> rows, std::byte* packed) {
    if (rows.empty()) {
      return;
    }
    RowStore store(cache_.device_, cache_.options_.table, std::ssize(rows), cache_.options_.cols);
    std::vector<std::int64_t> slots(rows.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      slots[i] = static_cast<std::int64_t>(i);
    }
    cache_.maker_(ctx, store.view(), std::span(place(ctx, numbers_, rows), rows.size()),
                  std::span(place(ctx, slots_, slots), slots.size()));
    pack(ctx, store, slots, packed);
  }

  void copy(const std::byte* from, std::byte* packed, std::int64_t place) const {
    std::memcpy(packed + place * cache_.row_bytes(), from, at(cache_.row_bytes()));
  }

  void spread(std::span<const std::int64_t> places,
              const std::byte* from,
              std::byte* packed) const {
    for (std::size_t i = 0; i < places.size(); ++i) {
      copy(from + i * at(cache_.row_bytes()), packed, places[i]);
    }
  }

  const RowCache& cache_;
  std::unique_ptr<RowReads> reads_;
  Buffer numbers_, slots_, places_;
  std::vector<std::int64_t> found_;
  std::vector<std::byte> packed_;
};

/// Within the gate, or with it closed.
void RowCache::visit_changed(Context& ctx, const ChangedVisitor& visit) const {
  Buffer rows(device_);
  Buffer found(device_);
  in_pieces(options_.shape.slots(), kSlotsAtOnce, [&](std::int64_t begin, std::int64_t slots_here) {
    auto* const numbers = rows.resize_for<std::int64_t>(slots_here);
    auto* const places = found.resize_for<std::int64_t>(slots_here);
    std::int64_t count = 0;
    {
      const Lock lock(mutex_);
      const kernels::ChangedSlots job{.cache = slots(),
                                      .slots = {begin, begin + slots_here},
                                      .rows = numbers,
                                      .found = places,
                                      .count = &count};
      kernels::find_changed_slots(ctx, std::span(&job, 1));
    }
    if (count > 0) {
      visit(numbers, places, count);
    }
  });
}

void RowCache::drain() {
  const Exclusive gate(*this);
  try {
    run_as_stage(*make_inline_stream(device_), [this](Context& ctx) {
      visit_changed(ctx,
                    [&](const std::int64_t* rows, const std::int64_t* places, std::int64_t count) {
                      write_back(ctx, count, rows, places);
                      const Lock lock(mutex_);
                      const kernels::CacheMark job{.cache = slots(),
                                                   .count = count,
                                                   .slots = places,
                                                   .clear = kernels::SlotFlag::kChanged};
                      kernels::mark_slots(ctx, std::span(&job, 1));
                    });
    });
    backing_.drain();
  } catch (...) {
    note_failure(std::current_exception());
    throw;
  }
}

void RowCache::for_each_unwritten_row(const RowsVisitor& visit) const {
  const Shared gate(*this);
  std::vector<std::int64_t> rows;
  run_as_stage(*make_inline_stream(device_), [&](Context& ctx) {
    visit_changed(
        ctx, [&](const std::int64_t* numbers, const std::int64_t* /*places*/, std::int64_t count) {
          const std::size_t before = rows.size();
          rows.resize(before + at(count));
          ctx.device->copy_to_host(ctx, rows.data() + before, numbers, count * std::int64_t{8});
        });
  });
  if (!rows.empty()) {
    visit(rows);
  }
}

void RowCache::for_each_row(const RowsVisitor& visit) const {
  const Shared gate(*this);
  for_each_unwritten_row(visit);
  const std::unique_ptr<Stream> stream = make_inline_stream(device_);
  std::vector<std::int64_t> rows;
  Reader reader(*this);
  backing_.for_each_row([&](std::span<const std::int64_t> held) {
    in_pieces(std::ssize(held), kRowsAtOnce, [&](std::int64_t begin, std::int64_t count) {
      run_as_stage(*stream, [&](Context& ctx) {
        reader.unchanged(ctx, held.subspan(at(begin), at(count)), rows);
      });
      if (!rows.empty()) {
        visit(rows);
      }
    });
  });
}

void RowCache::read_rows(std::span<const std::int64_t> rows, std::byte* packed) const {
  const Shared gate(*this);
  const std::unique_ptr<Stream> stream = make_inline_stream(device_);
  Reader reader(*this);
  in_pieces(std::ssize(rows), kRowsAtOnce, [&](std::int64_t begin, std::int64_t count) {
    run_as_stage(*stream, [&](Context& ctx) {
      reader.read(ctx, rows.subspan(at(begin), at(count)), packed + begin * row_bytes());
    });
  });
}

void RowCache::write_rows(std::span<const std::int64_t> rows, const std::byte* packed) {
  const Exclusive gate(*this);
  {
    Lock lock(mutex_);
    wait_for_loads(lock, next_ticket_);
  }
  try {
    const std::unique_ptr<Stream> stream = make_inline_stream(device_);
    Reader reader(*this);
    in_pieces(std::ssize(rows), kRowsAtOnce, [&](std::int64_t begin, std::int64_t count) {
      const std::span some = rows.subspan(at(begin), at(count));
      backing_.write(some, packed + begin * row_bytes());
      run_as_stage(*stream,
                   [&](Context& ctx) { reader.write(ctx, some, packed + begin * row_bytes()); });
    });
  } catch (...) {
    note_failure(std::current_exception());
    throw;
  }
}

}  // namespace weft::storage
