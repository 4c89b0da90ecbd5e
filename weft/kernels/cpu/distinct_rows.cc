// items = (row, number of the id), one per id;  sort by row;  number the rows as they change
//
// A radix sort of all ids is faster than a hash table of them and a sort of what is distinct: on a
// core with 1 MiB of second cache 5 to 7 ns an id against 7 to 13 for rows of 20 to 30 bits, also
// where a third of the ids repeat; the table is read at random, the digits' ends are few lines.
// An item is one word where the bits of both numbers fit.
//
// Slots of places: per id 4 bytes read in order, 8 at random out of the caches, 8 written.
// Slots of rows: both lists are walked; the shorter one's rows are searched for by doubling steps
// where the other has many times as many.

#include "weft/kernels/distinct_rows.h"

#include <algorithm>
#include <limits>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/cpu/digit_sort.h"
#include "weft/kernels/cpu/scratch.h"
#include "weft/kernels/tasks.h"

namespace weft::kernels {
namespace {

/// The bits of a row above those of the number of its id.
struct NumberedRow {
  std::uint64_t word;

  friend auto operator<=>(const NumberedRow&, const NumberedRow&) = default;

  [[nodiscard]] std::uint64_t key() const { return word; }
};

/// A thread's memory for one sort.
template <typename Item>
struct SortMemory {
  Item* items;           ///< [n]
  Item* other;           ///< [n]
  std::int64_t* counts;  ///< [passes, buckets]

  SortMemory(std::int64_t n, const Digits& digits) {
    const std::int64_t counted = digits.passes * digits.buckets();
    const std::int64_t bytes =
        2 * n * static_cast<std::int64_t>(sizeof(Item)) + counted * std::int64_t{8};
    items = reinterpret_cast<Item*>(ThreadScratch::get(bytes / 4 + 1));
    other = items + n;
    counts = reinterpret_cast<std::int64_t*>(other + n);
    std::fill_n(counts, counted, 0);
  }
};

/// Calls body(row, number) for every id of the lists, in their order.
template <typename Body>
void for_ids(std::span<const Bags> lists, const Body& body) {
  std::int64_t number = 0;
  for (const Bags& bags : lists) {
    const std::int64_t* const ids = bags.bags == 0 ? nullptr : bags.ids + bags.offsets[0];
    const std::int64_t count = bags.num_ids();
    for (std::int64_t i = 0; i < count; ++i, ++number) {
      body(static_cast<std::uint64_t>(ids[i]), number);
    }
  }
}

/// Numbers sorted items [n]; row_of(item), number_of(item). Returns how many rows there are. A row
/// is written for every id, the last write being the right one: where rows change is no branch.
template <typename Item, typename RowOf, typename NumberOf>
std::int64_t number_rows(std::span<const Item> items,
                         const DistinctBuffers::Arrays& to,
                         const RowOf& row_of,
                         const NumberOf& number_of) {
  std::int64_t place = -1;
  std::uint64_t before = std::numeric_limits<std::uint64_t>::max();  // no row: they are below 2^63
  for (const Item& item : items) {
    const std::uint64_t row = row_of(item);
    place += row != before ? 1 : 0;
    before = row;
    to.rows[place] = static_cast<std::int64_t>(row);
    to.places[number_of(item)] = static_cast<std::int32_t>(place);
  }
  return place + 1;
}

template <typename Item>
std::span<const Item> sorted(const SortMemory<Item>& memory, std::int64_t n, const Digits& digits) {
  if (n < kFewItems) {
    std::sort(memory.items, memory.items + n);
    return {memory.items, at(n)};
  }
  return {sort_by_digits(memory, n, digits), at(n)};
}

std::int64_t sort_words(const DistinctJob& job,
                        std::int64_t n,
                        int number_bits,
                        const DistinctBuffers::Arrays& to) {
  const Digits digits =
      n < kFewItems ? Digits{} : choose_digits(number_bits, number_bits + bits_below(job.rows), n);
  const SortMemory<NumberedRow> memory(n, digits);
  for_ids(job.lists, [&](std::uint64_t row, std::int64_t number) {
    memory.items[number] = {row << number_bits | static_cast<std::uint64_t>(number)};
  });
  const std::uint64_t mask = (std::uint64_t{1} << number_bits) - 1;
  return number_rows(
      sorted(memory, n, digits), to, [&](NumberedRow item) { return item.word >> number_bits; },
      [&](NumberedRow item) { return item.word & mask; });
}

std::int64_t sort_pairs(const DistinctJob& job, std::int64_t n, const DistinctBuffers::Arrays& to) {
  const Digits digits = n < kFewItems ? Digits{} : choose_digits(0, bits_below(job.rows), n);
  const SortMemory<WideItem> memory(n, digits);
  for_ids(job.lists, [&](std::uint64_t row, std::int64_t number) {
    memory.items[number] = WideItem::make(row, number);
  });
  return number_rows(
      sorted(memory, n, digits), to, [](const WideItem& item) { return item.key(); },
      [](const WideItem& item) { return item.place(); });
}

void find_rows(const DistinctJob& job) {
  std::int64_t n = 0;
  for (const Bags& bags : job.lists) {
    n += bags.num_ids();
  }
  if (n > std::numeric_limits<std::int32_t>::max() - 1) {
    fail(ErrorCode::kConfig,
         "{} ids of one table on one rank in a step, more than 2^31 - 2: use a smaller batch or "
         "more ranks",
         n);
  }
  const DistinctBuffers::Arrays to = job.buffers->resize(n, job.lists.size());
  std::int64_t first = 0;
  for (std::size_t l = 0; l < job.lists.size(); ++l) {
    const Bags& bags = job.lists[l];
    to.shifts[l] = first - (bags.bags == 0 ? 0 : bags.offsets[0]);
    first += bags.num_ids();
  }
  const int number_bits = bits_below(n);
  const std::int64_t rows = bits_below(job.rows) + number_bits <= 64
                                ? sort_words(job, n, number_bits, to)
                                : sort_pairs(job, n, to);
  *job.distinct = {.num_rows = rows,
                   .num_ids = n,
                   .rows = to.rows,
                   .places = to.places,
                   .shifts = std::span(to.shifts, job.lists.size())};
}

constexpr std::int64_t kPlacesPerTask = 1 << 14;

/// The first of known rows [from, known) that is not below `row`. Rows that ascend find theirs near
/// the last one's.
std::int64_t next_known(const RowSlots& job, std::int64_t from, std::int64_t row) {
  std::int64_t step = 1;
  std::int64_t end = from;
  while (end < job.known && job.known_rows[end] < row) {
    from = end + 1;
    end += step;
    step *= 2;
  }
  const std::int64_t* const first = job.known_rows;
  return std::lower_bound(first + from, first + std::min(end, job.known), row) - first;
}

void merge_slots(const RowSlots& job, Range rows) {
  std::int64_t k = 0;
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    k = next_known(job, k, job.rows[i]);
    job.out[i] = k < job.known && job.known_rows[k] == job.rows[i] ? job.slots[k] : -1;
  }
}

}  // namespace

void cpu::find_distinct_rows(Context& ctx, std::span<const DistinctJob> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()), [](std::int64_t) { return std::int64_t{1}; },
      [&](std::int64_t i, std::int64_t) { find_rows(jobs[at(i)]); });
}

void cpu::slots_of_places(Context& ctx, std::span<const PlaceSlots> jobs) {
  run_rows(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) {
        return RowWork{
            .rows = {0, jobs[at(i)].count}, .row_bytes = 1, .task_bytes = kPlacesPerTask};
      },
      [&](std::int64_t i, Range ids) {
        const PlaceSlots& job = jobs[at(i)];
        for (std::int64_t k = ids.begin; k < ids.end; ++k) {
          job.out[k] = job.slots[job.places[k]];
        }
      });
}

void cpu::slots_of_rows(Context& ctx, std::span<const RowSlots> jobs) {
  run_rows(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) {
        return RowWork{
            .rows = {0, jobs[at(i)].count}, .row_bytes = 1, .task_bytes = kPlacesPerTask};
      },
      [&](std::int64_t i, Range rows) { merge_slots(jobs[at(i)], rows); });
}

}  // namespace weft::kernels
