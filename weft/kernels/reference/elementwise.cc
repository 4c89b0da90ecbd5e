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
void cross_forward(const CrossForward<T>& c) {
  for (std::int64_t i = 0; i < c.y.rows; ++i) {
    for (std::int64_t j = 0; j < c.y.cols; ++j) {
      c.y.row(i)[j] = c.x0.row(i)[j] * c.u.row(i)[j] + c.x.row(i)[j];
    }
  }
}

template <typename T>
void cross_backward(const CrossBackward<T>& c) {
  for (std::int64_t i = 0; i < c.dy.rows; ++i) {
    for (std::int64_t j = 0; j < c.dy.cols; ++j) {
      T& g = c.dy.row(i)[j];
      if (c.more.data != nullptr) {
        g += c.more.row(i)[j];
      }
      c.du.row(i)[j] = g * c.x0.row(i)[j];
      const T through_u = g * c.u.row(i)[j];
      T& dx0 = c.dx0.row(i)[j];
      dx0 = c.sum == CrossSum::kBegin ? through_u : dx0 + through_u;
    }
  }
}

template void relu_backward<float>(Matrix<const float>, Matrix<float>);
template void relu_backward<double>(Matrix<const double>, Matrix<double>);
template void cross_forward<float>(const CrossForward<float>&);
template void cross_forward<double>(const CrossForward<double>&);
template void cross_backward<float>(const CrossBackward<float>&);
template void cross_backward<double>(const CrossBackward<double>&);

}  // namespace weft::kernels::reference
