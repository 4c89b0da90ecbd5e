#include "weft/rowfile/segment_format.h"

#include <algorithm>
#include <set>

#include <fmt/core.h>

#include "weft/base/at.h"
#include "weft/base/hash.h"

namespace weft::rowfile::format {
namespace {

bool begins_with(std::span<const std::byte> bytes, const char* magic) {
  return std::memcmp(bytes.data(), magic, kMagicBytes) == 0;
}

template <typename T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

/// Whether the last eight bytes are the checksum of those before.
bool is_sealed(std::span<const std::byte> bytes) {
  const std::size_t end = bytes.size() - at(kChecksumBytes);
  return hash_bytes(bytes.first(end)) == load<std::uint64_t>(bytes.data() + end);
}

std::string version_fault(std::uint32_t version) {
  return fmt::format("it has version {}, and this build reads version {}", version, kVersion);
}

}  // namespace

std::vector<std::byte> encode_header(std::span<const Stream> streams) {
  std::vector<std::byte> out(at(header_bytes(static_cast<std::int64_t>(streams.size()))));
  std::memcpy(out.data(), kMagic, kMagicBytes);
  store(out.data() + 8, kVersion);
  store(out.data() + 12, static_cast<std::uint32_t>(streams.size()));
  std::byte* next = out.data() + kHeaderFixedBytes;
  for (const Stream& stream : streams) {
    store(next, stream.key);
    store(next + 8, stream.row_bytes);
    next += kStreamBytes;
  }
  const std::size_t end = out.size() - at(kChecksumBytes);
  store(out.data() + end, hash_bytes(std::span(out).first(end)));
  return out;
}

std::int64_t decode_stream_count(std::span<const std::byte> block, std::string& fault) {
  if (!begins_with(block, kMagic)) {
    fault = "it does not begin as a segment of rows does";
    return 0;
  }
  const auto version = load<std::uint32_t>(block.data() + 8);
  if (version != kVersion) {
    fault = version_fault(version);
    return 0;
  }
  const auto streams = static_cast<std::int64_t>(load<std::uint32_t>(block.data() + 12));
  if (streams < 1 || streams > kMaxStreams) {
    fault =
        fmt::format("its header states {} streams, and 1 to {} are possible", streams, kMaxStreams);
    return 0;
  }
  return streams;
}

std::vector<Stream> decode_header(std::span<const std::byte> header, std::string& fault) {
  const std::int64_t count = decode_stream_count(header, fault);
  if (!fault.empty()) {
    return {};
  }
  if (!is_sealed(header)) {
    fault = "its header does not have the checksum that it states";
    return {};
  }
  std::vector<Stream> streams;
  std::set<std::uint64_t> keys;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* next = header.data() + kHeaderFixedBytes + i * kStreamBytes;
    const Stream stream{load<std::uint64_t>(next), load<std::int64_t>(next + 8)};
    if (stream.row_bytes < 1 || stream.row_bytes > kMaxRowBytes) {
      fault = fmt::format("stream {} has rows of {} bytes, and 1 to {} are possible", i,
                          stream.row_bytes, kMaxRowBytes);
      return {};
    }
    if (!keys.insert(stream.key).second) {
      fault = fmt::format("two streams have the key {:016x}", stream.key);
      return {};
    }
    streams.push_back(stream);
  }
  return streams;
}

std::array<std::byte, kTrailerBytes> encode_trailer(const Trailer& trailer) {
  std::array<std::byte, kTrailerBytes> out{};
  std::memcpy(out.data(), kTrailerMagic, kMagicBytes);
  store(out.data() + 8, kVersion);
  store(out.data() + 16, trailer.footer_offset);
  store(out.data() + 24, trailer.footer_bytes);
  store(out.data() + 32, trailer.footer_checksum);
  store(out.data() + 40, trailer.rows);
  store(out.data() + 48, trailer.tombstones);
  store(out.data() + 56, hash_bytes(std::span(out).first(56)));
  return out;
}

Trailer decode_trailer(std::span<const std::byte> bytes, std::int64_t size, std::string& fault) {
  if (!begins_with(bytes, kTrailerMagic)) {
    fault = "it is not sealed: its last bytes are no trailer";
    return {};
  }
  if (!is_sealed(bytes)) {
    fault = "its trailer does not have the checksum that it states";
    return {};
  }
  const auto version = load<std::uint32_t>(bytes.data() + 8);
  if (version != kVersion) {
    fault = version_fault(version);
    return {};
  }
  const Trailer trailer{
      load<std::int64_t>(bytes.data() + 16), load<std::int64_t>(bytes.data() + 24),
      load<std::uint64_t>(bytes.data() + 32), load<std::int64_t>(bytes.data() + 40),
      load<std::int64_t>(bytes.data() + 48)};
  const auto lies_within = [](std::int64_t value, std::int64_t end) {
    return 0 <= value && value <= end;
  };
  // Below the size first, so that the sum of the last line cannot overflow.
  if (!lies_within(trailer.footer_offset, size) || trailer.footer_offset % kBlockBytes != 0 ||
      !lies_within(trailer.footer_bytes, size) || trailer.footer_bytes % kWordBytes != 0 ||
      !lies_within(trailer.rows, size) || !lies_within(trailer.tombstones, size) ||
      file_bytes(trailer.footer_offset, trailer.footer_bytes) != size) {
    fault = fmt::format("its trailer states a footer of {} bytes at offset {}, in {} bytes",
                        trailer.footer_bytes, trailer.footer_offset, size);
    return {};
  }
  return trailer;
}

}  // namespace weft::rowfile::format
