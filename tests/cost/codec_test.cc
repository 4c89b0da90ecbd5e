// Seconds of encoding, and bytes of packed rows against those that kernels pack.
#include "weft/cost/codec.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/topology/small_cluster.h"
#include "weft/base/philox.h"
#include "weft/kernels/packed_ids.h"

namespace weft::cost {
namespace {

TEST(CodecSeconds, AreThoseOfBothSidesBytes) {
  const topology::Cluster cluster = topology::small_cluster({{.count = 1, .ranks = 1}});
  for (int i = 1; i < kNumCodecFormats; ++i) {
    const auto format = static_cast<CodecFormat>(i);
    const CodecWork work{.format = format, .group = 32, .cols = 48, .vectors = 1000.0};
    const double copied =
        1000.0 * static_cast<double>(4 * 48 + encoded_bytes(format, 32, 48)) / 1e11;
    EXPECT_DOUBLE_EQ(encode_s(cluster, work), copied) << to_string(format);
    EXPECT_DOUBLE_EQ(decode_s(cluster, work), copied) << to_string(format);
    CodecWork twice = work;
    twice.vectors *= 2.0;
    EXPECT_EQ(encode_s(cluster, twice), 2.0 * encode_s(cluster, work));
    EXPECT_EQ(decode_s(cluster, twice), 2.0 * decode_s(cluster, work));
  }
  EXPECT_EQ(encode_s(cluster, {.cols = 48, .vectors = 1000.0}), 0.0) << "fp32 is not encoded";
}

TEST(CodecSeconds, StochasticRoundingAddsItsDraws) {
  topology::Cluster cluster = topology::small_cluster({{.count = 1, .ranks = 1}});
  cluster.compute.draw.value = 1e-9;
  for (int i = 0; i < kNumCodecFormats; ++i) {
    CodecWork work{.format = static_cast<CodecFormat>(i), .cols = 48, .vectors = 1000.0};
    const double nearest = encode_s(cluster, work);
    const double decoded = decode_s(cluster, work);
    work.rounding = CodecRounding::kStochastic;
    const double drawn = i == 0 ? 0.0 : 1000.0 * 128 * 1e-9;  // fp32 is not encoded
    EXPECT_NEAR(encode_s(cluster, work), nearest + drawn, 1e-15) << i;
    EXPECT_EQ(decode_s(cluster, work), decoded) << i;
  }
}

/// Of rows that are there with these probabilities, [first, first + rows) with `density` each:
/// the mean over some draws.
double packed_on_average(const std::vector<DrawnRows>& drawn, std::int64_t id_bytes) {
  const std::uint64_t draws = drawn.front().rows > 1000.0 ? 8 : 40;
  double bytes = 0.0;
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    std::vector<std::int64_t> ids;
    std::int64_t row = 0;
    for (const DrawnRows& rows : drawn) {
      const double density = rows.count / rows.rows;
      for (const std::int64_t end = row + static_cast<std::int64_t>(rows.rows); row < end; ++row) {
        const auto word =
            philox(random_key(draw, RandomPurpose::kTest), static_cast<std::uint64_t>(row), 0)[0];
        if (static_cast<double>(word) < density * 0x1.0p32) {
          ids.push_back(row);
        }
      }
    }
    std::vector<std::byte> to(static_cast<std::size_t>(
        kernels::most_packed_bytes(std::ssize(ids), id_bytes) + kernels::kPackedIdSlack));
    bytes += static_cast<double>(kernels::pack_ids(ids, id_bytes, to.data()));
  }
  return bytes / static_cast<double>(draws);
}

TEST(PackedIdBytes, AreTheMeanOfWhatIsPacked) {
  for (const double rows : {1000.0, 30'000.0, 100'000.0}) {
    for (const double share : {0.003, 0.01, 0.1, 0.5, 0.9}) {
      const std::vector<DrawnRows> drawn = {{.rows = rows, .count = rows * share}};
      const double expected = packed_on_average(drawn, 4);
      // Less than a block: its number of rows varies.
      EXPECT_NEAR(packed_id_bytes(drawn, 4), expected,
                  (rows * share < 500 ? 0.12 : 0.03) * expected)
          << share << " of " << rows;
    }
  }
  const std::vector<DrawnRows> skewed = {{100, 100}, {2000, 1500}, {20'000, 3000}, {90'000, 1000}};
  const double expected = packed_on_average(skewed, 4);
  EXPECT_NEAR(packed_id_bytes(skewed, 4), expected, 0.03 * expected);
}

TEST(PackedIdBytes, AreExactWhereAllRowsAreAskedFor) {
  for (const std::int64_t count : {1, 2, 8, 9, 10, 100, 128}) {
    std::vector<std::int64_t> ids;
    for (std::int64_t row = 0; row < count; ++row) {
      ids.push_back(row);
    }
    std::vector<std::byte> to(
        static_cast<std::size_t>(kernels::most_packed_bytes(count, 1) + kernels::kPackedIdSlack));
    const auto rows = static_cast<double>(count);
    const std::vector<DrawnRows> all = {{rows, rows}};
    EXPECT_EQ(packed_id_bytes(all, 1), static_cast<double>(kernels::pack_ids(ids, 1, to.data())))
        << count;
  }
  EXPECT_EQ(packed_id_bytes({}, 1), 0.0);
}

}  // namespace
}  // namespace weft::cost
