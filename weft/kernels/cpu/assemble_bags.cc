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

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/kernels/cpu/scratch.h"
#include "weft/kernels/tasks.h"

namespace weft::kernels {
namespace {

constexpr std::int64_t kAssembledFloatsPerTask = 65536;
constexpr std::int64_t kFewestAssembledBags = 16;
constexpr std::int64_t kMostAssembledBags = 1024;
constexpr std::int64_t kMostSummedBags = 128;  // whose terms are listed at a time

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

/// Stands for the terms of a bag that has several.
constexpr float kSeveral = 0.0F;

/// What a task that adds partial sums works with, in memory of its thread.
struct SumScratch {
  /// For a job of several cuts.
  explicit SumScratch(const BagAssembly& job) {
    const auto num_cuts = static_cast<std::int64_t>(job.cuts.size());
    constexpr std::int64_t kFloats = sizeof(void*) / sizeof(float);
    const std::int64_t listed = (kMostSummedBags + 1) * num_cuts;
    float* const memory = ThreadScratch::get(kFloats * listed + tree_slots(num_cuts) * job.to.cols);
    next = {reinterpret_cast<std::int64_t*>(memory), job.cuts.size()};
    terms = {reinterpret_cast<const float**>(memory + kFloats * num_cuts),
             at(kMostSummedBags * num_cuts)};
    sums = memory + kFloats * listed;
  }

  std::span<std::int64_t> next;   ///< [cuts] the first vector of the bags in hand
  std::span<const float*> terms;  ///< [kMostSummedBags][cuts], where a bag has several
  float* sums;                    ///< [tree_slots(cuts)][columns]
};

/// The only term of each bag, null or &kSeveral; then all terms. Cut after cut, so that nothing
/// depends on a guess which cut comes next.
void find_terms(std::span<const BagVectors> cuts,
                const SumScratch& scratch,
                Range bags,
                std::span<const float*> only) {
  std::fill(only.begin(), only.end(), nullptr);
  bool several = false;
  for (std::size_t k = 0; k < cuts.size(); ++k) {
    const BagVectors& cut = cuts[k];
    scratch.next[k] = first_vector(cut, bags.begin);
    for (std::int64_t v = scratch.next[k]; v < cut.count && bag_of(cut, v) < bags.end; ++v) {
      const float*& term = only[at(bag_of(cut, v) - bags.begin)];
      several |= term != nullptr;
      term = term == nullptr ? cut.vectors + v * cut.stride : &kSeveral;
    }
  }
  if (!several) {
    return;
  }
  std::fill(scratch.terms.begin(), scratch.terms.end(), nullptr);
  for (std::size_t k = 0; k < cuts.size(); ++k) {
    const BagVectors& cut = cuts[k];
    for (std::int64_t v = scratch.next[k]; v < cut.count && bag_of(cut, v) < bags.end; ++v) {
      scratch.terms[at(bag_of(cut, v) - bags.begin) * cuts.size() + k] =
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
    for (std::int64_t c = 0; c < cols; ++c) {
      sum[c] = held[i][c] + held[i + 1][c];
    }
    held[i] = sum;
  };
  sum_tree(Range{0, static_cast<std::int64_t>(terms.size())}, 0, leaf, join);
  copy_floats(out.data(), held[0], cols);
}

/// At most kMostSummedBags.
void add_some_bags(const BagAssembly& job, const SumScratch& scratch, Range bags) {
  std::array<const float*, kMostSummedBags> only;
  find_terms(job.cuts, scratch, bags, only);
  const VectorRows& to = job.to;
  const std::size_t cuts = job.cuts.size();
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

void add_bags(const BagAssembly& job, Range bags) {
  const SumScratch scratch(job);
  for (std::int64_t first = bags.begin; first < bags.end; first += kMostSummedBags) {
    add_some_bags(job, scratch, {first, std::min(first + kMostSummedBags, bags.end)});
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
