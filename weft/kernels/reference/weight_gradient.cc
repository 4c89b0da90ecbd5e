#include "weft/kernels/weight_gradient.h"

#include <algorithm>
#include <cmath>

#include "weft/kernels/reference/values.h"

namespace weft::kernels::reference {
namespace {

// Copies of dy and x.
class CopiedOperands final : public GradientOperands {
 public:
  void set(const ConstOperand& dy, const ConstOperand& x) {
    dy_.clear();
    x_.clear();
    samples = dy.rows;
    for_each(dy.rows, dy.cols,
             [&](std::int64_t i, std::int64_t j) { dy_.push_back(value_at(dy, i, j)); });
    for_each(x.rows, x.cols,
             [&](std::int64_t i, std::int64_t j) { x_.push_back(value_at(x, i, j)); });
  }

  [[nodiscard]] Matrix<const float> dy() const { return view(dy_); }

  [[nodiscard]] Matrix<const float> x() const { return view(x_); }

  std::int64_t samples = 0;

 private:
  [[nodiscard]] Matrix<const float> view(const std::vector<float>& values) const {
    const auto cols = static_cast<std::int64_t>(values.size()) / std::max<std::int64_t>(1, samples);
    return matrix(values.data(), samples, cols);
  }

  std::vector<float> dy_;
  std::vector<float> x_;
};

// Element (i, j) of the sum over a part's samples.
float part_sum(const PartSlices& part, std::int64_t i, std::int64_t j) {
  double sum = 0.0;
  for (const GradientOperands* const kept : part) {
    const auto& slice = static_cast<const CopiedOperands&>(*kept);
    for (std::int64_t s = 0; s < slice.samples; ++s) {
      sum += static_cast<double>(slice.dy().row(s)[i]) * static_cast<double>(slice.x().row(s)[j]);
    }
  }
  return static_cast<float>(sum);
}

// The sum of leaf(p) over the parts of a node, up their tree; 0 where every part is empty.
template <typename Part, typename Leaf>
float tree_sum(Range node, std::span<const Part> parts, const Leaf& leaf) {
  std::vector<float> slots(static_cast<std::size_t>(tree_slots(node.size())));
  const bool any = sum_tree(
      node, 0,
      [&](const Range& range, int depth) {
        const Part& part = parts[static_cast<std::size_t>(range.begin - node.begin)];
        if (range.size() != 1 || part.empty()) {
          return false;
        }
        slots[static_cast<std::size_t>(depth)] = leaf(part);
        return true;
      },
      [&](int depth) {
        slots[static_cast<std::size_t>(depth)] += slots[static_cast<std::size_t>(depth) + 1];
      });
  return any ? slots[0] : 0.0F;
}

}  // namespace

std::unique_ptr<GradientOperands> make_gradient_operands(Context& /*ctx*/) {
  return std::make_unique<CopiedOperands>();
}

void keep_operands(Context& /*ctx*/, const KeepOperands& args) {
  static_cast<CopiedOperands*>(args.to)->set(args.dy, args.x);
}

void sum_weight_gradient(Context& /*ctx*/, const WeightGradient& args) {
  bool finite = true;
  for (std::int64_t i = args.tile.rows.begin; i < args.tile.rows.end; ++i) {
    for (std::int64_t j = args.tile.cols.begin; j < args.tile.cols.end; ++j) {
      const float sum = tree_sum(args.node, args.parts,
                                 [&](const PartSlices& part) { return part_sum(part, i, j); });
      finite = std::isfinite(sum) && finite;
      args.dw.row(i)[j] = sum;
    }
  }
  *args.infinite = finite ? 0 : 1;
}

void sum_bias_gradients(Context& /*ctx*/, const BiasGradients& args) {
  bool finite = true;
  for (const BiasPlace& place : args.places) {
    for (std::int64_t i = 0; i < place.size; ++i) {
      place.to[i] = tree_sum(args.node, args.parts, [&](const PartBiases& part) {
        float sum = part[0][place.begin + i];
        for (const float* const slice : part.subspan(1)) {
          sum += slice[place.begin + i];
        }
        return sum;
      });
      finite = std::isfinite(place.to[i]) && finite;
    }
  }
  *args.infinite = finite ? 0 : 1;
}

}  // namespace weft::kernels::reference
