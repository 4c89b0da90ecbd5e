#include "weft/train/dense_pass.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/binary_sums.h"
#include "weft/kernels/loss.h"
#include "weft/kernels/slices.h"
#include "weft/kernels/term_sums.h"
#include "weft/layout/dense_memory.h"
#include "weft/tensor/stream.h"

namespace weft::train {
namespace {

comm::ReduceCodec reduce_codec(const spec::Config& config, const spec::Plan& plan) {
  return {.codec = {.format = config.codecs.dense, .group = config.codecs.group_size},
          .error_feedback = config.codecs.error_feedback,
          .crossing = plan.collectives.dense_crossing()};
}

template <typename T>
void upload(Context& ctx, Buffer& to, const std::vector<T>& from, std::int64_t bytes) {
  WEFT_CHECK(bytes == static_cast<std::int64_t>(from.size() * sizeof(T)),
             "{} values for a buffer of {} bytes", from.size(), bytes);
  to.resize(bytes);
  ctx.device->copy_to_device(ctx, to.as<void>(), from.data(), bytes);
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
      model_(nn::Model::create(config.model, layout::model_shape(config))),
      params_(device),
      gradient_(device),
      dense_(device),
      labels_(device),
      weights_(device),
      logits_(device),
      dlogits_(device),
      sequence_offsets_(device),
      parts_(at(own_parts_.size())),
      subtrees_(plan.parts, own_parts_),
      needs_(subtree_needs(plan.parts, own_parts_, routing.micro_batches)),
      waiting_(device),
      scale_(at(tasks_)),
      bad_rows_(device),
      infinite_(device),
      totals_(device),
      sums_(at(own_parts_.size() * tasks_)) {
  const std::int64_t count = model_->layout().size();
  const comm::ReduceCodec codec = reduce_codec(config, plan);
  all_reduce_ = std::make_unique<comm::OrderedAllReduce>(comm, device, plan.parts, count, codec);
  residuals_ = std::make_unique<comm::ReduceState>(*all_reduce_, device, kResidualParameter);
  if (!all_reduce_->residuals().empty()) {
    residual_layout_ = comm::residual_layout(comm, codec);
  }
  params_.resize(count * 4);
  gradient_.resize(count * 4);
  optimizer_ = std::make_unique<optim::DenseOptimizer>(config.dense_optimizer, device, count);
  state_ = std::make_unique<optim::DenseState>(
      model_->layout(), device, params_.as<float>(), *optimizer_,
      rank_ == 0 ? optim::Holder::kFirst : optim::Holder::kReplica);
  present_.resize(at(all_reduce_->num_partials()));
  for (std::int64_t i = 0; i < all_reduce_->num_partials(); ++i) {
    most_parts_ = std::max(most_parts_, all_reduce_->partial_parts(i).size());
  }
  waiting_.resize(needs_.slots * count * 4);
  has_sums_.reserve(at(needs_.at_once));
  for (std::int64_t lane = 0; lane < kernels::slice_lanes(device); ++lane) {
    lanes_.push_back(model_->make_lane(device));
  }
  const std::vector<float> initial = initial_values();
  const auto stream = device.make_stream({.name = "dense init", .is_inline = false});
  const Stage stage = [&](Context& ctx) {
    ctx.device->copy_to_device(ctx, params_.as<void>(), initial.data(), count * 4);
  };
  stream->enqueue(stage);
  stream->synchronize();
}

std::vector<float> DensePass::initial_values() const {
  std::vector<float> values(at(model_->layout().size()));
  model_->init_parameters(config_.seed, values.data());
  return values;
}

void DensePass::weight_sums(const data::Batch& batch, std::vector<double>& sums) const {
  sums.assign(at(own_parts_.size() * tasks_), 0.0);
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
}

void DensePass::load(Context& ctx,
                     const data::Batch& batch,
                     const sharding::FeatureMatrices& vectors,
                     const sharding::FeatureMatrices& gradients) {
  positions_ = batch.positions;
  sample_ids_ = batch.sample_ids;
  cut_batch(batch);
  const layout::BatchBuffers lengths = layout::batch_buffers(counts(batch));
  upload(ctx, dense_, batch.dense, lengths.dense);
  upload(ctx, labels_, batch.labels, lengths.labels);
  upload(ctx, weights_, batch.label_weights, lengths.labels);
  logits_.resize(lengths.labels);
  dlogits_.resize(lengths.labels);
  bad_rows_.resize(lengths.bad_rows);
  totals_.resize(lengths.totals);
  load_sequences(batch);
  upload(ctx, sequence_offsets_, host_offsets_, lengths.offsets);
  for (std::size_t i = 0; i < num_slices_; ++i) {
    view_slice(i, vectors, gradients);
  }
}

layout::BatchCounts DensePass::counts(const data::Batch& batch) const {
  static_assert(sizeof(kernels::BinaryTotals) == layout::kTotalsBytes);
  return {.samples = batch.size(),
          .dense = static_cast<std::int64_t>(config_.dense_features.size()),
          .tasks = tasks_,
          .slices = static_cast<std::int64_t>(num_slices_),
          .sequences = std::count_if(
              routing_.features.begin(), routing_.features.end(),
              [](const auto& feature) { return feature.pooling == spec::Pooling::kNone; }),
          .parts = own_parts_.size()};
}

/// Parts, and their slices.
void DensePass::cut_batch(const data::Batch& batch) {
  subtrees_.restart();
  is_finite_ = true;
  num_slices_ = 0;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const Range samples = part_samples(batch.global_size, parts_total_,
                                       own_parts_.begin + static_cast<std::int64_t>(p));
    Part& part = parts_[p];
    part.rows = {samples.begin - batch.positions.begin, samples.end - batch.positions.begin};
    part.first_bad_gradient = -1;
    const std::int64_t count = layout::num_slices(samples.size());
    part.slices.begin = static_cast<std::int64_t>(num_slices_);
    for (std::int64_t i = 0; i < count; ++i, ++num_slices_) {
      if (num_slices_ == slices_.size()) {
        slices_.emplace_back().terms = model_->make_terms(*params_.device());
        terms_.push_back(slices_.back().terms.get());
      }
      const Range rows = piece(samples.size(), count, i);
      slices_[num_slices_].rows = {part.rows.begin + rows.begin, part.rows.begin + rows.end};
    }
    part.slices.end = static_cast<std::int64_t>(num_slices_);
  }
  by_part_.clear();
  for (const Part& part : parts_) {
    by_part_.push_back(std::span<nn::SliceTerms* const>(terms_).subspan(at(part.slices.begin),
                                                                        at(part.slices.size())));
  }
}

/// Offsets of every slice's sequences, relative to the slice, and the size of the largest slice.
void DensePass::load_sequences(const data::Batch& batch) {
  host_offsets_.clear();
  const auto features = routing_.features.size();
  largest_ = 0;
  largest_elements_.assign(features, 0);
  offsets_begin_.resize(std::max(offsets_begin_.size(), num_slices_));
  sequence_rows_.resize(std::max(sequence_rows_.size(), num_slices_));
  for (std::size_t i = 0; i < num_slices_; ++i) {
    const Range rows = slices_[i].rows;
    largest_ = std::max(largest_, rows.size());
    offsets_begin_[i].assign(features, -1);
    sequence_rows_[i].assign(features, Range{});
    for (std::size_t f = 0; f < features; ++f) {
      if (routing_.features[f].pooling != spec::Pooling::kNone) {
        continue;
      }
      const JaggedView bags = batch.sparse.feature(static_cast<std::int64_t>(f));
      const std::int64_t first = bags.offsets[at(rows.begin)];
      offsets_begin_[i][f] = static_cast<std::int64_t>(host_offsets_.size());
      for (std::int64_t b = rows.begin; b <= rows.end; ++b) {
        host_offsets_.push_back(bags.offsets[at(b)] - first);
      }
      const std::int64_t begin = first - bags.offsets.front();
      sequence_rows_[i][f] = {begin, begin + host_offsets_.back()};
      largest_elements_[f] = std::max(largest_elements_[f], host_offsets_.back());
    }
  }
}

void DensePass::view_slice(std::size_t index,
                           const sharding::FeatureMatrices& vectors,
                           const sharding::FeatureMatrices& gradients) {
  Slice& slice = slices_[index];
  const Range rows = slice.rows;
  const auto dense_dim = static_cast<std::int64_t>(config_.dense_features.size());
  const std::size_t features = routing_.features.size();
  slice.input.size = rows.size();
  slice.input.dense =
      matrix(dense_.as<const float>() + rows.begin * dense_dim, rows.size(), dense_dim);
  slice.input.pooled.assign(features, {});
  slice.input.sequences.assign(features, {});
  slice.gradients.pooled.assign(features, {});
  slice.gradients.sequences.assign(features, {});
  const Matrix<float> pooled_gradients = gradients.pooled.slice_rows(rows.begin, rows.end);
  slice.checked.assign(1, {.values = pooled_gradients});  // all features: they lie side by side
  for (std::size_t f = 0; f < features; ++f) {
    const sharding::FeatureRoute& route = routing_.features[f];
    if (route.pooling == spec::Pooling::kNone) {
      const Range range = sequence_rows_[index][f];
      slice.input.sequences[f].values = vectors.sequences[f].slice_rows(range.begin, range.end);
      slice.input.sequences[f].offsets =
          sequence_offsets_.as<const std::int64_t>() + offsets_begin_[index][f];
      slice.gradients.sequences[f] = gradients.sequences[f].slice_rows(range.begin, range.end);
      slice.checked.push_back({slice.gradients.sequences[f], slice.input.sequences[f].offsets});
      continue;
    }
    const std::int64_t end = route.pooled_column + route.dim;
    slice.input.pooled[f] =
        vectors.pooled.slice_rows(rows.begin, rows.end).slice_cols(route.pooled_column, end);
    slice.gradients.pooled[f] = pooled_gradients.slice_cols(route.pooled_column, end);
  }
}

Matrix<float> DensePass::logits(Range rows) const {
  return matrix(logits_.as<float>() + rows.begin * tasks_, rows.size(), tasks_);
}

/// The parts of a micro-batch, counted from this rank's first.
Range DensePass::own_parts(std::int64_t cut) const {
  const Range parts = routing_.micro_batches.parts(own_parts_, cut);
  return {parts.begin - own_parts_.begin, parts.end - own_parts_.begin};
}

Range DensePass::slices_of(const Range& parts) const {
  return parts.empty()
             ? Range{}
             : Range{parts_[at(parts.begin)].slices.begin, parts_[at(parts.end - 1)].slices.end};
}

void DensePass::forward(Context& ctx, std::int64_t cut) {
  if (cut == 0) {
    model_->prepare(ctx, params_.as<float>());
  }
  const Range slices = slices_of(own_parts(cut));
  kernels::for_each_slice(ctx, slices.size(), [&](std::int64_t i, std::int64_t lane) {
    forward_slice(ctx, slices_[at(slices.begin + i)], *lanes_[at(lane)]);
  });
  sum_metrics(ctx, own_parts(cut));
}

void DensePass::forward_backward(Context& ctx,
                                 std::span<const double> global_weights,
                                 std::int64_t cut) {
  for (std::size_t t = 0; t < scale_.size(); ++t) {
    const double weight = global_weights[t];
    scale_[t] = weight > 0 ? static_cast<float>(config_.tasks[t].weight / weight) : 0.0F;
  }
  if (cut == 0) {
    model_->prepare(ctx, params_.as<float>());
  }
  const Range slices = slices_of(own_parts(cut));
  kernels::for_each_slice(ctx, slices.size(), [&](std::int64_t i, std::int64_t lane) {
    forward_slice(ctx, slices_[at(slices.begin + i)], *lanes_[at(lane)]);
    backward_slice(ctx, at(slices.begin + i), *lanes_[at(lane)]);
  });
  sum_metrics(ctx, own_parts(cut));
}

/// One micro-batch at a time, or all that is left: for this there is room.
void DensePass::weight_gradients(Context& ctx, std::int64_t cut) {
  const bool is_last = cut + 1 == routing_.micro_batches.count();
  for (std::int64_t earlier = 0; earlier < cut && !is_last; ++earlier) {
    add_gradients(ctx, own_parts(earlier).end);
  }
  add_gradients(ctx, own_parts(cut).end);
  if (!is_last) {
    return;
  }
  for (std::int64_t i = 0; i < all_reduce_->num_partials(); ++i) {
    present_[at(i)] = has_samples(all_reduce_->partial_parts(i)) ? 1 : 0;
  }
  if (!is_finite_) {
    find_bad_parts(ctx);
  }
  find_non_finite(ctx);
}

void DensePass::forward_slice(Context& ctx, Slice& slice, nn::Lane& lane) {
  model_->reserve(lane, {.samples = largest_, .elements = largest_elements_});
  model_->forward(ctx, slice.input, lane, logits(slice.rows));
}

void DensePass::backward_slice(Context& ctx, std::size_t index, nn::Lane& lane) {
  Slice& slice = slices_[index];
  const std::int64_t begin = slice.rows.begin * tasks_;
  const std::int64_t rows = slice.rows.size();
  std::int64_t* const bad_row = bad_rows_.as<std::int64_t>() + index;
  const Matrix<float> dlogits = matrix(dlogits_.as<float>() + begin, rows, tasks_);
  kernels::bce_loss(ctx, {.logits = logits(slice.rows),
                          .labels = matrix(labels_.as<const float>() + begin, rows, tasks_),
                          .weights = matrix(weights_.as<const float>() + begin, rows, tasks_),
                          .scale = scale_,
                          .dlogits = dlogits,
                          .first_bad = bad_row});
  model_->backward(ctx, lane,
                   {.input = slice.input,
                    .dlogits = dlogits,
                    .terms = *slice.terms,
                    .gradients = slice.gradients});
  kernels::first_bad_sample(ctx, {.samples = rows, .values = slice.checked, .first = bad_row});
}

/// In the order of samples, part by part.
void DensePass::sum_metrics(Context& ctx, const Range& parts) {
  part_rows_.clear();
  for (std::int64_t p = parts.begin; p < parts.end; ++p) {
    part_rows_.push_back(parts_[at(p)].rows);
  }
  const std::int64_t samples = positions_.size();
  kernels::sum_binary(ctx, {.logits = logits({0, samples}),
                            .labels = matrix(labels_.as<const float>(), samples, tasks_),
                            .weights = matrix(weights_.as<const float>(), samples, tasks_),
                            .parts = part_rows_,
                            .totals = totals_.as<kernels::BinaryTotals>() + parts.begin * tasks_});
  ctx.device->copy_to_host(
      ctx, sums_.data() + parts.begin * tasks_,
      totals_.as<kernels::BinaryTotals>() + parts.begin * tasks_,
      parts.size() * tasks_ * static_cast<std::int64_t>(sizeof(metrics::BinarySums)));
}

bool DensePass::has_samples(Range parts) const {
  return std::any_of(parts_.begin() + (parts.begin - own_parts_.begin),
                     parts_.begin() + (parts.end - own_parts_.begin),
                     [](const Part& part) { return !part.rows.empty(); });
}

nn::GradientTerms DensePass::terms(Range parts) const {
  return {
      .node = parts,
      .parts = std::span(by_part_).subspan(at(parts.begin - own_parts_.begin), at(parts.size())),
      .most_parts = most_parts_,
      .most_slices = static_cast<std::int64_t>(num_slices_)};
}

/// Where the sums of a subtree are: in the place of its partial sum, or among those that wait.
float* DensePass::sums_at(const SubtreeStack::Subtree& subtree) const {
  return subtree.slot == SubtreeStack::kOfRoot
             ? all_reduce_->partial(subtree.root)
             : waiting_.as<float>() + subtree.slot * all_reduce_->count();
}

/// Of the own parts up to `end`, as far as they have not been added.
void DensePass::add_gradients(Context& ctx, std::int64_t end) {
  sum_gradients(ctx, subtrees_.advance(std::max(subtrees_.end(), own_parts_.begin + end)));
  for (const SubtreeStack::Join& siblings : subtrees_.joins()) {
    join(ctx, siblings);
  }
}

/// Tile by tile.
void DensePass::sum_gradients(Context& ctx, std::span<const SubtreeStack::Subtree> subtrees) {
  const std::int64_t tasks = model_->num_gradient_tasks();
  const auto count = static_cast<std::int64_t>(subtrees.size());
  has_sums_.clear();
  for (const SubtreeStack::Subtree& subtree : subtrees) {
    has_sums_.push_back(has_samples(subtree.node) ? 1 : 0);
  }
  infinite_.resize(layout::infinite_bytes(needs_.at_once, tasks));
  const auto words = [&](std::int64_t i) { return infinite_.as<std::int32_t>() + i * tasks; };
  kernels::for_each_slice(ctx, count * tasks, [&](std::int64_t index, std::int64_t lane) {
    const std::int64_t i = index / tasks;
    if (has_sums_[at(i)] != 0) {
      model_->sum_gradients(ctx, index % tasks, terms(subtrees[at(i)].node), *lanes_[at(lane)],
                            {.flat = sums_at(subtrees[at(i)]), .infinite = words(i)});
    }
  });
  for (std::int64_t i = 0; i < count; ++i) {
    is_finite_ = (has_sums_[at(i)] == 0 || are_zero(ctx, words(i), tasks)) && is_finite_;
  }
}

/// earlier += later. A sum without samples is absent.
void DensePass::join(Context& ctx, const SubtreeStack::Join& siblings) {
  if (!has_samples(siblings.later.node)) {
    return;
  }
  const std::array<const float*, 2> terms = {sums_at(siblings.earlier), sums_at(siblings.later)};
  const kernels::Addition sum{.a = {.term = 0}, .b = {.term = 1}};
  const std::size_t additions = has_samples(siblings.earlier.node) ? 1 : 0;
  const kernels::TermSum job{.additions = std::span(&sum, additions),
                             .only = {.term = 1},
                             .terms = terms,
                             .out = sums_at(siblings.earlier),
                             .count = all_reduce_->count()};
  kernels::sum_terms(ctx, std::span(&job, 1));
}

/// Whether all of these words of the device are zero.
bool DensePass::are_zero(Context& ctx, const std::int32_t* words, std::int64_t count) {
  host_infinite_.resize(at(count));
  ctx.device->copy_to_host(ctx, host_infinite_.data(), words,
                           count * static_cast<std::int64_t>(sizeof(std::int32_t)));
  return std::all_of(host_infinite_.begin(), host_infinite_.end(),
                     [](std::int32_t word) { return word == 0; });
}

/// After a sum that is not finite: which parts' own gradients are not. There may be none, where a
/// sum of finite ones overflowed; update() says so. Not for speed: the job ends, or skips the step.
void DensePass::find_bad_parts(Context& ctx) {
  const std::int64_t tasks = model_->num_gradient_tasks();
  Buffer gradient(*ctx.device, model_->layout().size() * static_cast<std::int64_t>(sizeof(float)));
  const nn::Model::GradientSums to{.flat = gradient.as<float>(),
                                   .infinite = infinite_.as<std::int32_t>()};
  for (std::int64_t p = own_parts_.begin; p < own_parts_.end; ++p) {
    Part& part = parts_[at(p - own_parts_.begin)];
    if (part.rows.empty()) {
      continue;
    }
    for (std::int64_t task = 0; task < tasks; ++task) {
      model_->sum_gradients(ctx, task, terms({p, p + 1}), *lanes_[0], to);
    }
    part.first_bad_gradient = are_zero(ctx, to.infinite, tasks) ? -1 : part.rows.begin;
  }
}

/// The first sample with a loss or gradient that is not finite; for a gradient of the parameters,
/// the first of its part.
void DensePass::find_non_finite(Context& ctx) {
  non_finite_ = NonFinite{};
  host_bad_rows_.resize(num_slices_);
  ctx.device->copy_to_host(ctx, host_bad_rows_.data(), bad_rows_.as<void>(),
                           static_cast<std::int64_t>(num_slices_ * sizeof(std::int64_t)));
  std::int64_t row = -1;
  for (const Part& part : parts_) {
    for (std::int64_t i = part.slices.begin; row < 0 && i < part.slices.end; ++i) {
      const std::int64_t bad = host_bad_rows_[at(i)];
      row = bad < 0 ? -1 : slices_[at(i)].rows.begin + bad;
    }
    row = row < 0 ? part.first_bad_gradient : row;
    if (row >= 0) {
      non_finite_ = {
          .position = positions_.begin + row, .sample = sample_ids_[at(row)], .rank = rank_};
      return;
    }
  }
}

void DensePass::reduce(Context& ctx) {
  all_reduce_->run(ctx, present_, gradient_.as<float>());
}

optim::DenseStep DensePass::update(Context& ctx, double lr_factor, std::int64_t step) {
  const optim::DenseStep done =
      optimizer_->step(ctx, params_.as<float>(), gradient_.as<float>(), lr_factor, step);
  if (done.first_non_finite < 0) {
    all_reduce_->keep_residuals();
  }
  return done;
}

void DensePass::list_sources(std::vector<const StateSource*>& out) const {
  out.push_back(state_.get());
  out.push_back(residuals_.get());
}

void DensePass::list_sinks(Residuals residuals, std::vector<StateSink*>& out) {
  out.push_back(state_.get());
  if (residuals == Residuals::kRestored) {
    out.push_back(residuals_.get());
  }
}

void DensePass::read_logits(Context& ctx, std::vector<float>& out) const {
  out.resize(at(positions_.size() * tasks_));
  ctx.device->copy_to_host(ctx, out.data(), logits_.as<void>(),
                           static_cast<std::int64_t>(out.size() * sizeof(float)));
}

}  // namespace weft::train
