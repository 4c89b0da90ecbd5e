// The hash of a job looks at the rows that somebody has written, and is that of all rows.
#include "weft/embedding/written_rows.h"

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/checkpoint/state_hash.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/planner/place.h"
#include "weft/train/engine.h"

namespace weft::train {
namespace {

/// The same state of which nobody knows what is written.
class AllRows final : public StateSource {
 public:
  explicit AllRows(const StateSource& source) : source_(source) {}

  [[nodiscard]] std::vector<StateItem> state_items() const override {
    return source_.state_items();
  }

  void read_state(std::size_t index,
                  std::int64_t row_begin,
                  std::int64_t rows,
                  void* out) const override {
    source_.read_state(index, row_begin, rows, out);
  }

 private:
  const StateSource& source_;
};

/// Initial values of the tables' shards, of which each is looked for by what it holds.
checkpoint::InitialValues initial_of(const std::vector<embedding::TableShard*>& shards) {
  using Place = std::tuple<std::string, std::string, std::int64_t, std::int64_t>;
  const auto place_of = [](const StateItem& item) {
    return Place(item.parameter, item.kind, item.row_begin, item.col_begin);
  };
  std::map<Place, std::pair<const embedding::TableShard*, std::size_t>> places;
  for (const embedding::TableShard* shard : shards) {
    const std::vector<StateItem> items = shard->state_items();
    for (std::size_t i = 0; i < items.size(); ++i) {
      places[place_of(items[i])] = {shard, i};
    }
  }
  return [places, place_of](const StateItem& item, std::int64_t row, std::int64_t rows, void* out) {
    const auto found = places.find(place_of(item));
    if (found == places.end()) {
      return false;
    }
    found->second.first->initial_state(found->second.second, row, rows, out);
    return true;
  };
}

struct Hashes {
  checkpoint::StateHash own, of_all_rows;
  std::int64_t written = 0;  ///< rows of this rank's shards
  std::int64_t rows = 0;
};

/// The hashes of the engine's tables.
Hashes hashes_of(comm::Communicator& world, Engine& engine) {
  Hashes hashes;
  engine.settle();
  (void)engine.sources();  // hot rows go home
  const std::vector<embedding::TableShard*>& shards = engine.embeddings().shards();
  std::vector<std::unique_ptr<AllRows>> plain;
  std::vector<const StateSource*> own;
  std::vector<const StateSource*> all;
  for (const embedding::TableShard* shard : shards) {
    own.push_back(shard);
    plain.push_back(std::make_unique<AllRows>(*shard));
    all.push_back(plain.back().get());
    if (shard->row_state()->written_rows()) {
      hashes.written += *shard->row_state()->written_rows();
      hashes.rows += shard->rows().size();
    }
  }
  engine.run_stage([&](Context& ctx) {
    const checkpoint::InitialValues initial = initial_of(shards);
    hashes.own = checkpoint::hash_state(world, ctx, own, initial);
    hashes.of_all_rows = checkpoint::hash_state(world, ctx, all, initial);
  });
  return hashes;
}

/// Tables so large that few of their rows are met.
spec::Config wide_job(std::vector<std::string> overrides) {
  overrides = joined({"tables.item.num_embeddings=7001", "tables.rare.num_embeddings=5003",
                      "tables.tags.num_embeddings=999"},
                     overrides);
  return make_job(overrides);
}

void expect_equal_hashes(const spec::Config& config,
                         int ranks,
                         const spec::Plan& plan,
                         const std::string& what,
                         bool few = true) {
  comm::run_local(ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device =
        make_device({.kind = config.train.device == spec::DeviceChoice::kCheck ? DeviceKind::kCheck
                                                                               : DeviceKind::kCpu,
                     .threads = 2});
    data::Batch batch;
    Engine engine(config, plan, world, *device);
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, {},
                        data::LoaderOptions::train(config, world.rank(), ranks, plan.parts));
    const Hashes fresh = hashes_of(world, engine);
    EXPECT_EQ(fresh.own, checkpoint::StateHash{}) << what;
    EXPECT_EQ(fresh.of_all_rows, checkpoint::StateHash{}) << what;
    for (std::int64_t step = 1; step <= 3; ++step) {
      loader.next(batch);
      engine.train_step({.batch = batch, .step = step});
    }
    const Hashes trained = hashes_of(world, engine);
    EXPECT_EQ(trained.own, trained.of_all_rows) << what;
    EXPECT_NE(trained.own, checkpoint::StateHash{}) << what;
    if (few) {
      EXPECT_LT(2 * trained.written, trained.rows) << what;
    }
  });
}

/// A shard of which a third of the rows is written, by number in steps of `step`.
std::unique_ptr<embedding::TableShard> third_written(Device& device,
                                                     const spec::Table& table,
                                                     std::int64_t step) {
  const RowSet rows{1, table.num_embeddings, step};
  const std::int64_t dim = table.embedding_dim;
  auto shard = std::make_unique<embedding::TableShard>(device, table, rows, Range{0, dim}, 1,
                                                       embedding::TableShardOptions{});
  std::vector<float> row(static_cast<std::size_t>(dim), 0.5F);
  for (std::int64_t r = 0; r < rows.size(); r += 3) {
    row[0] = static_cast<float>(r);
    shard->write_state(0, rows.row(r), 1, 0, dim, row.data());
  }
  return shard;
}

// Threads take tasks of a table, and their memory goes from a wide table to a narrow one and back.
TEST(WrittenRowsHash, IsThatOfAllRowsByAnyNumberOfThreads) {
  const std::unique_ptr<Device> device = make_device({.threads = 4});
  spec::Table wide;
  wide.name = "wide";
  wide.embedding_dim = 64;
  wide.num_embeddings = 60000;
  wide.optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
  spec::Table halves = wide;
  halves.name = "halves";
  halves.embedding_dim = 20;
  halves.dtype = spec::RowDType::kSplitBf16;
  halves.optimizer.type = SparseOptimizerKind::kAdagrad;
  spec::Table last = wide;
  last.name = "last";
  std::vector<std::unique_ptr<embedding::TableShard>> shards;
  shards.push_back(third_written(*device, wide, 1));
  shards.push_back(third_written(*device, halves, 2));
  shards.push_back(third_written(*device, last, 3));
  std::vector<embedding::TableShard*> all;
  std::vector<std::unique_ptr<AllRows>> plain;
  std::vector<const StateSource*> own;
  std::vector<const StateSource*> copied;
  for (const auto& shard : shards) {
    all.push_back(shard.get());
    own.push_back(shard.get());
    plain.push_back(std::make_unique<AllRows>(*shard));
    copied.push_back(plain.back().get());
    ASSERT_GT(*shard->row_state()->written_rows(), 0);
  }
  const checkpoint::InitialValues initial = initial_of(all);
  Context ctx{.device = device.get()};
  const checkpoint::StateHash expected = checkpoint::hash_state(ctx, copied, initial);
  EXPECT_NE(expected, checkpoint::StateHash{});
  EXPECT_EQ(checkpoint::hash_state(ctx, own, initial), expected);
  ctx.pool = &device->pool();
  EXPECT_EQ(checkpoint::hash_state(ctx, own, initial), expected);
  EXPECT_EQ(checkpoint::hash_state(ctx, copied, initial), expected);
}

TEST(WrittenRowsHash, IsThatOfAllRowsForEverySharding) {
  for (const int ranks : {1, 3}) {
    for (const char* sharding : {"data_parallel", "table_wise", "row_wise", "column_wise"}) {
      for (const char* optimizer :
           {"sgd", "adagrad", "row_wise_adagrad", "adam", "row_wise_adam"}) {
        const spec::Config config = wide_job(joined(
            all_tables("sharding", sharding),
            {std::string("sparse_optimizer.type=") + optimizer, "sparse_optimizer.max_norm=0.5"}));
        expect_equal_hashes(config, ranks, planner::make_plan(config, ranks),
                            std::string(sharding) + " " + optimizer);
      }
    }
  }
}

TEST(WrittenRowsHash, IsThatOfAllRowsForEveryTypeOfRows) {
  for (const char* dtype : {"fp32", "fp16", "bf16", "split_bf16"}) {
    for (const char* init : {"uniform", "normal", "zero"}) {
      const spec::Config config =
          wide_job(joined(all_tables("dtype", dtype), all_tables("init", init)));
      expect_equal_hashes(config, 2, planner::make_plan(config, 2),
                          std::string(dtype) + " " + init);
    }
  }
}

TEST(WrittenRowsHash, IsThatOfAllRowsWithHotRowsAndGroups) {
  const spec::Config config = wide_job({});
  spec::Plan plan = planner::make_plan(config, 3);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (config.tables[t].num_embeddings > 100 &&
        plan.tables[t].sharding != spec::Sharding::kDataParallel) {
      plan.tables[t].hot = {{0, 1}, {5, 20}};
    }
  }
  expect_equal_hashes(config, 3, plan, "hot rows");
  for (const char* sync : {"dense", "touched"}) {
    const spec::Config groups = wide_job(mesh(2, sync));
    expect_equal_hashes(groups, 2, planner::make_plan(groups, 2), sync,
                        std::string(sync) == "touched");
  }
}

TEST(WrittenRowsHash, IsThatOfAllRowsOnTheCheckDevice) {
  // Nobody keeps count there.
  const spec::Config config = wide_job({"train.device=check"});
  expect_equal_hashes(config, 2, planner::make_plan(config, 2), "check device", false);
}

/// Tables so small that updates soon have met as many rows as there are.
TEST(WrittenRowsHash, IsThatOfAllRowsOnceNobodyKeepsCount) {
  const spec::Config config = make_job({});
  expect_equal_hashes(config, 2, planner::make_plan(config, 2), "small tables", false);
}

/// The control: a row that is written behind everybody's back is not in the hash.
TEST(WrittenRowsHash, MissesARowWithoutItsMark) {
  const auto device = make_device({});
  spec::Table table;
  table.name = "C1";
  table.num_embeddings = 500;
  table.embedding_dim = 16;
  embedding::TableShard shard(*device, table, Range{0, 500}, Range{0, 16}, 7, {});
  std::vector<embedding::TableShard*> shards = {&shard};
  const AllRows plain(shard);
  const StateSource* const own = &shard;
  const StateSource* const all = &plain;
  const checkpoint::InitialValues initial = initial_of(shards);
  Context ctx;
  ctx.device = device.get();
  const auto hash = [&](const StateSource* const& source) {
    return checkpoint::hash_state(ctx, std::span(&source, 1), initial);
  };
  const std::vector<float> values(16, 0.25F);
  shard.write_state(0, 77, 1, 0, 16, values.data());
  EXPECT_EQ(hash(own), hash(all));
  kernels::RowTable rows = shard.row_table();
  std::memcpy(static_cast<char*>(rows.weights) + 123 * rows.weight_stride, values.data(), 64);
  EXPECT_NE(hash(own), hash(all));
  const std::int32_t row = 123;
  shard.note_written(std::span(&row, 1));
  EXPECT_EQ(hash(own), hash(all));
  EXPECT_NE(checkpoint::hash_state(ctx, std::span(&own, 1)), hash(own))
      << "without initial values every element counts";
  EXPECT_EQ(checkpoint::hash_state(ctx, std::span(&own, 1)),
            checkpoint::hash_state(ctx, std::span(&all, 1)));
}

}  // namespace
}  // namespace weft::train
