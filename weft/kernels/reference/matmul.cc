#include "weft/kernels/matmul.h"

#include <algorithm>

namespace weft::kernels::reference {

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

template void linear_forward<float>(
    Matrix<const float>, Matrix<const float>, const float*, Activation, Matrix<float>);
template void linear_forward<double>(
    Matrix<const double>, Matrix<const double>, const double*, Activation, Matrix<double>);
template void linear_backward_data<float>(Matrix<const float>, Matrix<const float>, Matrix<float>);
template void linear_backward_data<double>(Matrix<const double>,
                                           Matrix<const double>,
                                           Matrix<double>);
template void linear_backward_weight<float>(Matrix<const float>,
                                            Matrix<const float>,
                                            Matrix<float>);
template void linear_backward_weight<double>(Matrix<const double>,
                                             Matrix<const double>,
                                             Matrix<double>);
template void linear_backward_bias<float>(Matrix<const float>, float*);
template void linear_backward_bias<double>(Matrix<const double>, double*);

}  // namespace weft::kernels::reference
