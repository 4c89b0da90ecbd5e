#include "weft/cost/row_sums.h"

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::cost {

RowSumBytes::RowSumBytes(std::int64_t ranks, std::int64_t tables, std::int64_t nodes)
    : ranks_(ranks), tables_(tables), nodes_(nodes) {
  if (form() == layout::RowSums::kOwned) {
    partial_bits_.resize(at(ranks));
    sum_bits_.resize(at(ranks));
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
    const std::int64_t owned = blocks.owned(static_cast<std::int64_t>(r)).size();
    const double share = static_cast<double>(owned) / static_cast<double>(table.rows);
    partial_bits_[r] += layout::count_bits(nodes_ * owned);
    sum_bits_[r] += layout::count_bits(owned);
    to_owners_[r] += share * partials;
    sums_[r] += share * summed_row_bytes(table.cols) * table.touched;
  }
}

std::vector<double> RowSumBytes::bytes_of(const std::vector<std::int64_t>& bits) {
  std::vector<double> bytes;
  for (const std::int64_t of_rank : bits) {
    bytes.push_back(static_cast<double>(layout::bits_bytes(of_rank)));
  }
  return bytes;
}

double row_sum_bytes(std::int64_t ranks, const SummedTable& table) {
  const double partials = partial_row_bytes(table.cols) * table.partials;
  return layout::row_sums(ranks) == layout::RowSums::kGathered
             ? partials
             : (partials + summed_row_bytes(table.cols) * table.touched) /
                   static_cast<double>(ranks);
}

}  // namespace weft::cost
