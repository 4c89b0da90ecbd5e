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
        entries.push_back({bags.ids[i], block.parts[b], block.vector(vector), weight});
      }
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.row != b.row ? a.row < b.row : a.part < b.part;
  });
  return entries;
}

RowRuns coalesce_table(const CoalesceJob& job) {
  const std::vector<Entry> entries = sorted_entries(job.blocks);
  const bool weighted = std::any_of(
      job.blocks.begin(), job.blocks.end(),
      [](const GradientBlock& block) { return block.pooled && block.bags.weights != nullptr; });
  const auto n = static_cast<std::int64_t>(entries.size());
  const RunArrays to = job.buffers->resize(n, weighted ? n : 0);
  std::int32_t rows = 0;
  std::int32_t segments = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const bool new_row = i == 0 || entries[i].row != entries[i - 1].row;
    if (new_row) {
      to.rows[rows] = entries[i].row;
      to.row_segments[rows++] = segments;
    }
    if (new_row || entries[i].part != entries[i - 1].part) {
      to.segment_entries[segments] = static_cast<std::int32_t>(i);
      to.segment_parts[segments++] = entries[i].part;
    }
    to.grads[i] = entries[i].grad;
    if (weighted) {
      to.weights[i] = entries[i].weight;
    }
  }
  to.row_segments[rows] = segments;
  to.segment_entries[segments] = static_cast<std::int32_t>(entries.size());
  return to.runs(rows, segments, n);
}

}  // namespace

void coalesce(Context& /*ctx*/, std::span<const CoalesceJob> jobs) {
  for (const CoalesceJob& job : jobs) {
    *job.runs = coalesce_table(job);
  }
}

void count_up(Context& /*ctx*/, std::span<const CountUp> jobs) {
  for (const CountUp& job : jobs) {
    for (std::int64_t i = 0; i < job.count; ++i) {
      job.out[i] = i;
    }
  }
}

}  // namespace weft::kernels::reference
