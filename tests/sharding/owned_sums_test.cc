// Rows that all ranks hold, added up by their owners: the bits of the gathered form, the bytes of
// the formulas in owned_sums.h, and a sum in another order, which has other bits.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/sparse_run.h"
#include "weft/base/parts.h"
#include "weft/layout/row_sums.h"

namespace weft::sharding {
namespace {

using layout::RowSums;

constexpr std::int64_t kPartsOfSums = 24;

RunOptions rounded(int ranks, RowSums sums) {
  RunOptions options{.ranks = ranks, .sizes = {97, 64, 5}, .gradients = Gradients::kRounded};
  options.most_ids = 1;  // no bag is split between tail and hot rows
  options.parts = kPartsOfSums;
  options.row_sums = sums;
  return options;
}

/// Every seventh row and the first two are hot.
spec::Plan with_hot_rows(const spec::Config& config, int ranks) {
  spec::Plan plan = planner::make_plan(config, two_hosts(ranks));
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    plan.tables[t].hot = {{0, std::min<std::int64_t>(2, config.tables[t].num_embeddings)}};
    for (std::int64_t row = 7; row < config.tables[t].num_embeddings; row += 7) {
      plan.tables[t].hot.push_back({row, row + 1});
    }
  }
  return plan;
}

TEST(RowSums, BlocksAreAllRowsOnce) {
  for (const std::int64_t rows : {1, 3, 24, 100, 4099}) {
    for (const std::int64_t ranks : {1, 2, 5, 24, 128}) {
      for (const std::int64_t table : {0, 1, 4}) {
        const layout::SumBlocks blocks{.rows = rows, .ranks = ranks, .table = table, .tables = 5};
        std::vector<int> owners(static_cast<std::size_t>(rows));
        for (std::int64_t r = 0; r < ranks; ++r) {
          const Range own = blocks.owned(r);
          ASSERT_LE(own.size(), (rows + ranks - 1) / ranks);
          for (std::int64_t row = own.begin; row < own.end; ++row) {
            ++owners[static_cast<std::size_t>(row)];
          }
          ASSERT_EQ(blocks.block(r), blocks.owned(blocks.owner(r)));
        }
        ASSERT_EQ(owners, std::vector<int>(owners.size(), 1));
      }
    }
  }
}

class OwnedSumsOf : public ::testing::TestWithParam<SparseOptimizerKind> {};

TEST_P(OwnedSumsOf, DataParallelTablesHaveTheBitsOfGatheredOnes) {
  spec::SparseOptimizer optimizer = make_optimizer(GetParam());
  optimizer.max_norm = 0.5;
  spec::Config config = make_config(spec::Sharding::kDataParallel, optimizer);
  config.tables[1].dtype = spec::RowDType::kSplitBf16;
  config.tables[2].dtype = spec::RowDType::kBf16;  // rounded by the number of the row
  const RunResult expected = run(config, rounded(1, RowSums::kGathered));
  for (const int ranks : {2, 3, 8, 13, 24}) {
    for (const RowSums sums : {RowSums::kGathered, RowSums::kOwned}) {
      expect_equal(run(config, rounded(ranks, sums)), expected,
                   fmt::format("{} ranks, form {}", ranks, static_cast<int>(sums)));
    }
  }
}

TEST_P(OwnedSumsOf, HotRowsHaveTheBitsOfGatheredOnes) {
  const spec::Config config = make_config(spec::Sharding::kTableWise, make_optimizer(GetParam()));
  const RunResult expected = run(config, rounded(1, RowSums::kGathered));
  for (const int ranks : {2, 5, 24}) {
    spec::Plan plan = with_hot_rows(config, ranks);
    RunOptions options = rounded(ranks, RowSums::kOwned);
    options.plan = &plan;
    expect_equal(run(config, options), expected, fmt::format("{} ranks", ranks));
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OwnedSumsOf, ::testing::ValuesIn(kSparseOptimizers));

/// Through relays, on hosts of different sizes and with ranks dealt to hosts in turns.
TEST(OwnedSums, OnHostsHaveTheBitsOfOneRank) {
  const spec::SparseOptimizer optimizer = make_optimizer(SparseOptimizerKind::kAdagrad);
  const spec::Config copied = make_config(spec::Sharding::kDataParallel, optimizer);
  const spec::Config cut = make_config(spec::Sharding::kTableWise, optimizer);
  const RunResult expected = run(copied, rounded(1, RowSums::kGathered));
  const std::vector<std::vector<int>> layouts = {
      {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 0, 1}, {0, 1, 1, 2, 2, 2, 2}, {0, 0, 0, 0, 0, 0, 0, 0,
                                                                        1, 1, 1, 1, 1, 1, 1, 1,
                                                                        2, 2, 2, 2, 2, 2, 2, 2}};
  for (const std::vector<int>& hosts : layouts) {
    const auto ranks = static_cast<int>(hosts.size());
    for (const spec::Config* config : {&copied, &cut}) {
      spec::Plan plan = config == &copied ? planner::make_plan(*config, two_hosts(ranks))
                                          : with_hot_rows(*config, ranks);
      plan.hosts.assign(hosts.begin(), hosts.end());
      plan.collectives.vectors = spec::CollectiveForm::kHierarchical;
      for (const RowSums sums : {RowSums::kGathered, RowSums::kOwned}) {
        RunOptions options = rounded(ranks, sums);
        options.plan = &plan;
        options.hosts = hosts;
        EXPECT_EQ(run(*config, options).hash, expected.hash) << fmt::format(
            "{} ranks, {} hosts, form {}", ranks, hosts.back() + 1, static_cast<int>(sums));
      }
    }
  }
}

constexpr std::int64_t kSummedRows = 60;
constexpr std::int64_t kDim = 16;

/// One table of which every sample reads one row; every rank reads all rows in a step of
/// kPartsOfSums * kSummedRows samples.
spec::Config one_table() {
  spec::Config config;
  config.seed = 7;
  config.tables = {make_table("t", kSummedRows, kDim)};
  config.tables[0].sharding = spec::Sharding::kDataParallel;
  config.tables[0].optimizer = make_optimizer(SparseOptimizerKind::kSgd);
  config.tables[0].optimizer.learning_rate = 1.0;
  config.tables[0].init = spec::TableInit::kZero;
  config.sparse_features = {make_feature("f", "t", spec::Pooling::kSum)};
  return config;
}

KeyedJaggedTensor batch_of(Range positions) {
  KeyedJaggedTensor batch;
  batch.batch = positions.size();
  batch.keys = {"f"};
  batch.offsets.push_back(0);
  for (std::int64_t p = positions.begin; p < positions.end; ++p) {
    batch.values.push_back(p % kSummedRows);
    batch.offsets.push_back(static_cast<std::int64_t>(batch.values.size()));
  }
  return batch;
}

/// One step from zero rows; what each rank sends in the update, and the outputs of the next lookup,
/// which are minus the sums of gradients.
struct OneStep {
  std::vector<comm::Traffic::Entry> sent;  ///< [ranks]
  std::vector<float> rows;                 ///< [kSummedRows][kDim] of rank 0
};

OneStep one_step(int ranks, RowSums sums) {
  const spec::Config config = one_table();
  spec::Plan plan = planner::make_plan(config, two_hosts(ranks));
  plan.parts = kPartsOfSums;
  constexpr std::int64_t kSize = kPartsOfSums * kSummedRows;
  OneStep result;
  result.sent.resize(static_cast<std::size_t>(ranks));
  comm::run_local(ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
    ShardedEmbeddings embeddings(config, plan, world, *device, {.row_sums = sums});
    const auto sparse = embeddings.make_step();
    const auto stream = device->make_stream({.name = "test", .is_inline = true});
    const auto stage = [&](const Stage& body) {
      stream->enqueue(body);
      stream->synchronize();
    };
    const Range positions = rank_samples(kSize, kPartsOfSums, ranks, world.rank());
    const KeyedJaggedTensor batch = batch_of(positions);
    const std::vector<std::byte> control(8);
    for (const std::int64_t step : {1, 2}) {
      const BatchView view{.sparse = batch, .step = step, .global_size = kSize, .sample_ids = {}};
      stage([&](Context& ctx) { embeddings.exchange_counts(ctx, *sparse, view, control); });
      stage([&](Context& ctx) { embeddings.exchange_ids(ctx, *sparse); });
      stage([&](Context& ctx) { embeddings.lookup(ctx, *sparse); });
      stage([&](Context& ctx) { embeddings.output_dist(ctx, *sparse); });
      if (step == 2) {
        break;
      }
      fill_gradients(*sparse, batch, step, positions.begin, Gradients::kRounded);
      stage([&](Context& ctx) { embeddings.coalesce(ctx, *sparse); });
      stage([&](Context& ctx) { embeddings.grad_dist(ctx, *sparse); });
      stage([&](Context& ctx) {
        const comm::Traffic::Entry before = embeddings.vector_traffic().total();
        embeddings.update(ctx, *sparse,
                          {.learning_rate_factor = 1.0, .step = step, .seed = config.seed});
        RunResult noted;
        noted.updates.resize(static_cast<std::size_t>(ranks));
        note_update(world, before, embeddings.vector_traffic().total(), noted);
        result.sent[static_cast<std::size_t>(world.rank())] =
            noted.updates[static_cast<std::size_t>(world.rank())];
      });
    }
    if (world.rank() == 0) {  // its first samples read the rows in order
      const Matrix<float>& outputs = sparse->outputs().pooled;
      result.rows.assign(outputs.data, outputs.data + kSummedRows * kDim);
    }
    embeddings.release(*sparse);
  });
  return result;
}

/// In fp32, by the rule of parts, or one part's sum after the other, as messages might arrive.
std::vector<float> expected_rows(bool by_parts) {
  std::vector<float> rows;
  for (std::int64_t row = 0; row < kSummedRows; ++row) {
    for (std::int64_t c = 0; c < kDim; ++c) {
      // Part p has the samples [p * kSummedRows, (p + 1) * kSummedRows), one of each row.
      std::vector<float> terms;
      for (std::int64_t p = 0; p < kPartsOfSums; ++p) {
        terms.push_back(gradient_value(Gradients::kRounded, 1, p * kSummedRows + row, c));
      }
      float sum = terms.back();
      if (by_parts) {
        std::array<float, 8> slots{};
        sum_tree(
            Range{0, kPartsOfSums}, 0,
            [&](Range node, int depth) {
              if (node.size() > 1) {
                return false;
              }
              slots[static_cast<std::size_t>(depth)] = terms[static_cast<std::size_t>(node.begin)];
              return true;
            },
            [&](int depth) {
              const auto slot = static_cast<std::size_t>(depth);
              slots[slot] += slots[slot + 1];
            });
        sum = slots[0];
      } else {
        for (std::int64_t p = kPartsOfSums - 2; p >= 0; --p) {
          sum += terms[static_cast<std::size_t>(p)];
        }
      }
      rows.push_back(0.0F - sum);
    }
  }
  return rows;
}

TEST(OwnedSums, AreAddedByTheRuleOfParts) {
  const std::vector<float> expected = expected_rows(true);
  EXPECT_NE(expected, expected_rows(false)) << "the order of addition does not show";
  for (const int ranks : {2, 7, 24}) {
    for (const RowSums sums : {RowSums::kGathered, RowSums::kOwned}) {
      EXPECT_EQ(one_step(ranks, sums).rows, expected) << ranks << " ranks";
    }
  }
}

/// Whole subtrees of a rank's parts.
std::int64_t nodes_of(int ranks, std::int64_t rank) {
  const Range parts = rank_parts(kPartsOfSums, ranks, rank);
  return static_cast<std::int64_t>(maximal_subtrees(kPartsOfSums, parts).size());
}

TEST(OwnedSums, SendTheBytesOfTheHeader) {
  for (const int ranks : {2, 4, 9, 24}) {
    const layout::SumBlocks blocks{.rows = kSummedRows, .ranks = ranks};
    const OneStep owned = one_step(ranks, RowSums::kOwned);
    const OneStep gathered = one_step(ranks, RowSums::kGathered);
    for (std::int64_t r = 0; r < ranks; ++r) {
      const std::int64_t others = ranks - 1;
      const std::int64_t own = blocks.owned(r).size();
      const std::int64_t partials = nodes_of(ranks, r) * (12 + 4 * kDim);
      // A count takes a byte: an owner has at most 30 rows, a rank at most 3 subtrees.
      ASSERT_LT(layout::most_nodes(kPartsOfSums, ranks) * own, 128);
      const comm::Traffic::Entry& sent = owned.sent[static_cast<std::size_t>(r)];
      EXPECT_EQ(sent.bytes,
                partials * (kSummedRows - own) + others * own * (8 + 4 * kDim) + 2 * others)
          << "rank " << r << " of " << ranks;
      EXPECT_EQ(sent.calls, 4);
      EXPECT_EQ(sent.messages, 4 * others);
      EXPECT_EQ(gathered.sent[static_cast<std::size_t>(r)].bytes,
                others * (partials * kSummedRows + 8));
    }
  }
}

/// One row has one owner: to the other ranks nothing is sent.
TEST(OwnedSums, LanesWithoutRowsAreSilent) {
  spec::Config config =
      make_config(spec::Sharding::kDataParallel, make_optimizer(SparseOptimizerKind::kSgd));
  config.tables.resize(1);
  config.sparse_features = {make_feature("d", "one", spec::Pooling::kSum)};
  RunOptions options = rounded(6, RowSums::kOwned);
  options.sizes = {600};
  const std::vector<comm::Traffic::Entry> sent = run(config, options).updates;
  // Counts and rows, to the owner of the last block, and from it.
  for (std::size_t r = 0; r < sent.size(); ++r) {
    EXPECT_EQ(sent[r].messages, 2 * (r == 5 ? 5 : 1)) << "rank " << r;
  }
}

}  // namespace
}  // namespace weft::sharding
