// Tables whose rows are cut and whose bags are added at the sample: the bits of one rank, with rows
// and gradients whose sums depend on the order of addition; and what is asked for and sent.
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/id_ranks.h"
#include "tests/sharding/sparse_run.h"
#include "weft/base/error.h"
#include "weft/sharding/id_packer.h"
#include "weft/sharding/id_receiver.h"

namespace weft::sharding {
namespace {

constexpr std::array<spec::Sharding, 3> kCutRows = {
    spec::Sharding::kRowWise, spec::Sharding::kTableRowWise, spec::Sharding::kGridShard};

/// Sums, weighted sums, means and sequences of one table, in an order in which no kind is together.
spec::Config mixed_config(spec::Sharding sharding, const spec::SparseOptimizer& optimizer) {
  spec::Config config = make_config(sharding, optimizer);
  config.sparse_features.push_back(make_feature("m", "many", spec::Pooling::kMean));
  config.sparse_features.push_back(make_feature("w", "few", spec::Pooling::kSum));
  config.sparse_features.back().weighted = true;
  config.sparse_features.push_back(make_feature("t", "few", spec::Pooling::kNone));
  config.sparse_features.push_back(make_feature("z", "many", spec::Pooling::kSum));
  return config;
}

spec::Config at_sample(spec::Config config, spec::Sharding sharding, spec::RowSplit split) {
  for (spec::Table& table : config.tables) {
    table.sharding = sharding;
    table.row_split = split;
    table.pooled_at = spec::PooledAt::kSample;
  }
  return config;
}

/// All schemes on all numbers of ranks.
void expect_bits_of_one_rank(const spec::Config& plain, RunOptions options) {
  options.gradients = Gradients::kRounded;
  const RunResult expected = run(plain, options);
  for (const spec::Sharding sharding : kCutRows) {
    for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
      options.ranks = ranks;
      const auto split = ranks % 2 == 0 ? spec::RowSplit::kRange : spec::RowSplit::kModulo;
      expect_equal(run(at_sample(plain, sharding, split), options), expected,
                   fmt::format("sharding {}, {} ranks", static_cast<int>(sharding), ranks));
    }
  }
}

class Fetched : public ::testing::TestWithParam<SparseOptimizerKind> {};

TEST_P(Fetched, EveryNumberOfRanksGivesTheBitsOfOne) {
  expect_bits_of_one_rank(mixed_config(spec::Sharding::kTableWise, make_optimizer(GetParam())), {});
}

TEST_P(Fetched, WithDecayAndMaxNorm) {
  spec::SparseOptimizer optimizer = make_optimizer(GetParam());
  optimizer.weight_decay = 0.1;
  optimizer.weight_decay_mode = spec::WeightDecayMode::kL2;
  optimizer.max_norm = 0.5;
  expect_bits_of_one_rank(mixed_config(spec::Sharding::kTableWise, optimizer), {.steps = 2});
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Fetched, ::testing::ValuesIn(kSparseOptimizers));

TEST(FetchedRows, OneOrderOfAdditionIsNotAnother) {
  // What the tests above compare depends on where sums are made: the other form differs.
  const auto optimizer = make_optimizer(SparseOptimizerKind::kAdagrad);
  RunOptions options{.gradients = Gradients::kRounded};
  const RunResult one = run(mixed_config(spec::Sharding::kTableWise, optimizer), options);
  options.ranks = 4;
  EXPECT_NE(run(mixed_config(spec::Sharding::kRowWise, optimizer), options).pooled, one.pooled);
  options.ranks = 1;
  options.gradients = Gradients::kIntegers;
  EXPECT_NE(run(mixed_config(spec::Sharding::kTableWise, optimizer), options).hash, one.hash);
}

TEST(FetchedRows, BatchesOfAllSizes) {
  const auto optimizer = make_optimizer(SparseOptimizerKind::kRowWiseAdagrad);
  expect_bits_of_one_rank(mixed_config(spec::Sharding::kTableWise, optimizer),
                          {.sizes = {1, 300, 3, 29, 2}});
}

TEST_P(Fetched, PackedRowsToo) {
  spec::Config config = mixed_config(spec::Sharding::kTableWise, make_optimizer(GetParam()));
  config.codecs.ids = spec::IdCodec::kPacked;
  expect_bits_of_one_rank(config, {.steps = 2});
}

TEST(FetchedRows, OnTheCheckDevice) {
  const auto optimizer = make_optimizer(SparseOptimizerKind::kAdam);
  expect_bits_of_one_rank(mixed_config(spec::Sharding::kTableWise, optimizer),
                          {.steps = 2, .device = DeviceKind::kCheck});
}

TEST(FetchedRows, RowsOfSixteenBits) {
  for (const spec::RowDType dtype :
       {spec::RowDType::kBf16, spec::RowDType::kFp16, spec::RowDType::kSplitBf16}) {
    spec::Config config =
        mixed_config(spec::Sharding::kTableWise, make_optimizer(SparseOptimizerKind::kAdagrad));
    for (spec::Table& table : config.tables) {
      table.dtype = dtype;
    }
    expect_bits_of_one_rank(config, {.steps = 2});
  }
}

TEST(FetchedRows, ATableMayBeFetchedBesideOneThatIsNot) {
  const spec::Config plain = make_integer_config(spec::Sharding::kTableWise);
  for (const int ranks : {2, 3, 8}) {
    spec::Config config = plain;
    config.tables[1].sharding = config.tables[2].sharding = spec::Sharding::kRowWise;
    config.tables[1].pooled_at = spec::PooledAt::kSample;
    expect_equal(run(config, {.ranks = ranks}), run(plain, {}), fmt::format("{} ranks", ranks));
  }
}

/// A job on some ranks as far as ids are concerned.
struct Asked {
  Asked(const spec::Config& job, int ranks, std::int64_t samples)
      : config(job), plan(make_plan(job, ranks)), routing(config, plan), size(samples), pool(2) {
    batches.reserve(static_cast<std::size_t>(ranks));  // they stay where they are
    for (int r = 0; r < ranks; ++r) {
      batches.push_back(make_batch(config, 1, rank_samples(size, kParts, ranks, r)));
      paths.push_back(std::make_unique<Paths>(config, routing, r));
      asked.emplace_back(routing, r);
      IdPacker(*paths.back())
          .pack(pool, {.sparse = batches.back(), .step = 1, .global_size = size, .sample_ids = {}},
                asked.back());
    }
  }

  static spec::Plan make_plan(const spec::Config& job, int ranks) {
    spec::Plan plan = planner::make_plan(job, two_hosts(ranks));
    plan.parts = kParts;
    return plan;
  }

  /// Bytes of vectors that rank 0 is sent by others, and of the ids that it sends.
  [[nodiscard]] std::int64_t vector_bytes() const {
    std::int64_t bytes = 0;
    for (std::int64_t r = 1; r < routing.ranks; ++r) {
      const auto slots = routing.slots_of(r);
      for (std::size_t j = 0; j < slots.size(); ++j) {
        bytes += 4 * slots[j].dim() * asked[0].slot({r, static_cast<std::int64_t>(j)}).vectors;
      }
    }
    return bytes;
  }

  [[nodiscard]] std::int64_t id_bytes() const {
    std::int64_t bytes = 0;
    for (std::int64_t r = 1; r < routing.ranks; ++r) {
      for (const comm::Piece& piece : asked[0].lane(r)) {
        bytes += piece.bytes;
      }
    }
    return bytes;
  }

  spec::Config config;
  spec::Plan plan;
  Routing routing;
  std::int64_t size;
  ThreadPool pool;
  std::vector<KeyedJaggedTensor> batches;
  std::vector<std::unique_ptr<Paths>> paths;
  std::vector<AskedIds> asked;
};

/// Per subtree of the rank's parts the rows of a shard that its samples need.
std::vector<std::set<std::int64_t>> plain_rows(const Asked& asked,
                                               std::int64_t rank,
                                               const Slot& slot) {
  std::vector<std::set<std::int64_t>> rows;
  const KeyedJaggedTensor& batch = asked.batches[static_cast<std::size_t>(rank)];
  const std::int64_t first = rank_samples(asked.size, kParts, asked.routing.ranks, rank).begin;
  for (const Range& node : asked.routing.nodes(rank)) {
    rows.emplace_back();
    for (std::size_t f = 0; f < asked.config.sparse_features.size(); ++f) {
      const JaggedView view = batch.feature(static_cast<std::int64_t>(f));
      for (std::int64_t b = 0; b < view.batch(); ++b) {
        const bool inside = part_samples(asked.size, kParts, node.begin).begin <= first + b &&
                            first + b < part_samples(asked.size, kParts, node.end - 1).end;
        for (const std::int64_t id : view.bag(b)) {
          if (inside && asked.routing.features[f].table == slot.table && slot.rows.contains(id)) {
            rows.back().insert(slot.rows.index(id));
          }
        }
      }
    }
  }
  return rows;
}

/// The block of a slot of rows: each row once in the first half, each (row, node) once in all, of
/// a run perhaps in order.
void check_block(const Asked& asked,
                 std::int64_t source,
                 const Slot& slot,
                 const IncomingBlock& block,
                 const std::int64_t* ids,
                 const std::int64_t* offsets,
                 std::span<const std::int32_t> parts,
                 bool ascending) {
  const auto expected = plain_rows(asked, source, slot);
  const auto nodes = asked.routing.nodes(source);
  ASSERT_EQ(block.lookup.bags, static_cast<std::int64_t>(nodes.size()));
  ASSERT_EQ(block.gradient.bags, 2 * block.lookup.bags);
  std::set<std::int64_t> all;
  std::size_t entries = 0;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    std::set<std::int64_t> rows;
    for (const std::size_t run : {n, n + nodes.size()}) {
      EXPECT_EQ(parts[static_cast<std::size_t>(block.parts_begin) + run], nodes[n].begin);
      rows.insert(ids + offsets[run], ids + offsets[run + 1]);
      EXPECT_TRUE(!ascending || std::is_sorted(ids + offsets[run], ids + offsets[run + 1]));
    }
    EXPECT_EQ(rows, expected[n]) << "node " << n;
    entries += rows.size();
    all.insert(rows.begin(), rows.end());
  }
  EXPECT_EQ(block.num_ids, static_cast<std::int64_t>(entries));
  EXPECT_EQ(block.gradients, block.num_ids);
  EXPECT_EQ(block.vectors, static_cast<std::int64_t>(all.size()));
  const std::int64_t* const own = ids + block.ids_begin;
  EXPECT_EQ(std::set<std::int64_t>(own, own + block.vectors), all);
}

constexpr int kFirstWorldRank = 10;

std::vector<IncomingBlock> receive(const Asked& asked,
                                   std::int64_t server,
                                   ServedIds& served,
                                   ThreadPool& pool) {
  const std::size_t world = asked.paths.size();
  const auto slots = asked.routing.slots_of(server);
  std::vector<std::vector<SlotCounts>> counts(world, std::vector<SlotCounts>(slots.size()));
  std::vector<comm::Lane> arrived(world);
  for (std::size_t r = 0; r < world; ++r) {
    for (std::size_t j = 0; j < slots.size(); ++j) {
      counts[r][j] = asked.asked[r].counts_of({server, static_cast<std::int64_t>(j)});
    }
    arrived[r] = {.pieces = asked.asked[r].lane(server)};
  }
  IncomingBlocks blocks;
  // The ranks are the last ones of a larger world.
  std::vector<int> world_ranks(world);
  std::iota(world_ranks.begin(), world_ranks.end(), kFirstWorldRank);
  const IdReceiver receiver(*asked.paths[static_cast<std::size_t>(server)], true, world_ranks);
  for (std::size_t r = 0; r < world; ++r) {
    receiver.take_counts(asked.size, static_cast<std::int64_t>(r), counts[r], served);
  }
  receiver.lay_out(asked.size, served, blocks);
  receiver.unpack(pool, arrived, served, blocks);
  return id_ranks::all_blocks(blocks, asked.routing, server);
}

TEST(FetchedRows, EachRowIsAskedForOnce) {
  const auto optimizer = make_optimizer(SparseOptimizerKind::kSgd);
  for (const int ranks : {2, 3, 5, 7}) {
    for (const bool packed : {false, true}) {
      const auto split = (ranks == 3) == packed ? spec::RowSplit::kRange : spec::RowSplit::kModulo;
      spec::Config config = at_sample(mixed_config(spec::Sharding::kTableWise, optimizer),
                                      spec::Sharding::kGridShard, split);
      config.codecs.ids = packed ? spec::IdCodec::kPacked : spec::IdCodec::kNarrow;
      Asked asked(config, ranks, 120);
      for (std::int64_t server = 0; server < ranks; ++server) {
        ServedIds served;
        const auto blocks = receive(asked, server, served, asked.pool);
        const auto slots = asked.routing.slots_of(server);
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          const std::size_t j = i / static_cast<std::size_t>(ranks);
          const auto source = static_cast<std::int64_t>(i) % ranks;
          if (slots[j].path != Path::kUniqueRows) {
            continue;
          }
          const AskedIds& sent = asked.asked[static_cast<std::size_t>(source)];
          const bool own = source == server;
          IncomingBlock block =
              own ? sent.own.blocks[sent.own_index({server, static_cast<std::int64_t>(j)})]
                  : blocks[i];
          if (!own && block.num_ids == 0) {
            for (const auto& rows : plain_rows(asked, source, slots[j])) {
              EXPECT_TRUE(rows.empty());
            }
            continue;
          }
          if (own) {
            block.parts_begin = served.run_parts_begin(asked.paths.front()->runs(), source);
          }
          check_block(
              asked, source, slots[j], block, own ? sent.own.ids.data() : served.ids.data(),
              (own ? sent.own.offsets.data() : served.offsets.data()) + block.lookup.offsets_begin,
              served.used_parts(), packed);
        }
      }
    }
  }
}

TEST(FetchedRows, SkewedBagsSendLess) {
  // One feature of long bags over few rows: partial sums are one per bag and shard, rows are fewer.
  spec::Config config;
  config.seed = 7;
  config.tables = {make_table("t", 40, 32)};
  config.tables[0].sharding = spec::Sharding::kRowWise;
  config.sparse_features = {make_feature("f", "t", spec::Pooling::kSum),
                            make_feature("g", "t", spec::Pooling::kMean)};
  const Asked sums(config, 4, 2000);
  config.tables[0].pooled_at = spec::PooledAt::kSample;
  const Asked rows(config, 4, 2000);
  // 500 samples ask for all of the 30 rows of others.
  EXPECT_EQ(rows.vector_bytes(), 30 * 4 * 32);
  // Of each of three others two lengths; rank 0 has one subtree of parts.
  EXPECT_EQ(rows.id_bytes(), 3 * 2 * 4 + 30 * 1);
  EXPECT_GT(sums.vector_bytes(), 20 * rows.vector_bytes());
  EXPECT_GT(sums.id_bytes(), 20 * rows.id_bytes());
  // All 10 rows of each: the first, a width of 1 bit, 9 of them.
  config.codecs.ids = spec::IdCodec::kPacked;
  const Asked packed(config, 4, 2000);
  EXPECT_EQ(packed.vector_bytes(), rows.vector_bytes());
  EXPECT_EQ(packed.id_bytes(), 3 * (2 * 4 + 1 + 1 + 2));
}

/// Changes byte `at` of piece `piece` from rank 1 to rank 0.
struct Damage {
  std::size_t piece = 0;
  std::size_t at = 0;
  std::vector<unsigned char> bytes;
};

void expect_rows_refused(const Damage& damage, spec::IdCodec ids, const std::string& message) {
  spec::Config config =
      at_sample(make_config(spec::Sharding::kRowWise, make_optimizer(SparseOptimizerKind::kSgd)),
                spec::Sharding::kRowWise, spec::RowSplit::kRange);
  config.codecs.ids = ids;
  config.tables = {config.tables[2]};
  config.sparse_features = {config.sparse_features[0]};
  Asked asked(config, 2, 100);
  const comm::Piece& piece = asked.asked[1].lane(0)[damage.piece];
  ASSERT_LE(static_cast<std::int64_t>(damage.at + damage.bytes.size()), piece.bytes);
  std::memcpy(static_cast<std::byte*>(piece.data) + damage.at, damage.bytes.data(),
              damage.bytes.size());
  ServedIds served;
  try {
    receive(asked, 0, served, asked.pool);
    FAIL() << "accepted: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kComm);
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

TEST(FetchedRows, DamagedMessagesAreRefused) {
  for (const spec::IdCodec ids : {spec::IdCodec::kNarrow, spec::IdCodec::kPacked}) {
    expect_rows_refused({.bytes = {255, 255, 255, 255}}, ids, "runs of rows exceed the announced");
    expect_rows_refused({.bytes = {0xe8, 3, 0, 0}}, ids, "runs of rows exceed the announced");
    expect_rows_refused({.bytes = {1, 0, 0, 0}}, ids, "runs of rows sum to 1,");
  }
  const auto packed = spec::IdCodec::kPacked;
  const std::string list = "run 0 of the rows of table many from rank 11 is no packed list of ";
  expect_rows_refused({.piece = 1, .bytes = {255}}, packed, list);          // the first row
  expect_rows_refused({.piece = 1, .at = 1, .bytes = {33}}, packed, list);  // a width
  expect_rows_refused({.piece = 1, .at = 1, .bytes = {32}}, packed, list);  // more than there is
  expect_rows_refused({.piece = 1, .at = 1, .bytes = {0}}, packed, "bytes, ");  // less
  expect_rows_refused({.piece = 1, .at = 1, .bytes = {0}}, packed,
                      "of table many from rank 11 take ");
}

}  // namespace
}  // namespace weft::sharding
