/// Private to rowfile/: header, footer and trailer of a segment as bytes (docs/rowfile_format.md),
/// shared by writer, reader and tests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "weft/rowfile/layout.h"

namespace weft::rowfile::format {

inline constexpr char kMagic[] = "WEFTROWS";
inline constexpr char kTrailerMagic[] = "WEFTSEAL";
inline constexpr std::size_t kMagicBytes = 8;
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::int64_t kHeaderFixedBytes = 16;  // magic, version, number of streams
inline constexpr std::int64_t kStreamBytes = 16;       // key, bytes of a row
inline constexpr std::int64_t kChecksumBytes = 8;
inline constexpr std::int64_t kTrailerBytes = 64;
/// The footer's words are under one checksum per so many bytes.
inline constexpr std::int64_t kFooterChunkBytes = std::int64_t{1} << 20;
inline constexpr std::int64_t kWordBytes = 8;

constexpr std::int64_t round_up_to_blocks(std::int64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

/// Bytes of the header, whole blocks.
constexpr std::int64_t header_bytes(std::int64_t streams) {
  return round_up_to_blocks(kHeaderFixedBytes + streams * kStreamBytes + kChecksumBytes);
}

/// The number of chunks of a footer, each with a checksum.
constexpr std::int64_t footer_chunks(std::int64_t footer_bytes) {
  return (footer_bytes + kFooterChunkBytes - 1) / kFooterChunkBytes;
}

/// Bytes of a file whose footer begins at `footer_offset`.
constexpr std::int64_t file_bytes(std::int64_t footer_offset, std::int64_t footer_bytes) {
  return round_up_to_blocks(footer_offset + footer_bytes +
                            footer_chunks(footer_bytes) * kChecksumBytes + kTrailerBytes);
}

/// A number at any address.
template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

/// The header with its checksum.
std::vector<std::byte> encode_header(std::span<const Stream> streams);

/// The number of streams that the first block of a header states. Throws nothing: `fault` says what
/// is wrong, and is empty if nothing is.
std::int64_t decode_stream_count(std::span<const std::byte> block, std::string& fault);

/// The streams of a whole header. What is wrong is in `fault`.
std::vector<Stream> decode_header(std::span<const std::byte> header, std::string& fault);

/// The last bytes of a sealed file.
struct Trailer {
  std::int64_t footer_offset = 0;
  std::int64_t footer_bytes = 0;      ///< of its words, without the checksums behind them
  std::uint64_t footer_checksum = 0;  ///< XXH3 of the checksums of its chunks
  std::int64_t rows = 0;
  std::int64_t tombstones = 0;
};

/// The trailer with its checksum.
std::array<std::byte, kTrailerBytes> encode_trailer(const Trailer& trailer);

/// The trailer of a file of `size` bytes; footer and trailer are known to fit that size. What is
/// wrong is in `fault`.
Trailer decode_trailer(std::span<const std::byte> bytes, std::int64_t size, std::string& fault);

}  // namespace weft::rowfile::format
