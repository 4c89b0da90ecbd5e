// Rows cut off between two steps, while updates change them.
#include "weft/embedding/row_cut.h"

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/embedding/sparse_job.h"
#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::embedding::test {
namespace {

constexpr std::int64_t kTableRows = 2000;

/// A shard of every third row, with a step made for each update.
struct Fixture {
  explicit Fixture(std::uint64_t seed, spec::MemoryTier tier = spec::MemoryTier::kDense)
      : random(seed), device(make_device({})) {
    table = make_table(kTableRows, 16);
    table.optimizer.type = SparseOptimizerKind::kAdam;
    table.memory.tier = tier;
    shard = std::make_unique<TableShard>(*device, table, RowSet{1, kTableRows, 3}, Range{0, 16},
                                         kSeed, TableShardOptions{});
    ctx.device = device.get();
    gradients = std::make_unique<RowGradients>(*device, *shard);
    if (auto* tiered = shard->tier()) {
      resident = tiered->make_batch();
    }
  }

  [[nodiscard]] RowState& rows() const { return *shard->row_sink(); }

  void update() {
    const StepData step =
        make_step(random, {.rows = shard->rows().size(), .dim = 16, .samples = 60});
    const auto blocks = step.blocks();
    std::vector<Bags> bags;
    for (const GradientBlock& block : blocks) {
      bags.push_back(block.bags);
    }
    if (resident != nullptr) {
      resident->fetch(ctx, bags);
      resident->fetch_late(ctx);
    }
    gradients->coalesce(ctx, blocks);
    if (resident != nullptr) {
      gradients->use_slots(
          resident->resolve(ctx, std::span(gradients->unique_rows(), at(gradients->num_unique())))
              .data());
    }
    shard->update(ctx, *gradients, update_step(++steps));
    if (resident != nullptr) {
      resident->release(storage::Release::kUpdated);
    }
  }

  using Values = std::map<std::int64_t, std::vector<std::byte>>;

  void add_to(Values& values, const RowCut::Rows& taken) const {
    const std::int64_t bytes = rows().row_shape().packed.bytes();
    ASSERT_EQ(std::ssize(taken.packed), std::ssize(taken.numbers) * bytes);
    for (std::size_t i = 0; i < taken.numbers.size(); ++i) {
      const auto* const from = taken.packed.data() + i * at(bytes);
      EXPECT_TRUE(
          values.emplace(taken.numbers[i], std::vector<std::byte>(from, from + bytes)).second)
          << "row " << taken.numbers[i] << " comes twice";
    }
  }

  [[nodiscard]] Values values(StateRows which) const {
    Values all;
    rows().for_each_row(which, [&](std::span<const std::int64_t> some) {
      RowCut::Rows read{.numbers = {some.begin(), some.end()}, .packed = {}};
      read.packed.resize(some.size() * at(rows().row_shape().packed.bytes()));
      rows().read_rows(some, read.packed.data());
      add_to(all, read);
    });
    return all;
  }

  Random random;
  std::unique_ptr<Device> device;
  spec::Table table;
  std::unique_ptr<TableShard> shard;
  std::unique_ptr<RowGradients> gradients;
  std::unique_ptr<storage::ResidentRows> resident;
  Context ctx;
  std::int64_t steps = 0;
};

/// Any order of updates, of takes of any number of rows and of takes of copies.
TEST(ShardCut, GivesEachRowOnceAsItWas) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Fixture job(seed, seed % 2 == 0 ? spec::MemoryTier::kDense : spec::MemoryTier::kLazy);
    job.update();
    job.rows().mark();
    job.update();
    const StateRows which = seed % 3 == 0 ? StateRows::kExisting : StateRows::kChanged;
    const Fixture::Values expected = job.values(which);
    CopyRoom room(1 << 30);
    const auto cut = job.rows().cut(which, room);
    Fixture::Values got;
    RowCut::Rows taken;
    for (bool more = true; more;) {
      switch (below(job.random, 4)) {
        case 0:
          job.update();
          break;
        case 1:
          if (cut->take_copies(taken)) {
            job.add_to(got, taken);
          }
          break;
        default:
          more = cut->take(1 + below(job.random, 100), taken);
          if (more) {
            job.add_to(got, taken);
          }
      }
    }
    EXPECT_EQ(got, expected) << "seed " << seed;
    job.update();
    EXPECT_FALSE(cut->take(1, taken));
    EXPECT_FALSE(cut->take_copies(taken));
  }
}

TEST(ShardCut, CountsChangesFromTheCutOn) {
  Fixture job(5);
  job.rows().mark();
  job.update();
  CopyRoom room(1 << 30);
  const auto cut = job.rows().cut(StateRows::kChanged, room);
  EXPECT_TRUE(job.values(StateRows::kChanged).empty());
  job.update();
  EXPECT_EQ(std::ssize(job.values(StateRows::kChanged)), job.gradients->num_unique());
}

/// The control: rows that are changed behind the cut's back are seen.
TEST(ShardCut, AWriteThatIsNotNotedIsSeen) {
  Fixture job(6);
  job.update();
  const Fixture::Values expected = job.values(StateRows::kExisting);
  CopyRoom room(1 << 30);
  const auto cut = job.rows().cut(StateRows::kExisting, room);
  auto* const weights = static_cast<float*>(job.shard->row_table().weights);
  weights[0] += 1.0F;
  Fixture::Values got;
  RowCut::Rows taken;
  while (cut->take(100, taken)) {
    job.add_to(got, taken);
  }
  EXPECT_NE(got, expected);
}

/// With room for a few rows updates wait for who takes them, beside them.
TEST(ShardCut, UpdatesWaitForRoom) {
  Fixture job(7);
  job.update();
  const Fixture::Values expected = job.values(StateRows::kExisting);
  const std::int64_t few = 3 * job.rows().row_shape().packed.bytes();
  CopyRoom room(few);
  const auto cut = job.rows().cut(StateRows::kExisting, room);
  std::thread updates([&] {
    for (int i = 0; i < 20; ++i) {
      job.update();
    }
  });
  while (room.peak() == 0) {  // or all might be taken before the first update
    std::this_thread::yield();
  }
  Fixture::Values got;
  RowCut::Rows taken;
  while (cut->take(2, taken)) {
    job.add_to(got, taken);
    std::this_thread::yield();
  }
  updates.join();
  EXPECT_EQ(got, expected);
}

/// A save that fails lets updates go.
TEST(ShardCut, NobodyWaitsForACutThatEnds) {
  Fixture job(8);
  job.update();
  CopyRoom room(1);
  auto cut = job.rows().cut(StateRows::kExisting, room);
  std::thread updates([&] {
    for (int i = 0; i < 5; ++i) {
      job.update();
    }
  });
  room.open();
  cut.reset();
  updates.join();
  job.rows().mark();
  EXPECT_NE(job.rows().cut(StateRows::kExisting, room), nullptr);
}

TEST(ShardCut, WhatWritesRowsByItselfIsRefused) {
  Fixture job(9);
  CopyRoom room(1 << 30);
  const auto cut = job.rows().cut(StateRows::kExisting, room);
  EXPECT_THROW(job.shard->note_all_written(), Error);
  const std::vector<std::int32_t> rows = {1};
  EXPECT_THROW(job.shard->note_written(rows), Error);
  EXPECT_THROW(static_cast<void>(job.rows().cut(StateRows::kExisting, room)), Error);
}

TEST(RowMarks, AreTakenInTurn) {
  Random random(1);
  constexpr std::int64_t kMany = RowMarks::kPageRows * 3 + 17;
  RowMarks marks(kMany);
  std::vector<std::int64_t> rows;
  for (std::int64_t row = below(random, 50); row < kMany; row += 1 + below(random, 3000)) {
    rows.push_back(row);
  }
  rows.push_back(kMany - 1);
  marks.set(rows);
  marks.reset(rows[2]);
  rows.erase(rows.begin() + 2);
  std::vector<std::int64_t> got;
  for (std::int64_t next = 0; next < kMany;) {
    next = marks.take(next, below(random, 7), got);
  }
  EXPECT_EQ(got, rows);
  marks.for_each([](std::span<const std::int64_t>) { ADD_FAILURE() << "marks are left"; });
}

}  // namespace
}  // namespace weft::embedding::test
