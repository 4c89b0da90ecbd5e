#include "weft/storage/memory_backing.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/hash.h"
#include "weft/layout/blocks.h"

namespace weft::storage {
namespace {

/// How many of the rows before number `number` exist.
std::int64_t rows_before(std::uint64_t exist, std::int64_t number) {
  return std::popcount(exist & ((std::uint64_t{1} << number) - 1));
}

}  // namespace

class MemoryBacking::Reads final : public RowReads {
 public:
  explicit Reads(const MemoryBacking& from) : from_(from) {}

  void begin(std::span<const std::int64_t> rows, std::byte* packed) override {
    found_.resize(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      found_[i] = from_.read(rows[i], packed + i * at(from_.row_bytes_)) ? 1 : 0;
    }
  }

  void wait(std::span<std::uint8_t> found) override {
    std::copy(found_.begin(), found_.end(), found.begin());
  }

 private:
  const MemoryBacking& from_;
  std::vector<std::uint8_t> found_;
};

std::unique_ptr<RowReads> MemoryBacking::make_reads() {
  return std::make_unique<Reads>(*this);
}

const MemoryBacking::Stripe& MemoryBacking::stripe_of(std::int64_t page) const {
  return stripes_[mix64(static_cast<std::uint64_t>(page)) % kStripes];
}

bool MemoryBacking::read(std::int64_t row, std::byte* packed) const {
  const std::int64_t number = row % kPageRows;
  const Stripe& stripe = stripe_of(row / kPageRows);
  const std::lock_guard lock(stripe.mutex);
  const auto found = stripe.pages.find(row / kPageRows);
  if (found == stripe.pages.end() || (found->second.exist >> number & 1) == 0) {
    return false;
  }
  std::memcpy(packed,
              found->second.rows.get() + rows_before(found->second.exist, number) * row_bytes_,
              at(row_bytes_));
  return true;
}

/// Where a row of a page is, which exists from now on.
std::byte* MemoryBacking::place(Page& page, std::int64_t number) const {
  const std::int64_t before = rows_before(page.exist, number);
  if ((page.exist >> number & 1) == 0) {
    const std::int64_t held = std::popcount(page.exist);
    if (held % kRoom == 0) {
      auto larger = std::make_unique_for_overwrite<std::byte[]>(at((held + kRoom) * row_bytes_));
      if (held > 0) {
        std::memcpy(larger.get(), page.rows.get(), at(held * row_bytes_));
      }
      page.rows = std::move(larger);
    }
    std::byte* const own = page.rows.get() + before * row_bytes_;
    std::memmove(own + row_bytes_, own, at((held - before) * row_bytes_));
    page.exist |= std::uint64_t{1} << number;
  }
  return page.rows.get() + before * row_bytes_;
}

void MemoryBacking::write(std::span<const std::int64_t> rows, const std::byte* packed) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& stripe = const_cast<Stripe&>(stripe_of(rows[i] / kPageRows));
    const std::lock_guard lock(stripe.mutex);
    std::memcpy(place(stripe.pages[rows[i] / kPageRows], rows[i] % kPageRows),
                packed + i * at(row_bytes_), at(row_bytes_));
  }
}

std::int64_t MemoryBacking::rows_held() const {
  std::int64_t held = 0;
  for (const Stripe& stripe : stripes_) {
    const std::lock_guard lock(stripe.mutex);
    for (const auto& [number, page] : stripe.pages) {
      held += std::popcount(page.exist);
    }
  }
  return held;
}

void MemoryBacking::for_each_row(const RowsVisitor& visit) const {
  std::vector<std::pair<std::int64_t, std::uint64_t>> pages;
  for (const Stripe& stripe : stripes_) {
    const std::lock_guard lock(stripe.mutex);
    for (const auto& [number, page] : stripe.pages) {
      pages.emplace_back(number, page.exist);
    }
  }
  std::sort(pages.begin(), pages.end());
  constexpr std::size_t kAtOnce = 4096;
  std::vector<std::int64_t> rows;
  for (const auto& [number, exist] : pages) {
    for (std::uint64_t left = exist; left != 0; left &= left - 1) {
      rows.push_back(number * kPageRows + std::countr_zero(left));
    }
    if (rows.size() >= kAtOnce) {
      visit(rows);
      rows.clear();
    }
  }
  if (!rows.empty()) {
    visit(rows);
  }
}

std::int64_t MemoryBacking::bytes() const {
  std::int64_t rows = 0;
  for (const Stripe& stripe : stripes_) {
    const std::lock_guard lock(stripe.mutex);
    for (const auto& [number, page] : stripe.pages) {
      rows += layout::round_up(std::popcount(page.exist), kRoom);
    }
  }
  return rows * row_bytes_;
}

}  // namespace weft::storage
