#include "weft/kernels/row_average.h"

#include <vector>

#include "weft/kernels/reference/row_values.h"

namespace weft::kernels::reference {
namespace {

std::byte* place_of(const RowAverage& job,
                    std::size_t replica,
                    std::size_t part,
                    std::int64_t index) {
  const RowPart& place = job.parts[replica * job.parts_of_row() + part];
  return place.data + place.stride * (place.rows == nullptr ? index : place.rows[index]);
}

/// All numbers of a replica's row: its weights, then its state.
std::vector<float> read_row(const RowAverage& job, std::size_t replica, std::int64_t index) {
  std::vector<float> values;
  const std::byte* const weights = place_of(job, replica, 0, index);
  for (std::int64_t c = 0; c < job.table.cols; ++c) {
    if (job.table.low == nullptr) {
      values.push_back(load_element(weights, job.table.dtype, c));
      continue;
    }
    const auto* const low = reinterpret_cast<const std::int16_t*>(place_of(job, replica, 1, index));
    values.push_back(
        to_float(SplitBFloat16{reinterpret_cast<const BFloat16*>(weights)[c], low[c]}));
  }
  for (std::int64_t i = 0; i < job.state_floats; ++i) {
    values.push_back(
        reinterpret_cast<const float*>(place_of(job, replica, job.parts_of_row() - 1, index))[i]);
  }
  return values;
}

void write_weight(const RowAverage& job, std::int64_t index, std::int64_t c, float value) {
  std::byte* const weights = place_of(job, job.own, 0, index);
  if (job.table.low != nullptr) {
    const SplitBFloat16 halves = to_split_bfloat16(value);
    reinterpret_cast<BFloat16*>(weights)[c] = halves.high;
    reinterpret_cast<std::int16_t*>(place_of(job, job.own, 1, index))[c] = halves.low;
    return;
  }
  const std::int64_t row = job.rows == nullptr ? job.first + index : job.rows[index];
  store_element(weights, job.table.dtype, c, value,
                element_bits(job.draws, job.table, row, job.step, c));
}

void average_row(const RowAverage& job, std::int64_t index) {
  std::vector<std::vector<float>> rows;
  for (std::size_t m = 0; m < job.replicas; ++m) {
    rows.push_back(read_row(job, m, index));
  }
  for (std::int64_t i = 0; i < job.table.cols + job.state_floats; ++i) {
    const auto at = static_cast<std::size_t>(i);
    auto sum = static_cast<double>(rows[0][at]);
    for (std::size_t m = 1; m < job.replicas; ++m) {
      sum = sum + static_cast<double>(rows[m][at]);
    }
    const auto mean = static_cast<float>(sum / static_cast<double>(job.replicas));
    if (i < job.table.cols) {
      write_weight(job, index, i, mean);
    } else {
      reinterpret_cast<float*>(
          place_of(job, job.own, job.parts_of_row() - 1, index))[i - job.table.cols] = mean;
    }
  }
}

}  // namespace

/// Equal rows are their own average, so these do not ask.
void average_rows(Context& /*ctx*/, std::span<const RowAverage> jobs) {
  for (const RowAverage& job : jobs) {
    for (std::int64_t i = 0; i < job.count; ++i) {
      average_row(job, i);
    }
  }
}

}  // namespace weft::kernels::reference
