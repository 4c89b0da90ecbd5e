#include "weft/trace/recorder.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/core.h>

#include "weft/base/error.h"

namespace weft::trace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::kStep:
      return "step";
    case Kind::kCompute:
      return "compute";
    case Kind::kLookup:
      return "lookup";
    case Kind::kCollective:
      return "collective";
    case Kind::kWait:
      return "wait";
    case Kind::kIo:
      return "io";
  }
  fail(ErrorCode::kInternal, "kind {} of a span has no name", static_cast<int>(kind));
}

Track::Track(std::string name, TrackKind kind, std::int64_t capacity, const std::atomic<bool>& on)
    : name_(std::move(name)),
      kind_(kind),
      capacity_(capacity),
      on_(on),
      spans_(std::make_unique<Span[]>(static_cast<std::size_t>(capacity))),
      collectives_(std::make_unique<Collective[]>(static_cast<std::size_t>(capacity))),
      arrivals_(std::make_unique<Arrival[]>(static_cast<std::size_t>(capacity))) {
}

void Track::add(const Span& span) {
  const std::int64_t index = count_.load(std::memory_order_relaxed);
  if (index == capacity_) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  spans_[static_cast<std::size_t>(index)] = span;
  count_.store(index + 1, std::memory_order_release);  // spans() sees whole ones only
}

void Track::add(Span span, const Collective& collective, std::span<const Arrival> arrivals) {
  if (count_.load(std::memory_order_relaxed) < capacity_) {
    span.collective = num_collectives_++;
    Collective& own = collectives_[static_cast<std::size_t>(span.collective)];
    own = collective;
    own.first_arrival = num_arrivals_;
    own.arrivals = static_cast<std::int32_t>(
        std::min(static_cast<std::int64_t>(arrivals.size()), capacity_ - num_arrivals_));
    std::copy_n(arrivals.begin(), own.arrivals, arrivals_.get() + num_arrivals_);
    num_arrivals_ += own.arrivals;
  }
  add(span);
}

void Track::sample(const char* name, double value) {
  if (on()) {
    samples_.push_back({.name = name, .time_ns = now_ns(), .value = value});
  }
}

Recorder::Recorder(std::int64_t capacity) : capacity_(capacity) {
  WEFT_CHECK(capacity > 0, "room for {} spans", capacity);
}

Track& Recorder::make_track(std::string_view name, TrackKind kind) {
  const std::lock_guard lock(mutex_);
  std::string unique(name);
  for (int number = 2;; ++number) {
    bool taken = false;
    for (const Track& track : tracks_) {
      taken |= track.name() == unique;
    }
    if (!taken) {
      return tracks_.emplace_back(std::move(unique), kind, capacity_, on_);
    }
    unique = fmt::format("{} {}", name, number);
  }
}

}  // namespace weft::trace
