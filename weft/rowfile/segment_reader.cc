#include "weft/rowfile/segment_reader.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "weft/base/at.h"
#include "weft/base/hash.h"
#include "weft/rowfile/block.h"
#include "weft/rowfile/segment_format.h"

namespace weft::rowfile {
namespace {

constexpr std::int64_t kWindowBytes = std::int64_t{1} << 20;
constexpr const char* kDamaged = "restore it from a copy, or use another one";

}  // namespace

/// The footer's words, read chunk by chunk, each chunk checked.
class SegmentReader::FooterWords {
 public:
  explicit FooterWords(const SegmentReader& reader) : reader_(reader) {}

  std::uint64_t next() {
    if (next_ == chunk_.size()) {
      read_chunk();
    }
    const auto word = format::load<std::uint64_t>(chunk_.data() + next_);
    next_ += at(format::kWordBytes);
    return word;
  }

  /// The offset of the next word in the file.
  [[nodiscard]] std::int64_t offset() const {
    return reader_.footer_offset_ + begin_ + static_cast<std::int64_t>(next_);
  }

  /// Words that have not been taken.
  [[nodiscard]] std::int64_t left() const {
    return (reader_.footer_offset_ + reader_.footer_bytes_ - offset()) / format::kWordBytes;
  }

 private:
  void read_chunk() {
    begin_ += static_cast<std::int64_t>(chunk_.size());
    next_ = 0;
    const std::int64_t bytes = std::min(reader_.footer_bytes_ - begin_, format::kFooterChunkBytes);
    chunk_.resize(at(bytes));
    if (bytes == 0) {
      reader_.fail_damaged(offset(), "its footer ends too early");
    }
    reader_.read(offset(), chunk_);
    if (hash_bytes(chunk_) != reader_.footer_checksums_[at(begin_ / format::kFooterChunkBytes)]) {
      reader_.fail_damaged(offset(),
                           fmt::format("{} bytes of its footer do not have their checksum", bytes));
    }
  }

  const SegmentReader& reader_;
  std::vector<std::byte> chunk_;
  std::int64_t begin_ = 0;  ///< of the chunk, from the footer's beginning
  std::size_t next_ = 0;    ///< in the chunk
};

SegmentReader::SegmentReader(io::FileSystem& files, std::string path, ErrorCode code)
    : path_(std::move(path)), code_(code) {
  open(files);
  read_trailer();
  read_header();
  walk_footer([](const GroupIds&) {}, [](std::size_t, std::span<const Tombstone>) {});
}

void SegmentReader::for_each_group(const GroupVisitor& visit) const {
  FooterWords words(*this);
  walk_groups(words, visit);
}

void SegmentReader::for_each_tombstone(const TombstoneVisitor& visit) const {
  walk_footer([](const GroupIds&) {}, visit);
}

void SegmentReader::for_each_row(const RowVisitor& visit) const {
  std::vector<std::byte> window;
  std::int64_t begin = 0;  // offset of the window
  for_each_group([&](const GroupIds& group) {
    const std::int64_t row_bytes = streams_[group.stream].row_bytes;
    const std::int64_t size = group_bytes(row_bytes);
    const std::int64_t offset = group.block * kBlockBytes;
    if (offset + size > begin + static_cast<std::int64_t>(window.size())) {
      begin = offset;
      window.resize(at(std::max(size, std::min(kWindowBytes, footer_offset_ - offset))));
      read(begin, window);
    }
    const auto bytes = std::span<const std::byte>(window).subspan(at(offset - begin), at(size));
    const std::int64_t rows = std::ssize(group.ids);
    check_listed_group(bytes, {group.stream, group.block, rows});
    visit({group, bytes.subspan(at(kBlockHeaderBytes), at(rows * row_bytes))});
  });
}

std::int64_t SegmentReader::read_group(std::size_t stream,
                                       std::uint32_t block,
                                       std::span<std::byte> out) const {
  WEFT_CHECK(stream < streams_.size(), "stream {} of {}", stream, streams_.size());
  const std::int64_t size = group_bytes(streams_[stream].row_bytes);
  WEFT_CHECK(std::cmp_equal(out.size(), size), "{} bytes for a group of {}", out.size(), size);
  const std::int64_t first = format::header_bytes(static_cast<std::int64_t>(streams_.size()));
  const std::int64_t offset = block * kBlockBytes;
  if (offset < first || offset + size > footer_offset_) {
    fail(code_,
         "'{}' has no rows of stream {} in block {}: its rows lie in blocks {} to {}; what names "
         "that block belongs to another file",
         path_, stream, block, first / kBlockBytes, footer_offset_ / kBlockBytes - 1);
  }
  read(offset, out);
  return check_group(out, stream, block);
}

void SegmentReader::read_groups(std::span<const GroupPlace> groups,
                                std::span<std::byte> out) const {
  read(groups.front().block * kBlockBytes, out);
  std::uint32_t block = groups.front().block;
  for (const GroupPlace& group : groups) {
    WEFT_CHECK(group.block == block, "group of block {} where block {} is next", group.block,
               block);
    const std::int64_t size = group_bytes(streams_[group.stream].row_bytes);
    check_listed_group(out.first(at(size)), group);
    out = out.subspan(at(size));
    block += static_cast<std::uint32_t>(size / kBlockBytes);
  }
}

void SegmentReader::verify() const {
  for_each_row([](const GroupRows&) {});
}

void SegmentReader::fail_damaged(std::int64_t offset, const std::string& fault) const {
  fail(code_, "'{}' is damaged or not a segment, at byte {}: {}; {}", path_, offset, fault,
       kDamaged);
}

void SegmentReader::read(std::int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    std::int64_t got = 0;
    const auto bytes = static_cast<std::int64_t>(out.size());
    const std::error_code error = file_->read(offset, out.data(), bytes, got);
    if (error || got <= 0) {
      fail(code_, "cannot read {} bytes of '{}' at offset {}: {}; {}", bytes, path_, offset,
           error ? error.message() : "the file ends there", kDamaged);
    }
    offset += got;
    out = out.subspan(at(got));
  }
}

void SegmentReader::open(io::FileSystem& files) {
  const io::Status status = files.status(path_);
  if (!status.error && status.kind != io::Kind::kFile && status.kind != io::Kind::kMissing) {
    fail(code_, "'{}' is not a regular file; check the path", path_);
  }
  io::Opened opened = files.open(path_, io::OpenMode::kRead);
  if (const std::error_code error = opened.error ? opened.error : status.error) {
    fail(code_, "cannot open '{}': {}; check the path and its permissions", path_, error.message());
  }
  file_ = std::move(opened.file);
  bytes_ = status.bytes;
}

void SegmentReader::read_trailer() {
  const std::int64_t offset = bytes_ - format::kTrailerBytes;
  if (bytes_ < 2 * kBlockBytes || bytes_ % kBlockBytes != 0) {
    fail_damaged(bytes_, fmt::format("it is not sealed: a sealed one has a multiple of {} bytes",
                                     kBlockBytes));
  }
  std::array<std::byte, format::kTrailerBytes> bytes{};
  read(offset, bytes);
  std::string fault;
  const format::Trailer trailer = format::decode_trailer(bytes, bytes_, fault);
  if (!fault.empty()) {
    fail_damaged(offset, fault);
  }
  footer_offset_ = trailer.footer_offset;
  footer_bytes_ = trailer.footer_bytes;
  rows_ = trailer.rows;
  tombstones_ = trailer.tombstones;
  // The checksums of the footer's chunks, then zeros, lie between footer and trailer.
  std::vector<std::byte> rest(at(offset - footer_offset_ - footer_bytes_));
  read(footer_offset_ + footer_bytes_, rest);
  footer_checksums_.resize(at(format::footer_chunks(footer_bytes_)));
  const auto list = std::as_writable_bytes(std::span(footer_checksums_));
  std::copy_n(rest.begin(), list.size(), list.begin());
  const bool is_padded = std::all_of(rest.begin() + static_cast<std::ptrdiff_t>(list.size()),
                                     rest.end(), [](std::byte b) { return b == std::byte{0}; });
  if (hash_bytes(list) != trailer.footer_checksum || !is_padded) {
    fail_damaged(footer_offset_ + footer_bytes_,
                 "the checksums of its footer are not those that it was sealed with");
  }
}

void SegmentReader::read_header() {
  std::vector<std::byte> header(at(kBlockBytes));
  read(0, header);
  std::string fault;
  const std::int64_t size = format::header_bytes(format::decode_stream_count(header, fault));
  if (fault.empty() && size > footer_offset_) {
    fault = fmt::format("its header of {} bytes ends behind its first {}", size, footer_offset_);
  }
  if (fault.empty()) {
    header.resize(at(size));
    read(0, header);
    streams_ = format::decode_header(header, fault);
  }
  if (!fault.empty()) {
    fail_damaged(0, fault);
  }
}

void SegmentReader::walk_footer(const GroupVisitor& on_group,
                                const TombstoneVisitor& on_tombstones) const {
  FooterWords words(*this);
  walk_groups(words, on_group);
  walk_tombstones(words, on_tombstones);
  if (words.left() != 0) {
    fail_damaged(words.offset(), fmt::format("its footer has {} bytes too many",
                                             words.left() * format::kWordBytes));
  }
}

void SegmentReader::walk_groups(FooterWords& words, const GroupVisitor& visit) const {
  const std::int64_t end = footer_offset_ / kBlockBytes;
  std::int64_t block =
      format::header_bytes(static_cast<std::int64_t>(streams_.size())) / kBlockBytes;
  std::int64_t rows = 0;
  std::vector<RowId> ids;
  const std::uint64_t groups = words.next();
  for (std::uint64_t g = 0; g < groups; ++g) {
    const std::int64_t offset = words.offset();
    const std::uint64_t head = words.next();
    const std::uint64_t blocks = words.next();
    const std::uint64_t stream = head & 0xffffffffU;
    const auto count = static_cast<std::int64_t>(head >> 32);
    if (stream >= streams_.size()) {
      fail_damaged(offset,
                   fmt::format("group {} is of stream {} of {}", g, stream, streams_.size()));
    }
    const std::int64_t row_bytes = streams_[stream].row_bytes;
    const std::int64_t own = blocks_per_group(row_bytes);
    if (count < 1 || count > rows_per_group(row_bytes) || std::cmp_not_equal(blocks, own)) {
      fail_damaged(offset, fmt::format("group {} has {} rows of {} bytes in {} blocks", g, count,
                                       row_bytes, blocks));
    }
    if (own > end - block) {
      fail_damaged(offset, fmt::format("group {} of blocks {} to {} ends behind block {}", g, block,
                                       block + own - 1, end - 1));
    }
    ids.resize(at(count));
    for (RowId& id : ids) {
      id = words.next();
    }
    visit({stream, static_cast<std::uint32_t>(block), ids});
    block += own;
    rows += count;
  }
  if (block != end || rows != rows_) {
    fail_damaged(words.offset(),
                 fmt::format("its footer has {} rows up to block {}, and its trailer {} up to {}",
                             rows, block, rows_, end));
  }
}

void SegmentReader::walk_tombstones(FooterWords& words, const TombstoneVisitor& visit) const {
  constexpr std::int64_t kAtOnce = 1024;
  const std::int64_t end = footer_offset_ / kBlockBytes;
  std::vector<Tombstone> some;
  std::int64_t all = 0;
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
    const std::int64_t offset = words.offset();
    const std::uint64_t stated = words.next();
    if (std::cmp_greater(stated, words.left() / 2)) {
      fail_damaged(offset, fmt::format("stream {} has {} tombstones in {} bytes", stream, stated,
                                       words.left() * format::kWordBytes));
    }
    auto count = static_cast<std::int64_t>(stated);
    all += count;
    while (count > 0) {
      some.resize(at(std::min(count, kAtOnce)));
      for (Tombstone& tombstone : some) {
        tombstone.id = words.next();
        const std::uint64_t before = words.next();
        tombstone.before = {static_cast<std::uint32_t>(before >> 32),
                            static_cast<std::uint32_t>(before)};
        if (tombstone.before.block > end ||
            tombstone.before.row > rows_per_group(streams_[stream].row_bytes)) {
          fail_damaged(words.offset(), fmt::format("a tombstone is before place {}, {}",
                                                   tombstone.before.block, tombstone.before.row));
        }
      }
      visit(stream, some);
      count -= static_cast<std::int64_t>(some.size());
    }
  }
  if (all != tombstones_) {
    fail_damaged(words.offset(),
                 fmt::format("its footer has {} tombstones, and its trailer {}", all, tombstones_));
  }
}

std::int64_t SegmentReader::check_group(std::span<const std::byte> group,
                                        std::size_t stream,
                                        std::uint32_t block) const {
  const std::int64_t row_bytes = streams_[stream].row_bytes;
  const std::string fault =
      find_group_fault(group, block, static_cast<std::int64_t>(stream), row_bytes);
  if (!fault.empty()) {
    fail_damaged(block * kBlockBytes, fmt::format("block {}: {}", block, fault));
  }
  return block_header(group).rows;
}

void SegmentReader::check_listed_group(std::span<const std::byte> bytes,
                                       const GroupPlace& group) const {
  const std::int64_t rows = check_group(bytes, group.stream, group.block);
  if (rows != group.rows) {
    fail_damaged(group.block * kBlockBytes,
                 fmt::format("block {} has {} rows, and the footer has {} ids of it", group.block,
                             rows, group.rows));
  }
}

}  // namespace weft::rowfile
