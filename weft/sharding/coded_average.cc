#include "weft/sharding/coded_average.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/base/thread_pool.h"
#include "weft/kernels/cpu/codec_range.h"
#include "weft/sharding/group_average.h"
#include "weft/tensor/device.h"
#include "weft/tensor/stream.h"

namespace weft::sharding {
namespace {

constexpr std::int64_t kChunkFloats = 4096;  ///< 16 KiB: what a task has in hand stays in the cache

// Below these shares of a number what was lost of it is forgotten.
constexpr float kLeastShare = 0x1p-26F;
constexpr float kLeast = 0x1p-120F;

bool is_half(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

template <typename Element>
void to_floats(const Element* halves, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = to_float(halves[i]);
  }
}

std::byte* weights_of(const kernels::RowTable& table, std::int64_t row) {
  return static_cast<std::byte*>(table.weights) + row * table.weight_stride;
}

std::byte* low_of(const kernels::RowTable& table, std::int64_t row) {
  return static_cast<std::byte*>(table.low) + row * table.low_stride;
}

float* state_of(const kernels::RowTable& table, std::int64_t row) {
  return reinterpret_cast<float*>(static_cast<std::byte*>(table.state) + row * table.state_stride);
}

/// The weights of a row in fp32.
void read_weights(const kernels::RowTable& table, std::int64_t row, float* out) {
  const std::byte* const weights = weights_of(table, row);
  switch (table.dtype) {
    case DType::kFloat16:
      to_floats(reinterpret_cast<const Float16*>(weights), table.cols, out);
      break;
    case DType::kBFloat16:
      to_floats(reinterpret_cast<const BFloat16*>(weights), table.cols, out);
      break;
    case DType::kSplitBFloat16: {
      const auto* const highs = reinterpret_cast<const BFloat16*>(weights);
      const auto* const lows = reinterpret_cast<const std::int16_t*>(low_of(table, row));
      for (std::int64_t c = 0; c < table.cols; ++c) {
        out[c] = to_float(SplitBFloat16{highs[c], lows[c]});
      }
      break;
    }
    default:
      std::memcpy(out, weights, at(table.cols) * sizeof(float));
  }
}

/// What is left of `lost` for the next time.
float worth_keeping(float lost, float last) {
  const float size = std::fabs(lost);
  const float least = std::max(std::fabs(last) * kLeastShare, kLeast);
  return size >= least && size <= std::numeric_limits<float>::max() ? lost : 0.0F;
}

}  // namespace

CodedAverage::CodedAverage(comm::Communicator& replicas,
                           Device& device,
                           const std::vector<embedding::TableShard*>& shards,
                           TouchedRows* touched,
                           const CodedAverageOptions& options)
    : replicas_(replicas),
      touched_(touched),
      codec_(options.codec),
      self_(at(replicas.rank())),
      groups_(at(replicas.size())),
      chunk_floats_(kChunkFloats),
      lanes_(device.pool().threads()),
      scratch_(device),
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
  for (const embedding::TableShard* shard : shards) {
    add_member(device, *shard, options.seed);
  }
  chunk_floats_ = (chunk_floats_ + 15) / 16 * 16;  // keeps doubles aligned
  scratch_.resize(lanes_ * chunk_floats_ *
                  static_cast<std::int64_t>(4 * sizeof(float) + sizeof(double)));
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
                              std::uint64_t seed) {
  Member member;
  member.shard = &shard;
  member.table = shard.row_table();
  std::int64_t residual = 0;
  for (const StateItem& item : shard.state_items()) {
    Vector vector;
    vector.of_weights = item.kind == "weight";
    vector.squares = is_squares(shard.table().optimizer.type, item.kind);
    vector.cols = item.col_end - item.col_begin;
    vector.residual = residual;
    vector.bytes = kernels::encoded_bytes(codec_, vector.cols);
    if (!vector.of_weights) {
      vector.first = member.state_floats;
      member.state_floats += vector.cols;
    }
    residual += vector.cols;
    member.row_bytes += vector.bytes;
    chunk_floats_ = std::max(chunk_floats_, vector.cols);
    member.vectors.push_back(vector);
  }
  const std::int64_t rows = shard.rows().size();
  member.random_key = random_key(seed, RandomPurpose::kReplicaAverage, shard.table().name);
  member.weights = Buffer(device, rows * member.table.cols * (is_half(member.table.dtype) ? 2 : 4));
  member.state = Buffer(device, rows * member.state_floats * 4);
  members_.push_back(std::move(member));
}

/// Jobs that make rows as they are those of the last sync.
void CodedAverage::take_rows(const Member& member, Range rows) {
  const kernels::RowTable& table = member.table;
  const std::int64_t element = kernels::element_bytes(table, kernels::RowCopy::Part::kWeights);
  kernels::RowCopy copy{.table = table, .slots = rows, .cols = table.cols};
  copy.stride = table.cols * element;
  copy.matrix = member.weights.as<std::byte>() + rows.begin * copy.stride;
  copies_.push_back(copy);
  if (member.state_floats > 0) {
    copy.part = kernels::RowCopy::Part::kState;
    copy.cols = member.state_floats;
    copy.stride = member.state_floats * static_cast<std::int64_t>(sizeof(float));
    copy.matrix = member.state.as<std::byte>() + rows.begin * copy.stride;
    copies_.push_back(copy);
  }
}

void CodedAverage::restored(Context& ctx) {
  copies_.clear();
  for (const Member& member : members_) {
    take_rows(member, {0, member.shard->rows().size()});
  }
  kernels::copy_from_rows(ctx, copies_);
  for (std::size_t m = 0; touched_ != nullptr && residuals_ && m < members_.size(); ++m) {
    residual_rows_.clear();
    for (std::int64_t row = 0; row < members_[m].shard->rows().size(); ++row) {
      if (residuals_->any(m, row)) {
        residual_rows_.push_back(static_cast<std::int32_t>(row));
      }
    }
    touched_->add(m, residual_rows_);
  }
}

void CodedAverage::stored(const embedding::TableShard& shard, std::span<const Range> rows) {
  const auto member = std::find_if(members_.begin(), members_.end(),
                                   [&](const Member& one) { return one.shard == &shard; });
  WEFT_CHECK(member != members_.end(), "table '{}' is not averaged", shard.table().name);
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
  Context ctx{.device = scratch_.device()};
  kernels::copy_from_rows(ctx, copies_);
}

std::int64_t CodedAverage::copies_bytes() const {
  std::int64_t bytes = 0;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    bytes += members_[m].weights.bytes() + members_[m].state.bytes();
    bytes += residuals_ ? members_[m].shard->rows().size() * residuals_->floats(m) * 4 : 0;
  }
  return bytes;
}

SyncClips CodedAverage::clips() const {
  return {.codec = {.non_finite = non_finite_.load(std::memory_order_relaxed),
                    .clipped = clipped_.load(std::memory_order_relaxed)},
          .kept = kept_.load(std::memory_order_relaxed)};
}

void CodedAverage::run(Context& ctx, std::int64_t step) {
  cut_rounds();
  if (touched_ != nullptr) {
    deal_rows(ctx);
  }
  std::size_t begin = 0;
  for (const std::size_t end : round_ends_) {
    run_round(ctx, std::span(blocks_).subspan(begin, end - begin), step);
    begin = end;
  }
  if (touched_ != nullptr && residuals_) {
    note_residuals();
  }
}

/// Rounds of at most kRoundBytes, or one row.
void CodedAverage::cut_rounds() {
  blocks_.clear();
  round_ends_.clear();
  std::int64_t left = kRoundBytes;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const Member& member = members_[m];
    const std::int64_t rows = touched_ != nullptr
                                  ? static_cast<std::int64_t>(touched_->rows(m).size())
                                  : member.shard->rows().size();
    for (std::int64_t begin = 0; begin < rows;) {
      if (left < member.row_bytes && left < kRoundBytes) {
        round_ends_.push_back(blocks_.size());
        left = kRoundBytes;
      }
      const std::int64_t fit = std::max<std::int64_t>(1, left / member.row_bytes);
      const std::int64_t end = std::min(rows, begin + fit);
      Block block;
      block.member = m;
      block.rows = {begin, end};
      blocks_.push_back(block);
      left -= (end - begin) * member.row_bytes;
      begin = end;
    }
  }
  if (!blocks_.empty()) {
    round_ends_.push_back(blocks_.size());
  }
}

/// Of touched rows those of each owner, one owner's behind the other's, block by block.
void CodedAverage::deal_rows(Context& ctx) {
  std::size_t places = 0;
  std::size_t begins = 0;
  for (Block& block : blocks_) {
    block.first_place = places;
    block.first_begin = begins;
    places += at(block.rows.size());
    begins += groups_ + 1;
  }
  places_.resize(places);
  owner_begins_.resize(begins);
  first_flags_.clear();
  std::size_t flags = 0;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    first_flags_.push_back(flags);
    flags += touched_->rows(m).size();
  }
  flags_.assign(flags, 0);
  ctx.pool->parallel_for(static_cast<std::int64_t>(blocks_.size()),
                         [&](std::int64_t b) { deal_block(blocks_[at(b)]); });
}

void CodedAverage::deal_block(const Block& block) {
  const std::span<const std::int32_t> rows = touched_->rows(block.member);
  std::int64_t* const begins = owner_begins_.data() + block.first_begin;
  const auto owner = [&](std::int64_t place) {
    return static_cast<std::size_t>(rows[at(place)]) % groups_;
  };
  std::fill_n(begins, groups_ + 1, 0);
  for (std::int64_t place = block.rows.begin; place < block.rows.end; ++place) {
    ++begins[owner(place) + 1];
  }
  for (std::size_t g = 0; g < groups_; ++g) {
    begins[g + 1] += begins[g];
  }
  for (std::int64_t place = block.rows.begin; place < block.rows.end; ++place) {
    places_[block.first_place + at(begins[owner(place)]++)] = static_cast<std::int32_t>(place);
  }
  for (std::size_t g = groups_; g > 0; --g) {  // each has become the next one's
    begins[g] = begins[g - 1];
  }
  begins[0] = 0;
}

CodedAverage::Owned CodedAverage::owned(const Block& block, std::size_t group) const {
  Owned rows;
  if (touched_ != nullptr) {
    const std::int64_t* const begins = owner_begins_.data() + block.first_begin;
    rows.count = begins[group + 1] - begins[group];
    rows.places = places_.data() + block.first_place + begins[group];
    rows.list = touched_->rows(block.member).data();
    return rows;
  }
  const auto groups = static_cast<std::int64_t>(groups_);
  const std::int64_t ahead =
      (static_cast<std::int64_t>(group) - block.rows.begin % groups + groups) % groups;
  rows.first = block.rows.begin + ahead;
  rows.step = groups;
  rows.count = rows.first < block.rows.end ? (block.rows.end - rows.first - 1) / groups + 1 : 0;
  return rows;
}

void CodedAverage::run_round(Context& ctx, std::span<Block> round, std::int64_t step) {
  describe_round(round);
  run_tasks(ctx, others_,
            [&](const Task& task, const Scratch& scratch) { encode_changes(task, scratch); });
  describe_changes();
  replicas_.exchange_lent(ctx, send_, recv_, [&](std::span<const comm::Lane> arrived) {
    run_tasks(ctx, own_, [&](const Task& task, const Scratch& scratch) {
      average(task, arrived, scratch, step);
    });
  });
  describe_means();
  replicas_.exchange_lent(ctx, send_, recv_, [&](std::span<const comm::Lane> arrived) {
    run_tasks(ctx, others_, [&](const Task& task, const Scratch& scratch) {
      const void* const from = arrived[task.owner].pieces.front().data;
      take_means(task, static_cast<const std::byte*>(from), scratch, step);
    });
  });
}

/// Where the codes of each owner's rows lie among all that it owns in the round; tasks; buffers.
void CodedAverage::describe_round(std::span<Block> round) {
  offsets_.clear();
  others_.clear();
  own_.clear();
  std::fill(lane_bytes_.begin(), lane_bytes_.end(), 0);
  for (Block& block : round) {
    block.first_offset = offsets_.size();
    for (const Vector& vector : members_[block.member].vectors) {
      for (std::size_t g = 0; g < groups_; ++g) {
        offsets_.push_back(lane_bytes_[g]);
        lane_bytes_[g] += owned(block, g).count * vector.bytes;
      }
    }
    for (std::size_t g = 0; g < groups_; ++g) {
      const std::int64_t rows = owned(block, g).count;
      for (std::int64_t begin = 0; begin < rows; begin += kRowsPerTask) {
        (g == self_ ? own_ : others_)
            .push_back({.block = static_cast<std::size_t>(&block - blocks_.data()),
                        .owner = g,
                        .rows = {begin, std::min(rows, begin + kRowsPerTask)}});
      }
    }
  }
  std::int64_t away = 0;
  for (std::size_t g = 0; g < groups_; ++g) {
    lane_begins_[g] = away;
    away += g == self_ ? 0 : lane_bytes_[g];
  }
  sent_.resize(away);
  means_.resize(lane_bytes_[self_]);
  if (!replicas_.lends()) {
    received_.resize(std::max(away, static_cast<std::int64_t>(groups_ - 1) * lane_bytes_[self_]));
  }
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

/// Each of some threads takes the next task with memory of its own.
template <typename Body>
void CodedAverage::run_tasks(Context& ctx, std::span<const Task> tasks, const Body& body) {
  const std::int64_t lanes = std::min(lanes_, static_cast<std::int64_t>(tasks.size()));
  if (lanes == 0) {
    return;
  }
  std::atomic<std::size_t> next = 0;
  ctx.pool->parallel_for(lanes, [&](std::int64_t lane) {
    // [lanes][chunk] doubles, then [lanes][4][chunk] floats.
    auto* const floats = reinterpret_cast<float*>(scratch_.as<double>() + lanes_ * chunk_floats_) +
                         lane * 4 * chunk_floats_;
    const Scratch scratch{.values = floats,
                          .last = floats + chunk_floats_,
                          .decoded = floats + 2 * chunk_floats_,
                          .moved = floats + 3 * chunk_floats_,
                          .sums = scratch_.as<double>() + lane * chunk_floats_};
    for (std::size_t t = next.fetch_add(1); t < tasks.size(); t = next.fetch_add(1)) {
      body(tasks[t], scratch);
    }
  });
}

/// Some rows of one vector at a time, all vectors of a row in one task.
template <typename Body>
void CodedAverage::for_chunks(const Task& task, const Body& body) const {
  const Block& block = blocks_[task.block];
  const std::vector<Vector>& vectors = members_[block.member].vectors;
  const Owned rows = owned(block, task.owner);
  for (std::size_t v = 0; v < vectors.size(); ++v) {
    const Vector& vector = vectors[v];
    const std::int64_t at_once = std::max<std::int64_t>(1, kChunkFloats / vector.cols);
    const std::int64_t offset = offsets_[block.first_offset + v * groups_ + task.owner];
    for (std::int64_t begin = task.rows.begin; begin < task.rows.end; begin += at_once) {
      body(Chunk{.member = block.member,
                 .vector = &vector,
                 .owned = rows,
                 .rows = {begin, std::min(task.rows.end, begin + at_once)},
                 .offset = offset + begin * vector.bytes});
    }
  }
}

void CodedAverage::encode_changes(const Task& task, const Scratch& scratch) {
  std::byte* const to = sent_.as<std::byte>() + lane_begins_[task.owner];
  for_chunks(task, [&](const Chunk& chunk) {
    read(chunk, scratch.values);
    read_last(chunk, scratch.last);
    const std::int64_t cols = chunk.vector->cols;
    for (std::int64_t i = 0; i < chunk.floats(); ++i) {
      scratch.values[i] -= scratch.last[i];
    }
    for (std::int64_t k = 0; residuals_ && k < chunk.rows.size(); ++k) {
      const float* const lost =
          residuals_->row(chunk.member, chunk.row(k)) + chunk.vector->residual;
      float* const change = scratch.values + k * cols;
      for (std::int64_t c = 0; c < cols; ++c) {
        change[c] += lost[c];
      }
    }
    encode(chunk, scratch.values, to);
    if (residuals_) {
      decode(chunk, to, scratch.decoded);
      keep_residuals(chunk, scratch);
    }
  });
}

void CodedAverage::average(const Task& task,
                           std::span<const comm::Lane> arrived,
                           const Scratch& scratch,
                           std::int64_t step) {
  std::int64_t kept = 0;
  for_chunks(task, [&](const Chunk& chunk) {
    read(chunk, scratch.values);
    read_last(chunk, scratch.last);
    const std::int64_t cols = chunk.vector->cols;
    const std::int64_t count = chunk.floats();
    for (std::size_t m = 0; m < groups_; ++m) {
      if (m == self_) {
        add_term(
            m, count,
            [&](std::int64_t i) {
              return static_cast<double>(scratch.values[i]) - static_cast<double>(scratch.last[i]);
            },
            scratch.sums);
        continue;
      }
      const void* const from = arrived[m].pieces.front().data;
      decode(chunk, static_cast<const std::byte*>(from), scratch.decoded);
      add_term(
          m, count, [&](std::int64_t i) { return static_cast<double>(scratch.decoded[i]); },
          scratch.sums);
    }
    const auto groups = static_cast<double>(groups_);
    for (std::int64_t k = 0; k < chunk.rows.size(); ++k) {
      const double* const sums = scratch.sums + k * cols;
      float* const means = scratch.values + k * cols;
      const float* const lost =
          residuals_ ? residuals_->row(chunk.member, chunk.row(k)) + chunk.vector->residual
                     : nullptr;
      for (std::int64_t c = 0; c < cols; ++c) {
        const double more = lost == nullptr ? 0.0 : static_cast<double>(lost[c]);
        means[c] = static_cast<float>(sums[c] / groups + more);
      }
    }
    encode(chunk, scratch.values, means_.as<std::byte>());
    decode(chunk, means_.as<std::byte>(), scratch.decoded);
    kept += move(chunk, scratch, step);
    if (residuals_) {
      keep_residuals(chunk, scratch);
    }
  });
  kept_.fetch_add(kept, std::memory_order_relaxed);
}

void CodedAverage::take_means(const Task& task,
                              const std::byte* from,
                              const Scratch& scratch,
                              std::int64_t step) {
  for_chunks(task, [&](const Chunk& chunk) {
    read_last(chunk, scratch.last);
    decode(chunk, from, scratch.decoded);
    move(chunk, scratch, step);
  });
}

void CodedAverage::read(const Chunk& chunk, float* out) const {
  const Vector& vector = *chunk.vector;
  const kernels::RowTable& table = members_[chunk.member].table;
  for (std::int64_t k = 0; k < chunk.rows.size(); ++k) {
    float* const to = out + k * vector.cols;
    if (vector.of_weights) {
      read_weights(table, chunk.row(k), to);
    } else {
      std::memcpy(to, state_of(table, chunk.row(k)) + vector.first,
                  at(vector.cols) * sizeof(float));
    }
  }
}

void CodedAverage::read_last(const Chunk& chunk, float* out) const {
  const Vector& vector = *chunk.vector;
  const Member& member = members_[chunk.member];
  for (std::int64_t k = 0; k < chunk.rows.size(); ++k) {
    float* const to = out + k * vector.cols;
    const std::int64_t first = chunk.row(k) * vector.cols;
    if (!vector.of_weights) {
      const float* const state =
          member.state.as<float>() + chunk.row(k) * member.state_floats + vector.first;
      std::memcpy(to, state, at(vector.cols) * sizeof(float));
    } else if (member.table.dtype == DType::kFloat16) {
      to_floats(member.weights.as<Float16>() + first, vector.cols, to);
    } else if (member.table.dtype == DType::kBFloat16) {
      to_floats(member.weights.as<BFloat16>() + first, vector.cols, to);
    } else {
      std::memcpy(to, member.weights.as<float>() + first, at(vector.cols) * sizeof(float));
    }
  }
}

void CodedAverage::encode(const Chunk& chunk, const float* values, std::byte* owner_bytes) {
  const std::int64_t cols = chunk.vector->cols;
  const kernels::CodecClips lost = kernels::cpu::encode_range({.codec = codec_,
                                                               .vectors = values,
                                                               .stride = cols,
                                                               .cols = cols,
                                                               .to = owner_bytes + chunk.offset},
                                                              {0, chunk.rows.size()});
  if (lost != kernels::CodecClips{}) {
    non_finite_.fetch_add(lost.non_finite, std::memory_order_relaxed);
    clipped_.fetch_add(lost.clipped, std::memory_order_relaxed);
  }
}

void CodedAverage::decode(const Chunk& chunk, const std::byte* owner_bytes, float* values) const {
  const std::int64_t cols = chunk.vector->cols;
  kernels::cpu::decode_range({.codec = codec_,
                              .from = owner_bytes + chunk.offset,
                              .vectors = values,
                              .stride = cols,
                              .cols = cols},
                             {0, chunk.rows.size()});
}

/// What was wanted and is not in what was decoded; flags the rows of which something is left.
void CodedAverage::keep_residuals(const Chunk& chunk, const Scratch& scratch) {
  const std::int64_t cols = chunk.vector->cols;
  for (std::int64_t k = 0; k < chunk.rows.size(); ++k) {
    float* const lost = residuals_->row(chunk.member, chunk.row(k)) + chunk.vector->residual;
    bool any = false;
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t i = k * cols + c;
      lost[c] = worth_keeping(scratch.values[i] - scratch.decoded[i], scratch.last[i]);
      any |= lost[c] != 0.0F;
    }
    if (any && chunk.owned.places != nullptr) {
      const std::int32_t place = chunk.owned.places[chunk.rows.begin + k];
      flags_[first_flags_[chunk.member] + static_cast<std::size_t>(place)] = 1;
    }
  }
}

/// Last + decoded, into the rows. What does not fit stays, and its decoded mean becomes 0; returns
/// how many these are.
std::int64_t CodedAverage::move(const Chunk& chunk,
                                const Scratch& scratch,
                                std::int64_t step) const {
  const Member& member = members_[chunk.member];
  const Vector& vector = *chunk.vector;
  const bool split = vector.of_weights && member.table.dtype == DType::kSplitBFloat16;
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < chunk.floats(); ++i) {
    const float last = scratch.last[i];
    if (scratch.decoded[i] == 0.0F) {
      scratch.moved[i] = last;  // also a minus zero
      continue;
    }
    const float next = last + scratch.decoded[i];
    const bool fits = split ? has_finite_high_half(next) : std::isfinite(next);
    if (fits && !(vector.squares && next < 0.0F)) {
      scratch.moved[i] = next;
    } else {
      scratch.moved[i] = last;
      scratch.decoded[i] = 0.0F;
      ++kept;
    }
  }
  for (std::int64_t k = 0; k < chunk.rows.size(); ++k) {
    write(member, vector, chunk.row(k), scratch.moved + k * vector.cols, step);
  }
  return kept;
}

/// Into the row and its copy.
void CodedAverage::write(const Member& member,
                         const Vector& vector,
                         std::int64_t row,
                         const float* values,
                         std::int64_t step) const {
  const kernels::RowTable& table = member.table;
  const std::size_t bytes = at(vector.cols) * sizeof(float);
  if (!vector.of_weights) {
    std::memcpy(state_of(table, row) + vector.first, values, bytes);
    std::memcpy(member.state.as<float>() + row * member.state_floats + vector.first, values, bytes);
    return;
  }
  switch (table.dtype) {
    case DType::kFloat16:
      write_halves<Float16>(member, row, values, step);
      return;
    case DType::kBFloat16:
      write_halves<BFloat16>(member, row, values, step);
      return;
    case DType::kSplitBFloat16: {
      auto* const highs = reinterpret_cast<BFloat16*>(weights_of(table, row));
      auto* const lows = reinterpret_cast<std::int16_t*>(low_of(table, row));
      for (std::int64_t c = 0; c < table.cols; ++c) {
        const SplitBFloat16 halves = to_split_bfloat16(values[c]);
        highs[c] = halves.high;
        lows[c] = halves.low;
      }
      break;
    }
    default:
      std::memcpy(weights_of(table, row), values, bytes);
  }
  std::memcpy(member.weights.as<float>() + row * table.cols, values, bytes);
}

template <typename Element>
void CodedAverage::write_halves(const Member& member,
                                std::int64_t row,
                                const float* values,
                                std::int64_t step) const {
  const kernels::RowTable& table = member.table;
  auto* const out = reinterpret_cast<Element*>(weights_of(table, row));
  std::array<std::uint32_t, 4> random{};
  for (std::int64_t c = 0; c < table.cols; ++c) {
    const auto col = static_cast<std::uint64_t>(table.first_col + c);
    if (col % 4 == 0) {
      random = philox(member.random_key, static_cast<std::uint64_t>(table.whole_row(row)),
                      (static_cast<std::uint64_t>(step) << 20) + col / 4);
    }
    out[c] = rounded(Element{}, values[c], random[col % 4]);
  }
  std::memcpy(member.weights.as<Element>() + row * table.cols, out,
              at(table.cols) * sizeof(Element));
}

/// Rows of which something is lost are touched again.
void CodedAverage::note_residuals() {
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const std::span<const std::int32_t> rows = touched_->rows(m);
    residual_rows_.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (flags_[first_flags_[m] + i] != 0) {
        residual_rows_.push_back(rows[i]);
      }
    }
    touched_->add(m, residual_rows_);
  }
}

}  // namespace weft::sharding
