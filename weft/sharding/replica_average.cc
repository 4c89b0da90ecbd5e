#include "weft/sharding/replica_average.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/base/thread_pool.h"
#include "weft/sharding/group_average.h"

namespace weft::sharding {
namespace {

constexpr std::int64_t kColumns = 128;  ///< summed at a time, on the stack

/// Runs body(first column, columns) over [0, cols).
template <typename Body>
void for_columns(std::int64_t cols, const Body& body) {
  for (std::int64_t first = 0; first < cols; first += kColumns) {
    body(first, std::min(kColumns, cols - first));
  }
}

}  // namespace

ReplicaAverage::ReplicaAverage(comm::Communicator& replicas,
                               Device& device,
                               const std::vector<embedding::TableShard*>& shards,
                               const ReplicaAverageOptions& options)
    : replicas_(replicas),
      self_(at(replicas.rank())),
      groups_(static_cast<double>(replicas.size())),
      received_(device),
      send_pieces_(at(replicas.size())),
      recv_pieces_(at(replicas.size())),
      send_(at(replicas.size())),
      recv_(at(replicas.size())) {
  for (embedding::TableShard* shard : shards) {
    Member member{.shard = shard, .table = shard->row_table(), .fields = {}};
    const kernels::RowTable& table = member.table;
    const bool halves = table.low != nullptr;
    const std::int64_t element = halves ? 2 : size_of(table.dtype);
    member.fields.push_back(
        {static_cast<std::byte*>(table.weights), table.weight_stride, table.cols * element});
    if (halves) {
      member.fields.push_back(
          {static_cast<std::byte*>(table.low), table.low_stride, table.cols * 2});
    }
    member.state_floats = state_floats(shard->table().optimizer.type, table.cols);
    if (member.state_floats > 0) {
      member.fields.push_back(
          {static_cast<std::byte*>(table.state), table.state_stride, 4 * member.state_floats});
    }
    for (const Field& field : member.fields) {
      member.row_bytes += field.bytes;
    }
    member.random_key =
        random_key(options.seed, RandomPurpose::kReplicaAverage, shard->table().name);
    members_.push_back(std::move(member));
  }
  if (options.form == spec::SyncForm::kTouched) {
    touched_.emplace(replicas, shards);
  }
  if (options.codec.format != CodecFormat::kFp32) {
    coded_ =
        std::make_unique<CodedAverage>(replicas, device, shards, touched_ ? &*touched_ : nullptr,
                                       CodedAverageOptions{.codec = options.codec,
                                                           .error_feedback = options.error_feedback,
                                                           .seed = options.seed});
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
    touched_->note_updated(gradients);
  }
}

void ReplicaAverage::run(Context& ctx, std::int64_t step) {
  if (touched_) {
    touched_->unite(ctx);
  }
  if (coded_) {
    coded_->run(ctx, step);
    return;
  }
  cut_rounds();
  std::size_t begin = 0;
  for (const std::size_t end : round_ends_) {
    run_round(ctx, std::span(blocks_).subspan(begin, end - begin), step);
    begin = end;
  }
}

/// Rounds of at most kRoundBytes, or one row.
void ReplicaAverage::cut_rounds() {
  blocks_.clear();
  round_ends_.clear();
  std::int64_t left = kRoundBytes;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const Member& member = members_[m];
    const std::int64_t rows = touched_ ? static_cast<std::int64_t>(touched_->rows(m).size())
                                       : member.shard->rows().size();
    for (std::int64_t begin = 0; begin < rows;) {
      if (left < member.row_bytes && left < kRoundBytes) {
        round_ends_.push_back(blocks_.size());
        left = kRoundBytes;
      }
      const std::int64_t fit = std::max<std::int64_t>(1, left / member.row_bytes);
      const std::int64_t end = std::min(rows, begin + fit);
      blocks_.push_back({.member = m, .rows = {begin, end}});
      left -= (end - begin) * member.row_bytes;
      begin = end;
    }
  }
  if (!blocks_.empty()) {
    round_ends_.push_back(blocks_.size());
  }
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
      for (const Field& field : members_[block.member].fields) {
        recv_pieces_[m].push_back({nullptr, rows * field.bytes});
        bytes += (rows * field.bytes + 7) / 8 * 8;  // keeps rows aligned
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
      next += (piece.bytes + 7) / 8 * 8;
    }
  }
}

/// Rows of a block where this rank has them.
void ReplicaAverage::add_pieces(const Block& block,
                                Range rows,
                                std::vector<comm::Piece>& to) const {
  for (const Field& field : members_[block.member].fields) {
    comm::Piece piece{.data = field.data,
                      .bytes = rows.size() * field.bytes,
                      .row_bytes = field.bytes,
                      .stride = field.stride};
    if (touched_) {
      piece.rows = touched_->rows(block.member).data() + rows.begin;
    } else {
      piece.data = field.data + rows.begin * field.stride;
    }
    to.push_back(piece);
  }
}

void ReplicaAverage::average(Context& ctx,
                             std::span<const Block> round,
                             std::span<const comm::Lane> arrived,
                             std::int64_t step) {
  const auto self = static_cast<std::int64_t>(self_);
  tasks_.clear();
  for (const Block& block : round) {
    tasks_.add(task_count(owned(block, self).size(), kRowsPerTask));
  }
  tasks_.run(*ctx.pool, [&](std::int64_t b, std::int64_t task) {
    const Block& block = round[at(b)];
    const Range own = owned(block, self);
    const std::int64_t end = std::min(own.size(), (task + 1) * kRowsPerTask);
    for (std::int64_t i = task * kRowsPerTask; i < end; ++i) {
      const std::int64_t row =
          touched_ ? touched_->rows(block.member)[at(own.begin + i)] : own.begin + i;
      average_row(members_[block.member], {arrived, block.first_piece, i, row}, step);
    }
  });
}

const std::byte* ReplicaAverage::at_group(const Member& member,
                                          std::size_t field,
                                          const Replicas& replicas,
                                          std::size_t group) const {
  const Field& own = member.fields[field];
  if (group == self_) {
    return own.data + replicas.row * own.stride;
  }
  const comm::Piece& piece = replicas.arrived[group].pieces[replicas.first_piece + field];
  const auto* const data = static_cast<const std::byte*>(piece.data);
  if (piece.row_bytes == 0) {
    return data + replicas.index * own.bytes;
  }
  return data + piece.stride * (piece.rows == nullptr ? replicas.index
                                                      : std::int64_t{piece.rows[replicas.index]});
}

/// Bit by bit: their average is what they are.
bool ReplicaAverage::equal(const Member& member, const Replicas& replicas) const {
  for (std::size_t f = 0; f < member.fields.size(); ++f) {
    const std::byte* const first = at_group(member, f, replicas, 0);
    for (std::size_t m = 1; m < send_.size(); ++m) {
      if (std::memcmp(first, at_group(member, f, replicas, m), at(member.fields[f].bytes)) != 0) {
        return false;
      }
    }
  }
  return true;
}

void ReplicaAverage::average_row(const Member& member,
                                 const Replicas& replicas,
                                 std::int64_t step) const {
  if (equal(member, replicas)) {
    return;
  }
  switch (member.table.dtype) {
    case DType::kFloat16:
      average_halves<Float16>(member, replicas, step);
      break;
    case DType::kBFloat16:
      average_halves<BFloat16>(member, replicas, step);
      break;
    case DType::kSplitBFloat16:
      average_split(member, replicas);
      break;
    default:
      average_floats(member, 0, replicas);
  }
  if (member.state_floats > 0) {
    average_floats(member, member.fields.size() - 1, replicas);
  }
}

void ReplicaAverage::average_floats(const Member& member,
                                    std::size_t field,
                                    const Replicas& replicas) const {
  const Field& own = member.fields[field];
  auto* const out = reinterpret_cast<float*>(own.data + replicas.row * own.stride);
  for_columns(own.bytes / 4, [&](std::int64_t first, std::int64_t count) {
    std::array<double, kColumns> sums;
    for (std::size_t m = 0; m < send_.size(); ++m) {
      const auto* const values =
          reinterpret_cast<const float*>(at_group(member, field, replicas, m)) + first;
      add_term(m, count, [&](std::int64_t c) { return values[c]; }, sums.data());
    }
    for (std::int64_t c = 0; c < count; ++c) {
      out[first + c] = static_cast<float>(sums[at(c)] / groups_);
    }
  });
}

template <typename Element>
void ReplicaAverage::average_halves(const Member& member,
                                    const Replicas& replicas,
                                    std::int64_t step) const {
  const Field& own = member.fields[0];
  const kernels::RowTable& table = member.table;
  auto* const out = reinterpret_cast<Element*>(own.data + replicas.row * own.stride);
  for_columns(table.cols, [&](std::int64_t first, std::int64_t count) {
    std::array<double, kColumns> sums;
    for (std::size_t m = 0; m < send_.size(); ++m) {
      const auto* const values =
          reinterpret_cast<const Element*>(at_group(member, 0, replicas, m)) + first;
      add_term(m, count, [&](std::int64_t c) { return to_float(values[c]); }, sums.data());
    }
    std::array<std::uint32_t, 4> random{};
    for (std::int64_t c = 0; c < count; ++c) {
      const auto col = static_cast<std::uint64_t>(table.first_col + first + c);
      if (col % 4 == 0) {
        random =
            philox(member.random_key, static_cast<std::uint64_t>(table.whole_row(replicas.row)),
                   (static_cast<std::uint64_t>(step) << 20) + col / 4);
      }
      out[first + c] =
          rounded(Element{}, static_cast<float>(sums[at(c)] / groups_), random[at(col % 4)]);
    }
  });
}

void ReplicaAverage::average_split(const Member& member, const Replicas& replicas) const {
  const Field& own = member.fields[0];
  const Field& own_low = member.fields[1];
  auto* const high = reinterpret_cast<BFloat16*>(own.data + replicas.row * own.stride);
  auto* const low = reinterpret_cast<std::int16_t*>(own_low.data + replicas.row * own_low.stride);
  for_columns(member.table.cols, [&](std::int64_t first, std::int64_t count) {
    std::array<double, kColumns> sums;
    for (std::size_t m = 0; m < send_.size(); ++m) {
      const auto* const highs =
          reinterpret_cast<const BFloat16*>(at_group(member, 0, replicas, m)) + first;
      const auto* const lows =
          reinterpret_cast<const std::int16_t*>(at_group(member, 1, replicas, m)) + first;
      add_term(
          m, count, [&](std::int64_t c) { return to_float(SplitBFloat16{highs[c], lows[c]}); },
          sums.data());
    }
    for (std::int64_t c = 0; c < count; ++c) {
      const SplitBFloat16 halves = to_split_bfloat16(static_cast<float>(sums[at(c)] / groups_));
      high[first + c] = halves.high;
      low[first + c] = halves.low;
    }
  });
}

}  // namespace weft::sharding
