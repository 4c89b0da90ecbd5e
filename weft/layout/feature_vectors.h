/// Lengths of what a step keeps of vectors and of their gradients: of a rank's samples in matrices,
/// and of all slots on their way between shards and samples (sharding::OutputStep).
///
/// A length is added up block by block: vectors of one slot for the samples of one rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/layout/lengths.h"
#include "weft/layout/paths.h"
#include "weft/layout/row_gradients.h"

namespace weft::layout {

/// A step has every matrix of its samples twice: vectors, and gradients.
inline constexpr std::size_t kMatrixKinds = 2;

/// What the exchange of vectors does with them.
struct VectorExchange {
  bool encoded = false;  ///< by a codec
  bool copied = false;   ///< to where they are received; else read where the sender has them

  /// Whether vectors of a block have room where they were asked for: of encoded ones those that are
  /// added there, the others are decoded into the matrix.
  [[nodiscard]] constexpr bool has_asked(const PathBlock& block) const {
    return encoded ? block.gets_partial_sums() : block.moves_vectors();
  }

  /// Whether those that a rank asks of itself have it too; else they are read where they are
  /// served.
  [[nodiscard]] constexpr bool has_own() const { return encoded; }

  /// Whether there is memory for them at all.
  [[nodiscard]] constexpr bool keeps_asked() const { return encoded || copied; }
};

/// Vectors of a rank's slots, by source, and then in the same memory their gradients.
template <typename N>
struct ServedFloats {
  N vectors = {};
  N gradients = {};

  /// Adds a block of so many of each, whose vectors move.
  void add(const N& of_vectors, const N& of_gradients, std::int64_t columns) {
    vectors += of_vectors * columns;
    gradients += of_gradients * columns;
  }

  /// Lets the next block begin behind both, so that gradients of one take no vector's place of
  /// another: where gradients of a micro-batch come before vectors of a later one have left.
  void join() { vectors = gradients = larger(vectors, gradients); }

  [[nodiscard]] Array<float, N> buffer() const { return {larger(vectors, gradients)}; }
};

/// Encoded vectors, or gradients, of one rank in one exchange, in bytes.
template <typename N>
struct WireBytes {
  N outgoing = {};
  N incoming = {};
  N in_place = {};  ///< rounded as if they had travelled

  /// What is encoded lies in one buffer.
  [[nodiscard]] Array<std::byte, N> sent() const { return {outgoing + in_place}; }

  /// Only where the exchange copies.
  [[nodiscard]] Array<std::byte, N> received() const { return {incoming}; }
};

}  // namespace weft::layout
