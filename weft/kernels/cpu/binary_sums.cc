// e = exp(-|z|) never overflows. −ln p = max(−z, 0) + ln(1 + e) and −ln(1−p) = that + z, so the
// loss is max(z, 0) − z·y + ln(1 + e).

#include "weft/kernels/binary_sums.h"

#include <algorithm>
#include <cmath>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/thread_pool.h"

namespace weft::kernels {

void add_sample(BinaryTotals& to, float logit, float y, float w) {
  const double z = logit;
  const double wide_w = w;
  const double wide_y = y;
  const double e = std::exp(-std::fabs(z));
  const double sample_loss = std::fmax(z, 0.0) - z * wide_y + std::log1p(e);
  const double p = z >= 0.0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
  ++to.count;
  to.weight += wide_w;
  to.label += wide_w * wide_y;
  // fmax drops a NaN; z - z brings it back and is 0 otherwise.
  to.loss += wide_w * (sample_loss + (z - z));
  to.prediction += wide_w * p;
}

namespace cpu {

void sum_binary(Context& ctx, const SumBinary& args) {
  const std::int64_t tasks = args.logits.cols;
  WEFT_CHECK(args.labels.cols == tasks && args.weights.cols == tasks &&
                 args.labels.rows == args.logits.rows && args.weights.rows == args.logits.rows,
             "logits [{}, {}], labels [{}, {}], weights [{}, {}]", args.logits.rows, tasks,
             args.labels.rows, args.labels.cols, args.weights.rows, args.weights.cols);
  const auto task = [&](std::int64_t part) {
    BinaryTotals* const totals = args.totals + part * tasks;
    std::fill_n(totals, tasks, BinaryTotals{});
    const Range& rows = args.parts[at(part)];
    for (std::int64_t s = rows.begin; s < rows.end; ++s) {
      for (std::int64_t t = 0; t < tasks; ++t) {
        add_sample(totals[t], args.logits.row(s)[t], args.labels.row(s)[t], args.weights.row(s)[t]);
      }
    }
  };
  const auto parts = static_cast<std::int64_t>(args.parts.size());
  if (ctx.pool != nullptr) {
    ctx.pool->parallel_for(parts, task);
    return;
  }
  for (std::int64_t part = 0; part < parts; ++part) {
    task(part);
  }
}

}  // namespace cpu
}  // namespace weft::kernels
