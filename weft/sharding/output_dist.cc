#include "weft/sharding/output_dist.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/thread_pool.h"

namespace weft::sharding {
namespace {

// A task moves so much in 10 to 100 microseconds, against 5 to wake a thread. It takes all features
// of some bags, so that it writes one stretch of the matrix while that is in the cache.
constexpr std::int64_t kTaskFloats = 65536;
constexpr std::int64_t kFewestBags = 16;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// The usual dimensions without a call.
void copy_floats(float* to, const float* from, std::int64_t count) {
  switch (count) {
    case 16:
      std::memcpy(to, from, 16 * sizeof(float));
      return;
    case 32:
      std::memcpy(to, from, 32 * sizeof(float));
      return;
    case 64:
      std::memcpy(to, from, 64 * sizeof(float));
      return;
    default:
      std::memcpy(to, from, at(count) * sizeof(float));
  }
}

/// Stands for the terms of a bag that has several.
constexpr float kSeveral = 0.0F;

/// to = from / divisor; `to` may be `from`.
void divide(float* to, const float* from, std::int64_t count, float divisor) {
  for (std::int64_t c = 0; c < count; ++c) {
    to[c] = from[c] / divisor;
  }
}

void add(float* to, const float* a, const float* b, std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) {
    to[c] = a[c] + b[c];
  }
}

}  // namespace

OutputDist::OutputDist(const Routing& routing, comm::Communicator& comm, Device& device)
    : routing_(routing),
      comm_(comm),
      rank_(comm.rank()),
      fetched_(routing, device, comm.rank()),
      pooled_(device),
      pooled_gradients_(device),
      served_(device),
      asked_(device),
      served_run_(at(routing.ranks)),
      asked_begin_(at(routing.ranks)),
      asked_run_(at(routing.ranks)),
      asked_from_(at(routing.ranks)),
      sums_(device),
      send_runs_(at(routing.ranks)),
      recv_runs_(at(routing.ranks)),
      send_pieces_(at(routing.ranks)),
      recv_pieces_(at(routing.ranks)),
      send_(at(routing.ranks)),
      recv_(at(routing.ranks)) {
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
  served_begin_.resize(routing.served[at(rank_)].size() * at(routing.ranks));
  gradient_begin_.resize(served_begin_.size());
  list_jobs();
}

void OutputDist::list_jobs() {
  for (std::size_t f = 0; f < routing_.features.size(); ++f) {
    const FeatureRoute& route = routing_.features[f];
    const bool mean = route.pooling == spec::Pooling::kMean;
    if (mean) {
      means_.push_back(static_cast<std::int64_t>(f));
    }
    if (mean && route.fetched()) {
      fetched_means_.push_back(static_cast<std::int64_t>(f));
    }
    if (route.split() && route.pooling != spec::Pooling::kNone) {
      most_shards_ = std::max(most_shards_, route.row_cuts());
      for (const SlotAddress& first : route.row_cut(0)) {
        jobs_.push_back({Job::Kind::kAdd, first});
        const std::int64_t dim = routing_.slot(first).dim();
        most_sums_ = std::max(most_sums_, tree_slots(route.row_cuts()) * dim);
      }
      continue;
    }
    for (const SlotAddress& address : route.slots) {
      const bool in_place = routing_.in_place(address, rank_);
      if (!in_place && route.pooling == spec::Pooling::kNone) {
        sequences_to_copy_.push_back(address);
      } else if (!in_place || mean) {
        jobs_.push_back({in_place ? Job::Kind::kDivide : Job::Kind::kCopy, address});
      }
    }
  }
  for (const RowFetch& fetch : routing_.fetches) {
    sequences_to_copy_.insert(sequences_to_copy_.end(), fetch.slots.begin(), fetch.slots.end());
  }
}

void OutputDist::prepare(const InputDist& input) {
  size_matrices(input);
  fetched_.prepare(input);
  place_served(input);
  place_asked(input);
  bags_per_task_ = std::clamp(kTaskFloats / std::max<std::int64_t>(routing_.pooled_columns, 1),
                              kFewestBags, kMostBags);
  bag_tasks_ = task_count(outputs_.pooled.rows, bags_per_task_);
  tasks_.clear();
  tasks_.add(jobs_.empty() ? 0 : bag_tasks_);
  for (const SlotAddress& address : sequences_to_copy_) {
    tasks_.add(task_count(input.sent_vectors(address) * routing_.slot(address).dim(), kTaskFloats));
  }
  size_scratch();
}

void OutputDist::clear_grown(Context& ctx) {
  std::vector<const Buffer*> all{&pooled_, &pooled_gradients_, &served_, &asked_};
  for (std::size_t f = 0; f < sequences_.size(); ++f) {
    all.push_back(&sequences_[f]);
    all.push_back(&sequence_gradients_[f]);
  }
  std::int64_t capacity = 0;
  for (const Buffer* buffer : all) {
    capacity += buffer->capacity();
  }
  if (std::exchange(cleared_, capacity) == capacity) {
    return;
  }
  for (const Buffer* buffer : all) {
    ctx.device->fill_zero(ctx, buffer->as<std::byte>(), buffer->capacity());
  }
}

void OutputDist::size_scratch() {
  const auto grow = [](auto& values, std::int64_t size) {
    if (values.size() < at(size)) {
      values.resize(at(size));
    }
  };
  grow(shard_vectors_, bag_tasks_ * most_shards_);
  grow(terms_, bag_tasks_ * kMostBags * most_shards_);
  sums_.resize_for<float>(bag_tasks_ * most_sums_);
}

OutputDist::Scratch OutputDist::scratch(std::int64_t task, std::int64_t shards) {
  return {.shards = std::span(shard_vectors_).subspan(at(task * most_shards_), at(shards)),
          .terms = std::span(terms_).subspan(at(task * kMostBags * most_shards_),
                                             at(kMostBags * shards)),
          .sums = sums_.as<float>() + task * most_sums_};
}

Range OutputDist::task_bags(std::int64_t task) const {
  return {task * bags_per_task_, std::min((task + 1) * bags_per_task_, outputs_.pooled.rows)};
}

void OutputDist::size_matrices(const InputDist& input) {
  const std::int64_t batch = input.batch().sparse->batch;
  const std::int64_t columns = routing_.pooled_columns;
  outputs_.pooled = matrix(pooled_.resize_for<float>(batch * columns), batch, columns);
  gradients_.pooled = matrix(pooled_gradients_.resize_for<float>(batch * columns), batch, columns);
  for (std::size_t f = 0; f < routing_.features.size(); ++f) {
    if (routing_.features[f].pooling == spec::Pooling::kNone) {
      const auto number = static_cast<std::int64_t>(f);
      const std::int64_t ids = input.batch().sparse->feature(number).num_values();
      const std::int64_t dim = routing_.features[f].dim;
      outputs_.sequences[f] = matrix(sequences_[f].resize_for<float>(ids * dim), ids, dim);
      gradients_.sequences[f] =
          matrix(sequence_gradients_[f].resize_for<float>(ids * dim), ids, dim);
    }
  }
}

void OutputDist::place_served(const InputDist& input) {
  const auto& own = routing_.served[at(rank_)];
  std::int64_t floats = 0;
  std::int64_t gradient_floats = 0;
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    served_run_[at(r)].begin = floats;
    for (std::size_t j = 0; j < own.size(); ++j) {
      std::int64_t& begin = served_begin_[at(r) * own.size() + j];
      const IncomingBlock& block = input.incoming().blocks[j * at(routing_.ranks) + at(r)];
      if (r == rank_ && routing_.in_place({rank_, static_cast<std::int64_t>(j)}, rank_)) {
        begin = -1;
        continue;
      }
      begin = floats;
      floats += block.vectors * own[j].dim();
      gradient_begin_[at(r) * own.size() + j] = gradient_floats;
      gradient_floats += block.gradients * own[j].dim();
    }
    served_run_[at(r)].end = floats;
  }
  served_.resize_for<float>(std::max(floats, gradient_floats));
}

void OutputDist::place_asked(const InputDist& input) {
  std::int64_t received = 0;
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const auto& slots = routing_.served[at(r)];
    std::int64_t floats = 0;
    for (std::size_t j = 0; j < slots.size(); ++j) {
      const SlotAddress address{r, static_cast<std::int64_t>(j)};
      asked_begin_[at(r)][j] = floats;
      floats +=
          routing_.in_place(address, rank_) ? 0 : input.sent_vectors(address) * slots[j].dim();
    }
    const std::int64_t begin = r == rank_ ? 0 : received;
    received += r == rank_ ? 0 : floats;
    asked_run_[at(r)] = {begin, begin + floats};
  }
  if (!comm_.lends()) {
    asked_.resize_for<float>(received);
  }
}

/// Where gradients of the vectors that this rank has asked for lie.
VectorPlace OutputDist::asked_gradients(const Slot& slot) const {
  if (!slot.of_rows()) {
    return in_matrix(slot, gradients_);
  }
  const Matrix<float> sums = fetched_.partial_gradients(slot.fetch);
  return {sums.data + slot.cols.begin, sums.stride};
}

VectorPlace OutputDist::in_matrix(const Slot& slot, const FeatureMatrices& matrices) const {
  const Matrix<float>& m = slot.sequence ? matrices.sequences[at(slot.feature)] : matrices.pooled;
  const std::int64_t first = slot.sequence ? 0 : feature(slot.feature).pooled_column;
  return {m.data + first + slot.cols.begin, m.stride};
}

VectorPlace OutputDist::served(const SlotAddress& address, std::int64_t source) const {
  const std::size_t own = routing_.served[at(rank_)].size();
  const std::int64_t begin = served_begin_[at(source) * own + at(address.slot)];
  return {served_.as<float>() + begin, routing_.slot(address).dim()};
}

VectorPlace OutputDist::output(const SlotAddress& address, std::int64_t source) const {
  return source == rank_ && routing_.in_place(address, rank_)
             ? in_matrix(routing_.slot(address), outputs_)
             : served(address, source);
}

VectorPlace OutputDist::gradient(const SlotAddress& address, std::int64_t source) const {
  const Slot& slot = routing_.slot(address);
  if (source == rank_ && (routing_.in_place(address, rank_) || !slot.sequence)) {
    return in_matrix(slot, gradients_);
  }
  const std::size_t own = routing_.served[at(rank_)].size();
  const std::int64_t begin = gradient_begin_[at(source) * own + at(address.slot)];
  return {served_.as<float>() + begin, slot.dim()};
}

const float* OutputDist::asked(const SlotAddress& address) const {
  return asked_from_[at(address.server)] + asked_begin_[at(address.server)][at(address.slot)];
}

void OutputDist::forward(Context& ctx, const InputDist& input) {
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const Range served = served_run_[at(r)];
    const Range asked = asked_run_[at(r)];
    float* const received = asked_.as<float>();
    send_runs_[at(r)] = {served_.as<float>() + served.begin, 4 * served.size()};
    recv_runs_[at(r)] = {received == nullptr ? nullptr : received + asked.begin, 4 * asked.size()};
    send_[at(r)] = {.pieces = {&send_runs_[at(r)], 1}};
    recv_[at(r)] = {.pieces = {&recv_runs_[at(r)], 1}};
  }
  comm_.exchange_lent(ctx, send_, recv_, [&](std::span<const comm::Lane> arrived) {
    for (std::size_t r = 0; r < arrived.size(); ++r) {
      asked_from_[r] = static_cast<const float*>(arrived[r].pieces.front().data);
    }
    tasks_.run(*ctx.pool, [&](std::int64_t list, std::int64_t task) {
      if (list == 0) {
        assemble_bags(task, input);
      } else {
        copy_sequence(sequences_to_copy_[at(list - 1)], task, input);
      }
    });
  });
  pool_fetched(ctx, input);
}

/// Bags and sequences of fetched tables, once their rows are there. The senders wait no longer.
void OutputDist::pool_fetched(Context& ctx, const InputDist& input) {
  fetched_.pool(ctx, input, outputs_);
  divide_means(ctx, fetched_means_, outputs_, input);
}

void OutputDist::assemble_bags(std::int64_t task, const InputDist& input) {
  const Range bags = task_bags(task);
  for (const Job& job : jobs_) {
    const Slot& slot = routing_.slot(job.address);
    switch (job.kind) {
      case Job::Kind::kCopy:
        copy_bags(job.address, bags, input);
        break;
      case Job::Kind::kDivide:
        break;
      case Job::Kind::kAdd:
        add_shards(job.address, task, input);
        break;
    }
    if (is_mean(slot.feature)) {
      divide_bags(slot, bags, outputs_, input);
    }
  }
}

/// Whole bags to their rows, zeros to empty ones.
void OutputDist::copy_bags(const SlotAddress& address, Range bags, const InputDist& input) {
  const Slot& slot = routing_.slot(address);
  const std::int64_t dim = slot.dim();
  const std::int32_t* const rows = input.sent_rows(address);
  const std::int32_t* const last = rows + input.sent_vectors(address);
  const VectorPlace to = in_matrix(slot, outputs_);
  if (rows == nullptr) {
    for (std::int64_t b = bags.begin; b < bags.end; ++b) {
      copy_floats(to.data + b * to.stride, asked(address) + b * dim, dim);
    }
    return;
  }
  const std::int32_t* row = std::lower_bound(rows, last, bags.begin);
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    if (row != last && *row == b) {
      copy_floats(to.data + b * to.stride, asked(address) + (row - rows) * dim, dim);
      ++row;
    } else {
      std::fill_n(to.data + b * to.stride, dim, 0.0F);
    }
  }
}

void OutputDist::copy_sequence(const SlotAddress& address,
                               std::int64_t task,
                               const InputDist& input) {
  const Slot& slot = routing_.slot(address);
  const std::int64_t count = input.sent_vectors(address);
  const Range vectors = piece(count, task_count(count * slot.dim(), kTaskFloats), task);
  const std::int32_t* const rows = input.sent_rows(address);
  VectorPlace to;
  if (slot.of_rows()) {
    const Matrix<float> fetched = fetched_.vectors(slot.fetch);
    to = {fetched.data + slot.cols.begin, fetched.stride};
  } else {
    to = in_matrix(slot, outputs_);
  }
  const float* const from = asked(address);
  for (std::int64_t v = vectors.begin; v < vectors.end; ++v) {
    copy_floats(to.data + (rows == nullptr ? v : rows[v]) * to.stride, from + v * slot.dim(),
                slot.dim());
  }
}

/// Divides the slot's columns of a mean by the length of the bag.
void OutputDist::divide_bags(const Slot& slot,
                             Range bags,
                             const FeatureMatrices& m,
                             const InputDist& input) {
  const JaggedView view = input.batch().sparse->feature(slot.feature);
  const VectorPlace place = in_matrix(slot, m);
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    const std::int64_t length = view.length(b);
    if (length > 1) {
      float* const vector = place.data + b * place.stride;
      divide(vector, vector, slot.dim(), static_cast<float>(length));
    }
  }
}

/// The columns of slot `first` of a split feature, which is of the first cut of rows: the partial
/// sums of a bag go up the tree over the cuts that have some.
void OutputDist::add_shards(const SlotAddress& first, std::int64_t task, const InputDist& input) {
  const Slot& slot = routing_.slot(first);
  const FeatureRoute& route = feature(slot.feature);
  const std::int64_t shards = route.row_cuts();
  const std::int64_t dim = slot.dim();
  const Range bags = task_bags(task);
  Scratch own = scratch(task, shards);
  for (std::int64_t k = 0; k < shards; ++k) {
    const SlotAddress& address = route.slots[at(slot.shard + k * route.col_cuts)];
    const std::int32_t* const rows = input.sent_rows(address);
    const std::int64_t end = input.sent_vectors(address);
    const std::int64_t next = std::lower_bound(rows, rows + end, bags.begin) - rows;
    own.shards[at(k)] = {.vectors = asked(address), .bags = rows, .next = next, .end = end};
  }
  std::array<const float*, kMostBags> only;
  find_terms(own, bags, dim, only);
  const VectorPlace place = in_matrix(slot, outputs_);
  for (std::int64_t i = 0; i < bags.size(); ++i) {
    float* const to = place.data + (bags.begin + i) * place.stride;
    if (only[at(i)] == nullptr) {
      std::fill_n(to, dim, 0.0F);
    } else if (only[at(i)] != &kSeveral) {
      copy_floats(to, only[at(i)], dim);
    } else {
      add_terms(own.terms.subspan(at(i * shards), at(shards)), own.sums, {to, at(dim)});
    }
  }
}

/// The only term of each bag, null or &kSeveral; then all terms. Shard after shard, so that nothing
/// depends on a guess which shard comes next.
void OutputDist::find_terms(Scratch& scratch,
                            Range bags,
                            std::int64_t dim,
                            std::span<const float*> only) {
  std::fill(only.begin(), only.end(), nullptr);
  bool several = false;
  for (const ShardVectors& shard : scratch.shards) {
    for (std::int64_t v = shard.next; v < shard.end && shard.bags[v] < bags.end; ++v) {
      const float*& term = only[at(shard.bags[v] - bags.begin)];
      several |= term != nullptr;
      term = term == nullptr ? shard.vectors + v * dim : &kSeveral;
    }
  }
  if (!several) {
    return;
  }
  std::fill(scratch.terms.begin(), scratch.terms.end(), nullptr);
  for (std::size_t k = 0; k < scratch.shards.size(); ++k) {
    const ShardVectors& shard = scratch.shards[k];
    for (std::int64_t v = shard.next; v < shard.end && shard.bags[v] < bags.end; ++v) {
      scratch.terms[at(shard.bags[v] - bags.begin) * scratch.shards.size() + k] =
          shard.vectors + v * dim;
    }
  }
}

/// The tree over the shards that have a term.
void OutputDist::add_terms(std::span<const float* const> terms, float* sums, std::span<float> out) {
  const auto dim = static_cast<std::int64_t>(out.size());
  std::array<const float*, 64> held;  // by tree slot
  const auto leaf = [&](const Range& node, int depth) {
    held[static_cast<std::size_t>(depth)] = terms[at(node.begin)];
    return node.size() == 1 && terms[at(node.begin)] != nullptr;
  };
  const auto join = [&](int depth) {
    float* const sum = sums + depth * dim;
    const auto i = static_cast<std::size_t>(depth);
    add(sum, held[i], held[i + 1], dim);
    held[i] = sum;
  };
  sum_tree(Range{0, static_cast<std::int64_t>(terms.size())}, 0, leaf, join);
  copy_floats(out.data(), held[0], dim);
}

void OutputDist::backward(Context& ctx, const InputDist& input) {
  // The gradient of a mean is that of its sum, divided by the length of the bag.
  divide_means(ctx, means_, gradients_, input);
  fetched_.sum_gradients(ctx, input, gradients_);
  describe_gradient_lanes(input);
  comm_.exchange(ctx, send_, recv_);
}

/// Whole bags of these features.
void OutputDist::divide_means(Context& ctx,
                              std::span<const std::int64_t> means,
                              const FeatureMatrices& m,
                              const InputDist& input) {
  ctx.pool->parallel_for(means.empty() ? 0 : bag_tasks_, [&](std::int64_t task) {
    for (const std::int64_t f : means) {
      Slot whole;
      whole.feature = f;
      whole.cols = {0, feature(f).dim};
      divide_bags(whole, task_bags(task), m, input);
    }
  });
}

/// To every server the gradients of its vectors, in its order, from where they lie in the matrix.
void OutputDist::describe_gradient_lanes(const InputDist& input) {
  const auto travels = [this](const SlotAddress& address, std::int64_t source) {
    // The others are read where they are: see gradient().
    return address.server != source ||
           (!routing_.in_place(address, source) && routing_.slot(address).sequence);
  };
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    auto& send = send_pieces_[at(r)];
    auto& recv = recv_pieces_[at(r)];
    send.clear();
    recv.clear();
    for (std::size_t j = 0; j < routing_.served[at(r)].size(); ++j) {
      const SlotAddress address{r, static_cast<std::int64_t>(j)};
      if (travels(address, rank_)) {
        send.push_back(gradient_piece(address, input));
      }
    }
    for (std::size_t j = 0; j < routing_.served[at(rank_)].size(); ++j) {
      const SlotAddress address{rank_, static_cast<std::int64_t>(j)};
      if (travels(address, r)) {
        const IncomingBlock& block = input.incoming().blocks[j * at(routing_.ranks) + at(r)];
        recv.push_back(
            {gradient(address, r).data, 4 * block.gradients * routing_.slot(address).dim()});
      }
    }
    send_[at(r)] = {.pieces = send};
    recv_[at(r)] = {.pieces = recv};
  }
}

comm::Piece OutputDist::gradient_piece(const SlotAddress& address, const InputDist& input) const {
  const Slot& slot = routing_.slot(address);
  const VectorPlace place = asked_gradients(slot);
  const std::int64_t row_bytes = 4 * slot.dim();
  return {.data = place.data,
          .bytes = input.sent_gradients(address) * row_bytes,
          .row_bytes = row_bytes,
          .stride = 4 * place.stride,
          .rows = input.sent_gradient_rows(address)};
}

}  // namespace weft::sharding
