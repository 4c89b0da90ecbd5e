/// Private to comm/: the additions that bring partial sums up the tree over parts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/kernels/term_sums.h"

namespace weft::comm {

/// The sum at a node of the tree over parts from sums of nodes below it. Absent terms are skipped;
/// the order is that of weft/base/parts.h, so that sums of sums have the bits of one sum.
class TreeSum {
 public:
  /// `terms`: nodes inside `node` that share no part, in the order of parts.
  TreeSum(Range node, std::vector<Range> terms);

  /// Which terms there are from now on; at first all. Returns whether there is any.
  bool set_present(std::span<const std::uint8_t> present);

  struct Memory {
    std::span<const float* const> rows;  ///< [terms] where their numbers begin
    float* scratch = nullptr;            ///< [layout::waiting_sums() of all terms][stride]
    std::int64_t stride = 0;
    float* out = nullptr;  ///< may be one of the rows
  };

  /// The job of kernels::sum_terms() that writes out[0, count); zeros without a term. Valid as long
  /// as the terms that are present.
  [[nodiscard]] kernels::TermSum job(std::int64_t count, const Memory& memory) const;

 private:
  Range node_;
  std::vector<Range> terms_;
  std::vector<std::uint8_t> present_;
  std::vector<kernels::Addition> additions_;
  std::vector<kernels::SumOperand> slots_;  ///< what a tree slot holds; [0] at the end is the total
};

}  // namespace weft::comm
