// items = (row, part, which vector), one per entry, in the given order
// count the digits of all items;  sort by digits, lowest first;  cut where row or part changes
//
// The key is row · 2^bits(part) + part. Where it fits 32 bits, which it does for 2^29 rows in 8
// parts, an item is one word and a pass of the sort moves 8 bytes per entry; otherwise an item is
// two words. Where parts ascend in the given order, as those of a single block do, a stable sort by
// row alone is enough: 20 bits for a million rows, two passes. Digits are counted while items are
// made. What goes with an entry is worked out from its item where there is one block without
// factors, the common case, and otherwise noted beside in the given order.
//
// Items, counts and notes are the thread's: they stay in its caches from table to table. 2048
// entries are 16 KiB, read and written three times; the result is 36 bytes per entry.

#include "weft/kernels/coalesce.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/cpu/digit_sort.h"
#include "weft/kernels/cpu/scratch.h"
#include "weft/kernels/tasks.h"

namespace weft::kernels {
namespace {

struct PackedItem {
  std::uint64_t word;

  friend auto operator<=>(const PackedItem&, const PackedItem&) = default;

  static PackedItem make(std::uint64_t key, std::int64_t place) {
    return {(key << 32) | static_cast<std::uint64_t>(place)};
  }

  [[nodiscard]] std::uint64_t key() const { return word >> 32; }

  [[nodiscard]] std::int64_t place() const { return static_cast<std::int64_t>(word & 0xFFFFFFFFU); }
};

/// A thread's memory for one run.
template <typename Item>
struct Scratch {
  Item* items;           ///< [n]
  Item* other;           ///< [n]
  std::int64_t* counts;  ///< [passes, buckets]
  const float** grads;   ///< [n] where noted
  float* weights;        ///< [n] where noted

  Scratch(std::int64_t n, const Digits& digits, bool noted) {
    const std::int64_t counted = digits.passes * digits.buckets();
    const std::int64_t item_bytes = n * static_cast<std::int64_t>(sizeof(Item));
    const std::int64_t noted_bytes = noted ? n * 12 : 0;
    auto* at = reinterpret_cast<std::byte*>(
        ThreadScratch::get((2 * item_bytes + counted * 8 + noted_bytes) / 4 + 1));
    items = reinterpret_cast<Item*>(at);
    other = items + n;
    counts = reinterpret_cast<std::int64_t*>(other + n);
    grads = reinterpret_cast<const float**>(counts + counted);
    weights = reinterpret_cast<float*>(grads + (noted ? n : 0));
    std::fill_n(counts, counted, 0);
  }
};

std::int64_t count_entries(std::span<const GradientBlock> blocks) {
  std::int64_t entries = 0;
  for (const GradientBlock& block : blocks) {
    entries += block.bags.num_ids();
  }
  return entries;
}

bool has_factors(const GradientBlock& block) {
  return block.pooled && block.bags.weights != nullptr;
}

bool parts_ascend(std::span<const GradientBlock> blocks) {
  if (blocks.size() > 1) {
    return false;
  }
  const std::int32_t* const parts = blocks.front().parts;
  bool ascend = true;
  for (std::int64_t bag = 1; bag < blocks.front().bags.bags; ++bag) {
    ascend &= parts[bag - 1] <= parts[bag];
  }
  return ascend;
}

/// The items in the given order. Not noted: `place` is the vector's number in the only block.
/// Noted: it is the entry's number, under which address and factor of its vector are found.
template <bool kNoted, typename Item>
void make_items(std::span<const GradientBlock> blocks,
                int part_bits,
                const Scratch<Item>& scratch) {
  std::int64_t entry = 0;
  for (const GradientBlock& block : blocks) {
    const Bags& bags = block.bags;
    const bool factors = has_factors(block);
    for (std::int64_t bag = 0; bag < bags.bags; ++bag) {
      const auto part = static_cast<std::uint64_t>(block.parts[bag]);
      for (std::int64_t i = bags.offsets[bag]; i < bags.offsets[bag + 1]; ++i, ++entry) {
        const std::int64_t vector = block.pooled ? bag : i - bags.offsets[0];
        const std::uint64_t key = (static_cast<std::uint64_t>(bags.ids[i]) << part_bits) | part;
        scratch.items[entry] = Item::make(key, kNoted ? entry : vector);
        if constexpr (kNoted) {
          scratch.grads[entry] = block.vector(vector);
          scratch.weights[entry] = factors ? bags.weights[i] : 1.0F;
        }
      }
    }
  }
}

/// Bits of a key: all, and those of its part, which are the lowest.
struct KeyBits {
  int all;
  int part;
};

/// Cuts sorted items. Ends are written at every entry, the last write being the right one: what
/// is random in a step, where a row ends, is no branch. `vector_of(item)` gives the address.
template <typename Item, typename VectorOf>
RowRuns cut_runs(const RunArrays& runs,
                 std::span<const Item> items,
                 int part_bits,
                 const VectorOf& vector_of) {
  const std::uint64_t part_mask = (std::uint64_t{1} << part_bits) - 1;
  std::int64_t row = -1;
  std::int32_t segment = -1;
  std::uint64_t previous = 0;
  const RunArrays to = runs;
  const auto n = static_cast<std::int64_t>(items.size());
  to.row_segments[0] = 0;
  to.segment_entries[0] = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t key = items[at(i)].key();
    row += i == 0 || key >> part_bits != previous >> part_bits ? 1 : 0;
    segment += i == 0 || key != previous ? 1 : 0;
    previous = key;
    to.rows[row] = static_cast<std::int64_t>(key >> part_bits);
    to.row_segments[row + 1] = segment + 1;
    to.segment_parts[segment] = static_cast<std::int32_t>(key & part_mask);
    to.segment_entries[segment + 1] = static_cast<std::int32_t>(i) + 1;
    to.grads[i] = vector_of(items[at(i)]);
  }
  return to.runs(row + 1, segment + 1, n);
}

/// `n` entries.
template <typename Item>
RowRuns sort(const CoalesceJob& job, std::int64_t n, KeyBits bits) {
  const std::span<const GradientBlock> blocks = job.blocks;
  const bool weighted = std::any_of(blocks.begin(), blocks.end(), has_factors);
  const bool noted = weighted || blocks.size() != 1;
  const bool few = n < kFewItems;
  const int first_bit = !few && parts_ascend(blocks) ? bits.part : 0;
  const Digits digits = few ? Digits{} : choose_digits(first_bit, bits.all, n);
  const Scratch<Item> scratch(n, digits, noted);
  if (noted) {
    make_items<true>(blocks, bits.part, scratch);
  } else {
    make_items<false>(blocks, bits.part, scratch);
  }
  const Item* items = scratch.items;
  if (few) {
    // Places ascend in the given order, so that this is the stable order too.
    std::sort(scratch.items, scratch.items + n);
  } else {
    items = sort_by_digits(scratch, n, digits);
  }
  const RunArrays runs = job.buffers->resize(n, weighted ? n : 0);
  const std::span<const Item> sorted(items, at(n));
  if (!noted) {
    const GradientBlock block = blocks.front();  // a copy, which no write to the runs can change
    if (block.places == nullptr) {
      return cut_runs(runs, sorted, bits.part, [block](const Item& item) {
        return block.grads + item.place() * block.grad_stride;
      });
    }
    return cut_runs(runs, sorted, bits.part,
                    [block](const Item& item) { return block.vector(item.place()); });
  }
  for (std::int64_t i = 0; weighted && i < n; ++i) {
    runs.weights[i] = scratch.weights[items[i].place()];
  }
  return cut_runs(runs, sorted, bits.part,
                  [&](const Item& item) { return scratch.grads[item.place()]; });
}

RowRuns coalesce_table(const CoalesceJob& job) {
  const std::int64_t n = count_entries(job.blocks);
  const int part_bits = bits_below(job.parts);
  const int bits = bits_below(job.rows) + part_bits;
  WEFT_CHECK(bits <= 64, "{} rows in {} parts need keys of {} bits", job.rows, job.parts, bits);
  if (n > std::numeric_limits<std::int32_t>::max() - 1) {
    fail(ErrorCode::kConfig,
         "{} ids of one table on one rank in a step, more than 2^31 - 2: use a smaller batch or "
         "more ranks",
         n);
  }
  const KeyBits key_bits{bits, part_bits};
  return bits <= 32 ? sort<PackedItem>(job, n, key_bits) : sort<WideItem>(job, n, key_bits);
}

}  // namespace

void cpu::coalesce(Context& ctx, std::span<const CoalesceJob> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()), [](std::int64_t) { return std::int64_t{1}; },
      [&](std::int64_t i, std::int64_t) { *jobs[at(i)].runs = coalesce_table(jobs[at(i)]); });
}

void cpu::count_up(Context& ctx, std::span<const CountUp> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()), [](std::int64_t) { return std::int64_t{1}; },
      [&](std::int64_t i, std::int64_t) {
        const CountUp& job = jobs[at(i)];
        std::iota(job.out, job.out + job.count, std::int64_t{0});
      });
}

}  // namespace weft::kernels
