// The state of a TableShard: its initial values, and what checkpoints and hashes see.

#include <algorithm>
#include <cstring>
#include <vector>

#include "weft/base/error.h"
#include "weft/embedding/table_shard.h"
#include "weft/kernels/tasks.h"

namespace weft::embedding {
namespace {

// Bytes of rows that one task of the initialisation makes: under a millisecond, and a whole huge
// page, so that no two threads wait for the same one to be cleared.
constexpr std::int64_t kBytesPerTask = std::int64_t{2} << 20;

/// A matrix of optimizer state, `offset` floats into each row's state.
struct StatePart {
  const char* kind;  // a literal
  std::int64_t offset;
  bool per_element;
};

std::vector<StatePart> state_parts(SparseOptimizerKind optimizer, std::int64_t cols) {
  std::vector<StatePart> parts;
  std::int64_t offset = 0;
  for (const SparseStateKind& kind : traits(optimizer).state()) {
    parts.push_back({kind.name.data(), offset, kind.per_element});
    offset += kind.per_element ? cols : 1;
  }
  return parts;
}

/// The type in which weights are saved and compared: that of the rows, or of the words which rows
/// in two halves stand for.
DType weight_dtype(DType dtype) {
  return dtype == DType::kSplitBFloat16 ? DType::kFloat32 : dtype;
}

void join(const std::byte* high, const std::byte* low, std::int64_t cols, void* out) {
  const auto* const highs = reinterpret_cast<const BFloat16*>(high);
  const auto* const lows = reinterpret_cast<const std::int16_t*>(low);
  for (std::int64_t i = 0; i < cols; ++i) {
    static_cast<float*>(out)[i] = to_float(SplitBFloat16{highs[i], lows[i]});
  }
}

void cut(const void* in, std::int64_t cols, std::byte* high, std::byte* low) {
  for (std::int64_t i = 0; i < cols; ++i) {
    const SplitBFloat16 halves = to_split_bfloat16(static_cast<const float*>(in)[i]);
    reinterpret_cast<BFloat16*>(high)[i] = halves.high;
    reinterpret_cast<std::int16_t*>(low)[i] = halves.low;
  }
}

}  // namespace

/// On the device's pool, whose threads will work on the rows: who writes a page first decides on
/// which memory node it lies.
void TableShard::initialise(Context& ctx) {
  const auto list_bytes = static_cast<std::int64_t>(std::span(options_.row_list).size_bytes());
  row_list_.resize(list_bytes);
  if (list_bytes > 0) {
    ctx.device->copy_to_device(ctx, row_list_.as<void>(), options_.row_list.data(), list_bytes);
  }
  initial_.table = row_table();
  initial_.state_floats = store_.state_floats();
  const std::int64_t per_task =
      std::max<std::int64_t>(kBytesPerTask * rows_.size() / store_.bytes(), 1);
  kernels::run_blocks(
      ctx, 1, [&](std::int64_t) { return (rows_.size() + per_task - 1) / per_task; },
      [&](std::int64_t, std::int64_t block) {
        initialise_rows({block * per_task, std::min((block + 1) * per_task, rows_.size())});
      });
}

/// Listed rows one by one: each is the row of its number in a range that begins so far before it.
void TableShard::initialise_rows(Range rows) {
  if (options_.row_list.empty()) {
    kernels::set_initial_rows(initial_, rows);
    return;
  }
  kernels::InitialRows initial = initial_;
  initial.table.row_list = nullptr;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    initial.table.first_row = options_.row_list[static_cast<std::size_t>(row)] - row;
    kernels::set_initial_rows(initial, {row, row + 1});
  }
}

std::vector<StateItem> TableShard::state_items() const {
  const bool listed = !options_.row_list.empty();
  StateItem item{.parameter = "tables." + table_.name + (listed ? ".head" : ""),
                 .kind = "weight",
                 .dtype = weight_dtype(store_.dtype()),
                 .rows = listed ? rows_.size() : table_.num_embeddings,
                 .cols = table_.embedding_dim,
                 .row_begin = rows_.begin,
                 .row_end = rows_.end,
                 .col_begin = cols_.begin,
                 .col_end = cols_.end,
                 .first_holder = options_.first_holder,
                 .row_step = rows_.step};
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

/// Where an item lies, from `local_row` on.
TableShard::ItemPlace TableShard::item_place(std::size_t index, std::int64_t local_row) const {
  if (index == 0) {
    const bool halves = store_.low() != nullptr;
    return {.data = store_.weights(local_row),
            .stride = store_.weight_stride(),
            .element_bytes = size_of(weight_dtype(store_.dtype())),
            .cols = cols_.size(),
            .first_col = cols_.begin,
            .low = halves ? store_.low() + local_row * store_.rest_stride() : nullptr,
            .low_stride = store_.rest_stride()};
  }
  const std::vector<StatePart> parts = state_parts(table_.optimizer.type, cols_.size());
  WEFT_CHECK(index <= parts.size(), "item {} of table '{}', which has {}", index, table_.name,
             parts.size() + 1);
  const StatePart& part = parts[index - 1];
  return {.data = reinterpret_cast<std::byte*>(store_.state(local_row) + part.offset),
          .stride = store_.rest_stride(),
          .element_bytes = static_cast<std::int64_t>(sizeof(float)),
          .cols = part.per_element ? cols_.size() : 1,
          .first_col = part.per_element ? cols_.begin : 0};
}

void TableShard::check_rows(std::int64_t row_begin, std::int64_t rows) const {
  const bool inside = rows == 0 || (rows > 0 && rows_.contains(row_begin) &&
                                    rows_.index(row_begin) + rows <= rows_.size());
  WEFT_CHECK(inside, "{} rows from {} of table '{}', which holds [{}, {}) in steps of {} here",
             rows, row_begin, table_.name, rows_.begin, rows_.end, rows_.step);
}

void TableShard::read_state(std::size_t index,
                            std::int64_t row_begin,
                            std::int64_t rows,
                            void* out) const {
  check_rows(row_begin, rows);
  const ItemPlace place = item_place(index, rows_.index(row_begin));
  const std::int64_t bytes = place.cols * place.element_bytes;
  for (std::int64_t i = 0; i < rows; ++i) {
    std::byte* const to = static_cast<std::byte*>(out) + i * bytes;
    if (place.low != nullptr) {
      join(place.data + i * place.stride, place.low + i * place.low_stride, place.cols, to);
    } else {
      std::memcpy(to, place.data + i * place.stride, static_cast<std::size_t>(bytes));
    }
  }
}

void TableShard::write_state(std::size_t index,
                             std::int64_t row_begin,
                             std::int64_t rows,
                             std::int64_t col_begin,
                             std::int64_t col_end,
                             const void* in) {
  check_rows(row_begin, rows);
  const ItemPlace place = item_place(index, rows_.index(row_begin));
  WEFT_CHECK(place.first_col <= col_begin && col_begin <= col_end &&
                 col_end <= place.first_col + place.cols,
             "columns [{}, {}) of item {} of table '{}', which holds [{}, {}) here", col_begin,
             col_end, index, table_.name, place.first_col, place.first_col + place.cols);
  if (col_begin == col_end) {
    return;
  }
  const std::int64_t cols = col_end - col_begin;
  const std::int64_t bytes = cols * place.element_bytes;
  const std::int64_t col = col_begin - place.first_col;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::byte* const from = static_cast<const std::byte*>(in) + i * bytes;
    std::byte* const to = place.data + i * place.stride;
    if (place.low != nullptr) {
      constexpr auto kHalf = static_cast<std::int64_t>(sizeof(BFloat16));
      cut(from, cols, to + col * kHalf, place.low + i * place.low_stride + col * kHalf);
    } else {
      std::memcpy(to + col * place.element_bytes, from, static_cast<std::size_t>(bytes));
    }
  }
}

void TableShard::initial_state(std::size_t index,
                               std::int64_t row_begin,
                               std::int64_t rows,
                               void* out) const {
  check_rows(row_begin, rows);
  WEFT_CHECK(options_.row_list.empty(), "initial state of a list of rows of '{}'", table_.name);
  const ItemPlace place = item_place(index, 0);
  if (index > 0) {
    std::fill_n(static_cast<float*>(out), rows * place.cols, initial_.state);
    return;
  }
  kernels::InitialRows initial = initial_;
  initial.table = {.weights = out,
                   .weight_stride = place.cols * place.element_bytes,
                   .dtype = weight_dtype(store_.dtype()),
                   .cols = place.cols,
                   .dim = table_.embedding_dim,
                   .first_row = row_begin,
                   .row_step = rows_.step,
                   .first_col = place.first_col};
  initial.state_floats = 0;
  kernels::set_initial_rows(initial, {0, rows});
}

}  // namespace weft::embedding
