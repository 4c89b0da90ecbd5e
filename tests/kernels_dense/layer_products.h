// The three products of a layer y = x Wᵀ, each with its operands packed as it goes.
#pragma once

#include "weft/kernels/matmul.h"
#include "weft/tensor/host_block.h"

namespace weft::kernels {

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

}  // namespace weft::kernels
