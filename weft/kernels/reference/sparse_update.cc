#include "weft/kernels/sparse_update.h"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/philox.h"
#include "weft/kernels/reference/row_values.h"
#include "weft/kernels/row_statistics.h"

namespace weft::kernels::reference {
namespace {

using Values = std::vector<float>;

/// The gradient of unique row u: a vector per part, empty where there is none, then the tree.
Values row_gradient(const SparseUpdate& update, std::int64_t u) {
  const RowRuns& runs = update.runs;
  const std::int64_t cols = update.table.cols;
  std::vector<Values> parts(at(update.parts));
  for (std::int64_t s = runs.row_segments[u]; s < runs.row_segments[u + 1]; ++s) {
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
  std::vector<Values> slots(at(tree_slots(update.parts)) + 1);
  sum_tree(
      Range{0, update.parts}, 0,
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

std::int16_t* low_half(const RowTable& table, std::int64_t row) {
  return reinterpret_cast<std::int16_t*>(static_cast<char*>(table.low) + row * table.low_stride);
}

Values load_row(const RowTable& table, std::int64_t row) {
  const char* const data = static_cast<const char*>(table.weights) + row * table.weight_stride;
  Values values;
  for (std::int64_t i = 0; i < table.cols; ++i) {
    if (table.dtype == DType::kSplitBFloat16) {
      values.push_back(to_float(
          SplitBFloat16{reinterpret_cast<const BFloat16*>(data)[i], low_half(table, row)[i]}));
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

NewRow apply_rule(const UpdateParams& p, const Values& g, const Values& w, Values state) {
  const Values g2 = decayed(p, g, w);
  const std::size_t cols = w.size();
  const Values blocks = block_squares(g2);
  const float mean = block_tree_sum(blocks.data(), static_cast<std::int64_t>(blocks.size())) /
                     static_cast<float>(cols);
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

bool limit_norm(const UpdateParams& p, Values& w) {
  if (p.max_norm <= 0.0F) {
    return true;
  }
  const Values blocks = block_squares(w);
  const float square = block_tree_sum(blocks.data(), static_cast<std::int64_t>(blocks.size()));
  const float norm = std::sqrt(square);
  if (norm > p.max_norm) {
    const float factor = p.max_norm / norm;
    for (float& value : w) {
      value = value * factor;
    }
  }
  return std::isfinite(square);
}

void store_row(const SparseUpdate& update, std::int64_t row, const Values& w) {
  const RowTable& table = update.table;
  char* const data = static_cast<char*>(table.weights) + row * table.weight_stride;
  for (std::int64_t i = 0; i < table.cols; ++i) {
    if (table.dtype == DType::kSplitBFloat16) {
      const SplitBFloat16 halves = to_split_bfloat16(w[at(i)]);
      reinterpret_cast<BFloat16*>(data)[i] = halves.high;
      low_half(table, row)[i] = halves.low;
      continue;
    }
    const std::int64_t col = table.first_col + i;
    const auto words =
        philox(update.params.random_key, static_cast<std::uint64_t>(table.whole_row(row)),
               (update.params.step << 20) + static_cast<std::uint64_t>(col / 4));
    store_element(data, table.dtype, i, w[at(i)], words[at(col % 4)]);
  }
}

bool update_row(const SparseUpdate& update, std::int64_t row, const Values& g) {
  const RowTable& table = update.table;
  float* const state =
      table.state == nullptr
          ? nullptr
          : reinterpret_cast<float*>(static_cast<char*>(table.state) + row * table.state_stride);
  const std::int64_t floats = state_floats(update.params.rule, table.cols);
  NewRow result = apply_rule(update.params, g, load_row(table, row),
                             state == nullptr ? Values{} : Values(state, state + floats));
  if (!all_storable(table.dtype, result.w) || !all_finite(result.state) ||
      !limit_norm(update.params, result.w)) {
    return false;
  }
  for (std::size_t i = 0; i < result.state.size(); ++i) {
    state[i] = result.state[i];
  }
  store_row(update, row, result.w);
  return true;
}

}  // namespace

RowOverflow update_rows(const SparseUpdate& update, Range range, const float* gradients) {
  const std::int64_t cols = update.table.cols;
  RowOverflow overflow;
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const Values g = gradients == nullptr
                         ? row_gradient(update, u)
                         : Values(gradients + u * cols, gradients + (u + 1) * cols);
    if (!update_row(update, update.runs.rows[u], g)) {
      overflow.add(update.table.whole_row(update.runs.rows[u]));
    }
  }
  return overflow;
}

void sum_gradients(const SparseUpdate& update, Range range, float* out) {
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const Values g = row_gradient(update, u);
    for (std::size_t i = 0; i < g.size(); ++i) {
      out[u * update.table.cols + static_cast<std::int64_t>(i)] = g[i];
    }
  }
}

void gradient_block_squares(const SparseUpdate& update,
                            Range range,
                            const float* gradients,
                            float* out) {
  const std::int64_t cols = update.table.cols;
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const Values g(gradients + u * cols, gradients + (u + 1) * cols);
    const Values blocks =
        block_squares(decayed(update.params, g, load_row(update.table, update.runs.rows[u])));
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      out[u * statistic_blocks(cols) + static_cast<std::int64_t>(b)] = blocks[b];
    }
  }
}

}  // namespace weft::kernels::reference
