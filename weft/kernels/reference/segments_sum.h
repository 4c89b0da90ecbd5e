/// Private to kernels/reference: sums of the entries of a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/kernels/row_gradients.h"

namespace weft::kernels::reference {

/// The sum of segments of one row: a vector per part, empty where there is none, then the tree.
inline std::vector<float> segments_sum(const GradientSum& job, Range segments) {
  using Values = std::vector<float>;
  const RowRuns& runs = job.runs;
  const std::int64_t cols = job.cols;
  std::vector<Values> parts(at(job.parts));
  for (std::int64_t s = segments.begin; s < segments.end; ++s) {
    Values& sum = parts[at(runs.segment_parts[s])];
    for (std::int64_t e = runs.segment_entries[s]; e < runs.segment_entries[s + 1]; ++e) {
      Values term(runs.grads[e], runs.grads[e] + cols);
      for (std::int64_t i = 0; i < cols; ++i) {
        term[at(i)] = runs.weights == nullptr ? term[at(i)] : runs.weights[e] * term[at(i)];
        term[at(i)] = sum.empty() ? term[at(i)] : sum[at(i)] + term[at(i)];
      }
      sum = std::move(term);
    }
  }
  std::vector<Values> slots(at(tree_slots(job.parts)) + 1);
  sum_tree(
      Range{0, job.parts}, 0,
      [&](Range node, int depth) {
        if (node.size() != 1 || parts[at(node.begin)].empty()) {
          return false;
        }
        slots[at(depth)] = parts[at(node.begin)];
        return true;
      },
      [&](int depth) {
        for (std::int64_t i = 0; i < cols; ++i) {
          slots[at(depth)][at(i)] += slots[at(depth + 1)][at(i)];
        }
      });
  return slots[0];
}

}  // namespace weft::kernels::reference
