#include "weft/kernels/assemble_bags.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "weft/base/at.h"

namespace weft::kernels {
namespace {

/// The usual dimensions without a call.
void copy_floats(float* to, const float* from, std::int64_t count) {
  switch (count) {
    case 16:
      std::memcpy(to, from, 16 * sizeof(float));
      return;
    case 32:
      std::memcpy(to, from, 32 * sizeof(float));
      return;
    case 64:
      std::memcpy(to, from, 64 * sizeof(float));
      return;
    default:
      std::memcpy(to, from, at(count) * sizeof(float));
  }
}

/// Stands for the terms of a bag that has several.
constexpr float kSeveral = 0.0F;

void add_vectors(float* to, const float* a, const float* b, std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) {
    to[c] = a[c] + b[c];
  }
}

/// The only term of each bag, null or &kSeveral; then all terms. Cut after cut, so that nothing
/// depends on a guess which cut comes next.
void find_terms(const PartialSumsScratch& scratch, Range bags, std::span<const float*> only) {
  std::fill(only.begin(), only.end(), nullptr);
  bool several = false;
  for (const PartialSumsOfBags& cut : scratch.cuts) {
    for (std::int64_t v = cut.next; v < cut.end && cut.bags[v] < bags.end; ++v) {
      const float*& term = only[at(cut.bags[v] - bags.begin)];
      several |= term != nullptr;
      term = term == nullptr ? cut.vectors + v * cut.stride : &kSeveral;
    }
  }
  if (!several) {
    return;
  }
  std::fill(scratch.terms.begin(), scratch.terms.end(), nullptr);
  for (std::size_t k = 0; k < scratch.cuts.size(); ++k) {
    const PartialSumsOfBags& cut = scratch.cuts[k];
    for (std::int64_t v = cut.next; v < cut.end && cut.bags[v] < bags.end; ++v) {
      scratch.terms[at(cut.bags[v] - bags.begin) * scratch.cuts.size() + k] =
          cut.vectors + v * cut.stride;
    }
  }
}

/// The tree over the cuts that have a term.
void add_terms(std::span<const float* const> terms, float* sums, std::span<float> out) {
  const auto cols = static_cast<std::int64_t>(out.size());
  std::array<const float*, 64> held;  // by tree slot
  const auto leaf = [&](const Range& node, int depth) {
    held[static_cast<std::size_t>(depth)] = terms[at(node.begin)];
    return node.size() == 1 && terms[at(node.begin)] != nullptr;
  };
  const auto join = [&](int depth) {
    float* const sum = sums + depth * cols;
    const auto i = static_cast<std::size_t>(depth);
    add_vectors(sum, held[i], held[i + 1], cols);
    held[i] = sum;
  };
  sum_tree(Range{0, static_cast<std::int64_t>(terms.size())}, 0, leaf, join);
  copy_floats(out.data(), held[0], cols);
}

}  // namespace

void copy_bags(const float* from, const BagRows& of, Range bags, const VectorRows& to) {
  if (of.rows == nullptr) {
    for (std::int64_t b = bags.begin; b < bags.end; ++b) {
      copy_floats(to.data + b * to.stride, from + b * to.cols, to.cols);
    }
    return;
  }
  const std::int32_t* const last = of.rows + of.count;
  const std::int32_t* row = std::lower_bound(of.rows, last, bags.begin);
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    if (row != last && *row == b) {
      copy_floats(to.data + b * to.stride, from + (row - of.rows) * to.cols, to.cols);
      ++row;
    } else {
      std::fill_n(to.data + b * to.stride, to.cols, 0.0F);
    }
  }
}

void clear_other_bags(const BagRows& of, Range bags, const VectorRows& to) {
  if (of.rows == nullptr) {
    return;
  }
  const std::int32_t* const last = of.rows + of.count;
  const std::int32_t* row = std::lower_bound(of.rows, last, bags.begin);
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    if (row != last && *row == b) {
      ++row;
    } else {
      std::fill_n(to.data + b * to.stride, to.cols, 0.0F);
    }
  }
}

void copy_vectors(const float* from,
                  const std::int32_t* rows,
                  Range vectors,
                  const VectorRows& to) {
  for (std::int64_t v = vectors.begin; v < vectors.end; ++v) {
    copy_floats(to.data + (rows == nullptr ? v : rows[v]) * to.stride, from + v * to.cols, to.cols);
  }
}

void divide_by_lengths(std::span<const std::int64_t> offsets, Range bags, const VectorRows& rows) {
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    const std::int64_t length = offsets[at(b) + 1] - offsets[at(b)];
    if (length > 1) {
      float* const row = rows.data + b * rows.stride;
      const auto divisor = static_cast<float>(length);
      for (std::int64_t c = 0; c < rows.cols; ++c) {
        row[c] = row[c] / divisor;
      }
    }
  }
}

void add_partial_sums(const PartialSumsScratch& scratch, Range bags, const VectorRows& to) {
  std::array<const float*, kMostBagsOfPartialSums> only;
  find_terms(scratch, bags, only);
  const std::size_t cuts = scratch.cuts.size();
  for (std::int64_t i = 0; i < bags.size(); ++i) {
    float* const row = to.data + (bags.begin + i) * to.stride;
    if (only[at(i)] == nullptr) {
      std::fill_n(row, to.cols, 0.0F);
    } else if (only[at(i)] != &kSeveral) {
      copy_floats(row, only[at(i)], to.cols);
    } else {
      add_terms(scratch.terms.subspan(at(i) * cuts, cuts), scratch.sums, {row, at(to.cols)});
    }
  }
}

}  // namespace weft::kernels
