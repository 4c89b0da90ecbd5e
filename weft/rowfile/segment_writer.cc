#include "weft/rowfile/segment_writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/hash.h"
#include "weft/base/text.h"
#include "weft/rowfile/block.h"
#include "weft/rowfile/segment_format.h"

namespace weft::rowfile {
namespace {

constexpr std::int64_t kWriteBytes = std::int64_t{1} << 20;
constexpr std::int64_t kHeldBytes = 2 * kWriteBytes;
/// More than these are synced before seal(), which then has little left to do: a sync shows no
/// progress.
constexpr std::int64_t kUnsyncedBytes = std::int64_t{256} << 20;

static_assert(kWriteBytes % kBlockBytes == 0);

void check_streams(std::span<const Stream> streams) {
  WEFT_CHECK(!streams.empty() && std::cmp_less_equal(streams.size(), kMaxStreams), "{} streams",
             streams.size());
  std::set<std::uint64_t> keys;
  for (const Stream& stream : streams) {
    WEFT_CHECK(1 <= stream.row_bytes && stream.row_bytes <= kMaxRowBytes, "rows of {} bytes",
               stream.row_bytes);
    WEFT_CHECK(keys.insert(stream.key).second, "two streams have the key {:016x}", stream.key);
  }
}

}  // namespace

/// The footer's words, which go to the end of the file chunk by chunk.
class SegmentWriter::FooterOutput {
 public:
  explicit FooterOutput(SegmentWriter& writer) : writer_(writer) {
    chunk_.reserve(at(format::kFooterChunkBytes));
  }

  void add(std::uint64_t word) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&word);
    chunk_.insert(chunk_.end(), bytes, bytes + sizeof word);
    if (std::cmp_equal(chunk_.size(), format::kFooterChunkBytes)) {
      end_chunk();
    }
  }

  /// The checksums of the chunks follow the words. Returns the checksum of these.
  std::uint64_t finish() {
    if (!chunk_.empty()) {
      end_chunk();
    }
    const auto list = std::as_bytes(std::span(checksums_));
    put(list);
    return hash_bytes(list);
  }

 private:
  void end_chunk() {
    checksums_.push_back(hash_bytes(chunk_));
    put(chunk_);
    chunk_.clear();
  }

  void put(std::span<const std::byte> bytes) {
    writer_.buffer_.insert(writer_.buffer_.end(), bytes.begin(), bytes.end());
    writer_.write_full();
  }

  SegmentWriter& writer_;
  std::vector<std::byte> chunk_;
  std::vector<std::uint64_t> checksums_;
};

SegmentWriter::SegmentWriter(io::FileSystem& files,
                             std::string path,
                             std::vector<Stream> streams,
                             ErrorCode code)
    : path_(std::move(path)), streams_(std::move(streams)), code_(code) {
  check_streams(streams_);
  io::Opened opened = files.open(path_, io::OpenMode::kExclusive);
  if (opened.error) {
    fail_write("create", opened.error);
  }
  file_ = std::move(opened.file);
  buffer_ = format::encode_header(streams_);
  next_block_ = end() / kBlockBytes;
  tracks_.resize(streams_.size());
}

void SegmentWriter::append(std::size_t stream,
                           std::span<const RowId> ids,
                           std::span<const std::byte> rows,
                           std::span<Place> places) {
  check_usable();
  WEFT_CHECK(stream < streams_.size(), "stream {} of {}", stream, streams_.size());
  const std::int64_t row_bytes = streams_[stream].row_bytes;
  WEFT_CHECK(rows.size() == ids.size() * at(row_bytes), "{} bytes for {} rows of {} bytes",
             rows.size(), ids.size(), row_bytes);
  WEFT_CHECK(places.empty() || places.size() == ids.size());
  Track& track = tracks_[stream];
  std::size_t done = 0;
  while (done < ids.size()) {
    if (track.open < 0) {
      open_group(stream);
    }
    Group& group = groups_[at(track.open)];
    const auto room = at(rows_per_group(row_bytes) - group.rows);
    const std::size_t count = std::min(room, ids.size() - done);
    const Place first{group.block, group.rows};
    std::memcpy(buffer_at(offset_of(first, row_bytes)), rows.data() + done * at(row_bytes),
                count * at(row_bytes));
    for (std::size_t i = 0; i < (places.empty() ? 0 : count); ++i) {
      places[done + i] = {first.block, first.row + static_cast<std::uint32_t>(i)};
    }
    group.rows += static_cast<std::uint32_t>(count);
    rows_ += static_cast<std::int64_t>(count);
    track.ids.insert(track.ids.end(), ids.begin() + static_cast<std::ptrdiff_t>(done),
                     ids.begin() + static_cast<std::ptrdiff_t>(done + count));
    done += count;
    if (count == room) {
      close_group(stream);
    }
    write_full();
  }
}

void SegmentWriter::remove(std::size_t stream, std::span<const RowId> ids) {
  check_usable();
  WEFT_CHECK(stream < streams_.size(), "stream {} of {}", stream, streams_.size());
  Track& track = tracks_[stream];
  Place next{static_cast<std::uint32_t>(next_block_), 0};
  if (track.open >= 0) {
    const Group& group = groups_[at(track.open)];
    next = {group.block, group.rows};
  }
  for (const RowId id : ids) {
    track.tombstones.push_back({id, next});
  }
  tombstones_ += static_cast<std::int64_t>(ids.size());
}

std::span<const std::byte> SegmentWriter::buffered_row(std::size_t stream,
                                                       const Place& place) const {
  WEFT_CHECK(stream < streams_.size(), "stream {} of {}", stream, streams_.size());
  const std::int64_t row_bytes = streams_[stream].row_bytes;
  const std::int64_t offset = offset_of(place, row_bytes);
  if (sealed_ || offset < buffer_begin_) {
    return {};
  }
  WEFT_CHECK(offset + row_bytes <= end(), "no row has the place {}, {}", place.block, place.row);
  return std::span(buffer_).subspan(at(offset - buffer_begin_), at(row_bytes));
}

std::int64_t SegmentWriter::bytes() const {
  return format::file_bytes(next_block_ * kBlockBytes, footer_bytes());
}

void SegmentWriter::seal() {
  check_usable();
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
    if (tracks_[stream].open >= 0) {
      close_group(stream);
    }
  }
  append_footer();
  // What is synced before the last block is written is there whenever the trailer is.
  write_to(end() - kBlockBytes);
  sync();
  write_to(end());
  sync();
  if (const auto error = file_->close()) {
    fail_write("close", error);
  }
  file_.reset();
  sealed_ = true;
  buffer_ = {};
  tracks_ = {};
}

void SegmentWriter::append_footer() {
  format::Trailer trailer{.footer_offset = next_block_ * kBlockBytes,
                          .footer_bytes = footer_bytes(),
                          .rows = rows_,
                          .tombstones = tombstones_};
  FooterOutput out(*this);
  out.add(groups_.size());
  std::vector<std::size_t> done(streams_.size(), 0);
  for (const Group& group : groups_) {
    out.add(group.stream | std::uint64_t{group.rows} << 32);
    out.add(static_cast<std::uint64_t>(blocks_per_group(streams_[group.stream].row_bytes)));
    for (std::uint32_t i = 0; i < group.rows; ++i) {
      out.add(tracks_[group.stream].ids[done[group.stream]++]);
    }
  }
  for (const Track& track : tracks_) {
    out.add(track.tombstones.size());
    for (const Tombstone& tombstone : track.tombstones) {
      out.add(tombstone.id);
      out.add(tombstone.before.row | std::uint64_t{tombstone.before.block} << 32);
    }
  }
  trailer.footer_checksum = out.finish();
  const auto bytes = format::encode_trailer(trailer);
  const std::int64_t size = format::file_bytes(trailer.footer_offset, trailer.footer_bytes);
  buffer_.resize(at(size - format::kTrailerBytes - buffer_begin_));
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void SegmentWriter::check_usable() const {
  WEFT_CHECK(!sealed_, "'{}' is sealed", path_);
  if (file_ == nullptr) {
    fail(code_,
         "cannot go on with '{}': an earlier write failed; write it again under another name",
         path_);
  }
}

void SegmentWriter::open_group(std::size_t stream) {
  const std::int64_t row_bytes = streams_[stream].row_bytes;
  const std::int64_t blocks = blocks_per_group(row_bytes);
  if (next_block_ + blocks > std::numeric_limits<std::uint32_t>::max()) {
    fail(code_, "'{}' has {}, and a segment has no room for more; begin another segment", path_,
         format_bytes(static_cast<std::uint64_t>(end())));
  }
  tracks_[stream].open = static_cast<std::int64_t>(groups_.size());
  groups_.push_back(
      {static_cast<std::uint32_t>(next_block_), static_cast<std::uint32_t>(stream), 0});
  buffer_.resize(buffer_.size() + at(blocks * kBlockBytes));
  next_block_ += blocks;
}

void SegmentWriter::close_group(std::size_t stream) {
  const Group& group = groups_[at(std::exchange(tracks_[stream].open, -1))];
  std::byte* begin = buffer_at(group.block * kBlockBytes);
  seal_group({begin, at(group_bytes(streams_[stream].row_bytes))}, group.block, group.stream,
             group.rows);
}

std::byte* SegmentWriter::buffer_at(std::int64_t offset) {
  return buffer_.data() + (offset - buffer_begin_);
}

std::int64_t SegmentWriter::footer_bytes() const {
  const auto words = 1 + 2 * static_cast<std::int64_t>(groups_.size()) + rows_ +
                     static_cast<std::int64_t>(streams_.size()) + 2 * tombstones_;
  return words * format::kWordBytes;
}

std::int64_t SegmentWriter::end() const {
  return buffer_begin_ + static_cast<std::int64_t>(buffer_.size());
}

/// Writes what exceeds the bytes that are held, a MiB at a time.
void SegmentWriter::write_full() {
  if (end() - written_ < kHeldBytes) {
    return;
  }
  while (end() - written_ >= kHeldBytes) {
    const std::int64_t offset = written_ + kWriteBytes;
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
      const std::int64_t open = tracks_[stream].open;
      if (open >= 0 && groups_[at(open)].block * kBlockBytes < offset) {
        close_group(stream);
      }
    }
    write_to(offset);
  }
  drop_written();
  if (written_ - synced_ >= kUnsyncedBytes) {
    sync();
  }
}

/// Writes what lies before `offset`.
void SegmentWriter::write_to(std::int64_t offset) {
  const std::byte* begin = buffer_at(written_);
  if (const auto error = io::write_all(*file_, begin, offset - written_, written_)) {
    file_.reset();
    fail(code_, "cannot write '{}' beyond its first {}: {}; the file is of no use, remove it",
         path_, format_bytes(static_cast<std::uint64_t>(written_)),
         io::describe_write_error(error));
  }
}

/// Forgets groups that are whole in the file.
void SegmentWriter::drop_written() {
  std::int64_t keep = written_;
  const auto after = std::upper_bound(groups_.begin(), groups_.end(), written_ / kBlockBytes,
                                      [](std::int64_t block, const Group& group) {
                                        return block < static_cast<std::int64_t>(group.block);
                                      });
  if (after != groups_.begin()) {
    const Group& last = *std::prev(after);  // that begins at or before the last byte written
    const std::int64_t begin = last.block * kBlockBytes;
    if (begin + group_bytes(streams_[last.stream].row_bytes) > written_) {
      keep = begin;
    }
  }
  buffer_.erase(buffer_.begin(), buffer_.begin() + (keep - buffer_begin_));
  buffer_begin_ = keep;
}

void SegmentWriter::sync() {
  if (const auto error = file_->sync()) {
    fail_write("write to disk", error);
  }
  synced_ = written_;
}

void SegmentWriter::fail_write(const char* what, const std::error_code& error) {
  file_.reset();
  fail(code_, "cannot {} '{}': {}", what, path_, io::describe_write_error(error));
}

}  // namespace weft::rowfile
