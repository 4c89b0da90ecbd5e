#include "weft/kernels/interaction.h"

#include <algorithm>

#include "weft/base/at.h"

namespace weft::kernels::reference {
namespace {

// Column of the pair of two fields.
std::int64_t pair_column(std::int64_t i, std::int64_t j) {
  return num_pairs(std::max(i, j)) + std::min(i, j);
}

}  // namespace

void dot_interaction_forward(Context& /*ctx*/, const DotForward& args) {
  const auto count = static_cast<std::int64_t>(args.fields.size());
  for (std::int64_t s = 0; s < args.out.rows; ++s) {
    for (std::int64_t i = 1; i < count; ++i) {
      for (std::int64_t j = 0; j < i; ++j) {
        double sum = 0.0;
        for (std::int64_t d = 0; d < args.fields[0].cols; ++d) {
          sum += static_cast<double>(args.fields[at(i)].row(s)[d]) *
                 static_cast<double>(args.fields[at(j)].row(s)[d]);
        }
        args.out.row(s)[pair_column(i, j)] = static_cast<float>(sum);
      }
    }
  }
}

void dot_interaction_backward(Context& /*ctx*/, const DotBackward& args) {
  const auto count = static_cast<std::int64_t>(args.fields.size());
  for (std::int64_t s = 0; s < args.dout.rows; ++s) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t d = 0; d < args.fields[0].cols; ++d) {
        float& to = args.dfields[at(i)].row(s)[d];
        double sum = i < args.accumulate ? static_cast<double>(to) : 0.0;
        for (std::int64_t j = 0; j < count; ++j) {
          if (j != i) {
            sum += static_cast<double>(args.dout.row(s)[pair_column(i, j)]) *
                   static_cast<double>(args.fields[at(j)].row(s)[d]);
          }
        }
        to = static_cast<float>(sum);
      }
    }
  }
}

void factorization_forward(Context& /*ctx*/, const FactorizationForward& args) {
  for (std::int64_t s = 0; s < args.sums.rows; ++s) {
    double total = 0.0;
    for (std::int64_t d = 0; d < args.sums.cols; ++d) {
      double sum = 0.0;
      double squares = 0.0;
      for (const Matrix<const float>& field : args.fields) {
        const double value = field.row(s)[d];
        sum += value;
        squares += value * value;
      }
      args.sums.row(s)[d] = static_cast<float>(sum);
      total += sum * sum - squares;
    }
    args.out[s] = static_cast<float>(total / 2.0);
  }
}

void factorization_backward(Context& /*ctx*/, const FactorizationBackward& args) {
  for (std::size_t f = 0; f < args.fields.size(); ++f) {
    for (std::int64_t s = 0; s < args.sums.rows; ++s) {
      for (std::int64_t d = 0; d < args.sums.cols; ++d) {
        const double others = static_cast<double>(args.sums.row(s)[d]) -
                              static_cast<double>(args.fields[f].row(s)[d]);
        float& to = args.dfields[f].row(s)[d];
        to = static_cast<float>(static_cast<double>(to) +
                                static_cast<double>(args.dout[s]) * others);
      }
    }
  }
}

}  // namespace weft::kernels::reference
