#include "weft/embedding/table_shard.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/philox.h"
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
      row_list_(device) {
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

kernels::BagLookup TableShard::lookup(const Lookup& lookup) const {
  return {.weights = store_.weights(),
          .weight_stride = store_.weight_stride(),
          .dtype = store_.dtype(),
          .cols = cols_.size(),
          .bags = lookup.bags,
          .pooled = lookup.pooled,
          .out = lookup.out,
          .out_stride = lookup.out_stride};
}

/// What the kernels work with in this step.
void TableShard::prepare(RowGradients& gradients, const UpdateStep& step) const {
  WEFT_CHECK(&gradients.shard() == this, "table '{}': gradients of another shard", table_.name);
  kernels::SparseUpdate& update = gradients.update_;
  update.table = row_table();
  update.params = optim::update_params(table_.optimizer, step.learning_rate_factor, step.step);
  update.params.random_key = rounding_key(step.seed, table_.name, options_.replica);
  update.runs = gradients.runs_;
  update.parts = options_.parts;
  gradients.task_overflow_.assign(static_cast<std::size_t>(kernels::update_tasks(gradients.runs_)),
                                  {});
}

/// The first row is the lowest of the first step that had one.
void TableShard::collect_overflow(RowGradients& gradients) {
  kernels::RowOverflow sum;
  for (const kernels::RowOverflow& overflow : gradients.task_overflow_) {
    sum.merge(overflow);
  }
  if (sum.count > 0) {
    overflow_.first_row = overflow_.count == 0 ? sum.first_row : overflow_.first_row;
    overflow_.count += sum.count;
  }
}

void TableShard::update(Context& ctx, RowGradients& gradients, const UpdateStep& step) {
  RowGradients* const one = &gradients;
  update(ctx, std::span<RowGradients* const>(&one, 1), step);
}

void TableShard::update(Context& ctx,
                        std::span<RowGradients* const> gradients,
                        const UpdateStep& step) {
  for (RowGradients* const one : gradients) {
    const TableShard& shard = one->shard();
    WEFT_CHECK(one->state_ != RowGradients::State::kNone, "table '{}': update before coalesce",
               shard.table_.name);
    WEFT_CHECK(!shard.needs_statistic() && !shard.needs_max_norm(),
               "table '{}': a shard of columns needs the split form of the update",
               shard.table_.name);
    shard.prepare(*one, step);
  }
  kernels::run_blocks(
      ctx, static_cast<std::int64_t>(gradients.size()),
      [&](std::int64_t i) {
        return kernels::update_tasks(gradients[static_cast<std::size_t>(i)]->runs_);
      },
      [&](std::int64_t i, std::int64_t task) {
        RowGradients& one = *gradients[static_cast<std::size_t>(i)];
        const bool summed = one.state_ == RowGradients::State::kAccumulated;
        one.task_overflow_[static_cast<std::size_t>(task)] =
            kernels::update_rows(one.update_, kernels::update_task(one.runs_, task),
                                 summed ? one.sums_.as<const float>() : nullptr);
      });
  for (RowGradients* const one : gradients) {
    one->shard().collect_overflow(*one);
    one->state_ = RowGradients::State::kNone;
  }
}

void TableShard::block_squares(Context& ctx, RowGradients& gradients, float* out) {
  WEFT_CHECK(gradients.state_ == RowGradients::State::kAccumulated,
             "table '{}': block_squares before accumulate", table_.name);
  prepare(gradients, {});
  for_row_tasks(ctx, gradients.num_unique(), [&](Range rows) {
    kernels::gradient_block_squares(gradients.update_, rows, gradients.sums_.as<const float>(),
                                    out);
  });
}

void TableShard::update_with_statistic(Context& ctx,
                                       RowGradients& gradients,
                                       const UpdateStep& step,
                                       const float* mean_square) {
  WEFT_CHECK(gradients.state_ == RowGradients::State::kAccumulated,
             "table '{}': update_with_statistic before accumulate", table_.name);
  prepare(gradients, step);
  const kernels::SparseUpdate& update = gradients.update_;
  WEFT_CHECK(mean_square != nullptr || !traits(update.params.rule).is_row_wise ||
                 gradients.num_unique() == 0,
             "table '{}' needs the statistic of its rows", table_.name);
  for_row_tasks(ctx, gradients.num_unique(), [&](Range rows) {
    gradients.task_overflow_[static_cast<std::size_t>(rows.begin / kernels::kRowsPerTask)] =
        kernels::update_rows_with_statistic(update, rows, gradients.sums_.as<float>(), mean_square);
  });
  collect_overflow(gradients);
  gradients.state_ = update.params.max_norm > 0.0F ? RowGradients::State::kRowsToStore
                                                   : RowGradients::State::kNone;
}

void TableShard::row_block_squares(Context& ctx, RowGradients& gradients, float* out) {
  WEFT_CHECK(gradients.state_ == RowGradients::State::kRowsToStore,
             "table '{}': row_block_squares before update_with_statistic", table_.name);
  for_row_tasks(ctx, gradients.num_unique(), [&](Range rows) {
    kernels::row_block_squares(cols_.size(), rows, gradients.sums_.as<const float>(), out);
  });
}

void TableShard::scale_to_max_norm(Context& ctx, RowGradients& gradients, const float* row_square) {
  WEFT_CHECK(gradients.state_ == RowGradients::State::kRowsToStore,
             "table '{}': scale_to_max_norm before update_with_statistic", table_.name);
  for_row_tasks(ctx, gradients.num_unique(), [&](Range rows) {
    gradients.task_overflow_[static_cast<std::size_t>(rows.begin / kernels::kRowsPerTask)] =
        kernels::store_scaled_rows(gradients.update_, rows, gradients.sums_.as<const float>(),
                                   row_square);
  });
  collect_overflow(gradients);
  gradients.state_ = RowGradients::State::kNone;
}

}  // namespace weft::embedding
