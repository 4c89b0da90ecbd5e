#include "weft/kernels/finite.h"

#include <cmath>

namespace weft::kernels::reference {

void first_bad_sample(Context& /*ctx*/, const FirstBadSample& args) {
  const auto lower = [&](std::int64_t sample) {
    *args.first = *args.first < 0 || sample < *args.first ? sample : *args.first;
  };
  for (const SampleValues& rows : args.values) {
    for (std::int64_t s = 0; s < args.samples; ++s) {
      const std::int64_t begin = rows.offsets == nullptr ? s : rows.offsets[s];
      const std::int64_t end = rows.offsets == nullptr ? s + 1 : rows.offsets[s + 1];
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::int64_t j = 0; j < rows.values.cols; ++j) {
          if (!std::isfinite(rows.values.row(i)[j])) {
            lower(s);
          }
        }
      }
    }
  }
}

}  // namespace weft::kernels::reference
