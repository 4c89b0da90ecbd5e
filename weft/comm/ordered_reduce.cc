#include "weft/comm/ordered_reduce.h"

#include <algorithm>
#include <cstddef>

#include "weft/base/error.h"
#include "weft/comm/reduce_rows.h"
#include "weft/comm/slice_reduce.h"
#include "weft/layout/reduce.h"

namespace weft::comm {

namespace {

layout::ReduceShape layout_of(Communicator& communicator,
                              std::int64_t parts,
                              std::int64_t count,
                              const ReduceCodec& codec) {
  const bool hierarchical = communicator.form() == Form::kHierarchical;
  layout::ReduceShape shape{
      .parts = parts,
      .ranks = communicator.size(),
      .rank = communicator.rank(),
      .floats = count,
      .lent = hierarchical ? communicator.host_group()->lends() : communicator.lends(),
      .hosts = {},
      .crossing = codec.crossing,
      .format = codec.codec.format,
      .group = codec.codec.group,
      .error_feedback = codec.error_feedback};
  for (int p = 0; hierarchical && p < communicator.size(); ++p) {
    shape.hosts.push_back(communicator.host(p));
  }
  return shape;
}

}  // namespace

OrderedAllReduce::OrderedAllReduce(Communicator& communicator,
                                   Device& device,
                                   std::int64_t parts,
                                   std::int64_t count,
                                   const ReduceCodec& codec)
    : count_(count) {
  const int ranks = communicator.size();
  WEFT_CHECK(ranks <= parts, "{} ranks share {} parts; a rank needs at least one", ranks, parts);
  nodes_ = maximal_subtrees(parts, rank_parts(parts, ranks, communicator.rank()));
  const layout::ReduceShape counts = layout_of(communicator, parts, count, codec);
  const layout::ReduceBuffers buffers = layout::reduce_buffers(counts);
  partials_ = Buffer(device, buffers.partials);
  has_feedback_ = counts.is_coded() && codec.error_feedback;
  const ReduceShape shape{.parts = parts,
                          .count = count,
                          .partials = partials_.as<float>(),
                          .codec = counts.is_coded() ? codec : ReduceCodec{},
                          .crossing = codec.crossing,
                          .buffers = buffers};
  if (communicator.form() == Form::kHierarchical) {
    reduce_ = make_hierarchical_reduce(communicator, device, shape);
  } else if (counts.is_coded()) {
    reduce_ = make_coded_reduce(communicator, device, shape);
  } else {
    reduce_ = make_flat_reduce(communicator, device, shape);
  }
}

OrderedAllReduce::~OrderedAllReduce() = default;

float* OrderedAllReduce::partial(std::int64_t i) const {
  return reduce_->partials() + i * count_;
}

void OrderedAllReduce::keep_residuals() {
  reduce_->keep_residuals();
}

std::vector<ResidualBlock> OrderedAllReduce::residuals() const {
  return reduce_->residuals();
}

kernels::CodecClips OrderedAllReduce::clips() const {
  return reduce_->clips();
}

void OrderedAllReduce::run(Context& ctx, std::span<const std::uint8_t> present, float* out) {
  WEFT_CHECK(present.size() == nodes_.size(), "{} presence flags for {} partial sums",
             present.size(), nodes_.size());
  reduce_->run(ctx, present, out);
}

const float* OrderedAllReduce::run(Context& ctx, std::span<const std::uint8_t> present) {
  WEFT_CHECK(!has_feedback_, "sums in place of partial sums, where residuals are left");
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
