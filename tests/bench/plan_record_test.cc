// Measurements of plans that are kept and read again.
#include "bench/plan_record.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/topology/small_cluster.h"
#include "weft/base/error.h"

namespace weft::bench {
namespace {

std::string fresh_folder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

ShapeFigures one_shape() {
  const PlanGroup group = plan_groups(2, false).front();
  PlanFigures figures = plan_figures(group, plan_cases(group, 2)[1], 2, 1, "local");
  Seconds seconds{.step = 0.5, .other = 0.125};
  seconds.parts[static_cast<std::size_t>(StepPart::kLookup)] = 0.25;
  figures.measured = {seconds, {.step = 0.75}};
  figures.counted = {.tables = {10, 20}, .buffers = {1, 2}};
  topology::Cluster slow = topology::small_cluster({{1, 2}});
  topology::Cluster quick = slow;
  quick.compute.copy.value *= 2.0;
  slow.links.host.latency.value *= 2.0;
  return {.cases = {figures}, .clusters = {slow, quick}};
}

TEST(PlanRecord, IsReadAsItWasWritten) {
  const std::string folder = fresh_folder("plan_record");
  const ShapeFigures before = one_shape();
  save_measured(folder, {before});
  const std::vector<ShapeFigures> shapes = load_measured(folder);
  ASSERT_EQ(shapes.size(), 1U);
  ASSERT_EQ(shapes[0].cases.size(), 1U);
  const PlanFigures& one = shapes[0].cases[0];
  EXPECT_EQ(one.parameters, before.cases[0].parameters);
  EXPECT_EQ(one.group, before.cases[0].group);
  EXPECT_EQ(one.chosen.made, before.cases[0].chosen.made);
  ASSERT_EQ(one.measured.size(), 2U);
  EXPECT_EQ(one.measured[0].step, 0.5);
  EXPECT_EQ(one.measured[0].parts, before.cases[0].measured[0].parts);
  EXPECT_EQ(one.measured[0].other, 0.125);
  EXPECT_EQ(one.measured[1].step, 0.75);
  EXPECT_EQ(one.counted.tables, before.cases[0].counted.tables);
  EXPECT_EQ(one.counted.buffers, before.cases[0].counted.buffers);
  // Of every figure of the cluster the best round.
  ASSERT_EQ(shapes[0].clusters.size(), 1U);
  EXPECT_EQ(shapes[0].clusters[0].compute.copy.value, before.clusters[1].compute.copy.value);
  EXPECT_EQ(shapes[0].clusters[0].links.host.latency.value,
            before.clusters[1].links.host.latency.value);
}

TEST(PlanRecord, SaysWhatIsMissing) {
  const std::string folder = fresh_folder("plan_record_missing");
  EXPECT_THROW(load_measured(folder), Error);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/measured.json") << "[{\"parameters\": 1}]";
  EXPECT_THROW(load_measured(folder), Error);
}

}  // namespace
}  // namespace weft::bench
