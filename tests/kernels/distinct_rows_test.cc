// Distinct rows of a batch against sets, and slots by places and by rows.

#include "weft/kernels/distinct_rows.h"

#include <gtest/gtest.h>

#include "tests/kernels/distinct_rows_parity.h"

namespace weft::kernels::test {
namespace {

TEST(DistinctRows, PassTheirParityLists) {
  for (const int threads : {1, 3}) {
    expect_distinct_rows_parity(*make_device({.threads = threads}));
    expect_slots_of_places_parity(*make_device({.threads = threads}));
    expect_slots_of_rows_parity(*make_device({.threads = threads}));
  }
  on_check_device(expect_distinct_rows_parity);
  on_check_device(expect_slots_of_places_parity);
  on_check_device(expect_slots_of_rows_parity);
}

TEST(DistinctRows, JobsOfOneCallAreApart) {
  const std::int64_t ids[] = {4, 2, 4, 9};
  const std::int64_t offsets[] = {0, 4};
  const std::unique_ptr<Device> device = make_device({.threads = 2});
  std::vector<DistinctBuffers> buffers;
  std::vector<DistinctRows> found(80);
  std::vector<Bags> lists(80);
  std::vector<DistinctJob> jobs;
  for (std::size_t i = 0; i < 80; ++i) {
    buffers.emplace_back(*device);
    lists[i] = {ids + i % 4, offsets, nullptr, i % 3 == 0 ? 0 : 1};
    lists[i].ids -= i % 4;
  }
  for (std::size_t i = 0; i < 80; ++i) {
    jobs.push_back({.lists = std::span(&lists[i], 1),
                    .rows = 10,
                    .buffers = &buffers[i],
                    .distinct = &found[i]});
  }
  run_on(*device, [&](Context& ctx) { find_distinct_rows(ctx, jobs); });
  for (std::size_t i = 0; i < 80; ++i) {
    EXPECT_EQ(found[i].num_rows, i % 3 == 0 ? 0 : 3) << i;
  }
}

TEST(DistinctRows, IdsFindTheirPlacesByTheListsShift) {
  const std::int64_t ids[] = {99, 7, 3, 7, 5};
  const std::int64_t first[] = {1, 3};
  const std::int64_t second[] = {3, 4, 5};
  const Bags lists[] = {{ids, first, nullptr, 1}, {ids, second, nullptr, 2}};
  const std::unique_ptr<Device> device = make_device({});
  DistinctBuffers buffers(*device);
  DistinctRows rows;
  const DistinctJob job{.lists = lists, .rows = 100, .buffers = &buffers, .distinct = &rows};
  Context ctx;
  find_distinct_rows(ctx, std::span(&job, 1));
  ASSERT_EQ(rows.num_rows, 3);
  EXPECT_EQ(std::vector(rows.rows, rows.rows + 3), (std::vector<std::int64_t>{3, 5, 7}));
  EXPECT_EQ(std::vector(rows.places, rows.places + 4), (std::vector<std::int32_t>{2, 0, 2, 1}));
  EXPECT_EQ(rows.rows[rows.places[4 + rows.shifts[1]]], ids[4]);
  EXPECT_EQ(rows.rows[rows.places[2 + rows.shifts[0]]], ids[2]);
}

}  // namespace
}  // namespace weft::kernels::test
