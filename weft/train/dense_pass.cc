#include "weft/train/dense_pass.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "weft/base/error.h"
#include "weft/base/thread_pool.h"
#include "weft/nn/loss.h"
#include "weft/tensor/stream.h"

namespace weft::train {
namespace {

/// Elements per task when partial sums are added.
constexpr std::int64_t kSumBlock = 16384;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

bool all_finite(const float* values, std::int64_t count) {
  std::uint32_t worst = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    worst = std::max(worst, std::bit_cast<std::uint32_t>(values[i]) & 0x7f800000U);
  }
  return worst != 0x7f800000U;
}

nn::ModelShape model_shape(const spec::Config& config) {
  nn::ModelShape shape;
  shape.dense = static_cast<std::int64_t>(config.dense_features.size());
  shape.tasks = static_cast<std::int64_t>(config.tasks.size());
  for (const spec::SparseFeature& feature : config.sparse_features) {
    nn::FeatureShape entry;
    entry.name = feature.name;
    entry.dim = config.tables[at(spec::table_index(config, feature))].embedding_dim;
    entry.sequence = feature.pooling == spec::Pooling::kNone;
    for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
      if (!feature.target.empty() && config.sparse_features[f].name == feature.target) {
        entry.target = static_cast<std::int64_t>(f);
      }
    }
    shape.features.push_back(std::move(entry));
  }
  return shape;
}

void upload(Context& ctx, Buffer& to, const void* from, std::size_t bytes) {
  to.resize(static_cast<std::int64_t>(bytes));
  ctx.device->copy_to_device(ctx, to.as<void>(), from, static_cast<std::int64_t>(bytes));
}

}  // namespace

DensePass::DensePass(const spec::Config& config,
                     const spec::Plan& plan,
                     const sharding::Routing& routing,
                     comm::Communicator& comm,
                     Device& device)
    : config_(config),
      routing_(routing),
      rank_(comm.rank()),
      own_parts_(rank_parts(plan.parts, comm.size(), comm.rank())),
      parts_total_(plan.parts),
      tasks_(static_cast<std::int64_t>(config.tasks.size())),
      model_(nn::Model::create(config.model, model_shape(config))),
      params_(device),
      gradient_(device),
      part_gradients_(device),
      dense_(device),
      labels_(device),
      weights_(device),
      logits_(device),
      dlogits_(device),
      sequence_offsets_(device),
      offsets_begin_(at(own_parts_.size())),
      sequence_rows_(at(own_parts_.size())),
      parts_(at(own_parts_.size())),
      scale_(at(tasks_)),
      sums_(at(own_parts_.size() * tasks_)) {
  const std::int64_t count = model_->layout().size();
  all_reduce_ = std::make_unique<comm::OrderedAllReduce>(comm, device, plan.parts, count);
  params_.resize(count * 4);
  gradient_.resize(count * 4);
  optimizer_ = std::make_unique<optim::DenseOptimizer>(config.dense_optimizer, device, count);
  state_ = std::make_unique<optim::DenseState>(
      model_->layout(), device, params_.as<float>(), *optimizer_,
      rank_ == 0 ? optim::Holder::kFirst : optim::Holder::kReplica);
  present_.resize(at(all_reduce_->num_partials()));
  for (Part& part : parts_) {
    part.workspace = model_->make_workspace();
  }
  assign_gradients(device);
  const std::vector<float> initial = initial_values();
  const auto stream = device.make_stream({.name = "dense init", .is_inline = false});
  const Stage stage = [&](Context& ctx) {
    ctx.device->copy_to_device(ctx, params_.as<void>(), initial.data(), count * 4);
  };
  stream->enqueue(stage);
  stream->synchronize();
}

/// The first part of a whole subtree writes where the subtree's sum will be; the others beside.
void DensePass::assign_gradients(Device& device) {
  const std::int64_t count = model_->layout().size();
  const std::int64_t beside = own_parts_.size() - all_reduce_->num_partials();
  part_gradients_ = Buffer(device, std::max<std::int64_t>(beside, 0) * count * 4);
  auto* next = part_gradients_.as<float>();
  for (std::int64_t i = 0; i < all_reduce_->num_partials(); ++i) {
    const Range run = all_reduce_->partial_parts(i);
    for (std::int64_t p = run.begin; p < run.end; ++p) {
      Part& part = parts_[at(p - own_parts_.begin)];
      part.gradient = p == run.begin ? all_reduce_->partial(i) : next;
      next += p == run.begin ? 0 : count;
    }
  }
}

std::vector<float> DensePass::initial_values() const {
  std::vector<float> values(at(model_->layout().size()));
  model_->init_parameters(config_.seed, values.data());
  return values;
}

std::vector<double> DensePass::weight_sums(const data::Batch& batch) const {
  std::vector<double> sums(at(own_parts_.size() * tasks_), 0.0);
  for (std::int64_t p = own_parts_.begin; p < own_parts_.end; ++p) {
    const Range samples = part_samples(batch.global_size, parts_total_, p);
    for (std::int64_t s = samples.begin; s < samples.end; ++s) {
      const std::int64_t row = s - batch.positions.begin;
      for (std::int64_t t = 0; t < tasks_; ++t) {
        sums[at((p - own_parts_.begin) * tasks_ + t)] +=
            static_cast<double>(batch.label_weights[at(row * tasks_ + t)]);
      }
    }
  }
  return sums;
}

void DensePass::load(Context& ctx,
                     const data::Batch& batch,
                     const sharding::FeatureMatrices& vectors,
                     const sharding::FeatureMatrices& gradients) {
  upload(ctx, dense_, batch.dense.data(), batch.dense.size() * sizeof(float));
  upload(ctx, labels_, batch.labels.data(), batch.labels.size() * sizeof(float));
  upload(ctx, weights_, batch.label_weights.data(), batch.label_weights.size() * sizeof(float));
  logits_.resize_for<float>(batch.size() * tasks_);
  dlogits_.resize_for<float>(batch.size() * tasks_);
  positions_ = batch.positions;
  sample_ids_ = batch.sample_ids;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Range samples = part_samples(batch.global_size, parts_total_,
                                       own_parts_.begin + static_cast<std::int64_t>(i));
    parts_[i].rows = {samples.begin - batch.positions.begin, samples.end - batch.positions.begin};
  }
  load_sequences(ctx, batch);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    view_part(i, vectors, gradients);
  }
}

/// Offsets of every part's sequences, relative to the part.
void DensePass::load_sequences(Context& ctx, const data::Batch& batch) {
  host_offsets_.clear();
  const auto features = routing_.features.size();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    offsets_begin_[i].assign(features, -1);
    sequence_rows_[i].assign(features, Range{});
    for (std::size_t f = 0; f < features; ++f) {
      if (routing_.features[f].pooling != spec::Pooling::kNone) {
        continue;
      }
      const JaggedView bags = batch.sparse.feature(static_cast<std::int64_t>(f));
      const std::int64_t first = bags.offsets[at(parts_[i].rows.begin)];
      offsets_begin_[i][f] = static_cast<std::int64_t>(host_offsets_.size());
      for (std::int64_t b = parts_[i].rows.begin; b <= parts_[i].rows.end; ++b) {
        host_offsets_.push_back(bags.offsets[at(b)] - first);
      }
      const std::int64_t begin = first - bags.offsets.front();
      sequence_rows_[i][f] = {begin, begin + host_offsets_.back()};
    }
  }
  upload(ctx, sequence_offsets_, host_offsets_.data(), host_offsets_.size() * 8);
}

void DensePass::view_part(std::size_t index,
                          const sharding::FeatureMatrices& vectors,
                          const sharding::FeatureMatrices& gradients) {
  Part& part = parts_[index];
  const Range rows = part.rows;
  const auto dense_dim = static_cast<std::int64_t>(config_.dense_features.size());
  const std::size_t features = routing_.features.size();
  part.input.size = rows.size();
  part.input.dense =
      matrix(dense_.as<const float>() + rows.begin * dense_dim, rows.size(), dense_dim);
  part.input.pooled.assign(features, {});
  part.input.sequences.assign(features, {});
  part.gradients.pooled.assign(features, {});
  part.gradients.sequences.assign(features, {});
  for (std::size_t f = 0; f < features; ++f) {
    const sharding::FeatureRoute& route = routing_.features[f];
    if (route.pooling == spec::Pooling::kNone) {
      const Range range = sequence_rows_[index][f];
      part.input.sequences[f].values = vectors.sequences[f].slice_rows(range.begin, range.end);
      part.input.sequences[f].offsets =
          sequence_offsets_.as<const std::int64_t>() + offsets_begin_[index][f];
      part.gradients.sequences[f] = gradients.sequences[f].slice_rows(range.begin, range.end);
      continue;
    }
    const std::int64_t end = route.pooled_column + route.dim;
    part.input.pooled[f] =
        vectors.pooled.slice_rows(rows.begin, rows.end).slice_cols(route.pooled_column, end);
    part.gradients.pooled[f] =
        gradients.pooled.slice_rows(rows.begin, rows.end).slice_cols(route.pooled_column, end);
  }
}

Matrix<float> DensePass::logits(const Part& part) const {
  return matrix(logits_.as<float>() + part.rows.begin * tasks_, part.rows.size(), tasks_);
}

void DensePass::forward(Context& ctx) {
  model_->prepare(ctx, params_.as<float>());
  ctx.pool->parallel_for(static_cast<std::int64_t>(parts_.size()),
                         [this](std::int64_t i) { forward_part(at(i)); });
}

void DensePass::forward_backward(Context& ctx, std::span<const double> global_weights) {
  for (std::size_t t = 0; t < scale_.size(); ++t) {
    const double weight = global_weights[t];
    scale_[t] = weight > 0 ? static_cast<float>(config_.tasks[t].weight / weight) : 0.0F;
  }
  model_->prepare(ctx, params_.as<float>());
  ctx.pool->parallel_for(static_cast<std::int64_t>(parts_.size()), [this](std::int64_t i) {
    forward_part(at(i));
    backward_part(at(i));
  });
  find_non_finite();
  sum_partials(ctx);
}

void DensePass::forward_part(std::size_t index) {
  Part& part = parts_[index];
  metrics::BinarySums* sums = sums_.data() + index * at(tasks_);
  std::fill_n(sums, tasks_, metrics::BinarySums{});
  if (part.rows.empty()) {
    return;
  }
  const Matrix<float> out = logits(part);
  model_->forward(part.input, *part.workspace, out);
  for (std::int64_t b = 0; b < out.rows; ++b) {
    const std::int64_t row = (part.rows.begin + b) * tasks_;
    for (std::int64_t t = 0; t < tasks_; ++t) {
      sums[t].add(out.row(b)[t], labels_.as<float>()[row + t], weights_.as<float>()[row + t]);
    }
  }
}

void DensePass::backward_part(std::size_t index) {
  Part& part = parts_[index];
  part.first_bad_row = -1;
  if (part.rows.empty()) {
    return;
  }
  const std::int64_t begin = part.rows.begin * tasks_;
  const std::int64_t rows = part.rows.size();
  const nn::LossInput input{.logits = logits(part),
                            .labels = matrix(labels_.as<const float>() + begin, rows, tasks_),
                            .weights = matrix(weights_.as<const float>() + begin, rows, tasks_),
                            .scale = scale_};
  const Matrix<float> dlogits = matrix(dlogits_.as<float>() + begin, rows, tasks_);
  nn::LossOutput output;
  output.dlogits = dlogits;
  const std::int64_t bad_row = nn::bce_with_logits(input, output);
  model_->backward(part.input, *part.workspace, dlogits, part.gradient, part.gradients);
  check_part(part, bad_row);
}

/// The first of the part's samples with a loss or an upstream embedding gradient that is not
/// finite; the part's first sample for a gradient of the parameters.
void DensePass::check_part(Part& part, std::int64_t bad_loss_row) const {
  std::int64_t bad = bad_loss_row < 0 ? part.rows.size() : bad_loss_row;
  for (const Matrix<float>& gradient : part.gradients.pooled) {
    for (std::int64_t b = 0; b < std::min(bad, gradient.rows); ++b) {
      if (!all_finite(gradient.row(b), gradient.cols)) {
        bad = b;
      }
    }
  }
  for (std::size_t f = 0; f < part.gradients.sequences.size(); ++f) {
    const Matrix<float>& gradient = part.gradients.sequences[f];
    const std::int64_t* offsets = part.input.sequences[f].offsets;
    for (std::int64_t b = 0; offsets != nullptr && b < bad; ++b) {
      const std::int64_t count = (offsets[b + 1] - offsets[b]) * gradient.cols;
      if (count > 0 && !all_finite(gradient.row(offsets[b]), count)) {
        bad = b;
      }
    }
  }
  if (bad == part.rows.size() && !all_finite(part.gradient, model_->layout().size())) {
    bad = 0;
  }
  part.first_bad_row = bad == part.rows.size() ? -1 : part.rows.begin + bad;
}

void DensePass::find_non_finite() {
  non_finite_ = NonFinite{};
  for (const Part& part : parts_) {
    if (part.first_bad_row >= 0) {
      non_finite_ = {.position = positions_.begin + part.first_bad_row,
                     .sample = sample_ids_[at(part.first_bad_row)],
                     .rank = rank_};
      return;
    }
  }
}

/// Adds the parts of each maximal whole subtree, up the tree, skipping empty parts.
void DensePass::sum_partials(Context& ctx) {
  const std::int64_t count = model_->layout().size();
  const std::int64_t blocks = (count + kSumBlock - 1) / kSumBlock;
  for (std::int64_t i = 0; i < all_reduce_->num_partials(); ++i) {
    const Range run = all_reduce_->partial_parts(i);
    bool present = false;
    for (std::int64_t p = run.begin; p < run.end; ++p) {
      present |= !parts_[at(p - own_parts_.begin)].rows.empty();
    }
    present_[at(i)] = present ? 1 : 0;
    if (!present) {
      continue;
    }
    ctx.pool->parallel_for(blocks, [&](std::int64_t block) {
      const std::int64_t begin = block * kSumBlock;
      const std::int64_t size = std::min(kSumBlock, count - begin);
      std::vector<float*> slots(at(tree_slots(parts_total_)));
      const auto leaf = [&](const Range& node, int depth) {
        if (node.size() != 1 || parts_[at(node.begin - own_parts_.begin)].rows.empty()) {
          return false;
        }
        slots[at(depth)] = parts_[at(node.begin - own_parts_.begin)].gradient + begin;
        return true;
      };
      const auto add = [&](int depth) {
        float* to = slots[at(depth)];
        const float* from = slots[at(depth + 1)];
        for (std::int64_t c = 0; c < size; ++c) {
          to[c] += from[c];
        }
      };
      sum_tree(run, 0, leaf, add);
      float* out = all_reduce_->partial(i) + begin;
      if (slots[0] != out) {
        std::memcpy(out, slots[0], at(size) * sizeof(float));
      }
    });
  }
}

void DensePass::reduce(Context& ctx) {
  all_reduce_->run(ctx, present_, gradient_.as<float>());
}

optim::DenseStep DensePass::update(Context& ctx, double lr_factor, std::int64_t step) {
  return optimizer_->step(ctx, params_.as<float>(), gradient_.as<float>(), lr_factor, step);
}

void DensePass::read_logits(Context& ctx, std::vector<float>& out) const {
  out.resize(at(positions_.size() * tasks_));
  ctx.device->copy_to_host(ctx, out.data(), logits_.as<void>(),
                           static_cast<std::int64_t>(out.size() * sizeof(float)));
}

}  // namespace weft::train
