// for each bag:  out = term(first id);  for each further id:  out += term(id)
//   term(id) = row(id), or round(weight · row(id))
//
// Memory-bound: one random row of cols · size_of(dtype) bytes per id, 1 or 2 flops per element, and
// 4 · cols bytes written per bag. Sums stay in registers, eight vectors of columns at a time; the
// rows of later ids are prefetched, since the processor cannot guess them, beyond the end of bag
// and task too. Where the results of a call are larger than the caches near a core they are
// written past them: a plain store would read every line before it overwrites it.

#include "weft/kernels/embedding_bag.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/embedding_bag.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/kernels/cpu/bag_output.h"
#include "weft/kernels/cpu/rows-inl.h"
#include "weft/kernels/tasks.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

template <class Row>
HWY_INLINE const typename Row::Element* row_at(const BagLookup& lookup, std::int64_t id) {
  return reinterpret_cast<const typename Row::Element*>(static_cast<const char*>(lookup.weights) +
                                                        id * lookup.weight_stride);
}

/// Where result `number` goes.
HWY_INLINE float* result(const BagLookup& lookup, std::int64_t number) {
  return lookup.out +
         (lookup.places == nullptr ? number * lookup.out_stride : lookup.places[number]);
}

/// A run of ids whose rows are added up.
struct Bag {
  const std::int64_t* ids;
  const float* weights;
  std::int64_t size;
};

template <class Row, bool kWeighted, class D>
HWY_INLINE hn::Vec<D> term(
    D d, const BagLookup& lookup, const Bag& bag, std::int64_t place, std::int64_t col) {
  const hn::Vec<D> row = Row::load(d, row_at<Row>(lookup, bag.ids[place]) + col);
  if constexpr (kWeighted) {
    return hn::Mul(hn::Set(d, bag.weights[place]), row);
  } else {
    return row;
  }
}

/// Columns [col, col + kVectors · lanes) of a bag that is not empty.
template <class Row, bool kWeighted, class Store, int kVectors, class D>
HWY_INLINE void sum_columns(
    D d, const BagLookup& lookup, const Bag& bag, std::int64_t col, float* out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<D> sums[kVectors];
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = term<Row, kWeighted>(d, lookup, bag, 0, col + v * lanes);
  }
  for (std::int64_t i = 1; i < bag.size; ++i) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::Add(sums[v], term<Row, kWeighted>(d, lookup, bag, i, col + v * lanes));
    }
  }
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) {
    Store::store(sums[v], d, out + col + v * lanes);
  }
}

/// Sums the leading columns that are four or eight vectors, and says how many they are. Not
/// inlined: beside this code that which copies the row of a bag of one id was a fifth slower.
template <class Row, bool kWeighted, class Store>
HWY_NOINLINE std::int64_t sum_wide_columns(const BagLookup& lookup, const Bag& bag, float* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t col = 0;
  for (; col + 8 * lanes <= lookup.cols; col += 8 * lanes) {
    sum_columns<Row, kWeighted, Store, 8>(d, lookup, bag, col, out);
  }
  if (col + 4 * lanes <= lookup.cols) {
    sum_columns<Row, kWeighted, Store, 4>(d, lookup, bag, col, out);
    col += 4 * lanes;
  }
  return col;
}

/// Streamed only where the columns are whole vectors.
template <class Row, bool kWeighted, class Store>
HWY_INLINE void sum_bag(const BagLookup& lookup, const Bag& bag, float* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t col = 0;
  if (lookup.cols >= 4 * lanes) {
    col = sum_wide_columns<Row, kWeighted, Store>(lookup, bag, out);
  }
  if (col + 2 * lanes <= lookup.cols) {
    sum_columns<Row, kWeighted, Store, 2>(d, lookup, bag, col, out);
    col += 2 * lanes;
  }
  if (col + lanes <= lookup.cols) {
    sum_columns<Row, kWeighted, Store, 1>(d, lookup, bag, col, out);
    col += lanes;
  }
  for_columns(col, lookup.cols, [&](auto tag, std::int64_t at) HWY_ATTR {
    sum_columns<Row, kWeighted, CachedStore, 1>(tag, lookup, bag, at, out);
  });
}

template <class Row, class Store>
HWY_INLINE void copy_row(const typename Row::Element* row, std::int64_t cols, float* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t col = 0;
  for (; col + lanes <= cols; col += lanes) {
    Store::store(Row::load(d, row + col), d, out + col);
  }
  for_columns(col, cols, [&](auto tag, std::int64_t at) HWY_ATTR {
    hn::StoreU(Row::load(tag, row + at), tag, out + at);
  });
}

/// Asks for the rows of places ahead of the one in hand.
template <class Row>
class RowsAhead {
 public:
  RowsAhead(const BagLookup& lookup, std::int64_t first)
      : lookup_(lookup),
        bytes_(lookup.cols * static_cast<std::int64_t>(sizeof(typename Row::Element))),
        distance_(rows_ahead(bytes_)),
        next_(first),
        end_(lookup.bags.offsets[lookup.bags.bags]) {}

  HWY_INLINE void advance(std::int64_t place) {
    for (const std::int64_t end = std::min(place + distance_, end_); next_ < end; ++next_) {
      prefetch_row(row_at<Row>(lookup_, lookup_.bags.ids[next_]), bytes_);
    }
  }

 private:
  const BagLookup& lookup_;
  std::int64_t bytes_;
  std::int64_t distance_;
  std::int64_t next_;
  std::int64_t end_;
};

/// One row per place.
template <class Row, class Store>
void copy_rows(const BagLookup& lookup, Range places) {
  const std::int64_t base = lookup.bags.offsets[0];
  RowsAhead<Row> ahead(lookup, base + places.begin);
  for (std::int64_t i = places.begin; i < places.end; ++i) {
    ahead.advance(base + i);
    copy_row<Row, Store>(row_at<Row>(lookup, lookup.bags.ids[base + i]), lookup.cols,
                         result(lookup, i));
  }
}

template <class Row, bool kWeighted, class Store>
void sum_bags(const BagLookup& lookup, Range range) {
  const Bags& bags = lookup.bags;
  RowsAhead<Row> ahead(lookup, bags.offsets[range.begin]);
  for (std::int64_t b = range.begin; b < range.end; ++b) {
    const std::int64_t begin = bags.offsets[b];
    const std::int64_t size = bags.offsets[b + 1] - begin;
    float* const out = result(lookup, b);
    ahead.advance(begin + size);
    if (size == 0) {
      std::fill_n(out, lookup.cols, 0.0F);
    } else if (size == 1 && !kWeighted) {
      copy_row<Row, Store>(row_at<Row>(lookup, bags.ids[begin]), lookup.cols, out);
    } else {
      sum_bag<Row, kWeighted, Store>(
          lookup, {bags.ids + begin, kWeighted ? bags.weights + begin : nullptr, size}, out);
    }
  }
}

template <class Row, class Store>
void look_up(const BagLookup& lookup, Range range) {
  if (!lookup.pooled) {
    copy_rows<Row, Store>(lookup, range);
  } else if (lookup.bags.weights == nullptr) {
    sum_bags<Row, false, Store>(lookup, range);
  } else {
    sum_bags<Row, true, Store>(lookup, range);
  }
}

/// Whether every row of the output begins on a vector and is made of whole ones.
inline bool can_stream(const BagLookup& lookup, Range results) {
  constexpr std::int64_t kFloats = 16;
  const auto is_aligned = [](std::int64_t place) { return place % kFloats == 0; };
  return is_aligned(lookup.cols) && reinterpret_cast<std::uintptr_t>(lookup.out) % kLine == 0 &&
         (lookup.places == nullptr ? is_aligned(lookup.out_stride)
                                   : std::all_of(lookup.places + results.begin,
                                                 lookup.places + results.end, is_aligned));
}

template <class Row>
void look_up(const BagLookup& lookup, Output output, Range range) {
  if (output == Output::kFar && can_stream(lookup, range)) {
    look_up<Row, StreamedStore>(lookup, range);
    hwy::FlushStream();
  } else {
    look_up<Row, CachedStore>(lookup, range);
  }
}

/// Pooled: `range` are bags; otherwise places.
void look_up_range(const BagLookup& lookup, Output output, Range range) {
  switch (lookup.dtype) {
    case DType::kFloat32:
      return look_up<Fp32Row>(lookup, output, range);
    case DType::kFloat16:
      return look_up<Fp16Row>(lookup, output, range);
    case DType::kBFloat16:
    case DType::kSplitBFloat16:
      return look_up<Bf16Row>(lookup, output, range);
    default:
      fail(ErrorCode::kInternal, "embedding rows of type {}", to_string(lookup.dtype));
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(look_up_range);

namespace {

// A task is about this much work, a bag counting as much as an id: 10 to 100 µs, against 5 µs to
// wake a thread.
constexpr std::int64_t kCostPerTask = 2048;

/// Of all bags before b.
std::int64_t cost_before(const Bags& bags, std::int64_t b) {
  return bags.offsets[b] - bags.offsets[0] + b;
}

std::int64_t cost_of(const BagLookup& lookup) {
  return lookup.pooled ? cost_before(lookup.bags, lookup.bags.bags) : 2 * lookup.bags.num_ids();
}

/// The first bag at or behind `cost`; bags of any lengths are so cut into equal work.
std::int64_t bag_at(const Bags& bags, std::int64_t cost) {
  std::int64_t begin = 0;
  std::int64_t end = bags.bags;
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (cost_before(bags, middle) < cost) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

std::int64_t block_count(const BagLookup& lookup) {
  return lookup.bags.bags == 0 ? 0 : (cost_of(lookup) + kCostPerTask - 1) / kCostPerTask;
}

Range block_range(const BagLookup& lookup, std::int64_t block) {
  if (block == 0 && cost_of(lookup) <= kCostPerTask) {  // all, without a search
    return {0, lookup.pooled ? lookup.bags.bags : lookup.bags.num_ids()};
  }
  const std::int64_t begin = block * kCostPerTask;
  const std::int64_t end = begin + kCostPerTask;
  return lookup.pooled ? Range{bag_at(lookup.bags, begin), bag_at(lookup.bags, end)}
                       : Range{begin / 2, std::min(end / 2, lookup.bags.num_ids())};
}

Output output_of(std::span<const BagLookup> lookups) {
  constexpr std::int64_t kFarFloats = (2 << 20) / static_cast<std::int64_t>(sizeof(float));
  std::int64_t floats = 0;
  for (const BagLookup& lookup : lookups) {
    floats += (lookup.pooled ? lookup.bags.bags : lookup.bags.num_ids()) * lookup.cols;
  }
  return floats > kFarFloats ? Output::kFar : Output::kNear;
}

}  // namespace

void cpu::embedding_bag(Context& ctx, std::span<const BagLookup> lookups) {
  const Output output = output_of(lookups);
  run_blocks(
      ctx, static_cast<std::int64_t>(lookups.size()),
      [&](std::int64_t i) { return block_count(lookups[at(i)]); },
      [&](std::int64_t i, std::int64_t block) {
        const BagLookup& lookup = lookups[at(i)];
        HWY_DYNAMIC_DISPATCH(look_up_range)(lookup, output, block_range(lookup, block));
      });
}

void validate_ids(const Bags& bags, std::int64_t rows, const char* what) {
  if (bags.bags == 0) {
    return;
  }
  for (std::int64_t i = bags.offsets[0]; i < bags.offsets[bags.bags]; ++i) {
    if (bags.ids[i] < 0 || bags.ids[i] >= rows) {
      fail(ErrorCode::kData, "{}: id {} at place {} is outside the rows [0, {})", what, bags.ids[i],
           i, rows);
    }
  }
}

}  // namespace weft::kernels

#endif  // HWY_ONCE
