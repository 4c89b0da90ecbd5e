// A table cut into shards, over pools and devices, against the whole one, bit by bit.

#include "weft/embedding/table_shard.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/embedding/sparse_job.h"
#include "weft/base/error.h"
#include "weft/base/thread_pool.h"
#include "weft/tensor/stream.h"

namespace weft::embedding::test {
namespace {

constexpr std::int64_t kSteps = 3;

std::vector<StepData> make_steps(const StepShape& shape) {
  Random random(static_cast<std::uint64_t>(shape.dim + shape.samples));
  std::vector<StepData> steps;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    steps.push_back(make_step(random, shape));
  }
  return steps;
}

State train_whole(const spec::Table& table,
                  const std::vector<StepData>& steps,
                  std::int64_t parts = 8) {
  const std::unique_ptr<Device> device = make_device({});
  const auto shard = whole(*device, table, parts);
  RowGradients gradients(*device, *shard);
  Context ctx;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    gradients.coalesce(ctx, steps[static_cast<std::size_t>(i)].blocks());
    shard->update(ctx, gradients, update_step(i + 1));
  }
  return state_of({shard.get()});
}

/// What the shards of a row's columns send each other: every shard's blocks, side by side.
std::vector<float> gather_blocks(std::span<RowGradients> gradients,
                                 const std::function<void(RowGradients&, float*)>& blocks_of) {
  const TableShard& first = gradients[0].shard();
  const std::int64_t all_blocks = kernels::statistic_blocks(first.table().embedding_dim);
  const std::int64_t rows = gradients[0].num_unique();
  std::vector<float> all(static_cast<std::size_t>(rows * all_blocks));
  for (RowGradients& one : gradients) {
    EXPECT_EQ(one.num_unique(), rows);
    const std::int64_t own = one.shard().num_blocks();
    std::vector<float> mine(static_cast<std::size_t>(rows * own));
    blocks_of(one, mine.data());
    for (std::int64_t u = 0; u < rows; ++u) {
      std::memcpy(all.data() + u * all_blocks + one.shard().cols().begin / 16,
                  mine.data() + u * own, static_cast<std::size_t>(own) * sizeof(float));
    }
  }
  return all;
}

void update_columns(Context& ctx, std::span<RowGradients> gradients, const UpdateStep& step) {
  const TableShard& first = gradients[0].shard();
  const std::int64_t dim = first.table().embedding_dim;
  const std::int64_t blocks = kernels::statistic_blocks(dim);
  const std::int64_t rows = gradients[0].num_unique();
  for (RowGradients& one : gradients) {
    one.accumulate(ctx);
  }
  std::vector<float> means(static_cast<std::size_t>(rows));
  if (first.needs_statistic()) {
    const auto squares = gather_blocks(gradients, [&](RowGradients& one, float* out) {
      TableShard::block_squares(ctx, Of(one), std::span<float* const>(&out, 1));
    });
    for (std::int64_t u = 0; u < rows; ++u) {
      means[static_cast<std::size_t>(u)] = kernels::mean_square(squares.data() + u * blocks, dim);
    }
  }
  for (RowGradients& one : gradients) {
    const float* const statistic = first.needs_statistic() ? means.data() : nullptr;
    TableShard::update_with_statistic(ctx, Of(one), step,
                                      std::span<const float* const>(&statistic, 1));
  }
  if (first.needs_max_norm()) {
    const auto squares = gather_blocks(gradients, [&](RowGradients& one, float* out) {
      TableShard::row_block_squares(ctx, Of(one), std::span<float* const>(&out, 1));
    });
    for (std::int64_t u = 0; u < rows; ++u) {
      means[static_cast<std::size_t>(u)] = block_tree_sum(squares.data() + u * blocks, blocks);
    }
    for (RowGradients& one : gradients) {
      const float* const squares_of_rows = means.data();
      TableShard::scale_to_max_norm(ctx, Of(one),
                                    std::span<const float* const>(&squares_of_rows, 1));
    }
  }
}

State train_columns(const spec::Table& table,
                    const std::vector<StepData>& steps,
                    const std::vector<std::int64_t>& cuts) {
  const std::unique_ptr<Device> device = make_device({});
  std::vector<std::unique_ptr<TableShard>> shards;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    shards.push_back(std::make_unique<TableShard>(*device, table, Range{0, table.num_embeddings},
                                                  Range{cuts[i], cuts[i + 1]}, kSeed,
                                                  TableShardOptions{}));
  }
  std::vector<RowGradients> gradients;
  for (const auto& shard : shards) {
    gradients.emplace_back(*device, *shard);
  }
  Context ctx;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    for (RowGradients& one : gradients) {
      one.coalesce(ctx, steps[static_cast<std::size_t>(i)].blocks(one.shard().cols().begin));
    }
    if (shards[0]->needs_statistic() || shards[0]->needs_max_norm()) {
      update_columns(ctx, gradients, update_step(i + 1));
    } else {
      for (RowGradients& one : gradients) {
        one.shard().update(ctx, one, update_step(i + 1));
      }
    }
  }
  std::vector<const TableShard*> all;
  for (const auto& shard : shards) {
    all.push_back(shard.get());
  }
  return state_of(all);
}

struct ColumnCuts {
  std::int64_t dim;
  std::vector<std::int64_t> cuts;
};

TEST(ColumnShards, HaveTheBitsOfTheWholeTable) {
  const std::vector<ColumnCuts> all_cuts = {
      {40, {0, 16, 40}}, {130, {0, 48, 64, 130}}, {64, {0, 16, 32, 48, 64}}};
  for (const ColumnCuts& cuts : all_cuts) {
    const std::vector<StepData> steps = make_steps({.dim = cuts.dim});
    for (const spec::SparseOptimizer& optimizer : all_optimizers()) {
      for (const auto dtype :
           {spec::RowDType::kFp32, spec::RowDType::kBf16, spec::RowDType::kSplitBf16}) {
        spec::Table table = make_table(50, cuts.dim);
        table.optimizer = optimizer;
        table.dtype = dtype;
        EXPECT_TRUE(train_whole(table, steps) == train_columns(table, steps, cuts.cuts))
            << describe(table);
      }
    }
  }
}

TEST(ColumnShards, OfTheWholeRowMayUseTheSplitForm) {
  const std::vector<StepData> steps = make_steps({.dim = 33});
  for (const spec::SparseOptimizer& optimizer : all_optimizers()) {
    spec::Table table = make_table(50, 33);
    table.optimizer = optimizer;
    const std::unique_ptr<Device> device = make_device({});
    const auto shard = whole(*device, table);
    RowGradients gradients(*device, *shard);
    Context ctx;
    std::vector<float> squares(50 * 3);
    std::vector<float> per_row(50);
    for (std::int64_t i = 0; i < kSteps; ++i) {
      gradients.coalesce(ctx, steps[static_cast<std::size_t>(i)].blocks());
      gradients.accumulate(ctx);
      float* const out = squares.data();
      const float* const statistic = per_row.data();
      const std::span<float* const> outs(&out, 1);
      const std::span<const float* const> statistics(&statistic, 1);
      TableShard::block_squares(ctx, Of(gradients), outs);
      for (std::int64_t u = 0; u < gradients.num_unique(); ++u) {
        per_row[static_cast<std::size_t>(u)] =
            kernels::mean_square(&squares[static_cast<std::size_t>(u * 3)], 33);
      }
      TableShard::update_with_statistic(ctx, Of(gradients), update_step(i + 1), statistics);
      if (optimizer.max_norm > 0.0) {
        TableShard::row_block_squares(ctx, Of(gradients), outs);
        for (std::int64_t u = 0; u < gradients.num_unique(); ++u) {
          per_row[static_cast<std::size_t>(u)] =
              block_tree_sum(&squares[static_cast<std::size_t>(u * 3)], 3);
        }
        TableShard::scale_to_max_norm(ctx, Of(gradients), statistics);
      }
    }
    EXPECT_TRUE(state_of({shard.get()}) == train_whole(table, steps)) << describe(table);
  }
}

TEST(RowShards, HaveTheBitsOfTheWholeTable) {
  const std::vector<StepData> steps = make_steps({.dim = 24});
  const std::vector<std::vector<RowSet>> cuts = {{{0, 2}, {2, 3}, {3, 50}},
                                                 {{0, 50, 3}, {1, 50, 3}, {2, 50, 3}}};
  for (const std::vector<RowSet>& cut : cuts) {
    for (const spec::SparseOptimizer& optimizer : all_optimizers()) {
      spec::Table table = make_table(50, 24);
      table.optimizer = optimizer;
      table.dtype = spec::RowDType::kFp16;  // rounded by draws of the row in the whole table
      const std::unique_ptr<Device> device = make_device({});
      std::vector<std::unique_ptr<TableShard>> shards;
      std::vector<const TableShard*> all;
      for (const RowSet& rows : cut) {
        shards.push_back(std::make_unique<TableShard>(*device, table, rows, Range{0, 24}, kSeed,
                                                      TableShardOptions{}));
        all.push_back(shards.back().get());
      }
      Context ctx;
      for (const auto& shard : shards) {
        RowGradients gradients(*device, *shard);
        for (std::int64_t i = 0; i < kSteps; ++i) {
          const StepData own =
              restrict_step(steps[static_cast<std::size_t>(i)], {0, 8}, shard->rows());
          gradients.coalesce(ctx, own.blocks());
          shard->update(ctx, gradients, update_step(i + 1));
        }
      }
      EXPECT_TRUE(state_of(all) == train_whole(table, steps))
          << describe(table) << ", steps of " << cut.front().step;
    }
  }
}

TEST(SplitRows, TakeTheStepsOfFp32Tables) {
  for (const std::int64_t dim : {17, 64}) {
    const std::vector<StepData> steps = make_steps({.dim = dim});
    for (const spec::SparseOptimizer& optimizer : all_optimizers()) {
      for (const auto init : {spec::TableInit::kUniform, spec::TableInit::kNormal}) {
        spec::Table table = make_table(50, dim);
        table.optimizer = optimizer;
        table.init = init;
        const State expected = train_whole(table, steps);
        table.dtype = spec::RowDType::kSplitBf16;
        EXPECT_TRUE(train_whole(table, steps) == expected) << describe(table);
      }
    }
  }
}

/// What partials() points to, as it would come out of a gather.
struct Gathered {
  std::vector<std::int64_t> rows;
  std::vector<std::int32_t> nodes;
  std::vector<float> vectors;

  Gathered(const PartialRows& partial, std::int64_t cols)
      : rows(partial.rows, partial.rows + partial.count),
        nodes(partial.nodes, partial.nodes + partial.count),
        vectors(partial.vectors, partial.vectors + partial.count * cols) {}

  [[nodiscard]] PartialRows view() const {
    return {static_cast<std::int64_t>(rows.size()), rows.data(), nodes.data(), vectors.data()};
  }
};

/// Replicas on `ranks` ranks; returns the state of the last.
State train_replicas(const spec::Table& table,
                     const std::vector<StepData>& steps,
                     std::int64_t parts,
                     std::int64_t ranks) {
  const std::unique_ptr<Device> device = make_device({});
  std::vector<std::unique_ptr<TableShard>> replicas;
  std::vector<RowGradients> gradients;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    replicas.push_back(whole(*device, table, parts));
    gradients.emplace_back(*device, *replicas.back());
  }
  Context ctx;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    std::vector<Gathered> gathered;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const Range own = rank_parts(parts, ranks, rank);
      const StepData mine =
          restrict_step(steps[static_cast<std::size_t>(i)], own, {0, table.num_embeddings});
      RowGradients& one = gradients[static_cast<std::size_t>(rank)];
      one.coalesce(ctx, mine.blocks());
      RowGradients::accumulate_partials(ctx, Of(one), own);
      gathered.emplace_back(one.partials(), table.embedding_dim);
    }
    std::vector<std::vector<PartialRows>> all_views(1);
    std::vector<PartialRows>& views = all_views.front();
    for (const Gathered& one : gathered) {
      views.push_back(one.view());
    }
    for (RowGradients& one : gradients) {
      RowGradients::merge_partials(ctx, Of(one), all_views);
      one.shard().update(ctx, one, update_step(i + 1));
      std::swap(views.front(), views.back());  // no order is needed
    }
  }
  EXPECT_TRUE(state_of({replicas.front().get()}) == state_of({replicas.back().get()}));
  return state_of({replicas.back().get()});
}

TEST(Replicas, OfAnyNumberOfRanksHaveTheBitsOfTheDirectUpdate) {
  for (const std::int64_t parts : {8, 13}) {
    const std::vector<StepData> steps = make_steps({.dim = 17, .samples = 29, .parts = parts});
    for (const spec::SparseOptimizer& optimizer : all_optimizers()) {
      for (const auto dtype : {spec::RowDType::kBf16, spec::RowDType::kSplitBf16}) {
        spec::Table table = make_table(50, 17);
        table.optimizer = optimizer;
        table.dtype = dtype;
        const State expected = train_whole(table, steps, parts);
        for (std::int64_t ranks = 1; ranks <= 8; ++ranks) {
          EXPECT_TRUE(train_replicas(table, steps, parts, ranks) == expected)
              << ranks << " ranks, " << parts << " parts, " << describe(table);
        }
      }
    }
  }
}

TEST(Replicas, FewerSamplesThanRanksAndOneRow) {
  const std::vector<StepData> steps = make_steps({.rows = 1, .dim = 5, .samples = 3});
  spec::Table table = make_table(1, 5);
  const State expected = train_whole(table, steps);
  for (const std::int64_t ranks : {2, 5, 8}) {
    EXPECT_TRUE(train_replicas(table, steps, 8, ranks) == expected) << ranks;
  }
}

/// A training loop whose stages run on a stream, with gradients and ids in the device's memory.
State train_on_stream(Device& device,
                      const spec::Table& table,
                      const std::vector<StepData>& steps,
                      std::vector<float>* looked_up) {
  const auto shard = whole(device, table);
  RowGradients gradients(device, *shard);
  const std::unique_ptr<Stream> stream = device.make_stream({.name = "sparse"});
  State state;
  Buffer out(device);
  const Feature& last = steps.back().features[0];
  const std::int64_t bags = last.bags().bags;
  const Stage update = [&](Context& ctx) {
    for (std::int64_t i = 0; i < kSteps; ++i) {
      gradients.coalesce(ctx, steps[static_cast<std::size_t>(i)].blocks());
      shard->update(ctx, gradients, update_step(i + 1));
    }
  };
  const Stage look_up = [&](Context& ctx) {
    const kernels::BagLookup lookup =
        shard->lookup({last.bags(), true, out.resize_for<float>(bags * table.embedding_dim),
                       table.embedding_dim});
    kernels::embedding_bag(ctx, std::span(&lookup, 1));
  };
  const Stage read = [&](Context& ctx) {
    state = state_of({shard.get()});
    looked_up->resize(static_cast<std::size_t>(bags * table.embedding_dim));
    ctx.device->copy_to_host(ctx, looked_up->data(), out.as<float>(),
                             static_cast<std::int64_t>(looked_up->size() * sizeof(float)));
  };
  stream->enqueue(update);
  stream->enqueue(look_up);
  stream->enqueue(read);
  stream->synchronize();
  return state;
}

TEST(Devices, ThreadsAndTheCheckDeviceChangeNoBit) {
  const std::vector<StepData> steps = make_steps({.rows = 2000, .dim = 20, .samples = 2000});
  for (const auto type : {SparseOptimizerKind::kRowWiseAdagrad, SparseOptimizerKind::kAdam}) {
    spec::Table table = make_table(2000, 20);
    table.optimizer.type = type;
    table.dtype =
        type == SparseOptimizerKind::kAdam ? spec::RowDType::kFp16 : spec::RowDType::kSplitBf16;
    const State expected = train_whole(table, steps);
    std::vector<float> first_lookup;
    for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCheck}) {
      for (const int threads : {1, 2, 3}) {
        const std::unique_ptr<Device> device = make_device({.kind = kind, .threads = threads});
        std::vector<float> looked_up;
        EXPECT_TRUE(train_on_stream(*device, table, steps, &looked_up) == expected) << threads;
        if (first_lookup.empty()) {
          first_lookup = looked_up;
        }
        EXPECT_EQ(looked_up, first_lookup);
      }
    }
  }
}

TEST(SeveralTables, TogetherEqualOneByOne) {
  const std::vector<StepData> steps = make_steps({.rows = 300, .dim = 12, .samples = 400});
  const std::unique_ptr<Device> device = make_device({.threads = 2});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  std::vector<std::unique_ptr<TableShard>> shards;
  std::vector<std::unique_ptr<RowGradients>> gradients;
  std::vector<RowGradients*> pointers;
  std::vector<spec::Table> tables;
  for (const spec::SparseOptimizer& optimizer : all_optimizers()) {
    tables.push_back(make_table(300, 12));
    tables.back().optimizer = optimizer;
    shards.push_back(whole(*device, tables.back()));
    gradients.push_back(std::make_unique<RowGradients>(*device, *shards.back()));
    pointers.push_back(gradients.back().get());
  }
  for (std::int64_t i = 0; i < kSteps; ++i) {
    const std::vector<GradientBlock> blocks = steps[static_cast<std::size_t>(i)].blocks();
    std::vector<std::pair<RowGradients*, std::span<const GradientBlock>>> work;
    for (RowGradients* const one : pointers) {
      work.emplace_back(one, blocks);
    }
    RowGradients::coalesce(ctx, work);
    TableShard::update(ctx, pointers, update_step(i + 1));
  }
  for (std::size_t i = 0; i < tables.size(); ++i) {
    EXPECT_TRUE(state_of({shards[i].get()}) == train_whole(tables[i], steps))
        << describe(tables[i]);
  }
}

TEST(Forward, SumsInTheOrderOfTheBag) {
  const std::unique_ptr<Device> device = make_device({});
  const spec::Table table = make_table(10, 3);
  const auto shard = whole(*device, table);
  const std::vector<std::int64_t> ids = {4, 4, 9, 0};
  const std::vector<std::int64_t> offsets = {0, 3, 3, 4};
  const std::vector<float> weights = {0.5F, 2.0F, -1.0F, 3.0F};
  std::vector<float> sums(9, -1.0F);
  std::vector<float> weighted(9, -1.0F);
  std::vector<float> rows(12, -1.0F);
  const Bags bags{ids.data(), offsets.data(), nullptr, 3};
  const Bags factors{ids.data(), offsets.data(), weights.data(), 3};
  const std::vector<kernels::BagLookup> lookups = {
      shard->lookup({bags, true, sums.data(), 3}),
      shard->lookup({factors, true, weighted.data(), 3}),
      shard->lookup({bags, false, rows.data(), 3})};
  Context ctx;
  kernels::embedding_bag(ctx, lookups);
  std::vector<std::vector<float>> e(10, std::vector<float>(3));
  for (std::int64_t row = 0; row < 10; ++row) {
    initial_values(table, kSeed, row, {0, 3}, e[static_cast<std::size_t>(row)].data());
  }
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(sums[c], (e[4][c] + e[4][c]) + e[9][c]);
    EXPECT_EQ(sums[3 + c], 0.0F);
    EXPECT_EQ(sums[6 + c], e[0][c]);
    EXPECT_EQ(weighted[c], (0.5F * e[4][c] + 2.0F * e[4][c]) + -1.0F * e[9][c]);
    EXPECT_EQ(weighted[6 + c], 3.0F * e[0][c]);
    EXPECT_EQ(rows[c], e[4][c]);
    EXPECT_EQ(rows[6 + c], e[9][c]);
    EXPECT_EQ(rows[9 + c], e[0][c]);
  }
}

TEST(Forward, ReadsTheHighHalves) {
  const std::unique_ptr<Device> device = make_device({});
  spec::Table table = make_table(10, 20);
  for (const auto type : {SparseOptimizerKind::kRowWiseAdagrad, SparseOptimizerKind::kAdam}) {
    table.optimizer.type = type;
    table.dtype = spec::RowDType::kSplitBf16;
    const auto shard = whole(*device, table);
    const std::vector<std::int64_t> ids = {7, 2};
    const std::vector<std::int64_t> offsets = {0, 1, 2};
    std::vector<float> rows(40);
    const kernels::BagLookup lookup =
        shard->lookup({{ids.data(), offsets.data(), nullptr, 2}, true, rows.data(), 20});
    Context ctx;
    kernels::embedding_bag(ctx, std::span(&lookup, 1));
    std::vector<float> words(20);
    bool any_difference = false;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      initial_values(table, kSeed, ids[i], {0, 20}, words.data());
      for (std::size_t c = 0; c < 20; ++c) {
        EXPECT_EQ(rows[i * 20 + c], to_float(to_split_bfloat16(words[c]).high));
        any_difference |= rows[i * 20 + c] != words[c];
      }
    }
    EXPECT_TRUE(any_difference);
  }
}

TEST(Misuse, IsNamed) {
  const std::unique_ptr<Device> device = make_device({});
  spec::Table table = make_table(10, 32);
  Context ctx;
  const auto shard = whole(*device, table);
  RowGradients none(*device, *shard);
  EXPECT_THROW(shard->update(ctx, none, update_step(1)), Error);
  EXPECT_THROW(TableShard(*device, table, {0, 10}, {8, 32}, 1, {}), Error);
  EXPECT_THROW(TableShard(*device, table, {0, 11}, {0, 32}, 1, {}), Error);
  TableShard left(*device, table, {0, 10}, {0, 16}, 1, {});
  EXPECT_TRUE(left.needs_statistic());
  RowGradients of_left(*device, left);
  of_left.coalesce(ctx, std::span<const GradientBlock>{});
  EXPECT_THROW(left.update(ctx, of_left, update_step(1)), Error);
  none.coalesce(ctx, std::span<const GradientBlock>{});
  const float* const no_statistic = nullptr;
  EXPECT_THROW(
      TableShard::update_with_statistic(ctx, Of(none), update_step(1), std::span(&no_statistic, 1)),
      Error);
}

}  // namespace
}  // namespace weft::embedding::test
