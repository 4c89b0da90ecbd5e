// The parity list of average_rows: every backend passes it (tests/kernels/parity.h).
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "tests/kernels/row_cases.h"
#include "weft/kernels/row_average.h"

namespace weft::kernels::test {

/// Tables of some replicas, of which the second is written.
class AverageCase {
 public:
  AverageCase(Random& random, const RowTable& shape, SparseOptimizerKind rule, std::size_t replicas)
      : rule_(rule), list_(std::vector<std::int32_t>{1, 4, 5, 19}) {
    for (std::size_t m = 0; m < replicas; ++m) {
      Random same(5);  // some rows are equal on all
      TableCase& table = *tables_.emplace_back(
          std::make_unique<TableCase>(same, 20, shape.cols, shape.dtype, rule));
      for (std::int64_t row = 0; row < 20; row += 3) {
        for (std::int64_t c = 0; c < shape.cols; ++c) {
          table.set(row + row % 2, c, number(random));
        }
      }
      copies_.emplace_back(table);
    }
  }

  /// The listed rows, or a range.
  void expect_parity(Context& ctx, std::int64_t listed) {
    std::vector<RowPart> there;
    std::vector<RowPart> here;
    const std::int32_t* const rows_there = listed != 0 ? list_.place(ctx) : nullptr;
    const std::int32_t* const rows_here = listed != 0 ? list_.host() : nullptr;
    for (TableCopies& one : copies_) {
      add_parts(one.place(ctx), rows_there, there);
      add_parts(one.host(), rows_here, here);
    }
    RowAverage job{.table = copies_[0].host(),
                   .state_floats = state_floats(rule_, copies_[0].host().cols),
                   .count = listed != 0 ? 4 : 20,
                   .rows = rows_there,
                   .parts = there,
                   .replicas = copies_.size(),
                   .own = 1,
                   .draws = {.key = 0x123456789ABCDEFULL,
                             .rule = listed != 0 ? DrawRule::kWord : kNewestDrawRule},
                   .step = 6};
    job.table.first_row = 70;
    job.table.row_step = 2;
    job.table.first_col = 16;
    average_rows(ctx, std::span(&job, 1));
    job.rows = rows_here;
    job.parts = here;
    reference::average_rows(ctx, std::span(&job, 1));
    for (const TableCopies& one : copies_) {
      EXPECT_TRUE(one.same_bits(ctx)) << to_string(job.table.dtype) << ", " << job.table.cols
                                      << " columns, " << copies_.size() << " replicas";
    }
  }

 private:
  void add_parts(const RowTable& view, const std::int32_t* rows, std::vector<RowPart>& to) const {
    to.push_back({static_cast<std::byte*>(view.weights), view.weight_stride, rows});
    if (view.low != nullptr) {
      to.push_back({static_cast<std::byte*>(view.low), view.low_stride, rows});
    }
    if (state_floats(rule_, view.cols) > 0) {
      to.push_back({static_cast<std::byte*>(view.state), view.state_stride, rows});
    }
  }

  SparseOptimizerKind rule_;
  Copied<std::int32_t> list_;
  std::vector<std::unique_ptr<TableCase>> tables_;
  std::deque<TableCopies> copies_;
};

/// Every row type, layout and odd widths, two and more replicas, all rows and listed ones,
/// either rule of draws.
inline void expect_row_average_parity(Device& device) {
  Random random(10);
  for (const DType dtype : kRowTypes) {
    for (const SparseOptimizerKind rule :
         {SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad,
          SparseOptimizerKind::kAdam}) {
      for (const std::int64_t cols : {1, 17, 130}) {
        for (const std::size_t replicas : {2U, 3U, 5U}) {
          for (const std::int64_t listed : {0, 1}) {
            AverageCase one(random, {.dtype = dtype, .cols = cols}, rule, replicas);
            run_on(device, [&](Context& ctx) { one.expect_parity(ctx, listed); });
          }
        }
      }
    }
  }
}

}  // namespace weft::kernels::test
