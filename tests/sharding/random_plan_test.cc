// Plans that no planner makes: any grid of any table on any ranks. Compared with one rank where
// that is exact, and where bags are split, bit for bit with a plan that cuts rows alike and columns
// not at all.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/sparse_run.h"
#include "weft/base/parts.h"
#include "weft/base/philox.h"

namespace weft::sharding {
namespace {

/// A stream of draws.
class Random {
 public:
  explicit Random(std::uint64_t seed) : key_(random_key(seed, RandomPurpose::kTest)) {}

  std::int64_t below(std::int64_t end) {
    const auto draw = philox(key_, next_++, 5)[0];
    return static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(end));
  }

  std::vector<std::int64_t> shuffled(std::int64_t count) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
    for (std::int64_t i = count - 1; i > 0; --i) {
      std::swap(numbers[static_cast<std::size_t>(i)],
                numbers[static_cast<std::size_t>(below(i + 1))]);
    }
    return numbers;
  }

  /// `count` pieces of [0, n) cut anywhere, none empty.
  std::vector<Range> cuts(std::int64_t n, std::int64_t count) {
    std::vector<std::int64_t> inside = shuffled(n - 1);
    inside.resize(static_cast<std::size_t>(count - 1));
    std::sort(inside.begin(), inside.end());
    std::vector<Range> pieces;
    for (const std::int64_t cut : inside) {
      pieces.push_back({pieces.empty() ? 0 : pieces.back().end, cut + 1});
    }
    pieces.push_back({pieces.empty() ? 0 : pieces.back().end, n});
    return pieces;
  }

 private:
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

/// Tables of any shape, features that share them; a few features are empty in every sample.
spec::Config random_job(Random& random, const spec::SparseOptimizer& optimizer) {
  constexpr std::array<std::int64_t, 5> kRows = {1, 3, 8, 40, 97};
  constexpr std::array<std::int64_t, 5> kDims = {8, 16, 33, 48, 70};
  spec::Config config;
  config.seed = 7;
  const std::int64_t tables = 1 + random.below(4);
  for (std::int64_t t = 0; t < tables; ++t) {
    config.tables.push_back(make_table("t" + std::to_string(t),
                                       kRows[static_cast<std::size_t>(random.below(5))],
                                       kDims[static_cast<std::size_t>(random.below(5))]));
    config.tables.back().optimizer = optimizer;
  }
  const std::int64_t features = 1 + random.below(7);
  for (std::int64_t f = 0; f < features; ++f) {
    const std::string name = random.below(8) == 0 ? "empty" : "f" + std::to_string(f);
    const auto pooling = static_cast<spec::Pooling>(random.below(3));
    config.sparse_features.push_back(
        make_feature(name, "t" + std::to_string(random.below(tables)), pooling));
    config.sparse_features.back().weighted = pooling == spec::Pooling::kSum && random.below(2) == 0;
  }
  return config;
}

spec::TablePlan replicas(const spec::Table& table, std::int64_t ranks) {
  spec::TablePlan plan{
      .table = table.name, .sharding = spec::Sharding::kDataParallel, .shards = {}};
  plan.shards.edit([&](auto& shards) {
    for (std::int64_t r = 0; r < ranks; ++r) {
      shards.push_back(
          {.rank = r, .rows = {0, table.num_embeddings}, .cols = {0, table.embedding_dim}});
    }
  });
  return plan;
}

/// Ranges cut anywhere, or every n-th row.
std::vector<RowSet> random_rows(const spec::Table& table, Random& random) {
  const std::int64_t count = 1 + random.below(std::min<std::int64_t>(table.num_embeddings, 9));
  std::vector<RowSet> rows;
  if (random.below(2) == 0) {
    for (std::int64_t k = 0; k < count; ++k) {
      rows.emplace_back(k, table.num_embeddings, count);
    }
    return rows;
  }
  for (const Range& cut : random.cuts(table.num_embeddings, count)) {
    rows.emplace_back(cut);
  }
  return rows;
}

/// The blocks of the same rows on different ranks; a rank may have several cuts of rows.
spec::TablePlan random_grid(const spec::Table& table, std::int64_t ranks, Random& random) {
  const std::int64_t blocks = (table.embedding_dim + spec::kColumnBlock - 1) / spec::kColumnBlock;
  const auto columns = random.cuts(blocks, 1 + random.below(std::min(blocks, ranks)));
  const std::vector<RowSet> rows = random_rows(table, random);
  spec::TablePlan plan{.table = table.name, .sharding = spec::Sharding::kGridShard, .shards = {}};
  plan.pooled_at = random.below(2) == 0 ? spec::PooledAt::kOwner : spec::PooledAt::kSample;
  std::vector<spec::Shard> shards;
  for (const RowSet& cut : rows) {
    const std::vector<std::int64_t> owners = random.shuffled(ranks);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      shards.push_back(
          {.rank = owners[c],
           .rows = cut,
           .cols = {columns[c].begin * spec::kColumnBlock,
                    std::min(columns[c].end * spec::kColumnBlock, table.embedding_dim)}});
    }
  }
  plan.shards = std::move(shards);
  return plan;
}

/// Half of the tables have hot rows, which may be any; row 0 is asked for most.
std::vector<Range> random_hot_rows(const spec::Table& table, Random& random) {
  std::vector<Range> hot;
  const std::int64_t share = 2 + random.below(4);
  for (std::int64_t row = random.below(2); row < table.num_embeddings; ++row) {
    if (random.below(share) > 0) {
      continue;
    }
    if (!hot.empty() && hot.back().end == row) {
      ++hot.back().end;
    } else {
      hot.push_back({row, row + 1});
    }
  }
  return random.below(2) == 0 ? hot : std::vector<Range>{};
}

spec::Plan random_plan(const spec::Config& config, std::int64_t ranks, Random& random) {
  spec::Plan plan{.version = 1, .ranks = ranks, .parts = kParts, .tables = {}};
  for (const spec::Table& table : config.tables) {
    if (random.below(6) == 0) {
      plan.tables.push_back(replicas(table, ranks));
    } else {
      plan.tables.push_back(random_grid(table, ranks, random));
      plan.tables.back().hot = random_hot_rows(table, random);
    }
  }
  return plan;
}

/// The same cuts of rows, without cuts of columns.
spec::Plan whole_rows(const spec::Plan& plan, const spec::Config& config) {
  spec::Plan whole = plan;
  for (std::size_t t = 0; t < whole.tables.size(); ++t) {
    spec::TablePlan& table = whole.tables[t];
    if (table.sharding == spec::Sharding::kGridShard) {
      table.sharding = spec::Sharding::kRowWise;
      table.shards.edit([&](auto& shards) {
        std::erase_if(shards, [](const spec::Shard& shard) { return shard.cols.begin != 0; });
        for (spec::Shard& shard : shards) {
          shard.cols.end = config.tables[t].embedding_dim;
        }
      });
    }
  }
  return whole;
}

spec::SparseOptimizer random_optimizer(Random& random) {
  spec::SparseOptimizer optimizer =
      make_optimizer(static_cast<SparseOptimizerKind>(random.below(5)));
  optimizer.max_norm = random.below(2) == 0 ? 0.4 : 0.0;
  return optimizer;
}

TEST(RandomPlan, IntegersGiveTheVectorsAndStateOfOneRank) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    spec::SparseOptimizer sgd = make_optimizer(SparseOptimizerKind::kSgd);
    sgd.learning_rate = 1.0;
    spec::Config config = random_job(random, sgd);
    for (spec::Table& table : config.tables) {
      table.init = spec::TableInit::kZero;
    }
    RunOptions options{.sizes = {1 + random.below(40), 1 + random.below(5), 1 + random.below(60)}};
    const RunResult expected = run(config, options);
    options.ranks = static_cast<int>(1 + random.below(8));
    const spec::Plan plan = random_plan(config, options.ranks, random);
    options.plan = &plan;
    const RunResult got = run(config, options);
    EXPECT_EQ(got.hash, expected.hash) << "seed " << seed << "\n" << spec::plan_to_yaml(plan);
    EXPECT_EQ(got.pooled, expected.pooled) << "seed " << seed;
    EXPECT_EQ(got.sequences, expected.sequences) << "seed " << seed;
  }
}

TEST(RandomPlan, CutsOfColumnsChangeNoBit) {
  std::int64_t split = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(1000 + seed);
    const spec::Config config = random_job(random, random_optimizer(random));
    RunOptions options{.ranks = static_cast<int>(2 + random.below(7)),
                       .sizes = {1 + random.below(40), 1 + random.below(60)}};
    const spec::Plan plan = random_plan(config, options.ranks, random);
    const spec::Plan rows = whole_rows(plan, config);
    options.plan = &rows;
    const RunResult expected = run(config, options);
    options.plan = &plan;
    const RunResult got = run(config, options);
    EXPECT_EQ(got.hash, expected.hash) << "seed " << seed << "\n" << spec::plan_to_yaml(plan);
    EXPECT_EQ(got.pooled, expected.pooled) << "seed " << seed;
    EXPECT_EQ(got.sequences, expected.sequences) << "seed " << seed;
    split += run(config, {.sizes = options.sizes}).pooled != expected.pooled ? 1 : 0;
  }
  EXPECT_GT(split, 10) << "no bag was split: the test shows nothing";
}

TEST(RandomPlan, PooledAtTheSampleEveryGridHasTheBitsOfOneRank) {
  std::int64_t differ = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(3000 + seed);
    const spec::Config config = random_job(random, random_optimizer(random));
    RunOptions options{.sizes = {1 + random.below(40), 1 + random.below(5), 1 + random.below(60)},
                       .gradients = Gradients::kRounded};
    const RunResult expected = run(config, options);
    options.ranks = static_cast<int>(2 + random.below(7));
    options.device = random.below(4) == 0 ? DeviceKind::kCheck : DeviceKind::kCpu;
    spec::Plan plan = random_plan(config, options.ranks, random);
    options.plan = &plan;
    const auto pool_at = [&](spec::PooledAt place) {
      for (spec::TablePlan& table : plan.tables) {
        table.pooled_at =
            table.sharding == spec::Sharding::kGridShard ? place : spec::PooledAt::kOwner;
      }
      return run(config, options);
    };
    const RunResult got = pool_at(spec::PooledAt::kSample);
    EXPECT_EQ(got.hash, expected.hash) << "seed " << seed << "\n" << spec::plan_to_yaml(plan);
    EXPECT_EQ(got.pooled, expected.pooled) << "seed " << seed;
    EXPECT_EQ(got.sequences, expected.sequences) << "seed " << seed;
    differ += pool_at(spec::PooledAt::kOwner).pooled != expected.pooled ? 1 : 0;
  }
  EXPECT_GT(differ, 10) << "no bag was split: the test shows nothing";
}

/// Values of the initial rows of table 0, through a sequence of all of them on one rank.
std::vector<float> initial_rows(const spec::Config& config) {
  const auto device = make_device({});
  const spec::Table& table = config.tables[0];
  embedding::TableShard whole(*device, table, {0, table.num_embeddings}, {0, table.embedding_dim},
                              config.seed, {});
  std::vector<float> values(static_cast<std::size_t>(table.num_embeddings * table.embedding_dim));
  whole.read_state(0, 0, table.num_embeddings, values.data());
  return values;
}

/// The sum over cuts [begin, end) as docs/numerics.md has it, absent ones skipped.
struct Term {
  bool present = false;
  float value = 0.0F;
};

Term tree(const std::vector<Term>& terms, std::int64_t begin, std::int64_t end) {
  if (end - begin == 1) {
    return terms[static_cast<std::size_t>(begin)];
  }
  std::int64_t left = 1;
  while (2 * left < end - begin) {
    left *= 2;
  }
  const Term a = tree(terms, begin, begin + left);
  const Term b = tree(terms, begin + left, end);
  return a.present && b.present ? Term{true, a.value + b.value} : a.present ? a : b;
}

TEST(RandomPlan, PartialSumsOfABagGoUpTheTreeOverCutsOfRows) {
  spec::Config config;
  config.seed = 7;
  config.tables = {make_table("t", 40, 40)};
  config.tables[0].optimizer = make_optimizer(SparseOptimizerKind::kSgd);
  config.sparse_features = {make_feature("f", "t", spec::Pooling::kSum)};
  const std::vector<float> values = initial_rows(config);
  const KeyedJaggedTensor batch = make_batch(config, 1, {0, 200});
  const JaggedView bags = batch.feature(0);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random(2000 + seed);
    const spec::Plan plan = [&] {
      spec::Plan made{.version = 1, .ranks = 5, .parts = kParts, .tables = {}};
      made.tables.push_back(random_grid(config.tables[0], 5, random));
      made.tables[0].pooled_at = spec::PooledAt::kOwner;
      made.tables[0].hot = random_hot_rows(config.tables[0], random);
      return made;
    }();
    const std::vector<Range>& hot = plan.tables[0].hot;
    std::vector<RowSet> cuts;
    for (const spec::Shard& shard : plan.tables[0].shards) {
      if (shard.cols.begin == 0) {
        cuts.push_back(shard.rows);
      }
    }
    std::vector<float> expected;
    for (std::int64_t b = 0; b < bags.batch(); ++b) {
      for (std::size_t c = 0; c < 40; ++c) {
        std::vector<Term> terms(cuts.size() + 1);  // the last one is that of the hot rows
        for (const std::int64_t id : bags.bag(b)) {
          const auto cut = std::find_if(cuts.begin(), cuts.end(),
                                        [id](const RowSet& rows) { return rows.contains(id); });
          const bool is_hot = std::any_of(hot.begin(), hot.end(), [id](const Range& rows) {
            return rows.begin <= id && id < rows.end;
          });
          Term& term = is_hot ? terms.back() : terms[static_cast<std::size_t>(cut - cuts.begin())];
          term = {true, term.value + values[static_cast<std::size_t>(id) * 40 + c]};
        }
        const std::size_t count = cuts.size() + (hot.empty() ? 0 : 1);
        expected.push_back(tree(terms, 0, static_cast<std::int64_t>(count)).value);
      }
    }
    RunOptions options{.ranks = 5, .sizes = {200}, .plan = &plan};
    EXPECT_EQ(run(config, options).pooled, expected) << "seed " << seed << ", " << cuts.size();
  }
}

TEST(RandomPlan, EveryPatternOfHosts) {
  const std::vector<std::vector<std::int64_t>> patterns = {
      {0, 1, 2},    {0, 0, 1, 1, 2, 2, 3},    {0, 0, 0, 1, 1}, {0, 1, 0, 1, 0},
      {5, 5, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 1, 1}};
  const auto optimizer = make_optimizer(SparseOptimizerKind::kRowWiseAdam);
  const RunResult expected = run(make_config(spec::Sharding::kTableWise, optimizer), {});
  const RunResult sums = run(make_integer_config(spec::Sharding::kTableWise), {});
  for (const auto& hosts : patterns) {
    for (const spec::Sharding sharding :
         {spec::Sharding::kTableRowWise, spec::Sharding::kTableColumnWise,
          spec::Sharding::kGridShard, spec::Sharding::kRowWise}) {
      const planner::RankLayout target{.ranks = static_cast<std::int64_t>(hosts.size()),
                                       .hosts = hosts};
      const auto run_planned = [&](spec::Config config) {
        for (std::size_t t = 0; t < config.tables.size(); ++t) {
          config.tables[t].row_split =
              sharding == spec::Sharding::kTableColumnWise || t % 2 == hosts.size() % 2
                  ? spec::RowSplit::kRange
                  : spec::RowSplit::kModulo;
        }
        const spec::Plan plan = planner::make_plan(config, target);
        return run(config, {.ranks = static_cast<int>(hosts.size()), .plan = &plan});
      };
      const std::string what =
          fmt::format("sharding {}, hosts {}", static_cast<int>(sharding), fmt::join(hosts, " "));
      EXPECT_EQ(run_planned(make_config(sharding, optimizer)).hash, expected.hash) << what;
      const RunResult got = run_planned(make_integer_config(sharding));
      EXPECT_EQ(got.pooled, sums.pooled) << what;
      EXPECT_EQ(got.sequences, sums.sequences) << what;
    }
  }
}

}  // namespace
}  // namespace weft::sharding
