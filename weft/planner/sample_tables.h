/// Sets of tables to plan for and to measure planners with: three public or made after public
/// figures, one made to be hard. Plain values; numbers come from Philox and from operations that
/// IEEE 754 fixes, so every machine makes the same sets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/spec/config.h"

namespace weft::planner {

/// A table and how it is used.
struct TableUse {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  double mean_length = 1.0;      ///< ids per sample
  std::int64_t max_length = 1;   ///< the longest bag; equal to the mean: all bags are as long
  double zipf = 1.05;            ///< exponent of the law of ids, 0 = uniform
  std::int64_t reuse_class = 0;  ///< c: an id is looked up 2^(c-1) to 2^c times per batch of
                                 ///< 65,536; 0: at most once; -1: not known

  friend bool operator==(const TableUse&, const TableUse&) = default;
};

/// 856 tables after the published statistics of one production trace: in all exactly 13,535 ids per
/// sample, so 15.81 per bag; per table between 1 and 200, most of them short. Rows log-uniform in
/// [1e3, 1e8). Dims 16 to 256 in fixed proportions, mean 93.03. Longest bag 4 times the mean.
/// Reuse classes 0 to 16 in the trace's shares of ids; tables with few rows for their ids get the
/// higher ones, as they must. The trace counts classes by row, here a table has one. Its zipf,
/// 0.6 + 0.05 c, is a stand-in that rises with it. The seed decides rows, lengths and who has
/// which.
std::vector<TableUse> production_tables(std::uint64_t seed);

/// Criteo's 26 columns with the number of distinct ids in the Kaggle log, one id each, D = 16.
std::vector<TableUse> criteo_kaggle_tables();

/// MLPerf's DLRM-DCNv2: 26 tables of at most 40 million rows, 214 ids per sample, D = 128.
std::vector<TableUse> mlperf_dcnv2_tables();

/// 256 tables in which every simple rule fails: one with a fifth of all ids; 4 of about a billion
/// rows and one id per sample, memory without time; 48 small ones with long bags, time without
/// memory; 75 in pairs that fall in steps from 2/3 to 1/3 of a sum, on which largest-first does
/// badly; 128 that are equal. The seed decides rows, the long bags, and the order.
std::vector<TableUse> adversarial_tables(std::uint64_t seed);

/// The sums over a set of tables, as totals() counts them.
struct TableTotals {
  std::int64_t tables = 0;
  std::int64_t rows = 0;
  std::int64_t parameters = 0;  ///< rows x dim
  double ids_per_sample = 0.0;
  double mean_dim = 0.0;  ///< per table
};

/// Returns the number of tables, their summed rows, parameters and mean lengths, and the mean dim,
/// which is 0 for no tables.
TableTotals totals(std::span<const TableUse> tables);

/// As a configuration names them: a table, the pooled feature that reads it, and the generated
/// column of the same name, whose lengths are uniform with the mean rounded to a half.
spec::Table to_table(const TableUse& use);
spec::SparseFeature to_feature(const TableUse& use);
spec::SyntheticColumn to_column(const TableUse& use);

/// A job on these tables, validated: synthetic data, DeepFM over vectors of 64, 65,536 samples.
spec::Config to_config(std::span<const TableUse> tables);

/// "production", "criteo_kaggle", "mlperf_dcnv2", "adversarial"; the seed of the two that have one
/// behind a colon, "production:3" (else 1). Throws Error(kUsage) with the names there are.
std::vector<TableUse> table_set(const std::string& name);

}  // namespace weft::planner
