#include "weft/sharding/output_dist.h"

#include <algorithm>
#include <cstring>

#include "weft/base/error.h"
#include "weft/base/thread_pool.h"

namespace weft::sharding {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

void copy_floats(float* to, const float* from, std::int64_t count) {
  std::memcpy(to, from, at(count) * sizeof(float));
}

}  // namespace

OutputDist::OutputDist(const Routing& routing, comm::Communicator& comm, Device& device)
    : routing_(routing),
      comm_(comm),
      pooled_(device),
      pooled_gradients_(device),
      served_(device),
      asked_(device),
      asked_begin_(at(routing.ranks)),
      served_bytes_(at(routing.ranks)),
      asked_bytes_(at(routing.ranks)) {
  const std::size_t features = routing.features.size();
  outputs_.sequences.resize(features);
  gradients_.sequences.resize(features);
  for (std::size_t f = 0; f < features; ++f) {
    sequences_.emplace_back(device);
    sequence_gradients_.emplace_back(device);
  }
  for (std::int64_t r = 0; r < routing.ranks; ++r) {
    asked_begin_[at(r)].resize(routing.served[at(r)].size());
  }
  const std::size_t own = routing.served[at(comm.rank())].size();
  served_begin_.resize(own * at(routing.ranks) + routing.served[at(routing.replicated())].size());
}

void OutputDist::prepare(const InputDist& input) {
  const auto& own = routing_.served[at(comm_.rank())];
  const auto& replicated = routing_.served[at(routing_.replicated())];
  std::int64_t served = 0;
  std::int64_t asked = 0;
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const std::int64_t served_before = served;
    for (std::size_t j = 0; j < own.size(); ++j) {
      served_begin_[at(r) * own.size() + j] = served;
      const IncomingBlock& block = input.incoming().blocks[j * at(routing_.ranks) + at(r)];
      served += block.vectors(own[j]) * own[j].dim();
    }
    served_bytes_[at(r)] = (served - served_before) * 4;
    const std::int64_t asked_before = asked;
    const auto& slots = routing_.served[at(r)];
    for (std::size_t j = 0; j < slots.size(); ++j) {
      asked_begin_[at(r)][j] = asked;
      asked += input.sent_vectors({r, static_cast<std::int64_t>(j)}) * slots[j].dim();
    }
    asked_bytes_[at(r)] = (asked - asked_before) * 4;
  }
  for (std::size_t j = 0; j < replicated.size(); ++j) {
    served_begin_[at(routing_.ranks) * own.size() + j] = served;
    served += input.incoming().replicated[j].vectors(replicated[j]) * replicated[j].dim();
  }
  served_.resize_for<float>(served);
  asked_.resize_for<float>(asked);

  const std::int64_t batch = input.batch().sparse->batch;
  const std::int64_t columns = routing_.pooled_columns;
  outputs_.pooled = matrix(pooled_.resize_for<float>(batch * columns), batch, columns);
  gradients_.pooled = matrix(pooled_gradients_.resize_for<float>(batch * columns), batch, columns);
  for (std::size_t f = 0; f < routing_.features.size(); ++f) {
    if (routing_.features[f].pooling == spec::Pooling::kNone) {
      const auto feature = static_cast<std::int64_t>(f);
      const std::int64_t ids = input.batch().sparse->feature(feature).num_values();
      const std::int64_t dim = routing_.features[f].dim;
      outputs_.sequences[f] = matrix(sequences_[f].resize_for<float>(ids * dim), ids, dim);
      gradients_.sequences[f] =
          matrix(sequence_gradients_[f].resize_for<float>(ids * dim), ids, dim);
    }
  }
}

float* OutputDist::served(std::int64_t slot, std::int64_t source) const {
  const std::size_t own = routing_.served[at(comm_.rank())].size();
  return served_.as<float>() + served_begin_[at(source) * own + at(slot)];
}

float* OutputDist::served_replicated(std::int64_t slot) const {
  return served(slot, routing_.ranks);
}

float* OutputDist::asked(const SlotAddress& address) const {
  if (address.server == routing_.replicated()) {
    return served_replicated(address.slot);
  }
  return asked_.as<float>() + asked_begin_[at(address.server)][at(address.slot)];
}

void OutputDist::forward(Context& ctx, const InputDist& input) {
  comm_.all_to_all_v(ctx, {.send = served_.as<void>(),
                           .send_bytes = served_bytes_,
                           .recv = asked_.as<void>(),
                           .recv_bytes = asked_bytes_});
  ctx.pool->parallel_for(static_cast<std::int64_t>(routing_.features.size()),
                         [&](std::int64_t f) { assemble(f, input); });
}

void OutputDist::backward(Context& ctx, const InputDist& input) {
  ctx.pool->parallel_for(static_cast<std::int64_t>(routing_.features.size()),
                         [&](std::int64_t f) { scatter(f, input); });
  comm_.all_to_all_v(ctx, {.send = asked_.as<void>(),
                           .send_bytes = asked_bytes_,
                           .recv = served_.as<void>(),
                           .recv_bytes = served_bytes_});
}

void OutputDist::assemble(std::int64_t f, const InputDist& input) {
  const FeatureRoute& route = routing_.features[at(f)];
  if (route.pooling == spec::Pooling::kNone) {
    move_sequence(f, input, outputs_, true);
  } else if (route.sharding == spec::Sharding::kRowWise) {
    assemble_split_bags(f, input);
    divide_means(f, input);
  } else {
    assemble_pooled(f, input);
    divide_means(f, input);
  }
}

/// Whole bags: each shard's vector goes to its columns.
void OutputDist::assemble_pooled(std::int64_t f, const InputDist& input) {
  const FeatureRoute& route = routing_.features[at(f)];
  for (const SlotAddress& address : route.slots) {
    const Slot& slot = routing_.served[at(address.server)][at(address.slot)];
    const std::int32_t* lengths = input.sent_lengths(address);
    const float* from = asked(address);
    const std::int64_t column = route.pooled_column + slot.cols.begin;
    for (std::int64_t b = 0; b < outputs_.pooled.rows; ++b) {
      float* to = outputs_.pooled.row(b) + column;
      if (lengths[b] == 0) {
        std::fill_n(to, slot.dim(), 0.0F);
      } else {
        copy_floats(to, from, slot.dim());
        from += slot.dim();
      }
    }
  }
}

/// row_wise: the partial sums of a bag go up the tree over the shards that hold some of its rows.
void OutputDist::assemble_split_bags(std::int64_t f, const InputDist& input) {
  const FeatureRoute& route = routing_.features[at(f)];
  const auto shards = static_cast<std::int64_t>(route.slots.size());
  std::vector<const float*> next(route.slots.size());
  std::vector<const std::int32_t*> lengths(route.slots.size());
  for (std::size_t k = 0; k < route.slots.size(); ++k) {
    next[k] = asked(route.slots[k]);
    lengths[k] = input.sent_lengths(route.slots[k]);
  }
  const std::int64_t dim = route.dim;
  std::vector<float> scratch(at(tree_slots(shards) * dim));
  for (std::int64_t b = 0; b < outputs_.pooled.rows; ++b) {
    float* to = outputs_.pooled.row(b) + route.pooled_column;
    const auto leaf = [&](const Range& node, int depth) {
      if (node.size() != 1 || lengths[at(node.begin)][b] == 0) {
        return false;
      }
      copy_floats(scratch.data() + depth * dim, next[at(node.begin)], dim);
      next[at(node.begin)] += dim;
      return true;
    };
    const auto add = [&](int depth) {
      float* sum = scratch.data() + depth * dim;
      for (std::int64_t c = 0; c < dim; ++c) {
        sum[c] += sum[dim + c];
      }
    };
    if (sum_tree(Range{0, shards}, 0, leaf, add)) {
      copy_floats(to, scratch.data(), dim);
    } else {
      std::fill_n(to, dim, 0.0F);
    }
  }
}

void OutputDist::divide_means(std::int64_t f, const InputDist& input) {
  const FeatureRoute& route = routing_.features[at(f)];
  if (route.pooling != spec::Pooling::kMean) {
    return;
  }
  const JaggedView bags = input.batch().sparse->feature(f);
  for (std::int64_t b = 0; b < outputs_.pooled.rows; ++b) {
    float* to = outputs_.pooled.row(b) + route.pooled_column;
    const auto length = static_cast<float>(bags.length(b));
    for (std::int64_t c = 0; bags.length(b) > 1 && c < route.dim; ++c) {
      to[c] /= length;
    }
  }
}

void OutputDist::scatter(std::int64_t f, const InputDist& input) {
  if (routing_.features[at(f)].pooling == spec::Pooling::kNone) {
    move_sequence(f, input, gradients_, false);
  } else {
    scatter_pooled(f, input);
  }
}

/// Every shard that holds some rows of a bag gets the bag's gradient, in its columns.
void OutputDist::scatter_pooled(std::int64_t f, const InputDist& input) {
  const FeatureRoute& route = routing_.features[at(f)];
  const JaggedView bags = input.batch().sparse->feature(f);
  const bool mean = route.pooling == spec::Pooling::kMean;
  for (const SlotAddress& address : route.slots) {
    const Slot& slot = routing_.served[at(address.server)][at(address.slot)];
    const std::int32_t* lengths = input.sent_lengths(address);
    float* to = asked(address);
    const std::int64_t column = route.pooled_column + slot.cols.begin;
    for (std::int64_t b = 0; b < gradients_.pooled.rows; ++b) {
      if (lengths[b] == 0) {
        continue;
      }
      const float* from = gradients_.pooled.row(b) + column;
      if (mean && bags.length(b) > 1) {
        const auto length = static_cast<float>(bags.length(b));
        for (std::int64_t c = 0; c < slot.dim(); ++c) {
          to[c] = from[c] / length;
        }
      } else {
        copy_floats(to, from, slot.dim());
      }
      to += slot.dim();
    }
  }
}

/// Sequences: vector i of the feature against the next vector of the shard that holds its row.
void OutputDist::move_sequence(std::int64_t f,
                               const InputDist& input,
                               const FeatureMatrices& matrices,
                               bool to_matrix) {
  const FeatureRoute& route = routing_.features[at(f)];
  const Matrix<float>& rows = matrices.sequences[at(f)];
  const bool by_row = route.sharding == spec::Sharding::kRowWise;
  const auto shard_of = input.shard_of_ids(f);
  for (std::size_t k = 0; k < route.slots.size(); ++k) {
    const SlotAddress& address = route.slots[k];
    const Slot& slot = routing_.served[at(address.server)][at(address.slot)];
    float* vector = asked(address);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      if (by_row && shard_of[at(i)] != k) {
        continue;
      }
      float* row = rows.row(i) + slot.cols.begin;
      if (to_matrix) {
        copy_floats(row, vector, slot.dim());
      } else {
        copy_floats(vector, row, slot.dim());
      }
      vector += slot.dim();
    }
  }
}

}  // namespace weft::sharding
