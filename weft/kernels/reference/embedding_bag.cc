#include "weft/kernels/embedding_bag.h"

#include "weft/kernels/reference/row_values.h"

namespace weft::kernels::reference {
namespace {

float element(const BagLookup& lookup, std::int64_t id, std::int64_t col) {
  const char* const row = static_cast<const char*>(lookup.weights) + id * lookup.weight_stride;
  return load_element(row, lookup.dtype, col);
}

float& result(const BagLookup& lookup, std::int64_t number, std::int64_t col) {
  const bool is_listed = lookup.places != nullptr;
  return lookup.out[(is_listed ? lookup.places[number] : number * lookup.out_stride) + col];
}

void pooled(const BagLookup& lookup) {
  const Bags& bags = lookup.bags;
  for (std::int64_t b = 0; b < bags.bags; ++b) {
    for (std::int64_t col = 0; col < lookup.cols; ++col) {
      float sum = 0.0F;
      for (std::int64_t i = bags.offsets[b]; i < bags.offsets[b + 1]; ++i) {
        const float value = element(lookup, bags.ids[i], col);
        const float term = bags.weights == nullptr ? value : bags.weights[i] * value;
        sum = i == bags.offsets[b] ? term : sum + term;
      }
      result(lookup, b, col) = sum;
    }
  }
}

void sequence(const BagLookup& lookup) {
  const Bags& bags = lookup.bags;
  for (std::int64_t i = 0; i < bags.num_ids(); ++i) {
    for (std::int64_t col = 0; col < lookup.cols; ++col) {
      result(lookup, i, col) = element(lookup, bags.ids[bags.offsets[0] + i], col);
    }
  }
}

}  // namespace

void embedding_bag(Context& /*ctx*/, std::span<const BagLookup> lookups) {
  for (const BagLookup& lookup : lookups) {
    if (lookup.pooled) {
      pooled(lookup);
    } else {
      sequence(lookup);
    }
  }
}

}  // namespace weft::kernels::reference
