#include "weft/trace/recorder.h"

#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace weft::trace {
namespace {

TEST(Recorder, KeepsWhatBeganBetweenStartAndStop) {
  Recorder recorder;
  Track& track = recorder.make_track("compute", TrackKind::kStream);
  {
    const Scope before(&track, "before", Kind::kCompute);
  }
  recorder.start();
  const std::int64_t begin = now_ns();
  {
    const Scope outer(&track, "outer", Kind::kStep, 7);
    const Scope inner(&track, "inner", Kind::kLookup);
  }
  const std::int64_t end = now_ns();
  recorder.stop();
  {
    const Scope after(&track, "after", Kind::kCompute);
  }
  {
    const Scope nowhere(nullptr, "nowhere", Kind::kCompute);
  }

  const std::span<const Span> spans = track.spans();
  ASSERT_EQ(spans.size(), 2U);
  const Span& inner = spans[0];
  const Span& outer = spans[1];
  EXPECT_STREQ(inner.name, "inner");
  EXPECT_EQ(inner.kind, Kind::kLookup);
  EXPECT_EQ(inner.number, -1);
  EXPECT_EQ(outer.number, 7);
  EXPECT_LE(begin, outer.begin_ns);
  EXPECT_LE(outer.begin_ns, inner.begin_ns);
  EXPECT_LE(inner.begin_ns, inner.end_ns);
  EXPECT_LE(inner.end_ns, outer.end_ns);
  EXPECT_LE(outer.end_ns, end);
}

TEST(Recorder, CountsWhatFoundNoRoom) {
  Recorder recorder(3);
  Track& track = recorder.make_track("full", TrackKind::kThread);
  recorder.start();
  const std::string group = "world";
  for (int i = 0; i < 5; ++i) {
    track.add({.name = "x", .begin_ns = i, .end_ns = i + 1, .kind = Kind::kCollective},
              {.group = &group, .sequence = static_cast<std::uint64_t>(i), .bytes = 10 * i});
  }
  ASSERT_EQ(track.spans().size(), 3U);
  EXPECT_EQ(track.dropped(), 2);
  EXPECT_EQ(track.collective(track.spans()[2]).bytes, 20);
  EXPECT_EQ(track.collective(track.spans()[2]).sequence, 2U);
}

TEST(Recorder, NumbersTracksOfOneName) {
  Recorder recorder;
  EXPECT_EQ(recorder.make_track("reader", TrackKind::kThread).name(), "reader");
  EXPECT_EQ(recorder.make_track("reader", TrackKind::kThread).name(), "reader 2");
  EXPECT_EQ(recorder.make_track("reader", TrackKind::kThread).name(), "reader 3");
  EXPECT_EQ(recorder.tracks().size(), 3U);
}

// One thread adds while another reads: only whole spans are seen.
TEST(Recorder, MayBeReadWhileMoreIsAdded) {
  Recorder recorder(20000);
  Track& track = recorder.make_track("busy", TrackKind::kThread);
  recorder.start();
  std::thread writer([&track] {
    for (std::int64_t i = 0; i < 20000; ++i) {
      track.add({.name = "x", .begin_ns = i, .end_ns = 2 * i});
    }
  });
  std::size_t seen = 0;
  while (seen < 20000) {
    const std::span<const Span> spans = track.spans();
    ASSERT_GE(spans.size(), seen);
    seen = spans.size();
    if (seen > 0) {
      ASSERT_EQ(spans.back().begin_ns, static_cast<std::int64_t>(seen) - 1);
      ASSERT_EQ(spans.back().end_ns, 2 * spans.back().begin_ns);
    }
  }
  writer.join();
}

}  // namespace
}  // namespace weft::trace
