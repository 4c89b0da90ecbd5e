#include "weft/planner/cache_cost.h"

#include <algorithm>
#include <cmath>

#include "weft/topology/rates.h"

namespace weft::planner {

/// An id finds its row in a cache where it is not the row's first in this step, and where fewer
/// other rows than fill the cache came after the one before. Tables are looked up one after the
/// other, so only a table's own rows come in between. Che, Tung, Wang (2002): a row stays for the
/// same number of draws, in which so many different ones come as fit.
double near_share(const StepShape& shape, const FeatureUse& use, double ids, double row_bytes) {
  const double fits = shape.cluster.compute.cache.value / row_bytes;
  if (ids <= 0.0 || fits <= 0.0) {
    return 0.0;
  }
  const double first = unique_rows(use, ids);
  double stay = ids;  // draws
  if (first > fits) {
    double low = 0.0;
    double high = ids;
    for (int i = 0; i < 12; ++i) {  // to a few thousandths of the draws
      stay = 0.5 * (low + high);
      (unique_rows(use, stay) < fits ? low : high) = stay;
    }
  }
  double hits = 0.0;
  for (const AccessSegment& segment : use.segments) {
    const double each = segment.share / segment.rows;
    hits += segment.share * (each >= 1.0 ? 1.0 : 1.0 - std::exp(stay * std::log1p(-each)));
  }
  return std::clamp(hits, 0.0, 1.0 - first / ids);
}

double matrix_s(const StepShape& shape, double bytes) {
  return topology::copy_s(shape.cluster, bytes * shape.cold) +
         topology::near_s(shape.cluster, bytes * (1.0 - shape.cold));
}

}  // namespace weft::planner
