#include "weft/sharding/replica_average.h"

#include <algorithm>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/replicas.h"
#include "weft/layout/row_gradients.h"

namespace weft::sharding {
ReplicaAverage::ReplicaAverage(comm::Communicator& replicas,
                               Device& device,
                               const std::vector<embedding::TableShard*>& shards,
                               const ReplicaAverageOptions& options)
    : replicas_(replicas),
      self_(at(replicas.rank())),
      slots_(replicas, device, shards),
      received_(device),
      send_pieces_(at(replicas.size())),
      recv_pieces_(at(replicas.size())),
      send_(at(replicas.size())),
      recv_(at(replicas.size())) {
  std::vector<embedding::TableShard*> listed;
  for (embedding::TableShard* shard : shards) {
    Member member{.shard = shard, .table = shard->row_table(), .fields = {}};
    if (options.form == spec::SyncForm::kTouched || shard->tier() != nullptr) {
      member.list = listed.size();
      listed.push_back(shard);
      listed_.push_back(members_.size());
    }
    member.state_floats = state_floats(shard->table().optimizer.type, member.table.cols);
    member.fields = kernels::RowFields(member.table, member.state_floats);
    member.row_bytes = kernels::packed_row(member.table, member.state_floats).bytes();
    member.draws = shard->average_draws(options.seed);
    members_.push_back(std::move(member));
  }
  // Of a rank without shards too, whose peers have none either.
  if (options.form == spec::SyncForm::kTouched || !listed.empty()) {
    touched_.emplace(replicas, std::move(listed));
  }
  if (options.codec.format != CodecFormat::kFp32) {
    AveragedRows rows{.touched = touched_ ? &*touched_ : nullptr, .lists = {}, .slots = &slots_};
    for (const Member& member : members_) {
      rows.lists.push_back(member.list);
    }
    coded_ =
        std::make_unique<CodedAverage>(replicas, device, shards, std::move(rows),
                                       CodedAverageOptions{.codec = options.codec,
                                                           .error_feedback = options.error_feedback,
                                                           .seed = options.seed,
                                                           .left_out = options.left_out});
  }
}

void ReplicaAverage::restored(Context& ctx) {
  if (coded_) {
    coded_->restored(ctx);
  }
}

void ReplicaAverage::stored(const embedding::TableShard& shard, std::span<const Range> rows) {
  if (coded_) {
    coded_->stored(shard, rows);
  }
}

void ReplicaAverage::note_updated(std::span<embedding::RowGradients* const> gradients) {
  if (touched_) {
    listed_gradients_.clear();
    for (const std::size_t m : listed_) {
      listed_gradients_.push_back(gradients[m]);
    }
    touched_->note_updated(listed_gradients_);
  }
}

void ReplicaAverage::run(Context& ctx, std::int64_t step) {
  if (touched_) {
    touched_->unite(ctx);
  }
  slots_.agree(ctx);
  if (coded_) {
    coded_->run(ctx, step);
    note_written();
    return;
  }
  cut_rounds();
  std::size_t begin = 0;
  for (const std::size_t end : round_ends_) {
    const auto round = std::span(blocks_).subspan(begin, end - begin);
    fetch_round(ctx, round);
    run_round(ctx, round, step);
    slots_.release();
    begin = end;
  }
  note_written();
}

/// For whoever wants to know which rows have changed.
void ReplicaAverage::note_written() {
  for (const Member& member : members_) {
    if (member.list == kAllRows) {
      member.shard->note_all_written();
    } else {
      member.shard->note_written(touched_->rows(member.list));
    }
  }
}

/// Rows of shards that have not all rows in slots get theirs.
void ReplicaAverage::fetch_round(Context& ctx, std::span<const Block> round) {
  for (const Block& block : round) {
    if (slots_.has(block.member)) {
      slots_.begin(ctx, block.member, numbers(block));
    }
  }
  slots_.finish(ctx);
}

/// Rounds of at most layout::kRoundBytes, or one row. Of a shard that has not all rows in slots a
/// round has one block.
void ReplicaAverage::cut_rounds() {
  blocks_.clear();
  round_ends_.clear();
  std::int64_t left = layout::kRoundBytes;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const Member& member = members_[m];
    const std::int64_t rows = member.list != kAllRows ? std::ssize(touched_->rows(member.list))
                                                      : member.shard->rows().size();
    const std::int64_t at_once = slots_.has(m) ? slots_.most_rows(m) : rows;
    for (std::int64_t begin = 0; begin < rows;) {
      if (left < member.row_bytes && left < layout::kRoundBytes) {
        round_ends_.push_back(blocks_.size());
        left = layout::kRoundBytes;
      }
      const std::int64_t fit =
          std::clamp<std::int64_t>(left / member.row_bytes, 1, std::max<std::int64_t>(1, at_once));
      const std::int64_t end = std::min(rows, begin + fit);
      blocks_.push_back({.member = m, .rows = {begin, end}});
      left -= (end - begin) * member.row_bytes;
      if (slots_.has(m) && end < rows) {
        left = 0;  // the rest comes when these have given up their slots
      }
      begin = end;
    }
  }
  if (!blocks_.empty()) {
    round_ends_.push_back(blocks_.size());
  }
}

/// Whether the block's rows are places in a list.
bool ReplicaAverage::is_listed(const Block& block) const {
  return members_[block.member].list != kAllRows;
}

/// The rows of a block, counted in their shard. REQUIRES: is_listed(block).
std::span<const std::int32_t> ReplicaAverage::numbers(const Block& block) const {
  return touched_->rows(members_[block.member].list)
      .subspan(at(block.rows.begin), at(block.rows.size()));
}

/// Where some of a block's rows lie; null where they lie behind each other.
const std::int32_t* ReplicaAverage::places(const Block& block, Range rows) const {
  if (!is_listed(block)) {
    return nullptr;
  }
  const std::int32_t* const all =
      slots_.has(block.member) ? slots_.slots(block.member) : numbers(block).data();
  return all + (rows.begin - block.rows.begin);
}

/// The rows of a block that are averaged by one group's rank.
Range ReplicaAverage::owned(const Block& block, std::int64_t group) const {
  const Range share = piece(block.rows.size(), replicas_.size(), group);
  return {block.rows.begin + share.begin, block.rows.begin + share.end};
}

void ReplicaAverage::run_round(Context& ctx, std::span<Block> round, std::int64_t step) {
  std::size_t pieces = 0;
  for (Block& block : round) {
    block.first_piece = pieces;
    pieces += members_[block.member].fields.size();
  }
  describe_lanes(round);
  // Rows go to their owners. What this rank owns it lends to nobody, so it is written in place.
  replicas_.exchange_lent(ctx, send_, recv_, [&](std::span<const comm::Lane> arrived) {
    average(ctx, round, arrived, step);
  });
  // Averages go to all. What was sent comes back, and what was received is where it was.
  std::vector<comm::Piece>& averages = recv_pieces_[self_];
  averages.clear();
  for (const Block& block : round) {
    add_pieces(block, owned(block, static_cast<std::int64_t>(self_)), averages);
  }
  for (std::size_t m = 0; m < send_.size(); ++m) {
    recv_[m] = {.pieces = send_pieces_[m]};
    send_[m] = {.pieces = averages};
  }
  send_[self_] = recv_[self_] = {.pieces = {}, .silent = true};
  replicas_.exchange(ctx, send_, recv_);
}

/// Of each block, field after field.
void ReplicaAverage::describe_lanes(std::span<const Block> round) {
  std::int64_t bytes = 0;
  for (std::size_t m = 0; m < send_.size(); ++m) {
    send_pieces_[m].clear();
    recv_pieces_[m].clear();
    for (const Block& block : round) {
      if (m == self_) {
        continue;
      }
      add_pieces(block, owned(block, static_cast<std::int64_t>(m)), send_pieces_[m]);
      const std::int64_t rows = owned(block, static_cast<std::int64_t>(self_)).size();
      for (const kernels::RowField& field : members_[block.member].fields) {
        recv_pieces_[m].push_back({nullptr, rows * field.bytes});
        bytes += layout::piece_room(rows * field.bytes);
      }
    }
    send_[m] = {.pieces = send_pieces_[m], .silent = m == self_};
    recv_[m] = {.pieces = recv_pieces_[m], .silent = m == self_};
  }
  if (replicas_.lends()) {
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

/// Rows of a block where this rank has them.
void ReplicaAverage::add_pieces(const Block& block,
                                Range rows,
                                std::vector<comm::Piece>& to) const {
  for (const kernels::RowField& field : members_[block.member].fields) {
    comm::Piece piece{.data = field.data,
                      .bytes = rows.size() * field.bytes,
                      .row_bytes = field.bytes,
                      .stride = field.stride};
    if (is_listed(block)) {
      piece.rows = places(block, rows);
    } else {
      piece.data = field.at(rows.begin);
    }
    to.push_back(piece);
  }
}

void ReplicaAverage::average(Context& ctx,
                             std::span<const Block> round,
                             std::span<const comm::Lane> arrived,
                             std::int64_t step) {
  parts_.clear();
  averages_.clear();
  for (const Block& block : round) {
    add_parts(block, owned(block, static_cast<std::int64_t>(self_)), arrived);
  }
  std::size_t first = 0;
  for (const Block& block : round) {
    const Member& member = members_[block.member];
    const Range own = owned(block, static_cast<std::int64_t>(self_));
    const std::size_t count = send_.size() * member.fields.size();
    averages_.push_back({.table = member.table,
                         .state_floats = member.state_floats,
                         .count = own.size(),
                         .rows = is_listed(block)
                                     ? numbers(block).data() + (own.begin - block.rows.begin)
                                     : nullptr,
                         .first = own.begin,
                         .parts = std::span(parts_).subspan(first, count),
                         .replicas = send_.size(),
                         .own = self_,
                         .draws = member.draws,
                         .step = static_cast<std::uint64_t>(step)});
    first += count;
  }
  kernels::average_rows(ctx, averages_);
}

/// Where each group has the rows of a block that this rank averages, field after field.
void ReplicaAverage::add_parts(const Block& block, Range own, std::span<const comm::Lane> arrived) {
  const kernels::RowFields& fields = members_[block.member].fields;
  for (std::size_t m = 0; m < send_.size(); ++m) {
    for (std::size_t f = 0; f < fields.size(); ++f) {
      if (m == self_ && is_listed(block)) {
        parts_.push_back({fields[f].data, fields[f].stride, places(block, own)});
      } else if (m == self_) {
        parts_.push_back({fields[f].at(own.begin), fields[f].stride, nullptr});
      } else {
        const comm::Piece& piece = arrived[m].pieces[block.first_piece + f];
        const bool dense = piece.row_bytes == 0;
        parts_.push_back({static_cast<std::byte*>(piece.data),
                          dense ? fields[f].bytes : piece.stride, dense ? nullptr : piece.rows});
      }
    }
  }
}

}  // namespace weft::sharding
