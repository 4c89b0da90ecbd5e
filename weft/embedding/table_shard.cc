#include "weft/embedding/table_shard.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/philox.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/kernels/tasks.h"
#include "weft/optim/sparse.h"
#include "weft/tensor/stream.h"

namespace weft::embedding {
namespace {

Range task_rows(std::int64_t count, std::int64_t block) {
  return {block * kernels::kRowsPerTask, std::min((block + 1) * kernels::kRowsPerTask, count)};
}

/// Runs run(rows) over [0, count) in tasks of kRowsPerTask.
template <typename Run>
void for_row_tasks(Context& ctx, std::int64_t count, const Run& run) {
  kernels::run_blocks(
      ctx, 1, [&](std::int64_t) { return kernels::update_blocks(count); },
      [&](std::int64_t, std::int64_t block) { run(task_rows(count, block)); });
}

/// Of the stochastic rounding of updates. The key of replica 0 is that of a table without replicas.
std::uint64_t rounding_key(std::uint64_t seed, std::string_view table, std::int64_t replica) {
  const std::uint64_t key = random_key(seed, RandomPurpose::kStochasticRounding, table);
  return replica == 0 ? key : hash_combine(key, static_cast<std::uint64_t>(replica));
}

}  // namespace

TableShard::TableShard(Device& device,
                       const spec::Table& table,
                       const RowSet& rows,
                       Range cols,
                       std::uint64_t seed,
                       const TableShardOptions& options)
    : table_(table),
      rows_(rows),
      cols_(cols),
      options_(options),
      initial_(initial_rows(table, seed)),
      store_(device, table, rows.size(), cols.size()),
      row_list_(device),
      coalescer_(device),
      gradients_(device),
      partials_(device, options.parts),
      merge_places_(device) {
  WEFT_CHECK(0 <= rows.begin && rows.begin < rows.end && rows.end <= table.num_embeddings &&
                 rows.step >= 1 && 0 <= cols.begin && cols.begin < cols.end &&
                 cols.end <= table.embedding_dim && cols.begin % kernels::kStatisticBlock == 0,
             "rows [{}, {}) and columns [{}, {}) of table '{}', which is {} x {}", rows.begin,
             rows.end, cols.begin, cols.end, table.name, table.num_embeddings, table.embedding_dim);
  WEFT_CHECK(options.parts >= 1, "{} parts", options.parts);
  const auto listed = static_cast<std::int64_t>(options.row_list.size());
  WEFT_CHECK(listed == 0 || rows == RowSet(0, listed), "{} listed rows for rows [{}, {})", listed,
             rows.begin, rows.end);
  const std::unique_ptr<Stream> stream =
      device.make_stream({.name = "initial values of " + table.name, .is_inline = true});
  const Stage stage = [this](Context& ctx) { initialise(ctx); };
  stream->enqueue(stage);
  stream->synchronize();
}

bool TableShard::needs_statistic() const {
  return traits(table_.optimizer.type).is_row_wise && cols_.size() != table_.embedding_dim;
}

bool TableShard::needs_max_norm() const {
  return table_.optimizer.max_norm > 0.0 && cols_.size() != table_.embedding_dim;
}

std::int64_t TableShard::num_blocks() const {
  return kernels::statistic_blocks(cols_.size());
}

kernels::RowTable TableShard::row_table() const {
  return {.weights = store_.weights(),
          .weight_stride = store_.weight_stride(),
          .state = store_.state(),
          .state_stride = store_.state() == nullptr ? 0 : store_.rest_stride(),
          .low = store_.low(),
          .low_stride = store_.low() == nullptr ? 0 : store_.rest_stride(),
          .dtype = store_.dtype(),
          .cols = cols_.size(),
          .dim = table_.embedding_dim,
          .first_row = rows_.begin,
          .row_step = rows_.step,
          .row_list = options_.row_list.empty() ? nullptr : row_list_.as<const std::int64_t>(),
          .first_col = cols_.begin};
}

void TableShard::forward(Context& ctx, std::span<const std::pair<TableShard*, Lookup>> lookups) {
  std::int64_t floats = 0;
  for (const auto& [shard, lookup] : lookups) {
    floats += (lookup.pooled ? lookup.bags.bags : lookup.bags.num_ids()) * shard->cols_.size();
  }
  const auto output = kernels::output_of(floats * static_cast<std::int64_t>(sizeof(float)));
  const auto bag_lookup = [&](std::int64_t index) {
    const auto& [shard, lookup] = lookups[static_cast<std::size_t>(index)];
    return kernels::BagLookup{.weights = shard->store_.weights(),
                              .weight_stride = shard->store_.weight_stride(),
                              .dtype = shard->store_.dtype(),
                              .cols = shard->cols_.size(),
                              .bags = lookup.bags,
                              .pooled = lookup.pooled,
                              .out = lookup.out,
                              .out_stride = lookup.out_stride,
                              .output = output};
  };
  kernels::run_blocks(
      ctx, static_cast<std::int64_t>(lookups.size()),
      [&](std::int64_t i) { return kernels::embedding_bag_blocks(bag_lookup(i)); },
      [&](std::int64_t i, std::int64_t block) {
        kernels::embedding_bag_block(bag_lookup(i), block);
      });
}

void TableShard::coalesce(Context& /*ctx*/, std::span<const GradientBlock> blocks) {
  runs_ = coalescer_.run(blocks, rows_.size(), options_.parts);
  gradients_state_ = Gradients::kCoalesced;
}

void TableShard::coalesce(
    Context& ctx, std::span<const std::pair<TableShard*, std::span<const GradientBlock>>> tables) {
  kernels::run_blocks(
      ctx, static_cast<std::int64_t>(tables.size()), [](std::int64_t) { return std::int64_t{1}; },
      [&](std::int64_t i, std::int64_t) {
        const auto& [shard, blocks] = tables[static_cast<std::size_t>(i)];
        shard->coalesce(ctx, blocks);
      });
}

/// What the kernels work with in this step.
void TableShard::prepare(const UpdateStep& step) {
  update_.table = row_table();
  update_.params = optim::update_params(table_.optimizer, step.learning_rate_factor, step.step);
  update_.params.random_key = rounding_key(step.seed, table_.name, options_.replica);
  update_.runs = runs_;
  update_.parts = options_.parts;
  task_overflow_.assign(static_cast<std::size_t>(kernels::update_tasks(runs_)), {});
}

/// The first row is the lowest of the first step that had one.
void TableShard::collect_overflow() {
  kernels::RowOverflow sum;
  for (const kernels::RowOverflow& overflow : task_overflow_) {
    sum.merge(overflow);
  }
  if (sum.count > 0) {
    overflow_.first_row = overflow_.count == 0 ? sum.first_row : overflow_.first_row;
    overflow_.count += sum.count;
  }
}

void TableShard::update_task(std::int64_t task) {
  const float* const gradients =
      gradients_state_ == Gradients::kAccumulated ? gradients_.as<const float>() : nullptr;
  task_overflow_[static_cast<std::size_t>(task)] =
      kernels::update_rows(update_, kernels::update_task(runs_, task), gradients);
}

void TableShard::update(Context& ctx, const UpdateStep& step) {
  TableShard* const self = this;
  update(ctx, std::span<TableShard* const>(&self, 1), step);
}

void TableShard::update(Context& ctx, std::span<TableShard* const> shards, const UpdateStep& step) {
  for (TableShard* const shard : shards) {
    WEFT_CHECK(shard->gradients_state_ != Gradients::kNone, "table '{}': update before coalesce",
               shard->table_.name);
    WEFT_CHECK(!shard->needs_statistic() && !shard->needs_max_norm(),
               "table '{}': a shard of columns needs the split form of the update",
               shard->table_.name);
    shard->prepare(step);
  }
  kernels::run_blocks(
      ctx, static_cast<std::int64_t>(shards.size()),
      [&](std::int64_t i) {
        return kernels::update_tasks(shards[static_cast<std::size_t>(i)]->runs_);
      },
      [&](std::int64_t i, std::int64_t task) {
        shards[static_cast<std::size_t>(i)]->update_task(task);
      });
  for (TableShard* const shard : shards) {
    shard->collect_overflow();
    shard->gradients_state_ = Gradients::kNone;
  }
}

void TableShard::accumulate(Context& ctx, float factor) {
  if (gradients_state_ == Gradients::kAccumulated) {
    return;
  }
  WEFT_CHECK(gradients_state_ == Gradients::kCoalesced, "table '{}': accumulate before coalesce",
             table_.name);
  prepare({});
  auto* const out = gradients_.resize_for<float>(runs_.num_rows * cols_.size());
  kernels::run_blocks(
      ctx, 1, [&](std::int64_t) { return kernels::update_tasks(runs_); },
      [&](std::int64_t, std::int64_t task) {
        const Range rows = kernels::update_task(runs_, task);
        kernels::sum_gradients(update_, rows, out);
        if (factor != 1.0F) {
          std::transform(out + rows.begin * cols_.size(), out + rows.end * cols_.size(),
                         out + rows.begin * cols_.size(),
                         [factor](float value) { return factor * value; });
        }
      });
  gradients_state_ = Gradients::kAccumulated;
}

void TableShard::block_squares(Context& ctx, float* out) {
  WEFT_CHECK(gradients_state_ == Gradients::kAccumulated,
             "table '{}': block_squares before accumulate", table_.name);
  prepare({});
  for_row_tasks(ctx, runs_.num_rows, [&](Range rows) {
    kernels::gradient_block_squares(update_, rows, gradients_.as<const float>(), out);
  });
}

void TableShard::update_with_statistic(Context& ctx,
                                       const UpdateStep& step,
                                       const float* mean_square) {
  WEFT_CHECK(gradients_state_ == Gradients::kAccumulated,
             "table '{}': update_with_statistic before accumulate", table_.name);
  prepare(step);
  WEFT_CHECK(
      mean_square != nullptr || !traits(update_.params.rule).is_row_wise || runs_.num_rows == 0,
      "table '{}' needs the statistic of its rows", table_.name);
  for_row_tasks(ctx, runs_.num_rows, [&](Range rows) {
    task_overflow_[static_cast<std::size_t>(rows.begin / kernels::kRowsPerTask)] =
        kernels::update_rows_with_statistic(update_, rows, gradients_.as<float>(), mean_square);
  });
  collect_overflow();
  gradients_state_ = update_.params.max_norm > 0.0F ? Gradients::kRowsToStore : Gradients::kNone;
}

void TableShard::row_block_squares(Context& ctx, float* out) {
  WEFT_CHECK(gradients_state_ == Gradients::kRowsToStore,
             "table '{}': row_block_squares before update_with_statistic", table_.name);
  for_row_tasks(ctx, runs_.num_rows, [&](Range rows) {
    kernels::row_block_squares(cols_.size(), rows, gradients_.as<const float>(), out);
  });
}

void TableShard::scale_to_max_norm(Context& ctx, const float* row_square) {
  WEFT_CHECK(gradients_state_ == Gradients::kRowsToStore,
             "table '{}': scale_to_max_norm before update_with_statistic", table_.name);
  for_row_tasks(ctx, runs_.num_rows, [&](Range rows) {
    task_overflow_[static_cast<std::size_t>(rows.begin / kernels::kRowsPerTask)] =
        kernels::store_scaled_rows(update_, rows, gradients_.as<const float>(), row_square);
  });
  collect_overflow();
  gradients_state_ = Gradients::kNone;
}

void TableShard::accumulate_partials(Context& ctx, Range own_parts) {
  WEFT_CHECK(gradients_state_ == Gradients::kCoalesced,
             "table '{}': accumulate_partials before coalesce", table_.name);
  partials_.sum(ctx, runs_, cols_.size(), own_parts);
}

void TableShard::merge_partials(Context& ctx, std::span<const PartialRows> from_ranks) {
  std::int64_t most = 0;
  for (const PartialRows& partial : from_ranks) {
    most = std::max(most, partial.count);
  }
  auto* const places = merge_places_.resize_for<std::int64_t>(most + 1);
  for (std::int64_t i = 0; i <= most; ++i) {
    places[i] = i;
  }
  merge_blocks_.clear();
  for (const PartialRows& partial : from_ranks) {
    merge_blocks_.push_back({.bags = {.ids = partial.rows,
                                      .offsets = places,
                                      .weights = nullptr,
                                      .bags = partial.count},
                             .pooled = false,
                             .grads = partial.vectors,
                             .grad_stride = cols_.size(),
                             .parts = partial.nodes});
  }
  coalesce(ctx, merge_blocks_);
}

}  // namespace weft::embedding
