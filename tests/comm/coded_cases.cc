#include "tests/comm/coded_cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/cases.h"
#include "weft/base/philox.h"
#include "weft/comm/reduce_state.h"
#include "weft/kernels/codec.h"

namespace weft::comm::testing {
namespace {

float random_number(std::int64_t part, std::int64_t i, std::int64_t step) {
  const auto word = philox(static_cast<std::uint64_t>(part + 1), static_cast<std::uint64_t>(i),
                           static_cast<std::uint64_t>(step))[0];
  return static_cast<float>(word) * 0x1p-31F - 1.0F;
}

/// Partial sums of one step, for numbers in [-1, 1) times `scale` of every part; the last step in
/// four lacks every third part.
struct CodedStep {
  std::int64_t number = 0;
  float scale = 1.0F;
  bool with_absent = false;

  [[nodiscard]] bool has(std::int64_t part) const {
    return !with_absent || number % 4 != 3 || part % 3 != 1;
  }

  [[nodiscard]] float value(std::int64_t part, std::int64_t i) const {
    return has(part) ? scale * random_number(part, i, number) : 0.0F;
  }
};

/// Fills this rank's partial sums; returns which there are.
std::vector<std::uint8_t> fill_partials(OrderedAllReduce& reduce, const CodedStep& step) {
  std::vector<std::uint8_t> present;
  for (std::int64_t k = 0; k < reduce.num_partials(); ++k) {
    const Range run = reduce.partial_parts(k);
    bool any = false;
    for (std::int64_t part = run.begin; part < run.end; ++part) {
      any |= step.has(part);
    }
    for (std::int64_t i = 0; i < reduce.count(); ++i) {
      double sum = 0.0;
      for (std::int64_t part = run.begin; part < run.end; ++part) {
        sum += static_cast<double>(step.value(part, i));
      }
      reduce.partial(k)[i] = any ? static_cast<float>(sum) : 1e30F;  // must not be looked at
    }
    present.push_back(any ? 1 : 0);
  }
  return present;
}

double exact(std::int64_t parts, std::int64_t i, const CodedStep& step) {
  double sum = 0.0;
  for (std::int64_t part = 0; part < parts; ++part) {
    sum += static_cast<double>(step.value(part, i));
  }
  return sum;
}

/// What rank 0 has.
std::vector<float> of_rank_0(Context& ctx, Communicator& world, std::vector<float> values) {
  world.broadcast(ctx, values.data(), static_cast<std::int64_t>(values.size() * sizeof(float)), 0);
  return values;
}

std::vector<float> run(Context& ctx, OrderedAllReduce& reduce, const CodedStep& step) {
  std::vector<float> out(static_cast<std::size_t>(reduce.count()), -1.0F);
  const std::vector<std::uint8_t> present = fill_partials(reduce, step);
  reduce.run(ctx, present, out.data());
  return out;
}

/// The state of one reduction into another's.
void copy_state(const ReduceState& from, ReduceState& to) {
  const std::vector<StateItem> items = from.state_items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const StateItem& item = items[i];
    const std::int64_t width = item.col_end - item.col_begin;
    std::vector<float> row(static_cast<std::size_t>(width));
    for (std::int64_t r = item.row_begin; r < item.row_end; ++r) {
      from.read_state(i, r, 1, row.data());
      const std::int64_t half = width / 2;  // in two pieces, as a reader may
      to.write_state(i, r, 1, item.col_begin, item.col_begin + half, row.data());
      to.write_state(i, r, 1, item.col_begin + half, item.col_end, row.data() + half);
    }
  }
}

/// Together the ranks' blocks cover both matrices once.
void check_cover(Context& ctx, Communicator& world, const ReduceState& state, std::int64_t count) {
  std::array<std::int64_t, 3> numbers{};  // of partial residuals, of sums', rows of the former
  for (const StateItem& item : state.state_items()) {
    EXPECT_EQ(item.cols, count);
    const bool of_sums = item.kind == "sum_residual";
    EXPECT_TRUE(of_sums || item.kind == "partial_residual") << item.kind;
    numbers[of_sums ? 1 : 0] += (item.row_end - item.row_begin) * (item.col_end - item.col_begin);
    numbers[2] = std::max(numbers[2], of_sums ? 0 : item.rows);
  }
  std::int64_t rows = numbers[2];
  world.all_reduce(ctx, &rows, 1, ReduceOp::kMax);
  world.all_reduce(ctx, numbers.data(), 2);
  EXPECT_EQ(numbers[0], rows * count);
  EXPECT_EQ(numbers[1], count);
}

}  // namespace

double codec_error(CodecFormat format) {
  constexpr std::array<double, kNumCodecFormats> kErrors = {
      0.0, 0x1p-11, 0x1p-8, 1.0 / 27.0, 1.0 / 13.0, 1.0 / 252.0, 1.0 / 13.0};
  return kErrors[static_cast<std::size_t>(format)];
}

void check_coded_reduce(Communicator& world, std::int64_t parts, std::int64_t count) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 2});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  OrderedAllReduce plain(world, *device, parts, count);
  for (int format = 0; format < kNumCodecFormats; ++format) {
    const auto named = static_cast<CodecFormat>(format);
    OrderedAllReduce reduce(world, *device, parts, count,
                            {.codec = {.format = named, .group = 17}, .error_feedback = false});
    OrderedAllReduce crossed(
        world, *device, parts, count,
        {.codec = {.format = named, .group = 17}, .crossing = crossings_of(world).back()});
    for (const bool with_absent : {false, true}) {
      const CodedStep step{.number = 3, .scale = 0.25F, .with_absent = with_absent};
      const std::vector<float> expected = run(ctx, plain, step);
      const std::vector<float> got = run(ctx, reduce, step);
      EXPECT_TRUE(same_bits(got, of_rank_0(ctx, world, got))) << to_string(named);
      EXPECT_TRUE(same_bits(got, run(ctx, crossed, step))) << to_string(named);
      if (named == CodecFormat::kFp32 || world.size() == 1) {
        EXPECT_TRUE(same_bits(got, expected)) << to_string(named);
        continue;
      }
      // No partial sum is larger than `scale` for each of its parts.
      const double e = codec_error(named);
      const double largest = static_cast<double>(step.scale) * static_cast<double>(parts);
      const double bound = e * largest + e * (1.0 + e) * largest + 1e-5;
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], bound) << to_string(named) << " at " << i;
      }
      EXPECT_EQ(reduce.clips(), kernels::CodecClips{}) << to_string(named);
    }
  }
}

void check_feedback(Communicator& world, std::int64_t parts, std::int64_t count) {
  constexpr std::int64_t kSteps = 40;
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 2});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  for (const CodecFormat format :
       {CodecFormat::kInt4, CodecFormat::kFp8E5m2, CodecFormat::kBf16, CodecFormat::kInt8}) {
    SCOPED_TRACE(to_string(format));
    const ReduceCodec codec{.codec = {.format = format, .group = 16}, .error_feedback = true};
    OrderedAllReduce reduce(world, *device, parts, count, codec);
    const ReduceState state(reduce, *device, "sums");
    std::vector<double> exact_sum(static_cast<std::size_t>(count), 0.0);
    std::vector<double> sum(exact_sum.size(), 0.0);
    for (std::int64_t s = 0; s < kSteps; ++s) {
      const CodedStep step{.number = s, .scale = 1.0F, .with_absent = true};
      const std::vector<float> first = run(ctx, reduce, step);
      const std::vector<float> again = run(ctx, reduce, step);  // the one before was not kept
      EXPECT_TRUE(same_bits(first, again)) << "step " << s;
      EXPECT_TRUE(same_bits(first, of_rank_0(ctx, world, first))) << "step " << s;
      reduce.keep_residuals();
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += static_cast<double>(first[i]);
        exact_sum[i] += exact(parts, static_cast<std::int64_t>(i), step);
      }
    }
    // What is not yet in the sums are the residuals, of one step's size: e / (1 - e) of the
    // largest.
    const double e = codec_error(format);
    const double largest = static_cast<double>(parts) / (1.0 - e);
    const double bound = 2.0 * e * (1.0 + e) / (1.0 - e) * largest + 1e-3;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ASSERT_NEAR(sum[i], exact_sum[i], bound) << "at " << i;
    }
    if (world.size() == 1) {
      EXPECT_TRUE(state.state_items().empty());
      continue;
    }
    check_cover(ctx, world, state, count);
    OrderedAllReduce resumed(world, *device, parts, count, codec);
    ReduceState restored(resumed, *device, "sums");
    copy_state(state, restored);
    for (std::int64_t s = kSteps; s < kSteps + 3; ++s) {
      const CodedStep step{.number = s, .scale = 1.0F, .with_absent = true};
      EXPECT_TRUE(same_bits(run(ctx, resumed, step), run(ctx, reduce, step))) << "step " << s;
      resumed.keep_residuals();
      reduce.keep_residuals();
    }
  }
}

}  // namespace weft::comm::testing
