// for each block of 128 ids:
//   b = bits of the union of all differences, 64 where they are more than 32
//   pack      word |= difference << filled; whenever 32 bits are full they go out
//   unpack    8 bytes are read where a difference begins, shifted and masked; ids are the sums.
//             Differences near the end of the message are copied first, so that nothing is read
//             behind it.
#include "weft/kernels/packed_ids.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "weft/base/at.h"

namespace weft::kernels {
namespace {

constexpr int kFewBits = 32;
constexpr int kManyBits = 64;

std::int64_t bytes_of_bits(std::int64_t bits) {
  return (bits + 7) / 8;
}

std::byte* pack_block(std::span<const std::int64_t> ids, std::int64_t id_bytes, std::byte* to) {
  std::uint64_t all = 0;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    all |= static_cast<std::uint64_t>(ids[i] - ids[i - 1]);
  }
  const int few = static_cast<int>(std::bit_width(all));
  const int bits = few > kFewBits ? kManyBits : few;
  std::memcpy(to, ids.data(), at(id_bytes));
  to[id_bytes] = static_cast<std::byte>(bits);
  to += id_bytes + 1;
  std::byte* const end = to + bytes_of_bits(static_cast<std::int64_t>(ids.size() - 1) * bits);
  if (bits == kManyBits) {
    for (std::size_t i = 1; i < ids.size(); ++i, to += sizeof(std::int64_t)) {
      const std::int64_t difference = ids[i] - ids[i - 1];
      std::memcpy(to, &difference, sizeof(difference));
    }
    return end;
  }
  std::uint64_t word = 0;
  int filled = 0;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    word |= static_cast<std::uint64_t>(ids[i] - ids[i - 1]) << filled;
    filled += bits;
    const auto low = static_cast<std::uint32_t>(word);
    std::memcpy(to, &low, sizeof(low));
    const int full = filled / 32;  // 0 or 1
    to += 4 * full;
    word >>= 32 * full;
    filled -= 32 * full;
  }
  const auto low = static_cast<std::uint32_t>(word);
  std::memcpy(to, &low, sizeof(low));
  return end;
}

/// Of differences of at most 32 bits, readable 8 bytes beyond their end.
void unpack_few(const std::byte* from, int bits, std::uint64_t first, std::span<std::int64_t> ids) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  std::uint64_t id = first;
  std::uint64_t bit = 0;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + (bit >> 3), sizeof(word));
    id += (word >> (bit & 7)) & mask;
    ids[i] = static_cast<std::int64_t>(id);
    bit += static_cast<std::uint64_t>(bits);
  }
}

/// Whether no sum has passed 2^63.
bool unpack_many(const std::byte* from, std::uint64_t first, std::span<std::int64_t> ids) {
  std::uint64_t id = first;
  std::uint64_t outside = id;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    std::uint64_t difference = 0;
    std::memcpy(&difference, from + 8 * (i - 1), sizeof(difference));
    id += difference;
    outside |= id | difference;
    ids[i] = static_cast<std::int64_t>(id);
  }
  return outside >> 63 == 0;
}

}  // namespace

static_assert(std::endian::native == std::endian::little);

std::int64_t pack_ids(std::span<const std::int64_t> ids, std::int64_t id_bytes, std::byte* to) {
  std::byte* next = to;
  for (std::size_t begin = 0; begin < ids.size(); begin += at(kPackedIdBlock)) {
    const std::size_t count = std::min(at(kPackedIdBlock), ids.size() - begin);
    next = pack_block(ids.subspan(begin, count), id_bytes, next);
  }
  return next - to;
}

std::int64_t unpack_ids(std::span<const std::byte> from,
                        std::int64_t id_bytes,
                        std::int64_t limit,
                        std::span<std::int64_t> ids) {
  constexpr std::int64_t kBeyond = 8;
  std::array<std::byte, kPackedIdBlock * 4 + kBeyond> copy;
  const auto size = static_cast<std::int64_t>(from.size());
  std::int64_t next = 0;
  std::int64_t before = 0;
  for (std::size_t begin = 0; begin < ids.size(); begin += at(kPackedIdBlock)) {
    const std::span block = ids.subspan(begin, std::min(at(kPackedIdBlock), ids.size() - begin));
    if (size - next < id_bytes + 1) {
      return -1;
    }
    std::uint64_t first = 0;
    std::memcpy(&first, from.data() + next, at(id_bytes));
    const auto bits = std::to_integer<int>(from[at(next + id_bytes)]);
    next += id_bytes + 1;
    const std::int64_t bytes = bytes_of_bits(static_cast<std::int64_t>(block.size() - 1) * bits);
    if ((bits > kFewBits && bits != kManyBits) || size - next < bytes ||
        first > static_cast<std::uint64_t>(limit)) {
      return -1;
    }
    block.front() = static_cast<std::int64_t>(first);
    const std::byte* differences = from.data() + next;
    if (bits == kManyBits) {
      if (!unpack_many(differences, first, block)) {
        return -1;
      }
    } else {
      if (size - next < bytes + kBeyond) {
        std::fill(std::copy_n(differences, bytes, copy.begin()), copy.end(), std::byte{0});
        differences = copy.data();
      }
      unpack_few(differences, bits, first, block);
    }
    // Ascending inside the block, so its ends tell.
    if (block.front() < before || block.back() >= limit) {
      return -1;
    }
    before = block.back();
    next += bytes;
  }
  return next;
}

}  // namespace weft::kernels
