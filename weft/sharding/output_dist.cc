#include "weft/sharding/output_dist.h"

#include <algorithm>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/thread_pool.h"

namespace weft::sharding {
OutputDist::OutputDist(const Paths& paths, comm::Communicator& comm)
    : paths_(paths),
      routing_(paths.routing()),
      comm_(comm),
      rank_(comm.rank()),
      layout_(paths, comm.lends() ? Delivery::kLent : Delivery::kCopied) {
  const auto list = [this](std::int64_t server) {
    for_slots(routing_, server, [this](const SlotAddress& address) {
      paths_.of(address, rank_).list_work(address, work_);
    });
  };
  // Hot rows first: their columns are those of the whole feature.
  list(routing_.replicated());
  list(rank_);
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    if (r != rank_) {
      list(r);
    }
  }
  for (std::size_t f = 0; f < routing_.features.size(); ++f) {
    const FeatureRoute& route = routing_.features[f];
    if (route.pooling == spec::Pooling::kMean && route.is_here) {
      means_.push_back(static_cast<std::int64_t>(f));
    }
  }
}

/// Calls visit(AskedPlace) for the slots that this rank asks of `server` and that have ids, in
/// the order of the wire. Of itself a rank has all slots, hot rows and replicas behind the others.
template <typename Visit>
void OutputDist::for_asked(const InputStep& input, std::int64_t server, const Visit& visit) const {
  if (server != rank_) {
    std::int64_t number = input.asked.server_begins[at(server)];
    input.asked.for_slots_with_ids(server, [&](const SlotAddress& address, std::int64_t place) {
      visit(AskedPlace{address, place, number++});
    });
    return;
  }
  for (const std::int64_t own : {server, routing_.replicated()}) {
    for_slots(routing_, own, [&](const SlotAddress& address) {
      visit(AskedPlace{address, input.asked.place(address), -1});
    });
  }
}

std::unique_ptr<OutputStep> OutputDist::make_step(const spec::Config& config,
                                                  Device& device,
                                                  const SparseStepOptions& options,
                                                  const BatchMatrices* shared) const {
  auto step = std::make_unique<OutputStep>(config, routing_, device, options, shared);
  step->rank = rank_;
  for (const std::int64_t f : means_) {
    if (routing_.features[at(f)].path == Path::kUniqueRows) {
      step->fetched_means.push_back(f);
    }
  }
  std::vector<std::int64_t>& changes = step->changed;
  changes = means_;
  for (const VectorWork::One& one : work_.own_gradients) {
    const std::int64_t f = routing_.kind(one.address).feature;
    const bool is_known = std::find(changes.begin(), changes.end(), f) != changes.end();
    if (step->backward_wire.is_on() && !is_known) {
      changes.push_back(f);
    }
  }
  step->matrices.set_changes(changes);
  step->changes.reserve(std::ssize(changes));
  return step;
}

void OutputDist::prepare(const InputStep& input, OutputStep& step) const {
  step.matrices.prepare(input.batch().sparse);
  layout_.prepare(input, step);
  for (const auto& path : paths_.all()) {
    path->prepare(input, step);
  }
}

void OutputDist::clear_grown(Context& ctx, OutputStep& step) {
  std::vector<const Buffer*> all{&step.served, &step.asked};
  for (const Buffer& buffer : step.matrices.buffers()) {
    all.push_back(&buffer);
  }
  std::int64_t capacity = 0;
  for (const Buffer* buffer : all) {
    capacity += buffer->capacity();
  }
  if (std::exchange(step.cleared, capacity) == capacity) {
    return;
  }
  for (const Buffer* buffer : all) {
    ctx.device->fill_zero(ctx, buffer->as<std::byte>(), buffer->capacity());
  }
}

void OutputDist::forward(Context& ctx,
                         const InputStep& input,
                         OutputStep& step,
                         std::int64_t cut) const {
  if (step.is_decoded()) {
    exchange_encoded_vectors(ctx, input, step, cut);
  } else {
    exchange_vectors(ctx, input, step, cut);
  }
  for (const auto& path : paths_.all()) {
    path->pool(ctx, input, step, cut);
  }
}

/// A whole batch's vectors for a rank lie behind each other, and are one piece.
void OutputDist::list_whole_runs(OutputStep& step) const {
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const Range served = step.served_run[at(r)];
    const Range asked = step.asked_run[at(r)];
    auto* const received = step.asked.as<float>();
    step.send.add({step.served.as<float>() + served.begin, 4 * served.size()});
    step.recv.add({received == nullptr ? nullptr : received + asked.begin, 4 * asked.size()});
    step.send.end_lane();
    step.recv.end_lane();
  }
}

/// A micro-batch's vectors are a piece per slot, so that a block of a slot stays in one place.
void OutputDist::list_cut_runs(const InputStep& input, OutputStep& step, std::int64_t cut) const {
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    layout_.add_pieces(input, step, r, cut, VectorLayout::Flow::kVectors, step.send);
    for_asked(input, r, [&](const AskedPlace& of) {
      if (layout_.vector_travels(of.address, rank_)) {
        const std::int64_t dim = routing_.kind(of.address).dim();
        const Range vectors = layout_.asked_cut(input, step, of, cut).vectors;
        float* const block = layout_.asked(step, of.address, of.place);
        step.recv.add(
            {block == nullptr ? nullptr : block + vectors.begin * dim, 4 * vectors.size() * dim});
      }
    });
    step.send.end_lane();
    step.recv.end_lane();
  }
}

/// Notes where the vectors of every slot lie, from the first of the batch on.
void OutputDist::note_arrivals(const InputStep& input,
                               OutputStep& step,
                               std::int64_t cut,
                               std::span<const comm::Lane> arrived) const {
  const bool is_whole = routing_.micro_batches.count() == 1;
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const std::span<const comm::Piece> pieces = arrived[at(r)].pieces;
    std::size_t next = 0;
    if (pieces.empty()) {  // silent: none of its slots has a vector
      continue;
    }
    for_asked(input, r, [&](const AskedPlace& of) {
      if (!layout_.vector_travels(of.address, rank_)) {
        return;
      }
      const auto* const piece = static_cast<const float*>(pieces[is_whole ? 0 : next++].data);
      step.arrived_at[at(of.place)] =
          is_whole ? piece + step.asked_begin[at(of.place)]
                   : piece - layout_.asked_cut(input, step, of, cut).vectors.begin *
                                 routing_.kind(of.address).dim();
    });
  }
}

void OutputDist::exchange_vectors(Context& ctx,
                                  const InputStep& input,
                                  OutputStep& step,
                                  std::int64_t cut) const {
  step.send.clear();
  step.recv.clear();
  if (routing_.micro_batches.count() == 1) {
    list_whole_runs(step);
  } else {
    list_cut_runs(input, step, cut);
  }
  comm_.exchange_lent(ctx, step.send.lanes(), step.recv.lanes(),
                      [&](std::span<const comm::Lane> arrived) {
                        note_arrivals(input, step, cut, arrived);
                        assemble(ctx, input, step, cut);
                      });
}

void OutputDist::exchange_encoded_vectors(Context& ctx,
                                          const InputStep& input,
                                          OutputStep& step,
                                          std::int64_t cut) const {
  step.forward_wire.clear(input.batch().step);
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    layout_.for_served(input, r,
                       [&](const ServedBlock& of) { add_served_vectors(input, step, of, cut); });
    for_asked(input, r, [&](const AskedPlace& of) {
      if (layout_.vector_travels(of.address, rank_)) {
        step.arrived_at[at(of.place)] = layout_.asked(step, of.address, of.place);
        add_asked_vectors(input, step, of.address, of.place, cut);
      }
    });
  }
  step.forward_wire.exchange(ctx, comm_);
  assemble(ctx, input, step, cut);
}

/// What goes out; of what stays in the matrix, all but replicas' vectors passes through the codec.
void OutputDist::add_served_vectors(const InputStep& input,
                                    OutputStep& step,
                                    const ServedBlock& of,
                                    std::int64_t cut) const {
  const SlotKind& slot = routing_.kind(of.address);
  const SlotPath& path = paths_.of(of.address, of.source);
  const bool moves = layout_.vector_travels(of.address, of.source);
  if (!moves && of.address.server != rank_) {
    return;
  }
  VectorWire::Block block{.slot = &slot,
                          .peer = of.source,
                          .count = of.block.vectors,
                          .place = layout_.output(step, of)};
  if (paths_.keys().is_on) {
    block.draws = path.vector_draws(input, of.address, of.source);
  }
  const VectorWire::Block some = block.part(paths_.served_cut(input, of, cut).vectors);
  moves ? step.forward_wire.add_outgoing(some) : step.forward_wire.add_in_place(some);
}

/// Whole bags and rows are decoded to their places, partial sums beside each other.
void OutputDist::add_asked_vectors(const InputStep& input,
                                   OutputStep& step,
                                   const SlotAddress& address,
                                   std::int64_t place,
                                   std::int64_t cut) const {
  const SlotKind& slot = routing_.kind(address);
  const SlotPath& path = paths_.of(address, rank_);
  const AskedSlot& asked = input.asked.slot_at(place);
  VectorWire::Block block{.slot = &slot,
                          .peer = routing_.served_by(address, rank_) ? rank_ : address.server,
                          .count = asked.vectors};
  if (path.block(address, rank_).gets_partial_sums()) {
    block.place = {const_cast<float*>(step.arrived(place)), slot.dim()};
  } else {
    block.place = path.vectors_to(step, slot);
    block.rows = asked.rows;
  }
  step.forward_wire.add_incoming(block.part(path.asked_cut(input, address, asked, cut).vectors));
}

void OutputDist::assemble(Context& ctx,
                          const InputStep& input,
                          OutputStep& step,
                          std::int64_t cut) const {
  step.assembly.clear();
  std::int64_t cuts = std::ssize(work_.copies);
  for (const VectorWork::One& work : work_.bags) {
    const std::int64_t of = input.asked.features[at(routing_.kind(work.address).feature)].cuts;
    cuts += std::max<std::int64_t>(of, 1);
  }
  step.assembly.reserve(cuts);
  for (const VectorWork::One& work : work_.bags) {
    work.path->list_assembly(input, step, work.address, cut);
  }
  for (const VectorWork::One& work : work_.copies) {
    if (!step.is_decoded()) {
      list_copies(input, step, work, cut);
    }
  }
  kernels::assemble_bags(ctx, step.assembly.jobs);
}

/// Vectors one by one to their places: of sequences, and of unique rows.
void OutputDist::list_copies(const InputStep& input,
                             OutputStep& step,
                             const VectorWork::One& work,
                             std::int64_t cut) const {
  const SlotKind& slot = routing_.kind(work.address);
  const std::int64_t place = input.asked.place(work.address);
  if (place < 0) {
    return;
  }
  const AskedSlot& asked = input.asked.slots[at(place)];
  const Range some = work.path->asked_cut(input, work.address, asked, cut).vectors;
  const bool has_rows = asked.rows != nullptr;
  const VectorPlace to = work.path->vectors_to(step, slot).from(has_rows ? 0 : some.begin);
  const std::span<kernels::BagVectors> vectors = step.assembly.take_cuts(1);
  vectors[0] = {.vectors = step.arrived(place) + some.begin * slot.dim(),
                .stride = slot.dim(),
                .bags = has_rows ? asked.rows + some.begin : nullptr,
                .count = some.size()};
  step.assembly.jobs.push_back({.to = {to.data, to.stride, slot.dim()},
                                .bags = some.size(),
                                .cuts = vectors,
                                .others = kernels::BagAssembly::Others::kKept});
}

void OutputDist::coalesce(Context& ctx, const InputStep& input, OutputStep& step) const {
  for (const auto& path : paths_.all()) {
    path->coalesce(ctx, input, step);
  }
}

/// The rows of a feature's matrix that a micro-batch has.
Range OutputDist::rows_of(const InputStep& input, std::int64_t feature, std::int64_t cut) const {
  const Range bags = routing_.cut_bags(input.batch().global_size, rank_, cut);
  if (routing_.features[at(feature)].pooling != spec::Pooling::kNone) {
    return bags;
  }
  const IncomingBlock all = input.batch_block(routing_, feature, rank_);
  return input.values_of(all.lookup, all.origin, bags);
}

/// Copies the gradients that a caller wants kept; the gradient of a mean is that of its sum,
/// divided by the length of the bag.
void OutputDist::change_gradients(Context& ctx,
                                  const InputStep& input,
                                  OutputStep& step,
                                  std::int64_t cut) const {
  step.changes.clear();
  for (const std::int64_t f : step.changed) {
    const Matrix<float>& to = step.matrices.gradients_of(f);
    const Matrix<float> from = step.matrices.given_gradients_of(f);
    const Range rows = rows_of(input, f, cut);
    std::span<kernels::BagVectors> cuts;
    if (from.data != to.data) {
      cuts = step.changes.take_cuts(1);
      cuts[0] = {.vectors = from.data, .stride = from.stride, .count = from.rows};
    }
    const bool is_mean = routing_.features[at(f)].pooling == spec::Pooling::kMean;
    if (is_mean || !cuts.empty()) {
      step.changes.jobs.push_back(
          {.to = {to.data, to.stride, to.cols},
           .bags = rows.size(),
           .first = rows.begin,
           .cuts = cuts,
           .offsets = is_mean ? input.batch().sparse.feature(f).offsets.data() : nullptr});
    }
  }
  kernels::assemble_bags(ctx, step.changes.jobs);
}

void OutputDist::backward(Context& ctx,
                          const InputStep& input,
                          OutputStep& step,
                          std::int64_t cut) const {
  change_gradients(ctx, input, step, cut);
  if (cut + 1 == routing_.micro_batches.count()) {
    for (const auto& path : paths_.all()) {
      path->sum_gradients(ctx, input, step);
    }
  }
  if (step.backward_wire.is_on()) {
    exchange_encoded_gradients(ctx, input, step, cut);
  } else {
    exchange_gradients(ctx, input, step, cut);
  }
}

/// Returns where the gradients of a kind of slot lie that this rank asks of others, which a path is
/// asked once an exchange.
const VectorPlace& OutputDist::gradients_of(OutputStep& step, std::size_t kind) const {
  VectorPlace& place = step.gradient_places[kind];
  if (place.data == nullptr) {
    const SlotKind& slot = routing_.kinds[kind];
    place = paths_.between_ranks(slot).gradients_from(step, slot);
  }
  return place;
}

/// To every server the gradients of its vectors, in its order, from where they lie.
void OutputDist::exchange_gradients(Context& ctx,
                                    const InputStep& input,
                                    OutputStep& step,
                                    std::int64_t cut) const {
  step.send.clear();
  step.recv.clear();
  step.gradient_places.assign(routing_.kinds.size(), {});
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    layout_.add_pieces(input, step, r, cut, VectorLayout::Flow::kGradients, step.recv);
    for_asked(input, r, [&](const AskedPlace& of) {
      if (!layout_.gradient_travels(of.address, rank_)) {
        return;
      }
      const std::size_t kind = routing_.kind_number(of.address);
      const SlotKind& slot = routing_.kinds[kind];
      const std::int64_t row_bytes = 4 * slot.dim();
      const AskedSlot& asked = input.asked.slot_at(of.place);
      const Range some = layout_.asked_cut(input, step, of, cut).gradients;
      const VectorPlace from = r == rank_ ? paths_.of(of.address, r).gradients_from(step, slot)
                                          : gradients_of(step, kind);
      const bool has_rows = asked.gradient_rows != nullptr;
      step.send.add({.data = from.from(has_rows ? 0 : some.begin).data,
                     .bytes = some.size() * row_bytes,
                     .row_bytes = row_bytes,
                     .stride = 4 * from.stride,
                     .rows = has_rows ? asked.gradient_rows + some.begin : nullptr});
    });
    step.send.end_lane();
    step.recv.end_lane();
  }
  comm_.exchange(ctx, step.send.lanes(), step.recv.lanes());
}

/// The same bytes to every server that a gradient is for; what this rank reads in its matrices is
/// rounded there once the others have been encoded.
void OutputDist::exchange_encoded_gradients(Context& ctx,
                                            const InputStep& input,
                                            OutputStep& step,
                                            std::int64_t cut) const {
  const bool draws = paths_.keys().is_on;
  step.backward_wire.clear(input.batch().step);
  const auto serves = [&](const ServedBlock& of) {
    if (layout_.gradient_travels(of.address, of.source)) {
      const VectorWire::Block block{.slot = &routing_.kind(of.address),
                                    .peer = of.source,
                                    .place = layout_.gradient(step, of)};
      step.backward_wire.add_incoming(block.part(paths_.served_cut(input, of, cut).gradients));
    }
  };
  const auto asks = [&](const SlotAddress& address, std::int64_t peer, std::int64_t place) {
    if (layout_.gradient_travels(address, rank_)) {
      const SlotKind& slot = routing_.kind(address);
      const SlotPath& path = paths_.of(address, rank_);
      const AskedSlot& asked = input.asked.slot_at(place);
      const VectorWire::Block block{
          .slot = &slot,
          .peer = peer,
          .place = path.gradients_from(step, slot),
          .rows = asked.gradient_rows,
          .draws = draws ? path.gradient_draws(input, address) : VectorDraws{}};
      step.backward_wire.add_outgoing(
          block.part(path.asked_cut(input, address, asked, cut).gradients));
    }
  };
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    layout_.for_served(input, r, serves);
    for_asked(input, r, [&](const AskedPlace& of) { asks(of.address, r, of.place); });
  }
  for (const VectorWork::One& one : work_.own_gradients) {
    const SlotKind& slot = routing_.kind(one.address);
    const VectorWire::Block block{
        .slot = &slot,
        .peer = rank_,
        .place = step.matrices.gradients_of(slot),
        .draws = draws ? one.path->own_gradient_draws(input, slot) : VectorDraws{}};
    step.backward_wire.add_in_place(block.part(rows_of(input, slot.feature, cut)));
  }
  step.backward_wire.exchange(ctx, comm_);
}

}  // namespace weft::sharding
