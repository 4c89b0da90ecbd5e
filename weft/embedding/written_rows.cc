#include "weft/embedding/written_rows.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "weft/base/at.h"
#include "weft/base/thread_pool.h"

namespace weft::embedding {
namespace {

constexpr std::int64_t kRowsOfWord = 64;
/// Rows that are visited at a time, at most so many and those of a word.
constexpr std::size_t kVisited = 8192;

}  // namespace

WrittenRows::WrittenRows(std::int64_t rows)
    : rows_(rows), words_(at((rows + kRowsOfWord - 1) / kRowsOfWord)) {
}

void WrittenRows::set(std::span<const std::int64_t> rows) {
  constexpr std::size_t kAhead = 16;  // rows are far apart in large tables
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) {
      __builtin_prefetch(words_.data() + rows[i + kAhead] / kRowsOfWord, 1);
    }
    words_[at(rows[i] / kRowsOfWord)] |= std::uint64_t{1} << (rows[i] % kRowsOfWord);
  }
}

void WrittenRows::set(std::span<const std::int32_t> rows) {
  for (const std::int64_t row : rows) {
    words_[at(row / kRowsOfWord)] |= std::uint64_t{1} << (row % kRowsOfWord);
  }
}

void WrittenRows::set_range(std::int64_t begin, std::int64_t count) {
  const std::int64_t end = begin + count;
  for (std::int64_t row = begin; row < end;) {
    const std::int64_t word = row / kRowsOfWord;
    const std::int64_t next = std::min(end, (word + 1) * kRowsOfWord);
    words_[at(word)] |= ~std::uint64_t{0} >> (kRowsOfWord - (next - row)) << (row % kRowsOfWord);
    row = next;
  }
}

bool WrittenRows::contains(std::int64_t row) const {
  return (words_[at(row / kRowsOfWord)] >> (row % kRowsOfWord) & 1) != 0;
}

std::int64_t WrittenRows::count() const {
  std::int64_t count = 0;
  for (const std::uint64_t word : words_) {
    count += std::popcount(word);
  }
  return count;
}

void WrittenRows::for_each(const std::function<void(std::span<const std::int64_t>)>& visit) const {
  std::vector<std::int64_t> rows;
  rows.reserve(kVisited + at(kRowsOfWord));
  for (std::size_t w = 0; w < words_.size(); ++w) {
    for (std::uint64_t word = words_[w]; word != 0; word &= word - 1) {
      rows.push_back(static_cast<std::int64_t>(w) * kRowsOfWord + std::countr_zero(word));
    }
    if (rows.size() >= kVisited) {
      visit(rows);
      rows.clear();
    }
  }
  if (!rows.empty()) {
    visit(rows);
  }
}

void mark_rows(Context& ctx, std::span<const RowsToMark> jobs) {
  ctx.pool->parallel_for(std::ssize(jobs), [jobs](std::int64_t i) {
    const RowsToMark& job = jobs[at(i)];
    job.to->set(job.rows);
  });
}

}  // namespace weft::embedding
