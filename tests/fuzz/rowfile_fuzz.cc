// Any bytes as a segment of rows: Error(kIo) or a segment that can be walked, never a crash, and no
// more memory than its size justifies. The bytes are tried as they are and with the checksums of
// header, footer, trailer and groups made right, so that the fuzzer gets past them.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "tests/io/faulty_file_system.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/rowfile/block.h"
#include "weft/rowfile/segment_format.h"
#include "weft/rowfile/segment_reader.h"

namespace {

using weft::rowfile::kBlockBytes;
namespace format = weft::rowfile::format;

void read_all(const std::string& bytes) {
  weft::io::FaultyFileSystem files;
  if (weft::io::write_file(files, "/fuzz", bytes)) {
    return;
  }
  try {
    const weft::rowfile::SegmentReader reader(files, "/fuzz");
    std::int64_t ids = 0;
    std::int64_t tombstones = 0;
    reader.for_each_group([&](const weft::rowfile::GroupIds& group) {
      ids += static_cast<std::int64_t>(group.ids.size());
    });
    reader.for_each_tombstone([&](std::size_t, std::span<const weft::rowfile::Tombstone> some) {
      tombstones += static_cast<std::int64_t>(some.size());
    });
    WEFT_CHECK(ids == reader.rows() && tombstones == reader.tombstones());
    reader.verify();
  } catch (const weft::Error& error) {
    if (error.code() != weft::ErrorCode::kIo) {
      throw;
    }
  }
}

void put(std::string& bytes, std::size_t at, std::uint64_t value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

/// The groups that the footer lists, as far as they lie in the file.
void repair_groups(std::string& bytes,
                   std::span<const weft::rowfile::Stream> streams,
                   std::size_t footer) {
  const auto load = [&](std::size_t at) {
    return format::load<std::uint64_t>(std::as_bytes(std::span(bytes)).data() + at);
  };
  std::int64_t block =
      format::header_bytes(static_cast<std::int64_t>(streams.size())) / kBlockBytes;
  for (std::size_t at = footer + 8; at + 16 <= bytes.size();) {
    const std::uint64_t stream = load(at) & 0xffffffffU;
    const std::uint64_t rows = load(at) >> 32;
    if (stream >= streams.size() || rows > 4080) {
      return;
    }
    const std::int64_t size = weft::rowfile::group_bytes(streams[stream].row_bytes);
    const auto begin = static_cast<std::size_t>(block * kBlockBytes);
    if (begin + static_cast<std::size_t>(size) > footer) {
      return;
    }
    const auto group =
        std::as_writable_bytes(std::span(bytes)).subspan(begin, static_cast<std::size_t>(size));
    put(bytes, begin, weft::rowfile::block_checksum(group, block));
    block += size / kBlockBytes;
    at += 16 + 8 * rows;
  }
}

void repair(std::string& bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size < 2 * kBlockBytes) {
    return;
  }
  const auto all = std::as_bytes(std::span(bytes));
  const auto count = static_cast<std::int64_t>(format::load<std::uint32_t>(all.data() + 12));
  const std::int64_t header = format::header_bytes(count);
  if (header <= size) {
    const auto end = static_cast<std::size_t>(header - 8);
    put(bytes, end, weft::hash_bytes(all.first(end)));
  }
  const std::size_t trailer = bytes.size() - static_cast<std::size_t>(format::kTrailerBytes);
  const auto footer = format::load<std::uint64_t>(all.data() + trailer + 16);
  const auto length = format::load<std::uint64_t>(all.data() + trailer + 24);
  // Inputs are too short for footers of several chunks.
  if (footer < trailer && length < (1U << 20) && length + 8 <= trailer - footer) {
    put(bytes, footer + length, weft::hash_bytes(all.subspan(footer, length)));
    put(bytes, trailer + 32, weft::hash_bytes(all.subspan(footer + length, length > 0 ? 8 : 0)));
  }
  put(bytes, trailer + 56, weft::hash_bytes(all.subspan(trailer, 56)));
  std::string fault;
  if (header <= size) {
    const auto streams = format::decode_header(all.first(static_cast<std::size_t>(header)), fault);
    if (fault.empty() && footer < trailer) {
      repair_groups(bytes, streams, footer);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  read_all(bytes);
  repair(bytes);
  read_all(bytes);
  return 0;
}
