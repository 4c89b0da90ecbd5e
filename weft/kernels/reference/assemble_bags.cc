#include "weft/kernels/assemble_bags.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/parts.h"

namespace weft::kernels::reference {
namespace {

/// The number of a bag's vector in a cut.
std::optional<std::int64_t> vector_of(const BagVectors& cut, std::int64_t bag) {
  if (cut.bags == nullptr) {
    return bag < cut.count ? std::optional(bag) : std::nullopt;
  }
  const std::int32_t* const end = cut.bags + cut.count;
  const std::int32_t* const found = std::find(cut.bags, end, bag);
  return found == end ? std::nullopt : std::optional<std::int64_t>(found - cut.bags);
}

/// The same of any of the job's cuts.
std::optional<std::int64_t> vector_of(const BagAssembly& job, std::int64_t cut, std::int64_t bag) {
  if (job.terms.begins == nullptr) {
    return vector_of(job.cuts[at(cut)], bag);
  }
  const BagTerm* const end = job.terms.terms + job.terms.begins[bag + 1];
  const BagTerm* const found = std::find_if(job.terms.terms + job.terms.begins[bag], end,
                                            [cut](const BagTerm& term) { return term.cut == cut; });
  return found == end ? std::nullopt : std::optional<std::int64_t>(found->vector);
}

/// The sum over the cuts that have the bag, up their tree; zeros where none has.
std::vector<float> sum_of(const BagAssembly& job, std::int64_t bag) {
  const auto cols = at(job.to.cols);
  const auto given = static_cast<std::int64_t>(job.cuts.size());
  const std::int32_t* const numbers = job.cut_numbers;
  const std::int64_t cuts = numbers == nullptr ? given : std::int64_t{numbers[given - 1]} + 1;
  std::vector<std::vector<float>> slots(at(tree_slots(cuts)) + 1, std::vector<float>(cols));
  const auto leaf = [&](const Range& node, int depth) {
    const std::int64_t k = numbers == nullptr
                               ? node.begin
                               : std::lower_bound(numbers, numbers + given, node.begin) - numbers;
    const bool is_given = k < given && (numbers == nullptr || numbers[k] == node.begin);
    const std::optional<std::int64_t> vector =
        node.size() == 1 && is_given ? vector_of(job, k, bag) : std::nullopt;
    if (vector) {
      const BagVectors& cut = job.cuts[at(k)];
      const float* const from = cut.vectors + *vector * cut.stride;
      slots[static_cast<std::size_t>(depth)].assign(from, from + cols);
    }
    return vector.has_value();
  };
  const auto add = [&](int depth) {
    const auto slot = static_cast<std::size_t>(depth);
    for (std::size_t c = 0; c < cols; ++c) {
      slots[slot][c] = slots[slot][c] + slots[slot + 1][c];
    }
  };
  return sum_tree({0, cuts}, 0, leaf, add) ? slots[0] : std::vector<float>(cols, 0.0F);
}

void write_row(const BagAssembly& job, std::int64_t bag) {
  const bool has_sum = job.cuts.empty();
  const bool is_there = job.cuts.size() == 1 && job.cuts[0].vectors == nullptr;
  float* const row = job.to.data + bag * job.to.stride;
  if (!has_sum && !(is_there && vector_of(job.cuts[0], bag))) {
    const std::vector<float> sum =
        is_there ? std::vector<float>(at(job.to.cols), 0.0F) : sum_of(job, bag);
    std::copy(sum.begin(), sum.end(), row);
  }
  const std::int64_t length = job.offsets == nullptr ? 1 : job.offsets[bag + 1] - job.offsets[bag];
  for (std::int64_t c = 0; c < job.to.cols && length > 1; ++c) {
    row[c] = row[c] / static_cast<float>(length);
  }
}

}  // namespace

void assemble_bags(Context& /*ctx*/, std::span<const BagAssembly> jobs) {
  for (const BagAssembly& job : jobs) {
    for (std::int64_t bag = job.first; bag < job.first + job.bags; ++bag) {
      if (job.others == BagAssembly::Others::kZeros || vector_of(job.cuts[0], bag)) {
        write_row(job, bag);
      }
    }
  }
}

}  // namespace weft::kernels::reference
