#include "weft/cost/row_sums.h"

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::cost {

RowSumBytes::RowSumBytes(std::int64_t ranks, std::int64_t tables) : ranks_(ranks), tables_(tables) {
  if (form() == layout::RowSums::kOwned) {
    to_owners_.resize(at(ranks));
    sums_.resize(at(ranks));
  }
}

void RowSumBytes::add(const SummedTable& table) {
  WEFT_CHECK(added_ < tables_ && table.rows > 0, "table {} of {}, of {} rows", added_, tables_,
             table.rows);
  const layout::SumBlocks blocks{
      .rows = table.rows, .ranks = ranks_, .table = added_++, .tables = tables_};
  const double partials = partial_row_bytes(table.cols) * table.partials;
  gathered_ += partials;
  for (std::size_t r = 0; r < to_owners_.size(); ++r) {
    const double share = static_cast<double>(blocks.owned(static_cast<std::int64_t>(r)).size()) /
                         static_cast<double>(table.rows);
    to_owners_[r] += share * partials;
    sums_[r] += share * summed_row_bytes(table.cols) * table.touched;
  }
}

double row_sum_bytes(std::int64_t ranks, const SummedTable& table) {
  const double partials = partial_row_bytes(table.cols) * table.partials;
  return layout::row_sums(ranks) == layout::RowSums::kGathered
             ? partials
             : (partials + summed_row_bytes(table.cols) * table.touched) /
                   static_cast<double>(ranks);
}

}  // namespace weft::cost
