// Averages in codes of rows that are not all in memory: the bits of those of all rows in memory,
// residuals too, wherever rows lie between two syncs, and nothing kept of rows that have settled.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/philox.h"
#include "weft/comm/local/local.h"
#include "weft/embedding/table_shard.h"
#include "weft/layout/replicas.h"
#include "weft/sharding/replica_average.h"
#include "weft/sharding/row_index.h"
#include "weft/storage/memory_backing.h"

namespace weft::sharding {
namespace {

using embedding::TableShard;

TEST(RowIndex, HasWhatAMapHas) {
  const auto draw = [](std::uint64_t i) {
    return philox(random_key(4, RandomPurpose::kTest), i, 0)[0];
  };
  RowIndex index;
  std::map<std::int32_t, std::int32_t> expected;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    // Rows that are near each other and that are far apart; more, then fewer, then more.
    const auto row = static_cast<std::int32_t>(draw(2 * i) % 3 == 0 ? draw(2 * i + 1) % 300
                                                                    : draw(2 * i + 1) % 2'000'000);
    const bool fills = i / 5'000 % 2 == 0;
    if (expected.contains(row)) {
      index.erase(row);
      expected.erase(row);
    } else if (fills || expected.empty()) {
      index.insert(row, static_cast<std::int32_t>(i));
      expected[row] = static_cast<std::int32_t>(i);
    } else {
      index.erase(expected.begin()->first);
      expected.erase(expected.begin());
    }
    ASSERT_EQ(index.find(row), expected.contains(row) ? expected[row] : RowIndex::kNowhere);
    ASSERT_EQ(index.size(), std::ssize(expected));
    if (i % 1'000 == 0) {
      std::map<std::int32_t, std::int32_t> all;
      index.for_each([&](std::int32_t of, std::int32_t place) { all[of] = place; });
      ASSERT_EQ(all, expected);
    }
  }
}

constexpr std::int64_t kKeptRows = 400;
constexpr std::int64_t kKeptCols = 24;
constexpr std::int64_t kCacheBytes = 12'000;  // of 24 rows or more, of 400

spec::Table table_of(SparseOptimizerKind kind, spec::RowDType dtype, spec::MemoryTier tier) {
  spec::Table table;
  table.name = "t";
  table.num_embeddings = kKeptRows;
  table.embedding_dim = kKeptCols;
  table.dtype = dtype;
  table.optimizer.type = kind;
  table.optimizer.learning_rate = 0.1;
  table.memory.tier = tier;
  table.memory.ways = 8;
  return table;
}

/// One replica of a table, and what a batch has of it.
struct TierReplica {
  TierReplica(comm::Communicator& world,
              Device& device,
              const spec::Table& table,
              const ReplicaAverageOptions& options)
      : below(layout::packed_row(table, kKeptCols).bytes()),
        shard(device,
              table,
              Range{0, kKeptRows},
              {0, kKeptCols},
              1,
              {.backing = table.memory.tier == spec::MemoryTier::kSsd ? &below : nullptr,
               .cache_bytes = kCacheBytes}),
        average(world, device, {&shard}, options),
        gradients(device, shard) {
    if (shard.tier() != nullptr) {
      batch = shard.tier()->make_batch();
    }
  }

  /// Updates rows with gradients of any magnitude.
  void update(Context& ctx, const std::vector<std::int64_t>& rows, int step, int seed) {
    const auto count = std::ssize(rows);
    std::vector<std::int64_t> offsets;
    for (std::int64_t i = 0; i <= count; ++i) {
      offsets.push_back(i);
    }
    const std::vector<std::int32_t> parts(rows.size() + 1);
    std::vector<float> values;
    for (std::int64_t i = 0; i < count * kKeptCols; ++i) {
      const auto random = philox(random_key(static_cast<std::uint64_t>(seed), RandomPurpose::kTest),
                                 7, static_cast<std::uint64_t>(i));
      values.push_back((uniform_float(random[0]) - 0.5F) /
                       static_cast<float>(1U << (random[1] % 12)));
    }
    const kernels::Bags bags{
        .ids = rows.data(), .offsets = offsets.data(), .weights = nullptr, .bags = count};
    const embedding::GradientBlock block{
        .bags = bags, .grads = values.data(), .grad_stride = kKeptCols, .parts = parts.data()};
    embedding::RowGradients* const one = &gradients;
    gradients.coalesce(ctx, {&block, 1});
    gradients.accumulate(ctx);
    if (batch != nullptr) {
      batch->fetch(ctx, {&bags, 1});
      batch->fetch_late(ctx);
      const std::span unique(gradients.unique_rows(),
                             static_cast<std::size_t>(gradients.num_unique()));
      gradients.use_slots(batch->resolve(ctx, unique).data());
    }
    average.keep_values(ctx, {&one, 1});
    shard.update(ctx, gradients, {.step = step, .seed = 3});
    if (batch != nullptr) {
      batch->release(storage::Release::kUpdated);
    }
    average.note_updated({&one, 1});
  }

  storage::MemoryBacking below;
  TableShard shard;
  ReplicaAverage average;
  embedding::RowGradients gradients;
  std::unique_ptr<storage::ResidentRows> batch;
};

/// All numbers of all items as bits.
std::vector<std::byte> bytes_of(const StateSource& from) {
  std::vector<std::byte> all;
  const auto items = from.state_items();
  for (std::size_t k = 0; k < items.size(); ++k) {
    const std::int64_t bytes =
        kKeptRows * (items[k].col_end - items[k].col_begin) * size_of(items[k].dtype);
    all.resize(all.size() + static_cast<std::size_t>(bytes));
    from.read_state(k, 0, kKeptRows, all.data() + all.size() - bytes);
  }
  return all;
}

/// Residuals of the shard, whoever has them.
std::vector<std::byte> residuals_of(TierReplica& replica) {
  std::vector<std::byte> all;
  for (const ResidualState* one : replica.average.residual_states()) {
    const auto bytes = bytes_of(*one);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

struct KeptCase {
  SparseOptimizerKind optimizer = SparseOptimizerKind::kAdam;
  spec::RowDType dtype = spec::RowDType::kFp32;
  spec::MemoryTier tier = spec::MemoryTier::kLazy;
  ReplicaAverageOptions options;
};

/// Rows of a step: eight neighbours of each group, which meet those of others, and eight anywhere.
std::vector<std::int64_t> rows_of_step(int step, int group) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < 8; ++i) {
    rows.push_back((step * 11 + group * 5 + i) % 200);
    rows.push_back(200 + (step * 37 + group * 61 + i * 17) % 150);
  }
  return rows;
}

/// Steps, and syncs of every second one, of two replicas whose rows lie in different ways: whether
/// rows and residuals have the same bits all the time.
bool has_the_same_bits(const KeptCase& one) {
  std::int64_t same = 0;
  comm::run_local(3, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({.threads = 2});
    Context ctx{.device = device.get(), .pool = &device->pool()};
    ReplicaAverageOptions plain = one.options;
    plain.left_out = KeptLeftOut::kNothing;
    TierReplica dense(world, *device, table_of(one.optimizer, one.dtype, spec::MemoryTier::kDense),
                      plain);
    TierReplica tiered(world, *device, table_of(one.optimizer, one.dtype, one.tier), one.options);
    std::int64_t own = 1;
    for (int step = 1; step <= 14; ++step) {
      const auto rows = step > 10 ? std::vector<std::int64_t>{} : rows_of_step(step, world.rank());
      for (TierReplica* replica : {&dense, &tiered}) {
        replica->update(ctx, rows, step, 10 * step + world.rank());
        if (step % 2 == 0) {
          replica->average.run(ctx, step);
        }
      }
      if (step % 2 == 0) {
        own &= bytes_of(dense.shard) == bytes_of(tiered.shard) ? 1 : 0;
        own &= residuals_of(dense) == residuals_of(tiered) ? 1 : 0;
        own &= dense.average.clips() == tiered.average.clips() ? 1 : 0;
      }
    }
    world.all_reduce(ctx, &own, 1, comm::ReduceOp::kMin);
    if (world.rank() == 0) {
      same = own;
    }
  });
  return same == 1;
}

TEST(KeptRows, HaveTheBitsOfAllRowsInMemory) {
  constexpr SparseOptimizerKind kOptimizers[] = {
      SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad, SparseOptimizerKind::kAdam};
  std::size_t turn = 0;
  for (const CodecFormat format : {CodecFormat::kFp16, CodecFormat::kInt8, CodecFormat::kInt4}) {
    for (const auto dtype :
         {spec::RowDType::kFp32, spec::RowDType::kBf16, spec::RowDType::kSplitBf16}) {
      for (const auto tier : {spec::MemoryTier::kLazy, spec::MemoryTier::kSsd}) {
        const KeptCase one{
            .optimizer = kOptimizers[turn % 3],
            .dtype = dtype,
            .tier = tier,
            .options = {.form = turn % 4 < 2 ? spec::SyncForm::kDense : spec::SyncForm::kTouched,
                        .seed = 5,
                        .codec = {.format = format, .group = 16},
                        .error_feedback = turn % 5 != 0}};
        EXPECT_TRUE(has_the_same_bits(one))
            << to_string(format) << ", rows " << static_cast<int>(dtype) << ", tier "
            << static_cast<int>(tier) << ", case " << turn;
        ++turn;
      }
    }
  }
}

// The test above would see it: values kept of the wrong moment, losses left behind.
TEST(KeptRows, WhatIsLeftOutChangesBits) {
  for (const auto tier : {spec::MemoryTier::kLazy, spec::MemoryTier::kSsd}) {
    for (const auto left_out :
         {KeptLeftOut::kNothing, KeptLeftOut::kFirstValue, KeptLeftOut::kLost}) {
      const KeptCase one{.tier = tier,
                         .options = {.form = spec::SyncForm::kTouched,
                                     .seed = 5,
                                     .codec = {.format = CodecFormat::kInt8, .group = 16},
                                     .left_out = left_out}};
      EXPECT_EQ(has_the_same_bits(one), left_out == KeptLeftOut::kNothing)
          << static_cast<int>(left_out);
    }
  }
}

// A row of which nothing is left gives up its slot: memory does not grow with the rows that have
// ever been averaged.
TEST(KeptRows, TakeTheMemoryOfRowsThatHaveNotSettled) {
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({.threads = 1});
    Context ctx{.device = device.get(), .pool = &device->pool()};
    const spec::Table table =
        table_of(SparseOptimizerKind::kAdam, spec::RowDType::kFp32, spec::MemoryTier::kLazy);
    TierReplica replica(world, *device, table,
                        {.form = spec::SyncForm::kTouched,
                         .seed = 5,
                         .codec = {.format = CodecFormat::kInt8, .group = 16}});
    const auto existing = [&](StateRows which) {
      std::vector<std::int64_t> all;
      for (const ResidualState* one : replica.average.residual_states()) {
        if (const RowState* const listed = one->row_state()) {
          listed->for_each_row(which, [&](std::span<const std::int64_t> rows) {
            EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
            all.insert(all.end(), rows.begin(), rows.end());
          });
        }
      }
      return all;
    };
    replica.update(ctx, rows_of_step(1, world.rank()), 1, world.rank());
    replica.average.run(ctx, 1);
    const auto lost = existing(StateRows::kExisting);
    EXPECT_FALSE(lost.empty());
    for (ResidualState* one : replica.average.residual_states()) {
      if (RowState* const rows = one->row_sink()) {
        rows->mark();
      }
    }
    for (int step = 2; step < 24; ++step) {
      replica.update(ctx, {}, step, step);
      replica.average.run(ctx, step);
    }
    EXPECT_TRUE(existing(StateRows::kExisting).empty());
    const auto changed = existing(StateRows::kChanged);
    EXPECT_TRUE(std::includes(changed.begin(), changed.end(), lost.begin(), lost.end()))
        << "that nothing is lost any more is a change";
  });
}

}  // namespace
}  // namespace weft::sharding
