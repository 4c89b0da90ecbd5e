// Operands of an operation under test: on a device, and once more in host memory for the plain
// loops of kernels::reference. A backend of another device passes the same lists of cases
// (parity/lists.h) by running them on a device of its kind.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "weft/kernels/operand.h"
#include "weft/tensor/buffer.h"

namespace weft::kernels::parity {

// Where a matrix lies: the elements between its rows, and before its first.
struct Layout {
  std::int64_t padding = 0;
  std::int64_t shift = 0;
};

inline const std::vector<Layout> kLayouts = {{0, 0}, {3, 0}, {5, 1}, {16, 7}};

// An array of plain values on the device.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(Device& device, const std::vector<T>& values)
      : memory_(device, static_cast<std::int64_t>(values.size() * sizeof(T))),
        size_(values.size()) {
    Context ctx{.device = &device};
    device.copy_to_device(ctx, memory_.as<void>(), values.data(), memory_.bytes());
  }

  [[nodiscard]] T* data() const { return memory_.as<T>(); }

  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(size_);
    Context ctx{.device = memory_.device()};
    memory_.device()->copy_to_host(ctx, values.data(), memory_.as<void>(), memory_.bytes());
    return values;
  }

 private:
  Buffer memory_;
  std::size_t size_;
};

// One matrix of normal numbers, twice. What lies beside it must stay as it is.
class Tested {
 public:
  Tested(Device& device,
         DType dtype,
         std::int64_t rows,
         std::int64_t cols,
         unsigned seed,
         Layout at = {})
      : dtype_(dtype), rows_(rows), cols_(cols), stride_(cols + at.padding), shift_(at.shift) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    bytes_.assign(static_cast<std::size_t>((shift_ + rows_ * stride_) * size_of(dtype)), kBeside);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        set(i, j, normal(random));
      }
    }
    memory_ = Buffer(device, static_cast<std::int64_t>(bytes_.size()));
    upload();
  }

  void set(std::int64_t i, std::int64_t j, float value) {
    if (dtype_ == DType::kFloat32) {
      host().as<float>().row(i)[j] = value;
    } else {
      host().as<BFloat16>().row(i)[j] = to_bfloat16(value);
    }
  }

  // After set().
  void upload() {
    Context ctx{.device = memory_.device()};
    memory_.device()->copy_to_device(ctx, memory_.as<void>(), bytes_.data(), memory_.bytes());
  }

  void scale(float by) {
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t j = 0; j < cols_; ++j) {
        set(i, j, value(host(), i, j) * by);
      }
    }
    upload();
  }

  [[nodiscard]] Operand device() const { return view(memory_.as<std::byte>()); }

  [[nodiscard]] Operand host() { return view(bytes_.data()); }

  [[nodiscard]] Matrix<float> device_floats() const { return device().as<float>(); }

  [[nodiscard]] Matrix<float> host_floats() { return host().as<float>(); }

  // The device's numbers against those of the plain loops: within `tolerance` of the larger of 1
  // and their size, or where it is 0 the same bits.
  void expect_same(const std::string& what, double tolerance = 0.0) {
    std::vector<std::byte> bytes(bytes_.size());
    Context ctx{.device = memory_.device()};
    memory_.device()->copy_to_host(ctx, bytes.data(), memory_.as<void>(), memory_.bytes());
    const Operand found = view(bytes.data());
    const auto size = static_cast<std::size_t>(cols_ * size_of(dtype_));
    for (std::int64_t i = 0; i < rows_; ++i) {
      if (tolerance == 0.0) {
        ASSERT_EQ(
            std::memcmp(found.slice_rows(i, i + 1).data, host().slice_rows(i, i + 1).data, size), 0)
            << what << ": row " << i << " of [" << rows_ << ", " << cols_ << "]";
      }
      for (std::int64_t j = 0; tolerance > 0.0 && j < cols_; ++j) {
        const double expected = value(host(), i, j);
        ASSERT_NEAR(expected, value(found, i, j), tolerance * std::max(1.0, std::abs(expected)))
            << what << " [" << i << ", " << j << "] of [" << rows_ << ", " << cols_ << "]";
      }
    }
    expect_nothing_beside(bytes, what);
  }

 private:
  static constexpr std::byte kBeside{0x5A};

  static float value(const ConstOperand& x, std::int64_t i, std::int64_t j) {
    return x.dtype == DType::kFloat32 ? x.as<float>().row(i)[j]
                                      : to_float(x.as<BFloat16>().row(i)[j]);
  }

  [[nodiscard]] Operand view(std::byte* bytes) const {
    Operand operand;
    operand.data = bytes + shift_ * size_of(dtype_);
    operand.dtype = dtype_;
    operand.rows = rows_;
    operand.cols = cols_;
    operand.stride = stride_;
    return operand;
  }

  void expect_nothing_beside(const std::vector<std::byte>& bytes, const std::string& what) const {
    const auto size = static_cast<std::size_t>(size_of(dtype_));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const auto place = static_cast<std::int64_t>(i / size) - shift_;
      if (place < 0 || place % stride_ >= cols_) {
        ASSERT_EQ(bytes[i], kBeside) << what << ": wrote beside the matrix";
      }
    }
  }

  DType dtype_;
  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t stride_;
  std::int64_t shift_;
  std::vector<std::byte> bytes_;
  Buffer memory_;
};

// Several matrices of one type, and lists of their views.
class TestedList {
 public:
  Tested& add(Tested&& matrix) { return all_.emplace_back(std::move(matrix)); }

  template <typename T>
  [[nodiscard]] std::vector<Matrix<T>> device() {
    std::vector<Matrix<T>> views;
    for (const Tested& matrix : all_) {
      views.push_back(matrix.device_floats());
    }
    return views;
  }

  template <typename T>
  [[nodiscard]] std::vector<Matrix<T>> host() {
    std::vector<Matrix<T>> views;
    for (Tested& matrix : all_) {
      views.push_back(matrix.host_floats());
    }
    return views;
  }

  void expect_same(const std::string& what, double tolerance = 0.0) {
    for (Tested& matrix : all_) {
      matrix.expect_same(what, tolerance);
    }
  }

 private:
  std::deque<Tested> all_;
};

// The bound of a sum in fp32 of so many products of numbers of size one, whose sums grow as their
// square root; of one that is stored as bf16, the bound of that rounding too.
inline double sum_bound(std::int64_t terms, DType stored = DType::kFloat32) {
  const auto n = static_cast<double>(terms);
  return 1e-6 * std::sqrt(n) + 6e-8 * n + 1e-6 + (stored == DType::kFloat32 ? 0.0 : 0.008);
}

}  // namespace weft::kernels::parity
