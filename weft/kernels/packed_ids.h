/// Ascending ids as fewer bytes for the wire, and back.
///
/// n ids x[0] <= x[1] <= ... are cut into blocks of 128, the last one ragged. A block of k ids, of
/// F bytes each as they are:
///
///   first         F bytes: its first id
///   bits          1 byte: b, the least that holds every difference to the id before; 0 to 32, or
///   64 differences   ceil((k - 1) b / 8) bytes: b bits each from the lowest on, the last byte
///   filled
///                 up with zeros
///
/// Little-endian, nothing is aligned. At most one byte per block more than the ids as they are,
/// whatever they are. Of ids that are drawn evenly the largest of 127 differences is about 5 times
/// their mean g, so a block takes log2(5 g) bits an id.
/// Threads    a call runs on the calling thread.
/// Errors     unpack_ids() of any bytes reads inside them and says when they are no ids.
/// Cost       a few cycles per id (bench/codec_bench.cc), no vectors: a difference waits for none
///            but the sum before it.
/// Source     frames of reference with deltas, as in D. Lemire and L. Boytsov, "Decoding billions
///            of integers per second through vectorization" (2015); a first id and a width per
///            block as there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::kernels {

inline constexpr std::int64_t kPackedIdBlock = 128;

/// What pack_ids() may write behind the packed ids.
inline constexpr std::int64_t kPackedIdSlack = 8;

/// The most that `count` ids of `id_bytes` take.
constexpr std::int64_t most_packed_bytes(std::int64_t count, std::int64_t id_bytes) {
  return count * id_bytes + (count + kPackedIdBlock - 1) / kPackedIdBlock;
}

/// Returns the bytes written to `to`, which has room for most_packed_bytes() and the slack.
/// Requires ascending ids in [0, 2^(8 id_bytes)), of 1, 2, 4 or 8 bytes.
std::int64_t pack_ids(std::span<const std::int64_t> ids, std::int64_t id_bytes, std::byte* to);

/// Reads as many ids as `ids` has room for from the front of `from`; returns the bytes that they
/// took. -1 where these are cut off, or no ascending ids in [0, limit).
std::int64_t unpack_ids(std::span<const std::byte> from,
                        std::int64_t id_bytes,
                        std::int64_t limit,
                        std::span<std::int64_t> ids);

namespace reference {
/// Appends nothing behind what it returns.
std::int64_t pack_ids(std::span<const std::int64_t> ids, std::int64_t id_bytes, std::byte* to);
std::int64_t unpack_ids(std::span<const std::byte> from,
                        std::int64_t id_bytes,
                        std::int64_t limit,
                        std::span<std::int64_t> ids);
}  // namespace reference

}  // namespace weft::kernels
