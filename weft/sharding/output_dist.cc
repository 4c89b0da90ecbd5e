#include "weft/sharding/output_dist.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "weft/base/error.h"
#include "weft/base/thread_pool.h"

namespace weft::sharding {
namespace {

// A task moves so much in 10 to 50 microseconds, against 5 to wake a thread.
constexpr std::int64_t kTaskFloats = 32768;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

void copy_floats(float* to, const float* from, std::int64_t count) {
  std::memcpy(to, from, at(count) * sizeof(float));
}

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

std::int64_t row_of(const std::int32_t* rows, std::int64_t vector) {
  return rows == nullptr ? vector : rows[vector];
}

}  // namespace

OutputDist::OutputDist(const Routing& routing, comm::Communicator& comm, Device& device)
    : routing_(routing),
      comm_(comm),
      rank_(comm.rank()),
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
}

void OutputDist::prepare(const InputDist& input) {
  size_matrices(input);
  place_served(input);
  place_asked(input);
  list_jobs(input);
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
      floats += (own[j].sequence ? block.num_ids : block.lookup.bags) * own[j].dim();
    }
    served_run_[at(r)].end = floats;
  }
  served_.resize_for<float>(floats);
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

void OutputDist::list_jobs(const InputDist& input) {
  jobs_.clear();
  tasks_.clear();
  cursors_.clear();
  divide_tasks_.clear();
  std::int64_t sums = 0;
  const std::int64_t batch = outputs_.pooled.rows;
  for (const FeatureRoute& route : routing_.features) {
    const bool sequence = route.pooling == spec::Pooling::kNone;
    const bool mean = route.pooling == spec::Pooling::kMean;
    divide_tasks_.add(mean ? task_count(batch * route.dim, kTaskFloats) : 0);
    if (route.split() && !sequence) {
      add_job(Job::Kind::kAdd, route.slots.front(), batch);
      Job& job = jobs_.back();
      const auto shards = static_cast<std::int64_t>(route.slots.size());
      const std::int64_t tasks = job_tasks(job);
      job.cursors_begin = static_cast<std::int64_t>(cursors_.size());
      cursors_.resize(cursors_.size() + at(tasks * shards));
      job.sums_begin = sums;
      sums += tasks * tree_slots(shards) * route.dim;
      continue;
    }
    for (const SlotAddress& address : route.slots) {
      if (!routing_.in_place(address, rank_)) {
        add_job(Job::Kind::kCopy, address, input.sent_vectors(address));
      } else if (mean) {
        add_job(Job::Kind::kDivide, address, batch);
      }
    }
  }
  sums_.resize_for<float>(sums);
}

/// A copy of nothing is a task too: it may have empty bags to clear.
std::int64_t OutputDist::job_tasks(const Job& job) {
  return std::max<std::int64_t>(1, task_count(job.units, job.units_per_task));
}

void OutputDist::add_job(Job::Kind kind, const SlotAddress& address, std::int64_t units) {
  Job job{.kind = kind, .address = address, .units = units};
  job.units_per_task = std::max<std::int64_t>(1, kTaskFloats / routing_.slot(address).dim());
  tasks_.add(job_tasks(job));
  jobs_.push_back(job);
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
  return source == rank_ && (routing_.in_place(address, rank_) || !slot.sequence)
             ? in_matrix(slot, gradients_)
             : served(address, source);
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
    tasks_.run(*ctx.pool,
               [&](std::int64_t job, std::int64_t task) { run_job(jobs_[at(job)], task, input); });
  });
}

void OutputDist::run_job(const Job& job, std::int64_t task, const InputDist& input) {
  const Range units{task * job.units_per_task,
                    std::min((task + 1) * job.units_per_task, job.units)};
  switch (job.kind) {
    case Job::Kind::kCopy:
      return copy_vectors(job.address, units, input);
    case Job::Kind::kDivide:
      return divide_bags(routing_.slot(job.address), units, outputs_, input);
    case Job::Kind::kAdd:
      return add_shards(job, task, units, input);
  }
}

/// Whole bags, or vectors of a sequence, to their rows; the empty bags before each are cleared.
void OutputDist::copy_vectors(const SlotAddress& address, Range vectors, const InputDist& input) {
  const Slot& slot = routing_.slot(address);
  const std::int64_t dim = slot.dim();
  const std::int32_t* const rows = input.sent_rows(address);
  const VectorPlace to = in_matrix(slot, outputs_);
  const float* from = asked(address) + vectors.begin * dim;
  const bool clear = !slot.sequence && rows != nullptr;
  std::int64_t next = vectors.begin == 0 ? 0 : row_of(rows, vectors.begin - 1) + 1;
  for (std::int64_t v = vectors.begin; v < vectors.end; ++v, from += dim) {
    const std::int64_t row = row_of(rows, v);
    if (clear) {
      clear_rows(slot, {next, row});
      next = row + 1;
    }
    copy_floats(to.data + row * to.stride, from, dim);
  }
  const std::int64_t count = input.sent_vectors(address);
  if (clear && vectors.end == count) {
    clear_rows(slot, {next, outputs_.pooled.rows});
    next = outputs_.pooled.rows;
  }
  if (is_mean(slot.feature)) {
    const std::int64_t first = vectors.begin == 0 ? 0 : row_of(rows, vectors.begin - 1) + 1;
    divide_bags(slot, {first, clear ? next : vectors.end}, outputs_, input);
  }
}

void OutputDist::clear_rows(const Slot& slot, Range rows) {
  const VectorPlace to = in_matrix(slot, outputs_);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    std::fill_n(to.data + row * to.stride, slot.dim(), 0.0F);
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

/// A split feature: the partial sums of a bag go up the tree over the shards that have some.
void OutputDist::add_shards(const Job& job, std::int64_t task, Range bags, const InputDist& input) {
  const Slot& slot = routing_.slot(job.address);
  const FeatureRoute& route = feature(slot.feature);
  const auto shards = static_cast<std::int64_t>(route.slots.size());
  const std::span cursors(&cursors_[at(job.cursors_begin + task * shards)], at(shards));
  for (std::size_t k = 0; k < cursors.size(); ++k) {
    const SlotAddress& address = route.slots[k];
    const std::int32_t* const rows = input.sent_rows(address);
    const std::int64_t end = input.sent_vectors(address);
    cursors[k] = {.vectors = asked(address), .rows = rows, .end = end};
    cursors[k].next = std::lower_bound(rows, rows + end, bags.begin) - rows;
  }
  float* const sums = sums_.as<float>() + job.sums_begin + task * tree_slots(shards) * route.dim;
  const VectorPlace place = in_matrix(slot, outputs_);
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    add_bag(cursors, b, sums, {place.data + b * place.stride, at(route.dim)});
  }
  if (is_mean(slot.feature)) {
    divide_bags(slot, bags, outputs_, input);
  }
}

void OutputDist::add_bag(std::span<ShardCursor> cursors,
                         std::int64_t bag,
                         float* sums,
                         std::span<float> out) {
  const auto dim = static_cast<std::int64_t>(out.size());
  std::array<const float*, 2> first = {};
  std::int64_t terms = 0;
  for (ShardCursor& cursor : cursors) {
    cursor.term = nullptr;
    if (cursor.next < cursor.end && cursor.rows[cursor.next] == bag) {
      cursor.term = cursor.vectors + cursor.next * dim;
      ++cursor.next;
      first[std::min<std::size_t>(at(terms), 1)] = cursor.term;
      ++terms;
    }
  }
  if (terms == 0) {
    std::fill(out.begin(), out.end(), 0.0F);
  } else if (terms == 1) {
    copy_floats(out.data(), first[0], dim);
  } else if (terms == 2) {
    add(out.data(), first[0], first[1], dim);
  } else {
    std::array<const float*, 64> held;  // by tree slot
    const auto leaf = [&](const Range& node, int depth) {
      held[static_cast<std::size_t>(depth)] = cursors[at(node.begin)].term;
      return node.size() == 1 && cursors[at(node.begin)].term != nullptr;
    };
    const auto join = [&](int depth) {
      float* const sum = sums + depth * dim;
      const auto i = static_cast<std::size_t>(depth);
      add(sum, held[i], held[i + 1], dim);
      held[i] = sum;
    };
    sum_tree(Range{0, static_cast<std::int64_t>(cursors.size())}, 0, leaf, join);
    copy_floats(out.data(), held[0], dim);
  }
}

void OutputDist::backward(Context& ctx, const InputDist& input) {
  divide_gradients(ctx, input);
  describe_gradient_lanes(input);
  comm_.exchange(ctx, send_, recv_);
}

/// The gradient of a mean is that of its sum, divided by the length of the bag.
void OutputDist::divide_gradients(Context& ctx, const InputDist& input) {
  divide_tasks_.run(*ctx.pool, [&](std::int64_t f, std::int64_t task) {
    const FeatureRoute& route = feature(f);
    const Matrix<float>& m = gradients_.pooled;
    const std::int64_t tasks = task_count(m.rows * route.dim, kTaskFloats);
    Slot whole;
    whole.feature = f;
    whole.cols = {0, route.dim};
    divide_bags(whole, piece(m.rows, tasks, task), gradients_, input);
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
        const Slot& slot = routing_.slot(address);
        const std::int64_t vectors = slot.sequence ? block.num_ids : block.lookup.bags;
        recv.push_back({served(address, r).data, 4 * vectors * slot.dim()});
      }
    }
    send_[at(r)] = {.pieces = send};
    recv_[at(r)] = {.pieces = recv};
  }
}

comm::Piece OutputDist::gradient_piece(const SlotAddress& address, const InputDist& input) const {
  const Slot& slot = routing_.slot(address);
  const VectorPlace place = in_matrix(slot, gradients_);
  const std::int64_t row_bytes = 4 * slot.dim();
  return {.data = place.data,
          .bytes = input.sent_vectors(address) * row_bytes,
          .row_bytes = row_bytes,
          .stride = 4 * place.stride,
          .rows = input.sent_rows(address)};
}

}  // namespace weft::sharding
