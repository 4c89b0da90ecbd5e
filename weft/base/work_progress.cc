#include "weft/base/work_progress.h"

#include <fmt/core.h>

#include "weft/base/text.h"

namespace weft {
namespace {

std::string amount_text(std::int64_t amount, WorkProgress::Unit unit) {
  return unit == WorkProgress::Unit::kBytes ? format_bytes(static_cast<std::uint64_t>(amount))
                                            : format_count(amount);
}

/// After the amounts; bytes have their unit in the number.
std::string_view noun(WorkProgress::Unit unit) {
  switch (unit) {
    case WorkProgress::Unit::kBytes:
      return "";
    case WorkProgress::Unit::kSamples:
      return " samples";
    case WorkProgress::Unit::kElements:
      return " elements";
  }
  return "";
}

}  // namespace

void WorkProgress::begin(const Part& part) {
  const std::lock_guard lock(mutex_);
  activity_ = part.activity;
  place_ = part.place;
  total_ = part.total;
  unit_ = part.unit;
  done_.store(part.done, std::memory_order_relaxed);
  move();
}

void WorkProgress::go_to(std::string_view place) {
  const std::lock_guard lock(mutex_);
  place_ = place;
  move();
}

void WorkProgress::add(std::int64_t amount) {
  done_.fetch_add(amount, std::memory_order_relaxed);
  move();
}

void WorkProgress::move() {
  moves_.fetch_add(1, std::memory_order_relaxed);
}

std::string WorkProgress::what() const {
  const std::lock_guard lock(mutex_);
  if (activity_.empty()) {
    return "working";
  }
  return place_.empty() ? activity_ : fmt::format("{} {}", activity_, place_);
}

std::string WorkProgress::how_much() const {
  const std::lock_guard lock(mutex_);
  const std::int64_t done = done_.load(std::memory_order_relaxed);
  if (total_ >= 0) {
    return fmt::format("{} of {}{}", amount_text(done, unit_), amount_text(total_, unit_),
                       noun(unit_));
  }
  return done > 0 ? amount_text(done, unit_) + std::string(noun(unit_)) : "";
}

std::string WorkProgress::text() const {
  const std::string amounts = how_much();
  return amounts.empty() ? what() : fmt::format("{}, {}", what(), amounts);
}

}  // namespace weft
