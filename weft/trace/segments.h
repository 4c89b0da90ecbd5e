/// What a stream did when: its spans without those that others lie inside of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/trace/recorder.h"

namespace weft::trace {

/// A stretch of time that belongs to one span alone.
struct Segment {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  const Span* span = nullptr;
  const Span* around = nullptr;  ///< the next span around that one; null: none
};

/// Each moment goes to the innermost span that covers it. Spans nest, in any order; segments are in
/// order of time and do not overlap. A span around others keeps the time between them.
std::vector<Segment> innermost(std::span<const Span> spans);

}  // namespace weft::trace
