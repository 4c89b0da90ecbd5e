#include "weft/comm/ordered_reduce.h"

#include <algorithm>
#include <cstddef>

#include "weft/base/error.h"
#include "weft/comm/reduce_rows.h"

namespace weft::comm {

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
    terms.present.resize(terms.nodes.size());
    terms.first_row = rows;
    most = std::max(most, terms.nodes.size());
    if (rank != self) {
      rows += static_cast<std::int64_t>(terms.nodes.size());
    }
  }
  partials_ = Buffer(device, num_partials() * count * static_cast<std::int64_t>(sizeof(float)));
  received_ = Buffer(device, rows * slice_.size() * static_cast<std::int64_t>(sizeof(float)));
  adds_.reserve(static_cast<std::size_t>(parts));
  slots_.resize(static_cast<std::size_t>(tree_slots(parts)) + 1);
  const std::size_t lanes = ranks_.size();
  send_pieces_.resize(lanes * (most + 1));
  recv_pieces_.resize(lanes * (most + 1));
  send_.resize(lanes);
  recv_.resize(lanes);
}

float* OrderedAllReduce::row(std::size_t rank, std::size_t i) const {
  if (rank == static_cast<std::size_t>(communicator_.rank())) {
    return partial(static_cast<std::int64_t>(i)) + slice_.begin;
  }
  return received_.as<float>() +
         (ranks_[rank].first_row + static_cast<std::int64_t>(i)) * slice_.size();
}

void OrderedAllReduce::exchange_slices(Context& ctx) {
  const auto unit = static_cast<std::int64_t>(sizeof(float));
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
      send[i + 1] = {partial(static_cast<std::int64_t>(i)) + theirs.begin, theirs.size() * unit};
    }
    RankTerms& terms = ranks_[p];
    Piece* const recv = &recv_pieces_[p * stride];
    recv[0] = {terms.present.data(), static_cast<std::int64_t>(terms.present.size())};
    for (std::size_t i = 0; i < terms.nodes.size(); ++i) {
      recv[i + 1] = {row(p, i), slice_.size() * unit};
    }
    send_[p] = {.pieces = {send, own_nodes + 1}, .silent = false};
    recv_[p] = {.pieces = {recv, terms.nodes.size() + 1}, .silent = false};
  }
  communicator_.exchange(ctx, send_, recv_);
}

float* OrderedAllReduce::plan_adds() {
  adds_.clear();
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
    const bool is_present = ranks_[rank].present[i] != 0;
    if (is_present) {
      slots_[static_cast<std::size_t>(depth)] = row(rank, i);
    }
    ++i;
    return is_present;
  };
  const auto add = [&](int depth) {
    const auto slot = static_cast<std::size_t>(depth);
    adds_.push_back({slots_[slot], slots_[slot + 1]});
  };
  return sum_tree(Range{0, parts_}, 0, leaf, add) ? slots_[0] : nullptr;
}

void OrderedAllReduce::add_slices(Context& ctx, const float* total, float* out) const {
  for_blocks(ctx.pool, slice_.size(), [&](Range block) {
    for (const Add& add : adds_) {
      reduce_into(add.to + block.begin, add.from + block.begin, block.size(), ReduceOp::kSum);
    }
    float* const sums = out + slice_.begin + block.begin;
    if (total == nullptr) {
      std::fill_n(sums, block.size(), 0.0F);
    } else {
      std::copy_n(total + block.begin, block.size(), sums);
    }
  });
}

void OrderedAllReduce::gather_sums(Context& ctx, float* out) {
  const auto unit = static_cast<std::int64_t>(sizeof(float));
  const auto self = static_cast<std::size_t>(communicator_.rank());
  for (std::size_t p = 0; p < ranks_.size(); ++p) {
    if (p == self) {
      continue;  // silent since exchange_slices()
    }
    const Range theirs = piece(count_, communicator_.size(), static_cast<std::int64_t>(p));
    send_pieces_[p] = {out + slice_.begin, slice_.size() * unit};
    recv_pieces_[p] = {out + theirs.begin, theirs.size() * unit};
    send_[p] = {.pieces = {&send_pieces_[p], 1}, .silent = false};
    recv_[p] = {.pieces = {&recv_pieces_[p], 1}, .silent = false};
  }
  communicator_.exchange(ctx, send_, recv_);
}

void OrderedAllReduce::run(Context& ctx, std::span<const std::uint8_t> present, float* out) {
  std::vector<std::uint8_t>& own = ranks_[static_cast<std::size_t>(communicator_.rank())].present;
  WEFT_CHECK(present.size() == own.size(), "{} presence flags for {} partial sums", present.size(),
             own.size());
  std::copy(present.begin(), present.end(), own.begin());
  exchange_slices(ctx);
  const float* const total = plan_adds();
  add_slices(ctx, total, out);
  gather_sums(ctx, out);
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
