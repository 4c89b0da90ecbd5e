#include "weft/trace/segments.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace weft::trace {
namespace {

Span make(const char* name, std::int64_t begin, std::int64_t end) {
  return {.name = name, .begin_ns = begin, .end_ns = end};
}

std::string text_of(const std::vector<Span>& spans) {
  std::string text;
  for (const Segment& segment : innermost(spans)) {
    text += fmt::format("{}[{}, {}) ", segment.span->name, segment.begin_ns, segment.end_ns);
  }
  return text;
}

TEST(Segments, OfNothing) {
  EXPECT_EQ(text_of({}), "");
}

TEST(Segments, OneBehindTheOther) {
  EXPECT_EQ(text_of({make("a", 10, 20), make("b", 20, 30), make("c", 40, 50)}),
            "a[10, 20) b[20, 30) c[40, 50) ");
}

// As they are recorded: by their ends, inner ones first.
TEST(Segments, GoToTheInnermost) {
  EXPECT_EQ(text_of({make("c", 15, 20), make("d", 20, 22), make("b", 12, 25), make("e", 30, 40),
                     make("a", 10, 40)}),
            "a[10, 12) b[12, 15) c[15, 20) d[20, 22) b[22, 25) a[25, 30) e[30, 40) ");
}

TEST(Segments, OuterAndInnerOfTheSameTime) {
  EXPECT_EQ(text_of({make("outer", 10, 20), make("inner", 10, 20)}), "inner[10, 20) ");
  EXPECT_EQ(text_of({make("outer", 10, 20), make("inner", 10, 15)}),
            "inner[10, 15) outer[15, 20) ");
}

TEST(Segments, EmptySpansTakeNoTime) {
  EXPECT_EQ(text_of({make("empty", 12, 12), make("a", 10, 20)}), "a[10, 12) a[12, 20) ");
}

}  // namespace
}  // namespace weft::trace
