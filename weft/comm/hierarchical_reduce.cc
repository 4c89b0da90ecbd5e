// Partial sums are added inside each host as far as they make whole subtrees, cross hosts once per
// host, and the sums come back the same way.
//
// Notation: slice s is owned by rank s; on every other host its deputy (weft/base/host_layout.h)
// acts for it. A rank's shares are the slices for which it acts on its host: its own and those
// whose deputy it is. The hosts' shares of its ranks are all slices.
//
//   collect   in the host   to each rank its shares of this rank's partial sums; it adds them to
//                           the host's partial sums
//   combine   across        from the deputies the hosts' partial sums of a slice reach its owner,
//                           which adds those of all hosts
//   return    across        its sum reaches the deputies, and all ranks of their hosts
//
// How they cross is weft/comm/slice_crossing.h. With a codec what combine sends is encoded, by the
// deputies; the owner encodes its sum, whose bytes are forwarded. With error feedback the host's
// partial sums are replaced by what their encoding lost (zeros of the own slice), and keeping it
// exchanges the two buffers.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/host_layout.h"
#include "weft/base/parts.h"
#include "weft/comm/relays.h"
#include "weft/comm/slice_codec.h"
#include "weft/comm/slice_crossing.h"
#include "weft/comm/slice_reduce.h"
#include "weft/comm/tree_sum.h"
#include "weft/tensor/buffer.h"

namespace weft::comm {
namespace {

HostLayout layout_of(const Communicator& communicator) {
  std::vector<int> hosts;
  for (int p = 0; p < communicator.size(); ++p) {
    hosts.push_back(communicator.host(p));
  }
  return HostLayout(hosts);
}

/// A partial sum of a rank of this host: the rank's place, and which of its own.
struct LocalTerm {
  std::size_t place = 0;
  std::size_t index = 0;
  Range parts;
};

/// A sum at a node that a host contributes: terms [begin, end) of its ranks.
struct HostNode {
  TreeSum sum;
  std::size_t begin = 0;
  std::size_t end = 0;
};

class HierarchicalReduce final : public SliceReduce {
 public:
  HierarchicalReduce(Communicator& communicator, Device& device, const ReduceShape& shape);

  void run(Context& ctx, std::span<const std::uint8_t> present, float* out) override;
  void keep_residuals() override;
  [[nodiscard]] std::vector<ResidualBlock> residuals() const override;

  [[nodiscard]] kernels::CodecClips clips() const override {
    return codec_ ? codec_->clips() : kernels::CodecClips{};
  }

 private:
  [[nodiscard]] Range slice(int rank) const { return piece(shape_.count, layout_.ranks(), rank); }

  [[nodiscard]] const std::vector<int>& here() const { return layout_.ranks_of(host_); }

  /// Where the host's partial sum `node` of the share that begins at `offset` lies.
  [[nodiscard]] float* host_row(std::size_t node, std::int64_t offset) const {
    return host_sums_.as<float>() + static_cast<std::int64_t>(node) * share_floats_ + offset;
  }

  [[nodiscard]] bool has_feedback() const { return codec_ && codec_->has_feedback(); }

  [[nodiscard]] const std::vector<int>& own_shares() const {
    return shares_[at(layout_.place(self_))];
  }

  /// Bytes of a slice on its way.
  [[nodiscard]] std::int64_t wire_bytes(int owner) const {
    return codec_ ? codec_->bytes(slice(owner).size()) : slice(owner).size() * kFloatBytes;
  }

  /// Where the sum of a slice lies when it travels.
  [[nodiscard]] std::byte* wire_sum(int owner, float* out) const {
    return codec_ ? sum_bytes_.as<std::byte>() + sum_begin_[at(owner)]
                  : reinterpret_cast<std::byte*>(out + slice(owner).begin);
  }

  void make_crossing(Device& device);
  void list_local_terms();
  void list_all_terms();
  void make_buffers(Device& device);
  void make_codec_buffers(Device& device);
  void place_arrivals(std::byte* place, std::int64_t bytes_of_each);
  void encode_host_sums(Context& ctx);
  void decode_crossed(Context& ctx);
  void encode_sum(Context& ctx, float* out);
  void decode_sums(Context& ctx, float* out);
  void leave_residuals();
  void collect(Context& ctx);
  void add_local(Context& ctx, std::span<const Lane> arrived);
  void combine(Context& ctx);
  void add_all(Context& ctx, float* out);
  void send_back(Context& ctx, float* out);

  Communicator& all_;
  Communicator& inside_;
  ReduceShape shape_;
  HostLayout layout_;
  int self_;
  int host_;
  std::vector<std::vector<int>> shares_;  ///< [ranks here]
  std::int64_t share_floats_ = 0;         ///< of this rank
  std::vector<std::size_t> partials_of_;  ///< [ranks here] how many each has
  std::vector<LocalTerm> local_terms_;
  std::vector<HostNode> nodes_;
  std::vector<HostTerms> hosts_;    ///< [H]
  std::vector<std::size_t> order_;  ///< of the root's terms among hosts_', host by host
  TreeSum total_{Range{0, 1}, {}};
  std::vector<std::uint8_t> own_present_;                 ///< of this rank's partial sums
  std::vector<std::vector<std::uint8_t>> local_present_;  ///< [ranks here], received
  std::vector<std::uint8_t> term_present_;                ///< scratch of both additions
  std::vector<const float*> rows_;                        ///< scratch of both additions
  Buffer received_;   ///< partial sums of this host's other ranks, where not lent
  Buffer host_sums_;  ///< [nodes][shares]
  Buffer crossed_;    ///< partial sums of other hosts, of the own slice
  Buffer scratch_;    ///< sums on the way up a tree
  std::int64_t scratch_stride_ = 0;
  std::vector<const float*> by_host_;          ///< scratch of add_all
  std::vector<std::uint8_t> present_by_host_;  ///< scratch of add_all
  LaneList send_, recv_;
  LaneList host_lanes_;           ///< [own shares] the host's partial sums
  std::vector<Piece> wire_sums_;  ///< [ranks] sums of slices as they travel
  std::unique_ptr<SliceCrossing> crossing_;

  // With a codec.
  std::optional<SliceCodec> codec_;
  Buffer host_residual_;                 ///< as host_sums_, with feedback
  bool has_new_ = false;                 ///< residuals, left by a run and not kept
  Buffer host_bytes_;                    ///< of each share but the own, its partial sums
  Buffer crossed_bytes_;                 ///< what crossed_ is decoded from
  Buffer sum_, sum_residual_;            ///< [own slice]
  Buffer sum_bytes_;                     ///< of all slices, rank by rank
  std::vector<std::int64_t> sum_begin_;  ///< [ranks] in sum_bytes_
  std::vector<SliceCodec::Source> sources_;
  std::vector<SliceCodec::Target> targets_;
};

HierarchicalReduce::HierarchicalReduce(Communicator& communicator,
                                       Device& device,
                                       const ReduceShape& shape)
    : SliceReduce(shape.partials),
      all_(communicator),
      inside_(*communicator.host_group()),
      shape_(shape),
      layout_(layout_of(communicator)),
      self_(communicator.rank()),
      host_(layout_.host(self_)),
      shares_(shares_of_host(layout_, host_, shape.crossing)) {
  for (const int owner : own_shares()) {
    share_floats_ += slice(owner).size();
  }
  list_local_terms();
  list_all_terms();
  make_buffers(device);
  if (shape.codec.codec.format != CodecFormat::kFp32) {
    codec_.emplace(shape.codec);
    make_codec_buffers(device);
  }
  wire_sums_.resize(at(layout_.ranks()));
  make_crossing(device);
}

void HierarchicalReduce::make_crossing(Device& device) {
  SliceCrossing::Setting setting{
      .all = all_, .inside = inside_, .layout = layout_, .shares = shares_, .slice_bytes = {}};
  for (const int rank : here()) {
    setting.slice_bytes.push_back(wire_bytes(rank));
  }
  crossing_ = shape_.crossing == Crossing::kDirect
                  ? make_direct_crossing(setting)
                  : make_relayed_crossing(setting, Buffer(device, shape_.buffers.passed));
}

/// Partial sums of this host's ranks, and the sums to which they add up.
void HierarchicalReduce::list_local_terms() {
  for (std::size_t place = 0; place < here().size(); ++place) {
    const auto nodes =
        maximal_subtrees(shape_.parts, rank_parts(shape_.parts, layout_.ranks(), here()[place]));
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      local_terms_.push_back({.place = place, .index = i, .parts = nodes[i]});
    }
    partials_of_.push_back(nodes.size());
    local_present_.emplace_back(nodes.size());
  }
  own_present_.resize(partials_of_[at(layout_.place(self_))]);
  std::size_t next = 0;
  for (const Range& node : host_subtrees(layout_, shape_.parts, host_)) {
    const std::size_t begin = next;
    std::vector<Range> terms;
    while (next < local_terms_.size() && local_terms_[next].parts.end <= node.end) {
      terms.push_back(local_terms_[next++].parts);
    }
    nodes_.push_back({.sum = TreeSum(node, terms), .begin = begin, .end = next});
  }
}

/// Partial sums of all hosts; those of ranks that do not lie one behind the other interleave.
void HierarchicalReduce::list_all_terms() {
  std::vector<Range> terms;
  for (int h = 0; h < layout_.hosts(); ++h) {
    const std::vector<Range> nodes = host_subtrees(layout_, shape_.parts, h);
    hosts_.push_back({.count = nodes.size(),
                      .present = std::vector<std::uint8_t>(nodes.size()),
                      .arrived = nullptr});
    terms.insert(terms.end(), nodes.begin(), nodes.end());
  }
  for (std::size_t i = 0; i < terms.size(); ++i) {
    order_.push_back(i);
  }
  std::sort(order_.begin(), order_.end(),
            [&](std::size_t a, std::size_t b) { return terms[a].begin < terms[b].begin; });
  std::vector<Range> sorted;
  for (const std::size_t i : order_) {
    sorted.push_back(terms[i]);
  }
  total_ = TreeSum(Range{0, shape_.parts}, sorted);
}

void HierarchicalReduce::make_buffers(Device& device) {
  const layout::ReduceBuffers& lengths = shape_.buffers;
  received_ = Buffer(device, lengths.received);
  host_sums_ = Buffer(device, lengths.host_sums);
  crossed_ = Buffer(device, lengths.crossed);
  scratch_ = Buffer(device, lengths.waiting);
  place_arrivals(crossed_.as<std::byte>(), slice(self_).size() * kFloatBytes);
  for (const int owner : own_shares()) {
    scratch_stride_ = std::max(scratch_stride_, slice(owner).size());
  }
  rows_.resize(std::max(order_.size(), local_terms_.size()));
  term_present_.resize(rows_.size());
}

/// Other hosts' partial sums of the own slice lie one behind the other.
void HierarchicalReduce::place_arrivals(std::byte* place, std::int64_t bytes_of_each) {
  for (int h = 0; h < layout_.hosts(); ++h) {
    if (h != host_) {
      hosts_[at(h)].arrived = place;
      place += static_cast<std::int64_t>(hosts_[at(h)].count) * bytes_of_each;
    }
  }
}

void HierarchicalReduce::make_codec_buffers(Device& device) {
  const layout::ReduceBuffers& lengths = shape_.buffers;
  host_bytes_ = Buffer(device, lengths.sent);
  crossed_bytes_ = Buffer(device, lengths.crossed_code);
  place_arrivals(crossed_bytes_.as<std::byte>(), wire_bytes(self_));
  std::int64_t begin = 0;
  for (int owner = 0; owner < layout_.ranks(); ++owner) {
    sum_begin_.push_back(begin);
    begin += wire_bytes(owner);
  }
  sum_bytes_ = Buffer(device, lengths.total_code);
  sum_ = Buffer(device, lengths.total);
  if (!has_feedback()) {
    return;
  }
  host_residual_ = Buffer(device, lengths.partial_residuals);
  sum_residual_ = Buffer(device, lengths.total_residual);
  Context ctx{.device = &device};
  device.fill_zero(ctx, host_residual_.as<void>(), host_residual_.bytes());
  device.fill_zero(ctx, sum_residual_.as<void>(), sum_residual_.bytes());
}

void HierarchicalReduce::collect(Context& ctx) {
  send_.clear();
  recv_.clear();
  auto* received = received_.as<float>();
  const auto add = [](LaneList& lanes, float* data, std::int64_t floats) {
    lanes.add({data, floats * kFloatBytes});
  };
  for (std::size_t place = 0; place < here().size(); ++place) {
    send_.next();
    recv_.next();
    if (here()[place] == self_) {
      continue;
    }
    send_.add({own_present_.data(), static_cast<std::int64_t>(own_present_.size())});
    for (std::size_t i = 0; i < own_present_.size(); ++i) {
      for (const int owner : shares_[place]) {
        float* const partial = partials_ + static_cast<std::int64_t>(i) * shape_.count;
        add(send_, partial + slice(owner).begin, slice(owner).size());
      }
    }
    recv_.add({local_present_[place].data(), static_cast<std::int64_t>(partials_of_[place])});
    for (std::size_t i = 0; i < partials_of_[place]; ++i) {
      for (const int owner : own_shares()) {
        add(recv_, received, slice(owner).size());
        received += received == nullptr ? 0 : slice(owner).size();
      }
    }
  }
  inside_.exchange_lent(ctx, send_.lanes(), recv_.lanes(),
                        [&](std::span<const Lane> arrived) { add_local(ctx, arrived); });
}

/// The host's partial sums of this rank's shares.
void HierarchicalReduce::add_local(Context& ctx, std::span<const Lane> arrived) {
  const std::vector<int>& shares = own_shares();
  const auto own_place = at(layout_.place(self_));
  std::vector<std::uint8_t>& host_present = hosts_[at(host_)].present;
  for (std::size_t t = 0; t < local_terms_.size(); ++t) {
    const LocalTerm& term = local_terms_[t];
    term_present_[t] =
        term.place == own_place
            ? own_present_[term.index]
            : static_cast<const std::uint8_t*>(arrived[term.place].pieces[0].data)[term.index];
  }
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    HostNode& node = nodes_[n];
    host_present[n] = node.sum.set_present(std::span(term_present_).subspan(node.begin)) ? 1 : 0;
  }
  std::int64_t offset = 0;
  for (std::size_t j = 0; j < shares.size(); ++j) {
    const Range range = slice(shares[j]);
    for (std::size_t t = 0; t < local_terms_.size(); ++t) {
      const LocalTerm& term = local_terms_[t];
      rows_[t] =
          term.place == own_place
              ? partials_ + static_cast<std::int64_t>(term.index) * shape_.count + range.begin
              : static_cast<const float*>(
                    arrived[term.place].pieces[1 + term.index * shares.size() + j].data);
    }
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const HostNode& node = nodes_[n];
      const kernels::TermSum sum = node.sum.job(
          range.size(), {.rows = std::span(rows_).subspan(node.begin, node.end - node.begin),
                         .scratch = scratch_.as<float>(),
                         .stride = scratch_stride_,
                         .out = host_row(n, offset)});
      kernels::sum_terms(ctx, std::span(&sum, 1));
    }
    offset += range.size();
  }
}

/// Share by share, in the order in which combine() sends them.
void HierarchicalReduce::encode_host_sums(Context& ctx) {
  const std::vector<std::uint8_t>& present = hosts_[at(host_)].present;
  sources_.clear();
  std::int64_t offset = 0;
  std::byte* to = host_bytes_.as<std::byte>();
  for (const int owner : own_shares()) {
    for (std::size_t n = 0; owner != self_ && n < nodes_.size(); ++n) {
      float* const row = host_row(n, offset);
      if (present[n] != 0) {
        sources_.push_back({.values = row,
                            .residual = has_feedback()
                                            ? host_residual_.as<float>() + (row - host_row(0, 0))
                                            : nullptr,
                            .count = slice(owner).size(),
                            .to = to});
      }
      to += wire_bytes(owner);
    }
    offset += slice(owner).size();
  }
  codec_->encode(ctx, sources_);
}

/// To the owners for which this rank acts the host's partial sums, and those of other hosts here.
void HierarchicalReduce::combine(Context& ctx) {
  host_lanes_.clear();
  std::int64_t offset = 0;
  auto* encoded = host_bytes_.as<std::byte>();
  for (const int owner : own_shares()) {
    host_lanes_.next();
    for (std::size_t n = 0; owner != self_ && n < nodes_.size(); ++n) {
      if (codec_) {
        host_lanes_.add({std::exchange(encoded, encoded + wire_bytes(owner)), wire_bytes(owner)});
      } else {
        host_lanes_.add({host_row(n, offset), wire_bytes(owner)});
      }
    }
    offset += slice(owner).size();
  }
  crossing_->combine(ctx, host_lanes_.lanes(), hosts_);
}

void HierarchicalReduce::decode_crossed(Context& ctx) {
  targets_.clear();
  const std::int64_t floats = slice(self_).size();
  auto* values = crossed_.as<float>();
  for (int h = 0; h < layout_.hosts(); ++h) {
    const HostTerms& terms = hosts_[at(h)];
    for (std::size_t n = 0; h != host_ && n < terms.count; ++n) {
      if (terms.present[n] != 0) {
        const auto row = static_cast<std::int64_t>(n);
        targets_.push_back(
            {.from = terms.arrived + row * wire_bytes(self_), .count = floats, .values = values});
      }
      values += floats;
    }
  }
  codec_->decode(ctx, targets_);
}

/// The sum of the own slice, from all hosts' partial sums.
void HierarchicalReduce::add_all(Context& ctx, float* out) {
  const Range own = slice(self_);
  // As they lie host by host, then in the order of parts.
  by_host_.clear();
  present_by_host_.clear();
  const auto* crossed = crossed_.as<float>();
  for (int h = 0; h < layout_.hosts(); ++h) {
    const HostTerms& terms = hosts_[at(h)];
    for (std::size_t n = 0; n < terms.count; ++n) {
      // The own slice is the first of this rank's shares.
      by_host_.push_back(h == host_ ? host_row(n, 0) : crossed);
      crossed += h == host_ ? 0 : own.size();
      present_by_host_.push_back(terms.present[n]);
    }
  }
  for (std::size_t t = 0; t < order_.size(); ++t) {
    rows_[t] = by_host_[order_[t]];
    term_present_[t] = present_by_host_[order_[t]];
  }
  total_.set_present(term_present_);
  const kernels::TermSum sum =
      total_.job(own.size(), {.rows = rows_,
                              .scratch = scratch_.as<float>(),
                              .stride = scratch_stride_,
                              .out = codec_ ? sum_.as<float>() : out + own.begin});
  kernels::sum_terms(ctx, std::span(&sum, 1));
}

void HierarchicalReduce::encode_sum(Context& ctx, float* out) {
  const SliceCodec::Source own{.values = sum_.as<float>(),
                               .residual = sum_residual_.as<float>(),
                               .count = slice(self_).size(),
                               .to = wire_sum(self_, out),
                               .decoded = out + slice(self_).begin};
  codec_->encode(ctx, std::span(&own, 1));
}

void HierarchicalReduce::decode_sums(Context& ctx, float* out) {
  targets_.clear();
  for (int owner = 0; owner < layout_.ranks(); ++owner) {
    if (owner != self_) {
      targets_.push_back({.from = wire_sum(owner, out),
                          .count = slice(owner).size(),
                          .values = out + slice(owner).begin});
    }
  }
  codec_->decode(ctx, targets_);
}

/// In the host's partial sums, what encoding them has lost: of an absent one what was lost before,
/// of the own slice, the first of the shares, nothing.
void HierarchicalReduce::leave_residuals() {
  const std::vector<std::uint8_t>& present = hosts_[at(host_)].present;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    float* const row = host_row(n, 0);
    if (present[n] == 0) {
      std::copy_n(host_residual_.as<float>() + (row - host_row(0, 0)), share_floats_, row);
    }
    std::fill_n(row, slice(self_).size(), 0.0F);
  }
  has_new_ = true;
}

void HierarchicalReduce::send_back(Context& ctx, float* out) {
  for (int owner = 0; owner < layout_.ranks(); ++owner) {
    wire_sums_[at(owner)] = {wire_sum(owner, out), wire_bytes(owner)};
  }
  crossing_->send_back(ctx, wire_sums_);
}

void HierarchicalReduce::run(Context& ctx, std::span<const std::uint8_t> present, float* out) {
  std::copy(present.begin(), present.end(), own_present_.begin());
  collect(ctx);
  if (codec_) {
    encode_host_sums(ctx);
  }
  combine(ctx);
  if (codec_) {
    decode_crossed(ctx);
  }
  add_all(ctx, out);
  if (codec_) {
    encode_sum(ctx, out);
  }
  send_back(ctx, out);
  if (codec_) {
    decode_sums(ctx, out);
  }
  if (has_feedback()) {
    leave_residuals();
  }
}

void HierarchicalReduce::keep_residuals() {
  if (std::exchange(has_new_, false)) {
    std::swap(host_sums_, host_residual_);
    std::swap(sum_, sum_residual_);
  }
}

std::vector<ResidualBlock> HierarchicalReduce::residuals() const {
  std::vector<ResidualBlock> blocks;
  if (!has_feedback()) {
    return blocks;
  }
  std::int64_t first = 0;
  std::int64_t rows = 0;
  for (int h = 0; h < layout_.hosts(); ++h) {
    first += h < host_ ? static_cast<std::int64_t>(hosts_[at(h)].count) : 0;
    rows += static_cast<std::int64_t>(hosts_[at(h)].count);
  }
  const Range own_rows{first, first + static_cast<std::int64_t>(nodes_.size())};
  std::int64_t offset = 0;
  for (const int owner : own_shares()) {
    blocks.push_back({.of_sums = false,
                      .rows = rows,
                      .row_range = own_rows,
                      .col_range = slice(owner),
                      .data = host_residual_.as<float>() + offset,
                      .stride = share_floats_});
    offset += slice(owner).size();
  }
  blocks.push_back({.of_sums = true,
                    .rows = 1,
                    .row_range = {0, 1},
                    .col_range = slice(self_),
                    .data = sum_residual_.as<float>(),
                    .stride = slice(self_).size()});
  return blocks;
}

}  // namespace

std::unique_ptr<SliceReduce> make_hierarchical_reduce(Communicator& communicator,
                                                      Device& device,
                                                      const ReduceShape& shape) {
  return std::make_unique<HierarchicalReduce>(communicator, device, shape);
}

}  // namespace weft::comm
