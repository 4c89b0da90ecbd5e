// Products of linear layers: parity with plain loops in double, and bits.
#include "weft/kernels/cpu/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels_dense/layer_products.h"
#include "weft/base/error.h"
#include "weft/kernels/cpu/elementwise.h"
#include "weft/kernels/target.h"

namespace weft::kernels {
namespace {

struct Shape {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

const std::vector<Shape> kShapes = {{1, 1, 1},    {1, 5, 3},      {2, 1, 17},    {7, 13, 5},
                                    {16, 16, 16}, {33, 1, 64},    {31, 65, 13},  {100, 17, 351},
                                    {64, 3, 479}, {250, 33, 127}, {9, 600, 1100}};

template <typename T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return to_bfloat16(value);
  }
}

// The same numbers as T, with a row stride, and as doubles.
template <typename T>
struct NumbersOf {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t stride;
  std::vector<T> values;
  std::vector<double> exact;

  NumbersOf(std::int64_t r, std::int64_t c, std::int64_t padding, unsigned seed)
      : rows(r), cols(c), stride(c + padding), values(static_cast<std::size_t>(r * stride)) {
    const std::vector<float> random = random_values(r * c, seed);
    for (std::int64_t i = 0; i < r; ++i) {
      for (std::int64_t j = 0; j < c; ++j) {
        const T value = from_float<T>(random[static_cast<std::size_t>(i * c + j)]);
        values[static_cast<std::size_t>(i * stride + j)] = value;
        exact.push_back(static_cast<double>(to_float(value)));
      }
    }
  }

  [[nodiscard]] Matrix<const T> view() const { return {values.data(), rows, cols, stride}; }

  [[nodiscard]] Matrix<const double> plain() const { return matrix(exact.data(), rows, cols); }
};

// fp32 sums of k terms of size one: k roundings of sums that grow as sqrt(k).
void expect_near(const std::vector<double>& expected, Matrix<float> actual, std::int64_t terms) {
  const auto n = static_cast<double>(terms);
  const double tolerance = 1e-6 * std::sqrt(n) + 6e-8 * n + 1e-6;
  for (std::int64_t i = 0; i < actual.rows; ++i) {
    for (std::int64_t j = 0; j < actual.cols; ++j) {
      const double e = expected[static_cast<std::size_t>(i * actual.cols + j)];
      ASSERT_NEAR(e, actual.row(i)[j], tolerance * std::max(1.0, std::abs(e))) << i << ", " << j;
    }
  }
}

template <typename T>
void check_parity(const Shape& shape, std::int64_t padding) {
  const auto [m, n, k] = shape;
  SCOPED_TRACE(fmt::format("{} x {} x {}, {} floats of padding", m, n, k, padding));
  const NumbersOf<T> x(m, k, padding, 1);
  const NumbersOf<T> w(n, k, padding, 2);
  const NumbersOf<T> dy(m, n, padding, 3);
  const std::vector<float> bias = random_values(n, 4);
  const std::vector<double> plain_bias(bias.begin(), bias.end());
  Matmul matmul;
  std::vector<float> out(static_cast<std::size_t>((m + n) * (n + k + padding)), -5.0F);

  for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
    std::vector<double> expected(static_cast<std::size_t>(m * n));
    plain::linear_forward<double>(x.plain(), w.plain(), plain_bias.data(), activation,
                                  matrix(expected.data(), m, n));
    const Matrix<float> y{out.data(), m, n, n + padding};
    forward(matmul, x.view(), w.view(), y, {bias.data(), activation});
    expect_near(expected, y, k);
    plain::linear_forward<double>(x.plain(), w.plain(), nullptr, activation,
                                  matrix(expected.data(), m, n));
    forward(matmul, x.view(), w.view(), y, {nullptr, activation});
    expect_near(expected, y, k);
  }
  std::vector<double> dx(static_cast<std::size_t>(m * k));
  plain::linear_backward_data<double>(dy.plain(), w.plain(), matrix(dx.data(), m, k));
  const Matrix<float> dx_view{out.data(), m, k, k + padding};
  backward_data(matmul, dy.view(), w.view(), dx_view);
  expect_near(dx, dx_view, n);

  std::vector<double> dw(static_cast<std::size_t>(n * k));
  plain::linear_backward_weight<double>(dy.plain(), x.plain(), matrix(dw.data(), n, k));
  const Matrix<float> dw_view{out.data(), n, k, k + padding};
  backward_weight(matmul, dy.view(), x.view(), dw_view);
  expect_near(dw, dw_view, m);

  std::vector<double> db(static_cast<std::size_t>(n));
  plain::linear_backward_bias<double>(dy.plain(), db.data());
  column_sums(dy.view(), out.data());
  expect_near(db, matrix(out.data(), 1, n), m);
}

TEST(MatmulTest, Fp32AgreesWithPlainLoops) {
  for (const Shape& shape : kShapes) {
    check_parity<float>(shape, 0);
    check_parity<float>(shape, 3);
  }
}

TEST(MatmulTest, Bf16AgreesWithPlainLoopsOnTheRoundedNumbers) {
  for (const Shape& shape : kShapes) {
    check_parity<BFloat16>(shape, 0);
    check_parity<BFloat16>(shape, 5);
  }
}

TEST(MatmulTest, Bf16ResultIsTheRoundedFp32Result) {
  const NumbersOf<BFloat16> x(37, 29, 0, 1);
  const NumbersOf<BFloat16> w(11, 29, 0, 2);
  std::vector<float> exact(37 * 11);
  std::vector<BFloat16> rounded(37 * 11);
  Matmul matmul;
  const Epilogue relu{.activation = Activation::kRelu};
  forward(matmul, x.view(), w.view(), matrix(exact.data(), 37, 11), relu);
  forward(matmul, x.view(), w.view(), matrix(rounded.data(), 37, 11), relu);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(to_bfloat16(exact[i]), rounded[i]) << i;
  }
}

TEST(MatmulTest, NoSamples) {
  const std::vector<float> w(6, 1.0F);
  std::vector<float> db(2, 9.0F);
  Matmul matmul;
  const Matrix<const float> none{nullptr, 0, 3, 3};
  const Matrix<const float> dy{nullptr, 0, 2, 2};
  forward(matmul, none, matrix(w.data(), 2, 3), Matrix<float>{nullptr, 0, 2, 2});
  column_sums(dy, db.data());
  EXPECT_EQ(db, std::vector<float>(2, 0.0F));
}

// What is added is the product rounded to fp32, whether oneDNN adds it or Weft does.
template <typename T>
void check_adding(const Shape& shape) {
  const auto [m, n, k] = shape;
  const NumbersOf<T> x(m, k, 0, 1);
  const NumbersOf<T> w(n, k, 0, 2);
  const PackedCopy packed = packed_transposed(w.view());
  std::vector<float> product(static_cast<std::size_t>(m * n));
  std::vector<float> sum = random_values(m * n, 3);
  std::vector<float> expected = sum;
  Matmul matmul;
  matmul.multiply(x.view(), packed.matrix, matrix(product.data(), m, n));
  std::vector<float> first(product.size(), std::numeric_limits<float>::quiet_NaN());
  matmul.multiply_first(x.view(), packed.matrix, matrix(first.data(), m, n));
  EXPECT_EQ(product, first) << m << " x " << n << " x " << k;
  matmul.multiply_add(x.view(), packed.matrix, matrix(sum.data(), m, n));
  for (std::size_t i = 0; i < sum.size(); ++i) {
    expected[i] += product[i];
  }
  EXPECT_EQ(expected, sum) << m << " x " << n << " x " << k;
}

TEST(MatmulBits, AddingIsAProductAddedAfterwards) {
  std::vector<Shape> shapes = kShapes;
  shapes.insert(shapes.end(), {{256, 256, 256}, {130, 512, 96}, {3, 64, 1000}});
  for (const Shape& shape : shapes) {
    if (shape.k > 1024) {
      continue;  // of several layers
    }
    check_adding<float>(shape);
    check_adding<BFloat16>(shape);
  }
}

// All results of one shape, with operands at an offset of so many floats and with row padding.
template <typename T>
std::vector<float> all_results(const Shape& shape, std::int64_t offset, std::int64_t padding) {
  const auto [m, n, k] = shape;
  const auto place = [&](const NumbersOf<T>& numbers, std::vector<T>& memory) {
    memory.assign(static_cast<std::size_t>(offset + numbers.rows * numbers.stride), T{});
    std::copy(numbers.values.begin(), numbers.values.end(), memory.begin() + offset);
    return Matrix<const T>{memory.data() + offset, numbers.rows, numbers.cols, numbers.stride};
  };
  std::vector<T> memory[3];
  const Matrix<const T> x = place(NumbersOf<T>(m, k, padding, 1), memory[0]);
  const Matrix<const T> w = place(NumbersOf<T>(n, k, padding, 2), memory[1]);
  const Matrix<const T> dy = place(NumbersOf<T>(m, n, padding, 3), memory[2]);
  std::vector<float> out(static_cast<std::size_t>(offset + m * n + m * k + n * k));
  float* to = out.data() + offset;
  Matmul matmul;
  forward(matmul, x, w, matrix(to, m, n), {.activation = Activation::kRelu});
  backward_data(matmul, dy, w, matrix(to + m * n, m, k));
  backward_weight(matmul, dy, x, matrix(to + m * n + m * k, n, k));
  return {out.begin() + offset, out.end()};
}

TEST(MatmulBits, DependOnValuesAndShapesAlone) {
  for (const Shape& shape : kShapes) {
    const std::vector<float> expected = all_results<float>(shape, 0, 0);
    for (const auto& [offset, padding] : {std::pair{1, 0}, {5, 3}, {16, 0}, {3, 16}}) {
      EXPECT_EQ(expected, all_results<float>(shape, offset, padding))
          << shape.m << " x " << shape.n << " x " << shape.k << ", " << offset << ", " << padding;
    }
    std::vector<std::vector<float>> others(3);
    std::vector<std::thread> threads;
    for (auto& other : others) {
      threads.emplace_back([&other, &shape] { other = all_results<float>(shape, 2, 0); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const auto& other : others) {
      EXPECT_EQ(expected, other);
    }
    EXPECT_EQ(all_results<BFloat16>(shape, 0, 0), all_results<BFloat16>(shape, 7, 3));
  }
}

template <typename T>
void check_rows(std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kRows = 131;
  const NumbersOf<T> x(kRows, k, 0, 1);
  const NumbersOf<T> w(n, k, 0, 2);
  Matmul matmul;
  const auto rows = [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> y(static_cast<std::size_t>((end - begin) * n));
    forward(matmul, x.view().slice_rows(begin, end), w.view(), matrix(y.data(), end - begin, n));
    return y;
  };
  const std::vector<float> whole = rows(0, kRows);
  for (std::int64_t size = 1; size <= 40; ++size) {
    const std::vector<float> part = rows(17, 17 + size);
    ASSERT_EQ(0, std::memcmp(part.data(), whole.data() + 17 * n, part.size() * sizeof(float)))
        << size << " rows, " << n << " x " << k;
  }
}

TEST(MatmulBits, ARowDoesNotDependOnTheOthers) {
  if (current_target() < Target::kAvx2) {
    GTEST_SKIP() << "promised from AVX2 on";
  }
  for (const auto& [n, k] : {std::pair{1, 5}, {1, 256}, {3, 11}, {17, 13}, {64, 479}, {5, 64}}) {
    check_rows<float>(n, k);
    if (current_target() < Target::kAmx) {
      check_rows<BFloat16>(n, k);  // AMX is not used for a few rows
    }
  }
}

// The names of the implementations of all products of a layer, of every kind that Weft asks
// for.
template <typename T>
std::set<std::string> implementations_used() {
  Matmul matmul;
  for (const auto& [m, n, k] : kShapes) {
    const NumbersOf<T> x(m, k, 0, 1);
    const NumbersOf<T> w(n, k, 0, 2);
    const NumbersOf<T> dy(m, n, 0, 3);
    const std::vector<float> bias = random_values(n, 4);
    std::vector<float> out(static_cast<std::size_t>(std::max({m * n, m * k, n * k})));
    std::vector<T> narrow(static_cast<std::size_t>(m * n));
    forward(matmul, x.view(), w.view(), matrix(narrow.data(), m, n),
            {bias.data(), Activation::kRelu});
    forward(matmul, x.view(), w.view(), matrix(out.data(), m, n));
    if (k <= 1024) {  // not of several layers
      matmul.multiply_add(x.view(), packed_transposed(w.view()).matrix, matrix(out.data(), m, n));
    }
    backward_data(matmul, dy.view(), w.view(), matrix(out.data(), m, k));
    backward_weight(matmul, dy.view(), x.view(), matrix(out.data(), n, k));
  }
  return matmul.implementations();
}

template <typename T>
bool all_are_fast() {
  const std::set<std::string> used = implementations_used<T>();
  EXPECT_FALSE(used.empty());
  for (const std::string& name : used) {
    EXPECT_EQ(name.find("ref"), std::string::npos) << name << " at " << to_string(current_target());
  }
  return !testing::Test::HasFailure();
}

TEST(MatmulTest, UsesFastImplementationsAlone) {
  EXPECT_TRUE(all_are_fast<float>());
  EXPECT_TRUE(all_are_fast<BFloat16>());
}

// This returns the names of what makes the terms of a sum of this type.
template <typename T>
std::set<std::string> implementations_of_terms() {
  const NumbersOf<T> x(64, 256, 0, 1);
  const NumbersOf<T> w(32, 256, 0, 2);
  const PackedCopy packed = packed_transposed(w.view());
  std::vector<float> sum(64 * 32);
  Matmul matmul;
  matmul.multiply_first(x.view(), packed.matrix, matrix(sum.data(), 64, 32));
  matmul.multiply_add(x.view(), packed.matrix, matrix(sum.data(), 64, 32));
  return matmul.implementations();
}

TEST(MatmulTest, TermsInFp32AreWeftsOwnFromAvx2On) {
  if (current_target() < Target::kAvx2) {
    GTEST_SKIP() << "no AVX2";
  }
  EXPECT_EQ(implementations_of_terms<float>(), std::set<std::string>{"weft"});
  EXPECT_EQ(implementations_of_terms<BFloat16>() == std::set<std::string>{"weft"},
            !has_bf16_products(current_target()));
}

TEST(MatmulTest, UsesAmxWhereThereIsOne) {
  if (current_target() < Target::kAmx) {
    GTEST_SKIP() << "no AMX";
  }
  const NumbersOf<BFloat16> x(256, 512, 0, 1);
  const NumbersOf<BFloat16> w(128, 512, 0, 2);
  std::vector<BFloat16> y(256 * 128);
  Matmul matmul;
  forward(matmul, x.view(), w.view(), matrix(y.data(), 256, 128));
  EXPECT_EQ(matmul.implementations(), std::set<std::string>{"brg:avx512_core_amx_bf16"});
}

// Where a target has no products of bf16 they are those of fp32 of the same numbers, to the bit.
void check_widened() {
  for (const auto& [m, n, k] : kShapes) {
    const NumbersOf<BFloat16> x(m, k, 0, 1);
    const NumbersOf<BFloat16> w(n, k, 0, 2);
    const std::vector<float> wide_x(x.exact.begin(), x.exact.end());
    const std::vector<float> wide_w(w.exact.begin(), w.exact.end());
    const std::vector<float> bias = random_values(n, 4);
    std::vector<float> of_bf16(static_cast<std::size_t>(m * n));
    std::vector<float> of_fp32(of_bf16.size());
    Matmul matmul;
    const Epilogue epilogue{bias.data(), Activation::kRelu};
    forward(matmul, x.view(), w.view(), matrix(of_bf16.data(), m, n), epilogue);
    forward(matmul, matrix(wide_x.data(), m, k), matrix(wide_w.data(), n, k),
            matrix(of_fp32.data(), m, n), epilogue);
    EXPECT_EQ(of_bf16, of_fp32) << m << " x " << n << " x " << k;
  }
}

TEST(MatmulBits, WithoutProductsOfBf16TheyAreThoseOfFp32) {
  if (has_bf16_products(current_target())) {
    GTEST_SKIP() << to_string(current_target()) << " has products of bf16";
  }
  check_widened();
}

// All that is promised of products, on the target in force.
void check_products() {
  for (const Shape& shape : kShapes) {
    EXPECT_EQ(all_results<float>(shape, 0, 0), all_results<float>(shape, 5, 3));
    EXPECT_EQ(all_results<BFloat16>(shape, 0, 0), all_results<BFloat16>(shape, 7, 3));
    check_parity<float>(shape, 0);
    check_parity<BFloat16>(shape, 0);
    if (shape.k <= 1024) {  // not of several layers
      check_adding<float>(shape);
      check_adding<BFloat16>(shape);
    }
  }
  if (!has_bf16_products(current_target())) {
    check_widened();
  }
  EXPECT_TRUE(all_are_fast<float>());
  EXPECT_TRUE(all_are_fast<BFloat16>());
}

// Lower targets, each in a process of its own, since the limit is the process's.
int check_below(Target target) {
  limit_target(target);
  limit_target(target);
  EXPECT_EQ(current_target(), target);
  check_products();
  try {
    limit_target(target == Target::kSse4 ? Target::kAvx2 : Target::kSse4);
    ADD_FAILURE() << "the target was set twice";
  } catch (const Error&) {
  }
  return testing::Test::HasFailure() ? 1 : 0;
}

TEST(TargetDeathTest, LowerTargetsWorkAndStay) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  if (best_target() == Target::kSse4) {
    GTEST_SKIP() << "nothing lower to choose";
  }
  for (const Target target : {Target::kSse4, Target::kAvx2, Target::kAvx512}) {
    if (target >= best_target()) {
      break;
    }
    EXPECT_EXIT(std::_Exit(check_below(target)), testing::ExitedWithCode(0), "")
        << to_string(target);
  }
  const auto late = [] {
    all_results<float>({4, 4, 4}, 0, 0);
    try {
      limit_target(Target::kSse4);
    } catch (const Error& error) {
      return std::string(error.what()).find("before any matrix product") == std::string::npos;
    }
    return true;
  };
  EXPECT_EXIT(std::_Exit(late() ? 1 : 0), testing::ExitedWithCode(0), "");
}

// oneDNN's own limit, as a user or another machine sets it. The target follows it, so that no
// product meets a layout that what is left of oneDNN only has plain loops for.
int check_limited(Target most) {
  EXPECT_LE(best_target(), most);
  EXPECT_EQ(current_target(), best_target());
  check_products();
  limit_target(best_target());
  return testing::Test::HasFailure() ? 1 : 0;
}

TEST(TargetDeathTest, TheEnvironmentsLimitIsKeptAndProductsStayFast) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "the limit names instruction sets of x86";
#endif
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const char* const before = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string kept = before == nullptr ? "" : before;
  for (const auto& [word, most] : {std::pair{"SSE41", Target::kSse4},
                                   {"avx", Target::kSse4},
                                   {"AVX2", Target::kAvx2},
                                   {"avx512_core", Target::kAvx512},
                                   {"AVX512_CORE_BF16", Target::kAvx512Bf16},
                                   {"AVX512_CORE_AMX", Target::kAmx}}) {
    setenv("ONEDNN_MAX_CPU_ISA", word, 1);
    EXPECT_EXIT(std::_Exit(check_limited(most)), testing::ExitedWithCode(0), "") << word;
  }
  setenv("ONEDNN_MAX_CPU_ISA", kept.c_str(), 1);
}

TEST(Target, TheBestIsInForceUnasked) {
  EXPECT_EQ(current_target(), best_target());
  limit_target(best_target());
  EXPECT_EQ(current_target(), best_target());
  if (best_target() < Target::kAmx) {
    EXPECT_THROW(limit_target(Target::kAmx), Error);
  }
  EXPECT_EQ(to_string(Target::kAvx512Bf16), "avx512_bf16");
}

}  // namespace
}  // namespace weft::kernels
