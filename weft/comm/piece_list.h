/// PieceList: the pieces of many lanes, one after the other. Exchanges between many ranks have
/// thousands of small ones, so adding one is a store, and memory is kept from exchange to exchange.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "weft/comm/collective.h"

namespace weft::comm {

class PieceList {
 public:
  /// Forgets all pieces, and keeps their memory.
  void clear() { size_ = 0; }

  /// Appends a piece. Amortised O(1), without a call once the longest list has been seen.
  void add(const Piece& piece) {
    if (size_ == pieces_.size()) {
      grow();
    }
    pieces_[size_++] = piece;
  }

  [[nodiscard]] std::size_t size() const { return size_; }

  /// Returns those from `begin` to `end`, which are valid until the next add() or clear().
  [[nodiscard]] std::span<const Piece> between(std::size_t begin, std::size_t end) const {
    return std::span(pieces_).subspan(begin, end - begin);
  }

 private:
  [[gnu::noinline]] void grow() { pieces_.resize(std::max<std::size_t>(64, 2 * size_)); }

  std::vector<Piece> pieces_;  // longer than what is used
  std::size_t size_ = 0;
};

}  // namespace weft::comm
