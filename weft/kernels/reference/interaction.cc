#include "weft/kernels/interaction.h"

#include <algorithm>

#include "weft/base/at.h"

namespace weft::kernels::reference {

namespace {

// Column of the pair (i, j), i > j.
std::int64_t pair_column(std::int64_t i, std::int64_t j) {
  return num_pairs(i) + j;
}

}  // namespace

template <typename T>
void dot_interaction_forward(std::span<const Matrix<const T>> fields, Matrix<T> out) {
  const auto count = static_cast<std::int64_t>(fields.size());
  for (std::int64_t s = 0; s < out.rows; ++s) {
    for (std::int64_t i = 1; i < count; ++i) {
      for (std::int64_t j = 0; j < i; ++j) {
        T sum = 0;
        for (std::int64_t d = 0; d < fields[0].cols; ++d) {
          sum += fields[at(i)].row(s)[d] * fields[at(j)].row(s)[d];
        }
        out.row(s)[pair_column(i, j)] = sum;
      }
    }
  }
}

template <typename T>
void dot_interaction_backward(std::span<const Matrix<const T>> fields,
                              Matrix<const T> dout,
                              std::span<const Matrix<T>> dfields,
                              std::int64_t accumulate) {
  const auto count = static_cast<std::int64_t>(fields.size());
  for (std::int64_t s = 0; s < dout.rows; ++s) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t d = 0; d < fields[0].cols; ++d) {
        T sum = i < accumulate ? dfields[at(i)].row(s)[d] : T{0};
        for (std::int64_t j = 0; j < count; ++j) {
          if (j != i) {
            sum +=
                dout.row(s)[pair_column(std::max(i, j), std::min(i, j))] * fields[at(j)].row(s)[d];
          }
        }
        dfields[at(i)].row(s)[d] = sum;
      }
    }
  }
}

template <typename T>
void factorization_forward(std::span<const Matrix<const T>> fields, Matrix<T> sums, T* out) {
  for (std::int64_t s = 0; s < sums.rows; ++s) {
    T total = 0;
    for (std::int64_t d = 0; d < sums.cols; ++d) {
      T sum = 0;
      T squares = 0;
      for (const Matrix<const T>& field : fields) {
        const T value = field.row(s)[d];
        sum += value;
        squares += value * value;
      }
      sums.row(s)[d] = sum;
      total += sum * sum - squares;
    }
    out[s] = total / 2;
  }
}

template <typename T>
void factorization_backward(std::span<const Matrix<const T>> fields,
                            Matrix<const T> sums,
                            const T* dout,
                            std::span<const Matrix<T>> dfields) {
  for (std::size_t f = 0; f < fields.size(); ++f) {
    for (std::int64_t s = 0; s < sums.rows; ++s) {
      for (std::int64_t d = 0; d < sums.cols; ++d) {
        dfields[f].row(s)[d] += dout[s] * (sums.row(s)[d] - fields[f].row(s)[d]);
      }
    }
  }
}

template void dot_interaction_forward<float>(std::span<const Matrix<const float>>, Matrix<float>);
template void dot_interaction_forward<double>(std::span<const Matrix<const double>>,
                                              Matrix<double>);
template void dot_interaction_backward<float>(std::span<const Matrix<const float>>,
                                              Matrix<const float>,
                                              std::span<const Matrix<float>>,
                                              std::int64_t);
template void dot_interaction_backward<double>(std::span<const Matrix<const double>>,
                                               Matrix<const double>,
                                               std::span<const Matrix<double>>,
                                               std::int64_t);
template void factorization_forward<float>(std::span<const Matrix<const float>>,
                                           Matrix<float>,
                                           float*);
template void factorization_forward<double>(std::span<const Matrix<const double>>,
                                            Matrix<double>,
                                            double*);
template void factorization_backward<float>(std::span<const Matrix<const float>>,
                                            Matrix<const float>,
                                            const float*,
                                            std::span<const Matrix<float>>);
template void factorization_backward<double>(std::span<const Matrix<const double>>,
                                             Matrix<const double>,
                                             const double*,
                                             std::span<const Matrix<double>>);

}  // namespace weft::kernels::reference
