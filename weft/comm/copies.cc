#include "weft/comm/copies.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "weft/base/error.h"
#include "weft/base/parts.h"

namespace weft::comm {
namespace {

// A task copies so much in 10 to 50 microseconds, against 5 to wake a thread.
constexpr std::int64_t kTaskBytes = 256 * 1024;
constexpr std::int64_t kMostTasks = 256;  // each looks for its beginning in the list of copies

/// Where the rows of one end lie.
class Rows {
 public:
  Rows(const Piece& piece, std::int64_t row_bytes)
      : data_(static_cast<std::byte*>(piece.data)),
        stride_(piece.row_bytes == 0 ? row_bytes : piece.stride),
        rows_(piece.row_bytes == 0 ? nullptr : piece.rows) {}

  [[nodiscard]] std::byte* row(std::int64_t i) const {
    return data_ + (rows_ == nullptr ? i : rows_[i]) * stride_;
  }

 private:
  std::byte* data_;
  std::int64_t stride_;
  const std::int32_t* rows_;
};

/// kBytes > 0: rows of a length known here are copied without a call.
template <std::size_t kBytes>
void copy_rows(const Rows& from, const Rows& to, Range range, std::int64_t row_bytes) {
  const std::size_t bytes = kBytes > 0 ? kBytes : static_cast<std::size_t>(row_bytes);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    std::memcpy(to.row(i), from.row(i), bytes);
  }
}

/// One run at both ends has rows of one byte.
std::int64_t row_bytes(const Copy& copy) {
  return std::max({copy.from.row_bytes, copy.to.row_bytes, std::int64_t{1}});
}

void check_rows(const Copy& copy) {
  const std::int64_t bytes = row_bytes(copy);
  const auto fits = [bytes](const Piece& piece) {
    return piece.row_bytes == 0 || piece.row_bytes == bytes;
  };
  if (!fits(copy.from) || !fits(copy.to) || copy.from.bytes % bytes != 0) {
    fail(ErrorCode::kUsage, "{} bytes in rows of {} are sent to where rows of {} are expected",
         copy.from.bytes, copy.from.row_bytes, copy.to.row_bytes);
  }
}

bool is_run(const Copy& copy) {
  return copy.from.row_bytes == 0 && copy.to.row_bytes == 0;
}

/// Copies the rows that begin in [range) of the piece's bytes.
void copy_range(const Copy& copy, Range range) {
  if (is_run(copy)) {
    std::memcpy(static_cast<std::byte*>(copy.to.data) + range.begin,
                static_cast<const std::byte*>(copy.from.data) + range.begin,
                static_cast<std::size_t>(range.size()));
    return;
  }
  const std::int64_t bytes = row_bytes(copy);
  const Range rows{(range.begin + bytes - 1) / bytes, (range.end + bytes - 1) / bytes};
  const Rows from(copy.from, bytes);
  const Rows to(copy.to, bytes);
  switch (bytes) {  // embedding dimensions of 16 to 128 floats
    case 64:
      return copy_rows<64>(from, to, rows, bytes);
    case 128:
      return copy_rows<128>(from, to, rows, bytes);
    case 256:
      return copy_rows<256>(from, to, rows, bytes);
    case 512:
      return copy_rows<512>(from, to, rows, bytes);
    default:
      return copy_rows<0>(from, to, rows, bytes);
  }
}

/// Copies the bytes [range) of all copies, one after the other.
void copy_stretch(std::span<const Copy> copies, Range range) {
  std::int64_t begin = 0;  // of the copy in hand
  for (const Copy& copy : copies) {
    const std::int64_t end = begin + copy.from.bytes;
    if (begin >= range.end) {
      return;
    }
    if (end > range.begin && copy.from.bytes > 0) {
      copy_range(copy, {std::max(range.begin, begin) - begin, std::min(range.end, end) - begin});
    }
    begin = end;
  }
}

bool same_place(const Piece& a, const Piece& b) {
  return a.data == b.data && a.row_bytes == b.row_bytes && a.stride == b.stride && a.rows == b.rows;
}

}  // namespace

void run_copies(ThreadPool* pool, std::span<const Copy> copies) {
  std::int64_t total = 0;
  for (const Copy& copy : copies) {
    check_rows(copy);
    total += copy.from.bytes;
  }
  const std::int64_t tasks = std::min((total + kTaskBytes - 1) / kTaskBytes, kMostTasks);
  if (pool == nullptr || tasks <= 1) {
    copy_stretch(copies, {0, total});
    return;
  }
  pool->parallel_for(tasks,
                     [&](std::int64_t task) { copy_stretch(copies, piece(total, tasks, task)); });
}

void add_copies(const Lane& from, const Lane& to, std::vector<Copy>& copies) {
  for (std::size_t i = 0; i < from.pieces.size(); ++i) {
    if (from.pieces[i].bytes > 0 && !same_place(from.pieces[i], to.pieces[i])) {
      copies.push_back({from.pieces[i], to.pieces[i]});
    }
  }
}

}  // namespace weft::comm
