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
constexpr std::int64_t kMostTasks = 256;
// Of pieces that have fewer bytes on average each is one task's.
constexpr std::int64_t kSmallPiece = 4096;
// So many pieces ahead memory is asked for: small ones lie anywhere.
constexpr std::size_t kAhead = 8;

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
  if (!fits(copy.from) || !fits(copy.to) ||
      (copy.from.bytes != bytes && copy.from.bytes % bytes != 0)) {
    fail(ErrorCode::kUsage, "{} bytes in rows of {} are sent to where rows of {} are expected",
         copy.from.bytes, copy.from.row_bytes, copy.to.row_bytes);
  }
}

/// Copies part `part` of `parts` of the piece.
void copy_part(const Copy& copy, std::int64_t parts, std::int64_t part) {
  const std::int64_t bytes = row_bytes(copy);
  const Range rows = piece(copy.from.bytes / bytes, parts, part);
  if (rows.empty()) {
    return;
  }
  const Rows from(copy.from, bytes);
  const Rows to(copy.to, bytes);
  if (copy.from.row_bytes == 0 && copy.to.row_bytes == 0) {
    std::memcpy(to.row(rows.begin), from.row(rows.begin), static_cast<std::size_t>(rows.size()));
    return;
  }
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

/// The first row of a piece; where it begins if it has none.
std::byte* first_row(const Piece& piece) {
  const bool is_listed = piece.row_bytes > 0 && piece.rows != nullptr && piece.bytes > 0;
  const std::int64_t row = is_listed ? *piece.rows : 0;
  return static_cast<std::byte*>(piece.data) + row * piece.stride;
}

/// Returns whether a piece has bytes, and is one run or one row at either end: first_row() is then
/// where it lies.
bool is_single(const Copy& copy) {
  const auto is_one = [&](const Piece& piece) {
    return piece.row_bytes == 0 || piece.row_bytes == copy.from.bytes;
  };
  return copy.from.bytes > 0 && is_one(copy.from) && is_one(copy.to);
}

/// Copies a whole piece. Most small ones are one row, for which the divisions of copy_part() take
/// longer than the copy. Throws Error(kUsage) where both ends have rows of different lengths.
void copy_piece(const Copy& copy) {
  if (is_single(copy)) {
    std::memcpy(first_row(copy.to), first_row(copy.from),
                static_cast<std::size_t>(copy.from.bytes));
  } else {
    check_rows(copy);
    copy_part(copy, 1, 0);
  }
}

/// Whole pieces one after the other; lines of the pieces behind them are asked for meanwhile.
void copy_small(std::span<const Copy> all, Range some) {
  for (std::int64_t i = some.begin; i < some.end; ++i) {
    const std::size_t ahead = static_cast<std::size_t>(i) + kAhead;
    if (ahead < all.size()) {
      __builtin_prefetch(first_row(all[ahead].from));
      __builtin_prefetch(first_row(all[ahead].to), 1);
    }
    copy_piece(all[static_cast<std::size_t>(i)]);
  }
}

bool same_place(const Piece& a, const Piece& b) {
  return a.data == b.data && a.row_bytes == b.row_bytes && a.stride == b.stride && a.rows == b.rows;
}

/// Work is how much there is to copy. Tasks are cut by it, and no byte depends on how.
struct Work {
  std::int64_t bytes = 0;
  std::int64_t pieces = 0;
};

/// Goes through the pieces of lanes and where they lie in the runs, one of which is the end `end`.
class RunCursor {
 public:
  /// Begins with piece `first` of all.
  RunCursor(std::span<const LaneRun> lanes, RunEnd end, std::int64_t first)
      : lanes_(lanes), end_(end) {
    for (; !is_behind() && first >= std::ssize(lanes_[lane_].pieces); ++lane_) {
      first -= std::ssize(lanes_[lane_].pieces);
    }
    if (!is_behind()) {
      place_ = lanes_[lane_].run;
      for (; piece_ < static_cast<std::size_t>(first); ++piece_) {
        place_ += piece().bytes;
      }
    }
  }

  [[nodiscard]] bool is_behind() const { return lane_ == lanes_.size(); }

  void next() {
    place_ += piece().bytes;
    if (++piece_ < lanes_[lane_].pieces.size()) {
      return;
    }
    piece_ = 0;
    do {
      ++lane_;
    } while (!is_behind() && lanes_[lane_].pieces.empty());
    place_ = is_behind() ? nullptr : lanes_[lane_].run;
  }

  [[nodiscard]] Copy copy() const {
    const Piece part{place_, piece().bytes};
    return end_ == RunEnd::kTo ? Copy{piece(), part} : Copy{part, piece()};
  }

 private:
  [[nodiscard]] const Piece& piece() const { return lanes_[lane_].pieces[piece_]; }

  std::span<const LaneRun> lanes_;
  RunEnd end_;
  std::size_t lane_ = 0, piece_ = 0;
  std::byte* place_ = nullptr;  // of the piece in the lane's run
};

Work work_of(std::span<const LaneRun> lanes) {
  Work work;
  for (const LaneRun& lane : lanes) {
    work.bytes += lane.bytes;
    work.pieces += std::ssize(lane.pieces);
  }
  return work;
}

/// Returns whether the pieces of a lane are to be copied. They are not where nothing was sent, or
/// where the lane has come to where it belongs, piece by piece.
bool is_copied(const Lane& from, const Lane& to) {
  return !from.silent && from.pieces.data() != to.pieces.data();
}

Work work_of(std::span<const Lane> from, std::span<const Lane> to) {
  Work work;
  for (std::size_t l = 0; l < from.size(); ++l) {
    if (is_copied(from[l], to[l])) {
      work.bytes += from[l].bytes();
      work.pieces += std::ssize(from[l].pieces);
    }
  }
  return work;
}

/// Goes through the pieces of lanes at both ends.
class LaneCursor {
 public:
  /// Lanes from `begin` on, and then those before it; first piece `first` of all.
  LaneCursor(std::span<const Lane> from,
             std::span<const Lane> to,
             std::size_t begin,
             std::int64_t first)
      : from_(from), to_(to), lane_(begin), left_(from.size()) {
    for (; !is_behind() && first >= pieces(); next_lane()) {
      first -= pieces();
    }
    piece_ = static_cast<std::size_t>(first);
  }

  [[nodiscard]] bool is_behind() const { return left_ == 0; }

  void next() {
    ++piece_;
    while (!is_behind() && static_cast<std::int64_t>(piece_) >= pieces()) {
      piece_ = 0;
      next_lane();
    }
  }

  [[nodiscard]] Copy copy() const {
    return {from_[lane_].pieces[piece_], to_[lane_].pieces[piece_]};
  }

 private:
  [[nodiscard]] std::int64_t pieces() const {
    return is_copied(from_[lane_], to_[lane_]) ? std::ssize(from_[lane_].pieces) : 0;
  }

  void next_lane() {
    --left_;
    lane_ = lane_ + 1 < from_.size() ? lane_ + 1 : 0;
  }

  std::span<const Lane> from_, to_;
  std::size_t lane_, piece_ = 0;
  std::size_t left_;  // lanes, with the one in hand
};

std::int64_t task_count(std::int64_t bytes) {
  return std::min((bytes + kTaskBytes - 1) / kTaskBytes, kMostTasks);
}

bool moves(const Copy& copy) {
  return copy.from.bytes > 0 && !same_place(copy.from, copy.to);
}

/// Copies all pieces that a cursor goes through; begin(i) returns one that begins with piece i.
/// Many small ones are listed nowhere, others in `copies`.
template <typename Begin>
void copy_pieces(ThreadPool* pool,
                 const Work& work,
                 const Begin& begin,
                 std::vector<Copy>& copies) {
  if (work.bytes >= kSmallPiece * work.pieces) {
    copies.clear();
    for (auto now = begin(0); !now.is_behind(); now.next()) {
      if (const Copy copy = now.copy(); moves(copy)) {
        copies.push_back(copy);
      }
    }
    run_copies(pool, copies);
    return;
  }
  const std::int64_t tasks = task_count(work.bytes);
  parallel_for(pool, tasks, [&](std::int64_t task) {
    const Range some = piece(work.pieces, tasks, task);
    auto ahead = begin(some.begin + static_cast<std::int64_t>(kAhead));
    auto now = begin(some.begin);
    for (std::int64_t i = some.begin; i < some.end; ++i, now.next()) {
      if (!ahead.is_behind()) {
        const Copy later = ahead.copy();
        __builtin_prefetch(first_row(later.from));
        __builtin_prefetch(first_row(later.to), 1);
        ahead.next();
      }
      if (const Copy copy = now.copy(); moves(copy)) {
        copy_piece(copy);
      }
    }
  });
}

}  // namespace

void run_copies(ThreadPool* pool, std::span<const Copy> copies) {
  std::int64_t total = 0;
  for (const Copy& copy : copies) {
    check_rows(copy);
    total += copy.from.bytes;
  }
  const std::int64_t tasks = task_count(total);
  const auto count = std::ssize(copies);
  const bool small = total < kSmallPiece * count;
  // A task takes a part of every large piece: pieces are often columns of one matrix, and so it
  // works on one stretch of the rows while that is in the cache.
  parallel_for(pool, tasks, [&](std::int64_t task) {
    if (small) {
      copy_small(copies, piece(count, tasks, task));
      return;
    }
    for (const Copy& copy : copies) {
      copy_part(copy, tasks, task);
    }
  });
}

void copy_lanes(ThreadPool* pool,
                std::span<const Lane> from,
                std::span<const Lane> to,
                std::size_t first,
                std::vector<Copy>& copies) {
  copy_pieces(
      pool, work_of(from, to), [&](std::int64_t i) { return LaneCursor(from, to, first, i); },
      copies);
}

void copy_runs(ThreadPool* pool,
               std::span<const LaneRun> lanes,
               RunEnd end,
               std::vector<Copy>& copies) {
  copy_pieces(
      pool, work_of(lanes), [&](std::int64_t i) { return RunCursor(lanes, end, i); }, copies);
}

}  // namespace weft::comm
