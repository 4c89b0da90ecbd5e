// The parity lists of sum_gradients, cut_partial_sums and add_partial_sums: every backend passes
// them (tests/kernels/parity.h).
#pragma once

#include <string>
#include <vector>

#include "tests/kernels/row_cases.h"
#include "weft/base/parts.h"
#include "weft/kernels/row_gradients.h"

namespace weft::kernels::test {

/// The shape of a case of entries.
struct EntriesShape {
  std::int64_t cols;
  std::int64_t parts;
  Skew skew;
  bool pooled;
  bool weighted;
};

/// Calls body(entries, shape) for cases of all kinds: few rows and many, hot ones, weights.
template <typename Body>
void for_entries(const Body& body) {
  Random random(3);
  for (const std::int64_t cols : {1, 16, 17, 130}) {
    for (const std::int64_t parts : {1, 3, 8, 13}) {
      for (const Skew skew : {Skew::kUniform, Skew::kHot, Skew::kOneRow}) {
        for (const bool pooled : {true, false}) {
          for (const bool weighted : {true, false}) {
            RunsCase runs(random, {.bags = 60,
                                   .rows = 40,
                                   .cols = cols,
                                   .parts = parts,
                                   .skew = skew,
                                   .pooled = pooled,
                                   .weighted = weighted});
            body(runs, EntriesShape{cols, parts, skew, pooled, weighted});
          }
        }
      }
    }
  }
}

inline void expect_sum_gradients_parity(Device& device) {
  for_entries([&](RunsCase& runs, const EntriesShape& shape) {
    run_on(device, [&](Context& ctx) {
      const RowRuns there = runs.place(ctx);
      std::vector<Copied<float>> outs(2);  // two jobs in a call, one with a factor
      std::vector<GradientSum> tested;
      std::vector<GradientSum> plain;
      for (Copied<float>& out : outs) {
        const auto floats = static_cast<std::size_t>(there.num_rows * shape.cols);
        out = Copied(std::vector<float>(floats, -7.0F));
        GradientSum sum{.runs = there, .cols = shape.cols, .parts = shape.parts};
        sum.factor = &out == outs.data() ? 1.0F : 3.0F;
        sum.out = out.place(ctx);
        tested.push_back(sum);
        sum.runs = runs.host();
        sum.out = out.host();
        plain.push_back(sum);
      }
      sum_gradients(ctx, tested);
      reference::sum_gradients(ctx, plain);
      for (const Copied<float>& out : outs) {
        EXPECT_TRUE(out.same_bits(ctx)) << shape.cols << " columns, " << shape.parts << " parts";
      }
    });
  });
}

/// The partial sums of one table, whose parts are all the rank's.
class PartialCase {
 public:
  PartialCase(RunsCase& runs, const EntriesShape& shape, Range own_parts)
      : runs_(runs), shape_(shape), subtrees_(maximal_subtrees(shape.parts, own_parts)) {
    std::vector<std::int32_t> nodes(static_cast<std::size_t>(shape.parts), -1);
    for (std::size_t n = 0; n < subtrees_.values().size(); ++n) {
      const Range node = subtrees_.values()[n];
      for (std::int64_t part = node.begin; part < node.end; ++part) {
        nodes[static_cast<std::size_t>(part)] = static_cast<std::int32_t>(n);
      }
    }
    node_of_part_ = Copied(nodes);
    const auto segments = static_cast<std::size_t>(runs.host().num_segments);
    rows_ = Copied(std::vector<std::int64_t>(segments, -1));
    first_parts_ = Copied(std::vector<std::int32_t>(segments, -1));
    segments_ = Copied(std::vector<std::int64_t>(segments + 1, -1));
  }

  void expect_parity(Context& ctx) {
    const RowRuns there = runs_.place(ctx);
    const PartNodes nodes{subtrees_.place(ctx), node_of_part_.place(ctx)};
    const PartNodes host_nodes{subtrees_.host(), node_of_part_.host()};
    std::int64_t got = -1;
    std::int64_t expected = -1;
    const PartialCut tested{.runs = there,
                            .nodes = nodes,
                            .rows = rows_.place(ctx),
                            .first_parts = first_parts_.place(ctx),
                            .segments = segments_.place(ctx),
                            .count = &got};
    const PartialCut plain{.runs = runs_.host(),
                           .nodes = host_nodes,
                           .rows = rows_.host(),
                           .first_parts = first_parts_.host(),
                           .segments = segments_.host(),
                           .count = &expected};
    cut_partial_sums(ctx, std::span(&tested, 1));
    reference::cut_partial_sums(ctx, std::span(&plain, 1));
    const std::string what =
        std::to_string(shape_.cols) + " columns, " + std::to_string(shape_.parts) + " parts";
    ASSERT_EQ(got, expected) << what;
    EXPECT_TRUE(rows_.same_bits(ctx)) << what;
    EXPECT_TRUE(first_parts_.same_bits(ctx)) << what;
    EXPECT_TRUE(segments_.same_bits(ctx)) << what;
    Copied<float> vectors(
        std::vector<float>(static_cast<std::size_t>(expected * shape_.cols), -7.0F));
    PartialSum sum{.runs = there,
                   .cols = shape_.cols,
                   .parts = shape_.parts,
                   .count = got,
                   .segments = tested.segments,
                   .vectors = vectors.place(ctx)};
    add_partial_sums(ctx, std::span(&sum, 1));
    sum.runs = runs_.host();
    sum.segments = plain.segments;
    sum.vectors = vectors.host();
    reference::add_partial_sums(ctx, std::span(&sum, 1));
    EXPECT_TRUE(vectors.same_bits(ctx)) << what;
  }

 private:
  RunsCase& runs_;
  EntriesShape shape_;
  Copied<Range> subtrees_;
  Copied<std::int32_t> node_of_part_, first_parts_;
  Copied<std::int64_t> rows_, segments_;
};

/// A rank that has seen all parts, whose runs are one node, or, of numbers that are no power of
/// two, whose cases of entries are seen as several.
inline void expect_partial_sums_parity(Device& device) {
  for_entries([&](RunsCase& runs, const EntriesShape& shape) {
    run_on(device, [&](Context& ctx) {
      PartialCase(runs, shape, {0, shape.parts}).expect_parity(ctx);
      // The same entries in a larger tree, in which they are the parts of several whole subtrees.
      const EntriesShape larger{shape.cols, 2 * shape.parts + 1, shape.skew, shape.pooled,
                                shape.weighted};
      PartialCase(runs, larger, {0, shape.parts}).expect_parity(ctx);
    });
  });
}

}  // namespace weft::kernels::test
