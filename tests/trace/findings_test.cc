// Planted faults are named, and nothing is where none is planted.
#include "weft/trace/findings.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/trace/made_up.h"

namespace weft::trace {
namespace {

constexpr int kHosts = 4;

/// One rank on each of four hosts; everyone gets 1 MB from everyone in `milliseconds(from, to)`.
template <typename Milliseconds>
std::vector<RankWork> exchanging(const Milliseconds& milliseconds) {
  std::vector<RankWork> trace;
  for (int to = 0; to < kHosts; ++to) {
    Work work = make_exchange(3, 0, 1, 90);
    for (int from = 0; from < kHosts; ++from) {
      if (from != to) {
        const auto end = static_cast<std::int64_t>(milliseconds(from, to) * kMs);
        work.from.push_back({.rank = from, .begin_ns = kMs, .end_ns = kMs + end, .bytes = 1000000});
      }
    }
    trace.push_back(make_rank(to, 100, {work}));
    trace.back().host = "node" + std::to_string(to);
  }
  return trace;
}

std::optional<Finding> found(const Report& report, Finding::Kind kind) {
  const auto it = std::find_if(report.findings.begin(), report.findings.end(),
                               [kind](const Finding& finding) { return finding.kind == kind; });
  return it == report.findings.end() ? std::nullopt : std::optional(*it);
}

TEST(Findings, LinksHaveBytesAndRates) {
  const Report report = make_report(exchanging([](int from, int /*to*/) { return 10 + from; }));
  ASSERT_EQ(report.links.size(), 12U);
  EXPECT_EQ(report.links.front().from, "node3");
  EXPECT_DOUBLE_EQ(report.links.front().bytes, 1e6);
  EXPECT_DOUBLE_EQ(report.links.front().seconds, 0.013);
  EXPECT_EQ(report.links.back().from, "node0");
  EXPECT_DOUBLE_EQ(report.links.back().rate(), 1e8);
  EXPECT_FALSE(found(report, Finding::Kind::kSlowLink)) << "a third is not much";
}

TEST(Findings, TimeInWhichSeveralComeCountsOnce) {
  auto trace = exchanging([](int /*from*/, int /*to*/) { return 10; });
  trace[1].host = trace[0].host;  // two ranks of one host get from node2 at the same time
  const Report report = make_report(trace);
  const auto link = std::find_if(report.links.begin(), report.links.end(), [](const LinkUse& one) {
    return one.from == "node2" && one.to == "node0";
  });
  ASSERT_NE(link, report.links.end());
  EXPECT_DOUBLE_EQ(link->bytes, 2e6);
  EXPECT_DOUBLE_EQ(link->seconds, 0.010);
}

TEST(Findings, NameThePlantedSlowLink) {
  for (int slow = 0; slow < kHosts; ++slow) {
    const Report both = make_report(
        exchanging([slow](int from, int to) { return from == slow || to == slow ? 50.0 : 5.0; }));
    const auto finding = found(both, Finding::Kind::kSlowLink);
    ASSERT_TRUE(finding) << slow;
    EXPECT_EQ(finding->name, "node" + std::to_string(slow));
    const Report incoming =
        make_report(exchanging([slow](int /*from*/, int to) { return to == slow ? 50.0 : 5.0; }));
    ASSERT_TRUE(found(incoming, Finding::Kind::kSlowLink)) << slow;
    EXPECT_EQ(found(incoming, Finding::Kind::kSlowLink)->name, "node" + std::to_string(slow));
  }
}

TEST(Findings, OneSlowPairIsNobodysLink) {
  const Report report =
      make_report(exchanging([](int from, int to) { return from == 1 && to == 2 ? 50.0 : 5.0; }));
  EXPECT_FALSE(found(report, Finding::Kind::kSlowLink)) << "node1 sends fast to others";
}

std::vector<RankWork> reading(std::vector<std::vector<TableReads>> tables) {
  std::vector<RankWork> trace;
  for (std::size_t r = 0; r < tables.size(); ++r) {
    trace.push_back(make_rank(static_cast<int>(r), 10, {make_work("lookup", Kind::kLookup, 0, 1)}));
    trace.back().tables = std::move(tables[r]);
  }
  return trace;
}

TEST(Findings, NameThePlantedSkewedTable) {
  const Report report = make_report(
      reading({{{"a", 10, 1000}, {"b", 10, 1000}}, {{"c", 10, 1000}, {"long", 90, 9000}}}));
  const auto finding = found(report, Finding::Kind::kSkewedTable);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->name, "long");
  EXPECT_NE(finding->text.find("90 % of the rows' bytes that rank 1 reads, 1.67 times"),
            std::string::npos)
      << finding->text;
  EXPECT_EQ(report.tables.front().table, "long");
  EXPECT_DOUBLE_EQ(report.tables.front().rows, 90);
}

TEST(Findings, ManyTablesOnOneRankAreNoSkewedTable) {
  std::vector<TableReads> many;
  for (int i = 0; i < 30; ++i) {
    many.push_back({"t" + std::to_string(i), 10, 1000});
  }
  EXPECT_FALSE(found(make_report(reading({many, {{"a", 10, 1000}}})), Finding::Kind::kSkewedTable));
  EXPECT_FALSE(found(make_report(reading({{{"a", 10, 1000}}, {{"b", 10, 1100}}})),
                     Finding::Kind::kSkewedTable));
  EXPECT_FALSE(found(make_report(reading({{{"a", 10, 1000}}})), Finding::Kind::kSkewedTable));
  EXPECT_FALSE(found(make_report(reading({{}, {}})), Finding::Kind::kSkewedTable));
}

TEST(Findings, NameThePlantedStraggler) {
  const auto finding = found(make_report(straggling()), Finding::Kind::kStraggler);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->name, "rank 1");
  std::vector<RankWork> even = straggling();
  even[1] = make_rank(1, 10, even[0].work);
  EXPECT_FALSE(found(make_report(even), Finding::Kind::kStraggler));
}

}  // namespace
}  // namespace weft::trace
