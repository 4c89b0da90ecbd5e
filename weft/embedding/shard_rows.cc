#include "weft/embedding/shard_rows.h"

#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/embedding/table_shard.h"
#include "weft/kernels/row_fields.h"

namespace weft::embedding {
namespace {

/// Numbers in the shard of rows of the whole table.
std::vector<std::int64_t> local_rows(const RowSet& held, std::span<const std::int64_t> rows) {
  std::vector<std::int64_t> local;
  local.reserve(rows.size());
  for (const std::int64_t row : rows) {
    WEFT_CHECK(held.contains(row), "row {} of a shard with [{}, {}) in steps of {}", row,
               held.begin, held.end, held.step);
    local.push_back(held.index(row));
  }
  return local;
}

std::string rule_name(kernels::InitialRule rule) {
  switch (rule) {
    case kernels::InitialRule::kZero:
      return "zero";
    case kernels::InitialRule::kUniform:
      return "uniform";
    case kernels::InitialRule::kNormal:
      break;
  }
  return "normal";
}

}  // namespace

RowState::Shape ShardRows::row_shape() const {
  const std::vector<StateItem> items = shard_.state_items();
  const kernels::InitialRows& initial = shard_.initial_;
  return {.parameter = items.front().parameter,
          .first_item = 0,
          .items = std::ssize(items),
          .rows = shard_.rows(),
          .cols = shard_.cols(),
          .dtype = shard_.view_.dtype,
          .packed = kernels::packed_row(shard_.view_, shard_.state_floats_),
          .first_holder = items.front().first_holder,
          .initial = {.rule = rule_name(initial.rule),
                      .key = initial.key,
                      .scale = initial.scale,
                      .accumulator = initial.state}};
}

bool ShardRows::is_sparse() const {
  return shard_.tier_ != nullptr;
}

void ShardRows::for_each_row(StateRows which, const StateRowsVisitor& visit) const {
  const RowSet& held = shard_.rows();
  std::vector<std::int64_t> whole;
  const auto visit_local = [&](std::span<const std::int64_t> local) {
    whole_rows(local, whole);
    visit(whole);
  };
  if (which == StateRows::kChanged && changed_) {
    changed_->for_each(visit_local);
    return;
  }
  if (shard_.tier_ != nullptr) {
    shard_.tier_->for_each_row(visit_local);
    return;
  }
  constexpr std::int64_t kRows = 32768;
  for (std::int64_t first = 0; first < held.size(); first += kRows) {
    whole.clear();
    for (std::int64_t i = first; i < std::min(first + kRows, held.size()); ++i) {
      whole.push_back(held.row(i));
    }
    visit(whole);
  }
}

void ShardRows::read_rows(std::span<const std::int64_t> rows, std::byte* packed) const {
  const std::vector<std::int64_t> local = local_rows(shard_.rows(), rows);
  if (shard_.tier_ != nullptr) {
    shard_.tier_->read_rows(local, packed);
  } else {
    shard_.pack_slots(local, packed);
  }
}

void ShardRows::initial_rows(std::span<const std::int64_t> rows, std::byte* packed) const {
  shard_.pack_initial(local_rows(shard_.rows(), rows), packed);
}

void ShardRows::write_rows(std::span<const std::int64_t> rows, const std::byte* packed) {
  const std::vector<std::int64_t> local = local_rows(shard_.rows(), rows);
  note_change(local);
  if (shard_.tier_ != nullptr) {
    shard_.tier_->write_rows(local, packed);
  } else {
    shard_.unpack_slots(local, packed);
  }
}

void ShardRows::mark() {
  changed_.emplace(shard_.rows().size());
}

std::unique_ptr<RowCut> ShardRows::cut(StateRows which, CopyRoom& room) {
  check_no_cut();
  const RowSet& held = shard_.rows();
  RowMarks rows(held.size());
  if (which == StateRows::kChanged && changed_) {
    rows = std::move(*changed_);
  } else if (shard_.tier_ != nullptr) {
    shard_.tier_->for_each_row([&](std::span<const std::int64_t> local) { rows.set(local); });
  } else {
    rows.set_all();
  }
  mark();
  auto made = std::make_unique<ShardCut>(
      *this, std::move(rows), kernels::packed_row(shard_.view_, shard_.state_floats_).bytes(),
      room);
  const std::scoped_lock lock(cut_mutex_);
  cut_ = made.get();
  return made;
}

void ShardRows::end_cut() {
  const std::scoped_lock lock(cut_mutex_);
  cut_ = nullptr;
}

void ShardRows::check_no_cut() const {
  const std::scoped_lock lock(cut_mutex_);
  WEFT_CHECK(cut_ == nullptr, "table '{}': its rows are being saved", shard_.table().name);
}

void ShardRows::note_change(std::span<const std::int64_t> rows) {
  if (!changed_) {
    return;
  }
  changed_->set(rows);
  const std::scoped_lock lock(cut_mutex_);
  if (cut_ != nullptr) {
    cut_->before_change(rows);
  }
}

void ShardRows::note_written(std::span<const std::int64_t> rows) {
  check_no_cut();
  if (changed_) {
    changed_->set(rows);
  }
}

void ShardRows::note_all_written() {
  check_no_cut();
  if (changed_) {
    changed_->set_all();
  }
}

void ShardRows::whole_rows(std::span<const std::int64_t> rows,
                           std::vector<std::int64_t>& whole) const {
  const RowSet& held = shard_.rows();
  whole.clear();
  for (const std::int64_t row : rows) {
    whole.push_back(held.row(row));
  }
}

}  // namespace weft::embedding
