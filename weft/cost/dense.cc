#include "weft/cost/dense.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "weft/base/error.h"
#include "weft/topology/rates.h"

namespace weft::cost {
namespace {

double rounded(double x, double unit) {
  return unit * std::ceil(x / unit);
}

/// Counts layers as they are added.
class Counter {
 public:
  explicit Counter(const spec::Config& config)
      : config_(config), value_(config.model.compute == spec::Compute::kBf16 ? 2.0 : kFloat) {}

  [[nodiscard]] const DenseWork& work() const { return work_; }

  /// `lengths`: [features]
  void run(std::span<const double> lengths) {
    const spec::Model& model = config_.model;
    const bool vectors_interact = model.type != spec::ModelKind::kDcnv2;
    double width = bottom();
    const double x = width;  // values of the bottom MLP, or the dense ones themselves
    double fields = 0.0;
    double dim = model.bottom_mlp.empty() ? 0.0 : x;
    for (std::size_t f = 0; f < config_.sparse_features.size(); ++f) {
      const spec::SparseFeature& feature = config_.sparse_features[f];
      const double own = dim_of(feature);
      attention(feature, own, lengths[f]);
      const double elements = feature.pooling == spec::Pooling::kNone ? lengths[f] : 1.0;
      vectors(kFloat * own * elements);
      const auto common = static_cast<double>(model.projection_dim);
      const bool projected = vectors_interact && common > 0.0 && own != common;
      if (projected) {
        linear(own, common, kNoBias);
      }
      dim = vectors_interact && common > 0.0 ? common : own;
      width += dim;
      fields += 1.0;
    }
    switch (model.type) {
      case spec::ModelKind::kDlrm:
        fields += model.bottom_mlp.empty() || config_.dense_features.empty() ? 0.0 : 1.0;
        dots(fields, dim);
        head((fields > static_cast<double>(config_.sparse_features.size()) ? dim : 0.0) +
             fields * (fields - 1.0) / 2.0);
        break;
      case spec::ModelKind::kDcnv2:
        for (std::int64_t l = 0; l < model.cross_layers; ++l) {
          linear(width, static_cast<double>(model.cross_rank), kNoBias);
          linear(static_cast<double>(model.cross_rank), width);
          move(4.0 * kFloat * width, 8.0 * kFloat * width);
        }
        head(width);
        break;
      case spec::ModelKind::kDeepFm:
        linear(width, tasks(), kNoBias);
        fields += model.bottom_mlp.empty() ? 0.0 : 1.0;
        add(2.0 * fields * dim, 4.0 * fields * dim);  // Σv and Σv², not pairs
        head(width);
        break;
    }
  }

 private:
  static constexpr bool kNoBias = false;

  [[nodiscard]] double tasks() const { return static_cast<double>(config_.tasks.size()); }

  [[nodiscard]] double dim_of(const spec::SparseFeature& feature) const {
    const auto table = static_cast<std::size_t>(spec::table_index(config_, feature));
    return static_cast<double>(config_.tables[table].embedding_dim);
  }

  void add(double forward, double backward) {
    work_.forward_flops += forward;
    work_.backward_flops += backward;
  }

  void move(double forward, double backward) {
    work_.layers.forward += forward;
    work_.layers.backward += backward;
  }

  void vectors(double bytes) {
    work_.kept.held += 2.0 * bytes;
    work_.kept.forward += bytes;
    work_.kept.backward += 2.0 * bytes;
    work_.checked_bytes += bytes;
  }

  /// `times`: how often per sample; `first`: nothing before it learns.
  void linear(double in, double out, bool bias = true, double times = 1.0, bool first = false) {
    const double flops = 2.0 * rounded(in, 16.0) * rounded(out, 16.0) * times;
    add(flops, first ? flops : 2.0 * flops);
    const double values = value_ * times;
    move(values * (in + out), values * (2.0 * in + 3.0 * out));
    work_.layers.held += values * (in + out);
    work_.kept.held += values * (in + out);
    work_.kept.backward += 3.0 * values * (in + out);
    work_.parameters += in * out + (bias ? out : 0.0);
    work_.bucket += rounded(in * out, 16.0) + (bias ? rounded(out, 16.0) : 0.0);
  }

  /// Layers of these widths behind `in`; returns the last one.
  double mlp(double in, const std::vector<std::int64_t>& widths, double times, bool first) {
    for (const std::int64_t width : widths) {
      linear(in, static_cast<double>(width), true, times, first);
      in = static_cast<double>(width);
      move(0.0, 4.0 * value_ * times * in);  // its activation
      first = false;
    }
    return in;
  }

  double bottom() {
    const auto dense = static_cast<double>(config_.dense_features.size());
    return dense > 0.0 || config_.model.type != spec::ModelKind::kDlrm
               ? mlp(dense, config_.model.bottom_mlp, 1.0, true)
               : 0.0;
  }

  void attention(const spec::SparseFeature& feature, double dim, double length) {
    if (feature.pooling == spec::Pooling::kNone && !feature.target.empty() &&
        config_.model.sequence == spec::SequencePooling::kAttention) {
      linear(mlp(4.0 * dim, config_.model.attention_mlp, length, false), 1.0, true, length);
      add(2.0 * dim * length, 4.0 * dim * length);  // the weighted sum
    }
  }

  void dots(double fields, double dim) {
    const double square = rounded(fields, 16.0) * rounded(fields, 16.0);
    const DotFlops flops = dot_flops(fields, dim);
    work_.dot_forward_flops += flops.forward;
    work_.dot_backward_flops += flops.backward;
    move(kFloat * (2.0 * fields * dim + square + fields * fields), kFloat * fields * dim);
  }

  void head(double in) { linear(mlp(in, config_.model.top_mlp, 1.0, false), tasks()); }

  static constexpr double kFloat = 4.0;

  const spec::Config& config_;
  double value_;  ///< bytes
  DenseWork work_;
};

/// Moves bytes of which `held` lie somewhere and the cache holds `cache`.
double move_s(const topology::Cluster& cluster, double bytes, double held, double cache) {
  const double far = held > 0.0 ? std::max(0.0, 1.0 - cache / held) : 0.0;
  return topology::copy_s(cluster, bytes * far) + topology::near_s(cluster, bytes * (1.0 - far));
}

double pass_s(const topology::Cluster& cluster,
              const spec::Config& config,
              const DenseWork& work,
              const DenseBatch& batch,
              double flops,
              double dot_flops,
              double DenseBytes::* moved) {
  const double cache = cluster.compute.cache.value;
  const auto threads = static_cast<double>(cluster.threads);
  const double layers =
      move_s(cluster, work.layers.*moved, work.layers.held * batch.slice, cache / threads);
  const double kept = move_s(cluster, work.kept.*moved, work.kept.held * batch.samples, cache);
  return batch.samples * (flops / topology::gemm_flops_per_s(cluster, config.model.compute) +
                          dot_flops / topology::dot_flops_per_s(cluster) + layers + kept);
}

}  // namespace

DotFlops dot_flops(double fields, double dim) {
  const double width = rounded(dim, 16.0);
  return {.forward = 2.0 * rounded(fields, 16.0) * rounded(fields, 16.0) * width,
          .backward = 4.0 * fields * rounded(fields, 8.0) * width};
}

double dense_state_floats(spec::DenseOptimizerKind kind) {
  switch (kind) {
    case spec::DenseOptimizerKind::kSgd:
      return 0.0;
    case spec::DenseOptimizerKind::kAdagrad:
      return 1.0;
    case spec::DenseOptimizerKind::kAdam:
      return 2.0;
  }
  fail(ErrorCode::kInternal, "dense optimizer number {} does not exist", static_cast<int>(kind));
}

DenseWork dense_work(const spec::Config& config, std::span<const double> lengths) {
  WEFT_CHECK(lengths.size() == config.sparse_features.size(), "{} lengths of {} features",
             lengths.size(), config.sparse_features.size());
  Counter counter(config);
  counter.run(lengths);
  return counter.work();
}

DenseWork dense_work(const spec::Config& config, double sequence_length) {
  return dense_work(config, std::vector<double>(config.sparse_features.size(), sequence_length));
}

DenseBatch dense_batch(std::int64_t batch_size,
                       std::int64_t parts,
                       double own_parts,
                       double samples) {
  constexpr double kMostOfSlice = 512.0;  // nn::kMaxSlice
  const double part = std::ceil(static_cast<double>(batch_size) / static_cast<double>(parts));
  return {.samples = samples,
          .parts = own_parts,
          .slice = part / std::max(1.0, std::ceil(part / kMostOfSlice))};
}

double forward_s(const topology::Cluster& cluster,
                 const spec::Config& config,
                 const DenseWork& work,
                 const DenseBatch& batch) {
  constexpr double kPackedBytes = 16.0;  // of a parameter
  return pass_s(cluster, config, work, batch, work.forward_flops, work.dot_forward_flops,
                &DenseBytes::forward) +
         topology::copy_s(cluster, kPackedBytes * work.parameters);
}

double backward_s(const topology::Cluster& cluster,
                  const spec::Config& config,
                  const DenseWork& work,
                  const DenseBatch& batch) {
  constexpr double kSummedBytes = 12.0;  // of a parameter and part
  return pass_s(cluster, config, work, batch, work.backward_flops, work.dot_backward_flops,
                &DenseBytes::backward) +
         topology::copy_s(cluster, batch.samples * work.checked_bytes) +
         topology::near_s(cluster, kSummedBytes * batch.parts * work.parameters);
}

double dense_update_s(const topology::Cluster& cluster,
                      const spec::Config& config,
                      const DenseWork& work) {
  const double floats = 3.0 + 2.0 * dense_state_floats(config.dense_optimizer.type);
  return topology::copy_s(cluster, 4.0 * floats * work.parameters);
}

}  // namespace weft::cost
