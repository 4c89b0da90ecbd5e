/// Bytes that ranks send so that all get the gradients of rows of which all hold copies
/// (weft/layout/row_sums.h), in the form that their number has.
///
/// Notation: W ranks, T tables, R rows of one, of which a rank makes u partial sums (a touched row
/// and whole subtree of its parts each) and V are touched by any rank; D columns.
///
///   form       exchanges  bytes that rank r sends
///   gathered   2          (W - 1) (8 T + Σ (12 + 4 D) u)
///   owned      4          counts + Σ (12 + 4 D) u (1 - R_r / R) + (W - 1) Σ (8 + 4 D) V R_r / R
///
/// Counts of the owned form go to each rank o with ⌈log2(n R_o + 1)⌉ bits of each table, and to all
/// with ⌈log2(R_r + 1)⌉, in whole bytes to each; n are the most whole subtrees of a rank's parts.
/// R_r rows of a table are rank r's. They are taken as touched as often as the others: exact where
/// all are, and over all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/layout/row_sums.h"

namespace weft::cost {

/// Bytes of a partial sum.
inline double partial_row_bytes(std::int64_t cols) {
  return 12.0 + 4.0 * static_cast<double>(cols);
}

/// Bytes of a sum over all ranks.
inline double summed_row_bytes(std::int64_t cols) {
  return 8.0 + 4.0 * static_cast<double>(cols);
}

/// Of the number of rows of a table.
inline constexpr double kRowCountBytes = 8.0;

/// Of one table and step.
struct SummedTable {
  std::int64_t rows = 0;  ///< R
  std::int64_t cols = 0;
  double partials = 0.0;  ///< u
  double touched = 0.0;   ///< V
};

/// Bytes of the exchanges of a step, by rank. Plain values.
class RowSumBytes {
 public:
  /// Of `tables` tables, in the order in which they are added; ranks have at most `nodes` whole
  /// subtrees of parts.
  RowSumBytes(std::int64_t ranks, std::int64_t tables, std::int64_t nodes = 1);

  /// Adds the next table. O(ranks) where rows have owners, else O(1).
  void add(const SummedTable& table);

  [[nodiscard]] bool any() const { return tables_ > 0; }

  [[nodiscard]] layout::RowSums form() const { return layout::row_sums(ranks_); }

  /// Gathered: bytes of counts from each rank to each.
  [[nodiscard]] double counts() const { return kRowCountBytes * static_cast<double>(tables_); }

  /// Gathered: bytes of partial sums from each rank to each.
  [[nodiscard]] double gathered() const { return gathered_; }

  /// Owned: [ranks] bytes of partial sums that each rank sends this one, and of sums that this one
  /// sends each.
  [[nodiscard]] const std::vector<double>& to_owners() const { return to_owners_; }

  [[nodiscard]] const std::vector<double>& sums() const { return sums_; }

  /// Owned: the same of the counts before them.
  [[nodiscard]] std::vector<double> counts_to_owners() const { return bytes_of(partial_bits_); }

  [[nodiscard]] std::vector<double> counts_of_sums() const { return bytes_of(sum_bits_); }

 private:
  static std::vector<double> bytes_of(const std::vector<std::int64_t>& bits);

  std::int64_t ranks_;
  std::int64_t tables_;
  std::int64_t nodes_;
  std::int64_t added_ = 0;
  double gathered_ = 0.0;
  std::vector<double> to_owners_, sums_;
  std::vector<std::int64_t> partial_bits_, sum_bits_;  // [ranks] of counts
};

/// Bytes of rows of one table that a rank sends each other rank, on average over the ranks.
double row_sum_bytes(std::int64_t ranks, const SummedTable& table);

}  // namespace weft::cost
