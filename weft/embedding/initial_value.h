/// Initial values of embedding rows: a pure function of (seed, table name, row, column), so that
/// shards, ranks and the order of making them change nothing.
///
/// Columns 4j … 4j+3 of a row come from one Philox call with key (seed, kInitialValue, table name)
/// and counter (row, j). Uniform: s·(2u - 1), u in [0, 1) with 24 bits. Normal: s·z, words paired
/// by Box and Muller in double. s = init_scale, or 1/√E where it is 0.
#pragma once

#include <cstdint>

#include "weft/base/parts.h"
#include "weft/spec/config.h"

namespace weft::embedding {

/// The values of one row, columns `cols`, to out [cols.size()]; fp32, before rounding to the row's
/// type (which is to nearest).
void initial_values(
    const spec::Table& table, std::uint64_t seed, std::int64_t row, Range cols, float* out);

/// The same for many rows: the key is made once.
class InitialValues {
 public:
  InitialValues(const spec::Table& table, std::uint64_t seed);

  void row(std::int64_t row, Range cols, float* out) const;

 private:
  std::uint64_t key_;
  spec::TableInit init_;
  float scale_;
};

}  // namespace weft::embedding
