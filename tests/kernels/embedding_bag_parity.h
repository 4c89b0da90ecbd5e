// The parity list of embedding_bag: every backend passes it (tests/kernels/parity.h).
#pragma once

#include <deque>
#include <vector>

#include "tests/kernels/parity.h"
#include "weft/kernels/embedding_bag.h"

namespace weft::kernels::test {

/// Several lookups of one table, each into its own output with a wide stride.
class LookupCases {
 public:
  LookupCases(Random& random, const TableCase& table) : table_(table), weights_(table.weights) {
    for (const bool pooled : {true, false}) {
      for (const bool weighted : {false, true}) {
        BagsShape shape{.rows = table.rows, .cols = table.view.cols};
        shape.pooled = pooled;
        shape.weighted = weighted;
        add(make_bags(random, shape), 3);
        shape.bags = 1;
        add(make_bags(random, shape), 16);
        shape.bags = 3;
        shape.longest = 400;
        add(make_bags(random, shape), 0);
        shape.bags = 7;
        shape.longest = 3;
        add(make_bags(random, shape), 5, true);
      }
    }
    add(BagsCase(), 0);
  }

  /// Rows of outputs are `apart` floats longer than they need to be; listed ones go to places, the
  /// last one first.
  void add(BagsCase bags, std::int64_t apart, bool listed = false) {
    const std::int64_t vectors =
        bags.pooled ? bags.bags().bags : static_cast<std::int64_t>(bags.ids.size());
    const std::int64_t stride = table_.view.cols + apart;
    Case& added = cases_.emplace_back();
    added.pooled = bags.pooled;
    added.weighted = bags.weighted;
    added.stride = stride;
    added.ids = Copied(bags.ids);
    added.offsets = Copied(bags.offsets);
    added.factors = Copied(bags.weights);
    added.listed = listed;
    std::vector<std::int64_t> places;
    for (std::int64_t v = vectors - 1; v >= 0; --v) {
      places.push_back(v * stride);
    }
    added.places = Copied(places);
    added.out = Copied(std::vector<float>(static_cast<std::size_t>(vectors * stride), -7.0F));
  }

  /// All in one call.
  void expect_parity(Device& device) {
    run_on(device, [&](Context& ctx) {
      std::vector<BagLookup> there;
      weights_.place(ctx);
      for (Case& one : cases_) {
        one.out.place(ctx);
        there.push_back(job(one, weights_.placed(), one.ids.place(ctx), one.offsets.place(ctx),
                            one.factors.place(ctx), one.places.place(ctx), one.out.placed()));
      }
      embedding_bag(ctx, there);
      std::vector<BagLookup> here;
      for (Case& one : cases_) {
        here.push_back(job(one, weights_.host(), one.ids.host(), one.offsets.host(),
                           one.factors.host(), one.places.host(), one.out.host()));
      }
      reference::embedding_bag(ctx, here);
      for (std::size_t i = 0; i < cases_.size(); ++i) {
        EXPECT_TRUE(cases_[i].out.same_bits(ctx))
            << "lookup " << i << " of " << to_string(table_.view.dtype) << ", " << table_.view.cols
            << " columns";
      }
    });
  }

 private:
  struct Case {
    bool pooled = true;
    bool weighted = false;
    bool listed = false;
    std::int64_t stride = 0;
    Copied<std::int64_t> ids, offsets, places;
    Copied<float> factors, out;
  };

  BagLookup job(const Case& one,
                const void* weights,
                const std::int64_t* ids,
                const std::int64_t* offsets,
                const float* factors,
                const std::int64_t* places,
                float* out) const {
    return {.weights = weights,
            .weight_stride = table_.view.weight_stride,
            .dtype = table_.view.dtype,
            .cols = table_.view.cols,
            .bags = {ids, offsets, one.weighted ? factors : nullptr,
                     static_cast<std::int64_t>(one.offsets.values().size()) - 1},
            .pooled = one.pooled,
            .out = out,
            .out_stride = one.listed ? 0 : one.stride,
            .places = one.listed ? places : nullptr};
  }

  const TableCase& table_;
  Copied<std::byte> weights_;
  std::deque<Case> cases_;
};

/// Bags that are cut into many tasks: none, one, and one with more ids than a task has.
inline BagsCase bags_of_any_length(Random& random, std::int64_t rows, std::int64_t cols) {
  BagsCase bags;
  bags.cols = cols;
  for (std::int64_t b = 0; b < 9000; ++b) {
    const std::int64_t length = b == 4000 ? 7000 : b < 3000 ? 0 : below(random, 3);
    for (std::int64_t i = 0; i < length; ++i) {
      bags.ids.push_back(below(random, rows));
    }
    bags.offsets.push_back(static_cast<std::int64_t>(bags.ids.size()));
  }
  return bags;
}

/// The list: every row type and width, bags of all lengths, and results of some MiB, which the CPU
/// writes past its caches where the columns, and places where they are listed, allow it.
inline void expect_embedding_bag_parity(Device& device) {
  Random random(11);
  for (const DType dtype : kRowTypes) {
    for (const std::int64_t cols : kDims) {
      const TableCase table(random, 37, cols, dtype, SparseOptimizerKind::kAdagrad);
      LookupCases(random, table).expect_parity(device);
    }
    for (const std::int64_t cols : {64, 33}) {
      const TableCase table(random, 50, cols, dtype, SparseOptimizerKind::kSgd);
      LookupCases many(random, table);
      BagsCase bags = bags_of_any_length(random, table.rows, cols);
      many.add(bags, 0);
      many.add(bags, 0, true);
      bags.pooled = false;
      many.add(bags, 16);
      many.add(bags, 3, true);
      many.expect_parity(device);
    }
  }
}

}  // namespace weft::kernels::test
