#include "weft/kernels/vector_draws.h"

#include <algorithm>

namespace weft::kernels {
namespace {

/// Of two numbers: unique for 2^27 samples and 2^36 rows; beyond, two vectors may share words.
std::int64_t draw(std::int64_t sample, std::int64_t row) {
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(sample) << 36) +
                                   static_cast<std::uint64_t>(row));
}

}  // namespace

void VectorDraws::number(Range numbers, std::int64_t* out) const {
  const Range vectors{first + numbers.begin, first + numbers.end};
  switch (of) {
    case Of::kNone:
      std::fill_n(out, vectors.size(), 0);
      break;
    case Of::kBags:
      for (std::int64_t v = vectors.begin; v < vectors.end; ++v) {
        const std::int64_t sample = first_sample + (places == nullptr ? v : places[v]);
        *out++ = draw(sample, offsets[v] < offsets[v + 1] ? row(ids[offsets[v]]) : 0);
      }
      break;
    case Of::kSamples:
      for (std::int64_t v = vectors.begin; v < vectors.end; ++v) {
        *out++ = draw(first_sample + (places == nullptr ? v : places[v]), 0);
      }
      break;
    case Of::kRows:
      for (std::int64_t v = vectors.begin; v < vectors.end; ++v) {
        *out++ = draw(0, row(ids[offsets[0] + v]));
      }
      break;
    case Of::kPlaces:
      number_places(vectors, out);
      break;
    case Of::kPartialSums:
      number_partial_sums(vectors, out);
      break;
  }
}

/// Places ascend, so the bags are walked once.
void VectorDraws::number_places(Range vectors, std::int64_t* out) const {
  const auto id_of = [this](std::int64_t v) {
    return offsets[0] + (places == nullptr ? v : places[v]);
  };
  if (vectors.begin == vectors.end) {
    return;
  }
  std::int64_t bag =
      std::upper_bound(offsets, offsets + bags + 1, id_of(vectors.begin)) - offsets - 1;
  for (std::int64_t v = vectors.begin; v < vectors.end; ++v) {
    const std::int64_t id = id_of(v);
    while (offsets[bag + 1] <= id) {
      ++bag;
    }
    *out++ = draw(first_sample + bag, id - offsets[bag]);
  }
}

void VectorDraws::number_partial_sums(Range vectors, std::int64_t* out) const {
  std::size_t run = 0;
  std::int64_t end = runs.empty() ? 0 : runs[0];
  for (std::int64_t v = vectors.begin; v < vectors.end; ++v) {
    while (v >= end) {
      end += runs[++run];
    }
    *out++ = draw(run_parts[run], row(ids[v]));
  }
}

}  // namespace weft::kernels
