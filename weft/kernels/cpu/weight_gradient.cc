// for each tile of W:  for each part, up the tree:  slot += Σ over its pieces of dyᵀ[rows] ·
// x[cols]
//                      dW[tile] = slot 0
//
// A part of one piece is not multiplied before it is known what it is added to: its product can
// then be added as it is stored, which saves reading and writing it once more.

#include "weft/kernels/cpu/weight_gradient.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "weft/base/error.h"
#include "weft/kernels/cpu/elementwise.h"
#include "weft/kernels/cpu/workspace.h"
#include "weft/kernels/target.h"

namespace weft::kernels {

namespace {

const WeightGradientOperands& own(const GradientOperands* kept) {
  return static_cast<const WeightGradientOperands&>(*kept);
}

}  // namespace

Range WeightGradientOperands::samples(std::int64_t index) const {
  return piece(samples_, lengths_.pieces, index);
}

Operand WeightGradientOperands::left(std::int64_t index) const {
  Operand operand;
  operand.data = static_cast<std::byte*>(memory_) + index * lengths_.left;
  operand.dtype = dtype_;
  operand.rows = rows_;
  operand.cols = packed_rows(dtype_, samples(index).size());
  operand.stride = operand.cols;
  return operand;
}

PackedMatrix WeightGradientOperands::right(std::int64_t index) const {
  return packed_matrix(
      dtype_, samples(index).size(), cols_,
      static_cast<std::byte*>(memory_) + pieces() * lengths_.left + index * lengths_.right);
}

void WeightGradientOperands::set(const ConstOperand& dy, const ConstOperand& x) {
  WEFT_CHECK(dy.rows == x.rows && dy.dtype == x.dtype, "dy of {} samples, x of {}", dy.rows,
             x.rows);
  dtype_ = x.dtype;
  samples_ = x.rows;
  rows_ = dy.cols;
  cols_ = x.cols;
  lengths_ = layout::gradient_operands(current_packing(), element_of(dtype_), samples_,
                                       {.in = cols_, .out = rows_});
  WEFT_CHECK(lengths_.bytes() <= bytes_,
             "operands of {} samples, {} by {}, take {} bytes where {} were described", samples_,
             rows_, cols_, lengths_.bytes(), bytes_);
  for (std::int64_t i = 0; i < pieces(); ++i) {
    const Range range = samples(i);
    transpose(dy.slice_rows(range.begin, range.end), left(i));
    const PackedMatrix packed = right(i);
    pack(x.slice_rows(range.begin, range.end), packed, {0, packed.panels()});
  }
}

ConstOperand WeightGradientOperands::left(std::int64_t index, Range rows) const {
  return left(index).slice_rows(rows.begin, rows.end);
}

PackedMatrix WeightGradientOperands::right(std::int64_t index, Range cols) const {
  PackedMatrix operand = right(index).slice_cols(cols.begin, cols.end);
  // The rows added by packing are zeros, and so are the columns added by transposing.
  operand.rows = packed_rows(dtype_, operand.rows);
  return operand;
}

/// The pieces of a part, one after the other.
void GradientSummer::sum_part(Matmul& matmul,
                              const PartSlices& part,
                              const GradientTile& tile,
                              Slot& to) const {
  bool first = true;
  for (const GradientOperands* kept : part) {
    const WeightGradientOperands& slice = own(kept);
    for (std::int64_t i = 0; i < slice.pieces(); ++i) {
      const ConstOperand left = slice.left(i, tile.rows);
      const PackedMatrix right = slice.right(i, tile.cols);
      if (first) {
        matmul.multiply_first(left, right, to.values);
      } else {
        matmul.multiply_add(left, right, to.values);
      }
      first = false;
    }
  }
  if (first) {
    std::fill_n(to.values.data, to.values.rows * to.values.cols, 0.0F);
  }
}

void GradientSummer::settle(Matmul& matmul, const GradientTile& tile, Slot& slot) {
  if (slot.pending != nullptr) {
    matmul.multiply_first(slot.pending->left(0, tile.rows), slot.pending->right(0, tile.cols),
                          slot.values);
    slot.pending = nullptr;
  }
}

void GradientSummer::reserve(std::int64_t parts, const GradientTile& tile) {
  const std::int64_t slots = tree_slots(parts);
  slots_.reserve(static_cast<std::size_t>(slots));
  memory_.at_least_of<float>(tile.sum_floats(slots));
}

bool GradientSummer::sum(Matmul& matmul,
                         Range node,
                         std::span<const PartSlices> parts,
                         const GradientTile& tile,
                         Matrix<float> dw) {
  const std::int64_t rows = tile.rows.size();
  const std::int64_t cols = tile.cols.size();
  const Matrix<float> out =
      dw.slice_rows(tile.rows.begin, tile.rows.end).slice_cols(tile.cols.begin, tile.cols.end);
  slots_.resize(static_cast<std::size_t>(tree_slots(node.size())));
  const std::int64_t slot_floats = tile.floats();
  auto* memory = memory_.at_least_of<float>(tile.sum_floats(std::ssize(slots_)));
  for (Slot& slot : slots_) {
    slot = {matrix(memory, rows, cols), nullptr};
    memory += slot_floats;
  }
  const auto leaf = [&](const Range& range, int depth) {
    const PartSlices& part = parts[static_cast<std::size_t>(range.begin - node.begin)];
    if (range.size() != 1 || part.empty()) {
      return false;
    }
    Slot& slot = slots_[static_cast<std::size_t>(depth)];
    if (part.size() == 1 && own(part[0]).pieces() == 1) {
      slot.pending = &own(part[0]);
    } else {
      slot.pending = nullptr;
      sum_part(matmul, part, tile, slot);
    }
    return true;
  };
  const auto add_slots = [&](int depth) {
    Slot& to = slots_[static_cast<std::size_t>(depth)];
    Slot& from = slots_[static_cast<std::size_t>(depth) + 1];
    settle(matmul, tile, to);
    if (from.pending != nullptr) {
      matmul.multiply_add(from.pending->left(0, tile.rows), from.pending->right(0, tile.cols),
                          to.values);
      from.pending = nullptr;
    } else {
      add(from.values, to.values);
    }
  };
  if (!sum_tree(node, 0, leaf, add_slots)) {
    for (std::int64_t i = 0; i < rows; ++i) {
      std::fill_n(out.row(i), cols, 0.0F);
    }
    return true;
  }
  settle(matmul, tile, slots_[0]);
  return copy_is_finite(slots_[0].values, out);
}

namespace cpu {

std::unique_ptr<GradientOperands> make_gradient_operands(Context& /*ctx*/) {
  return std::make_unique<WeightGradientOperands>();
}

std::int64_t gradient_operands_bytes(Context& /*ctx*/,
                                     DType dtype,
                                     std::int64_t samples,
                                     const LinearShape& layer) {
  return layout::gradient_operands(current_packing(), element_of(dtype), samples, layer).bytes();
}

std::vector<GradientTile> gradient_tiles(Context& /*ctx*/, const LinearShape& layer) {
  return layout::gradient_tiles(layer);
}

void keep_operands(Context& /*ctx*/, const KeepOperands& args) {
  static_cast<WeightGradientOperands*>(args.to)->set(args.dy, args.x);
}

void sum_weight_gradient(Context& /*ctx*/, const WeightGradient& args) {
  CpuWorkspace& workspace = CpuWorkspace::of(args.workspace);
  workspace.summer.reserve(args.most_parts, args.tile);
  const bool finite =
      workspace.summer.sum(workspace.matmul, args.node, args.parts, args.tile, args.dw);
  *args.infinite = finite ? 0 : 1;
}

void sum_bias_gradients(Context& /*ctx*/, const BiasGradients& args) {
  const std::int64_t count = args.count;
  const auto slots =
      static_cast<std::int64_t>(tree_slots(std::max(args.node.size(), args.most_parts)));
  float* const sums = CpuWorkspace::of(args.workspace)
                          .bias_sums.at_least_of<float>(layout::bias_sum_floats(count, slots));
  const auto slot = [&](int depth) { return matrix(sums + depth * count, 1, count); };
  const auto leaf = [&](const Range& node, int depth) {
    const PartBiases& part = args.parts[static_cast<std::size_t>(node.begin - args.node.begin)];
    if (node.size() != 1 || part.empty()) {
      return false;
    }
    kernels::assign(matrix(part.front(), 1, count), slot(depth));
    for (const float* const slice : part.subspan(1)) {
      kernels::add(matrix(slice, 1, count), slot(depth));
    }
    return true;
  };
  const auto add_slots = [&](int depth) { kernels::add(slot(depth + 1), slot(depth)); };
  if (!sum_tree(args.node, 0, leaf, add_slots)) {
    std::fill_n(sums, count, 0.0F);
  }
  bool finite = true;
  for (const BiasPlace& place : args.places) {
    finite = copy_is_finite(matrix(sums + place.begin, 1, place.size),
                            matrix(place.to, 1, place.size)) &&
             finite;
  }
  *args.infinite = finite ? 0 : 1;
}

}  // namespace cpu
}  // namespace weft::kernels
