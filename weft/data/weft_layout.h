/// Private to data/: the bytes of the weft format (docs/weft_format.md), shared by writer, reader
/// and tests. All numbers are little-endian; every part starts at a multiple of 8.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "weft/data/source.h"

namespace weft::data::layout {

static_assert(std::endian::native == std::endian::little, "the weft format is little-endian");

inline constexpr char kMagic[] = "WEFTDATA";
inline constexpr char kTrailerMagic[] = "WEFTTAIL";
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kMagicBytes = 8;
inline constexpr std::size_t kHeaderFixed = 32;  // before the names
inline constexpr std::size_t kTrailerBytes = 32;
inline constexpr std::size_t kFooterFixed = 16;  // before the entries of blocks
inline constexpr std::size_t kBlockFixed = 8;    // of a block's entry, before its columns
inline constexpr std::size_t kColumnEntry = 24;  // offset, bytes, checksum
inline constexpr std::size_t kCategoricalHeader = 8;
inline constexpr std::int64_t kMaxBlockSamples = std::int64_t{1} << 20;
inline constexpr std::uint8_t kMultiValued = 1;  // flags of a categorical column
inline constexpr std::uint8_t kWeighted = 2;

constexpr std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

/// A number at any address.
template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
void append(std::vector<std::byte>& out, T value) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append_bytes(std::vector<std::byte>& out, const void* data, std::size_t bytes);
void pad(std::vector<std::byte>& out);

inline std::size_t columns(const Schema& schema) {
  return schema.dense.size() + schema.categorical.size() + schema.labels.size();
}

/// The header with its checksum.
std::vector<std::byte> encode_header(const Schema& schema);

/// Throws Error(kData), beginning with `name`, on anything but a well-formed header of `file`; sets
/// `bytes` to its length.
Schema decode_header(std::span<const std::byte> file, const std::string& name, std::size_t& bytes);

/// A column of a block in its encoded form, relative to the block's first byte.
struct ColumnPlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

/// A block as it lies in the file, all but its place.
struct EncodedBlock {
  std::int64_t samples = 0;
  std::vector<std::byte> bytes;
  std::vector<ColumnPlace> columns;  ///< dense, categorical, labels
};

/// Encodes a block whose columns are all filled; `out` keeps its memory from block to block. A
/// block that does not fit its schema is an error of ours. Cost: two passes over the columns.
void encode_block(const RawBlock& block, const Schema& schema, EncodedBlock& out);

/// A categorical column of a block of `samples` samples, appended to `out`.
void encode_bags(const RawBlock::Bags& bags, std::int64_t samples, std::vector<std::byte>& out);

/// Throws Error(kInternal) where the columns of `block` do not have the schema's form.
void check_block(const RawBlock& block, const Schema& schema);

/// Where a categorical column of a block lies. All offsets are checked: 0 first, never falling, the
/// last one the number of ids.
struct BagsView {
  const std::byte* offsets = nullptr;
  const std::byte* ids = nullptr;
  const std::byte* weights = nullptr;  // null where the column has none
  std::uint32_t count = 0;
  std::uint8_t offset_bytes = 0;  // 0: every bag has exactly one id
  std::uint8_t id_bytes = 0;

  [[nodiscard]] std::uint32_t offset(std::size_t sample) const {
    if (offset_bytes == 0) {
      return static_cast<std::uint32_t>(sample);
    }
    return offset_bytes == 2 ? load<std::uint16_t>(offsets + 2 * sample)
                             : load<std::uint32_t>(offsets + 4 * sample);
  }

  [[nodiscard]] std::int64_t id(std::size_t index) const {
    switch (id_bytes) {
      case 1:
        return load<std::uint8_t>(ids + index);
      case 2:
        return load<std::uint16_t>(ids + 2 * index);
      case 4:
        return load<std::uint32_t>(ids + 4 * index);
      default:
        return load<std::int64_t>(ids + 8 * index);
    }
  }
};

/// Throws Error(kData), beginning with `where`, on anything malformed.
BagsView decode_bags(std::span<const std::byte> chunk,
                     std::int64_t samples,
                     const Schema::Categorical& column,
                     const std::string& where);

}  // namespace weft::data::layout
