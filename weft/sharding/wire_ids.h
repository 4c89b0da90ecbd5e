/// Private to sharding/: how ids look on the wire, and which bags they are of.
///
/// Ids     counted within the rows of a cut, in spec::id_bytes() of the table's largest cut.
///         Rows of fetched tables, where codecs.ids is packed: every run ascending, packed
///         (weft/kernels/packed_ids.h), the runs behind each other.
/// Lengths of a slot's bags, in 1, 2 or 4 bytes: the least that hold the longest one of the batch;
///         none where all bags are of one length, which then is ids / bags.
/// Listed  are the bags of a slot with few ids: in place of lengths, the bag of each id, which
/// never
///         descends, in the bytes that hold the last bag of the batch. weft/layout/listed_bags.h
///         says when. So a slot costs what its ids cost, however many bags have none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/comm/collective.h"
#include "weft/spec/plan.h"

namespace weft::sharding {

/// Buffers of ids grow and keep their size from step to step.
template <typename T>
void grow(std::vector<T>& values, std::int64_t size) {
  if (values.size() < at(size)) {
    values.resize(at(size));
  }
}

/// What a slot is about to get from one rank.
struct SlotCounts {
  /// Whether bags are listed.
  [[nodiscard]] bool is_listed() const { return bag_bytes > 0; }

  std::int32_t batch = 0;         ///< samples
  std::int16_t length_bytes = 4;  ///< of a bag's length; of rows 4 per run
  std::int16_t bag_bytes = 0;     ///< of an id's bag, where bags are listed; else 0
  std::int32_t ids = 0;
  std::int32_t packed_bytes = 0;  ///< of packed ids, else 0
};

/// What one slot sends to its server, two or three pieces, or none.
class SlotPieces {
 public:
  void push_back(const comm::Piece& piece) { pieces_[size_++] = piece; }

  [[nodiscard]] std::span<const comm::Piece> all() const { return std::span(pieces_).first(size_); }

  /// Lays the pieces behind each other from `data` on; returns where they end.
  const std::byte* place(const std::byte* data) {
    for (comm::Piece& piece : std::span(pieces_).first(size_)) {
      piece.data = const_cast<std::byte*>(data);  // only read
      data += piece.bytes;
    }
    return data;
  }

 private:
  std::array<comm::Piece, 3> pieces_;
  std::size_t size_ = 0;
};

/// The pieces of the lanes of ids to all ranks, or from all, as one list. REQUIRES of a reader: all
/// lanes have been ended since clear().
class IdLanes {
 public:
  /// Begins with the lane of rank 0.
  void clear() {
    pieces_.clear();
    begins_.assign(1, 0);
  }

  /// Appends to the lane in hand.
  void add(std::span<const comm::Piece> pieces) {
    pieces_.insert(pieces_.end(), pieces.begin(), pieces.end());
  }

  void add(const comm::Piece& piece) { pieces_.push_back(piece); }

  /// Appends `count` empty pieces. What is returned holds until a piece is appended again.
  std::span<comm::Piece> add_empty(std::size_t count) {
    pieces_.resize(pieces_.size() + count);
    return std::span(pieces_).last(count);
  }

  /// Ends the lane in hand.
  void end_lane() { begins_.push_back(pieces_.size()); }

  [[nodiscard]] std::span<const comm::Piece> of(std::int64_t rank) const {
    return std::span(pieces_).subspan(begins_[at(rank)], begins_[at(rank) + 1] - begins_[at(rank)]);
  }

  /// Returns the pieces of all lanes, by rank.
  [[nodiscard]] std::span<comm::Piece> all() { return pieces_; }

 private:
  std::vector<comm::Piece> pieces_;
  std::vector<std::size_t> begins_;  // [W + 1] in these
};

/// Numbers as they have come, which may begin at any address. They are read as what they are, so
/// that writes of other types beside them need no new read.
template <typename T>
class WireNumbers {
 public:
  explicit WireNumbers(const void* data) : data_(static_cast<const Unaligned*>(data)) {}

  T operator[](std::int64_t i) const { return data_[i]; }

 private:
  using Unaligned [[gnu::aligned(1)]] = T;

  const Unaligned* data_;
};

/// Calls call(T{}) with the unsigned type of `bytes` bytes, so that loops are compiled for each.
template <typename Call>
void visit_width(std::int64_t bytes, const Call& call) {
  switch (bytes) {
    case 1:
      return call(std::uint8_t{});
    case 2:
      return call(std::uint16_t{});
    case 4:
      return call(std::uint32_t{});
    case 8:
      return call(std::uint64_t{});
    default:
      fail(ErrorCode::kInternal, "integers of {} bytes", bytes);
  }
}

/// Narrows `count` numbers to `bytes` each, in place.
inline void narrow(std::int32_t* numbers, std::int64_t count, std::int64_t bytes) {
  if (bytes == 4) {
    return;
  }
  visit_width(bytes, [&]<typename T>(T) {
    constexpr std::int64_t kBlock = 256;  // read before it is written, as they overlap
    constexpr std::int64_t kFew = 8;      // which have been read when they are overwritten
    auto* const out = reinterpret_cast<std::byte*>(numbers);
    if (count <= kFew) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto one = static_cast<T>(numbers[i]);
        std::memcpy(out + i * static_cast<std::int64_t>(sizeof(T)), &one, sizeof(T));
      }
      return;
    }
    std::array<T, kBlock> block;
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const std::int64_t size = std::min(kBlock, count - begin);
      for (std::int64_t i = 0; i < size; ++i) {
        block[static_cast<std::size_t>(i)] = static_cast<T>(numbers[begin + i]);
      }
      std::memcpy(out + begin * static_cast<std::int64_t>(sizeof(T)), block.data(),
                  static_cast<std::size_t>(size) * sizeof(T));
    }
  });
}

/// Turns `count` lengths at `lengths` into what travels, in place; returns bytes per length.
inline std::int32_t narrow_lengths(std::int32_t* lengths, std::int64_t count) {
  std::int32_t most = 0;
  std::int32_t different = 0;
  for (std::int64_t b = 0; b < count; ++b) {
    most = std::max(most, lengths[b]);
    different |= lengths[b] ^ lengths[0];
  }
  if (different == 0) {
    return 0;
  }
  const auto bytes = static_cast<std::int32_t>(spec::id_bytes(std::int64_t{most} + 1));
  narrow(lengths, count, bytes);
  return bytes;
}

}  // namespace weft::sharding
