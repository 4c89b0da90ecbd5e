#include "weft/trace/recorder.h"

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
      collectives_(std::make_unique<Collective[]>(static_cast<std::size_t>(capacity))) {
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

void Track::add(Span span, const Collective& collective) {
  if (count_.load(std::memory_order_relaxed) < capacity_) {
    span.collective = num_collectives_++;
    collectives_[static_cast<std::size_t>(span.collective)] = collective;
  }
  add(span);
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
