// for each bag:  out = term(first id);  for each further id:  out += term(id)
//   term(id) = row(id), or round(weight · row(id))
//
// Memory-bound: one random row of cols · size_of(dtype) bytes per id, 1 or 2 flops per element.
// Sums stay in registers, four vectors of columns at a time; the rows of the ids kAhead places
// later are prefetched, since the processor cannot guess them. Ahead of bags too: most hold one id.

#include "weft/kernels/embedding_bag.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/embedding_bag.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/kernels/cpu/rows-inl.h"
#include "weft/kernels/tasks.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

// About 100 ns to fetch a row from memory, 5 to 20 ns to add one.
constexpr std::int64_t kAhead = 16;

template <class Row>
const typename Row::Element* row_at(const BagLookup& lookup, std::int64_t id) {
  return reinterpret_cast<const typename Row::Element*>(static_cast<const char*>(lookup.weights) +
                                                        id * lookup.weight_stride);
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

template <class Row, bool kWeighted>
void sum_bag(const BagLookup& lookup, const Bag& bag, float* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t col = 0;
  for (; col + 4 * lanes <= lookup.cols; col += 4 * lanes) {
    auto sum0 = term<Row, kWeighted>(d, lookup, bag, 0, col);
    auto sum1 = term<Row, kWeighted>(d, lookup, bag, 0, col + lanes);
    auto sum2 = term<Row, kWeighted>(d, lookup, bag, 0, col + 2 * lanes);
    auto sum3 = term<Row, kWeighted>(d, lookup, bag, 0, col + 3 * lanes);
    for (std::int64_t i = 1; i < bag.size; ++i) {
      sum0 = hn::Add(sum0, term<Row, kWeighted>(d, lookup, bag, i, col));
      sum1 = hn::Add(sum1, term<Row, kWeighted>(d, lookup, bag, i, col + lanes));
      sum2 = hn::Add(sum2, term<Row, kWeighted>(d, lookup, bag, i, col + 2 * lanes));
      sum3 = hn::Add(sum3, term<Row, kWeighted>(d, lookup, bag, i, col + 3 * lanes));
    }
    hn::StoreU(sum0, d, out + col);
    hn::StoreU(sum1, d, out + col + lanes);
    hn::StoreU(sum2, d, out + col + 2 * lanes);
    hn::StoreU(sum3, d, out + col + 3 * lanes);
  }
  for_columns(col, lookup.cols, [&](auto tag, std::int64_t at) HWY_ATTR {
    auto sum = term<Row, kWeighted>(tag, lookup, bag, 0, at);
    for (std::int64_t i = 1; i < bag.size; ++i) {
      sum = hn::Add(sum, term<Row, kWeighted>(tag, lookup, bag, i, at));
    }
    hn::StoreU(sum, tag, out + at);
  });
}

/// Pooled: `range` are bags; otherwise places.
template <class Row>
void look_up(const BagLookup& lookup, Range range) {
  const Bags& bags = lookup.bags;
  const std::int64_t base = bags.offsets[0];
  const Range places = lookup.pooled ? Range{bags.offsets[range.begin], bags.offsets[range.end]}
                                     : Range{base + range.begin, base + range.end};
  const std::int64_t row_bytes =
      lookup.cols * static_cast<std::int64_t>(sizeof(typename Row::Element));
  std::int64_t ahead = places.begin;
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const Range bag_places =
        lookup.pooled ? Range{bags.offsets[i], bags.offsets[i + 1]} : Range{base + i, base + i + 1};
    for (const std::int64_t end = std::min(bag_places.end + kAhead, places.end); ahead < end;
         ++ahead) {
      prefetch_row(row_at<Row>(lookup, bags.ids[ahead]), row_bytes);
    }
    float* const out = lookup.out + i * lookup.out_stride;
    if (bag_places.empty()) {
      std::fill_n(out, lookup.cols, 0.0F);
      continue;
    }
    const Bag bag{bags.ids + bag_places.begin,
                  bags.weights == nullptr ? nullptr : bags.weights + bag_places.begin,
                  bag_places.size()};
    if (lookup.pooled && bag.weights != nullptr) {
      sum_bag<Row, true>(lookup, bag, out);
    } else {
      sum_bag<Row, false>(lookup, bag, out);
    }
  }
}

void look_up_range(const BagLookup& lookup, Range range) {
  switch (lookup.dtype) {
    case DType::kFloat32:
      return look_up<Fp32Row>(lookup, range);
    case DType::kFloat16:
      return look_up<Fp16Row>(lookup, range);
    case DType::kBFloat16:
    case DType::kSplitBFloat16:
      return look_up<Bf16Row>(lookup, range);
    default:
      fail(ErrorCode::kInternal, "embedding rows of type {}", to_string(lookup.dtype));
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {
namespace {

HWY_EXPORT(look_up_range);

// A task looks up about this many rows: 10 to 100 µs, against 5 µs to wake a thread.
constexpr std::int64_t kRowsPerLookupTask = 1024;

std::int64_t units(const BagLookup& lookup) {
  return lookup.pooled ? lookup.bags.bags : lookup.bags.num_ids();
}

std::int64_t units_per_block(const BagLookup& lookup) {
  const std::int64_t ids = std::max<std::int64_t>(lookup.bags.num_ids(), 1);
  return lookup.pooled ? std::clamp<std::int64_t>(lookup.bags.bags * kRowsPerLookupTask / ids, 1,
                                                  4 * kRowsPerLookupTask)
                       : kRowsPerLookupTask;
}

}  // namespace

std::int64_t embedding_bag_blocks(const BagLookup& lookup) {
  const std::int64_t per_block = units_per_block(lookup);
  return (units(lookup) + per_block - 1) / per_block;
}

void embedding_bag_block(const BagLookup& lookup, std::int64_t block) {
  const std::int64_t per_block = units_per_block(lookup);
  const Range range{block * per_block, std::min((block + 1) * per_block, units(lookup))};
  HWY_DYNAMIC_DISPATCH(look_up_range)(lookup, range);
}

void embedding_bag(Context& ctx, std::span<const BagLookup> lookups) {
  run_blocks(
      ctx, static_cast<std::int64_t>(lookups.size()),
      [&](std::int64_t i) { return embedding_bag_blocks(lookups[static_cast<std::size_t>(i)]); },
      [&](std::int64_t i, std::int64_t block) {
        embedding_bag_block(lookups[static_cast<std::size_t>(i)], block);
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
