#include "weft/comm/ordered_reduce.h"

#include <algorithm>
#include <cstddef>

#include "weft/base/error.h"
#include "weft/comm/reduce_rows.h"

namespace weft::comm {

namespace {

constexpr auto kUnit = static_cast<std::int64_t>(sizeof(float));

}  // namespace

OrderedAllReduce::OrderedAllReduce(Communicator& communicator,
                                   Device& device,
                                   std::int64_t parts,
                                   std::int64_t count)
    : communicator_(communicator), parts_(parts), count_(count) {
  const int ranks = communicator.size();
  const int self = communicator.rank();
  WEFT_CHECK(ranks <= parts, "{} ranks share {} parts; a rank needs at least one", ranks, parts);
  slice_ = piece(count, ranks, self);
  std::int64_t rows = 0;
  std::size_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    RankTerms& terms = ranks_.emplace_back();
    terms.nodes = maximal_subtrees(parts, rank_parts(parts, ranks, rank));
    terms.present.resize(terms.nodes.size(), 1);
    terms.arrived_present = terms.present.data();
    terms.first_row = rows;
    most = std::max(most, terms.nodes.size());
    if (rank != self) {
      rows += static_cast<std::int64_t>(terms.nodes.size());
    }
  }
  adds_.reserve(static_cast<std::size_t>(parts));
  slots_.resize(static_cast<std::size_t>(tree_slots(parts)) + 1);
  partials_ = Buffer(device, num_partials() * count * kUnit);
  received_ = Buffer(device, communicator.lends() ? 0 : rows * slice_.size() * kUnit);
  const std::size_t lanes = ranks_.size();
  send_pieces_.resize(lanes * (most + 1));
  recv_pieces_.resize(lanes * (most + 1));
  send_.resize(lanes);
  recv_.resize(lanes);
  gather_pieces_.resize(2 * lanes);
  gather_send_.resize(lanes, Lane{.pieces = {}, .silent = true});
  gather_recv_.resize(lanes, Lane{.pieces = {}, .silent = true});
  describe_lanes();
  sums_ = Buffer(device, count_sums() * slice_.size() * kUnit);
}

/// To every other rank the flags and its slices of the partial sums.
void OrderedAllReduce::describe_lanes() {
  const auto self = static_cast<std::size_t>(communicator_.rank());
  const std::size_t stride = send_pieces_.size() / ranks_.size();
  std::vector<std::uint8_t>& own_present = ranks_[self].present;
  const std::size_t own_nodes = own_present.size();
  for (std::size_t p = 0; p < ranks_.size(); ++p) {
    if (p == self) {
      send_[p] = recv_[p] = {.pieces = {}, .silent = true};
      continue;
    }
    const Range theirs = piece(count_, communicator_.size(), static_cast<std::int64_t>(p));
    Piece* const send = &send_pieces_[p * stride];
    send[0] = {own_present.data(), static_cast<std::int64_t>(own_nodes)};
    for (std::size_t i = 0; i < own_nodes; ++i) {
      send[i + 1] = {partial(static_cast<std::int64_t>(i)) + theirs.begin, theirs.size() * kUnit};
    }
    RankTerms& terms = ranks_[p];
    Piece* const recv = &recv_pieces_[p * stride];
    recv[0] = {terms.present.data(), static_cast<std::int64_t>(terms.present.size())};
    terms.arrived = {recv + 1, terms.nodes.size()};
    for (std::size_t i = 0; i < terms.nodes.size(); ++i) {
      float* const received = received_.as<float>();
      const std::int64_t at = (terms.first_row + static_cast<std::int64_t>(i)) * slice_.size();
      recv[i + 1] = {received == nullptr ? nullptr : received + at, slice_.size() * kUnit};
    }
    send_[p] = {.pieces = {send, own_nodes + 1}, .silent = false};
    recv_[p] = {.pieces = {recv, terms.nodes.size() + 1}, .silent = false};
  }
}

const float* OrderedAllReduce::row(std::size_t rank, std::size_t i) const {
  if (rank == static_cast<std::size_t>(communicator_.rank())) {
    return partial(static_cast<std::int64_t>(i)) + slice_.begin;
  }
  return static_cast<const float*>(ranks_[rank].arrived[i].data);
}

void OrderedAllReduce::note_arrived(std::span<const Lane> arrived) {
  for (std::size_t p = 0; p < ranks_.size(); ++p) {
    if (!arrived[p].silent) {
      ranks_[p].arrived_present = static_cast<const std::uint8_t*>(arrived[p].pieces[0].data);
      ranks_[p].arrived = arrived[p].pieces.subspan(1);
    }
  }
}

/// Lists the additions up the tree over parts; returns what holds the total where there are none.
OrderedAllReduce::Term OrderedAllReduce::plan_adds() {
  adds_.clear();
  slots_[0] = {};
  // The walk meets the partial sums in order: ranks own increasing runs of parts.
  std::size_t rank = 0;
  std::size_t i = 0;
  const auto leaf = [&](Range node, int depth) {
    while (rank < ranks_.size() && i == ranks_[rank].nodes.size()) {
      ++rank;
      i = 0;
    }
    if (rank == ranks_.size() || !(ranks_[rank].nodes[i] == node)) {
      return false;
    }
    // Below an absent node nothing matches, as the next candidate begins behind it.
    const bool is_present = ranks_[rank].arrived_present[i] != 0;
    if (is_present) {
      slots_[static_cast<std::size_t>(depth)] = {.row = row(rank, i)};
    }
    ++i;
    return is_present;
  };
  const auto add = [&](int depth) {
    const auto slot = static_cast<std::size_t>(depth);
    adds_.push_back({.sum = depth, .a = slots_[slot], .b = slots_[slot + 1]});
    slots_[slot] = {.row = nullptr, .sum = depth};
  };
  sum_tree(Range{0, parts_}, 0, leaf, add);
  return slots_[0];
}

/// Rows of sums_ that are ever needed: those of a tree without an absent term, the total apart.
std::int64_t OrderedAllReduce::count_sums() {
  plan_adds();
  std::int64_t rows = 0;
  for (std::size_t i = 0; i + 1 < adds_.size(); ++i) {
    rows = std::max(rows, adds_[i].sum + 1);
  }
  return rows;
}

void OrderedAllReduce::add_block(Range block, const Term& total, float* out) {
  float* const sums = out + slice_.begin + block.begin;
  const auto sum_row = [&](std::int64_t row) {
    return sums_.as<float>() + row * slice_.size() + block.begin;
  };
  const auto term = [&](const Term& t) -> const float* {
    return t.row == nullptr ? sum_row(t.sum) : t.row + block.begin;
  };
  for (std::size_t i = 0; i < adds_.size(); ++i) {
    const Add& add = adds_[i];
    float* const to = i + 1 == adds_.size() ? sums : sum_row(add.sum);
    add_into(to, term(add.a), term(add.b), block.size());
  }
  if (adds_.empty() && total.row == nullptr) {
    std::fill_n(sums, block.size(), 0.0F);
  } else if (adds_.empty() && total.row + block.begin != sums) {
    std::copy_n(total.row + block.begin, block.size(), sums);
  }
}

void OrderedAllReduce::gather_sums(Context& ctx, float* out) {
  const auto self = static_cast<std::size_t>(communicator_.rank());
  for (std::size_t p = 0; p < ranks_.size(); ++p) {
    if (p == self) {
      continue;  // silent
    }
    const Range theirs = piece(count_, communicator_.size(), static_cast<std::int64_t>(p));
    gather_pieces_[2 * p] = {out + slice_.begin, slice_.size() * kUnit};
    gather_pieces_[2 * p + 1] = {out + theirs.begin, theirs.size() * kUnit};
    gather_send_[p] = {.pieces = {&gather_pieces_[2 * p], 1}, .silent = false};
    gather_recv_[p] = {.pieces = {&gather_pieces_[2 * p + 1], 1}, .silent = false};
  }
  communicator_.exchange(ctx, gather_send_, gather_recv_);
}

void OrderedAllReduce::run(Context& ctx, std::span<const std::uint8_t> present, float* out) {
  std::vector<std::uint8_t>& flags = ranks_[static_cast<std::size_t>(communicator_.rank())].present;
  WEFT_CHECK(present.size() == flags.size(), "{} presence flags for {} partial sums",
             present.size(), flags.size());
  std::copy(present.begin(), present.end(), flags.begin());
  communicator_.exchange_lent(ctx, send_, recv_, [&](std::span<const Lane> arrived) {
    note_arrived(arrived);
    const Term total = plan_adds();
    for_blocks(ctx.pool, slice_.size(), [&](Range block) { add_block(block, total, out); });
  });
  gather_sums(ctx, out);
}

const float* OrderedAllReduce::run(Context& ctx, std::span<const std::uint8_t> present) {
  run(ctx, present, partial(0));
  return partial(0);
}

namespace {

template <typename T>
void all_reduce_parts_any(Context& ctx,
                          Communicator& communicator,
                          std::int64_t parts,
                          std::span<T> values,
                          std::span<T> sums) {
  const auto width = static_cast<std::int64_t>(sums.size());
  const int ranks = communicator.size();
  WEFT_CHECK(static_cast<std::int64_t>(values.size()) == parts * width,
             "{} values for {} parts and {} sums", values.size(), parts, width);
  WEFT_CHECK(ranks <= parts, "{} ranks share {} parts; a rank needs at least one", ranks, parts);
  const std::int64_t row_bytes = width * static_cast<std::int64_t>(sizeof(T));
  std::vector<std::int64_t> recv_bytes;
  for (int rank = 0; rank < ranks; ++rank) {
    recv_bytes.push_back(rank_parts(parts, ranks, rank).size() * row_bytes);
  }
  const auto self = static_cast<std::size_t>(communicator.rank());
  communicator.all_gather_v(
      ctx, {.send = values.data() + rank_parts(parts, ranks, communicator.rank()).begin * width,
            .send_bytes = recv_bytes[self],
            .recv = values.data(),
            .recv_bytes = recv_bytes});
  std::vector<T> rows(values.begin(), values.end());
  reduce_rows<T>(nullptr, rows.data(), parts, width, ReduceOp::kSum);
  std::copy_n(rows.begin(), width, sums.begin());
}

}  // namespace

void all_reduce_parts(Context& ctx,
                      Communicator& communicator,
                      std::int64_t parts,
                      std::span<double> values,
                      std::span<double> sums) {
  all_reduce_parts_any(ctx, communicator, parts, values, sums);
}

void all_reduce_parts(Context& ctx,
                      Communicator& communicator,
                      std::int64_t parts,
                      std::span<std::int64_t> values,
                      std::span<std::int64_t> sums) {
  all_reduce_parts_any(ctx, communicator, parts, values, sums);
}

}  // namespace weft::comm
