// Steps for tests of tables: features that share a table, their gradients, and state compared
// whoever holds it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "weft/embedding/table_shard.h"

namespace weft::embedding::test {

using Random = std::mt19937_64;

inline std::int64_t below(Random& random, std::int64_t n) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
}

inline float number(Random& random) {
  const auto mantissa = static_cast<float>(below(random, 1 << 24)) * 0x1.0p-23F - 1.0F;
  return std::ldexp(mantissa, static_cast<int>(below(random, 10)) - 8);
}

/// One as a list.
class Of {
 public:
  explicit Of(RowGradients& one) : one_(&one) {}

  operator std::span<RowGradients* const>() const { return {&one_, 1}; }

 private:
  RowGradients* one_;
};

/// One feature's lookups of a global batch.
struct Feature {
  bool pooled = true;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> offsets = {0};
  std::vector<float> weights;       ///< empty: none
  std::vector<std::int32_t> parts;  ///< per bag
  std::vector<float> grads;         ///< [vectors, dim]

  [[nodiscard]] Bags bags() const {
    return {ids.data(), offsets.data(), weights.empty() ? nullptr : weights.data(),
            static_cast<std::int64_t>(parts.size())};
  }
};

struct StepData {
  std::int64_t dim = 0;
  std::vector<Feature> features;

  /// For a shard whose columns begin at first_col.
  [[nodiscard]] std::vector<GradientBlock> blocks(std::int64_t first_col = 0) const {
    std::vector<GradientBlock> all;
    for (const Feature& feature : features) {
      all.push_back({feature.bags(), feature.pooled, feature.grads.data() + first_col, dim,
                     feature.parts.data()});
    }
    return all;
  }
};

struct StepShape {
  std::int64_t rows = 50;
  std::int64_t dim = 16;
  std::int64_t samples = 37;
  std::int64_t parts = 8;
};

/// Three features: pooled, pooled with weights, and a sequence; half of the ids on three rows.
inline StepData make_step(Random& random, const StepShape& shape) {
  StepData step{.dim = shape.dim, .features = std::vector<Feature>(3)};
  for (std::size_t f = 0; f < 3; ++f) {
    Feature& feature = step.features[f];
    feature.pooled = f != 2;
    for (std::int64_t part = 0; part < shape.parts; ++part) {
      const Range samples = part_samples(shape.samples, shape.parts, part);
      for (std::int64_t sample = samples.begin; sample < samples.end; ++sample) {
        for (std::int64_t i = below(random, 4); i > 0; --i) {
          const bool hot = below(random, 2) == 0;
          feature.ids.push_back(
              below(random, hot ? std::min<std::int64_t>(3, shape.rows) : shape.rows));
          if (f == 1) {
            feature.weights.push_back(number(random));
          }
        }
        feature.offsets.push_back(static_cast<std::int64_t>(feature.ids.size()));
        feature.parts.push_back(static_cast<std::int32_t>(part));
      }
    }
    const std::size_t vectors = feature.pooled ? feature.parts.size() : feature.ids.size();
    for (std::size_t i = 0; i < vectors * static_cast<std::size_t>(shape.dim); ++i) {
      feature.grads.push_back(number(random));
    }
  }
  return step;
}

/// The samples of some parts, and of them the ids of some rows, counted from the first of these.
inline StepData restrict_step(const StepData& step, Range parts, const RowSet& rows) {
  StepData result{.dim = step.dim, .features = {}};
  for (const Feature& from : step.features) {
    Feature to;
    to.pooled = from.pooled;
    const auto copy_vector = [&](std::int64_t vector) {
      const float* const at = from.grads.data() + vector * step.dim;
      to.grads.insert(to.grads.end(), at, at + step.dim);
    };
    for (std::size_t bag = 0; bag < from.parts.size(); ++bag) {
      if (from.parts[bag] < parts.begin || from.parts[bag] >= parts.end) {
        continue;
      }
      for (std::int64_t i = from.offsets[bag]; i < from.offsets[bag + 1]; ++i) {
        const std::int64_t id = from.ids[static_cast<std::size_t>(i)];
        if (!rows.contains(id)) {
          continue;
        }
        to.ids.push_back(rows.index(id));
        if (!from.weights.empty()) {
          to.weights.push_back(from.weights[static_cast<std::size_t>(i)]);
        }
        if (!from.pooled) {
          copy_vector(i);
        }
      }
      to.offsets.push_back(static_cast<std::int64_t>(to.ids.size()));
      to.parts.push_back(from.parts[bag]);
      if (from.pooled) {
        copy_vector(static_cast<std::int64_t>(bag));
      }
    }
    result.features.push_back(std::move(to));
  }
  return result;
}

/// Whole logical matrices by kind, put together from shards. Call inside a stage.
using State = std::map<std::string, std::vector<std::byte>>;

inline State state_of(const std::vector<const TableShard*>& shards) {
  State state;
  for (const TableShard* const shard : shards) {
    const std::vector<StateItem> items = shard->state_items();
    for (std::size_t index = 0; index < items.size(); ++index) {
      const StateItem& item = items[index];
      const std::int64_t size = size_of(item.dtype);
      std::vector<std::byte>& whole = state[item.kind];
      whole.resize(static_cast<std::size_t>(item.rows * item.cols * size));
      const std::int64_t cols = item.col_end - item.col_begin;
      std::vector<std::byte> row(static_cast<std::size_t>(cols * size));
      for (std::int64_t r = item.row_begin; r < item.row_end; r += item.row_step) {
        shard->read_state(index, r, 1, row.data());
        std::memcpy(whole.data() + (r * item.cols + item.col_begin) * size, row.data(), row.size());
      }
    }
  }
  return state;
}

inline spec::Table make_table(std::int64_t rows, std::int64_t dim) {
  spec::Table table;
  table.name = "C1";
  table.num_embeddings = rows;
  table.embedding_dim = dim;
  table.optimizer.learning_rate = 0.05;
  return table;
}

/// Every optimizer × decay × max-norm.
inline std::vector<spec::SparseOptimizer> all_optimizers() {
  std::vector<spec::SparseOptimizer> all;
  for (const auto type : {SparseOptimizerKind::kSgd, SparseOptimizerKind::kAdagrad,
                          SparseOptimizerKind::kRowWiseAdagrad, SparseOptimizerKind::kAdam,
                          SparseOptimizerKind::kRowWiseAdam}) {
    for (const auto mode : {spec::WeightDecayMode::kNone, spec::WeightDecayMode::kL2,
                            spec::WeightDecayMode::kDecoupled}) {
      for (const double max_norm : {0.0, 0.3}) {
        spec::SparseOptimizer optimizer;
        optimizer.type = type;
        optimizer.learning_rate = 0.05;
        optimizer.initial_accumulator = 0.1;
        optimizer.weight_decay = mode == spec::WeightDecayMode::kNone ? 0.0 : 0.01;
        optimizer.weight_decay_mode = mode;
        optimizer.max_norm = max_norm;
        all.push_back(optimizer);
      }
    }
  }
  return all;
}

inline std::string describe(const spec::Table& table) {
  return "optimizer " + std::to_string(static_cast<int>(table.optimizer.type)) + " decay " +
         std::to_string(static_cast<int>(table.optimizer.weight_decay_mode)) + " norm " +
         std::to_string(table.optimizer.max_norm) + " dtype " +
         std::to_string(static_cast<int>(table.dtype)) + " D " +
         std::to_string(table.embedding_dim);
}

inline constexpr std::uint64_t kSeed = 17;

inline UpdateStep update_step(std::int64_t step) {
  return {.learning_rate_factor = 0.5, .step = step, .seed = kSeed};
}

/// A shard of the whole table.
inline std::unique_ptr<TableShard> whole(Device& device,
                                         const spec::Table& table,
                                         std::int64_t parts = 8) {
  return std::make_unique<TableShard>(device, table, Range{0, table.num_embeddings},
                                      Range{0, table.embedding_dim}, kSeed,
                                      TableShardOptions{.parts = parts});
}

}  // namespace weft::embedding::test
