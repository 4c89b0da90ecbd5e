// The state of a TableShard: its initial values, and what checkpoints and hashes see.

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/embedding/table_shard.h"
#include "weft/embedding/written_rows.h"
#include "weft/layout/tables.h"
#include "weft/tensor/row_streams.h"

namespace weft::embedding {
namespace {

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

std::string parameter_of(const spec::Table& table) {
  return "tables." + table.name;
}

}  // namespace

/// On the device's pool, whose threads will work on the rows: who writes a page first decides on
/// which memory node it lies.
void TableShard::initialise(Context& ctx) {
  const auto list = layout::row_numbers(std::ssize(options_.row_list));
  row_list_.resize_for(list);
  if (list.count > 0) {
    ctx.device->copy_to_device(ctx, row_list_.as<void>(), options_.row_list.data(), list.bytes());
  }
  const kernels::RowOverflow none;
  overflow_.resize(sizeof(none));
  ctx.device->copy_to_device(ctx, overflow_.as<void>(), &none, overflow_.bytes());
  initial_.table = row_table();
  initial_.state_floats = state_floats_;
  if (tier_ == nullptr) {  // else rows are made as they are asked for
    initial_.rows = store_->resolve(Range{0, rows_.size()});
    kernels::set_initial_rows(ctx, std::span(&initial_, 1));
    if (ctx.device->kind() == DeviceKind::kCpu) {  // elsewhere each update would wait for its rows
      row_state_->begin_written();
    }
  }
}

std::uint64_t TableShard::stream_key(const spec::Table& table, Range cols) {
  const DType dtype = storage::row_dtype(table.dtype);
  std::vector<RowItem> items = {{"weight", weight_dtype(dtype), table.embedding_dim}};
  for (const StatePart& part : state_parts(table.optimizer.type, cols.size())) {
    items.push_back({part.kind, DType::kFloat32, part.per_element ? table.embedding_dim : 1});
  }
  return row_stream_key(parameter_of(table), items, {cols, dtype});
}

std::vector<StateItem> TableShard::state_items() const {
  const bool listed = !options_.row_list.empty();
  StateItem item{.parameter = parameter_of(table_) + (listed ? ".head" : ""),
                 .kind = "weight",
                 .dtype = weight_dtype(view_.dtype),
                 .rows = listed ? rows_.size() : table_.num_embeddings,
                 .cols = table_.embedding_dim,
                 .row_begin = rows_.begin,
                 .row_end = rows_.end,
                 .col_begin = cols_.begin,
                 .col_end = cols_.end,
                 .first_holder = options_.first_holder,
                 .row_step = rows_.step};
  const std::vector<StatePart> parts = state_parts(table_.optimizer.type, cols_.size());
  std::vector<StateItem> items;
  items.reserve(1 + parts.size());
  items.push_back(item);
  for (const StatePart& part : parts) {
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

TableShard::ItemPlace TableShard::item_place(std::size_t index) const {
  if (index == 0) {
    return {.part = kernels::RowCopy::Part::kWeights,
            .first = 0,
            .cols = cols_.size(),
            .first_col = cols_.begin};
  }
  const std::vector<StatePart> parts = state_parts(table_.optimizer.type, cols_.size());
  WEFT_CHECK(index <= parts.size(), "item {} of table '{}', which has {}", index, table_.name,
             parts.size() + 1);
  const StatePart& part = parts[index - 1];
  return {.part = kernels::RowCopy::Part::kState,
          .first = part.offset,
          .cols = part.per_element ? cols_.size() : 1,
          .first_col = part.per_element ? cols_.begin : 0};
}

/// All columns of an item, between rows of the whole table's numbers and a dense matrix.
kernels::RowCopy TableShard::item_copy(const ItemPlace& place,
                                       std::int64_t row_begin,
                                       std::int64_t rows) const {
  const std::int64_t begin = rows == 0 ? 0 : rows_.index(row_begin);
  const kernels::RowTable& table = view_;
  return {.table = table,
          .part = place.part,
          .slots = store_->resolve(Range{begin, begin + rows}),
          .first = place.first,
          .cols = place.cols,
          .matrix = nullptr,
          .stride = place.cols * kernels::element_bytes(table, place.part)};
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
  if (tier_ != nullptr) {
    read_tier(item_place(index), rows == 0 ? 0 : rows_.index(row_begin), rows, out);
    return;
  }
  kernels::RowCopy copy = item_copy(item_place(index), row_begin, rows);
  copy.matrix = out;
  Context ctx{.device = overflow_.device()};
  kernels::copy_from_rows(ctx, std::span(&copy, 1));
}

RowsInPlace TableShard::rows_in_place(std::size_t index,
                                      std::int64_t row_begin,
                                      std::int64_t rows) const {
  check_rows(row_begin, rows);
  if (tier_ != nullptr || overflow_.device()->kind() != DeviceKind::kCpu) {
    return {};
  }
  return kernels::rows_in_place(item_copy(item_place(index), row_begin, rows));
}

void TableShard::write_state(std::size_t index,
                             std::int64_t row_begin,
                             std::int64_t rows,
                             std::int64_t col_begin,
                             std::int64_t col_end,
                             const void* in) {
  check_rows(row_begin, rows);
  const ItemPlace place = item_place(index);
  WEFT_CHECK(place.first_col <= col_begin && col_begin <= col_end &&
                 col_end <= place.first_col + place.cols,
             "columns [{}, {}) of item {} of table '{}', which holds [{}, {}) here", col_begin,
             col_end, index, table_.name, place.first_col, place.first_col + place.cols);
  if (col_begin == col_end || rows == 0) {
    return;
  }
  if (tier_ != nullptr || row_state_->notes_changes()) {
    std::vector<std::int64_t> local(at(rows));
    std::iota(local.begin(), local.end(), rows_.index(row_begin));
    row_state_->note_change(local);
    if (tier_ != nullptr) {
      write_tier(place, local, {col_begin, col_end}, in);
      return;
    }
  } else if (WrittenRows* const written = row_state_->written(); written != nullptr) {
    written->set_range(rows_.index(row_begin), rows);
  }
  kernels::RowCopy copy = item_copy(place, row_begin, rows);
  copy.first += col_begin - place.first_col;
  copy.cols = col_end - col_begin;
  copy.stride = copy.cols * kernels::element_bytes(copy.table, copy.part);
  copy.matrix = const_cast<void*>(in);  // only read
  Context ctx{.device = overflow_.device()};
  kernels::copy_to_rows(ctx, std::span(&copy, 1));
}

void TableShard::initial_state(std::size_t index,
                               std::int64_t row_begin,
                               std::int64_t rows,
                               void* out) const {
  check_rows(row_begin, rows);
  WEFT_CHECK(options_.row_list.empty(), "initial state of a list of rows of '{}'", table_.name);
  const ItemPlace place = item_place(index);
  if (index > 0) {
    std::fill_n(static_cast<float*>(out), rows * place.cols, initial_.state);
    return;
  }
  kernels::InitialRows initial = initial_;
  initial.table = {.weights = out,
                   .weight_stride = place.cols * size_of(weight_dtype(view_.dtype)),
                   .dtype = weight_dtype(view_.dtype),
                   .cols = place.cols,
                   .dim = table_.embedding_dim,
                   .first_row = row_begin,
                   .row_step = rows_.step,
                   .first_col = place.first_col};
  initial.rows = {0, rows};
  initial.state_floats = 0;
  Context ctx;  // `out` is on the host
  kernels::cpu::set_initial_rows(ctx, std::span(&initial, 1));
}

}  // namespace weft::embedding
