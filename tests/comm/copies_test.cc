// Copies of many small pieces and of few large ones, against bytes that are copied one by one.
#include "weft/comm/copies.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/base/thread_pool.h"

namespace weft::comm {
namespace {

/// Numbers drawn from a key, one after the other.
class CopyDraws {
 public:
  explicit CopyDraws(std::uint64_t key) : key_(key) {}

  /// Of [0, count).
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(philox(key_, 0, next_++)[0] %
                                     static_cast<std::uint64_t>(count));
  }

 private:
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

/// Memory of one end of all pieces, and what it has to be afterwards.
class CopyEnd {
 public:
  explicit CopyEnd(std::int64_t bytes) : bytes_(at(bytes)) {}

  /// A piece of so many rows: a run, rows at a distance, or rows that are listed, last one first.
  Piece piece(std::int64_t rows, std::int64_t row_bytes, std::int64_t form) {
    const std::int64_t stride = form == 0 ? row_bytes : row_bytes + 3;
    Piece piece{.data = bytes_.data() + used_, .bytes = rows * row_bytes};
    if (form > 0) {
      piece.row_bytes = row_bytes;
      piece.stride = stride;
    }
    if (form == 2) {
      std::vector<std::int32_t>& list = lists_.emplace_back(at(rows));
      std::iota(list.rbegin(), list.rend(), 0);
      piece.rows = list.data();
    }
    used_ += rows * stride;
    EXPECT_LE(used_, std::ssize(bytes_));
    return piece;
  }

  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  std::int64_t used_ = 0;
  std::vector<std::vector<std::int32_t>> lists_;
};

/// Where byte i of a piece lies.
std::byte* byte_of(const Piece& piece, std::int64_t i) {
  auto* const data = static_cast<std::byte*>(piece.data);
  if (piece.row_bytes == 0) {
    return data + i;
  }
  const std::int64_t row = i / piece.row_bytes;
  return data + (piece.rows == nullptr ? row : piece.rows[row]) * piece.stride +
         i % piece.row_bytes;
}

void expect_copied(std::int64_t pieces, std::int64_t most_rows, ThreadPool* pool) {
  CopyDraws draws(at(pieces * most_rows));
  constexpr std::int64_t kRowBytes[] = {1, 4, 64, 128, 200, 256, 512};
  const std::int64_t room = pieces * (most_rows + 1) * 520;
  CopyEnd from(room);
  CopyEnd to(room);
  for (std::byte& byte : from.bytes()) {
    byte = static_cast<std::byte>(draws.below(256));
  }
  std::vector<Copy> copies;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t rows = draws.below(most_rows + 1);  // some have none
    const std::int64_t row_bytes = kRowBytes[draws.below(std::ssize(kRowBytes))];
    copies.push_back(
        {from.piece(rows, row_bytes, draws.below(3)), to.piece(rows, row_bytes, draws.below(3))});
  }
  std::vector<std::byte> expected = to.bytes();
  for (const Copy& copy : copies) {
    for (std::int64_t i = 0; i < copy.from.bytes; ++i) {
      expected[at(byte_of(copy.to, i) - to.bytes().data())] = *byte_of(copy.from, i);
    }
  }
  run_copies(pool, copies);
  EXPECT_EQ(to.bytes(), expected) << pieces << " pieces of at most " << most_rows << " rows";
}

TEST(Copies, SmallAndLargePiecesArriveWhole) {
  ThreadPool pool(3);
  for (ThreadPool* const threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    expect_copied(1, 1, threads);
    expect_copied(5, 4000, threads);
    expect_copied(7, 3, threads);
    expect_copied(3000, 1, threads);  // several tasks of whole pieces
    expect_copied(3000, 5, threads);
  }
}

/// Lanes of some pieces each, also of none, to runs and from runs to lanes elsewhere.
void expect_runs(std::int64_t lanes, std::int64_t most_rows, ThreadPool* pool) {
  CopyDraws draws(at(lanes * most_rows + 1));
  constexpr std::int64_t kRowBytes[] = {1, 4, 64, 128, 200, 256, 512};
  const std::int64_t room = lanes * 6 * (most_rows + 1) * 520;
  CopyEnd from(room);
  CopyEnd to(room);
  CopyEnd runs(room);
  for (std::byte& byte : from.bytes()) {
    byte = static_cast<std::byte>(draws.below(256));
  }
  std::vector<std::vector<Piece>> sent(at(lanes));
  std::vector<std::vector<Piece>> received(at(lanes));
  std::vector<LaneRun> out;
  std::vector<LaneRun> in;
  for (std::int64_t l = 0; l < lanes; ++l) {
    std::int64_t bytes = 0;
    for (std::int64_t i = draws.below(7); i > 0; --i) {
      const std::int64_t rows = draws.below(most_rows + 1);
      const std::int64_t row_bytes = kRowBytes[draws.below(std::ssize(kRowBytes))];
      sent[at(l)].push_back(from.piece(rows, row_bytes, draws.below(3)));
      received[at(l)].push_back(to.piece(rows, row_bytes, draws.below(3)));
      bytes += rows * row_bytes;
    }
    auto* const run = static_cast<std::byte*>(runs.piece(1, bytes, 0).data);
    out.push_back({sent[at(l)], run, bytes});
    in.push_back({received[at(l)], run, bytes});
  }
  std::vector<std::byte> expected = to.bytes();
  for (std::size_t l = 0; l < sent.size(); ++l) {
    for (std::size_t i = 0; i < sent[l].size(); ++i) {
      for (std::int64_t b = 0; b < sent[l][i].bytes; ++b) {
        expected[at(byte_of(received[l][i], b) - to.bytes().data())] = *byte_of(sent[l][i], b);
      }
    }
  }
  const std::vector<std::byte> before = to.bytes();
  std::vector<Copy> copies;
  copy_runs(pool, out, RunEnd::kTo, copies);
  copy_runs(pool, in, RunEnd::kFrom, copies);
  EXPECT_EQ(to.bytes(), expected) << lanes << " lanes of at most " << most_rows << " rows";
  to.bytes() = before;
  std::vector<Lane> from_lanes;
  std::vector<Lane> to_lanes;
  for (std::size_t l = 0; l < sent.size(); ++l) {
    from_lanes.push_back(sent[l].empty() ? Lane{.pieces = {}, .silent = true} : Lane{sent[l]});
    to_lanes.push_back({received[l]});
  }
  copy_lanes(pool, from_lanes, to_lanes, at(lanes / 2), copies);
  EXPECT_EQ(to.bytes(), expected) << lanes << " lanes of at most " << most_rows << " rows";
}

TEST(Copies, LanesGoThroughRuns) {
  ThreadPool pool(3);
  for (ThreadPool* const threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    expect_runs(0, 1, threads);
    expect_runs(1, 1, threads);
    expect_runs(3, 3000, threads);  // large pieces
    expect_runs(9, 3, threads);
    expect_runs(1500, 1, threads);
    expect_runs(800, 4, threads);  // several tasks of whole pieces
  }
}

TEST(Copies, ALaneThatIsItsRunStaysAsItIs) {
  std::vector<std::byte> bytes(64, std::byte{7});
  const Piece pieces[] = {{bytes.data(), 24}, {bytes.data() + 24, 0}, {bytes.data() + 24, 40}};
  const LaneRun lane{pieces, bytes.data(), 64};
  std::vector<Copy> copies;
  copy_runs(nullptr, std::span(&lane, 1), RunEnd::kTo, copies);
  EXPECT_EQ(bytes, std::vector<std::byte>(64, std::byte{7}));
  const Piece uneven{.data = bytes.data(), .bytes = 12, .row_bytes = 8, .stride = 8};
  const LaneRun other{std::span(&uneven, 1), bytes.data() + 32, 12};
  EXPECT_THROW(copy_runs(nullptr, std::span(&other, 1), RunEnd::kFrom, copies), Error);
}

/// Of three lanes of two pieces the second one has come to where it belongs.
TEST(Copies, LanesBesideOneThatIsHereArriveWhole) {
  std::vector<std::byte> from(24);
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<std::byte>(i + 1);
  }
  const std::vector<std::byte> sent = from;
  std::vector<std::byte> to(24);
  std::vector<Piece> out;
  std::vector<Piece> in;
  for (std::size_t i = 0; i < 6; ++i) {
    out.push_back({from.data() + 4 * i, 4});
    in.push_back({to.data() + 4 * (5 - i), 4});
  }
  const auto pair = [](const std::vector<Piece>& pieces, std::size_t lane) {
    return Lane{std::span(pieces).subspan(2 * lane, 2)};
  };
  const Lane from_lanes[] = {pair(out, 0), pair(out, 1), pair(out, 2)};
  const Lane to_lanes[] = {pair(in, 0), pair(out, 1), pair(in, 2)};
  for (std::size_t first = 0; first < 3; ++first) {
    std::fill(to.begin(), to.end(), std::byte{0});
    std::vector<Copy> copies;
    copy_lanes(nullptr, from_lanes, to_lanes, first, copies);
    EXPECT_EQ(from, sent);
    for (const std::size_t i : {0U, 1U, 4U, 5U}) {
      EXPECT_EQ(to[4 * (5 - i)], sent[4 * i]) << "piece " << i;
    }
    EXPECT_EQ(to[8], std::byte{0});
    EXPECT_EQ(to[12], std::byte{0});
  }
}

TEST(Copies, RowsOfTwoLengthsAreRefused) {
  std::vector<std::byte> bytes(64);
  const Copy copy{{.data = bytes.data(), .bytes = 16, .row_bytes = 8, .stride = 8},
                  {.data = bytes.data() + 32, .bytes = 16, .row_bytes = 4, .stride = 4}};
  EXPECT_THROW(run_copies(nullptr, std::span(&copy, 1)), Error);
  const Copy uneven{{.data = bytes.data(), .bytes = 12, .row_bytes = 8, .stride = 8},
                    {.data = bytes.data() + 32, .bytes = 12}};
  EXPECT_THROW(run_copies(nullptr, std::span(&uneven, 1)), Error);
}

}  // namespace
}  // namespace weft::comm
