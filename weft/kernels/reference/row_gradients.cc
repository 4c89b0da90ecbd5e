#include "weft/kernels/row_gradients.h"

#include "weft/kernels/reference/segments_sum.h"

namespace weft::kernels::reference {

void sum_gradients(Context& /*ctx*/, std::span<const GradientSum> jobs) {
  for (const GradientSum& job : jobs) {
    for (std::int64_t u = 0; u < job.runs.num_rows; ++u) {
      const std::vector<float> sum =
          segments_sum(job, {job.runs.row_segments[u], job.runs.row_segments[u + 1]});
      for (std::int64_t c = 0; c < job.cols; ++c) {
        job.out[u * job.cols + c] = job.factor == 1.0F ? sum[at(c)] : job.factor * sum[at(c)];
      }
    }
  }
}

void cut_partial_sums(Context& /*ctx*/, std::span<const PartialCut> jobs) {
  for (const PartialCut& job : jobs) {
    std::int64_t count = 0;
    for (std::int64_t u = 0; u < job.runs.num_rows; ++u) {
      for (std::int64_t s = job.runs.row_segments[u]; s < job.runs.row_segments[u + 1]; ++s) {
        const auto node_of = [&](std::int64_t segment) {
          return job.nodes.node_of_part[job.runs.segment_parts[segment]];
        };
        if (s == job.runs.row_segments[u] || node_of(s) != node_of(s - 1)) {
          job.rows[count] = job.runs.rows[u];
          job.first_parts[count] = static_cast<std::int32_t>(job.nodes.subtrees[node_of(s)].begin);
          job.segments[count++] = s;
        }
      }
    }
    job.segments[count] = job.runs.num_segments;
    *job.count = count;
  }
}

void add_partial_sums(Context& /*ctx*/, std::span<const PartialSum> jobs) {
  for (const PartialSum& job : jobs) {
    for (std::int64_t i = 0; i < job.count; ++i) {
      // Parts outside the node are absent, so the whole tree adds what the node's does.
      const std::vector<float> sum =
          segments_sum({.runs = job.runs, .cols = job.cols, .parts = job.parts},
                       {job.segments[i], job.segments[i + 1]});
      for (std::int64_t c = 0; c < job.cols; ++c) {
        job.vectors[i * job.cols + c] = sum[at(c)];
      }
    }
  }
}

}  // namespace weft::kernels::reference
