#include "weft/sharding/listed_residuals.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::sharding {
namespace {

/// Rows that are copied at a time.
constexpr std::int64_t kRowsAtOnce = 4096;

}  // namespace

ListedResiduals::ListedResiduals(const embedding::TableShard& shard,
                                 KeptRows& kept,
                                 std::int64_t group)
    : shard_(shard), kept_(kept), items_(residual_items(shard, group)) {
  std::int64_t first = 0;
  for (const StateItem& item : items_) {
    firsts_.push_back(first);
    first += item.col_end - item.col_begin;
  }
  WEFT_CHECK(first == kept.floats(), "{} numbers of a row of {}", first, kept.floats());
}

std::vector<StateItem> ListedResiduals::state_items() const {
  return items_;
}

void ListedResiduals::read_state(std::size_t index,
                                 std::int64_t row_begin,
                                 std::int64_t rows,
                                 void* out) const {
  const StateItem& item = items_.at(index);
  const std::int64_t cols = item.col_end - item.col_begin;
  const std::int64_t begin = rows == 0 ? 0 : item.held().index(row_begin);
  std::vector<std::int64_t> local;
  std::vector<float> lost;
  auto* next = static_cast<float*>(out);
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    local.resize(at(std::min(kRowsAtOnce, rows - first)));
    std::iota(local.begin(), local.end(), begin + first);
    lost.resize(local.size() * at(kept_.floats()));
    kept_.read_lost(local, lost.data());
    for (std::size_t i = 0; i < local.size(); ++i, next += cols) {
      std::copy_n(lost.data() + i * at(kept_.floats()) + at(firsts_[index]), cols, next);
    }
  }
}

void ListedResiduals::write_state(std::size_t index,
                                  std::int64_t row_begin,
                                  std::int64_t rows,
                                  std::int64_t col_begin,
                                  std::int64_t col_end,
                                  const void* in) {
  const std::int64_t begin = rows == 0 ? 0 : items_.at(index).held().index(row_begin);
  const Range cols{col_begin, col_end};
  const auto* next = static_cast<const float*>(in);
  std::vector<std::int64_t> local;
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    local.resize(at(std::min(kRowsAtOnce, rows - first)));
    std::iota(local.begin(), local.end(), begin + first);
    write_columns(index, local, cols, next);
    next += std::ssize(local) * cols.size();
  }
}

void ListedResiduals::write_listed_state(std::size_t index,
                                         std::span<const std::int64_t> rows,
                                         std::int64_t col_begin,
                                         std::int64_t col_end,
                                         const void* in) {
  write_columns(index, local_rows(rows), {col_begin, col_end}, static_cast<const float*>(in));
}

/// Columns of an item of rows; the others stay.
void ListedResiduals::write_columns(std::size_t index,
                                    std::span<const std::int64_t> local,
                                    Range cols,
                                    const float* in) {
  const StateItem& item = items_.at(index);
  WEFT_CHECK(item.col_begin <= cols.begin && cols.begin <= cols.end && cols.end <= item.col_end,
             "columns [{}, {}) of {}", cols.begin, cols.end, item.kind);
  std::vector<float> lost(local.size() * at(kept_.floats()));
  kept_.read_lost(local, lost.data());
  const std::int64_t first = firsts_[index] + cols.begin - item.col_begin;
  for (std::size_t i = 0; i < local.size(); ++i, in += cols.size()) {
    std::copy_n(in, cols.size(), lost.data() + i * at(kept_.floats()) + at(first));
  }
  kept_.write_lost(local, lost.data());
}

RowState::Shape ListedResiduals::row_shape() const {
  const std::int64_t cols = shard_.cols().size();
  return {.parameter = kSyncResidualParameter,
          .first_item = 0,
          .items = std::ssize(items_),
          .rows = shard_.rows(),
          .cols = shard_.cols(),
          .dtype = DType::kFloat32,
          .packed = layout::packed_row(layout::ElementForm::kWord, cols, kept_.floats() - cols),
          .first_holder = true,
          .initial = {.rule = "zero"}};
}

void ListedResiduals::for_each_row(StateRows which, const StateRowsVisitor& visit) const {
  const RowSet& held = shard_.rows();
  std::vector<std::int64_t> whole;
  const auto visit_local = [&](const auto& local) {
    for (std::int64_t first = 0; first < std::ssize(local); first += kRowsAtOnce) {
      whole.clear();
      for (std::int64_t i = first; i < std::min(first + kRowsAtOnce, std::ssize(local)); ++i) {
        whole.push_back(held.row(local[at(i)]));
      }
      visit(whole);
    }
  };
  if (which == StateRows::kChanged && kept_.changed() != nullptr) {
    kept_.changed()->for_each([&](std::span<const std::int64_t> local) { visit_local(local); });
    return;
  }
  std::vector<std::int32_t> local;
  kept_.list_lost(local);
  visit_local(local);
}

void ListedResiduals::read_rows(std::span<const std::int64_t> rows, std::byte* packed) const {
  std::vector<float> lost(rows.size() * at(kept_.floats()));
  kept_.read_lost(local_rows(rows), lost.data());
  std::memcpy(packed, lost.data(), lost.size() * sizeof(float));
}

void ListedResiduals::initial_rows(std::span<const std::int64_t> rows, std::byte* packed) const {
  std::memset(packed, 0, rows.size() * at(kept_.floats()) * sizeof(float));
}

void ListedResiduals::write_rows(std::span<const std::int64_t> rows, const std::byte* packed) {
  std::vector<float> lost(rows.size() * at(kept_.floats()));
  std::memcpy(lost.data(), packed, lost.size() * sizeof(float));
  kept_.write_lost(local_rows(rows), lost.data());
}

void ListedResiduals::mark() {
  kept_.mark_changes();
}

std::unique_ptr<RowCut> ListedResiduals::cut(StateRows /*which*/, CopyRoom& /*room*/) {
  fail(ErrorCode::kInternal, "table '{}': what its syncs have lost is saved beside steps",
       shard_.table().name);
}

/// Numbers in the shard of rows of the whole table.
std::vector<std::int64_t> ListedResiduals::local_rows(std::span<const std::int64_t> rows) const {
  const RowSet& held = shard_.rows();
  std::vector<std::int64_t> local;
  local.reserve(rows.size());
  for (const std::int64_t row : rows) {
    WEFT_CHECK(held.contains(row), "row {} of table '{}'", row, shard_.table().name);
    local.push_back(held.index(row));
  }
  return local;
}

}  // namespace weft::sharding
