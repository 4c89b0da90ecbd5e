#include "weft/sharding/row_lanes.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/row_gradients.h"
#include "weft/layout/row_sums.h"

namespace weft::sharding {
namespace {

using embedding::PartialRows;

bool any_row(std::span<const PartialRows> lists) {
  return std::any_of(lists.begin(), lists.end(),
                     [](const PartialRows& list) { return list.count > 0; });
}

bool any_row(std::span<const std::int64_t> counts) {
  return std::any_of(counts.begin(), counts.end(), [](std::int64_t rows) { return rows > 0; });
}

}  // namespace

std::vector<std::int64_t> columns_of(std::span<embedding::TableShard* const> shards) {
  std::vector<std::int64_t> columns;
  for (const embedding::TableShard* shard : shards) {
    columns.push_back(shard->cols().size());
  }
  return columns;
}

RowLanes::RowLanes(comm::Communicator& comm,
                   Device& device,
                   std::vector<std::int64_t> columns,
                   Vectors vectors,
                   std::vector<std::uint8_t> bits)
    : comm_(comm),
      columns_(std::move(columns)),
      vectors_(vectors),
      received_(device),
      bits_(std::move(bits)),
      counts_(at(comm.size()) * columns_.size()),
      own_(columns_.size()),
      send_pieces_(at(comm.size())),
      recv_pieces_(at(comm.size())),
      send_(at(comm.size())),
      recv_(at(comm.size())),
      lists_(columns_.size()) {
  if (bits_.empty()) {
    bits_.assign(counts_.size(), 64);
  }
  WEFT_CHECK(bits_.size() == counts_.size(), "{} widths of {} lengths", bits_.size(),
             counts_.size());
}

/// Of a rank's row of bits_.
std::int64_t RowLanes::length_bytes(std::size_t rank) const {
  const auto* const bits = bits_.data() + rank * tables();
  return layout::bits_bytes(std::accumulate(bits, bits + tables(), std::int64_t{0}));
}

void RowLanes::write_lengths(std::size_t rank,
                             std::span<const PartialRows> lists,
                             std::byte* out) const {
  std::fill_n(out, length_bytes(rank), std::byte{0});
  std::int64_t place = 0;
  for (std::size_t t = 0; t < tables(); ++t) {
    const int bits = bits_[rank * tables() + t];
    const auto rows = static_cast<std::uint64_t>(lists[t].count);
    WEFT_CHECK(std::cmp_less_equal(std::bit_width(rows), bits),
               "{} rows of table {}, {} bits of their number", rows, t, bits);
    for (int b = 0; b < bits; ++b, ++place) {
      out[place / 8] |= static_cast<std::byte>((rows >> b & 1U) << (place % 8));
    }
  }
}

/// Of the lists of rank `from`, as long as a rank's row of bits_ says.
void RowLanes::read_lengths(std::size_t rank, const comm::Lane& lane, std::size_t from) {
  const auto* const in =
      lane.pieces.empty() ? nullptr : static_cast<const std::byte*>(lane.pieces.front().data);
  std::int64_t place = 0;
  for (std::size_t t = 0; t < tables(); ++t) {
    std::uint64_t rows = 0;
    for (int b = 0; b < bits_[rank * tables() + t]; ++b, ++place) {
      rows |= std::to_integer<std::uint64_t>(in[place / 8] >> (place % 8) & std::byte{1}) << b;
    }
    counts_[from * tables() + t] = static_cast<std::int64_t>(rows);
  }
}

/// Gives the lanes of lengths, whose sizes recv_pieces_ has, their memory.
void RowLanes::expect_lengths() {
  std::int64_t bytes = 0;
  for (const auto& pieces : recv_pieces_) {
    bytes += pieces.front().bytes;
  }
  come_lengths_.resize(at(bytes));
  std::byte* next = come_lengths_.data();
  for (std::size_t r = 0; r < recv_.size(); ++r) {
    comm::Piece& piece = recv_pieces_[r].front();
    piece.data = std::exchange(next, next + piece.bytes);
    recv_[r] = {.pieces = recv_pieces_[r], .silent = piece.bytes == 0};
  }
}

/// What is sent is only read.
void RowLanes::add_pieces(std::vector<comm::Piece>& to,
                          std::size_t table,
                          const PartialRows& list) const {
  const auto lengths = layout::partial_row_lengths(list.count, columns_[table]);
  to.push_back({const_cast<std::int64_t*>(list.rows), lengths.rows.bytes()});
  to.push_back({const_cast<float*>(list.vectors), lengths.vectors.bytes()});
  if (vectors_ == Vectors::kPartial) {
    to.push_back({const_cast<std::int32_t*>(list.nodes), lengths.nodes.bytes()});
  }
}

void RowLanes::share_own(Context& ctx, std::span<const PartialRows> own) {
  WEFT_CHECK(own.size() == tables(), "lists of {} tables, {} expected", own.size(), tables());
  const auto self = at(comm_.rank());
  sent_lengths_.resize(at(length_bytes(self)));
  write_lengths(self, own, sent_lengths_.data());
  send_pieces_.front().assign(1, {sent_lengths_.data(), std::ssize(sent_lengths_)});
  for (std::size_t r = 0; r < recv_pieces_.size(); ++r) {
    recv_pieces_[r].assign(1, {nullptr, length_bytes(r)});
  }
  expect_lengths();
  comm_.gather_lent(ctx, {.pieces = send_pieces_.front(), .silent = sent_lengths_.empty()}, recv_,
                    [&](std::span<const comm::Lane> arrived) {
                      for (std::size_t r = 0; r < arrived.size(); ++r) {
                        read_lengths(r, arrived[r], r);
                      }
                    });
  std::copy(own.begin(), own.end(), own_.begin());
  send_pieces_.front().clear();
  for (std::size_t t = 0; t < tables(); ++t) {
    add_pieces(send_pieces_.front(), t, own[t]);
  }
  send_.front() = {.pieces = send_pieces_.front(), .silent = !any_row(own)};
  describe_received();
}

void RowLanes::share_each(Context& ctx, std::span<const PartialRows> to) {
  WEFT_CHECK(to.size() == counts_.size(), "{} lists, {} expected", to.size(), counts_.size());
  const auto self = at(comm_.rank());
  const auto lists_to = [&](std::size_t r) { return to.subspan(r * tables(), tables()); };
  std::int64_t bytes = 0;
  for (std::size_t r = 0; r < send_.size(); ++r) {
    bytes += length_bytes(r);
  }
  sent_lengths_.resize(at(bytes));
  std::byte* next = sent_lengths_.data();
  for (std::size_t r = 0; r < send_.size(); ++r) {
    const std::int64_t size = length_bytes(r);
    write_lengths(r, lists_to(r), next);
    send_pieces_[r].assign(1, {std::exchange(next, next + size), size});
    send_[r] = {.pieces = send_pieces_[r], .silent = size == 0};
    recv_pieces_[r].assign(1, {nullptr, length_bytes(self)});
  }
  expect_lengths();
  comm_.exchange_lent(ctx, send_, recv_, [&](std::span<const comm::Lane> arrived) {
    for (std::size_t r = 0; r < arrived.size(); ++r) {
      read_lengths(self, arrived[r], r);
    }
  });
  for (std::size_t r = 0; r < send_.size(); ++r) {
    const auto lists = lists_to(r);
    send_pieces_[r].clear();
    for (std::size_t t = 0; t < tables() && r != self; ++t) {
      add_pieces(send_pieces_[r], t, lists[t]);
    }
    send_[r] = {.pieces = send_pieces_[r], .silent = r == self || !any_row(lists)};
    if (r == self) {
      std::copy(lists.begin(), lists.end(), own_.begin());
    }
  }
  describe_received();
}

void RowLanes::describe_received() {
  const auto self = at(comm_.rank());
  std::int64_t bytes = 0;
  for (std::size_t r = 0; r < recv_.size(); ++r) {
    recv_pieces_[r].clear();
    for (std::size_t t = 0; t < tables() && r != self; ++t) {
      add_pieces(recv_pieces_[r], t, {.count = counts_[r * tables() + t]});
    }
    for (const comm::Piece& piece : recv_pieces_[r]) {
      bytes += layout::piece_room(piece.bytes);
    }
    const auto counts = std::span(counts_).subspan(r * tables(), tables());
    recv_[r] = {.pieces = recv_pieces_[r], .silent = r == self || !any_row(counts)};
  }
  if (comm_.lends()) {
    return;
  }
  received_.resize(bytes);
  auto* next = received_.as<std::byte>();
  for (auto& pieces : recv_pieces_) {
    for (comm::Piece& piece : pieces) {
      piece.data = next;
      next += layout::piece_room(piece.bytes);
    }
  }
}

std::span<const std::vector<PartialRows>> RowLanes::lists(std::span<const comm::Lane> arrived) {
  for (std::size_t t = 0; t < tables(); ++t) {
    std::vector<PartialRows>& from = lists_[t];
    from.clear();
    for (std::size_t r = 0; r < arrived.size(); ++r) {
      if (r == at(comm_.rank())) {
        from.push_back(own_[t]);
        continue;
      }
      const std::int64_t rows = counts_[r * tables() + t];
      if (rows == 0) {  // the lane may be silent
        from.emplace_back();
        continue;
      }
      const auto list = arrived[r].pieces.subspan(pieces() * t, pieces());
      from.push_back({.count = rows,
                      .rows = static_cast<const std::int64_t*>(list[0].data),
                      .nodes = vectors_ == Vectors::kPartial
                                   ? static_cast<const std::int32_t*>(list[2].data)
                                   : nullptr,
                      .vectors = static_cast<const float*>(list[1].data)});
    }
  }
  return lists_;
}

}  // namespace weft::sharding
