// The flat form with a codec: slices of partial sums are encoded for their owners, the owners' sums
// for all. What stays on a rank is not encoded, but for the sum of the own slice.
//
// With error feedback the buffer of partial sums holds after a run what their encoding lost (zeros
// in the own slice); keeping it exchanges this buffer with that of the residuals.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/comm/rank_terms.h"
#include "weft/comm/relays.h"
#include "weft/comm/slice_codec.h"
#include "weft/comm/slice_reduce.h"
#include "weft/comm/tree_sum.h"
#include "weft/tensor/buffer.h"

namespace weft::comm {
namespace {

std::int64_t count_of(const std::vector<Range>& nodes) {
  return static_cast<std::int64_t>(nodes.size());
}

class CodedReduce final : public SliceReduce {
 public:
  CodedReduce(Communicator& communicator, Device& device, const ReduceShape& shape);

  void run(Context& ctx, std::span<const std::uint8_t> present, float* out) override;
  void keep_residuals() override;
  [[nodiscard]] std::vector<ResidualBlock> residuals() const override;

  [[nodiscard]] kernels::CodecClips clips() const override { return codec_.clips(); }

 private:
  [[nodiscard]] Range slice(std::int64_t rank) const {
    return piece(shape_.count, communicator_.size(), rank);
  }

  [[nodiscard]] std::int64_t ranks() const { return communicator_.size(); }

  void make_buffers(Device& device);
  void encode_partials(Context& ctx);
  void scatter(Context& ctx);
  void take_arrived(Context& ctx, std::span<const Lane> arrived);
  void add(Context& ctx);
  void gather(Context& ctx, float* out);
  void leave_residuals();

  Communicator& communicator_;
  ReduceShape shape_;
  std::int64_t self_;
  Range slice_;  ///< of [0, count), this rank's
  std::vector<RankTerms> terms_;
  std::int64_t own_terms_;
  std::int64_t other_terms_ = 0;
  std::int64_t first_term_ = 0;  ///< of this rank's, among those of all
  TreeSum sum_;
  SliceCodec codec_;
  Buffer spare_;  ///< [own terms][count], with feedback: partial sums and residuals take turns
  float* residual_ = nullptr;
  bool has_new_ = false;  ///< residuals, left by a run and not kept
  Buffer sent_;           ///< to each other rank its slices of all own terms
  Buffer received_;       ///< the own slice of others' terms, then their sums; where not lent
  Buffer rows_memory_;    ///< [terms of others][slice], decoded
  Buffer sums_;           ///< sums on the way up the tree
  Buffer total_, total_residual_;      ///< [slice]
  Buffer total_bytes_;                 ///< encoded
  std::vector<const float*> rows_;     ///< [terms]
  std::vector<std::uint8_t> present_;  ///< [terms]
  std::vector<SliceCodec::Source> sources_;
  std::vector<SliceCodec::Target> targets_;
  LaneList send_, recv_;
};

CodedReduce::CodedReduce(Communicator& communicator, Device& device, const ReduceShape& shape)
    : SliceReduce(shape.partials),
      communicator_(communicator),
      shape_(shape),
      self_(communicator.rank()),
      slice_(piece(shape.count, communicator.size(), communicator.rank())),
      terms_(terms_of(shape.parts, communicator.size(), communicator.rank())),
      own_terms_(count_of(terms_[at(self_)].nodes)),
      sum_(Range{0, shape.parts}, nodes_of(terms_)),
      codec_(shape.codec) {
  for (std::int64_t p = 0; p < ranks(); ++p) {
    const std::int64_t terms = count_of(terms_[at(p)].nodes);
    other_terms_ += p == self_ ? 0 : terms;
    first_term_ += p < self_ ? terms : 0;
  }
  rows_.resize(at(own_terms_ + other_terms_));
  present_.resize(rows_.size());
  make_buffers(device);
}

void CodedReduce::make_buffers(Device& device) {
  const layout::ReduceBuffers& lengths = shape_.buffers;
  sent_ = Buffer(device, lengths.sent);
  received_ = Buffer(device, lengths.received);
  rows_memory_ = Buffer(device, lengths.crossed);
  sums_ = Buffer(device, lengths.waiting);
  total_ = Buffer(device, lengths.total);
  total_bytes_ = Buffer(device, lengths.total_code);
  if (!codec_.has_feedback()) {
    return;
  }
  spare_ = Buffer(device, lengths.partial_residuals);
  residual_ = spare_.as<float>();
  total_residual_ = Buffer(device, lengths.total_residual);
  Context ctx{.device = &device};
  device.fill_zero(ctx, spare_.as<void>(), spare_.bytes());
  device.fill_zero(ctx, total_residual_.as<void>(), total_residual_.bytes());
}

void CodedReduce::encode_partials(Context& ctx) {
  sources_.clear();
  std::byte* to = sent_.as<std::byte>();
  for (std::int64_t p = 0; p < ranks(); ++p) {
    const Range theirs = slice(p);
    for (std::int64_t i = 0; p != self_ && i < own_terms_; ++i) {
      const std::int64_t from = i * shape_.count + theirs.begin;
      if (terms_[at(self_)].present[at(i)] != 0) {
        sources_.push_back({.values = partials_ + from,
                            .residual = residual_ == nullptr ? nullptr : residual_ + from,
                            .count = theirs.size(),
                            .to = to});
      }
      to += codec_.bytes(theirs.size());
    }
  }
  codec_.encode(ctx, sources_);
}

/// To every other rank the flags and its slices of the partial sums.
void CodedReduce::scatter(Context& ctx) {
  send_.clear();
  recv_.clear();
  std::byte* from = sent_.as<std::byte>();
  std::byte* to = received_.as<std::byte>();
  for (std::int64_t p = 0; p < ranks(); ++p) {
    send_.next();
    recv_.next();
    if (p == self_) {
      continue;  // silent
    }
    const std::int64_t send_bytes = own_terms_ * codec_.bytes(slice(p).size());
    std::vector<std::uint8_t>& own_present = terms_[at(self_)].present;
    send_.add({own_present.data(), own_terms_});
    send_.add({from, send_bytes});
    from += send_bytes;
    RankTerms& theirs = terms_[at(p)];
    const std::int64_t recv_bytes = count_of(theirs.nodes) * codec_.bytes(slice_.size());
    recv_.add({theirs.present.data(), count_of(theirs.nodes)});
    recv_.add({to, recv_bytes});
    to += to == nullptr ? 0 : recv_bytes;
  }
  communicator_.exchange_lent(ctx, send_.lanes(), recv_.lanes(),
                              [&](std::span<const Lane> arrived) { take_arrived(ctx, arrived); });
}

/// Decodes what others sent, and notes where this rank's slice of every partial sum lies.
void CodedReduce::take_arrived(Context& ctx, std::span<const Lane> arrived) {
  targets_.clear();
  const std::int64_t bytes = codec_.bytes(slice_.size());
  std::size_t term = 0;
  for (std::int64_t p = 0; p < ranks(); ++p) {
    const RankTerms& terms = terms_[at(p)];
    for (std::int64_t i = 0; i < count_of(terms.nodes); ++i, ++term) {
      if (p == self_) {
        present_[term] = terms.present[at(i)];
        rows_[term] = partials_ + i * shape_.count + slice_.begin;
        continue;
      }
      const std::span<const Piece> pieces = arrived[at(p)].pieces;
      float* const row = rows_memory_.as<float>() + (terms.first_row + i) * slice_.size();
      present_[term] = static_cast<const std::uint8_t*>(pieces[0].data)[i];
      rows_[term] = row;
      if (present_[term] != 0) {
        targets_.push_back({.from = static_cast<const std::byte*>(pieces[1].data) + i * bytes,
                            .count = slice_.size(),
                            .values = row});
      }
    }
  }
  codec_.decode(ctx, targets_);
}

void CodedReduce::add(Context& ctx) {
  sum_.set_present(present_);
  const kernels::TermSum sum = sum_.job(slice_.size(), {.rows = rows_,
                                                        .scratch = sums_.as<float>(),
                                                        .stride = slice_.size(),
                                                        .out = total_.as<float>()});
  kernels::sum_terms(ctx, std::span(&sum, 1));
}

/// The sum of the own slice to all.
void CodedReduce::gather(Context& ctx, float* out) {
  const SliceCodec::Source own{.values = total_.as<float>(),
                               .residual = total_residual_.as<float>(),
                               .count = slice_.size(),
                               .to = total_bytes_.as<std::byte>(),
                               .decoded = out + slice_.begin};
  codec_.encode(ctx, std::span(&own, 1));
  send_.clear();
  recv_.clear();
  std::byte* to = received_.as<std::byte>();
  for (std::int64_t p = 0; p < ranks(); ++p) {
    send_.next();
    recv_.next();
    if (p == self_) {
      continue;
    }
    const std::int64_t bytes = codec_.bytes(slice(p).size());
    send_.add({total_bytes_.as<std::byte>(), codec_.bytes(slice_.size())});
    recv_.add({to, bytes});
    to += to == nullptr ? 0 : bytes;
  }
  communicator_.exchange_lent(
      ctx, send_.lanes(), recv_.lanes(), [&](std::span<const Lane> arrived) {
        targets_.clear();
        for (std::int64_t p = 0; p < ranks(); ++p) {
          if (p != self_) {
            targets_.push_back(
                {.from = static_cast<const std::byte*>(arrived[at(p)].pieces[0].data),
                 .count = slice(p).size(),
                 .values = out + slice(p).begin});
          }
        }
        codec_.decode(ctx, targets_);
      });
}

/// In the buffer of partial sums, what encoding them has lost: of an absent one what was lost
/// before, of the own slice nothing.
void CodedReduce::leave_residuals() {
  for (std::int64_t i = 0; i < own_terms_; ++i) {
    float* const row = partials_ + i * shape_.count;
    if (terms_[at(self_)].present[at(i)] == 0) {
      std::copy_n(residual_ + i * shape_.count, shape_.count, row);
    }
    std::fill_n(row + slice_.begin, slice_.size(), 0.0F);
  }
  has_new_ = true;
}

void CodedReduce::run(Context& ctx, std::span<const std::uint8_t> present, float* out) {
  std::copy(present.begin(), present.end(), terms_[at(self_)].present.begin());
  encode_partials(ctx);
  scatter(ctx);
  add(ctx);
  gather(ctx, out);
  if (codec_.has_feedback()) {
    leave_residuals();
  }
}

void CodedReduce::keep_residuals() {
  if (std::exchange(has_new_, false)) {
    std::swap(partials_, residual_);
    std::swap(total_, total_residual_);
  }
}

std::vector<ResidualBlock> CodedReduce::residuals() const {
  if (!codec_.has_feedback()) {
    return {};
  }
  return {{.of_sums = false,
           .rows = own_terms_ + other_terms_,
           .row_range = {first_term_, first_term_ + own_terms_},
           .col_range = {0, shape_.count},
           .data = residual_,
           .stride = shape_.count},
          {.of_sums = true,
           .rows = 1,
           .row_range = {0, 1},
           .col_range = slice_,
           .data = total_residual_.as<float>(),
           .stride = slice_.size()}};
}

}  // namespace

std::unique_ptr<SliceReduce> make_coded_reduce(Communicator& communicator,
                                               Device& device,
                                               const ReduceShape& shape) {
  return std::make_unique<CodedReduce>(communicator, device, shape);
}

}  // namespace weft::comm
