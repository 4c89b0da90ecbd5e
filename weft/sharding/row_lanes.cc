#include "weft/sharding/row_lanes.h"

#include <algorithm>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/row_gradients.h"

namespace weft::sharding {
namespace {

using embedding::PartialRows;

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
                   Vectors vectors)
    : comm_(comm),
      columns_(std::move(columns)),
      vectors_(vectors),
      received_(device),
      counts_(at(comm.size()) * columns_.size()),
      own_(columns_.size()),
      send_pieces_(at(comm.size())),
      recv_pieces_(at(comm.size())),
      send_(at(comm.size())),
      recv_(at(comm.size())),
      lists_(columns_.size()) {
}

void RowLanes::count(std::span<const PartialRows> lists) {
  own_counts_.clear();
  for (const PartialRows& list : lists) {
    own_counts_.push_back(list.count);
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
  count(own);
  comm_.all_gather(ctx, own_counts_.data(), counts_.data(),
                   static_cast<std::int64_t>(tables()) * 8);
  std::copy(own.begin(), own.end(), own_.begin());
  send_pieces_.front().clear();
  for (std::size_t t = 0; t < tables(); ++t) {
    add_pieces(send_pieces_.front(), t, own[t]);
  }
  send_.front() = {.pieces = send_pieces_.front(), .silent = !any_row(own_counts_)};
  describe_received();
}

void RowLanes::share_each(Context& ctx, std::span<const PartialRows> to) {
  WEFT_CHECK(to.size() == counts_.size(), "{} lists, {} expected", to.size(), counts_.size());
  count(to);
  comm_.all_to_all(ctx, own_counts_.data(), counts_.data(),
                   static_cast<std::int64_t>(tables()) * 8);
  const auto self = at(comm_.rank());
  for (std::size_t r = 0; r < send_.size(); ++r) {
    const auto lists = to.subspan(r * tables(), tables());
    send_pieces_[r].clear();
    for (std::size_t t = 0; t < tables() && r != self; ++t) {
      add_pieces(send_pieces_[r], t, lists[t]);
    }
    const auto counts = std::span(own_counts_).subspan(r * tables(), tables());
    send_[r] = {.pieces = send_pieces_[r], .silent = r == self || !any_row(counts)};
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
