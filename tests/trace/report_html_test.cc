#include "weft/trace/report_html.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/trace/made_up.h"

namespace weft::trace {
namespace {

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

void expect_alone(const std::string& page) {
  for (const char* outside : {"<script", "http", "src=", "url(", "@import"}) {
    EXPECT_EQ(page.find(outside), page.npos) << outside;
  }
  for (const char* element : {"svg", "table", "h2", "title", "rect"}) {
    EXPECT_EQ(count(page, std::string("<") + element), count(page, std::string("</") + element))
        << element;
  }
  EXPECT_NE(page.find("prefers-color-scheme: dark"), page.npos);
}

TEST(ReportPage, ShowsWhatTheReportSays) {
  std::vector<RankWork> trace = straggling();
  trace[0].work[0].name = "look<up>";
  const std::string page = to_html(make_report(trace), trace);
  expect_alone(page);
  EXPECT_EQ(count(page, "<svg"), 4U) << "timeline, breakdown, bytes, stragglers";
  for (const char* says :
       {"1 step of 2 ranks: 10.000 ms a step", "Step 5", "look&lt;up&gt;: 1.000 ms",
        "output_dist, all_to_all: 4.000 ms, waiting", "waiting: 3.000 ms",
        "to other hosts: 0.001 MB", "3.000 ms, last in 1 of 1 collectives", "balanced ranks"}) {
    EXPECT_NE(page.find(says), page.npos) << says;
  }
}

/// For paper and pictures, where no pointer rests.
TEST(ReportPage, SaysFiguresAndColoursOpenly) {
  const std::vector<RankWork> trace = straggling();
  const std::string page = to_html(make_report(trace), trace);
  EXPECT_EQ(count(page, ">10.000 ms</text>"), 2U) << "a step of each rank";
  EXPECT_NE(page.find(">3.000 ms</text>"), page.npos) << "who is waited for";
  EXPECT_NE(page.find("text-anchor=\"middle\">4.000</text>"), page.npos) << "inside a box";
  EXPECT_EQ(count(page, "class=\"key\""), 3U) << "timeline, breakdown, bytes";
  const std::string change = diff_to_html(make_report(trace), make_report(trace));
  EXPECT_EQ(count(change, "class=\"key\""), 1U);
}

TEST(ReportPage, SaysWhereItComesFrom) {
  const std::vector<RankWork> trace = straggling();
  const PageOrigin origin{.made = "2026-01-02 03:04 UTC",
                          .program = "weft 9.9",
                          .host = "node1",
                          .what = "the trace a<b",
                          .configuration = "seed: 7\n"};
  for (const std::string& page : {to_html(make_report(trace), trace, origin),
                                  diff_to_html(make_report(trace), make_report(trace), origin)}) {
    expect_alone(page);
    EXPECT_NE(page.find("Made 2026-01-02 03:04 UTC by weft 9.9 on node1 from the trace a&lt;b."),
              page.npos);
    EXPECT_NE(page.find("<pre>seed: 7\n</pre>"), page.npos);
  }
  EXPECT_EQ(to_html(make_report(trace), trace).find("<footer"), std::string::npos);
}

TEST(ReportPage, OfOneRankHasNoStragglers) {
  const std::vector<RankWork> trace = {make_rank(0, 2, {make_work("lookup", Kind::kLookup, 0, 1)})};
  const std::string page = to_html(make_report(trace), trace);
  expect_alone(page);
  EXPECT_EQ(page.find("Who is waited for"), page.npos);
}

TEST(ReportPage, DrawsWhatGoesOnIntoTheStep) {
  // The step shown is the longer one, the second.
  RankWork rank = make_rank(0, 5, {make_work("sync_replicas", Kind::kCompute, 3, 9, 105)});
  rank.steps.push_back({.number = 6, .time = {5 * kMs, 15 * kMs}});
  const std::vector<RankWork> trace = {rank};
  const std::string page = to_html(make_report(trace), trace);
  expect_alone(page);
  EXPECT_NE(page.find("Step 6"), page.npos);
  EXPECT_NE(page.find("sync_replicas: 6.000 ms"), page.npos);
}

TEST(ReportPage, OfManyRanksDrawsTheWorst) {
  std::vector<RankWork> trace;
  for (int r = 0; r < 100; ++r) {
    const double begin = r == 77 ? 4 : 1;
    trace.push_back(make_rank(
        r, 10, {make_work("lookup", Kind::kLookup, 0, begin), make_exchange(7, begin, 4, 5)}));
  }
  const std::string page = to_html(make_report(trace), trace);
  expect_alone(page);
  EXPECT_NE(page.find("on 32 of 100 ranks"), page.npos);
  EXPECT_EQ(count(page, "rank 77"), 4U) << "what stands out, timeline, breakdown, stragglers";
}

TEST(ReportPage, OfADifference) {
  const Report before = make_report(straggling());
  Report after = before;
  after.mean.step *= 1.5;
  after.parts[0].seconds[0] += 0.01;
  const std::string page = diff_to_html(before, after);
  expect_alone(page);
  EXPECT_NE(page.find("A step took 10.000 ms and takes 15.000 ms: +50.0 %"), page.npos);
  EXPECT_NE(page.find("+5.000"), page.npos) << "of the mean rank";
}

}  // namespace
}  // namespace weft::trace
