#include "weft/planner/exchange_lengths.h"

#include "weft/base/codec_format.h"
#include "weft/layout/row_gradients.h"

namespace weft::planner {
namespace {

layout::PathBlock way_of(const VectorSlot& slot, bool own) {
  return {.path = slot.path, .own = own, .sequence = slot.sequence};
}

/// What a micro-batch has of it.
Expected cut(const Expected& all, double share) {
  return {all.value * share, all.varies};
}

}  // namespace

ExchangeLengths::SampleEnd& ExchangeLengths::SampleEnd::operator+=(const SampleEnd& other) {
  asked += other.asked;
  vectors_in += other.vectors_in;
  gradients_out += other.gradients_out;
  return *this;
}

ExchangeLengths::ExchangeLengths(const spec::Codecs& codecs,
                                 const RankKinds& ranks,
                                 const Options& options)
    : codecs_(codecs),
      ranks_(ranks),
      exchange_{.encoded = codecs.forward != CodecFormat::kFp32, .copied = options.copied},
      has_cuts_(options.has_cuts),
      ends_(ranks.kind_of.size()),
      sample_ends_(ranks.kinds.size()) {
}

std::int64_t ExchangeLengths::vector_bytes(std::int64_t columns) const {
  return encoded_bytes(codecs_.forward, codecs_.group_size, columns);
}

std::int64_t ExchangeLengths::gradient_bytes(std::int64_t columns) const {
  return encoded_bytes(codecs_.backward, codecs_.group_size, columns);
}

void ExchangeLengths::add_slot(std::size_t rank,
                               const VectorSlot& slot,
                               std::span<const VectorBlock> blocks) {
  ++ends_[rank].slots;
  const layout::PathBlock to_others = way_of(slot, false);
  for (std::size_t kind = 0; kind < blocks.size(); ++kind) {
    const VectorBlock& block = blocks[kind];
    const bool has_own = kind == ranks_.kind_of[rank];
    const SampleEnd other = sample_end(to_others, block, slot.columns);
    sample_ends_[kind] += other;
    serve(rank, to_others, block, slot.columns, ranks_.kinds[kind].ranks - (has_own ? 1 : 0));
    if (has_own) {
      const layout::PathBlock to_own = way_of(slot, true);
      serve(rank, to_own, block, slot.columns, 1);
      ends_[rank].own += sample_end(to_own, block, slot.columns) - other;
    }
  }
}

void ExchangeLengths::add_own(std::size_t rank, const VectorSlot& slot, const VectorBlock& block) {
  const layout::PathBlock way = way_of(slot, true);
  serve(rank, way, block, slot.columns, 1);
  ends_[rank].own += sample_end(way, block, slot.columns);
}

/// For the samples of so many ranks.
void ExchangeLengths::serve(std::size_t rank,
                            const layout::PathBlock& way,
                            const VectorBlock& block,
                            std::int64_t columns,
                            std::int64_t ranks) {
  SlotEnd& end = ends_[rank];
  if (way.moves_vectors()) {
    end.served.add(block.vectors * ranks, block.gradients * ranks, columns);
    if (has_cuts_) {
      end.served.join();
    }
    end.vectors_out += cut(block.vectors, block.cut_of_vectors) * (ranks * vector_bytes(columns));
  }
  if (way.moves_gradients()) {
    end.gradients_in +=
        cut(block.gradients, block.cut_of_gradients) * (ranks * gradient_bytes(columns));
  }
}

ExchangeLengths::SampleEnd ExchangeLengths::sample_end(const layout::PathBlock& way,
                                                       const VectorBlock& block,
                                                       std::int64_t columns) const {
  SampleEnd end;
  if (exchange_.has_asked(way) && (!way.own || exchange_.has_own())) {
    end.asked = block.vectors * columns;
  }
  if (way.moves_vectors()) {
    end.vectors_in = cut(block.vectors, block.cut_of_vectors) * vector_bytes(columns);
  }
  if (way.moves_gradients()) {
    end.gradients_out = cut(block.gradients, block.cut_of_gradients) * gradient_bytes(columns);
  }
  return end;
}

void ExchangeLengths::add_rounding(std::size_t rank,
                                   const VectorSlot& slot,
                                   const FeatureUse& use) {
  const RankKind& kind = ranks_.kinds[ranks_.kind_of[rank]];
  const double samples = kind.samples * kind.largest_cut;
  const Expected rows =
      use.pooled ? Expected{samples} : Expected{samples * use.length, !has_fixed_length(use)};
  const layout::PathBlock own = way_of(slot, true);
  if (!own.moves_vectors()) {
    ends_[rank].vectors_rounded += rows * vector_bytes(slot.columns);
  }
  if (!own.moves_gradients()) {
    ends_[rank].gradients_rounded += rows * gradient_bytes(slot.columns);
  }
}

ExchangeLengths::SampleEnd ExchangeLengths::samples_of(std::size_t rank) const {
  SampleEnd samples = sample_ends_[ranks_.kind_of[rank]];
  return samples += ends_[rank].own;
}

std::vector<std::int64_t> ExchangeLengths::slots() const {
  std::vector<std::int64_t> all;
  for (const auto& end : ends_) {
    all.push_back(end.slots);
  }
  return all;
}

double ExchangeLengths::held_vectors(std::size_t rank, double growth) const {
  double bytes = layout::held_bytes(ends_[rank].served.buffer(), growth);
  if (exchange_.keeps_asked()) {
    bytes += layout::held_bytes(layout::vectors(samples_of(rank).asked, 1), growth);
  }
  return bytes;
}

double ExchangeLengths::held_encoded(std::size_t rank, double growth) const {
  const SlotEnd& end = ends_[rank];
  const SampleEnd samples = samples_of(rank);
  const auto held = [&](const layout::WireBytes<Expected>& wire) {
    return layout::held_bytes(wire.sent(), growth) +
           (exchange_.copied ? layout::held_bytes(wire.received(), growth) : 0.0);
  };
  double bytes = 0.0;
  if (exchange_.encoded) {
    bytes += held({.outgoing = end.vectors_out,
                   .incoming = samples.vectors_in,
                   .in_place = end.vectors_rounded});
  }
  if (codecs_.backward != CodecFormat::kFp32) {
    bytes += held({.outgoing = samples.gradients_out,
                   .incoming = end.gradients_in,
                   .in_place = end.gradients_rounded});
  }
  return bytes;
}

}  // namespace weft::planner
