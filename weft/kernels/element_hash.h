/// The sum of the words by which state is hashed (weft/checkpoint/state_hash.h), over a block in
/// host memory.
///
/// word = mix64(mix64(row_key + (column + 1)·g) xor bits), g = 0x9e3779b97f4a7c15, bits of an
/// element extended with zeros; an element whose bits equal its initial value counts zero. Sums are
/// modulo 2^64, so their order is free and every target gives the same number.
///
/// Threads: on the calling one. Cost: two mix64 per element, which are four products of 64 bits; of
/// fp32 in the caches a core takes 5 GB/s with AVX-512, plain loops 2.
#pragma once

#include <cstdint>

namespace weft::kernels {

/// Rows of an item: [rows, cols] elements of 1, 2, 4 or 8 bytes, at any address.
struct ElementBlock {
  const void* values = nullptr;
  const void* initial = nullptr;            ///< the same of initial values; null: all count
  std::int64_t values_stride = 0;           ///< bytes from row to row, at least a row's
  std::int64_t initial_stride = 0;          ///< the same of initial values
  const std::uint64_t* row_keys = nullptr;  ///< [rows]
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t first_col = 0;  ///< the number of the first column
  std::int64_t element_bytes = 4;
};

namespace cpu {
/// Returns the sum by the CPU's vectors. Throws Error(kInternal) where rows overlap by their
/// strides.
std::uint64_t element_hash(const ElementBlock& block);
}  // namespace cpu

namespace reference {
/// Returns it by plain loops.
std::uint64_t element_hash(const ElementBlock& block);
}  // namespace reference

}  // namespace weft::kernels
