// The three models written out for one sample in double, from docs/models.md and by name: slow,
// without layers, lanes or kernels, so that a mistake in those cannot be made here too.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "weft/nn/model.h"
#include "weft/spec/config.h"

namespace weft::nn::plain {

using Vec = std::vector<double>;

struct Sample {
  Vec dense;
  std::vector<Vec> pooled;                  // per feature; empty for sequences
  std::vector<std::vector<Vec>> sequences;  // per feature, element
};

class Model {
 public:
  Model(const spec::Model& options, const ModelShape& shape, const ParameterLayout& layout)
      : options_(options), shape_(shape), layout_(layout) {}

  // The flat parameters, in double, free to be changed by the test.
  Vec flat;

  Vec logits(const Sample& sample) const {
    Vec x = sample.dense;
    if (!options_.bottom_mlp.empty()) {
      x = hidden("dense.bottom", options_.bottom_mlp.size(), x);
    }
    std::vector<Vec> vectors;
    for (std::size_t f = 0; f < shape_.features.size(); ++f) {
      vectors.push_back(vector_of(sample, f));
    }
    switch (options_.type) {
      case spec::ModelKind::kDlrm:
        return dlrm(x, vectors);
      case spec::ModelKind::kDcnv2:
        return dcnv2(x, vectors);
      default:
        return deepfm(x, vectors);
    }
  }

 private:
  double weight(const std::string& name, std::int64_t i, std::int64_t j) const {
    const auto& p = layout_.find(name);
    return flat[static_cast<std::size_t>(p.offset + i * p.cols + j)];
  }

  Vec linear(const std::string& name, const Vec& x, bool bias) const {
    const auto& p = layout_.find(name + ".weight");
    EXPECT_EQ(p.cols, static_cast<std::int64_t>(x.size())) << name;
    Vec y(static_cast<std::size_t>(p.rows));
    for (std::int64_t i = 0; i < p.rows; ++i) {
      double sum = bias ? weight(name + ".bias", 0, i) : 0.0;
      for (std::int64_t j = 0; j < p.cols; ++j) {
        sum += weight(name + ".weight", i, j) * x[static_cast<std::size_t>(j)];
      }
      y[static_cast<std::size_t>(i)] = sum;
    }
    return y;
  }

  Vec hidden(const std::string& name, std::size_t layers, Vec x) const {
    for (std::size_t l = 0; l < layers; ++l) {
      x = linear(fmt::format("{}.{}", name, l), x, true);
      for (double& value : x) {
        value = std::max(value, 0.0);
      }
    }
    return x;
  }

  Vec head(const std::string& name, std::size_t layers, const Vec& x) const {
    return linear(fmt::format("{}.{}", name, layers), hidden(name, layers, x), true);
  }

  Vec vector_of(const Sample& sample, std::size_t f) const {
    const FeatureShape& feature = shape_.features[f];
    if (!feature.sequence) {
      return sample.pooled[f];
    }
    Vec out(static_cast<std::size_t>(feature.dim), 0.0);
    const bool attended =
        feature.target >= 0 && options_.sequence == spec::SequencePooling::kAttention;
    for (const Vec& e : sample.sequences[f]) {
      double a = 1.0 / static_cast<double>(sample.sequences[f].size());
      if (attended) {
        const Vec& t = sample.pooled[static_cast<std::size_t>(feature.target)];
        Vec in = e;
        in.insert(in.end(), t.begin(), t.end());
        for (std::size_t d = 0; d < e.size(); ++d) {
          in.push_back(e[d] * t[d]);
        }
        for (std::size_t d = 0; d < e.size(); ++d) {
          in.push_back(e[d] - t[d]);
        }
        a = head("dense.attention." + feature.name, options_.attention_mlp.size(), in)[0];
      }
      for (std::size_t d = 0; d < e.size(); ++d) {
        out[d] += a * e[d];
      }
    }
    return out;
  }

  std::vector<Vec> project(const std::vector<Vec>& vectors, std::size_t dim) const {
    std::vector<Vec> out;
    for (std::size_t f = 0; f < vectors.size(); ++f) {
      out.push_back(vectors[f].size() == dim
                        ? vectors[f]
                        : linear("dense.projection." + shape_.features[f].name, vectors[f], false));
    }
    return out;
  }

  std::size_t common_dim(const std::vector<Vec>& vectors) const {
    return options_.projection_dim > 0 ? static_cast<std::size_t>(options_.projection_dim)
                                       : vectors[0].size();
  }

  Vec dlrm(const Vec& x, const std::vector<Vec>& vectors) const {
    std::vector<Vec> fields = project(vectors, common_dim(vectors));
    Vec in;
    if (shape_.dense > 0) {
      fields.insert(fields.begin(), x);
      in = x;
    }
    for (std::size_t i = 0; i < fields.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        double dot = 0.0;
        for (std::size_t d = 0; d < fields[i].size(); ++d) {
          dot += fields[i][d] * fields[j][d];
        }
        in.push_back(dot);
      }
    }
    return head("dense.top", options_.top_mlp.size(), in);
  }

  static Vec concatenate(const Vec& x, const std::vector<Vec>& vectors) {
    Vec all = x;
    for (const Vec& vector : vectors) {
      all.insert(all.end(), vector.begin(), vector.end());
    }
    return all;
  }

  Vec dcnv2(const Vec& x, const std::vector<Vec>& vectors) const {
    const Vec x0 = concatenate(x, vectors);
    Vec xl = x0;
    for (std::int64_t l = 0; l < options_.cross_layers; ++l) {
      const std::string name = fmt::format("dense.cross.{}", l);
      const Vec u = linear(name + ".w", linear(name + ".v", xl, false), true);
      for (std::size_t d = 0; d < xl.size(); ++d) {
        xl[d] += x0[d] * u[d];
      }
    }
    return head("dense.top", options_.top_mlp.size(), xl);
  }

  Vec deepfm(const Vec& x, const std::vector<Vec>& vectors) const {
    const std::size_t dim = common_dim(vectors);
    std::vector<Vec> fields = project(vectors, dim);
    const Vec z = concatenate(x, fields);
    Vec out = head("dense.deep", options_.top_mlp.size(), z);
    const Vec first = linear("dense.linear", z, false);
    if (!options_.bottom_mlp.empty()) {
      fields.push_back(x);
    }
    double second = 0.0;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        for (std::size_t d = 0; d < dim; ++d) {
          second += fields[i][d] * fields[j][d];
        }
      }
    }
    for (std::size_t t = 0; t < out.size(); ++t) {
      out[t] += first[t] + second;
    }
    return out;
  }

  spec::Model options_;
  ModelShape shape_;
  const ParameterLayout& layout_;
};

}  // namespace weft::nn::plain
