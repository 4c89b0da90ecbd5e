#include "tests/pipeline/slow_store.h"

#include <algorithm>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::pipeline {

SlowStoreCounts& SlowStoreCounts::operator+=(const SlowStoreCounts& other) {
  early += other.early;
  late += other.late;
  evicted += other.evicted;
  buffered += other.buffered;
  reordered += other.reordered;
  return *this;
}

/// The rows of one batch in flight. The store's lock guards it.
class SlowStore::Batch final : public storage::ResidentRows {
 public:
  explicit Batch(SlowStore& store) : store_(store) {}

  ~Batch() override { release(storage::Release::kUnchanged); }

  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void begin_fetch(Context& ctx, std::span<const kernels::Bags> rows) override;
  void fetch_late(Context& ctx) override;
  void release(storage::Release how) override;

  [[nodiscard]] std::int64_t lacking() const { return lacking_; }

 private:
  struct Row {
    std::int64_t row = 0;
    bool is_pinned = false;
    std::int64_t staged = 0;  ///< with Broken::kLateOrder
  };

  void take_late(Lock& lock);

  SlowStore& store_;
  std::vector<Row> rows_;
  std::int64_t lacking_ = 0;
  bool is_taking_ = false;        // in fetch_late()
  bool is_short_ = false;         // of room, behind it
  std::uint64_t generation_ = 0;  // a control may fetch while fetch_late() waits
};

void SlowStore::Batch::begin_fetch(Context& /*ctx*/, std::span<const kernels::Bags> rows) {
  Lock lock(store_.mutex_);
  std::vector<std::int64_t> distinct;
  for (const kernels::Bags& bags : rows) {
    distinct.insert(distinct.end(), bags.ids + bags.offsets[0], bags.ids + bags.offsets[bags.bags]);
  }
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  rows_.clear();
  for (const std::int64_t row : distinct) {
    rows_.push_back({.row = row});
  }
  lacking_ = static_cast<std::int64_t>(rows_.size());
  is_short_ = false;
  store_.batches_.push_back(this);
  const std::uint64_t generation = ++generation_;
  for (std::size_t i = 0; generation == generation_ && i < rows_.size(); ++i) {
    const std::int64_t row = rows_[i].row;
    if (store_.take(lock, *this, row, nullptr)) {
      rows_[i].is_pinned = true;
      --lacking_;
      ++store_.counts_.early;
    } else if (store_.options_.broken == Broken::kLateOrder) {
      const std::int64_t slot = store_.places_[at(row)];
      rows_[i].staged = slot < 0 ? store_.read_below(lock, row) : store_.values_[at(slot)].version;
    }
  }
}

void SlowStore::Batch::fetch_late(Context& /*ctx*/) {
  Lock lock(store_.mutex_);
  store_.changed_.wait(lock, [this] { return !is_taking_; });  // another micro-batch's call
  is_taking_ = true;
  take_late(lock);
  is_taking_ = false;
  store_.changed_.notify_all();
  if (is_short_) {
    fail(ErrorCode::kResource, "{} slots have no room for {} of the {} rows of a batch",
         store_.slots_.size(), lacking_, rows_.size());
  }
}

void SlowStore::Batch::take_late(Lock& lock) {
  const std::uint64_t generation = generation_;
  for (std::size_t i = 0; generation == generation_ && i < rows_.size(); ++i) {
    if (rows_[i].is_pinned) {
      continue;
    }
    const std::int64_t row = rows_[i].row;
    const std::int64_t staged = rows_[i].staged;
    const bool is_staged = store_.options_.broken == Broken::kLateOrder;
    const bool has_slot = store_.take(lock, *this, row, is_staged ? &staged : nullptr);
    if (generation != generation_) {
      return;
    }
    if (!has_slot) {
      is_short_ = store_.options_.no_room == NoRoom::kThrow;
      continue;
    }
    rows_[i].is_pinned = true;
    --lacking_;
    ++store_.counts_.late;
  }
}

void SlowStore::Batch::release(storage::Release how) {
  const Lock lock(store_.mutex_);
  ++generation_;
  for (const Row& row : rows_) {
    const std::int64_t slot = store_.places_[at(row.row)];
    if (!row.is_pinned || slot < 0) {
      continue;
    }
    store_.slots_[at(slot)].is_changed |= how == storage::Release::kUpdated;
    if (store_.options_.broken != Broken::kPins) {
      --store_.slots_[at(slot)].pins;
    }
  }
  rows_.clear();
  lacking_ = 0;
  std::erase(store_.batches_, this);
  store_.changed_.notify_all();
}

SlowStore::SlowStore(const SlowStoreOptions& options)
    : options_(options),
      values_(at(options.slots)),
      slots_(at(options.slots)),
      places_(at(options.rows), -1),
      below_(at(options.rows), 0),
      random_(options.seed),
      writer_([this] { run_writer(); }) {
}

SlowStore::~SlowStore() {
  {
    const Lock lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  writer_.join();
}

std::unique_ptr<storage::ResidentRows> SlowStore::make_batch() {
  return std::make_unique<Batch>(*this);
}

/// Slots that a batch may still pin: as many as earlier ones lack are kept for them.
std::int64_t SlowStore::room_for(const Batch& batch) const {
  auto room = static_cast<std::int64_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.pins == 0; }));
  for (const Batch* earlier : batches_) {
    if (earlier == &batch || options_.broken == Broken::kRoom) {
      break;
    }
    room -= earlier->lacking();
  }
  return room;
}

/// A slot that nobody holds: an empty one, or any.
std::int64_t SlowStore::victim() {
  const auto first = static_cast<std::int64_t>(random_() % slots_.size());
  std::int64_t found = -1;
  for (std::int64_t i = 0; i < options_.slots; ++i) {
    const std::int64_t slot = (first + i) % options_.slots;
    const Slot& one = slots_[at(slot)];
    if (one.pins == 0 && !one.is_loading) {
      if (one.row < 0) {
        return slot;
      }
      found = found < 0 ? slot : found;
    }
  }
  return found;
}

/// Pins a row; false where it has no room. What is staged is taken in place of what lies below.
bool SlowStore::take(Lock& lock, const Batch& batch, std::int64_t row, const std::int64_t* staged) {
  const std::int64_t pin = options_.broken == Broken::kPins ? 0 : 1;
  for (;;) {
    const std::int64_t known = places_[at(row)];
    if (known >= 0) {
      if (slots_[at(known)].pins == 0 && room_for(batch) < 1) {
        return false;
      }
      slots_[at(known)].pins += pin;
      wait_for_loaded(lock, known);
      return true;
    }
    const std::int64_t slot = room_for(batch) < 1 ? -1 : victim();
    if (slot < 0) {
      return false;
    }
    if (!evict(lock, slot)) {
      continue;  // it has waited, and all may be different
    }
    slots_[at(slot)] = {.row = row, .pins = pin, .is_loading = true};
    places_[at(row)] = slot;
    const std::int64_t version = staged != nullptr ? *staged : read_below(lock, row);
    values_[at(slot)] = {row, version};
    slots_[at(slot)].is_loading = false;
    changed_.notify_all();
    return true;
  }
}

void SlowStore::wait_for_loaded(Lock& lock, std::int64_t slot) {
  changed_.wait(lock, [&] { return !slots_[at(slot)].is_loading; });
}

/// Empties a slot; false where it has waited for the write buffer instead.
bool SlowStore::evict(Lock& lock, std::int64_t slot) {
  Slot& one = slots_[at(slot)];
  if (one.row >= 0) {
    if (one.is_changed) {
      if (!write_back(lock, slot)) {
        return false;
      }
      ++counts_.evicted;
    }
    places_[at(one.row)] = -1;
  }
  one = {};
  return true;
}

/// Puts a copy of the row into the write buffer; false where it has waited for room there.
/// Writes of a row land in their order, those of different rows in any.
bool SlowStore::write_back(Lock& lock, std::int64_t slot) {
  if (static_cast<std::int64_t>(writes_.size()) >= options_.most_writes) {
    changed_.wait(lock);
    return false;
  }
  const Versioned value = values_[at(slot)];
  const std::int64_t row = slots_[at(slot)].row;
  Clock::time_point due = Clock::now() + draw(options_.write_delay);
  if (const auto before = pending_.find(row); before != pending_.end()) {
    due = std::max(due, before->second.due + std::chrono::microseconds(1));
  }
  const std::uint64_t number = next_write_++;
  pending_[row] = {.version = value.version, .number = number, .due = due};
  writes_.emplace(due, Write{.row = row, .version = value.version, .number = number});
  slots_[at(slot)].is_changed = false;
  changed_.notify_all();
  return true;
}

std::int64_t SlowStore::read_below(Lock& lock, std::int64_t row) {
  const auto pending = pending_.find(row);
  if (pending != pending_.end() && options_.broken != Broken::kWriteBuffer) {
    ++counts_.buffered;
    return pending->second.version;
  }
  const std::int64_t version = below_[at(row)];
  const std::chrono::microseconds delay =
      random_() % 8 == 0 ? draw(options_.read_delay) : std::chrono::microseconds(0);
  if (delay.count() > 0) {
    lock.unlock();
    std::this_thread::sleep_for(delay);
    lock.lock();
  }
  return version;
}

std::chrono::microseconds SlowStore::draw(std::chrono::microseconds longest) {
  return std::chrono::microseconds(random_() % static_cast<std::uint64_t>(longest.count() + 1));
}

void SlowStore::run_writer() {
  Lock lock(mutex_);
  while (!is_ending_) {
    if (writes_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = writes_.begin();
    if (Clock::now() < first->first) {
      const Clock::time_point due = first->first;
      changed_.wait_until(lock, due);
      continue;
    }
    const Write write = first->second;
    writes_.erase(first);
    below_[at(write.row)] = write.version;
    counts_.reordered += std::any_of(writes_.begin(), writes_.end(), [&](const auto& other) {
      return other.second.number < write.number;
    });
    if (const auto last = pending_.find(write.row); last->second.number == write.number) {
      pending_.erase(last);
    }
    changed_.notify_all();
  }
}

void SlowStore::drain() {
  Lock lock(mutex_);
  for (std::int64_t slot = 0; slot < options_.slots; ++slot) {
    wait_for_loaded(lock, slot);
    while (slots_[at(slot)].is_changed && !write_back(lock, slot)) {
    }
  }
  changed_.wait(lock, [&] { return writes_.empty(); });
}

Versioned SlowStore::read(std::int64_t row) {
  std::int64_t slot = 0;
  {
    const Lock lock(mutex_);
    slot = places_[at(row)];
  }
  return slot < 0 ? Versioned{} : values_[at(slot)];
}

void SlowStore::write(std::int64_t row, const Versioned& value) {
  std::int64_t slot = 0;
  {
    const Lock lock(mutex_);
    slot = places_[at(row)];
  }
  if (slot >= 0) {
    values_[at(slot)] = value;
  }
}

std::vector<std::int64_t> SlowStore::below() {
  const Lock lock(mutex_);
  return below_;
}

SlowStoreCounts SlowStore::counts() {
  const Lock lock(mutex_);
  return counts_;
}

}  // namespace weft::pipeline
