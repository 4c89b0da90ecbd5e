#include "weft/kernels/elementwise.h"

namespace weft::kernels::reference {

template <typename T>
void relu_backward(Matrix<const T> y, Matrix<T> dy) {
  for (std::int64_t i = 0; i < y.rows; ++i) {
    for (std::int64_t j = 0; j < y.cols; ++j) {
      dy.row(i)[j] = y.row(i)[j] > T{0} ? dy.row(i)[j] : T{0};
    }
  }
}

template <typename T>
void cross_forward(Matrix<const T> x0, Matrix<const T> u, Matrix<const T> x, Matrix<T> y) {
  for (std::int64_t i = 0; i < y.rows; ++i) {
    for (std::int64_t j = 0; j < y.cols; ++j) {
      y.row(i)[j] = x0.row(i)[j] * u.row(i)[j] + x.row(i)[j];
    }
  }
}

template <typename T>
void cross_backward(
    Matrix<const T> x0, Matrix<const T> u, Matrix<const T> dy, Matrix<T> du, Matrix<T> dx0) {
  for (std::int64_t i = 0; i < dy.rows; ++i) {
    for (std::int64_t j = 0; j < dy.cols; ++j) {
      du.row(i)[j] = dy.row(i)[j] * x0.row(i)[j];
      dx0.row(i)[j] += dy.row(i)[j] * u.row(i)[j];
    }
  }
}

template void relu_backward<float>(Matrix<const float>, Matrix<float>);
template void relu_backward<double>(Matrix<const double>, Matrix<double>);
template void cross_forward<float>(Matrix<const float>,
                                   Matrix<const float>,
                                   Matrix<const float>,
                                   Matrix<float>);
template void cross_forward<double>(Matrix<const double>,
                                    Matrix<const double>,
                                    Matrix<const double>,
                                    Matrix<double>);
template void cross_backward<float>(
    Matrix<const float>, Matrix<const float>, Matrix<const float>, Matrix<float>, Matrix<float>);
template void cross_backward<double>(Matrix<const double>,
                                     Matrix<const double>,
                                     Matrix<const double>,
                                     Matrix<double>,
                                     Matrix<double>);

}  // namespace weft::kernels::reference
