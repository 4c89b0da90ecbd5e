#include "weft/checkpoint/cover.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>

namespace weft::checkpoint {
namespace {

/// All blocks of a matrix have one step, so only those whose rows begin alike modulo it can meet.
std::pair<std::int64_t, std::int64_t> begin_of(const Rect& rect) {
  return {rect.rows.begin % rect.rows.step, rect.rows.begin};
}

/// Of blocks in the order of begin_of(), the first that meets one before it. Those that reach into
/// the row in hand are kept by column: none of them overlap, so a new one can only meet its
/// neighbours. O(n log n).
std::string find_overlap(const std::vector<Rect>& rects) {
  std::map<std::int64_t, const Rect*> open;                   // by first column
  std::set<std::pair<std::int64_t, std::int64_t>> last_rows;  // of these: rows.end, first column
  std::int64_t rest = 0;
  for (const Rect& rect : rects) {
    if (begin_of(rect).first != rest) {
      rest = begin_of(rect).first;
      open.clear();
      last_rows.clear();
    }
    while (!last_rows.empty() && last_rows.begin()->first <= rect.rows.begin) {
      open.erase(last_rows.begin()->second);
      last_rows.erase(last_rows.begin());
    }
    const auto right = open.lower_bound(rect.cols.begin);
    const Rect* met = nullptr;
    if (right != open.end() && right->first < rect.cols.end) {
      met = right->second;
    } else if (right != open.begin() && std::prev(right)->second->cols.end > rect.cols.begin) {
      met = std::prev(right)->second;
    }
    if (met != nullptr) {
      return fmt::format(
          "two blocks overlap: rows [{}, {}) columns [{}, {}) and rows [{}, {}) columns [{}, {})",
          met->rows.begin, met->rows.end, met->cols.begin, met->cols.end, rect.rows.begin,
          rect.rows.end, rect.cols.begin, rect.cols.end);
    }
    open.emplace(rect.cols.begin, &rect);
    last_rows.emplace(rect.rows.end, rect.cols.begin);
  }
  return "";
}

}  // namespace

std::int64_t area_bytes(const MatrixSize& size) {
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(size.rows, size.cols, &elements) ||
      __builtin_mul_overflow(elements, size.element_bytes, &bytes)) {
    return -1;
  }
  return bytes;
}

/// Blocks that lie inside the matrix cover it once when none overlap and their areas add up.
std::string find_cover_fault(std::vector<Rect> rects, const MatrixSize& size) {
  std::int64_t bytes = 0;
  for (const Rect& rect : rects) {
    if (rect.rows.step != rects.front().rows.step) {
      return fmt::format("rows in steps of {} and of {}", rects.front().rows.step, rect.rows.step);
    }
    const std::int64_t own = rect.rows.size() * rect.cols.size() * size.element_bytes;
    if (__builtin_add_overflow(bytes, own, &bytes)) {
      return "its blocks overlap";
    }
  }
  std::sort(rects.begin(), rects.end(),
            [](const Rect& a, const Rect& b) { return begin_of(a) < begin_of(b); });
  if (auto fault = find_overlap(rects); !fault.empty()) {
    return fault;
  }
  const std::int64_t wanted = area_bytes(size);
  return bytes == wanted ? "" : fmt::format("its blocks cover {} of {} bytes", bytes, wanted);
}

}  // namespace weft::checkpoint
