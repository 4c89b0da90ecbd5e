// The two messages of a step: what is known before a batch, and what is known after it. Both merge
// in any tree that keeps the order of ranks.
#include "weft/train/step_report.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/parts.h"
#include "weft/train/batch_control.h"

namespace weft::train {
namespace {

constexpr std::int64_t kParts = 8;
constexpr std::int64_t kTasks = 2;

BatchControl control_of(std::int64_t rank, std::int64_t ranks) {
  BatchControl control(kParts, kTasks);
  const Range own = rank_parts(kParts, ranks, rank);
  std::vector<double> weights;
  for (std::int64_t p = own.begin; p < own.end; ++p) {
    weights.insert(weights.end(), {static_cast<double>(p), 1.0});
  }
  control.weights.assign(own, weights);
  control.stop = rank == ranks - 1;
  return control;
}

StepReport report_of(std::int64_t rank, std::int64_t ranks) {
  StepReport report(kParts, kTasks);
  const Range own = rank_parts(kParts, ranks, rank);
  std::vector<metrics::BinarySums> sums;
  for (std::int64_t p = own.begin; p < own.end; ++p) {
    metrics::BinarySums of_part;
    of_part.add(0.5F, 1.0F, static_cast<float>(p + 1));
    sums.insert(sums.end(), {of_part, metrics::BinarySums{}});
  }
  report.sums.assign(own, sums);
  report.codecs.clips.forward = {.non_finite = 0, .clipped = 1};
  report.codecs.table = 10 - rank;
  report.late_step = 4;
  if (rank >= ranks / 2) {
    report.overflow = {.count = 2, .table = 3, .row = 4 + rank};
    report.overflow_rank = rank;
    report.non_finite = {.position = 40 - rank, .sample = 7 + rank, .rank = rank};
  }
  return report;
}

/// With room for the run of any ranks.
std::int64_t wire_bytes(const BatchControl& control) {
  return std::max(control.bytes(3), control.bytes(5));
}

std::int64_t wire_bytes(const StepReport& report) {
  return report.bytes();
}

/// The merge of ranks [begin, end): the right half into the left one, over the wire.
template <typename Message, typename Of>
Message merged(Range ranks, std::int64_t all, const Of& of) {
  if (ranks.size() == 1) {
    return of(ranks.begin, all);
  }
  const std::int64_t middle = ranks.begin + (ranks.size() + 1) / 2;
  Message left = merged<Message>({ranks.begin, middle}, all, of);
  const Message right = merged<Message>({middle, ranks.end}, all, of);
  std::vector<std::byte> wire(static_cast<std::size_t>(wire_bytes(right)));
  right.encode(wire);
  Message arrived(kParts, kTasks);
  arrived.decode(wire);
  left.append(arrived);
  return left;
}

TEST(BatchControl, MergesWhatEveryRankSays) {
  for (const std::int64_t ranks : {1, 2, 3, 5, 8}) {
    const auto all = merged<BatchControl>({0, ranks}, ranks, control_of);
    EXPECT_TRUE(all.stop);
    EXPECT_EQ(all.weights.total()[0], 28.0) << ranks;
    EXPECT_EQ(all.weights.total()[1], 8.0) << ranks;
  }
}

TEST(StepReport, MergesWhatEveryRankSays) {
  for (const std::int64_t ranks : {1, 2, 3, 5, 8}) {
    const auto all = merged<StepReport>({0, ranks}, ranks, report_of);
    EXPECT_EQ(all.sums.total()[0].count, kParts) << ranks;
    EXPECT_EQ(all.sums.total()[0].weight, 36.0) << ranks;
    EXPECT_EQ(all.sums.total()[1].count, 0) << ranks;
    EXPECT_EQ(all.codecs.clips.forward.clipped, ranks);
    EXPECT_EQ(all.codecs.table, 10 - (ranks - 1)) << "the first table of any rank";
    EXPECT_EQ(all.late_step, 4);
    const std::int64_t with_overflow = ranks - ranks / 2;
    EXPECT_EQ(all.overflow.count, 2 * with_overflow);
    EXPECT_EQ(all.overflow_rank, ranks / 2) << "the first rank's row is named";
    EXPECT_EQ(all.overflow.row, 4 + ranks / 2);
    EXPECT_EQ(all.non_finite.position, 40 - (ranks - 1)) << "the first in the order of samples";
    EXPECT_EQ(all.non_finite.rank, ranks - 1);
  }
}

TEST(StepReport, MergesTheSameInAnyTree) {
  constexpr std::int64_t kReporting = 5;
  const auto balanced = merged<StepReport>({0, kReporting}, kReporting, report_of);
  StepReport in_line = report_of(0, kReporting);
  for (std::int64_t r = 1; r < kReporting; ++r) {
    in_line.append(report_of(r, kReporting));
  }
  std::vector<std::byte> left(static_cast<std::size_t>(balanced.bytes()));
  std::vector<std::byte> right(left.size());
  balanced.encode(left);
  in_line.encode(right);
  EXPECT_EQ(left, right);
}

}  // namespace
}  // namespace weft::train
