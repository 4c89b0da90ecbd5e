// A table that is pooled at the sample is asked for rows, each once for all features that read it,
// and not for bags. The rows come as vectors, and the rank of the sample adds the bags.
//
// Notation    U unique rows of the batch in a table, S (row, subtree) pairs, N subtrees of the
//             rank's parts, R runs of them, D columns of the whole table (unique_rows.h).
// Travels     per shard the lengths of R + N runs and S rows, narrow or packed; a vector comes back
//             for each of the U rows of the first R runs, and S partial gradients go out. What a
//             rank asks of its own shard passes through the same buffers.
// Bytes       4 (R + N) per shard that is asked for a row, i S of ids, 4 D U of vectors and 4 D S
// of gradients, or encoded. Ids         checked by runs of bags, then one look into a hash table
// each, a task per table. The
//             places of the ids among the unique rows are what bags are made of.
// Vectors     copied or decoded once into one matrix [U, D] of the table; bags are looked up there.
// Gradients   entries are sorted by (place, part) and summed per (row, subtree), as replicas do it
//             (embedding/partial_sums.h); the owner goes on up the tree.
// Order       a bag's rows are added in the order of the bag, and row gradients up the tree of
//             parts: bits are those of one rank that holds the table, whatever the cuts.
#include "weft/sharding/paths/unique_rows_path.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>

#include "weft/base/error.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/kernels/packed_ids.h"
#include "weft/sharding/input_step.h"
#include "weft/sharding/output_step.h"

namespace weft::sharding {

/// Finds the rows, a task per table; ids have been checked.
void UniqueRowsPath::lay_out(ThreadPool& pool, AskedIds& asked) const {
  if (num_tables() == 0) {
    return;
  }
  asked.rows.places.resize(asked.batch.sparse.values.size());
  pool.parallel_for(num_tables(), [&](std::int64_t t) {
    asked.rows.tables[at(t)].find(asked.batch, asked.rows.places);
  });
  for (std::int64_t t = 0; t < num_tables(); ++t) {
    if (routing_.fetches[at(t)].regular) {
      add_places(asked, t);
    }
    lay_out_table(asked, t);
  }
}

/// Of a rule: for slots that are asked for a row, and this rank's own.
void UniqueRowsPath::add_places(AskedIds& asked, std::int64_t fetch) const {
  const RowFetch& cuts = routing_.fetches[at(fetch)];
  const UniqueRows& rows = asked.rows.tables[at(fetch)];
  const std::int64_t own = cuts.regular->of_rank(rank_);
  for (std::int64_t k = 0; k < cuts.row_cuts(); ++k) {
    if (rows.entries(k) > 0 || k == own || k == cuts.tail_cuts) {
      asked.present.insert(cuts.first_number + k);
    }
  }
  const std::int64_t count = asked.present.count(PresentSet::words_of(cuts.numbers()), 0);
  const std::int64_t first = asked.add_places(cuts, count);
  asked.fetch_places[at(fetch)] = {first, asked.num_places};
}

void UniqueRowsPath::lay_out_table(AskedIds& asked, std::int64_t fetch) const {
  const UniqueRows& rows = asked.rows.tables[at(fetch)];
  for_slots_of(asked, fetch, [&](std::int64_t place, std::int64_t cut) {
    const SlotAddress address = asked.addresses[at(place)];
    const SlotKind& slot = routing_.kind(address);
    asked.slots[at(place)] = {
        .ids = rows.entries(cut), .vectors = rows.vectors(cut), .gradients = rows.entries(cut)};
    if (slot.packed && rows.entries(cut) > 0) {
      asked.slots[at(place)].packed_bytes =
          static_cast<std::int32_t>(std::ssize(rows.wire_ids(cut)));
    }
    if (!routing_.served_by(address, rank_)) {
      return;
    }
    const auto runs = static_cast<std::int64_t>(rows.lengths(cut).size());
    OwnIds& own = asked.own;
    own.blocks[asked.own_index(address)] = {.origin = IdOrigin::kPacked,
                                            .ids_begin = own.num_ids,
                                            .num_ids = rows.entries(cut),
                                            .rows_read = rows.vectors(cut),
                                            .lookup = {runs_.with_vectors(rank_), own.num_offsets},
                                            .gradient = {runs, own.num_offsets},
                                            .vectors = rows.vectors(cut),
                                            .gradients = rows.entries(cut)};
    own.num_ids += rows.entries(cut);
    own.num_offsets += runs + 1;
  });
}

void UniqueRowsPath::point(AskedIds& asked) const {
  for (std::int64_t t = 0; t < num_tables(); ++t) {
    const UniqueRows& rows = asked.rows.tables[at(t)];
    for_slots_of(asked, t, [&](std::int64_t place, std::int64_t cut) {
      asked.slots[at(place)].rows = rows.places(cut);
      asked.slots[at(place)].gradient_rows = rows.gradients(cut);
    });
  }
}

void UniqueRowsPath::finish(ThreadPool& pool, AskedIds& asked) const {
  pool.parallel_for(num_tables(), [&](std::int64_t t) { fill_own(asked, t); });
}

/// The rows of the own shard, as lookups take them.
void UniqueRowsPath::fill_own(AskedIds& asked, std::int64_t fetch) const {
  const UniqueRows& rows = asked.rows.tables[at(fetch)];
  for_slots_of(asked, fetch, [&](std::int64_t place, std::int64_t cut) {
    const SlotAddress address = asked.addresses[at(place)];
    if (!routing_.served_by(address, rank_)) {
      return;
    }
    const IncomingBlock& block = asked.own.blocks[asked.own_index(address)];
    std::copy_n(rows.ids(cut), block.num_ids, asked.own.ids.data() + block.ids_begin);
    std::int64_t* offset = asked.own.offsets.data() + block.gradient.offsets_begin;
    *offset = block.ids_begin;
    for (const std::int32_t length : rows.lengths(cut)) {
      offset[1] = offset[0] + length;
      ++offset;
    }
  });
}

/// Lengths of the runs, and ids; nothing where no row is asked for.
void UniqueRowsPath::add_pieces(const AskedIds& asked,
                                const SlotAddress& address,
                                std::int64_t place,
                                SlotPieces& pieces) const {
  const UniqueRows& rows = asked.rows.tables[at(routing_.kind(address).fetch)];
  const std::int64_t cut = routing_.row_cut(address);
  const bool is_asked = asked.slot_at(place).ids > 0;
  const auto lengths = is_asked ? rows.lengths(cut) : std::span<const std::int32_t>();
  const auto ids = is_asked ? rows.wire_ids(cut) : std::span<const std::byte>();
  // Only read.
  pieces.push_back(
      {const_cast<std::int32_t*>(lengths.data()), static_cast<std::int64_t>(lengths.size_bytes())});
  pieces.push_back({const_cast<std::byte*>(ids.data()), std::ssize(ids)});
}

std::int64_t UniqueRowsPath::section_bytes(const SlotKind& slot,
                                           const SlotCounts& counts,
                                           std::int64_t source) const {
  return lengths_bytes(counts, source) + ids_bytes(slot, counts);
}

void UniqueRowsPath::expect_block(ServedIds& served,
                                  const ArrivedBlock& from,
                                  IncomingBlock& block) const {
  const std::int64_t runs = runs_.runs(from.source);
  block = {.origin = IdOrigin::kReceived,
           .ids_begin = served.num_ids,
           .num_ids = from.counts.ids,
           .lookup = {runs_.with_vectors(from.source), served.num_offsets - 1},
           .gradient = {runs, served.num_offsets - 1},
           .parts_begin = served.run_parts_begin(runs_, from.source)};
  served.num_ids += from.counts.ids;
  served.num_offsets += runs;
}

void UniqueRowsPath::add_expected(const ArrivedBlock& from, SlotPieces& pieces) const {
  pieces.push_back({nullptr, lengths_bytes(from.counts, from.source)});
  pieces.push_back({nullptr, ids_bytes(*from.slot, from.counts)});
}

/// Packed rows are read run by run, with the lengths.
std::int64_t UniqueRowsPath::unpack_tasks(const ArrivedBlock& from) const {
  return 1 + (from.slot->packed ? 0 : task_count(from.counts.ids, kIdsPerTask));
}

void UniqueRowsPath::unpack(ServedIds& served,
                            const ArrivedBlock& from,
                            std::int64_t task,
                            IncomingBlock& block) const {
  if (task > 0) {
    const Range ids{(task - 1) * kIdsPerTask, std::min(task * kIdsPerTask, block.num_ids)};
    widen_ids(from, ids, served.ids.data() + block.ids_begin);
    return;
  }
  unpack_runs(served, from, block);
  if (from.slot->packed && block.num_ids > 0) {
    unpack_packed(served, from, block);
  }
}

/// All runs are kept, and a vector is wanted of the first R.
void UniqueRowsPath::unpack_runs(ServedIds& served,
                                 const ArrivedBlock& from,
                                 IncomingBlock& block) const {
  std::int64_t* const offsets = served.offsets.data() + block.gradient.offsets_begin;
  if (block.num_ids == 0) {  // and nothing has come
    std::fill_n(offsets + 1, block.gradient.bags, block.ids_begin);
    return;
  }
  const WireNumbers<std::int32_t> length(from.pieces[0].data);
  std::int64_t rows = 0;
  for (std::int64_t run = 0; run < block.gradient.bags; ++run) {
    if (length[run] < 0 || length[run] > block.num_ids - rows) {
      fail(ErrorCode::kComm, "{}: runs of rows exceed the announced {}", named(from),
           block.num_ids);
    }
    rows += length[run];
    offsets[run + 1] = block.ids_begin + rows;
  }
  if (rows != block.num_ids) {
    fail(ErrorCode::kComm, "{}: runs of rows sum to {}, {} announced", named(from), rows,
         block.num_ids);
  }
  block.vectors = block.lookup.bags == 0 ? 0 : offsets[block.lookup.bags] - block.ids_begin;
  block.rows_read = block.vectors;
  block.gradients = block.num_ids;
}

/// All runs of a block, whose offsets are known.
void UniqueRowsPath::unpack_packed(ServedIds& served,
                                   const ArrivedBlock& from,
                                   const IncomingBlock& block) const {
  const Slot& slot = *from.slot;
  const comm::Piece& ids = from.pieces[1];
  const std::string& table = routing_.fetches[at(slot.fetch)].name;
  std::span left(static_cast<const std::byte*>(ids.data), at(ids.bytes));
  const std::int64_t* const ends = served.offsets.data() + block.gradient.offsets_begin + 1;
  std::int64_t begin = block.ids_begin;
  for (std::int64_t run = 0; run < block.gradient.bags; ++run) {
    const std::int64_t rows = ends[run] - begin;
    const std::int64_t read = kernels::unpack_ids(left, slot.id_bytes, slot.rows.size(),
                                                  {served.ids.data() + begin, at(rows)});
    if (read < 0) {
      fail(ErrorCode::kComm,
           "id exchange: run {} of the rows of table {} from rank {} is no packed list of {} rows "
           "below {}",
           run, table, from.world_rank, rows, slot.rows.size());
    }
    left = left.subspan(at(read));
    begin += rows;
  }
  if (!left.empty()) {
    fail(ErrorCode::kComm,
         "id exchange: {} packed rows of table {} from rank {} take {} bytes, {} announced",
         block.num_ids, table, from.world_rank, ids.bytes - std::ssize(left), ids.bytes);
  }
}

IncomingBlock UniqueRowsPath::own_block(const InputStep& input, const SlotAddress& address) const {
  IncomingBlock block = input.asked.own.blocks[input.asked.own_index(address)];
  block.parts_begin = input.served.run_parts_begin(runs_, rank_);
  return block;
}

/// The features' bags as the batch has them, with places among the unique rows in place of ids.
void UniqueRowsPath::place_own_features(InputStep& input) const {
  for (const RowFetch& fetch : routing_.fetches) {
    for (const std::int64_t f : fetch.features) {
      input.incoming.fetched[at(f)] = input.batch_block(routing_, f, rank_);
      input.incoming.fetched[at(f)].origin = IdOrigin::kPlaces;
    }
  }
}

/// A row's vector comes with the micro-batch that needs it first; all gradients leave with the last
/// one, since one sum per subtree of the rank is sent.
BlockCut UniqueRowsPath::served_cut(const InputStep& input,
                                    const ServedBlock& of,
                                    std::int64_t cut) const {
  const IncomingBlock& block = of.block;
  const Range runs = runs_.of_cut(of.source, cut);
  return {.bags = runs,
          .vectors = input.values_of(block.lookup, block.origin, runs),
          .gradients = {0, is_last(cut) ? block.gradients : 0}};
}

AskedCut UniqueRowsPath::asked_cut(const InputStep& input,
                                   const SlotAddress& address,
                                   const AskedSlot& asked,
                                   std::int64_t cut) const {
  const UniqueRows& rows = input.asked.rows.tables[at(routing_.kind(address).fetch)];
  const std::span<const std::int32_t> lengths = rows.lengths(routing_.row_cut(address));
  const Range runs = runs_.of_cut(rank_, cut);
  const std::int64_t first =
      std::accumulate(lengths.begin(), lengths.begin() + runs.begin, std::int64_t{0});
  const std::int64_t vectors =
      std::accumulate(lengths.begin() + runs.begin, lengths.begin() + runs.end, std::int64_t{0});
  return {.vectors = {first, first + vectors},
          .gradients = {0, is_last(cut) ? asked.gradients : 0}};
}

void UniqueRowsPath::list_work(const SlotAddress& address, VectorWork& work) const {
  work.copies.push_back({this, address});
}

void UniqueRowsPath::prepare(const InputStep& input, OutputStep& output) const {
  for (std::int64_t t = 0; t < num_tables(); ++t) {
    FetchedTable& table = output.fetched[at(t)];
    table.is_coalesced = false;
    table.rows = input.asked.rows.tables[at(t)].count();
    table.vectors.resize_for(layout::vectors(table.rows, routing_.fetches[at(t)].dim));
  }
}

VectorPlace UniqueRowsPath::vectors_to(const OutputStep& output, const SlotKind& slot) const {
  const std::int64_t dim = routing_.fetches[at(slot.fetch)].dim;
  return {output.fetched[at(slot.fetch)].vectors.as<float>() + slot.cols.begin, dim};
}

VectorPlace UniqueRowsPath::gradients_from(const OutputStep& output, const SlotKind& slot) const {
  const std::int64_t dim = routing_.fetches[at(slot.fetch)].dim;
  return {output.fetched[at(slot.fetch)].sums.vectors() + slot.cols.begin, dim};
}

/// Adds the bags of pooled features and copies sequences; then divides means.
void UniqueRowsPath::pool(Context& ctx,
                          const InputStep& input,
                          OutputStep& output,
                          std::int64_t cut) const {
  std::vector<kernels::BagLookup>& lookups = output.fetched_lookups;
  lookups.clear();
  for (std::int64_t t = 0; t < num_tables(); ++t) {
    const RowFetch& fetch = routing_.fetches[at(t)];
    for (const std::int64_t f : fetch.features) {
      const IncomingBlock& block = input.incoming.fetched[at(f)];
      const bool sequence = route(f).pooling == spec::Pooling::kNone;
      const BlockCut own = cut_of_all_bags(input, block, sequence, cut);
      const Matrix<float>& out = output.matrices.vectors_of(f);
      lookups.push_back({.weights = output.fetched[at(t)].vectors.as<float>(),
                         .weight_stride = 4 * fetch.dim,
                         .dtype = DType::kFloat32,
                         .cols = fetch.dim,
                         .bags = input.incoming.bags(block, block.lookup.part(own.bags)),
                         .pooled = !sequence,
                         .out = out.row(own.vectors.begin),
                         .out_stride = out.stride});
    }
  }
  kernels::embedding_bag(ctx, lookups);
  output.assembly.clear();
  const Range bags = routing_.cut_bags(input.batch().global_size, rank_, cut);
  for (const std::int64_t f : output.fetched_means) {
    const Matrix<float>& m = output.matrices.vectors_of(f);
    output.assembly.jobs.push_back({.to = {m.data, m.stride, m.cols},
                                    .bags = bags.size(),
                                    .first = bags.begin,
                                    .offsets = input.batch().sparse.feature(f).offsets.data()});
  }
  kernels::assemble_bags(ctx, output.assembly.jobs);
}

void UniqueRowsPath::add_blocks(const InputStep& input,
                                OutputStep& output,
                                std::int64_t fetch) const {
  std::vector<kernels::GradientBlock>& blocks = output.fetched[at(fetch)].blocks;
  blocks.clear();
  for (const std::int64_t f : routing_.fetches[at(fetch)].features) {
    const IncomingBlock& block = input.incoming.fetched[at(f)];
    const Matrix<float>& gradients = output.matrices.gradients_of(f);
    blocks.push_back({.bags = input.incoming.bags(block, block.gradient),
                      .pooled = route(f).pooling != spec::Pooling::kNone,
                      .grads = gradients.data,
                      .grad_stride = gradients.stride,
                      .parts = input.incoming.parts + block.parts_begin});
  }
}

void UniqueRowsPath::coalesce(Context& ctx, const InputStep& input, OutputStep& output) const {
  output.fetched_coalesces.clear();
  for (std::int64_t t = 0; t < num_tables(); ++t) {
    FetchedTable& table = output.fetched[at(t)];
    add_blocks(input, output, t);
    output.fetched_coalesces.push_back({.blocks = table.blocks,
                                        .rows = std::max<std::int64_t>(table.rows, 1),
                                        .parts = routing_.parts,
                                        .buffers = &table.buffers,
                                        .runs = &table.runs});
    table.is_coalesced = true;
  }
  kernels::coalesce(ctx, output.fetched_coalesces);
}

void UniqueRowsPath::sum_gradients(Context& ctx, const InputStep& input, OutputStep& output) const {
  if (std::any_of(output.fetched.begin(), output.fetched.end(),
                  [](const FetchedTable& table) { return !table.is_coalesced; })) {
    coalesce(ctx, input, output);
  }
  output.fetched_sums.clear();
  for (std::int64_t t = 0; t < num_tables(); ++t) {
    FetchedTable& table = output.fetched[at(t)];
    output.fetched_sums.push_back(
        {.sums = &table.sums, .runs = &table.runs, .cols = routing_.fetches[at(t)].dim});
  }
  embedding::PartialSums::sum(ctx, output.fetched_sums, routing_.own_parts(rank_));
}

VectorDraws UniqueRowsPath::vector_draws(const InputStep& input,
                                         const SlotAddress& address,
                                         std::int64_t source) const {
  const Slot slot = routing_.slot(address);
  const IncomingBlock& block = input.block(address, source);
  const kernels::Bags bags = input.incoming.bags(block, block.lookup);
  return {.of = VectorDraws::Of::kRows,
          .key = keys_.rows[at(slot.table)],
          .ids = bags.ids,
          .offsets = bags.offsets,
          .rows = slot.rows};
}

VectorDraws UniqueRowsPath::gradient_draws(const InputStep& input,
                                           const SlotAddress& address) const {
  const Slot slot = routing_.slot(address);
  const UniqueRows& rows = input.asked.rows.tables[at(slot.fetch)];
  return {.of = VectorDraws::Of::kPartialSums,
          .key = keys_.sums[at(slot.table)],
          .ids = rows.ids(slot.row_cut),
          .rows = slot.rows,
          .runs = rows.lengths(slot.row_cut),
          .run_parts = runs_.of(rank_).data()};
}

}  // namespace weft::sharding
