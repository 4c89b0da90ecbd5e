#include "weft/cost/dense.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "weft/base/error.h"
#include "weft/layout/dense_memory.h"
#include "weft/topology/rates.h"

namespace weft::cost {
namespace {

double rounded(double x, double unit) {
  return unit * std::ceil(x / unit);
}

/// Counts what the parts of a model do to a sample.
class Counter {
 public:
  Counter(const spec::Config& config, std::span<const double> lengths)
      : config_(config), lengths_(lengths) {}

  DenseWork run() {
    const spec::Model& options = config_.model;
    const layout::ModelShape shape = layout::model_shape(config_);
    layout::DenseModel model(options.compute);
    switch (options.type) {
      case spec::ModelKind::kDlrm: {
        const layout::Dlrm parts(model, options, shape);
        features(parts.vectors);
        dots(static_cast<double>(parts.num_fields), static_cast<double>(parts.dim));
        break;
      }
      case spec::ModelKind::kDcnv2: {
        const layout::Dcnv2 parts(model, options, shape);
        features(parts.all.vectors);
        const double values =
            static_cast<double>(parts.cross.size()) * static_cast<double>(parts.all.width);
        move(4.0 * kFloat * values, 8.0 * kFloat * values);
        break;
      }
      case spec::ModelKind::kDeepFm: {
        const layout::DeepFm parts(model, options, shape);
        features(parts.all.vectors);
        const double fields =
            static_cast<double>(shape.features.size()) + (parts.all.bottom.empty() ? 0.0 : 1.0);
        const double values = fields * static_cast<double>(parts.dim);
        add(2.0 * values, 4.0 * values);  // Σv and Σv², not pairs
        break;
      }
    }
    for (const layout::LinearLayer& layer : model.layers()) {
      linear(layer, static_cast<double>(layout::bytes_of(model.element())));
    }
    work_.bucket = static_cast<double>(layout::parameter_floats(model));
    return work_;
  }

 private:
  void add(double forward, double backward) {
    work_.forward_flops += forward;
    work_.backward_flops += backward;
  }

  void move(double forward, double backward) {
    work_.layers.forward += forward;
    work_.layers.backward += backward;
  }

  void features(const layout::FeatureVectors& vectors) {
    using Kind = layout::FeatureVectors::Kind;
    for (std::size_t f = 0; f < vectors.features.size(); ++f) {
      const layout::FeatureVectors::Feature& feature = vectors.features[f];
      const double elements = feature.kind == Kind::kPooled ? 1.0 : lengths_[f];
      const double values = static_cast<double>(feature.dim) * elements;
      if (feature.kind == Kind::kAttention) {
        add(2.0 * values, 4.0 * values);  // the weighted sum
      }
      const double bytes = kFloat * values;
      work_.kept.held += 2.0 * bytes;
      work_.kept.forward += bytes;
      work_.kept.backward += 2.0 * bytes;
      work_.checked_bytes += bytes;
    }
  }

  /// `value`: bytes of one.
  void linear(const layout::LinearLayer& layer, double value) {
    const bool per_element = layer.rows.per == layout::Rows::Per::kElement;
    const double times = per_element ? lengths_[layer.rows.feature] : 1.0;
    const auto in = static_cast<double>(layer.shape.in);
    const auto out = static_cast<double>(layer.shape.out);
    const double flops = 2.0 * rounded(in, 16.0) * rounded(out, 16.0) * times;
    add(flops, layer.has_dx ? 2.0 * flops : flops);
    work_.weight_flops += flops;
    const double values = value * times;
    move(values * (in + out), values * (2.0 * in + 3.0 * out));
    move(0.0, layer.has_relu ? 3.0 * values * out : 0.0);
    work_.layers.held += values * (in + out);
    work_.kept.held += values * (in + out);
    work_.kept.backward += 3.0 * values * (in + out);
    work_.weight_bytes += values * (in + out);
    work_.parameters += in * out + (layer.bias == layout::Bias::kNone ? 0.0 : out);
  }

  void dots(double fields, double dim) {
    const DotFlops flops = dot_flops(fields, dim);
    work_.dot_forward_flops += flops.forward;
    work_.dot_backward_flops += flops.backward;
    move(kFloat * (2.0 * fields * dim + fields * (fields - 1.0)), kFloat * fields * dim);
  }

  static constexpr double kFloat = 4.0;

  const spec::Config& config_;
  std::span<const double> lengths_;  ///< [features]
  DenseWork work_;
};

/// Moves bytes of which `held` lie somewhere and the cache holds `cache`.
double move_s(const topology::Cluster& cluster, double bytes, double held, double cache) {
  const double far = held > 0.0 ? std::max(0.0, 1.0 - cache / held) : 0.0;
  return topology::copy_s(cluster, bytes * far) + topology::near_s(cluster, bytes * (1.0 - far));
}

/// A part's sum of gradients is written, read and added.
double sums_s(const topology::Cluster& cluster, const DenseWork& work, const DenseBatch& batch) {
  constexpr double kSummedBytes = 12.0;  // of a parameter and part
  return topology::near_s(cluster, kSummedBytes * batch.parts * work.parameters);
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
  return {.forward = fields * (fields - 1.0) * dim,
          .backward = 4.0 * fields * rounded(fields, 8.0) * rounded(dim, 16.0)};
}

DenseWork dense_work(const spec::Config& config, std::span<const double> lengths) {
  WEFT_CHECK(lengths.size() == config.sparse_features.size(), "{} lengths of {} features",
             lengths.size(), config.sparse_features.size());
  return Counter(config, lengths).run();
}

DenseWork dense_work(const spec::Config& config, double sequence_length) {
  return dense_work(config, std::vector<double>(config.sparse_features.size(), sequence_length));
}

DenseBatch dense_batch(std::int64_t batch_size,
                       std::int64_t parts,
                       double own_parts,
                       double samples) {
  constexpr auto kMostOfSlice = static_cast<double>(layout::kMaxSlice);
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
  return pass_s(cluster, config, work, batch, work.backward_flops, work.dot_backward_flops,
                &DenseBytes::backward) +
         topology::copy_s(cluster, batch.samples * work.checked_bytes) +
         sums_s(cluster, work, batch);
}

double weight_gradients_s(const topology::Cluster& cluster,
                          const spec::Config& config,
                          const DenseWork& work,
                          const DenseBatch& batch) {
  const double kept = move_s(cluster, work.weight_bytes, work.kept.held * batch.samples,
                             cluster.compute.cache.value);
  const double products =
      work.weight_flops / topology::gemm_flops_per_s(cluster, config.model.compute);
  return batch.samples * (products + kept) + sums_s(cluster, work, batch);
}

double dense_update_s(const topology::Cluster& cluster,
                      const spec::Config& config,
                      const DenseWork& work) {
  const double floats =
      3.0 + 2.0 * static_cast<double>(layout::dense_states(config.dense_optimizer.type).size());
  return topology::copy_s(cluster, 4.0 * floats * work.parameters);
}

}  // namespace weft::cost
