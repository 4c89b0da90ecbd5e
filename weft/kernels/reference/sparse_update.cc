#include "weft/kernels/sparse_update.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/kernels/reference/row_values.h"
#include "weft/kernels/reference/segments_sum.h"
#include "weft/kernels/row_statistics.h"

namespace weft::kernels::reference {
namespace {

using Values = std::vector<float>;

Values block_squares(const Values& values) {
  const auto cols = static_cast<std::int64_t>(values.size());
  Values blocks;
  for (std::int64_t begin = 0; begin < cols; begin += kStatisticBlock) {
    float squares[kStatisticBlock] = {};
    for (std::int64_t i = 0; i < kStatisticBlock && begin + i < cols; ++i) {
      squares[i] = values[at(begin + i)] * values[at(begin + i)];
    }
    for (std::int64_t width = kStatisticBlock / 2; width > 0; width /= 2) {
      for (std::int64_t i = 0; i < width; ++i) {
        squares[i] = squares[i] + squares[i + width];
      }
    }
    blocks.push_back(squares[0]);
  }
  return blocks;
}

float tree_sum(const Values& blocks) {
  return block_tree_sum(blocks.data(), static_cast<std::int64_t>(blocks.size()));
}

std::int16_t* low_half(const RowTable& table, std::int64_t slot) {
  return reinterpret_cast<std::int16_t*>(static_cast<char*>(table.low) + slot * table.low_stride);
}

Values load_row(const RowTable& table, std::int64_t slot) {
  const char* const data = static_cast<const char*>(table.weights) + slot * table.weight_stride;
  Values values;
  for (std::int64_t i = 0; i < table.cols; ++i) {
    if (table.dtype == DType::kSplitBFloat16) {
      values.push_back(to_float(
          SplitBFloat16{reinterpret_cast<const BFloat16*>(data)[i], low_half(table, slot)[i]}));
    } else {
      values.push_back(load_element(data, table.dtype, i));
    }
  }
  return values;
}

/// g + wd·w for L2, else g.
Values decayed(const UpdateParams& p, Values g, const Values& w) {
  if (p.decay == WeightDecay::kL2) {
    for (std::size_t i = 0; i < g.size(); ++i) {
      g[i] = g[i] + p.weight_decay * w[i];
    }
  }
  return g;
}

struct NewRow {
  Values w;
  Values state;
};

float adam_step(const UpdateParams& p, float w, float m, float root) {
  float direction = m * p.correction1 / root;
  if (p.decay == WeightDecay::kDecoupled) {
    direction = direction + p.weight_decay * w;
  }
  return w - p.learning_rate * direction;
}

/// `given`: the mean of the squares of g', where it was made elsewhere.
NewRow apply_rule(const UpdateParams& p,
                  const Values& g,
                  const Values& w,
                  Values state,
                  std::optional<float> given) {
  const Values g2 = decayed(p, g, w);
  const std::size_t cols = w.size();
  const float mean = given ? *given : tree_sum(block_squares(g2)) / static_cast<float>(cols);
  NewRow row{w, std::move(state)};
  Values& s = row.state;
  float rate = 0.0F;
  float keep = p.keep;
  if (p.rule == SparseOptimizerKind::kRowWiseAdagrad) {
    s[0] = s[0] + mean;
    rate = p.learning_rate / (std::sqrt(s[0]) + p.eps);
    keep = p.decay == WeightDecay::kL2 ? 1.0F - rate * p.weight_decay : p.keep;
  }
  if (p.rule == SparseOptimizerKind::kRowWiseAdam) {
    s[cols] = p.beta2 * s[cols] + p.one_minus_beta2 * mean;
  }
  for (std::size_t i = 0; i < cols; ++i) {
    switch (p.rule) {
      case SparseOptimizerKind::kSgd:
        row.w[i] = p.keep * w[i] - p.learning_rate * g2[i];
        break;
      case SparseOptimizerKind::kAdagrad:
        s[i] = s[i] + g2[i] * g2[i];
        row.w[i] = p.keep * w[i] - p.learning_rate * g2[i] / (std::sqrt(s[i]) + p.eps);
        break;
      case SparseOptimizerKind::kRowWiseAdagrad:
        row.w[i] = keep * w[i] - rate * g[i];
        break;
      case SparseOptimizerKind::kAdam:
        s[i] = p.beta1 * s[i] + p.one_minus_beta1 * g2[i];
        s[cols + i] = p.beta2 * s[cols + i] + p.one_minus_beta2 * (g2[i] * g2[i]);
        row.w[i] = adam_step(p, w[i], s[i], std::sqrt(s[cols + i] * p.correction2) + p.eps);
        break;
      case SparseOptimizerKind::kRowWiseAdam:
        s[i] = p.beta1 * s[i] + p.one_minus_beta1 * g2[i];
        row.w[i] = adam_step(p, w[i], s[i], std::sqrt(s[cols] * p.correction2) + p.eps);
        break;
    }
  }
  return row;
}

bool all_finite(const Values& values) {
  for (const float value : values) {
    if (!std::isfinite(value)) {
      return false;
    }
  }
  return true;
}

bool all_storable(DType dtype, const Values& w) {
  for (const float value : w) {
    if (dtype == DType::kSplitBFloat16 && !has_finite_high_half(value)) {
      return false;
    }
  }
  return all_finite(w);
}

bool scale_to(const UpdateParams& p, float square, Values& w) {
  const float norm = std::sqrt(square);
  if (norm > p.max_norm) {
    const float factor = p.max_norm / norm;
    for (float& value : w) {
      value = value * factor;
    }
  }
  return std::isfinite(square);
}

void store_row(const SparseUpdate& update, std::int64_t u, const Values& w) {
  const RowTable& table = update.table;
  const std::int64_t slot = update.runs.slots[u];
  char* const data = static_cast<char*>(table.weights) + slot * table.weight_stride;
  for (std::int64_t i = 0; i < table.cols; ++i) {
    if (table.dtype == DType::kSplitBFloat16) {
      const SplitBFloat16 halves = to_split_bfloat16(w[at(i)]);
      reinterpret_cast<BFloat16*>(data)[i] = halves.high;
      low_half(table, slot)[i] = halves.low;
      continue;
    }
    const UpdateParams& p = update.params;
    store_element(data, table.dtype, i, w[at(i)],
                  element_bits(p.draws, table, update.runs.rows[u], p.step, i));
  }
}

float* state_of(const SparseUpdate& update, std::int64_t u) {
  const RowTable& table = update.table;
  return table.state == nullptr
             ? nullptr
             : reinterpret_cast<float*>(static_cast<char*>(table.state) +
                                        update.runs.slots[u] * table.state_stride);
}

/// The new row and state of unique row u, or nothing where they cannot be stored.
std::optional<NewRow> new_row(const SparseUpdate& update,
                              std::int64_t u,
                              const Values& g,
                              std::optional<float> mean) {
  const RowTable& table = update.table;
  const float* const state = state_of(update, u);
  const std::int64_t floats = state_floats(update.params.rule, table.cols);
  NewRow result = apply_rule(update.params, g, load_row(table, update.runs.slots[u]),
                             state == nullptr ? Values{} : Values(state, state + floats), mean);
  if (!all_storable(table.dtype, result.w) || !all_finite(result.state)) {
    return {};
  }
  return result;
}

void store_state(const SparseUpdate& update, std::int64_t u, const Values& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    state_of(update, u)[i] = values[i];
  }
}

void count_overflow(const SparseUpdate& update, std::int64_t u) {
  if (update.overflow != nullptr) {
    update.overflow->merge({.count = 1,
                            .first_row = update.table.whole_row(update.runs.rows[u]),
                            .first_step = update.params.step});
  }
}

bool update_row(const SparseUpdate& update, std::int64_t u, const Values& g) {
  std::optional<NewRow> row = new_row(update, u, g, {});
  if (!row || (update.params.max_norm > 0.0F &&
               !scale_to(update.params, tree_sum(block_squares(row->w)), row->w))) {
    return false;
  }
  store_state(update, u, row->state);
  store_row(update, u, row->w);
  return true;
}

Values vector_at(const float* values, std::int64_t u, std::int64_t cols) {
  return {values + u * cols, values + (u + 1) * cols};
}

void store_blocks(const Values& blocks, std::int64_t u, float* out) {
  const auto count = static_cast<std::int64_t>(blocks.size());
  for (std::int64_t b = 0; b < count; ++b) {
    out[u * count + b] = blocks[at(b)];
  }
}

/// The first half of an update for unique row u.
void update_by_statistic(const StatisticUpdate& job, std::int64_t u) {
  const std::int64_t cols = job.update.table.cols;
  const bool row_wise = traits(job.update.params.rule).is_row_wise;
  const std::optional<NewRow> row =
      new_row(job.update, u, vector_at(job.values, u, cols),
              row_wise ? std::optional(job.row_statistic[u]) : std::nullopt);
  if (!row) {
    job.values[u * cols] = std::numeric_limits<float>::quiet_NaN();
    count_overflow(job.update, u);
    return;
  }
  store_state(job.update, u, row->state);
  if (job.update.params.max_norm > 0.0F) {
    std::copy(row->w.begin(), row->w.end(), job.values + u * cols);
  } else {
    store_row(job.update, u, row->w);
  }
}

/// The second half.
void store_scaled(const StatisticUpdate& job, std::int64_t u) {
  Values w = vector_at(job.values, u, job.update.table.cols);
  if (std::isnan(w[0])) {
    return;
  }
  if (!scale_to(job.update.params, job.row_statistic[u], w)) {
    count_overflow(job.update, u);
    return;
  }
  store_row(job.update, u, w);
}

}  // namespace

void update_rows(Context& /*ctx*/, std::span<const SparseUpdate> updates) {
  for (const SparseUpdate& update : updates) {
    const RowRuns& runs = update.runs;
    const GradientSum sum{.runs = runs, .cols = update.table.cols, .parts = update.parts};
    for (std::int64_t u = 0; u < runs.num_rows; ++u) {
      const Values g = update.gradients == nullptr
                           ? segments_sum(sum, {runs.row_segments[u], runs.row_segments[u + 1]})
                           : vector_at(update.gradients, u, update.table.cols);
      if (!update_row(update, u, g)) {
        count_overflow(update, u);
      }
    }
  }
}

void gradient_block_squares(Context& /*ctx*/, std::span<const BlockSquares> jobs) {
  for (const BlockSquares& job : jobs) {
    const SparseUpdate& update = job.update;
    for (std::int64_t u = 0; u < update.runs.num_rows; ++u) {
      const Values g = vector_at(update.gradients, u, update.table.cols);
      const Values w = update.params.decay == WeightDecay::kL2
                           ? load_row(update.table, update.runs.slots[u])
                           : Values{};
      store_blocks(block_squares(decayed(update.params, g, w)), u, job.out);
    }
  }
}

void update_rows_with_statistic(Context& /*ctx*/, std::span<const StatisticUpdate> jobs) {
  for (const StatisticUpdate& job : jobs) {
    for (std::int64_t u = 0; u < job.update.runs.num_rows; ++u) {
      update_by_statistic(job, u);
    }
  }
}

void row_block_squares(Context& /*ctx*/, std::span<const RowSquares> jobs) {
  for (const RowSquares& job : jobs) {
    for (std::int64_t u = 0; u < job.count; ++u) {
      store_blocks(block_squares(vector_at(job.rows, u, job.cols)), u, job.out);
    }
  }
}

void store_scaled_rows(Context& /*ctx*/, std::span<const StatisticUpdate> jobs) {
  for (const StatisticUpdate& job : jobs) {
    for (std::int64_t u = 0; u < job.update.runs.num_rows; ++u) {
      store_scaled(job, u);
    }
  }
}

}  // namespace weft::kernels::reference
