#include <algorithm>

#include "weft/base/error.h"
#include "weft/layout/dense_memory.h"
#include "weft/optim/dense.h"

namespace weft::optim {

std::int64_t ParameterLayout::add(std::string name, std::int64_t rows, std::int64_t cols) {
  for (const DenseParameter& parameter : parameters_) {
    WEFT_CHECK(parameter.name != name, "parameter '{}' twice; two features of one name?", name);
  }
  WEFT_CHECK(rows > 0 && cols > 0, "parameter '{}' [{}, {}]", name, rows, cols);
  parameters_.push_back({std::move(name), rows, cols, size_});
  size_ += layout::parameter_floats(rows * cols);
  return static_cast<std::int64_t>(parameters_.size()) - 1;
}

std::int64_t ParameterLayout::num_weights() const {
  std::int64_t weights = 0;
  for (const DenseParameter& parameter : parameters_) {
    weights += parameter.size();
  }
  return weights;
}

const DenseParameter& ParameterLayout::at(std::int64_t index) const {
  WEFT_CHECK(index >= 0 && index < size_, "element {} of {}", index, size_);
  const auto after = std::upper_bound(
      parameters_.begin(), parameters_.end(), index,
      [](std::int64_t i, const DenseParameter& parameter) { return i < parameter.offset; });
  return *(after - 1);
}

const DenseParameter& ParameterLayout::find(std::string_view name) const {
  const auto it = std::find_if(parameters_.begin(), parameters_.end(),
                               [name](const DenseParameter& p) { return p.name == name; });
  WEFT_CHECK(it != parameters_.end(), "no dense parameter '{}'", name);
  return *it;
}

}  // namespace weft::optim
