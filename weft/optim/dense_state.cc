#include "weft/base/error.h"
#include "weft/optim/dense.h"

namespace weft::optim {

DenseState::DenseState(const ParameterLayout& layout,
                       Device& device,
                       float* params,
                       const DenseOptimizer& optimizer,
                       Holder holder)
    : layout_(layout), device_(device), params_(params), optimizer_(optimizer), holder_(holder) {
  WEFT_CHECK(optimizer.count() == layout.size(), "an optimizer of {} for a layout of {}",
             optimizer.count(), layout.size());
}

std::vector<StateItem> DenseState::state_items() const {
  std::vector<StateItem> items;
  for (std::size_t kind = 0; kind <= optimizer_.state_kinds().size(); ++kind) {
    for (const DenseParameter& parameter : layout_.parameters()) {
      items.push_back({.parameter = parameter.name,
                       .kind = kind == 0 ? "weight" : optimizer_.state_kinds()[kind - 1],
                       .dtype = DType::kFloat32,
                       .rows = parameter.rows,
                       .cols = parameter.cols,
                       .row_begin = 0,
                       .row_end = parameter.rows,
                       .col_begin = 0,
                       .col_end = parameter.cols,
                       .first_holder = holder_ == Holder::kFirst});
    }
  }
  return items;
}

float* DenseState::item_data(std::size_t index) const {
  const std::size_t count = layout_.parameters().size();
  const std::size_t kind = index / count;
  WEFT_CHECK(kind <= optimizer_.state_kinds().size(), "state item {}", index);
  float* flat = kind == 0 ? params_ : optimizer_.state(kind - 1);
  return flat + layout_.parameters()[index % count].offset;
}

void DenseState::read_state(std::size_t index,
                            std::int64_t row_begin,
                            std::int64_t rows,
                            void* out) const {
  const DenseParameter& parameter = layout_.parameters()[index % layout_.parameters().size()];
  WEFT_CHECK(row_begin >= 0 && row_begin + rows <= parameter.rows, "rows {}+{} of '{}'", row_begin,
             rows, parameter.name);
  Context ctx{.device = &device_};
  device_.copy_to_host(ctx, out, item_data(index) + row_begin * parameter.cols,
                       rows * parameter.cols * static_cast<std::int64_t>(sizeof(float)));
}

void DenseState::write_state(std::size_t index,
                             std::int64_t row_begin,
                             std::int64_t rows,
                             std::int64_t col_begin,
                             std::int64_t col_end,
                             const void* in) {
  const DenseParameter& parameter = layout_.parameters()[index % layout_.parameters().size()];
  WEFT_CHECK(row_begin >= 0 && row_begin + rows <= parameter.rows && col_begin >= 0 &&
                 col_begin <= col_end && col_end <= parameter.cols,
             "rows {}+{}, columns [{}, {}) of '{}' [{}, {}]", row_begin, rows, col_begin, col_end,
             parameter.name, parameter.rows, parameter.cols);
  Context ctx{.device = &device_};
  const std::int64_t width = col_end - col_begin;
  const auto* from = static_cast<const float*>(in);
  for (std::int64_t r = 0; r < rows; ++r) {
    device_.copy_to_device(ctx, item_data(index) + (row_begin + r) * parameter.cols + col_begin,
                           from + r * width, width * static_cast<std::int64_t>(sizeof(float)));
  }
}

}  // namespace weft::optim
