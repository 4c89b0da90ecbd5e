#include "weft/storage/lazy_rows.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/row_moves.h"
#include "weft/layout/tables.h"
#include "weft/storage/batch_rows.h"
#include "weft/storage/host_rows.h"

namespace weft::storage {

/// What a batch holds: pins on rows that do not exist yet.
class LazyRows::Batch final : public ResidentRows {
 public:
  explicit Batch(LazyRows& rows) : owner_(rows), batch_(rows.device_) {}

  ~Batch() override { Batch::release(Release::kUnchanged); }

  void begin_fetch(Context& ctx, std::span<const kernels::Bags> rows) override {
    release(Release::kUnchanged);
    batch_.find(ctx, rows, owner_.rows_);
    {
      const std::lock_guard lock(owner_.fetching_);
      take();
      if (!made_rows_.empty()) {
        owner_.make_(ctx, owner_.view(), made_rows_, made_slots_);
      }
    }
    batch_.place(ctx);
  }

  void fetch_late(Context& /*ctx*/) override {}

  [[nodiscard]] kernels::Bags resolve(std::size_t list, const kernels::Bags& bags) const override {
    return batch_.resolve(list, bags);
  }

  [[nodiscard]] std::span<const std::int64_t> resolve(Context& ctx,
                                                      std::span<const std::int64_t> rows) override {
    return batch_.resolve(ctx, rows);
  }

  void release(Release how) override {
    const std::lock_guard lock(owner_.mutex_);
    for (const auto& [row, slot] : pinned_) {
      std::uint8_t& mark = owner_.marks_[at(slot)];
      if (how == Release::kUpdated) {
        mark |= kExists;
      }
      --mark;
      if (mark == 0) {
        owner_.give_slot(row, slot);
      }
    }
    pinned_.clear();
  }

 private:
  /// Gives all rows slots, and pins those of rows that do not exist.
  void take() {
    const std::lock_guard lock(owner_.mutex_);
    made_rows_.clear();
    made_slots_.clear();
    const std::span<const std::int64_t> rows = batch_.rows();
    const std::span<std::int64_t> slots = batch_.slots();
    owner_.counts_.asked += std::ssize(rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::int64_t slot = owner_.slot_of(rows[i]);
      if (slot < 0) {
        slot = owner_.take_slot(rows[i]);
        made_rows_.push_back(rows[i]);
        made_slots_.push_back(slot);
      }
      if (!owner_.exists(slot)) {
        WEFT_CHECK(owner_.marks_[at(slot)] + 1 < kExists, "{} batches in flight",
                   owner_.marks_[at(slot)]);
        ++owner_.marks_[at(slot)];
        pinned_.emplace_back(rows[i], slot);
      }
      slots[i] = slot;
    }
    owner_.counts_.made += std::ssize(made_rows_);
    owner_.counts_.hits += std::ssize(rows) - std::ssize(made_rows_);
  }

  LazyRows& owner_;
  BatchRows batch_;
  std::vector<std::int64_t> made_rows_, made_slots_;
  std::vector<std::pair<std::int64_t, std::int64_t>> pinned_;  ///< rows and their slots
};

LazyRows::LazyRows(
    Device& device, const spec::Table& table, std::int64_t rows, std::int64_t cols, RowMaker make)
    : device_(device),
      rows_(rows),
      make_(std::move(make)),
      store_(device, table, rows, cols, StoreMemory::kGrowing),
      pages_(at((rows + kPageRows - 1) / kPageRows)) {
}

LazyRows::~LazyRows() = default;

std::unique_ptr<ResidentRows> LazyRows::make_batch() {
  return std::make_unique<Batch>(*this);
}

std::int64_t LazyRows::slot_of(std::int64_t row) const {
  const std::unique_ptr<Page>& page = pages_[at(row / kPageRows)];
  return page == nullptr ? -1 : (*page)[at(row % kPageRows)];
}

bool LazyRows::exists(std::int64_t slot) const {
  return (marks_[at(slot)] & kExists) != 0;
}

std::int64_t LazyRows::take_slot(std::int64_t row) {
  std::int64_t slot = std::ssize(marks_);
  if (free_.empty()) {
    WEFT_CHECK(slot < std::numeric_limits<std::int32_t>::max(), "{} rows in slots", slot);
    store_.grow(slot + 1);
    marks_.push_back(0);
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  std::unique_ptr<Page>& page = pages_[at(row / kPageRows)];
  if (page == nullptr) {
    page = std::make_unique<Page>(at(kPageRows), -1);
  }
  (*page)[at(row % kPageRows)] = static_cast<std::int32_t>(slot);
  return slot;
}

void LazyRows::give_slot(std::int64_t row, std::int64_t slot) {
  (*pages_[at(row / kPageRows)])[at(row % kPageRows)] = -1;
  free_.push_back(slot);
}

std::int64_t LazyRows::bytes() const {
  const std::lock_guard lock(mutex_);
  const auto used =
      std::count_if(pages_.begin(), pages_.end(), [](const auto& page) { return page != nullptr; });
  return store_.bytes() + std::ssize(marks_) + std::ssize(pages_) * 8 +
         used * kPageRows * static_cast<std::int64_t>(sizeof(std::int32_t));
}

TierCounts LazyRows::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void LazyRows::for_each_row(const RowsVisitor& visit) const {
  std::vector<std::int64_t> rows;
  for (std::size_t p = 0; p < pages_.size(); ++p) {
    rows.clear();
    {
      const std::lock_guard lock(mutex_);
      if (pages_[p] == nullptr) {
        continue;
      }
      for (std::int64_t i = 0; i < kPageRows; ++i) {
        const std::int64_t slot = (*pages_[p])[at(i)];
        if (slot >= 0 && exists(slot)) {
          rows.push_back(static_cast<std::int64_t>(p) * kPageRows + i);
        }
      }
    }
    if (!rows.empty()) {
      visit(rows);
    }
  }
}

void LazyRows::read_rows(std::span<const std::int64_t> rows, std::byte* packed) const {
  const kernels::RowTable table = store_.view();
  const std::int64_t row_bytes = store_.row_bytes();
  std::vector<std::int64_t> slots(rows.size());
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t slot = slot_of(rows[i]);
      slots[i] = slot >= 0 && exists(slot) ? slot : -1;
    }
  }
  Context ctx{.device = &device_};
  HostRows made(table.dtype, 1, table.cols, store_.state_floats());
  Buffer device_slots(device_);
  const auto list = layout::row_numbers(std::ssize(slots));
  auto* const at_device = device_slots.resize_for(list);
  device_.copy_to_device(ctx, at_device, slots.data(), list.bytes());
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t end = i;
    while (end < rows.size() && (slots[end] < 0) == (slots[i] < 0)) {
      ++end;
    }
    std::byte* const to = packed + static_cast<std::int64_t>(i) * row_bytes;
    const auto count = static_cast<std::int64_t>(end - i);
    if (slots[i] >= 0) {
      const kernels::RowMove move{.table = table,
                                  .state_floats = store_.state_floats(),
                                  .count = count,
                                  .slots = at_device + i,
                                  .packed = to};
      kernels::pack_rows(ctx, std::span(&move, 1));
    } else {
      if (made.rows() < count) {
        made = HostRows(table.dtype, count, table.cols, store_.state_floats());
      }
      std::vector<std::int64_t> places(at(count));
      std::iota(places.begin(), places.end(), 0);
      make_(ctx, made.table(), rows.subspan(i, at(count)), places);
      made.pack(to, count);
    }
    i = end;
  }
}

void LazyRows::write_rows(std::span<const std::int64_t> rows, const std::byte* packed) {
  std::vector<std::int64_t> slots;
  {
    const std::lock_guard lock(mutex_);
    for (const std::int64_t row : rows) {
      const std::int64_t slot = slot_of(row);
      slots.push_back(slot >= 0 ? slot : take_slot(row));
      marks_[at(slots.back())] |= kExists;
    }
  }
  Context ctx{.device = &device_};
  Buffer device_slots(device_);
  const auto list = layout::row_numbers(std::ssize(slots));
  auto* const at_device = device_slots.resize_for(list);
  device_.copy_to_device(ctx, at_device, slots.data(), list.bytes());
  const kernels::RowMove move{.table = store_.view(),
                              .state_floats = store_.state_floats(),
                              .count = list.count,
                              .slots = at_device,
                              .packed = const_cast<std::byte*>(packed)};  // only read
  kernels::unpack_rows(ctx, std::span(&move, 1));
}

}  // namespace weft::storage
