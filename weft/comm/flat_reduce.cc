#include <algorithm>
#include <cstddef>
#include <vector>

#include "weft/base/parts.h"
#include "weft/comm/rank_terms.h"
#include "weft/comm/slice_reduce.h"
#include "weft/comm/tree_sum.h"
#include "weft/tensor/buffer.h"

namespace weft::comm {
namespace {

class FlatReduce final : public SliceReduce {
 public:
  FlatReduce(Communicator& communicator, Device& device, const ReduceShape& shape);

  void run(Context& ctx, std::span<const std::uint8_t> present, float* out) override;

 private:
  [[nodiscard]] float* partial(std::size_t i) const {
    return partials_ + static_cast<std::int64_t>(i) * shape_.count;
  }

  void describe_lanes();
  void note_arrived(std::span<const Lane> arrived);
  void gather_sums(Context& ctx, float* out);

  Communicator& communicator_;
  ReduceShape shape_;
  std::size_t self_;
  Range slice_;  ///< of [0, count), this rank's
  std::vector<RankTerms> ranks_;
  TreeSum sum_;
  Buffer received_;                    ///< [partial sums of other ranks][slice], where not lent
  Buffer sums_;                        ///< sums on the way up the tree
  std::vector<const float*> rows_;     ///< [terms]
  std::vector<std::uint8_t> present_;  ///< [terms]
  std::vector<Piece> send_pieces_;
  std::vector<Piece> recv_pieces_;
  std::vector<Lane> send_;
  std::vector<Lane> recv_;
  std::vector<Piece> gather_pieces_;
  std::vector<Lane> gather_send_;
  std::vector<Lane> gather_recv_;
};

FlatReduce::FlatReduce(Communicator& communicator, Device& device, const ReduceShape& shape)
    : SliceReduce(shape.partials),
      communicator_(communicator),
      shape_(shape),
      self_(static_cast<std::size_t>(communicator.rank())),
      slice_(piece(shape.count, communicator.size(), communicator.rank())),
      ranks_(terms_of(shape.parts, communicator.size(), communicator.rank())),
      sum_(Range{0, shape.parts}, nodes_of(ranks_)) {
  std::size_t most = 0;
  std::size_t terms = 0;
  for (const RankTerms& rank : ranks_) {
    most = std::max(most, rank.nodes.size());
    terms += rank.nodes.size();
  }
  received_ = Buffer(device, shape.buffers.received);
  sums_ = Buffer(device, shape.buffers.waiting);
  rows_.resize(terms);
  present_.resize(terms);
  const std::size_t lanes = ranks_.size();
  send_pieces_.resize(lanes * (most + 1));
  recv_pieces_.resize(lanes * (most + 1));
  send_.resize(lanes);
  recv_.resize(lanes);
  gather_pieces_.resize(2 * lanes);
  gather_send_.resize(lanes, Lane{.pieces = {}, .silent = true});
  gather_recv_.resize(lanes, Lane{.pieces = {}, .silent = true});
  describe_lanes();
}

/// To every other rank the flags and its slices of the partial sums.
void FlatReduce::describe_lanes() {
  const std::size_t stride = send_pieces_.size() / ranks_.size();
  std::vector<std::uint8_t>& own_present = ranks_[self_].present;
  const std::size_t own_nodes = own_present.size();
  for (std::size_t p = 0; p < ranks_.size(); ++p) {
    if (p == self_) {
      send_[p] = recv_[p] = {.pieces = {}, .silent = true};
      continue;
    }
    const Range theirs = piece(shape_.count, communicator_.size(), static_cast<std::int64_t>(p));
    Piece* const send = &send_pieces_[p * stride];
    send[0] = {own_present.data(), static_cast<std::int64_t>(own_nodes)};
    for (std::size_t i = 0; i < own_nodes; ++i) {
      send[i + 1] = {partial(i) + theirs.begin, theirs.size() * kFloatBytes};
    }
    RankTerms& terms = ranks_[p];
    Piece* const recv = &recv_pieces_[p * stride];
    recv[0] = {terms.present.data(), static_cast<std::int64_t>(terms.present.size())};
    for (std::size_t i = 0; i < terms.nodes.size(); ++i) {
      float* const received = received_.as<float>();
      const std::int64_t at = (terms.first_row + static_cast<std::int64_t>(i)) * slice_.size();
      recv[i + 1] = {received == nullptr ? nullptr : received + at, slice_.size() * kFloatBytes};
    }
    send_[p] = {.pieces = {send, own_nodes + 1}, .silent = false};
    recv_[p] = {.pieces = {recv, terms.nodes.size() + 1}, .silent = false};
  }
}

/// Where this rank's slice of every partial sum lies, and which there are.
void FlatReduce::note_arrived(std::span<const Lane> arrived) {
  std::size_t term = 0;
  for (std::size_t p = 0; p < ranks_.size(); ++p) {
    for (std::size_t i = 0; i < ranks_[p].nodes.size(); ++i, ++term) {
      if (p == self_) {
        present_[term] = ranks_[p].present[i];
        rows_[term] = partial(i) + slice_.begin;
      } else {
        present_[term] = static_cast<const std::uint8_t*>(arrived[p].pieces[0].data)[i];
        rows_[term] = static_cast<const float*>(arrived[p].pieces[i + 1].data);
      }
    }
  }
  sum_.set_present(present_);
}

void FlatReduce::gather_sums(Context& ctx, float* out) {
  for (std::size_t p = 0; p < ranks_.size(); ++p) {
    if (p == self_) {
      continue;  // silent
    }
    const Range theirs = piece(shape_.count, communicator_.size(), static_cast<std::int64_t>(p));
    gather_pieces_[2 * p] = {out + slice_.begin, slice_.size() * kFloatBytes};
    gather_pieces_[2 * p + 1] = {out + theirs.begin, theirs.size() * kFloatBytes};
    gather_send_[p] = {.pieces = {&gather_pieces_[2 * p], 1}, .silent = false};
    gather_recv_[p] = {.pieces = {&gather_pieces_[2 * p + 1], 1}, .silent = false};
  }
  communicator_.exchange(ctx, gather_send_, gather_recv_);
}

void FlatReduce::run(Context& ctx, std::span<const std::uint8_t> present, float* out) {
  std::copy(present.begin(), present.end(), ranks_[self_].present.begin());
  communicator_.exchange_lent(ctx, send_, recv_, [&](std::span<const Lane> arrived) {
    note_arrived(arrived);
    const kernels::TermSum sum = sum_.job(slice_.size(), {.rows = rows_,
                                                          .scratch = sums_.as<float>(),
                                                          .stride = slice_.size(),
                                                          .out = out + slice_.begin});
    kernels::sum_terms(ctx, std::span(&sum, 1));
  });
  gather_sums(ctx, out);
}

}  // namespace

std::unique_ptr<SliceReduce> make_flat_reduce(Communicator& communicator,
                                              Device& device,
                                              const ReduceShape& shape) {
  return std::make_unique<FlatReduce>(communicator, device, shape);
}

}  // namespace weft::comm
