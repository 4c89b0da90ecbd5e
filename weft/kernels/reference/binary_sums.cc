#include "weft/kernels/binary_sums.h"

#include <cmath>

#include "weft/base/at.h"

namespace weft::kernels::reference {

void sum_binary(Context& /*ctx*/, const SumBinary& args) {
  for (std::int64_t t = 0; t < args.logits.cols; ++t) {
    for (std::size_t part = 0; part < args.parts.size(); ++part) {
      BinaryTotals totals;
      for (std::int64_t s = args.parts[part].begin; s < args.parts[part].end; ++s) {
        const double z = args.logits.row(s)[t];
        const double y = args.labels.row(s)[t];
        const double w = args.weights.row(s)[t];
        // ln(1 + exp(-z)) and ln(1 + exp(z)), neither of which overflows.
        const double minus_ln_p = std::fmax(-z, 0.0) + std::log1p(std::exp(-std::fabs(z)));
        const double minus_ln_rest = std::fmax(z, 0.0) + std::log1p(std::exp(-std::fabs(z)));
        ++totals.count;
        totals.weight += w;
        totals.label += w * y;
        totals.loss += w * (y * minus_ln_p + (1.0 - y) * minus_ln_rest);
        totals.prediction += w * std::exp(-minus_ln_p);
      }
      args.totals[at(static_cast<std::int64_t>(part) * args.logits.cols + t)] = totals;
    }
  }
}

}  // namespace weft::kernels::reference
