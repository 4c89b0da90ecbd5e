#include "weft/data/id_counter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <iterator>

#include "weft/base/hash.h"

namespace weft::data {
namespace {

constexpr int kRegisterBits = 14;
constexpr std::size_t kRegisters = std::size_t{1} << kRegisterBits;
constexpr std::size_t kFirstSlots = 1024;
constexpr std::uint64_t kSalt = 0x9e3779b97f4a7c15ULL;  // so that id 0 does not hash to 0

}  // namespace

IdCounter::IdCounter(std::int64_t limit)
    : limit_(static_cast<std::size_t>(limit)), slots_(kFirstSlots), registers_(kRegisters) {
}

void IdCounter::add(std::int64_t id) {
  const std::uint64_t hash = mix64(static_cast<std::uint64_t>(id) + kSalt);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at].count != 0 && slots_[at].id != id) {
    at = (at + 1) & mask;
  }
  if (slots_[at].count != 0) {
    ++slots_[at].count;
    return;
  }
  // A new id, or one that found no place: the estimate takes every distinct id into account.
  std::uint8_t& rank = registers_[hash >> (64 - kRegisterBits)];
  const int zeros = std::countl_zero((hash << kRegisterBits) | (kRegisters - 1));
  rank = std::max(rank, static_cast<std::uint8_t>(zeros + 1));
  if (used_ >= limit_) {
    overflowed_ = true;
    return;
  }
  slots_[at] = {id, 1};
  if (++used_ * 2 > slots_.size()) {
    grow();
  }
}

void IdCounter::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.count == 0) {
      continue;
    }
    std::size_t at = mix64(static_cast<std::uint64_t>(slot.id) + kSalt) & mask;
    while (slots_[at].count != 0) {
      at = (at + 1) & mask;
    }
    slots_[at] = slot;
  }
}

std::int64_t IdCounter::distinct() const {
  return exact() ? static_cast<std::int64_t>(used_) : std::llround(estimate());
}

double IdCounter::estimate() const {
  double sum = 0.0;
  double empty = 0.0;
  for (const std::uint8_t rank : registers_) {
    sum += std::ldexp(1.0, -rank);
    empty += rank == 0 ? 1.0 : 0.0;
  }
  const double m = static_cast<double>(kRegisters);
  const double raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
  // Few ids leave registers empty, and then counting those is more exact.
  return raw <= 2.5 * m && empty > 0.0 ? m * std::log(m / empty) : raw;
}

std::vector<std::int64_t> IdCounter::ids() const {
  std::vector<std::int64_t> ids;
  ids.reserve(used_);
  for (const Slot& slot : slots_) {
    if (slot.count != 0) {
      ids.push_back(slot.id);
    }
  }
  return ids;
}

std::vector<IdCounter::Count> IdCounter::most_frequent(std::int64_t most) const {
  std::vector<Count> counts;
  counts.reserve(used_);
  for (const Slot& slot : slots_) {
    if (slot.count != 0) {
      counts.push_back({slot.id, slot.count});
    }
  }
  const auto end = counts.begin() + std::min<std::int64_t>(most, std::ssize(counts));
  std::partial_sort(counts.begin(), end, counts.end(), [](const Count& a, const Count& b) {
    return a.count != b.count ? a.count > b.count : a.id < b.id;
  });
  counts.erase(end, counts.end());
  return counts;
}

std::vector<std::int64_t> IdCounter::descending_counts() const {
  std::vector<std::int64_t> counts;
  counts.reserve(used_);
  for (const Slot& slot : slots_) {
    if (slot.count != 0) {
      counts.push_back(slot.count);
    }
  }
  std::sort(counts.begin(), counts.end(), std::greater<>());
  return counts;
}

}  // namespace weft::data
