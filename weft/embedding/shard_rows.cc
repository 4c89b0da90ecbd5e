#include "weft/embedding/shard_rows.h"

#include <algorithm>
#include <iterator>
#include <numeric>
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
  std::vector<std::int64_t> whole;
  for_each_local(which, [&](std::span<const std::int64_t> local) {
    whole_rows(local, whole);
    visit(whole);
  });
}

/// Visits rows counted within the shard.
void ShardRows::for_each_local(StateRows which, const storage::RowsVisitor& visit) const {
  const bool of_changed = which == StateRows::kChanged || which == StateRows::kChangedUnwritten;
  const bool of_unwritten = which == StateRows::kUnwritten || which == StateRows::kChangedUnwritten;
  std::vector<std::int64_t> some;
  if (of_unwritten && shard_.tier_ != nullptr) {
    shard_.tier_->for_each_unwritten_row([&](std::span<const std::int64_t> rows) {
      if (!of_changed || !changed_) {
        visit(rows);
        return;
      }
      some.clear();
      std::copy_if(rows.begin(), rows.end(), std::back_inserter(some),
                   [this](std::int64_t row) { return changed_->contains(row); });
      if (!some.empty()) {
        visit(some);
      }
    });
    return;
  }
  if (of_changed && changed_) {
    changed_->for_each(visit);
    return;
  }
  if (shard_.tier_ != nullptr) {
    shard_.tier_->for_each_row(visit);
    return;
  }
  constexpr std::int64_t kRows = 32768;
  const std::int64_t rows = shard_.rows().size();
  for (std::int64_t first = 0; first < rows; first += kRows) {
    some.resize(at(std::min(kRows, rows - first)));
    std::iota(some.begin(), some.end(), first);
    visit(some);
  }
}

void ShardRows::begin_written() {
  written_.emplace(shard_.rows().size());
}

std::optional<std::int64_t> ShardRows::written_rows() const {
  return written_ ? std::optional(written_->count()) : std::nullopt;
}

void ShardRows::for_each_written_row(const StateRowsVisitor& visit) const {
  WEFT_CHECK(written_.has_value(), "table '{}': nobody has counted the rows that are written",
             shard_.table().name);
  std::vector<std::int64_t> whole;
  written_->for_each([&](std::span<const std::int64_t> local) {
    whole_rows(local, whole);
    visit(whole);
  });
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

RowFiles* ShardRows::files() const {
  return shard_.options_.backing != nullptr ? shard_.options_.backing->files() : nullptr;
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
    for_each_local(which, [&](std::span<const std::int64_t> local) { rows.set(local); });
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
  if (written_) {
    written_->set(rows);
  }
  if (!changed_) {
    return;
  }
  changed_->set(rows);
  const std::scoped_lock lock(cut_mutex_);
  if (cut_ != nullptr) {
    cut_->before_change(rows);
  }
}

WrittenRows* ShardRows::begin_marks(std::int64_t rows) {
  updated_ += rows;
  if (updated_ > shard_.rows().size()) {
    written_.reset();
  }
  return written();
}

void ShardRows::note_written(std::span<const std::int64_t> rows) {
  check_no_cut();
  if (written_) {
    written_->set(rows);
  }
  if (changed_) {
    changed_->set(rows);
  }
}

void ShardRows::note_all_written() {
  check_no_cut();
  if (written_) {
    written_->set_all();
  }
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
