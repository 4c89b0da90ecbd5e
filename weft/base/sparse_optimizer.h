/// SparseOptimizerKind: the optimizers of embedding rows, and what everything but their formulas
/// needs to know of them: names, and the state that a row has.
///
/// A row's state is its kinds one after the other, fp32: of a kind per element one number per
/// column, otherwise one number. Formulas are in weft/kernels/sparse_update.h.
///
/// Adding one: its enumerator and its line in kSparseOptimizers here; its formula in
/// weft/kernels/reference/sparse_update.cc and cpu/row_update-inl.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace weft {

enum class SparseOptimizerKind : std::uint8_t {
  kSgd,
  kAdagrad,
  kRowWiseAdagrad,
  kAdam,
  kRowWiseAdam
};

/// One kind of optimizer state.
struct SparseStateKind {
  std::string_view name;     ///< in checkpoints
  bool per_element = false;  ///< one number per column, not one per row
  bool squares = false;      ///< sums or means of squares, which are never negative
};

/// One optimizer, without its formula.
struct SparseOptimizerTraits {
  std::string_view name;     ///< in configurations
  bool is_row_wise = false;  ///< reads the mean of squares over the columns of a whole row
  bool is_adagrad = false;   ///< its only state is a sum of squares over all steps
  std::array<SparseStateKind, 2> kinds;
  std::size_t num_kinds = 0;

  [[nodiscard]] constexpr std::span<const SparseStateKind> state() const {
    return std::span(kinds).first(num_kinds);
  }
};

/// All optimizers, in the order of the enumerators.
inline constexpr std::array<SparseOptimizerTraits, 5> kSparseOptimizers = {{
    {.name = "sgd", .kinds = {}},
    {.name = "adagrad", .is_adagrad = true, .kinds = {{{"sum", true, true}, {}}}, .num_kinds = 1},
    {.name = "row_wise_adagrad",
     .is_row_wise = true,
     .is_adagrad = true,
     .kinds = {{{"sum", false, true}, {}}},
     .num_kinds = 1},
    {.name = "adam",
     .kinds = {{{"exp_avg", true, false}, {"exp_avg_sq", true, true}}},
     .num_kinds = 2},
    {.name = "row_wise_adam",
     .is_row_wise = true,
     .kinds = {{{"exp_avg", true, false}, {"exp_avg_sq", false, true}}},
     .num_kinds = 2},
}};

/// Returns the entry of kSparseOptimizers for `kind`.
constexpr const SparseOptimizerTraits& traits(SparseOptimizerKind kind) {
  return kSparseOptimizers[static_cast<std::size_t>(kind)];
}

/// Returns whether the state called `kind` consists of squares.
constexpr bool is_squares(SparseOptimizerKind optimizer, std::string_view kind) {
  for (const SparseStateKind& one : traits(optimizer).state()) {
    if (one.name == kind) {
      return one.squares;
    }
  }
  return false;
}

/// Numbers of state of a row of `cols` columns.
constexpr std::int64_t state_floats(SparseOptimizerKind kind, std::int64_t cols) {
  std::int64_t floats = 0;
  for (const SparseStateKind& one : traits(kind).state()) {
    floats += one.per_element ? cols : 1;
  }
  return floats;
}

}  // namespace weft
