// The parity lists of coalesce and count_up: every backend passes them (tests/kernels/parity.h).
#pragma once

#include <deque>
#include <vector>

#include "tests/kernels/parity.h"
#include "weft/kernels/coalesce.h"

namespace weft::kernels::test {

struct SortShape {
  std::int64_t bags;
  std::int64_t rows;
  std::int64_t parts;
  Skew skew;
  bool mixed_parts = false;  ///< parts of bags in no order
  bool listed = false;       ///< gradients lie at places, the last one first
};

/// The blocks of one table, on the host and on a device. Gradients are addresses alone.
class SortCase {
 public:
  SortCase(Random& random, const SortShape& shape) : shape_(shape) {
    for (const bool weighted : {false, true}) {
      for (const bool pooled : {true, false}) {
        BagsCase bags = make_bags(random, {.bags = shape.bags,
                                           .longest = pooled ? 3 : 4,
                                           .rows = shape.rows,
                                           .cols = kCols,
                                           .parts = shape.parts,
                                           .skew = shape.skew,
                                           .pooled = pooled,
                                           .weighted = weighted});
        for (std::int32_t& part : bags.parts) {
          part = shape.mixed_parts ? static_cast<std::int32_t>(below(random, shape.parts)) : part;
        }
        add(bags);
      }
    }
  }

  /// Of the first `blocks`.
  void expect_parity(Context& ctx, std::size_t blocks) {
    const std::unique_ptr<Device> host = make_device({});
    RunBuffers here(*host);
    RunBuffers there(*ctx.device);
    RowRuns expected;
    RowRuns got;
    const std::vector<GradientBlock> host_blocks = blocks_on_host(blocks);
    const std::vector<GradientBlock> device_blocks = blocks_on_device(ctx, blocks);
    const CoalesceJob plain = job(host_blocks, here, expected);
    const CoalesceJob tested = job(device_blocks, there, got);
    reference::coalesce(ctx, std::span(&plain, 1));
    coalesce(ctx, std::span(&tested, 1));
    const std::string what = std::to_string(shape_.rows) + " rows, " +
                             std::to_string(expected.num_entries) + " entries, " +
                             std::to_string(blocks) + " blocks";
    ASSERT_EQ(got.num_rows, expected.num_rows) << what;
    ASSERT_EQ(got.num_segments, expected.num_segments) << what;
    ASSERT_EQ(got.num_entries, expected.num_entries) << what;
    ASSERT_EQ(got.weights == nullptr, expected.weights == nullptr) << what;
    const std::int64_t rows = got.num_rows;
    const std::int64_t segments = got.num_segments;
    expect_equal(ctx, got.rows, expected.rows, rows, what);
    expect_equal(ctx, got.slots, expected.rows, rows, what);
    expect_equal(ctx, got.row_segments, expected.row_segments, rows + 1, what);
    expect_equal(ctx, got.segment_entries, expected.segment_entries, segments + 1, what);
    expect_equal(ctx, got.segment_parts, expected.segment_parts, segments, what);
    if (got.weights != nullptr) {
      expect_equal(ctx, got.weights, expected.weights, got.num_entries, what);
    }
    expect_equal_places(ctx, got, expected, what);
  }

 private:
  struct Block {
    bool pooled;
    bool weighted;
    Copied<std::int64_t> ids, offsets, places;
    Copied<float> factors, grads;
    Copied<std::int32_t> parts;
  };

  static constexpr std::int64_t kCols = 2;

  void add(const BagsCase& bags) {
    Block& block = blocks_.emplace_back();
    block.pooled = bags.pooled;
    block.weighted = bags.weighted;
    block.ids = Copied(bags.ids);
    block.offsets = Copied(bags.offsets);
    block.factors = Copied(bags.weights);
    block.grads = Copied(bags.grads);
    block.parts = Copied(bags.parts);
    std::vector<std::int64_t> places;
    for (auto end = static_cast<std::int64_t>(bags.grads.size()); end > 0; end -= kCols) {
      places.push_back(end - kCols);
    }
    block.places = Copied(places);
  }

  static GradientBlock view(const Block& block,
                            const std::int64_t* ids,
                            const std::int64_t* offsets,
                            const float* factors,
                            const std::int32_t* parts) {
    return {.bags = {ids, offsets, block.weighted ? factors : nullptr,
                     static_cast<std::int64_t>(block.parts.values().size())},
            .pooled = block.pooled,
            .grads = nullptr,
            .grad_stride = kCols,
            .parts = parts};
  }

  std::vector<GradientBlock> blocks_on_host(std::size_t count) {
    std::vector<GradientBlock> all;
    for (std::size_t i = 0; i < count; ++i) {
      Block& one = blocks_[i];
      all.push_back(
          view(one, one.ids.host(), one.offsets.host(), one.factors.host(), one.parts.host()));
      all.back().grads = one.grads.host();
      all.back().places = shape_.listed ? one.places.host() : nullptr;
    }
    return all;
  }

  std::vector<GradientBlock> blocks_on_device(Context& ctx, std::size_t count) {
    std::vector<GradientBlock> all;
    for (std::size_t i = 0; i < count; ++i) {
      Block& one = blocks_[i];
      all.push_back(view(one, one.ids.place(ctx), one.offsets.place(ctx), one.factors.place(ctx),
                         one.parts.place(ctx)));
      all.back().grads = one.grads.place(ctx);
      all.back().places = shape_.listed ? one.places.place(ctx) : nullptr;
    }
    return all;
  }

  [[nodiscard]] CoalesceJob job(std::span<const GradientBlock> blocks,
                                RunBuffers& buffers,
                                RowRuns& runs) const {
    return {.blocks = blocks,
            .rows = shape_.rows,
            .parts = shape_.parts,
            .buffers = &buffers,
            .runs = &runs};
  }

  template <typename T>
  static std::vector<T> read(Context& ctx, const T* from, std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    ctx.device->copy_to_host(ctx, values.data(), from,
                             count * static_cast<std::int64_t>(sizeof(T)));
    return values;
  }

  template <typename T>
  static void expect_equal(
      Context& ctx, const T* got, const T* expected, std::int64_t count, const std::string& what) {
    EXPECT_EQ(read(ctx, got, count), std::vector<T>(expected, expected + count)) << what;
  }

  /// Addresses, from the beginning of their blocks.
  void expect_equal_places(Context& ctx,
                           const RowRuns& got,
                           const RowRuns& expected,
                           const std::string& what) {
    const std::vector<const float*> addresses = read(ctx, got.grads, got.num_entries);
    std::size_t wrong = 0;
    for (std::size_t e = 0; e < addresses.size(); ++e) {
      bool found = false;
      for (Block& block : blocks_) {
        const float* const here = block.grads.host();
        const auto size = static_cast<std::ptrdiff_t>(block.grads.values().size());
        const std::ptrdiff_t at = expected.grads[e] - here;
        found = found || (at >= 0 && at < size && addresses[e] - block.grads.placed() == at);
      }
      wrong += found ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0U) << what;
  }

  SortShape shape_;
  std::deque<Block> blocks_;
};

/// Few and many entries, rows of one and of two words, hot rows, parts in any order, no entries.
inline void expect_coalesce_parity(Device& device) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const std::vector<SortShape> shapes = {{1, 1, 1, Skew::kUniform},
                                         {5, 1, 8, Skew::kOneRow},
                                         {40, 3, 8, Skew::kUniform},
                                         {3000, 50, 8, Skew::kHot},
                                         {3000, 5000, 1, Skew::kUniform},
                                         {3000, std::int64_t{1} << 25, 8, Skew::kUniform},
                                         {60, 1 << 20, 8, Skew::kUniform},
                                         {3000, 1 << 20, 8, Skew::kUniform},
                                         {3000, 90, 8, Skew::kUniform, true},
                                         {2000, 7, 3, Skew::kOneRow},
                                         {3000, kMany, 8, Skew::kUniform},
                                         {30, kMany, 16, Skew::kHot},
                                         {9, 40, 8, Skew::kUniform, false, true},
                                         {3000, 90, 8, Skew::kUniform, true, true}};
  Random random(5);
  for (const SortShape& shape : shapes) {
    SortCase one(random, shape);
    run_on(device, [&](Context& ctx) {
      for (const std::size_t blocks : {4U, 1U, 2U, 0U}) {
        one.expect_parity(ctx, blocks);
      }
    });
  }
}

inline void expect_count_up_parity(Device& device) {
  run_on(device, [](Context& ctx) {
    for (const std::size_t count : {0U, 1U, 77U}) {
      Copied<std::int64_t> numbers(std::vector<std::int64_t>(count, -5));
      const auto job = [&](std::int64_t* out) {
        return CountUp{.out = out, .count = static_cast<std::int64_t>(count)};
      };
      const CountUp tested = job(numbers.place(ctx));
      const CountUp plain = job(numbers.host());
      count_up(ctx, std::span(&tested, 1));
      reference::count_up(ctx, std::span(&plain, 1));
      EXPECT_TRUE(numbers.same_bits(ctx)) << count;
    }
  });
}

}  // namespace weft::kernels::test
