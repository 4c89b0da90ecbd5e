#include "weft/comm/reduce_state.h"

#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host_layout.h"
#include "weft/comm/slice_reduce.h"

namespace weft::comm {
namespace {

/// Blocks with a number in them.
std::vector<ResidualBlock> blocks_of(const OrderedAllReduce& reduce) {
  std::vector<ResidualBlock> blocks;
  for (const ResidualBlock& block : reduce.residuals()) {
    if (!block.row_range.empty() && !block.col_range.empty()) {
      blocks.push_back(block);
    }
  }
  return blocks;
}

}  // namespace

ReduceState::ReduceState(const OrderedAllReduce& reduce, Device& device, std::string parameter)
    : reduce_(reduce), device_(device), parameter_(std::move(parameter)) {
}

std::vector<StateItem> ReduceState::state_items() const {
  std::vector<StateItem> items;
  for (const ResidualBlock& block : blocks_of(reduce_)) {
    items.push_back({.parameter = parameter_,
                     .kind = block.of_sums ? "sum_residual" : "partial_residual",
                     .dtype = DType::kFloat32,
                     .rows = block.rows,
                     .cols = reduce_.count(),
                     .row_begin = block.row_range.begin,
                     .row_end = block.row_range.end,
                     .col_begin = block.col_range.begin,
                     .col_end = block.col_range.end});
  }
  return items;
}

ResidualBlock ReduceState::block(std::size_t index) const {
  const std::vector<ResidualBlock> blocks = blocks_of(reduce_);
  WEFT_CHECK(index < blocks.size(), "residual {} of {}", index, blocks.size());
  return blocks[index];
}

void ReduceState::read_state(std::size_t index,
                             std::int64_t row_begin,
                             std::int64_t rows,
                             void* out) const {
  const ResidualBlock from = block(index);
  WEFT_CHECK(row_begin >= from.row_range.begin && row_begin + rows <= from.row_range.end,
             "rows {}+{} of [{}, {})", row_begin, rows, from.row_range.begin, from.row_range.end);
  Context ctx{.device = &device_};
  const std::int64_t width = from.col_range.size();
  for (std::int64_t r = 0; r < rows; ++r) {
    device_.copy_to_host(ctx, static_cast<float*>(out) + r * width,
                         from.data + (row_begin - from.row_range.begin + r) * from.stride,
                         width * kFloatBytes);
  }
}

void ReduceState::write_state(std::size_t index,
                              std::int64_t row_begin,
                              std::int64_t rows,
                              std::int64_t col_begin,
                              std::int64_t col_end,
                              const void* in) {
  const ResidualBlock to = block(index);
  WEFT_CHECK(row_begin >= to.row_range.begin && row_begin + rows <= to.row_range.end &&
                 col_begin >= to.col_range.begin && col_begin <= col_end &&
                 col_end <= to.col_range.end,
             "rows {}+{}, columns [{}, {}) of [{}, {}), [{}, {})", row_begin, rows, col_begin,
             col_end, to.row_range.begin, to.row_range.end, to.col_range.begin, to.col_range.end);
  Context ctx{.device = &device_};
  const std::int64_t width = col_end - col_begin;
  for (std::int64_t r = 0; r < rows; ++r) {
    device_.copy_to_device(ctx,
                           to.data + (row_begin - to.row_range.begin + r) * to.stride +
                               (col_begin - to.col_range.begin),
                           static_cast<const float*>(in) + r * width, width * kFloatBytes);
  }
}

std::string residual_layout(const Communicator& communicator, const ReduceCodec& codec) {
  std::string text = fmt::format("{}", to_string(codec.codec.format));
  if (is_grouped(codec.codec.format)) {
    text += fmt::format(" in groups of {}", codec.codec.group);
  }
  text += fmt::format(", {} ranks", communicator.size());
  if (communicator.form() == Form::kHierarchical) {
    std::vector<int> hosts;
    for (int p = 0; p < communicator.size(); ++p) {
      hosts.push_back(communicator.host(p));
    }
    const HostLayout layout(hosts);
    for (int p = 0; p < communicator.size(); ++p) {
      hosts[static_cast<std::size_t>(p)] = layout.host(p);
    }
    text += fmt::format(" on hosts {}", fmt::join(hosts, " "));
  }
  return text;
}

}  // namespace weft::comm
