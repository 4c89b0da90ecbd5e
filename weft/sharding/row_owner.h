/// Private to sharding/: which cut of rows has a row, and where, without a division or a search per
/// row.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/sharding/routing.h"

namespace weft::sharding {

struct RowPlace {
  std::size_t cut = 0;
  std::int64_t index = 0;  ///< of the row among the cut's
};

/// Of ranges that are cut at any places. A table of at most 4096 entries gives the cut of the first
/// row of each stretch of 2^shift rows; behind an end inside the stretch one step per end leads on.
class RangeOwner {
 public:
  RangeOwner() = default;

  /// Ranges that follow each other from row 0 on.
  explicit RangeOwner(const std::vector<RowSet>& cuts) {
    for (const RowSet& rows : cuts) {
      begins_.push_back(rows.begin);
      ends_.push_back(rows.end);
    }
    const auto last = static_cast<std::uint64_t>(std::max<std::int64_t>(ends_.back() - 1, 0));
    shift_ = std::max(0, static_cast<int>(std::bit_width(last)) - kBits);
    std::size_t cut = 0;
    for (std::uint64_t row = 0; row <= last; row += std::uint64_t{1} << shift_) {
      while (static_cast<std::int64_t>(row) >= ends_[cut]) {
        ++cut;
      }
      first_.push_back(static_cast<std::uint32_t>(cut));
    }
  }

  /// Requires 0 <= row < the number of rows.
  [[nodiscard]] RowPlace place_of(std::int64_t row) const {
    std::size_t cut = first_[static_cast<std::size_t>(row) >> shift_];
    while (row >= ends_[cut]) {
      ++cut;
    }
    return {cut, row - begins_[cut]};
  }

 private:
  static constexpr int kBits = 12;

  std::vector<std::int64_t> begins_, ends_;
  std::vector<std::uint32_t> first_;
  int shift_ = 0;
};

/// Divides by one number without a division.
class Divider {
 public:
  /// Requires n >= 1.
  explicit Divider(std::int64_t n = 1)
      : n_(static_cast<std::uint64_t>(n)), reciprocal_(~std::uint64_t{0} / n_) {}

  struct Result {
    std::int64_t quotient = 0;
    std::int64_t rest = 0;
  };

  /// Requires number >= 0.
  [[nodiscard]] Result divide(std::int64_t number) const {
    __extension__ using Wide = unsigned __int128;
    const auto x = static_cast<std::uint64_t>(number);
    // 2^64 / n - reciprocal_ is at most 1, so the product is x / n rounded down, or one less.
    const auto low = static_cast<std::uint64_t>((static_cast<Wide>(x) * reciprocal_) >> 64);
    const std::uint64_t rest = x - low * n_;
    const std::uint64_t over = rest >= n_ ? 1 : 0;
    return {static_cast<std::int64_t>(low + over), static_cast<std::int64_t>(rest - over * n_)};
  }

 private:
  std::uint64_t n_;
  std::uint64_t reciprocal_;
};

/// Of n cuts of which the k-th has rows k, k + n, k + 2n, ...
class ModuloOwner {
 public:
  /// Requires cuts >= 1.
  explicit ModuloOwner(std::int64_t cuts = 1) : cuts_(cuts) {}

  /// Requires row >= 0.
  [[nodiscard]] RowPlace place_of(std::int64_t row) const {
    const Divider::Result of = cuts_.divide(row);
    return {static_cast<std::size_t>(of.rest), of.quotient};
  }

 private:
  Divider cuts_;
};

/// Of equal pieces (base/parts.h) of `rows` rows, of which none is empty: nothing is kept per cut.
class PieceOwner {
 public:
  PieceOwner() = default;

  /// Requires 1 <= cuts <= rows, and rows * cuts below 2^63.
  PieceOwner(std::int64_t rows, std::int64_t cuts)
      : rows_(rows), cuts_(cuts), by_rows_(rows), by_cuts_(cuts) {}

  /// Requires 0 <= row < the number of rows.
  [[nodiscard]] RowPlace place_of(std::int64_t row) const {
    // Piece k begins at the k * rows / cuts rounded down: the last that begins before row + 1.
    const std::int64_t cut = by_rows_.divide((row + 1) * cuts_ - 1).quotient;
    return {static_cast<std::size_t>(cut), row - by_cuts_.divide(cut * rows_).quotient};
  }

 private:
  std::int64_t rows_ = 1;
  std::int64_t cuts_ = 1;
  Divider by_rows_, by_cuts_;
};

/// Places of the hot rows among themselves. One range, as a table numbered by frequency has it,
/// takes a comparison; several take a look into a hash table of 32 to 64 bytes per row.
class HotPlaces {
 public:
  HotPlaces() = default;

  /// Ascending ranges.
  explicit HotPlaces(const std::vector<Range>& hot) {
    for (const Range& range : hot) {
      size_ += static_cast<std::uint64_t>(range.size());
    }
    if (hot.size() == 1) {
      begin_ = hot.front().begin;
      return;
    }
    bits_ = static_cast<int>(std::bit_width(2 * size_));
    slots_.resize(std::size_t{1} << bits_);
    std::int64_t place = 0;
    for (const Range& range : hot) {
      for (std::int64_t row = range.begin; row < range.end; ++row) {
        std::size_t i = first_slot(row);
        while (slots_[i].row >= 0) {
          i = (i + 1) & (slots_.size() - 1);
        }
        slots_[i] = {row, place++};
      }
    }
  }

  /// The place of a row, or -1.
  [[nodiscard]] std::int64_t place_of(std::int64_t row) const {
    if (slots_.empty()) {
      const std::int64_t place = row - begin_;
      return static_cast<std::uint64_t>(place) < size_ ? place : -1;
    }
    for (std::size_t i = first_slot(row);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].row == row || slots_[i].row < 0) {
        return slots_[i].place;
      }
    }
  }

 private:
  struct HashSlot {
    std::int64_t row = -1;  ///< -1: free
    std::int64_t place = -1;
  };

  /// Rows that are near each other or far by a power of two go to different slots.
  [[nodiscard]] std::size_t first_slot(std::int64_t row) const {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(row) * 0x9E3779B97F4A7C15U) >>
                                    (64 - bits_));
  }

  std::int64_t begin_ = 0;
  std::uint64_t size_ = 0;
  int bits_ = 0;
  std::vector<HashSlot> slots_;  // at most half in use
};

/// Of the hot rows, which are the last cut, and of the others' owner.
template <typename Owner>
class HotOwner {
 public:
  HotOwner(const HotPlaces& hot, std::size_t cut, const Owner& others)
      : hot_(hot), cut_(cut), others_(others) {}

  [[nodiscard]] RowPlace place_of(std::int64_t row) const {
    const std::int64_t place = hot_.place_of(row);
    return place >= 0 ? RowPlace{cut_, place} : others_.place_of(row);
  }

 private:
  const HotPlaces& hot_;
  std::size_t cut_;
  const Owner& others_;
};

/// Of any cuts of a table's rows, with or without hot rows.
class RowOwner {
 public:
  RowOwner() = default;

  explicit RowOwner(const RowCuts& cuts)
      : cuts_(at(cuts.tail_cuts)), has_hot_(!cuts.hot.empty()), hot_(cuts.hot) {
    if (cuts.rows_of(0).step > 1) {
      form_ = Form::kModulo;
      modulo_owner_ = ModuloOwner(cuts.tail_cuts);
    } else if (cuts.regular) {
      form_ = Form::kPieces;
      piece_owner_ = PieceOwner(cuts.regular->rule().rows.size(), cuts.tail_cuts);
    } else {
      range_owner_ = RangeOwner(cuts.rows);
    }
  }

  /// Calls call(owner) with what has place_of(), so that loops over rows are compiled for each.
  template <typename Call>
  void visit(const Call& call) const {
    switch (form_) {
      case Form::kRanges:
        return visit(range_owner_, call);
      case Form::kModulo:
        return visit(modulo_owner_, call);
      case Form::kPieces:
        return visit(piece_owner_, call);
    }
  }

 private:
  enum class Form : std::uint8_t { kRanges, kModulo, kPieces };

  template <typename Owner, typename Call>
  void visit(const Owner& owner, const Call& call) const {
    has_hot_ ? call(HotOwner(hot_, cuts_, owner)) : call(owner);
  }

  std::size_t cuts_ = 0;  // without that of the hot rows
  Form form_ = Form::kRanges;
  bool has_hot_ = false;
  RangeOwner range_owner_;
  ModuloOwner modulo_owner_;
  PieceOwner piece_owner_;
  HotPlaces hot_;
};

}  // namespace weft::sharding
