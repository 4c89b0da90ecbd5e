// The cache of rows against a model of the table (tests/storage/row_cache_model.h), and what must
// fail without one of its rules.

#include "weft/storage/row_cache.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/base/count_allocations.h"
#include "tests/storage/row_cache_model.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/initial_values.h"

namespace weft::storage::test {
namespace {

using kernels::CachePolicy;
using layout::cache_shape;

TierCounts expect_exact(const CacheModelOptions& options, std::int64_t steps) {
  CacheModel model(options);
  model.run(steps);
  EXPECT_EQ(model.counts().wrong, 0) << "seed " << options.seed;
  EXPECT_GT(model.counts().right, steps);
  const TierCounts tier = model.tier();
  EXPECT_EQ(tier.asked, tier.hits + tier.read + tier.made);
  EXPECT_LE(tier.written, tier.evicted);
  return tier;
}

TEST(RowCache, IsTheTableForAllTypesOfRows) {
  std::uint64_t seed = 1;
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCheck}) {
    for (const spec::RowDType dtype : {spec::RowDType::kFp32, spec::RowDType::kFp16,
                                       spec::RowDType::kBf16, spec::RowDType::kSplitBf16}) {
      for (const SparseOptimizerKind optimizer :
           {SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad,
            SparseOptimizerKind::kAdam}) {
        SCOPED_TRACE(static_cast<int>(dtype));
        expect_exact({.device = device,
                      .dtype = dtype,
                      .optimizer = optimizer,
                      .cols = seed % 2 == 0 ? 5 : 16,
                      .shape = cache_shape(90, 8, 0.1),
                      .most_rows = 40,
                      .eval_rows = 10,
                      .seed = ++seed},
                     device == DeviceKind::kCpu ? 60 : 25);
      }
    }
  }
}

/// Two batches fit, or one does and the other waits; some slots behind the sets, or none.
TEST(RowCache, IsTheTableForAllShapesAndPolicies) {
  std::uint64_t seed = 100;
  TierCounts all;
  for (const CachePolicy policy : {CachePolicy::kLru, CachePolicy::kLfu, CachePolicy::kComing}) {
    for (const std::int64_t ways : {8, 32}) {
      for (const double spill : {0.0, 0.2}) {
        for (const std::int64_t batch : {50, 90}) {
          const TierCounts tier = expect_exact({.shape = cache_shape(110, ways, spill),
                                                .policy = policy,
                                                .most_rows = batch,
                                                .eval_rows = batch == 50 ? 20 : 0,
                                                .seed = ++seed},
                                               80);
          all.late += tier.late;
          all.spilled += tier.spilled;
          all.written += tier.written;
          all.read += tier.read;
        }
      }
    }
  }
  EXPECT_GT(all.late, 100);
  EXPECT_GT(all.spilled, 100);
  EXPECT_GT(all.written, 100);
  EXPECT_GT(all.read, 100);
}

TEST(RowCache, IsTheTableOverThousandsOfBatches) {
  expect_exact({.shape = cache_shape(64, 8, 0.05),
                .most_rows = 24,
                .eval_rows = 8,
                .write_delay = std::chrono::microseconds(60),
                .read_delay = std::chrono::microseconds(5)},
               2500);
}

/// One set, and as many slots as the largest batch has rows, which half of the batches have.
TEST(RowCache, IsTheTableWhereABatchNeedsAllSlots) {
  std::uint64_t seed = 200;
  for (const std::int64_t ways : {8, 32}) {
    expect_exact(
        {.rows = 60, .shape = {1, ways, 0}, .most_rows = ways, .least_rows = ways, .seed = ++seed},
        150);
    for (const double spill : {0.0, 0.1}) {
      const TierCounts tier = expect_exact({.shape = cache_shape(77, ways, spill),
                                            .most_rows = 77,
                                            .least_rows = 77,
                                            .seed = ++seed},
                                           100);
      EXPECT_GT(tier.late, 0);
      EXPECT_GT(tier.spilled, 0);
    }
    expect_exact({.shape = cache_shape(77, ways, 0.0),
                  .most_rows = 77,
                  .least_rows = 77,
                  .looks_ahead = false,
                  .seed = ++seed},
                 50);
  }
}

/// Averages need all slots, or some, and a batch ahead holds pins or is being fetched.
TEST(RowCache, IsTheTableWhereAveragesTakeSlotsOfBatchesAhead) {
  std::uint64_t seed = 300;
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCheck}) {
    for (const bool has_threads : {false, true}) {
      for (const std::int64_t rows : {30, 77}) {
        for (const CachePolicy policy : {CachePolicy::kLru, CachePolicy::kComing}) {
          const TierCounts tier = expect_exact({.device = device,
                                                .shape = cache_shape(77, 8, 0.1),
                                                .policy = policy,
                                                .most_rows = 70,
                                                .least_rows = 40,
                                                .average_rows = rows,
                                                .has_threads = has_threads,
                                                .seed = ++seed},
                                               device == DeviceKind::kCpu ? 150 : 40);
          EXPECT_GT(tier.written, 0);
        }
      }
    }
  }
}

/// Where all rows fit, every one is read or made once, and nothing leaves.
TEST(RowCache, CountsRowsOncePerBatch) {
  const CacheModelOptions options{.shape = cache_shape(400, 8, 0.0),
                                  .most_rows = 60,
                                  .least_rows = 60,
                                  .looks_ahead = false,
                                  .has_threads = false,
                                  .has_walks = false};
  const TierCounts tier = expect_exact(options, 50);
  EXPECT_EQ(tier.read, 0);
  EXPECT_EQ(tier.evicted, 0);
  EXPECT_EQ(tier.late, 0);
  EXPECT_LE(tier.made, options.rows);
  CacheModelOptions small = options;
  small.shape = cache_shape(80, 8, 0.0);
  const TierCounts first = expect_exact(small, 50);
  EXPECT_GT(first.evicted, 0);
  EXPECT_EQ(first, expect_exact(small, 50)) << "the same order gives the same counts";
}

// ---- controls: without one of its rules a cache is not the table ----

CacheModelOptions control() {
  return {.shape = cache_shape(80, 8, 0.05),
          .most_rows = 36,
          .least_rows = 30,
          .has_threads = false,
          .has_walks = false};
}

TEST(RowCacheControl, TheControlsOptionsAreExact) {
  expect_exact(control(), 100);
}

TEST(RowCacheControl, RowsThatAreNotPinnedAreOthers) {
  CacheModelOptions options = control();
  options.left_out = CacheLeftOut::kPins;
  CacheModel model(options);
  model.run(100);
  EXPECT_GT(model.counts().wrong, 0);
}

TEST(RowCacheControl, AnAverageThatStandsBehindABatchHasNoRoom) {
  CacheModelOptions options = control();
  options.average_rows = cache_shape(80, 8, 0.05).slots();
  expect_exact(options, 40);
  options.is_inserted = false;
  CacheModel model(options);
  try {
    model.run(40);
    FAIL() << "all slots were free";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
  }
}

TEST(RowCacheControl, RowsReadBeforeTheirWritesHaveLandedAreOld) {
  CacheModelOptions options = control();
  options.write_delay = std::chrono::microseconds(3000);
  options.broken = BrokenBacking::kWriteOrder;
  CacheModel model(options);
  model.run(100);
  EXPECT_GT(model.counts().wrong, 0);
  options.broken = BrokenBacking::kNothing;
  CacheModel whole(options);
  whole.run(100);
  EXPECT_EQ(whole.counts().wrong, 0);
  EXPECT_GT(whole.buffered(), 0);
}

TEST(RowCacheControl, StateThatStaysBehindIsMissed) {
  CacheModelOptions options = control();
  options.broken = BrokenBacking::kState;
  CacheModel model(options);
  model.run(100);
  EXPECT_GT(model.counts().wrong, 0);
}

// ---- errors, memory ----

/// A cache of one set over host memory, and a batch of it.
class SmallCache {
 public:
  explicit SmallCache(RowBacking* backing = nullptr) : below_(kRowBytes) {
    table_.name = "clicks";
    table_.num_embeddings = 1000;
    table_.embedding_dim = 4;
    table_.optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
    RowMaker maker = [](Context& ctx, const kernels::RowTable& table,
                        std::span<const std::int64_t> rows, std::span<const std::int64_t> slots) {
      const kernels::InitialRows job{.table = table,
                                     .rows = {0, std::ssize(rows)},
                                     .numbers = rows.data(),
                                     .slots = slots.data(),
                                     .state_floats = 1};
      kernels::set_initial_rows(ctx, std::span(&job, 1));
    };
    cache_ = std::make_unique<RowCache>(
        *device_, RowCacheOptions{.table = table_, .rows = 1000, .cols = 4, .shape = {1, 8, 2}},
        backing == nullptr ? below_ : *backing, maker);
    batch_ = cache_->make_batch();
  }

  /// A step of rows [first, first + count).
  void step(std::int64_t first, std::int64_t count, Release how = Release::kUpdated) {
    ids_.clear();
    for (std::int64_t i = 0; i < count; ++i) {
      ids_.push_back(first + i);
    }
    offsets_ = {0, count};
    const kernels::Bags bags{ids_.data(), offsets_.data(), nullptr, 1};
    Context ctx{.device = device_.get()};
    batch_->fetch(ctx, std::span(&bags, 1));
    batch_->fetch_late(ctx);
    batch_->release(how);
  }

  static constexpr std::int64_t kRowBytes = 20;

  std::unique_ptr<Device> device_ = make_device({});
  spec::Table table_;
  MemoryBacking below_;
  std::unique_ptr<RowCache> cache_;
  std::unique_ptr<ResidentRows> batch_;
  std::vector<std::int64_t> ids_, offsets_;
};

template <typename Body>
Error error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kInternal, "nothing thrown");
}

TEST(RowCache, SaysWhatABatchNeedsThatHasNoRoom) {
  SmallCache small;
  const Error error = error_of([&] { small.step(0, 13); });
  EXPECT_EQ(error.code(), ErrorCode::kResource);
  for (const char* part :
       {"table 'clicks'", "10 slots", "3 of the 13 rows", "tables[].memory.cache_bytes"}) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
  small.batch_->release(Release::kUnchanged);
  small.step(0, 10);
  small.step(100, 10);
}

TEST(RowCache, RowsThatWereOnlyReadDoNotExist) {
  SmallCache small;
  const auto rows = [&] {
    std::int64_t count = 0;
    small.cache_->for_each_row([&](auto some) { count += std::ssize(some); });
    return count;
  };
  small.step(0, 10, Release::kUnchanged);
  EXPECT_EQ(rows(), 0);
  small.step(0, 4);
  EXPECT_EQ(rows(), 4);
  small.step(500, 10, Release::kUnchanged);
  EXPECT_EQ(rows(), 4);
  EXPECT_EQ(small.below_.rows_held(), 4);
  EXPECT_EQ(small.cache_->counts().written, 4);
  EXPECT_EQ(small.cache_->counts().evicted, 10);
  small.cache_->drain();
  EXPECT_EQ(small.below_.rows_held(), 4);
}

TEST(RowCache, AFailedWriteIsEveryLaterCallsError) {
  LateBacking broken({.row_bytes = SmallCache::kRowBytes, .broken = BrokenBacking::kFails});
  SmallCache small(&broken);
  small.step(0, 10);
  const Error first = error_of([&] { small.step(100, 10); });
  EXPECT_EQ(first.code(), ErrorCode::kIo);
  small.batch_->release(Release::kUnchanged);
  std::vector<std::byte> row(at(SmallCache::kRowBytes));
  const std::int64_t number = 3;
  for (const Error& again :
       {error_of([&] { small.step(0, 1); }), error_of([&] { small.cache_->drain(); }),
        error_of([&] { small.cache_->read_rows(std::span(&number, 1), row.data()); })}) {
    EXPECT_STREQ(again.what(), first.what());
  }
}

/// A batch beside that of a SmallCache, of rows [first, first + count).
class OtherBatch {
 public:
  explicit OtherBatch(SmallCache& small)
      : context_{.device = small.device_.get()}, rows_(small.cache_->make_batch()) {}

  void fetch(std::int64_t first, std::int64_t count) {
    ids_.resize(at(count));
    std::iota(ids_.begin(), ids_.end(), first);
    offsets_ = {0, count};
    const kernels::Bags bags{ids_.data(), offsets_.data(), nullptr, 1};
    rows_->fetch(context_, std::span(&bags, 1));
  }

  void begin_fetch_late() { rows_->begin_fetch_late(context_); }

  void fetch_late() { rows_->fetch_late(context_); }

  [[nodiscard]] std::vector<std::int64_t> slots() {
    const auto found = rows_->resolve(context_, ids_);
    return {found.begin(), found.end()};
  }

  ResidentRows* operator->() { return rows_.get(); }

 private:
  Context context_;
  std::vector<std::int64_t> ids_, offsets_;
  std::unique_ptr<ResidentRows> rows_;
};

TEST(RowCache, LateReadsAreOnTheirWayBeforeSomebodyWaitsForThem) {
  SmallCache small;
  OtherBatch first(small);
  first.fetch(0, 10);
  first.fetch_late();
  OtherBatch ahead(small);
  ahead.fetch(100, 5);
  first->release(Release::kUpdated);
  EXPECT_EQ(ahead->rows_being_read(), 0);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    ahead.begin_fetch_late();
    EXPECT_EQ(ahead->rows_being_read(), 5);
  }
  ahead.fetch_late();
  EXPECT_EQ(ahead->rows_being_read(), 0);
  EXPECT_EQ(ahead.slots().size(), 5U);
  for (const std::int64_t slot : ahead.slots()) {
    EXPECT_GE(slot, 0);
  }
  EXPECT_EQ(small.cache_->counts().late, 5);
}

/// Six slots are kept by a batch behind, which has found their rows pinned by one before.
TEST(RowCache, LateReadsThatLackRoomBeginWithTheirWait) {
  SmallCache small;
  OtherBatch first(small);
  first.fetch(0, 6);
  first.fetch_late();
  OtherBatch second(small);
  second.fetch(100, 8);
  OtherBatch third(small);
  third.fetch(0, 6);
  first->release(Release::kUnchanged);
  second.begin_fetch_late();
  EXPECT_EQ(second->rows_being_read(), 0);
  second.fetch_late();
  const std::vector<std::int64_t> slots = second.slots();
  EXPECT_TRUE(std::none_of(slots.begin(), slots.end(), [](std::int64_t slot) { return slot < 0; }));
  second->release(Release::kUpdated);
  third.begin_fetch_late();
  third.fetch_late();
  EXPECT_EQ(third.slots().size(), 6U);
}

/// Batches that have been seen once, of rows that have slots or exist below.
TEST(RowCache, AllocatesNothingOnceWarm) {
  if (!weft::test::can_watch_allocations()) {
    GTEST_SKIP() << "sanitizers have their own allocator";
  }
  SmallCache small;
  const auto steps = [&] {
    for (const std::int64_t first : {0, 100, 0, 200, 100, 4}) {
      small.step(first, 10);
    }
  };
  steps();
  steps();
  weft::test::watch_allocations();
  steps();
  const std::int64_t allocations = weft::test::stop_watching().own;
  EXPECT_EQ(allocations, 0) << weft::test::describe_allocations();
  EXPECT_GT(small.cache_->counts().read, 0);
}

TEST(RowCache, TakesTheMemoryThatIsPredicted) {
  const std::unique_ptr<Device> device = make_device({});
  spec::Table table;
  table.name = "clicks";
  table.num_embeddings = 100000;
  table.embedding_dim = 64;
  for (const double spill : {0.0, 0.1}) {
    for (const std::int64_t ways : {8, 32}) {
      const layout::CacheShape shape = layout::cache_shape_of_bytes(table, 64, 300000, ways, spill);
      MemoryBacking below(layout::packed_row(table, 64).bytes());
      const RowCache cache(*device, {.table = table, .rows = 100000, .cols = 64, .shape = shape},
                           below, {});
      EXPECT_LE(cache.bytes(), 300000);
      EXPECT_GT(cache.bytes(), 300000 - (ways + 1) * 300);
      EXPECT_EQ(device->memory_use(), cache.bytes());
    }
  }
}

}  // namespace
}  // namespace weft::storage::test
