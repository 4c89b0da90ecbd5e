// spans by begin, outer ones first:  close what ended before; the time since the last event belongs
//                                    to the innermost open span; open this one

#include "weft/trace/segments.h"

#include <algorithm>

namespace weft::trace {

std::vector<Segment> innermost(std::span<const Span> spans) {
  std::vector<const Span*> order;
  order.reserve(spans.size());
  for (const Span& span : spans) {
    order.push_back(&span);
  }
  std::stable_sort(order.begin(), order.end(), [](const Span* a, const Span* b) {
    return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a->end_ns > b->end_ns;
  });
  std::vector<Segment> segments;
  std::vector<const Span*> open;
  std::int64_t now = 0;
  const auto advance = [&](std::int64_t to) {
    if (!open.empty() && to > now) {
      segments.push_back({now, to, open.back(), open.size() > 1 ? open[open.size() - 2] : nullptr});
    }
    now = std::max(now, to);
  };
  const auto close_until = [&](std::int64_t time) {
    while (!open.empty() && open.back()->end_ns <= time) {
      advance(open.back()->end_ns);
      open.pop_back();
    }
  };
  for (const Span* span : order) {
    close_until(span->begin_ns);
    advance(span->begin_ns);
    open.push_back(span);
  }
  if (!order.empty()) {
    close_until(INT64_MAX);
  }
  return segments;
}

}  // namespace weft::trace
