// Random inputs of one part, owned, with the views that the model takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "tests/nn/plain_model.h"
#include "weft/nn/model.h"

namespace weft::nn {

struct PartData {
  std::int64_t size = 0;
  std::vector<float> dense;
  std::vector<std::vector<float>> vectors;  // per feature: pooled [b, dim] or elements [n, dim]
  std::vector<std::vector<std::int64_t>> offsets;  // per sequence feature
  std::vector<std::vector<float>> dvectors;
  ModelShape shape;

  PartData(const ModelShape& model_shape, std::int64_t samples, unsigned seed)
      : size(samples), shape(model_shape) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, 0.7F);
    const auto fill = [&](std::vector<float>& values, std::int64_t count) {
      values.resize(static_cast<std::size_t>(count));
      std::generate(values.begin(), values.end(), [&] { return normal(random); });
    };
    fill(dense, samples * shape.dense);
    for (const FeatureShape& feature : shape.features) {
      std::int64_t rows = samples;
      offsets.emplace_back();
      if (feature.sequence) {
        offsets.back().push_back(0);
        for (std::int64_t s = 0; s < samples; ++s) {
          // Lengths 0 to 4, the first sample's always 0.
          offsets.back().push_back(offsets.back().back() +
                                   (s == 0 ? 0 : static_cast<std::int64_t>(random() % 5)));
        }
        rows = offsets.back().back();
      }
      vectors.emplace_back();
      fill(vectors.back(), rows * feature.dim);
      dvectors.emplace_back(vectors.back().size(), -7.0F);
    }
  }

  // Samples [begin, end) of this part as a part of its own.
  [[nodiscard]] SliceInput input(std::int64_t begin, std::int64_t end) {
    SliceInput in;
    in.size = end - begin;
    in.dense =
        matrix(static_cast<const float*>(dense.data()), size, shape.dense).slice_rows(begin, end);
    cut_.clear();
    for (std::size_t f = 0; f < shape.features.size(); ++f) {
      const std::int64_t dim = shape.features[f].dim;
      const float* data = vectors[f].data();
      in.pooled.emplace_back();
      in.sequences.emplace_back();
      cut_.emplace_back();
      if (!shape.features[f].sequence) {
        in.pooled.back() = matrix(data, size, dim).slice_rows(begin, end);
        continue;
      }
      const auto at = [&](std::int64_t s) { return offsets[f][static_cast<std::size_t>(s)]; };
      for (std::int64_t s = begin; s <= end; ++s) {
        cut_.back().push_back(at(s) - at(begin));
      }
      in.sequences.back() = {matrix(data + at(begin) * dim, at(end) - at(begin), dim),
                             cut_.back().data()};
    }
    return in;
  }

  [[nodiscard]] SliceInput input() { return input(0, size); }

  [[nodiscard]] SliceGradients gradients() {
    SliceGradients out;
    for (std::size_t f = 0; f < shape.features.size(); ++f) {
      const FeatureShape& feature = shape.features[f];
      const auto rows = static_cast<std::int64_t>(dvectors[f].size()) / feature.dim;
      const Matrix<float> view = matrix(dvectors[f].data(), rows, feature.dim);
      out.pooled.push_back(feature.sequence ? Matrix<float>{} : view);
      out.sequences.push_back(feature.sequence ? view : Matrix<float>{});
    }
    return out;
  }

  [[nodiscard]] plain::Sample sample(std::int64_t s) const {
    plain::Sample out;
    const auto row = [](const std::vector<float>& values, std::int64_t i, std::int64_t dim) {
      return plain::Vec(values.begin() + i * dim, values.begin() + (i + 1) * dim);
    };
    out.dense = row(dense, s, shape.dense);
    for (std::size_t f = 0; f < shape.features.size(); ++f) {
      const std::int64_t dim = shape.features[f].dim;
      out.pooled.emplace_back();
      out.sequences.emplace_back();
      if (!shape.features[f].sequence) {
        out.pooled.back() = row(vectors[f], s, dim);
        continue;
      }
      for (std::int64_t e = offsets[f][static_cast<std::size_t>(s)];
           e < offsets[f][static_cast<std::size_t>(s) + 1]; ++e) {
        out.sequences.back().push_back(row(vectors[f], e, dim));
      }
    }
    return out;
  }

 private:
  std::vector<std::vector<std::int64_t>> cut_;
};

// What one thread needs to run a prepared model on a device, slice after slice.
struct Worker {
  const Model& model;
  Device& device;
  std::unique_ptr<Lane> lane;
  std::unique_ptr<SliceTerms> terms;

  Worker(const Model& prepared, Device& of)
      : model(prepared),
        device(of),
        lane(model.make_lane(device)),
        terms(model.make_terms(device)) {}

  void forward(const SliceInput& input, Matrix<float> logits) const {
    Context ctx{.device = &device};
    model.forward(ctx, input, *lane, logits);
  }

  void backward(const SliceInput& input,
                Matrix<const float> dlogits,
                SliceGradients& gradients) const {
    backward(input, dlogits, gradients, *terms);
  }

  void backward(const SliceInput& input,
                Matrix<const float> dlogits,
                SliceGradients& gradients,
                SliceTerms& to) const {
    Context ctx{.device = &device};
    model.backward(ctx, *lane,
                   {.input = input, .dlogits = dlogits, .terms = to, .gradients = gradients});
  }

  // The gradients of all weights over `sums`. Returns whether all of them are finite.
  [[nodiscard]] bool sum(const GradientTerms& sums, float* flat) const {
    Context ctx{.device = &device};
    std::vector<std::int32_t> infinite(static_cast<std::size_t>(model.num_gradient_tasks()), -1);
    for (std::int64_t task = 0; task < model.num_gradient_tasks(); ++task) {
      model.sum_gradients(ctx, task, sums, *lane, {.flat = flat, .infinite = infinite.data()});
    }
    return std::all_of(infinite.begin(), infinite.end(), [](int word) { return word == 0; });
  }

  // The same of the last slice, as the only one of one part.
  void sum_slice(float* flat) const {
    SliceTerms* const pointer = terms.get();
    const std::span<SliceTerms* const> part(&pointer, 1);
    static_cast<void>(sum({{0, 1}, std::span(&part, 1)}, flat));
  }
};

}  // namespace weft::nn
