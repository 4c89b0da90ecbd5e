#include "weft/kernels/term_sums.h"

#include <algorithm>
#include <vector>

#include "weft/base/at.h"

namespace weft::kernels::reference {

void sum_terms(Context& /*ctx*/, std::span<const TermSum> jobs) {
  for (const TermSum& job : jobs) {
    for (std::int64_t i = 0; i < job.count; ++i) {
      std::vector<float> sums;  // by row of scratch
      const auto value = [&](const SumOperand& of) {
        return of.term < 0 ? sums[at(of.sum)] : job.terms[at(of.term)][i];
      };
      float total = job.only.term < 0 ? 0.0F : value(job.only);
      for (const Addition& addition : job.additions) {
        total = value(addition.a) + value(addition.b);
        sums.resize(std::max(sums.size(), at(addition.sum) + 1));
        sums[at(addition.sum)] = total;
      }
      job.out[i] = total;
    }
  }
}

}  // namespace weft::kernels::reference
