// Packed layouts by their definition, and weight gradients summed by tiles: their bits against the
// same products one after the other, their values against plain loops.
#include "weft/kernels/cpu/weight_gradient.h"

#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/kernels_dense/layer_products.h"
#include "weft/kernels/cpu/elementwise.h"
#include "weft/kernels/target.h"
#include "weft/tensor/buffer.h"

namespace weft::kernels {
namespace {

// Element (i, j) of a packed matrix, found by what pack.h says.
float unpacked(PackedMatrix packed, std::int64_t i, std::int64_t j) {
  if (packed.layers() > 1) {
    std::int64_t l = 0;
    while (l + 1 < packed.layers() && i >= packed.layer_rows(l).end) {
      ++l;
    }
    i -= packed.layer_rows(l).begin;
    packed = packed.layer(l);
  }
  const std::int64_t rows = packed_rows(packed.dtype, packed.rows);
  std::int64_t at = i * packed.stride + j;
  if (packed.stride == 0) {
    const std::int64_t panel = j / kPanel * kPanel * rows;
    const std::int64_t strip = j % kPanel / packed.strip * packed.strip * rows;
    at = packed.stored == DType::kFloat32 ? panel + strip + i * packed.strip + j % packed.strip
                                          : panel + i / 2 * 2 * kPanel + j % kPanel * 2 + i % 2;
  }
  return packed.stored == DType::kFloat32 ? static_cast<const float*>(packed.data)[at]
                                          : to_float(static_cast<const BFloat16*>(packed.data)[at]);
}

struct PackShape {
  std::int64_t rows;
  std::int64_t cols;
};

class Packing : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types,
                         Packing,
                         testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST_P(Packing, EveryElementIsWhereTheLayoutSays) {
  for (const auto& [rows, cols] : std::vector<PackShape>{{1, 1},
                                                         {2, 64},
                                                         {13, 512},
                                                         {31, 65},
                                                         {32, 128},
                                                         {47, 63},
                                                         {100, 200},
                                                         {257, 130},
                                                         {1100, 70}}) {
    const std::vector<float> values = random_values(rows * (cols + 3), 1);
    const Matrix<const float> from{values.data(), rows, cols, cols + 3};
    std::vector<BFloat16> halves(values.size());
    assign(matrix(values.data(), 1, static_cast<std::int64_t>(values.size())),
           matrix(halves.data(), 1, static_cast<std::int64_t>(values.size())));
    const Matrix<const BFloat16> half{halves.data(), rows, cols, cols + 3};
    std::vector<ConstOperand> sources = {from};
    if (GetParam() == DType::kBFloat16) {
      sources.emplace_back(half);
    }
    for (const ConstOperand& source : sources) {
      SCOPED_TRACE(fmt::format("[{}, {}] of {}", rows, cols, to_string(source.dtype)));
      PackedCopy straight(GetParam(), rows, cols);
      PackedCopy turned(GetParam(), cols, rows);
      for (std::int64_t p = 0; p < straight.matrix.panels(); ++p) {
        pack(source, straight.matrix, {p, p + 1});
      }
      PackedCopy at_once(GetParam(), rows, cols);
      pack(source, at_once.matrix, {0, at_once.matrix.panels()});
      pack_transposed(source, turned.matrix, {0, turned.matrix.panels()});
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < cols; ++j) {
          const float expected =
              GetParam() == DType::kFloat32 ? from.row(i)[j] : to_float(half.row(i)[j]);
          ASSERT_EQ(expected, unpacked(straight.matrix, i, j)) << i << ", " << j;
          ASSERT_EQ(expected, unpacked(at_once.matrix, i, j)) << i << ", " << j;
          ASSERT_EQ(expected, unpacked(turned.matrix, j, i)) << i << ", " << j;
        }
      }
      for (std::int64_t i = rows; i < packed_rows(GetParam(), rows); ++i) {
        ASSERT_EQ(0.0F, unpacked(straight.matrix, i, cols - 1)) << "row " << i << " is padding";
      }
    }
    std::vector<float> out(static_cast<std::size_t>(cols * (rows + 5)), 9.0F);
    transpose(from, matrix(out.data(), cols, rows + 5));
    std::vector<BFloat16> half_out(out.size());
    transpose(half, matrix(half_out.data(), cols, rows + 5));
    for (std::int64_t j = 0; j < cols; ++j) {
      for (std::int64_t i = 0; i < rows + 5; ++i) {
        const auto at = static_cast<std::size_t>(j * (rows + 5) + i);
        ASSERT_EQ(out[at], i < rows ? from.row(i)[j] : 0.0F);
        ASSERT_EQ(to_float(half_out[at]), i < rows ? to_float(half.row(i)[j]) : 0.0F);
      }
    }
  }
}

TEST(Packing, NanStaysNanAndTiesGoToEven) {
  const std::vector<float> values = {std::numeric_limits<float>::quiet_NaN(), 1.00390625F,
                                     1.01171875F, -std::numeric_limits<float>::infinity()};
  PackedCopy packed(DType::kBFloat16, 2, 2);
  pack(matrix(values.data(), 2, 2), packed.matrix, {0, 1});
  EXPECT_TRUE(std::isnan(unpacked(packed.matrix, 0, 0)));
  EXPECT_EQ(unpacked(packed.matrix, 0, 1), 1.0F);
  EXPECT_EQ(unpacked(packed.matrix, 1, 0), 1.015625F);
  EXPECT_EQ(unpacked(packed.matrix, 1, 1), values[3]);
}

// A layer's dy and x of one rank's samples, cut into parts and slices.
struct Samples {
  std::int64_t n;
  std::int64_t k;
  DType dtype;
  std::vector<float> dy;
  std::vector<float> x;
  std::vector<std::vector<std::int64_t>> cut;  // samples of each slice of each part

  Samples(std::int64_t rows,
          std::int64_t cols,
          DType type,
          std::vector<std::vector<std::int64_t>> slices)
      : n(rows), k(cols), dtype(type), cut(std::move(slices)) {
    std::int64_t m = 0;
    for (const auto& part : cut) {
      for (const std::int64_t size : part) {
        m += size;
      }
    }
    dy = random_values(m * n, 1);
    x = random_values(m * k, 2);
  }
};

struct Operands {
  std::unique_ptr<Device> device = make_device({});
  std::vector<Buffer> memory;
  std::deque<WeightGradientOperands> slices;
  std::vector<std::vector<const GradientOperands*>> pointers;
  std::vector<PartSlices> parts;

  explicit Operands(const Samples& samples) {
    std::int64_t begin = 0;
    for (const auto& part : samples.cut) {
      pointers.emplace_back();
      for (const std::int64_t size : part) {
        Context ctx{.device = device.get()};
        memory.emplace_back(*device, gradient_operands_bytes(ctx, samples.dtype, size,
                                                             {.in = samples.k, .out = samples.n}));
        slices.emplace_back().lie_at(memory.back().as<void>(), memory.back().bytes());
        set(samples, {begin, begin + size}, slices.back());
        pointers.back().push_back(&slices.back());
        begin += size;
      }
    }
    parts.assign(pointers.begin(), pointers.end());
  }

  static void set(const Samples& samples, Range range, WeightGradientOperands& to) {
    const Matrix<const float> dy =
        matrix(samples.dy.data() + range.begin * samples.n, range.size(), samples.n);
    const Matrix<const float> x =
        matrix(samples.x.data() + range.begin * samples.k, range.size(), samples.k);
    if (samples.dtype == DType::kFloat32) {
      to.set(dy, x);
      return;
    }
    std::vector<BFloat16> half_dy(static_cast<std::size_t>(range.size() * samples.n));
    std::vector<BFloat16> half_x(static_cast<std::size_t>(range.size() * samples.k));
    const Matrix<BFloat16> dy16 = matrix(half_dy.data(), range.size(), samples.n);
    const Matrix<BFloat16> x16 = matrix(half_x.data(), range.size(), samples.k);
    assign(dy, dy16);
    assign(x, x16);
    to.set(dy16, x16);
  }
};

std::vector<GradientTile> tiles_of(std::int64_t rows, std::int64_t cols) {
  Context ctx;
  return gradient_tiles(ctx, {.in = cols, .out = rows});
}

std::vector<float> sum_of(const Samples& samples, const Operands& operands, Range node) {
  std::vector<float> dw(static_cast<std::size_t>(samples.n * samples.k), 5.0F);
  GradientSummer summer;
  Matmul matmul;
  for (const GradientTile& tile : tiles_of(samples.n, samples.k)) {
    EXPECT_TRUE(summer.sum(
        matmul, node,
        std::span(operands.parts)
            .subspan(static_cast<std::size_t>(node.begin), static_cast<std::size_t>(node.size())),
        tile, matrix(dw.data(), samples.n, samples.k)));
  }
  return dw;
}

std::vector<Samples> cases_of_samples() {
  const std::vector<std::vector<std::int64_t>> eight = {{20}, {20}, {21}, {20},
                                                        {20}, {20}, {21}, {20}};
  const std::vector<std::vector<std::int64_t>> mixed = {{256, 256}, {}, {7}, {300}, {1, 2, 3}};
  std::vector<Samples> all;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const auto& [n, k] : {std::pair{1, 5}, {33, 13}, {64, 64}, {300, 130}, {17, 700}}) {
      all.emplace_back(n, k, dtype, eight);
      all.emplace_back(n, k, dtype, mixed);
    }
  }
  return all;
}

TEST(WeightGradient, AgreesWithPlainLoops) {
  for (const Samples& samples : cases_of_samples()) {
    const Operands operands(samples);
    const std::vector<float> dw =
        sum_of(samples, operands, {0, static_cast<std::int64_t>(samples.cut.size())});
    const auto m = static_cast<std::int64_t>(samples.dy.size()) / samples.n;
    // bf16 rounds both factors to 8 bits.
    const double tolerance =
        (samples.dtype == DType::kFloat32 ? 1e-6 : 6e-3) * std::sqrt(static_cast<double>(m)) * 4;
    for (std::int64_t i = 0; i < samples.n; ++i) {
      for (std::int64_t j = 0; j < samples.k; ++j) {
        double expected = 0.0;
        for (std::int64_t s = 0; s < m; ++s) {
          expected += static_cast<double>(samples.dy[static_cast<std::size_t>(s * samples.n + i)]) *
                      static_cast<double>(samples.x[static_cast<std::size_t>(s * samples.k + j)]);
        }
        ASSERT_NEAR(expected, dw[static_cast<std::size_t>(i * samples.k + j)], tolerance);
      }
    }
  }
}

// Ranks that hold whole subtrees send their sums: added up the tree they are the whole sum.
TEST(WeightGradient, SubtreesAddUpToTheSameBits) {
  for (const Samples& samples : cases_of_samples()) {
    const Operands operands(samples);
    const auto parts = static_cast<std::int64_t>(samples.cut.size());
    const std::vector<float> whole = sum_of(samples, operands, {0, parts});
    const auto tree = [&](const auto& self, Range node) -> std::vector<float> {
      if (node.size() == 1) {
        return sum_of(samples, operands, node);
      }
      const std::int64_t split = tree_split(node.begin, node.end);
      const auto has_samples = [&](Range range) {
        for (std::int64_t p = range.begin; p < range.end; ++p) {
          if (!samples.cut[static_cast<std::size_t>(p)].empty()) {
            return true;
          }
        }
        return false;
      };
      std::vector<float> left = self(self, {node.begin, split});
      const std::vector<float> right = self(self, {split, node.end});
      if (!has_samples({split, node.end})) {
        return left;
      }
      if (!has_samples({node.begin, split})) {
        return right;
      }
      for (std::size_t i = 0; i < left.size(); ++i) {
        left[i] += right[i];
      }
      return left;
    };
    EXPECT_EQ(whole, tree(tree, {0, parts})) << samples.n << " x " << samples.k;
  }
}

TEST(WeightGradient, ZerosWithoutSamplesAndSeesWhatIsNotFinite) {
  const Samples none(3, 4, DType::kFloat32, {{}, {}});
  EXPECT_EQ(sum_of(none, Operands(none), {0, 2}), std::vector<float>(12, 0.0F));
  Samples bad(70, 130, DType::kFloat32, {{2}, {2}});
  bad.dy[static_cast<std::size_t>(3 * 70 + 69)] = std::numeric_limits<float>::infinity();
  const Operands operands(bad);
  std::vector<float> dw(70 * 130);
  GradientSummer summer;
  Matmul matmul;
  bool finite = true;
  for (const GradientTile& tile : tiles_of(70, 130)) {
    finite &= summer.sum(matmul, {0, 2}, operands.parts, tile, matrix(dw.data(), 70, 130));
  }
  EXPECT_FALSE(finite);
}

TEST(WeightGradient, TilesCoverEachWeightOnce) {
  for (const auto& [n, k] :
       {std::pair{1, 1}, {64, 415}, {256, 512}, {257, 513}, {1024, 3456}, {3456, 512}}) {
    std::vector<int> covered(static_cast<std::size_t>(n * k));
    for (const GradientTile& tile : tiles_of(n, k)) {
      EXPECT_EQ(tile.cols.begin % kPanel, 0);
      for (std::int64_t i = tile.rows.begin; i < tile.rows.end; ++i) {
        for (std::int64_t j = tile.cols.begin; j < tile.cols.end; ++j) {
          ++covered[static_cast<std::size_t>(i * k + j)];
        }
      }
    }
    EXPECT_EQ(covered, std::vector<int>(covered.size(), 1)) << n << " x " << k;
  }
}

TEST(WeightGradient, ALayerOfFewOutputsIsSharedByThreads) {
  EXPECT_EQ(tiles_of(64, 256).size(), 1U);
  EXPECT_EQ(tiles_of(64, 415).size(), 2U);
  EXPECT_EQ(tiles_of(255, 1024).size(), 4U);
  EXPECT_EQ(tiles_of(256, 512).size(), 1U);
}

}  // namespace
}  // namespace weft::kernels
