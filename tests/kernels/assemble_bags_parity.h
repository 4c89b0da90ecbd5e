// The parity list of assemble_bags: every backend passes it (tests/kernels/parity.h).
#pragma once

#include <algorithm>
#include <deque>
#include <numeric>
#include <vector>

#include "tests/kernels/parity.h"
#include "weft/kernels/assemble_bags.h"

namespace weft::kernels::test {

/// Jobs that write columns of one matrix, a row a bag, and jobs that scatter vectors to another.
class AssemblyCases {
 public:
  AssemblyCases(Random& random, std::int64_t bags) : random_(random), bags_(bags) {
    for (std::int64_t b = 0; b < bags; ++b) {
      offsets_.push_back(offsets_.back() + below(random, 4));
    }
    for (const std::int64_t cols : {1, 16, 17, 64}) {
      for (const bool is_mean : {false, true}) {
        add(cols, is_mean, 0, 0);
        add(cols, is_mean, 1, 3);
        add(cols, is_mean, 1, 3).are_there = true;
        add(cols, is_mean, 1, 1);
        for (const std::size_t cuts : {2U, 3U, 9U, 70U}) {
          add(cols, is_mean, cuts, 2);
          add(cols, is_mean, cuts, 6);
        }
      }
    }
    place_columns();
    for (const std::int64_t cols : {1, 32, 33}) {
      scatter(cols);
    }
  }

  /// All in one call.
  void expect_parity(Device& device) {
    run_on(device, [&](Context& ctx) {
      out_.place(ctx);
      scattered_.place(ctx);
      const std::vector<BagAssembly> there = jobs(out_.placed(), scattered_.placed(),
                                                  [&](Cut& cut) { return cut.vectors.place(ctx); });
      assemble_bags(ctx, there);
      const std::vector<BagAssembly> here =
          jobs(out_.host(), scattered_.host(), [](Cut& cut) { return cut.vectors.host(); });
      reference::assemble_bags(ctx, here);
      EXPECT_TRUE(out_.same_bits(ctx)) << bags_ << " bags";
      EXPECT_TRUE(scattered_.same_bits(ctx)) << bags_ << " bags, scattered";
    });
  }

 private:
  struct Cut {
    std::int64_t stride = 0;
    std::vector<std::int32_t> bags;  ///< in order, but where vectors are scattered
    bool is_listed = true;
    std::int64_t count = 0;
    Copied<float> vectors;
  };

  struct Case {
    std::int64_t first_col = 0;
    std::int64_t cols = 0;
    bool is_mean = false;
    bool are_there = false;
    bool is_scattered = false;
    std::deque<Cut> cuts;
    std::vector<BagVectors> views;
    std::vector<std::int32_t> begins;  ///< of the terms of each bag, where they are listed
    std::vector<BagTerm> terms;
  };

  std::vector<float> numbers(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::generate(values.begin(), values.end(), [&] { return number(random_); });
    return values;
  }

  /// A job of some cuts, each of which has one in `rare` bags; of 1 all, without a list.
  Case& add(std::int64_t cols, bool is_mean, std::size_t cuts, std::int64_t rare) {
    Case& added = cases_.emplace_back();
    added.cols = cols;
    added.is_mean = is_mean;
    for (std::size_t k = 0; k < cuts; ++k) {
      Cut& cut = added.cuts.emplace_back();
      cut.stride = cols + static_cast<std::int64_t>(k % 2) * 5;
      cut.is_listed = rare > 1;
      for (std::int64_t b = 0; b < bags_; ++b) {
        if (below(random_, rare) == 0) {
          cut.bags.push_back(static_cast<std::int32_t>(b));
        }
      }
      cut.count = std::ssize(cut.bags);
      cut.vectors = Copied(numbers(cut.count * cut.stride));
    }
    if (cases_.size() % 2 == 0) {
      list_terms(added);
    }
    return added;
  }

  void list_terms(Case& one) const {
    for (std::int64_t b = 0; b <= bags_; ++b) {
      one.begins.push_back(static_cast<std::int32_t>(std::ssize(one.terms)));
      for (std::size_t k = 0; k < one.cuts.size() && b < bags_; ++k) {
        const std::vector<std::int32_t>& bags = one.cuts[k].bags;
        const auto found = std::lower_bound(bags.begin(), bags.end(), b);
        if (found != bags.end() && *found == b) {
          one.terms.push_back({.cut = static_cast<std::int32_t>(k),
                               .vector = static_cast<std::int32_t>(found - bags.begin())});
        }
      }
    }
  }

  /// Columns beside each other, some of which no job writes.
  void place_columns() {
    for (Case& one : cases_) {
      one.first_col = stride_ + 1;
      stride_ += one.cols + 2;
    }
    out_ = Copied(numbers(bags_ * stride_));
  }

  /// Some of the rows of a matrix, in any order; the others stay.
  void scatter(std::int64_t cols) {
    Case& added = cases_.emplace_back();
    added.cols = cols;
    added.is_scattered = true;
    added.first_col = scattered_cols_;
    scattered_cols_ += cols;
    Cut& cut = added.cuts.emplace_back();
    cut.stride = cols;
    cut.is_listed = cols != 32;
    cut.bags.resize(static_cast<std::size_t>(bags_));
    std::iota(cut.bags.begin(), cut.bags.end(), 0);
    if (cut.is_listed) {
      std::shuffle(cut.bags.begin(), cut.bags.end(), random_);
    }
    cut.count = bags_ / 2;
    cut.vectors = Copied(numbers(cut.count * cols));
    scattered_ = Copied(std::vector<float>(static_cast<std::size_t>(bags_ * kScatteredStride)));
  }

  template <typename Vectors>
  std::vector<BagAssembly> jobs(float* out, float* scattered, const Vectors& vectors) {
    std::vector<BagAssembly> made;
    for (Case& one : cases_) {
      one.views.clear();
      for (Cut& cut : one.cuts) {
        one.views.push_back({.vectors = one.are_there ? nullptr : vectors(cut),
                             .stride = cut.stride,
                             .bags = cut.is_listed ? cut.bags.data() : nullptr,
                             .count = cut.count});
      }
      BagAssembly& job = made.emplace_back();
      job.to = {(one.is_scattered ? scattered : out) + one.first_col,
                one.is_scattered ? kScatteredStride : stride_, one.cols};
      job.bags = bags_;
      job.cuts = one.views;
      if (!one.begins.empty()) {
        job.terms = {one.begins.data(), one.terms.data()};
      }
      job.others = one.is_scattered ? BagAssembly::Others::kKept : BagAssembly::Others::kZeros;
      job.offsets = one.is_mean ? offsets_.data() : nullptr;
    }
    return made;
  }

  static constexpr std::int64_t kScatteredStride = 70;

  Random& random_;
  std::int64_t bags_;
  std::vector<std::int64_t> offsets_ = {0};
  std::deque<Case> cases_;
  std::int64_t stride_ = 0;
  std::int64_t scattered_cols_ = 0;
  Copied<float> out_, scattered_;
};

/// The list: no bag, few and more than a task has; every number of cuts, means, strides, vectors
/// that are in their rows already, scattered ones.
inline void expect_assemble_bags_parity(Device& device) {
  Random random(21);
  for (const std::int64_t bags : {0, 1, 5, 130, 1500}) {
    AssemblyCases(random, bags).expect_parity(device);
  }
}

}  // namespace weft::kernels::test
