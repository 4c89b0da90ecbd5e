// The state of a TableShard: its initial values, and what checkpoints and hashes see.

#include <algorithm>
#include <cstring>
#include <vector>

#include "weft/base/error.h"
#include "weft/embedding/table_shard.h"
#include "weft/kernels/tasks.h"
#include "weft/optim/sparse.h"

namespace weft::embedding {
namespace {

// Elements that one task of the initialisation makes: about a millisecond.
constexpr std::int64_t kElementsPerTask = 1 << 16;

/// A matrix of optimizer state, `offset` floats into each row's state.
struct StatePart {
  const char* kind;
  std::int64_t offset;
  bool per_element;
};

std::vector<StatePart> state_parts(spec::SparseOptimizerKind kind, std::int64_t cols) {
  switch (kind) {
    case spec::SparseOptimizerKind::kSgd:
      return {};
    case spec::SparseOptimizerKind::kAdagrad:
      return {{"sum", 0, true}};
    case spec::SparseOptimizerKind::kRowWiseAdagrad:
      return {{"sum", 0, false}};
    case spec::SparseOptimizerKind::kAdam:
      return {{"exp_avg", 0, true}, {"exp_avg_sq", cols, true}};
    case spec::SparseOptimizerKind::kRowWiseAdam:
      return {{"exp_avg", 0, true}, {"exp_avg_sq", cols, false}};
  }
  fail(ErrorCode::kInternal, "sparse optimizer number {} does not exist", static_cast<int>(kind));
}

void round_row(const float* values, DType dtype, std::int64_t cols, void* out) {
  for (std::int64_t i = 0; i < cols; ++i) {
    switch (dtype) {
      case DType::kFloat16:
        static_cast<Float16*>(out)[i] = to_float16(values[i]);
        break;
      case DType::kBFloat16:
        static_cast<BFloat16*>(out)[i] = to_bfloat16(values[i]);
        break;
      default:
        static_cast<float*>(out)[i] = values[i];
        break;
    }
  }
}

}  // namespace

void TableShard::initialise(Context& ctx) {
  const std::int64_t per_task = std::max<std::int64_t>(kElementsPerTask / cols_.size(), 1);
  const float state = optim::initial_state(table_.optimizer);
  kernels::run_blocks(
      ctx, 1, [&](std::int64_t) { return (rows_.size() + per_task - 1) / per_task; },
      [&](std::int64_t, std::int64_t block) {
        std::vector<float> values(static_cast<std::size_t>(cols_.size()));
        const std::int64_t end = std::min((block + 1) * per_task, rows_.size());
        for (std::int64_t row = block * per_task; row < end; ++row) {
          initial_.row(rows_.begin + row, cols_, values.data());
          round_row(values.data(), store_.dtype(), cols_.size(), store_.weights(row));
          if (store_.state_floats() > 0) {
            std::fill_n(store_.state(row), store_.state_floats(), state);
          }
        }
      });
}

std::vector<StateItem> TableShard::state_items() const {
  StateItem item{.parameter = "tables." + table_.name,
                 .kind = "weight",
                 .dtype = store_.dtype(),
                 .rows = table_.num_embeddings,
                 .cols = table_.embedding_dim,
                 .row_begin = rows_.begin,
                 .row_end = rows_.end,
                 .col_begin = cols_.begin,
                 .col_end = cols_.end,
                 .first_holder = options_.first_holder};
  std::vector<StateItem> items = {item};
  for (const StatePart& part : state_parts(table_.optimizer.type, cols_.size())) {
    item.kind = part.kind;
    item.dtype = DType::kFloat32;
    if (!part.per_element) {
      item.cols = 1;
      item.col_begin = 0;
      item.col_end = 1;
      item.first_holder = options_.first_holder && cols_.begin == 0;
    }
    items.push_back(item);
  }
  return items;
}

/// Where an item lies in a row.
TableShard::ItemPlace TableShard::item_place(std::size_t index, std::int64_t local_row) const {
  if (index == 0) {
    return {store_.weights(local_row), size_of(store_.dtype()), cols_.size(), cols_.begin};
  }
  const std::vector<StatePart> parts = state_parts(table_.optimizer.type, cols_.size());
  WEFT_CHECK(index <= parts.size(), "item {} of table '{}', which has {}", index, table_.name,
             parts.size() + 1);
  const StatePart& part = parts[index - 1];
  return {reinterpret_cast<std::byte*>(store_.state(local_row) + part.offset),
          static_cast<std::int64_t>(sizeof(float)), part.per_element ? cols_.size() : 1,
          part.per_element ? cols_.begin : 0};
}

void TableShard::check_rows(std::int64_t row_begin, std::int64_t rows) const {
  WEFT_CHECK(rows_.begin <= row_begin && rows >= 0 && row_begin + rows <= rows_.end,
             "rows [{}, {}) of table '{}', which holds [{}, {}) here", row_begin, row_begin + rows,
             table_.name, rows_.begin, rows_.end);
}

void TableShard::read_state(std::size_t index,
                            std::int64_t row_begin,
                            std::int64_t rows,
                            void* out) const {
  check_rows(row_begin, rows);
  const ItemPlace place = item_place(index, row_begin - rows_.begin);
  const std::int64_t stride = index == 0 ? store_.weight_stride() : store_.state_stride();
  const std::int64_t bytes = place.cols * place.element_bytes;
  for (std::int64_t i = 0; i < rows; ++i) {
    std::memcpy(static_cast<std::byte*>(out) + i * bytes, place.data + i * stride,
                static_cast<std::size_t>(bytes));
  }
}

void TableShard::write_state(std::size_t index,
                             std::int64_t row_begin,
                             std::int64_t rows,
                             std::int64_t col_begin,
                             std::int64_t col_end,
                             const void* in) {
  check_rows(row_begin, rows);
  const ItemPlace place = item_place(index, row_begin - rows_.begin);
  WEFT_CHECK(place.first_col <= col_begin && col_begin <= col_end &&
                 col_end <= place.first_col + place.cols,
             "columns [{}, {}) of item {} of table '{}', which holds [{}, {}) here", col_begin,
             col_end, index, table_.name, place.first_col, place.first_col + place.cols);
  if (col_begin == col_end) {
    return;
  }
  const std::int64_t stride = index == 0 ? store_.weight_stride() : store_.state_stride();
  const std::int64_t bytes = (col_end - col_begin) * place.element_bytes;
  std::byte* const to = place.data + (col_begin - place.first_col) * place.element_bytes;
  for (std::int64_t i = 0; i < rows; ++i) {
    std::memcpy(to + i * stride, static_cast<const std::byte*>(in) + i * bytes,
                static_cast<std::size_t>(bytes));
  }
}

void TableShard::initial_state(std::size_t index,
                               std::int64_t row_begin,
                               std::int64_t rows,
                               void* out) const {
  check_rows(row_begin, rows);
  const ItemPlace place = item_place(index, 0);
  if (index > 0) {
    std::fill_n(static_cast<float*>(out), rows * place.cols,
                optim::initial_state(table_.optimizer));
    return;
  }
  std::vector<float> values(static_cast<std::size_t>(cols_.size()));
  for (std::int64_t i = 0; i < rows; ++i) {
    initial_.row(row_begin + i, cols_, values.data());
    round_row(values.data(), store_.dtype(), cols_.size(),
              static_cast<std::byte*>(out) + i * place.cols * place.element_bytes);
  }
}

}  // namespace weft::embedding
