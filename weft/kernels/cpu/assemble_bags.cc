// for each run of bags:  for each job, which has columns of their rows
//   copy the bag's vector, or add the partial sums up the tree over the cuts, or clear the row
//   divide the row, if it is a mean
//
// Bound by memory: 8 bytes per column of a vector, 4 more per further partial sum. A task has about
// 256 KiB of rows, and 16 bags at least; of jobs whose rows are scattered, as much of the vectors.

#include "weft/kernels/assemble_bags.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/base/sum_present.h"
#include "weft/kernels/cpu/scratch.h"
#include "weft/kernels/tasks.h"

namespace weft::kernels {
namespace {

constexpr std::int64_t kAssembledFloatsPerTask = 65536;
constexpr std::int64_t kFewestAssembledBags = 16;
constexpr std::int64_t kMostAssembledBags = 1024;
constexpr std::int64_t kMostSummedBags = 128;  // whose terms are found at a time

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

const float* vector_of(const BagAssembly& job, const BagTerm& term) {
  const BagVectors& cut = job.cuts[at(term.cut)];
  return cut.vectors + term.vector * cut.stride;
}

/// The first of a cut's vectors that is of bag `bag` or of a later one.
std::int64_t first_vector(const BagVectors& cut, std::int64_t bag) {
  return cut.bags == nullptr ? std::min(bag, cut.count)
                             : std::lower_bound(cut.bags, cut.bags + cut.count, bag) - cut.bags;
}

std::int64_t bag_of(const BagVectors& cut, std::int64_t vector) {
  return cut.bags == nullptr ? vector : std::int64_t{cut.bags[vector]};
}

/// The vectors of one cut, and zeros to bags without one.
void copy_bags(const BagVectors& cut, Range bags, const VectorRows& to) {
  std::int64_t vector = first_vector(cut, bags.begin);
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    float* const row = to.data + b * to.stride;
    if (vector == cut.count || bag_of(cut, vector) != b) {
      std::fill_n(row, to.cols, 0.0F);
      continue;
    }
    if (cut.vectors != nullptr) {
      copy_floats(row, cut.vectors + vector * cut.stride, to.cols);
    }
    ++vector;
  }
}

/// The tree over the cuts that have a term, of several terms.
void add_terms(const BagAssembly& job,
               std::span<const BagTerm> terms,
               float* sums,
               std::span<float> out) {
  const auto cols = static_cast<std::int64_t>(out.size());
  std::array<const float*, 64> held;  // by tree slot
  const auto put = [&](std::int64_t i, int depth) {
    held[static_cast<std::size_t>(depth)] = vector_of(job, terms[at(i)]);
  };
  const auto join = [&](int depth) {
    float* const sum = sums + depth * cols;
    const auto i = static_cast<std::size_t>(depth);
    for (std::int64_t c = 0; c < cols; ++c) {
      sum[c] = held[i][c] + held[i + 1][c];
    }
    held[i] = sum;
  };
  const std::int32_t* const numbers = job.cut_numbers;
  const auto number_of = [&](std::int64_t i) {
    const std::int32_t cut = terms[at(i)].cut;
    return numbers == nullptr ? cut : numbers[cut];
  };
  sum_present(std::ssize(terms), number_of, put, join);
  copy_floats(out.data(), held[0], cols);
}

/// What a task that adds partial sums works with, in memory of its thread.
struct SumScratch {
  /// For a job of several cuts.
  explicit SumScratch(const BagAssembly& job) {
    constexpr std::int64_t kTermFloats = sizeof(BagTerm) / sizeof(float);
    const auto num_cuts = static_cast<std::int64_t>(job.cuts.size());
    const std::int64_t tree_cuts =
        job.cut_numbers == nullptr ? num_cuts : std::int64_t{job.cut_numbers[num_cuts - 1]} + 1;
    const std::int64_t num_terms = job.terms.begins == nullptr ? kMostSummedBags * num_cuts : 0;
    const std::int64_t num_begins = job.terms.begins == nullptr ? kMostSummedBags + 1 : 0;
    sums = ThreadScratch::get(tree_slots(tree_cuts) * job.to.cols + num_begins +
                              kTermFloats * num_terms);
    begins = reinterpret_cast<std::int32_t*>(sums + tree_slots(tree_cuts) * job.to.cols);
    terms = reinterpret_cast<BagTerm*>(begins + num_begins);
  }

  float* sums;           ///< [tree_slots(cuts)][columns]
  std::int32_t* begins;  ///< of terms that are not listed: of [kMostSummedBags] bags, and one more
  BagTerm* terms;
};

/// Calls call(cut, vector, place of the bag among `bags`) for each vector of these bags, cut after
/// cut, so that nothing depends on a guess which cut comes next.
template <typename Call>
void for_each_vector(std::span<const BagVectors> cuts, Range bags, const Call& call) {
  for (std::size_t k = 0; k < cuts.size(); ++k) {
    const BagVectors& cut = cuts[k];
    for (std::int64_t v = first_vector(cut, bags.begin); v < cut.count && bag_of(cut, v) < bags.end;
         ++v) {
      call(static_cast<std::int32_t>(k), static_cast<std::int32_t>(v), bag_of(cut, v) - bags.begin);
    }
  }
}

/// `of`: the terms of these bags.
void add_listed(const BagAssembly& job, Range bags, const BagTerms& of, float* sums) {
  const VectorRows& to = job.to;
  for (std::int64_t i = 0; i < bags.size(); ++i) {
    const std::span terms(of.terms + of.begins[i], of.terms + of.begins[i + 1]);
    float* const row = to.data + (bags.begin + i) * to.stride;
    if (terms.empty()) {
      std::fill_n(row, to.cols, 0.0F);
    } else if (terms.size() == 1) {
      copy_floats(row, vector_of(job, terms[0]), to.cols);
    } else {
      add_terms(job, terms, sums, {row, at(to.cols)});
    }
  }
}

/// At most kMostSummedBags, whose terms are not listed. Where none has several, the only one of
/// each is all there is to know.
void add_unlisted(const BagAssembly& job, Range bags, const SumScratch& scratch) {
  std::array<const float*, kMostSummedBags> only;
  std::fill_n(only.begin(), bags.size(), nullptr);
  std::fill_n(scratch.begins, bags.size() + 1, 0);
  std::int32_t* const next = scratch.begins + 1;
  bool several = false;
  for_each_vector(job.cuts, bags, [&](std::int32_t cut, std::int32_t vector, std::int64_t bag) {
    several |= next[bag]++ > 0;
    only[at(bag)] = vector_of(job, {cut, vector});
  });
  if (several) {
    std::int32_t begin = 0;
    for (std::int64_t b = 0; b < bags.size(); ++b) {
      begin += std::exchange(next[b], begin);
    }
    // Each begin moves on to that of the next bag.
    for_each_vector(job.cuts, bags, [&](std::int32_t cut, std::int32_t vector, std::int64_t bag) {
      scratch.terms[next[bag]++] = {cut, vector};
    });
    add_listed(job, bags, {scratch.begins, scratch.terms}, scratch.sums);
    return;
  }
  for (std::int64_t b = 0; b < bags.size(); ++b) {
    float* const row = job.to.data + (bags.begin + b) * job.to.stride;
    if (only[at(b)] == nullptr) {
      std::fill_n(row, job.to.cols, 0.0F);
    } else {
      copy_floats(row, only[at(b)], job.to.cols);
    }
  }
}

/// Of several cuts.
void add_bags(const BagAssembly& job, Range bags) {
  const SumScratch scratch(job);
  if (job.terms.begins != nullptr) {
    add_listed(job, bags, {job.terms.begins + bags.begin, job.terms.terms}, scratch.sums);
    return;
  }
  for (std::int64_t first = bags.begin; first < bags.end; first += kMostSummedBags) {
    add_unlisted(job, {first, std::min(first + kMostSummedBags, bags.end)}, scratch);
  }
}

void divide_by_lengths(const BagAssembly& job, Range bags) {
  for (std::int64_t b = bags.begin; b < bags.end; ++b) {
    const std::int64_t length = job.offsets[b + 1] - job.offsets[b];
    if (length > 1) {
      float* const row = job.to.data + b * job.to.stride;
      const auto divisor = static_cast<float>(length);
      for (std::int64_t c = 0; c < job.to.cols; ++c) {
        row[c] = row[c] / divisor;
      }
    }
  }
}

void make_bags(const BagAssembly& job, Range bags) {
  if (job.cuts.size() == 1) {
    copy_bags(job.cuts[0], bags, job.to);
  } else if (!job.cuts.empty()) {
    add_bags(job, bags);
  }
  if (job.offsets != nullptr) {
    divide_by_lengths(job, bags);
  }
}

void scatter(const BagAssembly& job, Range vectors) {
  const BagVectors& cut = job.cuts[0];
  for (std::int64_t v = vectors.begin; v < vectors.end; ++v) {
    copy_floats(job.to.data + bag_of(cut, v) * job.to.stride, cut.vectors + v * cut.stride,
                job.to.cols);
  }
}

bool is_scattered(const BagAssembly& job) {
  return job.others == BagAssembly::Others::kKept;
}

/// Whether a job is cut together with the one before it.
bool continues(std::span<const BagAssembly> jobs, std::int64_t i) {
  return i > 0 && !is_scattered(jobs[at(i)]) && !is_scattered(jobs[at(i - 1)]) &&
         jobs[at(i)].bags == jobs[at(i - 1)].bags && jobs[at(i)].first == jobs[at(i - 1)].first;
}

/// The end of the jobs that are cut together from `first` on.
std::int64_t group_end(std::span<const BagAssembly> jobs, std::int64_t first) {
  std::int64_t end = first + 1;
  while (end < static_cast<std::int64_t>(jobs.size()) && continues(jobs, end)) {
    ++end;
  }
  return end;
}

std::int64_t bags_per_task(std::span<const BagAssembly> group) {
  std::int64_t cols = 1;
  bool sums = false;
  for (const BagAssembly& job : group) {
    cols += job.to.cols;
    sums |= job.cuts.size() > 1;
  }
  return std::clamp(kAssembledFloatsPerTask / cols, kFewestAssembledBags,
                    sums ? kMostSummedBags : kMostAssembledBags);
}

std::int64_t tasks_of(std::span<const BagAssembly> jobs, std::int64_t i) {
  const BagAssembly& job = jobs[at(i)];
  if (is_scattered(job)) {
    const std::int64_t floats = job.cuts[0].count * job.to.cols;
    return (floats + kAssembledFloatsPerTask - 1) / kAssembledFloatsPerTask;
  }
  if (continues(jobs, i)) {
    return 0;
  }
  const std::int64_t each = bags_per_task(jobs.subspan(at(i), at(group_end(jobs, i) - i)));
  return (job.bags + each - 1) / each;
}

}  // namespace

void cpu::assemble_bags(Context& ctx, std::span<const BagAssembly> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) { return tasks_of(jobs, i); },
      [&](std::int64_t i, std::int64_t task) {
        const BagAssembly& first = jobs[at(i)];
        if (is_scattered(first)) {
          scatter(first, piece(first.cuts[0].count, tasks_of(jobs, i), task));
          return;
        }
        const std::span group = jobs.subspan(at(i), at(group_end(jobs, i) - i));
        const std::int64_t each = bags_per_task(group);
        const Range bags{first.first + task * each,
                         first.first + std::min((task + 1) * each, first.bags)};
        for (const BagAssembly& job : group) {
          make_bags(job, bags);
        }
      });
}

}  // namespace weft::kernels
