// items = (row, part, place in the given order), one per entry
// sort items by (row, part), stably;  cut where row or part changes
//
// The key is row · 2^bits(part) + part. Where it fits 32 bits, which it does for 2^29 rows in 8
// parts, an item is one word, key above place, and a radix pass moves 8 bytes per entry; otherwise
// an item is two words. Digits of at most 11 bits keep a histogram (8 KiB) in the first cache.

#include "weft/kernels/coalesce.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "weft/base/error.h"

namespace weft::kernels {
namespace {

constexpr int kMaxDigitBits = 11;
// Below this a comparison sort is faster than clearing and adding up histograms.
constexpr std::int64_t kSmall = 256;

struct PackedItem {
  std::uint64_t word;

  static PackedItem make(std::uint64_t key, std::int64_t place) {
    return {(key << 32) | static_cast<std::uint64_t>(place)};
  }

  [[nodiscard]] std::uint64_t key() const { return word >> 32; }

  [[nodiscard]] std::int64_t place() const { return static_cast<std::int64_t>(word & 0xFFFFFFFFU); }

  friend auto operator<=>(const PackedItem&, const PackedItem&) = default;
};

struct WideItem {
  std::uint64_t key_word;
  std::int64_t place_word;

  static WideItem make(std::uint64_t key, std::int64_t place) { return {key, place}; }

  [[nodiscard]] std::uint64_t key() const { return key_word; }

  [[nodiscard]] std::int64_t place() const { return place_word; }

  friend auto operator<=>(const WideItem&, const WideItem&) = default;
};

int bits_below(std::int64_t count) {
  return count <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1)));
}

/// Sorts `items` [n] by key, using `other` [n]; returns where the result lies. Places ascend in
/// the input, so that ordering by (key, place) is the stable order.
template <typename Item>
Item* sort_items(Item* items, Item* other, std::int64_t n, int bits, Buffer& histograms) {
  if (n < kSmall) {
    std::sort(items, items + n);
    return items;
  }
  const int passes = (bits + kMaxDigitBits - 1) / kMaxDigitBits;
  if (passes == 0) {
    return items;
  }
  const int digit_bits = (bits + passes - 1) / passes;
  const std::int64_t buckets = std::int64_t{1} << digit_bits;
  const std::uint64_t mask = static_cast<std::uint64_t>(buckets - 1);
  auto* const counts = histograms.resize_for<std::int64_t>(buckets * passes);
  std::fill_n(counts, buckets * passes, 0);
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint64_t key = items[i].key();
    for (int pass = 0; pass < passes; ++pass, key >>= digit_bits) {
      ++counts[pass * buckets + static_cast<std::int64_t>(key & mask)];
    }
  }
  for (int pass = 0; pass < passes; ++pass) {
    std::int64_t* const starts = counts + pass * buckets;
    const int shift = pass * digit_bits;
    if (starts[(items[0].key() >> shift) & mask] == n) {
      continue;  // all have the same digit
    }
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < buckets; ++b) {
      sum += std::exchange(starts[b], sum);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      other[starts[(items[i].key() >> shift) & mask]++] = items[i];
    }
    std::swap(items, other);
  }
  return items;
}

std::int64_t count_entries(std::span<const GradientBlock> blocks) {
  std::int64_t entries = 0;
  for (const GradientBlock& block : blocks) {
    entries += block.bags.num_ids();
  }
  return entries;
}

bool any_weights(std::span<const GradientBlock> blocks) {
  return std::any_of(blocks.begin(), blocks.end(), [](const GradientBlock& block) {
    return block.pooled && block.bags.weights != nullptr;
  });
}

/// Calls visit(block, bag, place) for every entry in the given order; place counts from
/// offsets[0].
template <typename Visit>
void for_each_entry(std::span<const GradientBlock> blocks, const Visit& visit) {
  for (const GradientBlock& block : blocks) {
    for (std::int64_t bag = 0; bag < block.bags.bags; ++bag) {
      for (std::int64_t i = block.bags.offsets[bag]; i < block.bags.offsets[bag + 1]; ++i) {
        visit(block, bag, i);
      }
    }
  }
}

}  // namespace

Coalescer::Coalescer(Device& device)
    : items_(device),
      histograms_(device),
      entry_grads_(device),
      entry_weights_(device),
      grads_(device),
      weights_(device),
      rows_(device),
      row_segments_(device),
      segment_entries_(device),
      segment_parts_(device) {
}

RowRuns Coalescer::run(std::span<const GradientBlock> blocks,
                       std::int64_t rows,
                       std::int64_t parts) {
  const std::int64_t n = count_entries(blocks);
  const int part_bits = bits_below(parts);
  const int bits = bits_below(rows) + part_bits;
  WEFT_CHECK(bits <= 64, "{} rows in {} parts need keys of {} bits", rows, parts, bits);
  const KeyBits key_bits{bits, part_bits};
  note_addresses(blocks, n);
  return bits <= 32 && n < (std::int64_t{1} << 32) ? sort<PackedItem>(blocks, n, key_bits)
                                                   : sort<WideItem>(blocks, n, key_bits);
}

/// Where each entry's vector lies and its factor, in the given order.
void Coalescer::note_addresses(std::span<const GradientBlock> blocks, std::int64_t n) {
  auto* const grads = entry_grads_.resize_for<const float*>(n);
  float* const weights = any_weights(blocks) ? entry_weights_.resize_for<float>(n) : nullptr;
  weighted_ = weights != nullptr;
  std::int64_t entry = 0;
  for_each_entry(blocks, [&](const GradientBlock& block, std::int64_t bag, std::int64_t i) {
    const std::int64_t vector = block.pooled ? bag : i - block.bags.offsets[0];
    grads[entry] = block.grads + vector * block.grad_stride;
    if (weights != nullptr) {
      const bool factor = block.pooled && block.bags.weights != nullptr;
      weights[entry] = factor ? block.bags.weights[i] : 1.0F;
    }
    ++entry;
  });
}

template <typename Item>
RowRuns Coalescer::sort(std::span<const GradientBlock> blocks, std::int64_t n, KeyBits bits) {
  auto* const items = items_.resize_for<Item>(2 * n);
  std::int64_t entry = 0;
  for_each_entry(blocks, [&](const GradientBlock& block, std::int64_t bag, std::int64_t i) {
    const auto row = static_cast<std::uint64_t>(block.bags.ids[i]);
    const auto part = static_cast<std::uint64_t>(block.parts[bag]);
    items[entry] = Item::make((row << bits.part) | part, entry);
    ++entry;
  });
  return cut(sort_items(items, items + n, n, bits.all, histograms_), n, bits.part);
}

template <typename Item>
RowRuns Coalescer::cut(const Item* items, std::int64_t n, int part_bits) {
  auto* const rows = rows_.resize_for<std::int64_t>(n);
  auto* const row_segments = row_segments_.resize_for<std::int64_t>(n + 1);
  auto* const segment_entries = segment_entries_.resize_for<std::int64_t>(n + 1);
  auto* const segment_parts = segment_parts_.resize_for<std::int32_t>(n);
  auto* const grads = grads_.resize_for<const float*>(n);
  float* const weights = weighted_ ? weights_.resize_for<float>(n) : nullptr;
  const auto* const entry_grads = entry_grads_.as<const float*>();
  const auto* const entry_weights = entry_weights_.as<const float>();
  const std::uint64_t part_mask = (std::uint64_t{1} << part_bits) - 1;
  std::int64_t num_rows = 0;
  std::int64_t num_segments = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t key = items[i].key();
    const std::uint64_t previous = i == 0 ? ~key : items[i - 1].key();
    if (key >> part_bits != previous >> part_bits || i == 0) {
      rows[num_rows] = static_cast<std::int64_t>(key >> part_bits);
      row_segments[num_rows] = num_segments;
      ++num_rows;
    }
    if (key != previous) {
      segment_entries[num_segments] = i;
      segment_parts[num_segments] = static_cast<std::int32_t>(key & part_mask);
      ++num_segments;
    }
    grads[i] = entry_grads[items[i].place()];
    if (weights != nullptr) {
      weights[i] = entry_weights[items[i].place()];
    }
  }
  row_segments[num_rows] = num_segments;
  segment_entries[num_segments] = n;
  return {.num_rows = num_rows,
          .num_segments = num_segments,
          .num_entries = n,
          .rows = rows,
          .row_segments = row_segments,
          .segment_entries = segment_entries,
          .segment_parts = segment_parts,
          .grads = grads,
          .weights = weights};
}

}  // namespace weft::kernels
