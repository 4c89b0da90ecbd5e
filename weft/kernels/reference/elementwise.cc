#include "weft/kernels/elementwise.h"

#include "weft/kernels/reference/values.h"

namespace weft::kernels::reference {

void assign(Context& /*ctx*/, const Assign& args) {
  for_each(args.from.rows, args.from.cols, [&](std::int64_t i, std::int64_t j) {
    set_value(args.to, i, j, value_at(args.from, i, j));
  });
}

void add(Context& /*ctx*/, const Add& args) {
  for_each(args.from.rows, args.from.cols, [&](std::int64_t i, std::int64_t j) {
    set_value(args.to, i, j, value_at(args.to, i, j) + value_at(args.from, i, j));
  });
}

void concatenate(Context& /*ctx*/, const Concatenate& args) {
  std::int64_t begin = 0;
  for (const Matrix<const float>& from : args.from) {
    for_each(from.rows, from.cols, [&](std::int64_t i, std::int64_t j) {
      set_value(args.to, i, begin + j, from.row(i)[j]);
    });
    begin += from.cols;
  }
}

void split(Context& /*ctx*/, const Split& args) {
  std::int64_t begin = 0;
  for (const Matrix<float>& to : args.to) {
    for_each(to.rows, to.cols, [&](std::int64_t i, std::int64_t j) {
      to.row(i)[j] = value_at(args.from, i, begin + j);
    });
    begin += to.cols;
  }
}

}  // namespace weft::kernels::reference
