#include "tests/storage/row_cache_backing.h"

#include <algorithm>
#include <set>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::storage::test {

/// Rows are read in wait(): any time between the two calls is allowed.
class LateBacking::Reads final : public RowReads {
 public:
  explicit Reads(LateBacking& from) : from_(from) {}

  void begin(std::span<const std::int64_t> rows, std::byte* packed) override {
    rows_ = rows;
    packed_ = packed;
  }

  void wait(std::span<std::uint8_t> found) override {
    WEFT_CHECK(found.size() == rows_.size(), "{} rows are waited for, of {}", found.size(),
               rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      found[i] = from_.read(rows_[i], packed_ + i * at(from_.row_bytes())) ? 1 : 0;
    }
    rows_ = {};
  }

 private:
  LateBacking& from_;
  std::span<const std::int64_t> rows_;
  std::byte* packed_ = nullptr;
};

LateBacking::LateBacking(const LateBackingOptions& options)
    : options_(options),
      landed_(options.row_bytes),
      random_(options.seed),
      lander_([this] { run(); }) {
}

LateBacking::~LateBacking() {
  {
    const Lock lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  lander_.join();
}

std::unique_ptr<RowReads> LateBacking::make_reads() {
  return std::make_unique<Reads>(*this);
}

bool LateBacking::read(std::int64_t row, std::byte* packed) {
  std::chrono::microseconds delay{0};
  {
    const Lock lock(mutex_);
    delay = random_() % 8 == 0 ? draw(options_.read_delay) : delay;
  }
  if (delay.count() > 0) {
    std::this_thread::sleep_for(delay);
  }
  const Lock lock(mutex_);
  const auto due = due_.find(row);
  if (due != due_.end() && options_.broken != BrokenBacking::kWriteOrder) {
    const auto [first, end] = writes_.equal_range(due->second.back());
    for (auto write = first; write != end; ++write) {
      if (write->second.row == row) {
        std::copy(write->second.packed.begin(), write->second.packed.end(), packed);
      }
    }
    ++buffered_;
    return true;
  }
  return landed_.read(row, packed);
}

void LateBacking::write(std::span<const std::int64_t> rows, const std::byte* packed) {
  if (options_.broken == BrokenBacking::kFails) {
    fail(ErrorCode::kIo, "the disk is full");
  }
  Lock lock(mutex_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    changed_.wait(lock, [this] { return writes_.size() < options_.most_writes; });
    Write one{
        .row = rows[i],
        .number = next_write_++,
        .packed = std::vector(packed + i * at(row_bytes()), packed + (i + 1) * at(row_bytes()))};
    if (options_.broken == BrokenBacking::kState) {
      std::fill(one.packed.begin() + options_.weight_bytes, one.packed.end(), std::byte{0});
    }
    Clock::time_point when = Clock::now() + draw(options_.write_delay);
    std::vector<Clock::time_point>& due = due_[rows[i]];
    when = due.empty() ? when : std::max(when, due.back() + std::chrono::microseconds(1));
    due.push_back(when);
    writes_.emplace(when, std::move(one));
    changed_.notify_all();
  }
}

void LateBacking::put(const Write& write) {
  reordered_ += std::any_of(writes_.begin(), writes_.end(),
                            [&](const auto& other) { return other.second.number < write.number; });
  landed_.write(std::span(&write.row, 1), write.packed.data());
  std::vector<Clock::time_point>& due = due_[write.row];
  due.erase(due.begin());
  if (due.empty()) {
    due_.erase(write.row);
  }
}

/// With the lock.
bool LateBacking::may_land() const {
  return !writes_.empty() && (drains_ > 0 || writes_.size() > options_.most_writes / 2);
}

void LateBacking::run() {
  Lock lock(mutex_);
  while (!is_ending_) {
    if (!may_land()) {
      changed_.wait(lock);
    } else if (const auto first = writes_.begin(); Clock::now() < first->first) {
      const Clock::time_point when = first->first;
      changed_.wait_until(lock, when);
    } else {
      put(first->second);
      writes_.erase(first);
      changed_.notify_all();
    }
  }
}

std::chrono::microseconds LateBacking::draw(std::chrono::microseconds longest) {
  return std::chrono::microseconds(random_() % static_cast<std::uint64_t>(longest.count() + 1));
}

void LateBacking::drain() {
  Lock lock(mutex_);
  ++drains_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return writes_.empty(); });
  --drains_;
}

std::int64_t LateBacking::rows_held() const {
  std::int64_t held = 0;
  for_each_row([&](std::span<const std::int64_t> rows) { held += std::ssize(rows); });
  return held;
}

void LateBacking::for_each_row(const RowsVisitor& visit) const {
  std::set<std::int64_t> rows;
  {
    const Lock lock(mutex_);
    for (const auto& [row, due] : due_) {
      rows.insert(row);
    }
    landed_.for_each_row(
        [&](std::span<const std::int64_t> some) { rows.insert(some.begin(), some.end()); });
  }
  visit(std::vector(rows.begin(), rows.end()));
}

std::int64_t LateBacking::buffered() const {
  const Lock lock(mutex_);
  return buffered_;
}

std::int64_t LateBacking::reordered() const {
  const Lock lock(mutex_);
  return reordered_;
}

}  // namespace weft::storage::test
