// Bit by bit.
#include "weft/kernels/packed_ids.h"

#include <algorithm>

#include "weft/base/at.h"

namespace weft::kernels::reference {
namespace {

/// Bit `bit` of `count` bits of `value` is bit `begin` + bit of `to`.
void put_bits(std::uint64_t value, std::int64_t count, std::byte* to, std::int64_t begin) {
  for (std::int64_t bit = 0; bit < count; ++bit) {
    std::byte& byte = to[(begin + bit) / 8];
    if ((begin + bit) % 8 == 0) {
      byte = std::byte{0};
    }
    byte |= static_cast<std::byte>((value >> bit & 1) << ((begin + bit) % 8));
  }
}

std::uint64_t take_bits(const std::byte* from, std::int64_t begin, std::int64_t count) {
  std::uint64_t value = 0;
  for (std::int64_t bit = 0; bit < count; ++bit) {
    const auto byte = std::to_integer<std::uint64_t>(from[(begin + bit) / 8]);
    value |= (byte >> ((begin + bit) % 8) & 1) << bit;
  }
  return value;
}

std::int64_t bits_of(std::span<const std::int64_t> ids) {
  std::int64_t bits = 0;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    const std::int64_t difference = ids[i] - ids[i - 1];
    while (bits < 63 && difference >> bits != 0) {
      ++bits;
    }
  }
  return bits > 32 ? 64 : bits;
}

}  // namespace

std::int64_t pack_ids(std::span<const std::int64_t> ids, std::int64_t id_bytes, std::byte* to) {
  std::int64_t next = 0;
  for (std::size_t begin = 0; begin < ids.size(); begin += at(kPackedIdBlock)) {
    const std::span block = ids.subspan(begin, std::min(at(kPackedIdBlock), ids.size() - begin));
    const std::int64_t bits = bits_of(block);
    put_bits(static_cast<std::uint64_t>(block.front()), 8 * id_bytes, to, 8 * next);
    put_bits(static_cast<std::uint64_t>(bits), 8, to, 8 * (next + id_bytes));
    next += id_bytes + 1;
    std::int64_t bit = 8 * next;
    for (std::size_t i = 1; i < block.size(); ++i, bit += bits) {
      put_bits(static_cast<std::uint64_t>(block[i] - block[i - 1]), bits, to, bit);
    }
    next = (bit + 7) / 8;
  }
  return next;
}

std::int64_t unpack_ids(std::span<const std::byte> from,
                        std::int64_t id_bytes,
                        std::int64_t limit,
                        std::span<std::int64_t> ids) {
  const std::int64_t all = 8 * static_cast<std::int64_t>(from.size());
  std::int64_t next = 0;  // a bit
  std::int64_t bits = 0;
  std::uint64_t id = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool first = i % at(kPackedIdBlock) == 0;
    next = first ? (next + 7) / 8 * 8 : next;
    const std::int64_t size = first ? 8 * (id_bytes + 1) : bits;
    if (all - next < size) {
      return -1;
    }
    const std::uint64_t value = take_bits(from.data(), next, first ? 8 * id_bytes : bits);
    bits = first ? std::to_integer<std::int64_t>(from[at(next / 8 + id_bytes)]) : bits;
    const std::uint64_t before = id;
    id = first ? value : id + value;
    if ((bits > 32 && bits != 64) || id < before || value >> 63 != 0 ||
        id >= static_cast<std::uint64_t>(limit)) {
      return -1;
    }
    ids[i] = static_cast<std::int64_t>(id);
    next += size;
  }
  return (next + 7) / 8;
}

}  // namespace weft::kernels::reference
