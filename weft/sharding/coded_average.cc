#include "weft/sharding/coded_average.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/replicas.h"
#include "weft/tensor/device.h"
#include "weft/tensor/stream.h"

namespace weft::sharding {

CodedAverage::CodedAverage(comm::Communicator& replicas,
                           Device& device,
                           const std::vector<embedding::TableShard*>& shards,
                           AveragedRows rows,
                           const CodedAverageOptions& options)
    : replicas_(replicas),
      rows_(std::move(rows)),
      codec_(options.codec),
      self_(at(replicas.rank())),
      groups_(at(replicas.size())),
      owned_(groups_, rows_.touched),
      lane_bytes_(groups_),
      lane_begins_(groups_),
      sent_(device),
      means_(device),
      received_(device),
      send_pieces_(groups_),
      recv_pieces_(groups_),
      send_(groups_),
      recv_(groups_) {
  WEFT_CHECK(codec_.rounding == CodecRounding::kNearest, "syncs round to nearest");
  for (std::size_t s = 0; s < shards.size(); ++s) {
    add_member(device, *shards[s], rows_.lists[s], options);
  }
  if (options.error_feedback) {
    residuals_.emplace(device, shards, replicas.rank());
  }
  const std::unique_ptr<Stream> stream =
      device.make_stream({.name = "rows of the last sync", .is_inline = true});
  const Stage stage = [this](Context& ctx) {
    if (residuals_) {
      residuals_->clear(ctx);
    }
    restored(ctx);
  };
  stream->enqueue(stage);
  stream->synchronize();
}

void CodedAverage::add_member(Device& device,
                              const embedding::TableShard& shard,
                              std::size_t list,
                              const CodedAverageOptions& options) {
  Member member;
  member.list = list;
  member.shard = &shard;
  member.table = shard.row_table();
  std::int64_t lost = 0;
  for (const StateItem& item : shard.state_items()) {
    kernels::ChangeVector vector;
    vector.squares = is_squares(shard.table().optimizer.type, item.kind);
    vector.cols = item.col_end - item.col_begin;
    vector.lost = lost;
    if (item.kind != "weight") {
      vector.part = kernels::RowCopy::Part::kState;
      vector.first = member.state_floats;
      member.state_floats += vector.cols;
    }
    lost += vector.cols;
    member.row_bytes += kernels::encoded_bytes(codec_, vector.cols);
    member.vectors.push_back(vector);
  }
  const std::int64_t rows = shard.rows().size();
  member.draws = shard.average_draws(options.seed);
  if (shard.tier() != nullptr) {
    WEFT_CHECK(list != kAllRows, "table '{}': an average of all rows", shard.table().name);
    member.kept = std::make_unique<KeptRows>(device, shard, options.error_feedback ? lost : 0);
    member.kept->leave_out(options.left_out);
    if (options.error_feedback) {
      member.residuals = std::make_unique<ListedResiduals>(shard, *member.kept, replicas_.rank());
    }
  } else {
    const std::int64_t cols = member.table.cols;
    const auto copies = layout::sync_copy_lengths(rows, layout::sync_row(shard.table(), cols), 0);
    member.weights = Buffer(device, copies.weights.bytes());
    member.state = Buffer(device, copies.state.bytes());
  }
  sizes_.push_back({.rows = rows, .row_bytes = member.row_bytes, .list = list});
  members_.push_back(std::move(member));
}

/// Jobs that make rows as they are those of the last sync.
void CodedAverage::take_rows(const Member& member, Range rows) {
  const kernels::RowTable& table = member.table;
  const std::int64_t element = kernels::element_bytes(table, kernels::RowCopy::Part::kWeights);
  kernels::RowCopy copy{.table = table, .slots = member.shard->resolve(rows), .cols = table.cols};
  copy.stride = table.cols * element;
  copy.matrix = member.weights.as<void>();
  copy.first_row = rows.begin;
  copies_.push_back(copy);
  if (member.state_floats > 0) {
    copy.part = kernels::RowCopy::Part::kState;
    copy.cols = member.state_floats;
    copy.stride = member.state_floats * static_cast<std::int64_t>(sizeof(float));
    copy.matrix = member.state.as<void>();
    copies_.push_back(copy);
  }
}

/// Of rows that are not all in memory nothing but what is lost is kept at a sync.
void CodedAverage::restored(Context& ctx) {
  copies_.clear();
  for (const Member& member : members_) {
    if (!member.kept) {
      take_rows(member, {0, member.shard->rows().size()});
    }
  }
  kernels::copy_from_rows(ctx, copies_);
  for (std::size_t m = 0; residuals_ && m < members_.size(); ++m) {
    const Member& member = members_[m];
    if (member.list == kAllRows) {
      continue;
    }
    residual_rows_.clear();
    if (member.kept) {
      member.kept->list_lost(residual_rows_);
    } else {
      residuals_->list_rows(ctx, m, residual_rows_);
    }
    rows_.touched->add(member.list, residual_rows_);
  }
}

void CodedAverage::stored(const embedding::TableShard& shard, std::span<const Range> rows) {
  const auto member = std::find_if(members_.begin(), members_.end(),
                                   [&](const Member& one) { return one.shard == &shard; });
  WEFT_CHECK(member != members_.end(), "table '{}' is not averaged", shard.table().name);
  if (member->kept) {
    return;  // at a sync no values are kept
  }
  copies_.clear();
  const RowSet& held = shard.rows();
  // The number of held rows below a row of the table.
  const auto held_below = [&held](std::int64_t row) {
    return RowSet(held.begin, std::clamp(row, held.begin, held.end), held.step).size();
  };
  for (const Range& range : rows) {
    const Range own{held_below(range.begin), held_below(range.end)};
    if (!own.empty()) {
      take_rows(*member, own);
    }
  }
  Context ctx{.device = sent_.device()};
  kernels::copy_from_rows(ctx, copies_);
}

std::int64_t CodedAverage::copies_bytes() const {
  std::int64_t bytes = 0;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    if (members_[m].kept) {
      bytes += members_[m].kept->bytes();
      continue;
    }
    bytes += members_[m].weights.bytes() + members_[m].state.bytes();
    bytes += residuals_ ? members_[m].shard->rows().size() * residuals_->floats(m) * 4 : 0;
  }
  return bytes;
}

SyncClips CodedAverage::clips() const {
  // An atomic view of a constant is C++26's.
  const auto load = [](const std::int64_t& count) {
    return std::atomic_ref(const_cast<std::int64_t&>(count)).load(std::memory_order_relaxed);
  };
  return {.codec = {.non_finite = load(clips_.non_finite), .clipped = load(clips_.clipped)},
          .kept = load(kept_)};
}

std::vector<ResidualState*> CodedAverage::residual_states() {
  std::vector<ResidualState*> all;
  if (residuals_) {
    all.push_back(&*residuals_);
  }
  for (const Member& member : members_) {
    if (member.residuals) {
      all.push_back(member.residuals.get());
    }
  }
  return all;
}

void CodedAverage::keep_values(Context& ctx, std::span<embedding::RowGradients* const> gradients) {
  changes_.clear();
  const auto read = [this](std::vector<std::int32_t>& to) {
    to.clear();
    std::transform(updated_.begin(), updated_.end(), std::back_inserter(to),
                   [](std::int64_t value) { return static_cast<std::int32_t>(value); });
  };
  for (std::size_t m = 0; m < members_.size(); ++m) {
    Member& member = members_[m];
    if (!member.kept) {
      continue;
    }
    gradients[m]->read_unique_rows(updated_);
    read(member.rows);
    gradients[m]->read_slots(updated_);
    read(member.slots);
    member.kept->keep(ctx, member.rows);
    add_fresh(member, member.rows.data(), member.slots.data());
  }
  kernels::take_row_values(ctx, changes_);
}

/// A job that takes the values of rows that have just begun to be kept; lists are those of keep().
void CodedAverage::add_fresh(const Member& member,
                             const std::int32_t* rows,
                             const std::int32_t* slots) {
  changes_.push_back({.codec = codec_,
                      .table = member.table,
                      .rows = {.count = std::ssize(member.kept->fresh()),
                               .places = member.kept->fresh().data(),
                               .rows = rows,
                               .slots = slots,
                               .copies = member.kept->copies().data()},
                      .vectors = member.vectors,
                      .last_weights = member.kept->weights(),
                      .last_state = member.kept->state(),
                      .state_floats = member.state_floats});
}

void CodedAverage::run(Context& ctx, std::int64_t step) {
  for (std::size_t m = 0; m < members_.size(); ++m) {
    sizes_[m].most_rows = members_[m].kept ? rows_.slots->most_rows(m) : 0;
  }
  owned_.cut(ctx, sizes_, layout::kRoundBytes);
  place_flags();
  for (std::size_t r = 0; r < owned_.num_rounds(); ++r) {
    fetch_round(ctx, owned_.round(r));
    run_round(ctx, owned_.round(r), step);
    settle_round(owned_.round(r));
  }
  if (residuals_) {
    note_residuals();
  }
}

/// No listed row has lost anything yet.
void CodedAverage::place_flags() {
  first_flags_.clear();
  std::size_t flags = 0;
  for (const Member& member : members_) {
    first_flags_.push_back(flags);
    flags += member.list == kAllRows ? 0 : rows_.touched->rows(member.list).size();
  }
  flags_.assign(flags, 0);
}

/// Of the rows of a block with a list.
std::uint8_t* CodedAverage::flags_of(const RowBlock& block) {
  return flags_.data() + first_flags_[block.shard] + block.rows.begin;
}

/// Rows of shards that have not all in slots get theirs, and those that no update of this group has
/// changed are kept as they are.
void CodedAverage::fetch_round(Context& ctx, std::span<const RowBlock> round) {
  for (const RowBlock& block : round) {
    if (members_[block.shard].kept) {
      rows_.slots->begin(ctx, block.shard, owned_.listed(block));
    }
  }
  rows_.slots->finish(ctx);
  changes_.clear();
  for (const RowBlock& block : round) {
    const Member& member = members_[block.shard];
    if (member.kept) {
      member.kept->keep(ctx, owned_.listed(block));
      add_fresh(member, owned_.listed(block).data(), rows_.slots->slots(block.shard));
    }
  }
  kernels::take_row_values(ctx, changes_);
}

/// Rows give up their slots, and what is not lost of them is kept no longer.
void CodedAverage::settle_round(std::span<const RowBlock> round) {
  for (const RowBlock& block : round) {
    const Member& member = members_[block.shard];
    if (member.kept) {
      member.kept->settle(owned_.listed(block), {flags_of(block), at(block.rows.size())});
    }
  }
  rows_.slots->release();
}

void CodedAverage::run_round(Context& ctx, std::span<RowBlock> round, std::int64_t step) {
  describe_round(round);
  encode_changes(ctx, round, step);
  describe_changes();
  replicas_.exchange_lent(ctx, send_, recv_, [&](std::span<const comm::Lane> arrived) {
    average(ctx, round, arrived, step);
  });
  describe_means();
  replicas_.exchange_lent(ctx, send_, recv_, [&](std::span<const comm::Lane> arrived) {
    add_means(ctx, round, arrived, step);
  });
}

/// Where the codes of each owner's rows lie among all that it owns in the round; buffers.
void CodedAverage::describe_round(std::span<RowBlock> round) {
  offsets_.clear();
  std::fill(lane_bytes_.begin(), lane_bytes_.end(), 0);
  for (RowBlock& block : round) {
    block.first_offset = offsets_.size();
    for (std::size_t g = 0; g < groups_; ++g) {
      offsets_.push_back(lane_bytes_[g]);
      lane_bytes_[g] += owned_.of(block, g).count * members_[block.shard].row_bytes;
    }
  }
  std::int64_t away = 0;
  for (std::size_t g = 0; g < groups_; ++g) {
    lane_begins_[g] = away;
    away += g == self_ ? 0 : lane_bytes_[g];
  }
  const auto lengths =
      layout::sync_round_lengths<std::int64_t>({.own = lane_bytes_[self_],
                                                .away = away,
                                                .groups = static_cast<std::int64_t>(groups_),
                                                .lent = replicas_.lends()});
  sent_.resize_for(lengths.sent);
  means_.resize_for(lengths.means);
  received_.resize_for(lengths.received);
}

/// Changes of rows to their owners.
void CodedAverage::describe_changes() {
  std::byte* next = replicas_.lends() ? nullptr : received_.as<std::byte>();
  for (std::size_t g = 0; g < groups_; ++g) {
    if (g == self_) {
      send_[g] = recv_[g] = {.pieces = {}, .silent = true};
      continue;
    }
    send_pieces_[g] = {sent_.as<std::byte>() + lane_begins_[g], lane_bytes_[g]};
    recv_pieces_[g] = {next, lane_bytes_[self_]};
    next += next == nullptr ? 0 : lane_bytes_[self_];
    send_[g] = {.pieces = {&send_pieces_[g], 1}};
    recv_[g] = {.pieces = {&recv_pieces_[g], 1}};
  }
}

/// Means of the own rows to all.
void CodedAverage::describe_means() {
  std::byte* const received = replicas_.lends() ? nullptr : received_.as<std::byte>();
  for (std::size_t g = 0; g < groups_; ++g) {
    if (g == self_) {
      send_[g] = recv_[g] = {.pieces = {}, .silent = true};
      continue;
    }
    send_pieces_[g] = {means_.as<std::byte>(), lane_bytes_[self_]};
    recv_pieces_[g] = {received == nullptr ? nullptr : received + lane_begins_[g], lane_bytes_[g]};
    send_[g] = {.pieces = {&send_pieces_[g], 1}};
    recv_[g] = {.pieces = {&recv_pieces_[g], 1}};
  }
}

/// The rows of a block that a group owns; `lane` has the codes of all that it owns in the round.
kernels::RowChanges CodedAverage::changes(const RowBlock& block,
                                          std::size_t group,
                                          std::byte* lane,
                                          std::int64_t step) {
  const Member& member = members_[block.shard];
  kernels::RowChanges job{.codec = codec_,
                          .table = member.table,
                          .rows = owned_.of(block, group),
                          .vectors = member.vectors,
                          .last_weights = member.weights.as<void>(),
                          .last_state = member.state.as<float>(),
                          .state_floats = member.state_floats,
                          .codes = lane + offsets_[block.first_offset + group],
                          .clips = &clips_,
                          .draws = member.draws,
                          .step = static_cast<std::uint64_t>(step)};
  if (member.kept) {
    job.rows.slots = rows_.slots->slots(block.shard);
    job.rows.copies = member.kept->copies().data();
    job.last_weights = member.kept->weights();
    job.last_state = member.kept->state();
    job.lost = member.kept->lost();
    job.lost_floats = member.kept->floats();
  } else if (is_listed(block)) {
    job.rows.slots = member.shard->resolve(owned_.listed(block)).data();
  } else {
    job.rows.first_slot = member.shard->resolve({job.rows.first, block.rows.end}).begin;
  }
  if (residuals_ && !member.kept) {
    job.lost = residuals_->values(block.shard);
    job.lost_floats = residuals_->floats(block.shard);
  }
  job.flags = is_listed(block) && residuals_ ? flags_of(block) : nullptr;
  return job;
}

void CodedAverage::encode_changes(Context& ctx,
                                  std::span<const RowBlock> round,
                                  std::int64_t step) {
  changes_.clear();
  for (const RowBlock& block : round) {
    for (std::size_t g = 0; g < groups_; ++g) {
      if (g != self_) {
        changes_.push_back(changes(block, g, sent_.as<std::byte>() + lane_begins_[g], step));
      }
    }
  }
  kernels::encode_row_changes(ctx, changes_);
}

void CodedAverage::average(Context& ctx,
                           std::span<const RowBlock> round,
                           std::span<const comm::Lane> arrived,
                           std::int64_t step) {
  arrived_.clear();
  for (const RowBlock& block : round) {
    for (std::size_t g = 0; g < groups_; ++g) {
      const auto* const lane =
          g == self_ ? nullptr : static_cast<const std::byte*>(arrived[g].pieces.front().data);
      arrived_.push_back(g == self_ ? nullptr : lane + offsets_[block.first_offset + self_]);
    }
  }
  averages_.clear();
  for (const RowBlock& block : round) {
    averages_.push_back(
        {.changes = changes(block, self_, means_.as<std::byte>(), step),
         .arrived = std::span(arrived_).subspan(averages_.size() * groups_, groups_),
         .kept = &kept_});
  }
  kernels::average_row_changes(ctx, averages_);
}

void CodedAverage::add_means(Context& ctx,
                             std::span<const RowBlock> round,
                             std::span<const comm::Lane> arrived,
                             std::int64_t step) {
  changes_.clear();
  for (const RowBlock& block : round) {
    for (std::size_t g = 0; g < groups_; ++g) {
      if (g != self_) {
        auto* const lane = static_cast<std::byte*>(arrived[g].pieces.front().data);
        changes_.push_back(changes(block, g, lane, step));
      }
    }
  }
  kernels::add_row_means(ctx, changes_);
}

/// Rows of which something is lost are touched again.
void CodedAverage::note_residuals() {
  for (std::size_t m = 0; m < members_.size(); ++m) {
    if (members_[m].list == kAllRows) {
      continue;
    }
    const std::span<const std::int32_t> rows = rows_.touched->rows(members_[m].list);
    residual_rows_.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (flags_[first_flags_[m] + i] != 0) {
        residual_rows_.push_back(rows[i]);
      }
    }
    rows_.touched->add(members_[m].list, residual_rows_);
  }
}

}  // namespace weft::sharding
