/// Seconds of what a rank does with its share of a table.
///
/// Notation: D columns held, w bytes of a row's weights as a lookup reads them, s of the rest (its
/// optimizer state and, of split_bf16, the low halves), n ids, U different ones among them, b bags.
/// read(x), update(x), near(x): seconds of one random row of x bytes, near(x) of one in a cache
/// (weft/topology/rates.h); copy(x): of x bytes one after the other; sort(x): of x bytes of
/// sorting.
///
///   lookup     n (1 - hot) read(w) + n hot near(w) + v cold read(4 D) + copy(v (1 - cold) 4 D),
///              v = b vectors written, n without pooling. Each lies in a row of a matrix with those
///              of other features: a line that is not in a cache is fetched like a random row
///   coalesce   sort(n (64 + 24 passes)): of an id its row, bag and part are read, an item is
///              written and at last read, 36 bytes an entry come out. A pass sorts 11 bits; it
///              reads 8 bytes in order and scatters 8, whose lines are fetched first. Bits are
///              those of the rows; entries of several ranks come in no order, so 3 more of the
///              parts, and 24 bytes an entry noted and found again (weft/kernels/coalesce.h)
///   gradients  v cold read(4 D) + (n - v cold) near(4 D): entries are in the order of rows, so a
///              gradient's first touch is a random row, and what a bag's other ids read is near
///   update     gradients + (n - U) repeat + U update(w) + U update(s) where rows lie apart from
///              their state, + U update(stride) where they lie together; repeat: seconds for one
///              more gradient of a row (sums by the rule of parts). Rows ascend, so state that
///              is shorter than a line is touched once per line: expected_unique(rows s / 64, U).
///              Rows of fp16 and bf16 are rounded stochastically when they are written
///              (rounding.h); that lookups widen them hides behind their bytes
///
/// The terms of the lookup are those of TorchRec's estimator (reads of rows, writes of outputs);
/// the layouts are Weft's (weft/layout/tables.h). A row may lie in two places: apart for no
/// state or one number per row, together for state per element. Where a table's rows fit a cache,
/// say so by `hot`.
/// All functions are pure.
#pragma once

#include <cstdint>

#include "weft/spec/config.h"
#include "weft/topology/cluster.h"

namespace weft::cost {

/// A row of `cols` columns of a table.
struct RowShape {
  double weights = 0.0;  ///< w: bytes that a lookup reads
  double rest = 0.0;     ///< s: bytes that only an update touches
  double stride = 0.0;   ///< bytes from one row to the next where they lie together, else 0
  double vector = 0.0;   ///< bytes of its fp32 vector
};

/// Returns the bytes of a row of `cols` of the table's columns, by its dtype and optimizer.
RowShape row_shape(const spec::Table& table, std::int64_t cols);

/// What a step asks of a shard.
struct ShardWork {
  double rows = 0.0;    ///< of the shard; 0: so many that none share a line of state
  double ids = 0.0;     ///< n
  double unique = 0.0;  ///< U <= n
  double bags = 0.0;    ///< b
  double hot = 0.0;     ///< share of the ids whose row is in a cache
  double cold = 1.0;    ///< share of the vectors, and of their gradients, that is in none
  bool pooled = true;
  bool mixed = false;  ///< entries of several ranks are sorted together
};

/// Distinct rows among `ids` even draws from `rows`: rows (1 - (1 - 1/rows)^ids). An upper bound of
/// U for skewed ids.
double expected_unique(double rows, double ids);

/// Returns the seconds of one step's lookup in a shard of `cols` columns. `work.unique`,
/// `work.rows` and `work.mixed` are not read.
double lookup_s(const topology::Cluster& cluster,
                const spec::Table& table,
                std::int64_t cols,
                const ShardWork& work);

/// What coalesce_s counts, of one id of a table of so many rows.
double coalesce_bytes(std::int64_t rows, bool mixed);

/// One thread's work: ranks sort different tables on different threads.
double coalesce_s(const topology::Cluster& cluster, std::int64_t rows, const ShardWork& work);

/// Gradients of a shard's entries, read in the order of their rows.
double gradients_s(const topology::Cluster& cluster, std::int64_t cols, const ShardWork& work);

/// gradients_s and the rows.
double update_s(const topology::Cluster& cluster,
                const spec::Table& table,
                std::int64_t cols,
                const ShardWork& work);

}  // namespace weft::cost
