#include "weft/embedding/table_shard.h"

#include <memory>
#include <string_view>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/philox.h"
#include "weft/embedding/written_rows.h"
#include "weft/optim/sparse.h"
#include "weft/tensor/stream.h"

namespace weft::embedding {
namespace {

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
      made_numbers_(device),
      made_slots_(device),
      state_floats_(weft::state_floats(table.optimizer.type, cols.size())),
      row_state_(std::make_unique<ShardRows>(*this)),
      row_list_(device),
      overflow_(device) {
  WEFT_CHECK(0 <= rows.begin && rows.begin < rows.end && rows.end <= table.num_embeddings &&
                 rows.step >= 1 && 0 <= cols.begin && cols.begin < cols.end &&
                 cols.end <= table.embedding_dim && cols.begin % kernels::kStatisticBlock == 0,
             "rows [{}, {}) and columns [{}, {}) of table '{}', which is {} x {}", rows.begin,
             rows.end, cols.begin, cols.end, table.name, table.num_embeddings, table.embedding_dim);
  WEFT_CHECK(options.parts >= 1, "{} parts", options.parts);
  const auto listed = static_cast<std::int64_t>(options.row_list.size());
  WEFT_CHECK(listed == 0 || rows == RowSet(0, listed), "{} listed rows for rows [{}, {})", listed,
             rows.begin, rows.end);
  if (table.memory.tier == spec::MemoryTier::kDense || listed > 0) {
    store_ = std::make_unique<storage::RowStore>(device, table, rows.size(), cols.size());
    view_ = store_->view();
  } else {
    tier_ = make_tier(device);
    view_ = tier_->view();
  }
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
  kernels::RowTable table = view_;
  table.dim = table_.embedding_dim;
  table.first_row = rows_.begin;
  table.row_step = rows_.step;
  table.row_list = options_.row_list.empty() ? nullptr : row_list_.as<const std::int64_t>();
  table.first_col = cols_.begin;
  return table;
}

RowDraws TableShard::average_draws(std::uint64_t seed) const {
  return {.key = random_key(seed, RandomPurpose::kReplicaAverage, table_.name),
          .rule = options_.draw_rule};
}

void TableShard::resolve(kernels::RowRuns& runs) const {
  runs.slots =
      store_ == nullptr
          ? nullptr
          : store_->resolve(std::span(runs.rows, static_cast<std::size_t>(runs.num_rows))).data();
}

kernels::BagLookup TableShard::lookup(const Lookup& lookup) const {
  const kernels::RowTable& table = view_;
  return {.weights = table.weights,
          .weight_stride = table.weight_stride,
          .dtype = table.dtype,
          .cols = table.cols,
          .bags = lookup.bags,
          .pooled = lookup.pooled,
          .out = lookup.out,
          .out_stride = lookup.out_stride,
          .places = lookup.places};
}

/// What the kernels work with in this step.
const kernels::SparseUpdate& TableShard::prepare(RowGradients& gradients,
                                                 const UpdateStep& step) const {
  kernels::SparseUpdate& update = gradients.update_;
  WEFT_CHECK(gradients.runs_.slots != nullptr || gradients.runs_.num_rows == 0,
             "table '{}': an update whose rows have no slots", table_.name);
  update.table = row_table();
  update.params = optim::update_params(table_.optimizer, step.learning_rate_factor, step.step);
  update.params.draws = {.key = rounding_key(step.seed, table_.name, options_.replica),
                         .rule = options_.draw_rule};
  update.runs = gradients.runs_;
  update.parts = options_.parts;
  update.gradients = gradients.state_ == RowGradients::State::kAccumulated
                         ? gradients.sums_.as<const float>()
                         : nullptr;
  update.overflow = overflow_.as<kernels::RowOverflow>();
  return update;
}

/// Rows that updates are about to change: of shards whose changes somebody wants to know as a list,
/// of others as marks alone.
void TableShard::note_changes(Context& ctx, std::span<RowGradients* const> gradients) {
  std::vector<RowsToMark>& marks = gradients.front()->jobs_.marks;
  marks.clear();
  for (RowGradients* const one : gradients) {
    ShardRows& rows = *one->shard().row_state_;
    if (rows.notes_changes()) {
      one->read_unique_rows(one->changed_);
      rows.note_change(one->changed_);
    } else if (WrittenRows* const written = rows.begin_marks(one->num_unique())) {
      marks.push_back({written, {one->runs_.rows, at(one->num_unique())}});
    }
  }
  mark_rows(ctx, marks);
}

void TableShard::note_written(std::span<const std::int32_t> rows) {
  if (row_state_->notes_changes()) {
    row_state_->note_written(std::vector<std::int64_t>(rows.begin(), rows.end()));
  } else if (WrittenRows* const written = row_state_->written(); written != nullptr) {
    written->set(rows);
  }
}

void TableShard::note_all_written() {
  row_state_->note_all_written();
}

/// Brings the counts to the host, where nobody waits for them.
void TableShard::collect_overflow(Context& ctx, std::span<RowGradients* const> gradients) {
  for (const RowGradients* const one : gradients) {
    TableShard& shard = one->shard();
    shard.overflow_.device()->copy_to_host(ctx, &shard.overflow_copy_, shard.overflow_.as<void>(),
                                           sizeof(kernels::RowOverflow));
  }
}

void TableShard::update(Context& ctx, RowGradients& gradients, const UpdateStep& step) {
  WEFT_CHECK(&gradients.shard() == this, "table '{}': gradients of another shard", table_.name);
  RowGradients* const one = &gradients;
  update(ctx, std::span<RowGradients* const>(&one, 1), step);
}

void TableShard::update(Context& ctx,
                        std::span<RowGradients* const> gradients,
                        const UpdateStep& step) {
  if (gradients.empty()) {
    return;
  }
  std::vector<kernels::SparseUpdate>& jobs = gradients.front()->jobs_.updates;
  jobs.clear();
  for (RowGradients* const one : gradients) {
    const TableShard& shard = one->shard();
    WEFT_CHECK(one->state_ != RowGradients::State::kNone, "table '{}': update before coalesce",
               shard.table_.name);
    WEFT_CHECK(!shard.needs_statistic() && !shard.needs_max_norm(),
               "table '{}': a shard of columns needs the split form of the update",
               shard.table_.name);
    jobs.push_back(shard.prepare(*one, step));
  }
  note_changes(ctx, gradients);
  kernels::update_rows(ctx, jobs);
  collect_overflow(ctx, gradients);
  for (RowGradients* const one : gradients) {
    one->state_ = RowGradients::State::kNone;
  }
}

void TableShard::block_squares(Context& ctx,
                               std::span<RowGradients* const> gradients,
                               std::span<float* const> out) {
  if (gradients.empty()) {
    return;
  }
  std::vector<kernels::BlockSquares>& jobs = gradients.front()->jobs_.block_squares;
  jobs.clear();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    RowGradients& one = *gradients[i];
    WEFT_CHECK(one.state_ == RowGradients::State::kAccumulated,
               "table '{}': block_squares before accumulate", one.shard().table_.name);
    jobs.push_back({.update = one.shard().prepare(one, {}), .out = out[i]});
  }
  kernels::gradient_block_squares(ctx, jobs);
}

void TableShard::update_with_statistic(Context& ctx,
                                       std::span<RowGradients* const> gradients,
                                       const UpdateStep& step,
                                       std::span<const float* const> mean_square) {
  if (gradients.empty()) {
    return;
  }
  std::vector<kernels::StatisticUpdate>& jobs = gradients.front()->jobs_.statistic_updates;
  jobs.clear();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    RowGradients& one = *gradients[i];
    const spec::Table& table = one.shard().table_;
    WEFT_CHECK(one.state_ == RowGradients::State::kAccumulated,
               "table '{}': update_with_statistic before accumulate", table.name);
    WEFT_CHECK(mean_square[i] != nullptr || !traits(table.optimizer.type).is_row_wise ||
                   one.num_unique() == 0,
               "table '{}' needs the statistic of its rows", table.name);
    jobs.push_back({.update = one.shard().prepare(one, step),
                    .values = one.sums_.as<float>(),
                    .row_statistic = mean_square[i]});
    one.state_ = one.update_.params.max_norm > 0.0F ? RowGradients::State::kRowsToStore
                                                    : RowGradients::State::kNone;
  }
  note_changes(ctx, gradients);
  kernels::update_rows_with_statistic(ctx, jobs);
  collect_overflow(ctx, gradients);
}

void TableShard::row_block_squares(Context& ctx,
                                   std::span<RowGradients* const> gradients,
                                   std::span<float* const> out) {
  if (gradients.empty()) {
    return;
  }
  std::vector<kernels::RowSquares>& jobs = gradients.front()->jobs_.row_squares;
  jobs.clear();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const RowGradients& one = *gradients[i];
    WEFT_CHECK(one.state_ == RowGradients::State::kRowsToStore,
               "table '{}': row_block_squares before update_with_statistic",
               one.shard().table_.name);
    jobs.push_back({.count = one.num_unique(),
                    .cols = one.shard().cols_.size(),
                    .rows = one.sums_.as<const float>(),
                    .out = out[i]});
  }
  kernels::row_block_squares(ctx, jobs);
}

void TableShard::scale_to_max_norm(Context& ctx,
                                   std::span<RowGradients* const> gradients,
                                   std::span<const float* const> row_square) {
  if (gradients.empty()) {
    return;
  }
  std::vector<kernels::StatisticUpdate>& jobs = gradients.front()->jobs_.statistic_updates;
  jobs.clear();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    RowGradients& one = *gradients[i];
    WEFT_CHECK(one.state_ == RowGradients::State::kRowsToStore,
               "table '{}': scale_to_max_norm before update_with_statistic",
               one.shard().table_.name);
    jobs.push_back(
        {.update = one.update_, .values = one.sums_.as<float>(), .row_statistic = row_square[i]});
    one.state_ = RowGradients::State::kNone;
  }
  kernels::store_scaled_rows(ctx, jobs);
  collect_overflow(ctx, gradients);
}

}  // namespace weft::embedding
