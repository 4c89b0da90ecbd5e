#include "weft/kernels/coalesce.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft::kernels::reference {
namespace {

struct Entry {
  std::int64_t row;
  std::int32_t part;
  const float* grad;
  float weight;
};

std::vector<Entry> sorted_entries(std::span<const GradientBlock> blocks) {
  std::vector<Entry> entries;
  for (const GradientBlock& block : blocks) {
    const Bags& bags = block.bags;
    for (std::int64_t b = 0; b < bags.bags; ++b) {
      for (std::int64_t i = bags.offsets[b]; i < bags.offsets[b + 1]; ++i) {
        const std::int64_t vector = block.pooled ? b : i - bags.offsets[0];
        const float weight = block.pooled && bags.weights != nullptr ? bags.weights[i] : 1.0F;
        entries.push_back(
            {bags.ids[i], block.parts[b], block.grads + vector * block.grad_stride, weight});
      }
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.row != b.row ? a.row < b.row : a.part < b.part;
  });
  return entries;
}

}  // namespace

bool same_runs(const RowRuns& runs, std::span<const GradientBlock> blocks) {
  const std::vector<Entry> entries = sorted_entries(blocks);
  std::int64_t rows = 0;
  std::int64_t segments = 0;
  bool same = runs.num_entries == static_cast<std::int64_t>(entries.size());
  for (std::size_t i = 0; same && i < entries.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const bool new_row = i == 0 || entries[i].row != entries[i - 1].row;
    const bool new_segment = new_row || entries[i].part != entries[i - 1].part;
    if (new_row) {
      same = same && rows < runs.num_rows && runs.rows[rows] == entries[i].row &&
             runs.row_segments[rows] == segments;
      ++rows;
    }
    if (new_segment) {
      same = same && segments < runs.num_segments && runs.segment_entries[segments] == at &&
             runs.segment_parts[segments] == entries[i].part;
      ++segments;
    }
    same = same && runs.grads[at] == entries[i].grad &&
           (runs.weights == nullptr ? 1.0F : runs.weights[at]) == entries[i].weight;
  }
  return same && rows == runs.num_rows && segments == runs.num_segments &&
         runs.row_segments[rows] == segments && runs.segment_entries[segments] == runs.num_entries;
}

}  // namespace weft::kernels::reference
