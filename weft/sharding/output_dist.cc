#include "weft/sharding/output_dist.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/thread_pool.h"

namespace weft::sharding {
namespace {

constexpr std::int64_t kFewestBags = 16;

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

OutputDist::OutputDist(const spec::Config& config,
                       const Routing& routing,
                       comm::Communicator& comm,
                       Device& device,
                       const OutputDist* matrices)
    : routing_(routing),
      comm_(comm),
      matrices_(matrices),
      rank_(comm.rank()),
      fetched_(routing, device, comm.rank()),
      forward_wire_(config, config.codecs.forward, routing.ranks, device),
      backward_wire_(config, config.codecs.backward, routing.ranks, device),
      draws_(config, routing, comm.rank()),
      pooled_(device),
      pooled_gradients_(device),
      served_(device),
      asked_(device),
      served_run_(at(routing.ranks)),
      asked_begin_(routing.served.size()),
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
  for (std::size_t s = 0; s < asked_begin_.size(); ++s) {
    asked_begin_[s].resize(routing.served[s].size());
  }
  served_places_.resize(routing.served[at(rank_)].size() * at(routing.ranks) +
                        routing.served[at(routing.replicated())].size());
  list_jobs();
  list_own_gradients();
}

void OutputDist::list_jobs() {
  for (std::size_t f = 0; f < routing_.features.size(); ++f) {
    const FeatureRoute& route = routing_.features[f];
    const bool mean = route.pooling == spec::Pooling::kMean && !route.elsewhere();
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
    list_jobs(route);
  }
  for (const RowFetch& fetch : routing_.fetches) {
    sequences_to_copy_.insert(sequences_to_copy_.end(), fetch.slots.begin(), fetch.slots.end());
  }
}

/// Of a feature whose bags are not added here.
void OutputDist::list_jobs(const FeatureRoute& route) {
  for (const SlotAddress& address : route.slots) {
    const bool in_place = routing_.in_place(address, rank_);
    if (!in_place && route.pooling == spec::Pooling::kNone) {
      sequences_to_copy_.push_back(address);
    } else if (!in_place || route.pooling == spec::Pooling::kMean) {
      jobs_.push_back({in_place ? Job::Kind::kDivide : Job::Kind::kCopy, address});
    }
  }
}

/// Hot rows first: their columns are those of the whole feature.
void OutputDist::list_own_gradients() {
  const auto list = [this](std::int64_t server) {
    for (const Slot& slot : routing_.served[at(server)]) {
      const bool whole_bags = slot.sequence && !slot.of_rows() && !feature(slot.feature).split();
      const bool is_read =
          !slot.of_rows() && (!slot.sequence || whole_bags) && (server == rank_ || slot.is_hot());
      const bool is_known =
          std::any_of(own_gradients_.begin(), own_gradients_.end(), [&slot](const Slot& known) {
            return known.feature == slot.feature && known.cols.begin <= slot.cols.begin &&
                   slot.cols.end <= known.cols.end;
          });
      if (is_read && !is_known) {
        own_gradients_.push_back(slot);
      }
    }
  };
  list(routing_.replicated());
  list(rank_);
}

void OutputDist::prepare(const InputDist& input) {
  take_matrices(input);
  fetched_.prepare(input);
  place_served(input);
  place_asked(input);
  bags_per_task_ = std::clamp(kFloatsPerTask / std::max<std::int64_t>(routing_.pooled_columns, 1),
                              kFewestBags, kMostBags);
  bag_tasks_ = task_count(outputs_.pooled.rows, bags_per_task_);
  tasks_.clear();
  tasks_.add(jobs_.empty() ? 0 : bag_tasks_);
  for (const SlotAddress& address : sequences_to_copy_) {
    const std::int64_t floats = input.sent_vectors(address) * routing_.slot(address).dim();
    tasks_.add(forward_wire_.is_on() ? 0 : task_count(floats, kFloatsPerTask));
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

void OutputDist::take_matrices(const InputDist& input) {
  if (matrices_ == nullptr) {
    size_matrices(input);
    return;
  }
  outputs_ = matrices_->outputs_;
  gradients_ = matrices_->gradients_;
}

void OutputDist::size_matrices(const InputDist& input) {
  const std::int64_t batch = input.batch().sparse.batch;
  const std::int64_t columns = routing_.pooled_columns;
  outputs_.pooled = matrix(pooled_.resize_for<float>(batch * columns), batch, columns);
  gradients_.pooled = matrix(pooled_gradients_.resize_for<float>(batch * columns), batch, columns);
  for (std::size_t f = 0; f < routing_.features.size(); ++f) {
    if (routing_.features[f].pooling == spec::Pooling::kNone) {
      const auto number = static_cast<std::int64_t>(f);
      const std::int64_t ids = input.batch().sparse.feature(number).num_values();
      const std::int64_t dim = routing_.features[f].dim;
      outputs_.sequences[f] = matrix(sequences_[f].resize_for<float>(ids * dim), ids, dim);
      gradients_.sequences[f] =
          matrix(sequence_gradients_[f].resize_for<float>(ids * dim), ids, dim);
    }
  }
}

void OutputDist::place_served(const InputDist& input) {
  const std::size_t own = routing_.served[at(rank_)].size();
  const std::size_t replicated = routing_.served[at(routing_.replicated())].size();
  ServedPlace next;
  const auto place = [&](const SlotAddress& address, std::int64_t source,
                         const IncomingBlock& block) {
    served_places_[served_index(address, source)] = next;
    if (source != rank_ || !routing_.in_place(address, rank_)) {
      next.vectors += block.vectors * routing_.slot(address).dim();
      next.gradients += block.gradients * routing_.slot(address).dim();
    }
  };
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    served_run_[at(r)].begin = next.vectors;
    for (std::size_t j = 0; j < own; ++j) {
      place({rank_, static_cast<std::int64_t>(j)}, r,
            input.incoming().blocks[j * at(routing_.ranks) + at(r)]);
    }
    for (std::size_t j = 0; j < replicated && r == rank_; ++j) {
      place({routing_.replicated(), static_cast<std::int64_t>(j)}, r,
            input.incoming().replicated[j]);
    }
    served_run_[at(r)].end = next.vectors;
  }
  served_.resize_for<float>(std::max(next.vectors, next.gradients));
}

/// Of encoded vectors those of split bags alone, which are decoded here before they are added.
void OutputDist::place_asked(const InputDist& input) {
  const bool encoded = forward_wire_.is_on();
  const auto has_place = [this, encoded](const SlotAddress& address, const Slot& slot) {
    return encoded ? !slot.of_rows() && !slot.sequence && feature(slot.feature).split()
                   : !routing_.in_place(address, rank_);
  };
  std::int64_t received = 0;
  const auto place = [&](std::int64_t server, std::int64_t floats) {
    const auto& slots = routing_.served[at(server)];
    for (std::size_t j = 0; j < slots.size(); ++j) {
      const SlotAddress address{server, static_cast<std::int64_t>(j)};
      asked_begin_[at(server)][j] = floats;
      floats += has_place(address, slots[j]) ? input.sent_vectors(address) * slots[j].dim() : 0;
    }
    return floats;
  };
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    std::int64_t floats = place(r, 0);
    floats = r == rank_ ? place(routing_.replicated(), floats) : floats;
    const bool lies_here = encoded || r != rank_;
    const std::int64_t begin = lies_here ? received : 0;
    received += lies_here ? floats : 0;
    asked_run_[at(r)] = {begin, begin + floats};
  }
  if (encoded || !comm_.lends()) {
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

std::size_t OutputDist::served_index(const SlotAddress& address, std::int64_t source) const {
  const std::int64_t before = address.server == routing_.replicated() ? routing_.ranks : source;
  return at(before) * routing_.served[at(rank_)].size() + at(address.slot);
}

VectorPlace OutputDist::served(const SlotAddress& address, std::int64_t source) const {
  return {served_.as<float>() + served_places_[served_index(address, source)].vectors,
          routing_.slot(address).dim()};
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
  return {served_.as<float>() + served_places_[served_index(address, source)].gradients,
          slot.dim()};
}

const float* OutputDist::asked(const SlotAddress& address) const {
  const std::int64_t from = address.server == routing_.replicated() ? rank_ : address.server;
  return asked_from_[at(from)] + asked_begin_[at(address.server)][at(address.slot)];
}

void OutputDist::forward(Context& ctx, const InputDist& input) {
  if (forward_wire_.is_on()) {
    exchange_encoded_vectors(ctx, input);
  } else {
    exchange_vectors(ctx, input);
  }
  pool_fetched(ctx, input);
}

void OutputDist::exchange_vectors(Context& ctx, const InputDist& input) {
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
    assemble(ctx, input);
  });
}

void OutputDist::exchange_encoded_vectors(Context& ctx, const InputDist& input) {
  const auto for_slots = [this](std::int64_t server, const auto& body) {
    for (std::size_t j = 0; j < routing_.served[at(server)].size(); ++j) {
      body(SlotAddress{server, static_cast<std::int64_t>(j)});
    }
  };
  forward_wire_.clear(input.batch().step);
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    asked_from_[at(r)] = asked_.as<float>() + asked_run_[at(r)].begin;
    const auto serve = [&](const SlotAddress& address) { add_served_vectors(address, r, input); };
    const auto ask = [&](const SlotAddress& address) { add_asked_vectors(address, input); };
    for_slots(rank_, serve);
    for_slots(r, ask);
    if (r == rank_) {
      for_slots(routing_.replicated(), serve);
      for_slots(routing_.replicated(), ask);
    }
  }
  forward_wire_.exchange(ctx, comm_);
  assemble(ctx, input);
}

/// What goes out; of what stays in the matrix, all but replicas' vectors passes through the codec.
void OutputDist::add_served_vectors(const SlotAddress& address,
                                    std::int64_t source,
                                    const InputDist& input) {
  const Slot& slot = routing_.slot(address);
  if (source != rank_ || !routing_.in_place(address, rank_)) {
    forward_wire_.add_outgoing({.slot = &slot,
                                .peer = source,
                                .count = input.block(address, source).vectors,
                                .place = served(address, source),
                                .draws = draws_.vectors(address, source, input)});
  } else if (address.server == rank_) {
    const FeatureMatrices& m = outputs_;
    forward_wire_.add_in_place(
        {.slot = &slot,
         .peer = rank_,
         .count = slot.sequence ? m.sequences[at(slot.feature)].rows : m.pooled.rows,
         .place = in_matrix(slot, m),
         .draws = draws_.vectors(address, source, input)});
  }
}

/// Whole bags and rows are decoded to their places, partial sums to asked().
void OutputDist::add_asked_vectors(const SlotAddress& address, const InputDist& input) {
  const Slot& slot = routing_.slot(address);
  if (routing_.in_place(address, rank_)) {
    return;
  }
  VectorWire::Block block{.slot = &slot,
                          .peer = routing_.served_by(address, rank_) ? rank_ : address.server,
                          .count = input.sent_vectors(address)};
  if (slot.sequence) {
    block.place = sequence_place(slot);
    block.rows = input.sent_rows(address);
  } else if (feature(slot.feature).split()) {
    block.place = {const_cast<float*>(asked(address)), slot.dim()};
  } else {
    block.place = in_matrix(slot, outputs_);
    block.rows = input.sent_rows(address);
  }
  forward_wire_.add_incoming(block);
}

VectorPlace OutputDist::sequence_place(const Slot& slot) const {
  if (!slot.of_rows()) {
    return in_matrix(slot, outputs_);
  }
  const Matrix<float> fetched = fetched_.vectors(slot.fetch);
  return {fetched.data + slot.cols.begin, fetched.stride};
}

void OutputDist::assemble(Context& ctx, const InputDist& input) {
  tasks_.run(*ctx.pool, [&](std::int64_t list, std::int64_t task) {
    if (list == 0) {
      assemble_bags(task, input);
    } else {
      copy_sequence(sequences_to_copy_[at(list - 1)], task, input);
    }
  });
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
        if (forward_wire_.is_on()) {
          clear_empty_bags(job.address, bags, input);
        } else {
          copy_bags(job.address, bags, input);
        }
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
  const VectorPlace to = in_matrix(slot, outputs_);
  if (rows == nullptr) {
    for (std::int64_t b = bags.begin; b < bags.end; ++b) {
      copy_floats(to.data + b * to.stride, asked(address) + b * dim, dim);
    }
    return;
  }
  const std::int32_t* const last = rows + input.sent_vectors(address);
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

/// The others have been decoded to their rows.
void OutputDist::clear_empty_bags(const SlotAddress& address, Range bags, const InputDist& input) {
  const Slot& slot = routing_.slot(address);
  const std::int32_t* row = input.sent_rows(address);
  if (row == nullptr) {
    return;
  }
  const std::int32_t* const last = row + input.sent_vectors(address);
  const VectorPlace to = in_matrix(slot, outputs_);
  row = std::lower_bound(row, last, bags.begin);
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    if (row != last && *row == b) {
      ++row;
    } else {
      std::fill_n(to.data + b * to.stride, slot.dim(), 0.0F);
    }
  }
}

void OutputDist::copy_sequence(const SlotAddress& address,
                               std::int64_t task,
                               const InputDist& input) {
  const Slot& slot = routing_.slot(address);
  const std::int64_t count = input.sent_vectors(address);
  const Range vectors = piece(count, task_count(count * slot.dim(), kFloatsPerTask), task);
  const std::int32_t* const rows = input.sent_rows(address);
  const VectorPlace to = sequence_place(slot);
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
  const JaggedView view = input.batch().sparse.feature(slot.feature);
  const VectorPlace place = in_matrix(slot, m);
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    const std::int64_t length = view.length(b);
    if (length > 1) {
      float* const vector = place.data + b * place.stride;
      divide(vector, vector, slot.dim(), static_cast<float>(length));
    }
  }
}

/// Columns `cols`, counted in the slot, of the vectors of a cut of rows, from `first_bag` on.
OutputDist::ShardVectors OutputDist::shard_vectors(const SlotAddress& address,
                                                   Range cols,
                                                   std::int64_t first_bag,
                                                   const InputDist& input) const {
  const std::int32_t* const rows = input.sent_rows(address);
  const std::int64_t end = input.sent_vectors(address);
  return {.vectors = asked(address) + cols.begin,
          .stride = routing_.slot(address).dim(),
          .bags = rows,
          .next = std::lower_bound(rows, rows + end, first_bag) - rows,
          .end = end};
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
  for (std::size_t k = 0; k < route.rows.size(); ++k) {
    own.shards[k] = shard_vectors(route.slots[at(slot.shard) + k * at(route.col_cuts)], {0, dim},
                                  bags.begin, input);
  }
  if (!route.hot.empty()) {
    own.shards.back() = shard_vectors(route.slots.back(), slot.cols, bags.begin, input);
  }
  std::array<const float*, kMostBags> only;
  find_terms(own, bags, only);
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
void OutputDist::find_terms(Scratch& scratch, Range bags, std::span<const float*> only) {
  std::fill(only.begin(), only.end(), nullptr);
  bool several = false;
  for (const ShardVectors& shard : scratch.shards) {
    for (std::int64_t v = shard.next; v < shard.end && shard.bags[v] < bags.end; ++v) {
      const float*& term = only[at(shard.bags[v] - bags.begin)];
      several |= term != nullptr;
      term = term == nullptr ? shard.vectors + v * shard.stride : &kSeveral;
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
          shard.vectors + v * shard.stride;
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
  if (backward_wire_.is_on()) {
    exchange_encoded_gradients(ctx, input);
    return;
  }
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

/// Whether gradients go from `source` to the slot's server, itself perhaps; the others are read
/// where they are: see gradient().
bool OutputDist::gradient_travels(const SlotAddress& address, std::int64_t source) const {
  const Slot& slot = routing_.slot(address);
  if (address.server == routing_.replicated()) {
    return source == rank_ && slot.is_hot() && slot.sequence;
  }
  return address.server != source || (!routing_.in_place(address, source) && slot.sequence);
}

/// The same bytes to every server that a gradient is for; what this rank reads in its matrices is
/// rounded there once the others have been encoded.
void OutputDist::exchange_encoded_gradients(Context& ctx, const InputDist& input) {
  const auto send = [&](std::int64_t server, std::int64_t peer) {
    for (std::size_t j = 0; j < routing_.served[at(server)].size(); ++j) {
      const SlotAddress address{server, static_cast<std::int64_t>(j)};
      if (gradient_travels(address, rank_)) {
        backward_wire_.add_outgoing({.slot = &routing_.slot(address),
                                     .peer = peer,
                                     .count = input.sent_gradients(address),
                                     .place = asked_gradients(routing_.slot(address)),
                                     .rows = input.sent_gradient_rows(address),
                                     .draws = draws_.gradients(address, input)});
      }
    }
  };
  const auto receive = [&](std::int64_t server, std::int64_t peer) {
    for (std::size_t j = 0; j < routing_.served[at(server)].size(); ++j) {
      const SlotAddress address{server, static_cast<std::int64_t>(j)};
      if (gradient_travels(address, peer)) {
        backward_wire_.add_incoming({.slot = &routing_.slot(address),
                                     .peer = peer,
                                     .count = input.block(address, peer).gradients,
                                     .place = gradient(address, peer)});
      }
    }
  };
  backward_wire_.clear(input.batch().step);
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    send(r, r);
    receive(rank_, r);
    if (r == rank_) {
      send(routing_.replicated(), r);
      receive(routing_.replicated(), r);
    }
  }
  const FeatureMatrices& m = gradients_;
  for (const Slot& slot : own_gradients_) {
    backward_wire_.add_in_place(
        {.slot = &slot,
         .peer = rank_,
         .count = slot.sequence ? m.sequences[at(slot.feature)].rows : m.pooled.rows,
         .place = in_matrix(slot, m),
         .draws = draws_.own_gradients(slot, input)});
  }
  backward_wire_.exchange(ctx, comm_);
}

/// To every server the gradients of its vectors, in its order, from where they lie in the matrix.
void OutputDist::describe_gradient_lanes(const InputDist& input) {
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    auto& send = send_pieces_[at(r)];
    auto& recv = recv_pieces_[at(r)];
    send.clear();
    recv.clear();
    for (std::size_t j = 0; j < routing_.served[at(r)].size(); ++j) {
      const SlotAddress address{r, static_cast<std::int64_t>(j)};
      if (gradient_travels(address, rank_)) {
        send.push_back(gradient_piece(address, input));
      }
    }
    for (std::size_t j = 0; j < routing_.served[at(rank_)].size(); ++j) {
      const SlotAddress address{rank_, static_cast<std::int64_t>(j)};
      if (gradient_travels(address, r)) {
        const std::int64_t count = input.block(address, r).gradients;
        recv.push_back({gradient(address, r).data, 4 * count * routing_.slot(address).dim()});
      }
    }
    if (r == rank_) {
      add_hot_gradients(input);
    }
    send_[at(r)] = {.pieces = send};
    recv_[at(r)] = {.pieces = recv};
  }
}

/// To itself a rank sends the gradients of hot rows in sequences, and of hot rows that it fetched;
/// those of bags are read in place.
void OutputDist::add_hot_gradients(const InputDist& input) {
  const auto& replicated = routing_.served[at(routing_.replicated())];
  for (std::size_t j = 0; j < replicated.size(); ++j) {
    const SlotAddress address{routing_.replicated(), static_cast<std::int64_t>(j)};
    if (!replicated[j].is_hot() || !replicated[j].sequence) {
      continue;
    }
    const comm::Piece piece = gradient_piece(address, input);
    send_pieces_[at(rank_)].push_back(piece);
    recv_pieces_[at(rank_)].push_back({gradient(address, rank_).data, piece.bytes});
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
