#include "weft/embedding/row_marks.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "weft/base/at.h"

namespace weft::embedding {
namespace {

constexpr std::int64_t kWordRows = 64;

}  // namespace

RowMarks::RowMarks(std::int64_t rows)
    : rows_(rows), pages_(at((rows + kPageRows - 1) / kPageRows)) {
}

void RowMarks::set(std::span<const std::int64_t> rows) {
  for (const std::int64_t row : rows) {
    std::unique_ptr<Page>& page = pages_[at(row / kPageRows)];
    if (page == nullptr) {
      page = std::make_unique<Page>(at(kPageRows / kWordRows));
    }
    (*page)[at(row % kPageRows / kWordRows)] |= std::uint64_t{1} << (row % kWordRows);
  }
}

void RowMarks::set_all() {
  for (std::size_t p = 0; p < pages_.size(); ++p) {
    const std::int64_t rows = std::min(kPageRows, rows_ - static_cast<std::int64_t>(p) * kPageRows);
    pages_[p] = std::make_unique<Page>(at(kPageRows / kWordRows));
    for (std::int64_t row = 0; row < rows; row += kWordRows) {
      const std::int64_t left = std::min(kWordRows, rows - row);
      (*pages_[p])[at(row / kWordRows)] = ~std::uint64_t{0} >> (kWordRows - left);
    }
  }
}

void RowMarks::clear() {
  for (std::unique_ptr<Page>& page : pages_) {
    page.reset();
  }
}

void RowMarks::reset(std::int64_t row) {
  const std::unique_ptr<Page>& page = pages_[at(row / kPageRows)];
  if (page != nullptr) {
    (*page)[at(row % kPageRows / kWordRows)] &= ~(std::uint64_t{1} << (row % kWordRows));
  }
}

std::int64_t RowMarks::take(std::int64_t first, std::int64_t most, std::vector<std::int64_t>& out) {
  std::int64_t row = first;
  while (row < rows_) {
    const std::unique_ptr<Page>& page = pages_[at(row / kPageRows)];
    if (page == nullptr) {
      row = (row / kPageRows + 1) * kPageRows;
      continue;
    }
    std::uint64_t& word = (*page)[at(row % kPageRows / kWordRows)];
    const std::int64_t word_row = row / kWordRows * kWordRows;
    for (std::uint64_t left = word >> (row - word_row) << (row - word_row); left != 0;
         left &= left - 1) {
      if (most-- == 0) {
        return word_row + std::countr_zero(left);
      }
      out.push_back(word_row + std::countr_zero(left));
      word &= ~(left & -left);
    }
    row = word_row + kWordRows;
  }
  return rows_;
}

bool RowMarks::contains(std::int64_t row) const {
  const std::unique_ptr<Page>& page = pages_[at(row / kPageRows)];
  return page != nullptr &&
         ((*page)[at(row % kPageRows / kWordRows)] >> (row % kWordRows) & 1) != 0;
}

void RowMarks::for_each(const std::function<void(std::span<const std::int64_t>)>& visit) const {
  std::vector<std::int64_t> rows;
  for (std::size_t p = 0; p < pages_.size(); ++p) {
    if (pages_[p] == nullptr) {
      continue;
    }
    rows.clear();
    for (std::size_t w = 0; w < pages_[p]->size(); ++w) {
      const std::int64_t first =
          static_cast<std::int64_t>(p) * kPageRows + static_cast<std::int64_t>(w) * kWordRows;
      for (std::uint64_t word = (*pages_[p])[w]; word != 0; word &= word - 1) {
        rows.push_back(first + std::countr_zero(word));
      }
    }
    if (!rows.empty()) {
      visit(rows);
    }
  }
}

}  // namespace weft::embedding
