// The three products of a layer y = x Wᵀ, each with its operands packed as it goes; and the same by
// plain loops, sums in the order of the index.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "weft/kernels/cpu/matmul.h"
#include "weft/tensor/host_block.h"

namespace weft::kernels {

/// Normally distributed.
inline std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

struct PackedCopy {
  HostBlock memory;
  PackedMatrix matrix;

  PackedCopy(DType dtype, std::int64_t rows, std::int64_t cols) {
    matrix = packed_matrix(dtype, rows, cols, memory.at_least(packed_bytes(dtype, rows, cols)));
  }
};

inline PackedCopy packed(const ConstOperand& from) {
  PackedCopy copy(from.dtype, from.rows, from.cols);
  pack(from, copy.matrix, {0, copy.matrix.panels()});
  return copy;
}

inline PackedCopy packed_transposed(const ConstOperand& from) {
  PackedCopy copy(from.dtype, from.cols, from.rows);
  pack_transposed(from, copy.matrix, {0, copy.matrix.panels()});
  return copy;
}

inline void forward(Matmul& matmul,
                    const ConstOperand& x,
                    const ConstOperand& w,
                    const Operand& y,
                    const Epilogue& epilogue = {}) {
  matmul.multiply(x, packed_transposed(w).matrix, y, epilogue);
}

inline void backward_data(Matmul& matmul,
                          const ConstOperand& dy,
                          const ConstOperand& w,
                          const Operand& dx) {
  matmul.multiply(dy, packed(w).matrix, dx);
}

inline void backward_weight(Matmul& matmul,
                            const ConstOperand& dy,
                            const ConstOperand& x,
                            Matrix<float> dw) {
  HostBlock memory;
  Operand turned = dy.dtype == DType::kFloat32
                       ? Operand(matrix(static_cast<float*>(nullptr), dy.cols, dy.rows))
                       : Operand(matrix(static_cast<BFloat16*>(nullptr), dy.cols, dy.rows));
  turned.data = memory.at_least(dy.rows * dy.cols * size_of(dy.dtype));
  transpose(dy, turned);
  matmul.multiply(turned, packed(x).matrix, dw);
}

namespace plain {

template <typename T>
void linear_forward(
    Matrix<const T> x, Matrix<const T> w, const T* bias, Activation activation, Matrix<T> y) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < w.rows; ++j) {
      T sum = 0;
      for (std::int64_t k = 0; k < x.cols; ++k) {
        sum += x.row(i)[k] * w.row(j)[k];
      }
      sum += bias != nullptr ? bias[j] : T{0};
      y.row(i)[j] = activation == Activation::kRelu ? std::max(sum, T{0}) : sum;
    }
  }
}

template <typename T>
void linear_backward_data(Matrix<const T> dy, Matrix<const T> w, Matrix<T> dx) {
  for (std::int64_t i = 0; i < dx.rows; ++i) {
    for (std::int64_t k = 0; k < dx.cols; ++k) {
      T sum = 0;
      for (std::int64_t j = 0; j < w.rows; ++j) {
        sum += dy.row(i)[j] * w.row(j)[k];
      }
      dx.row(i)[k] = sum;
    }
  }
}

template <typename T>
void linear_backward_weight(Matrix<const T> dy, Matrix<const T> x, Matrix<T> dw) {
  for (std::int64_t j = 0; j < dw.rows; ++j) {
    for (std::int64_t k = 0; k < dw.cols; ++k) {
      T sum = 0;
      for (std::int64_t i = 0; i < dy.rows; ++i) {
        sum += dy.row(i)[j] * x.row(i)[k];
      }
      dw.row(j)[k] = sum;
    }
  }
}

template <typename T>
void linear_backward_bias(Matrix<const T> dy, T* db) {
  std::fill_n(db, dy.cols, T{0});
  for (std::int64_t i = 0; i < dy.rows; ++i) {
    for (std::int64_t j = 0; j < dy.cols; ++j) {
      db[j] += dy.row(i)[j];
    }
  }
}

}  // namespace plain
}  // namespace weft::kernels
