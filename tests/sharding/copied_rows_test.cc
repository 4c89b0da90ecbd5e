// data_parallel tables whose rows are not all in memory: every rank updates the rows that all ranks
// have looked up, and gives slots to those that it has not. The bits of all rows in memory.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/comm/local/local.h"
#include "weft/embedding/table_shard.h"
#include "weft/layout/row_sums.h"
#include "weft/layout/tiers.h"
#include "weft/sharding/row_sync.h"
#include "weft/storage/memory_backing.h"

namespace weft::sharding {
namespace {

using embedding::TableShard;

constexpr std::int64_t kCopyRows = 600;
constexpr std::int64_t kCopyCols = 20;
constexpr std::int64_t kCopyParts = 8;
constexpr int kCopySteps = 16;
constexpr int kRowsOfBatch = 32;

/// What the update of rows that other ranks have looked up leaves out, as a control.
enum class CopyLeftOut : std::uint8_t {
  kNothing,
  kChanges,  ///< that they have changed
  kRoom,     ///< that they come before batches which have been fetched ahead
};

struct CopyCase {
  SparseOptimizerKind optimizer = SparseOptimizerKind::kRowWiseAdagrad;
  spec::RowDType dtype = spec::RowDType::kFp32;
  spec::MemoryTier tier = spec::MemoryTier::kSsd;
  int ranks = 3;
  layout::RowSums sums = layout::RowSums::kGathered;
  CopyLeftOut left_out = CopyLeftOut::kNothing;
};

spec::Table copied_table(const CopyCase& one, spec::MemoryTier tier) {
  spec::Table table;
  table.name = "t";
  table.num_embeddings = kCopyRows;
  table.embedding_dim = kCopyCols;
  table.dtype = one.dtype;
  table.optimizer.type = one.optimizer;
  table.optimizer.learning_rate = 0.1;
  table.memory.tier = tier;
  table.memory.ways = 8;
  return table;
}

/// The ids of a rank's batch: some that other ranks have too, some of its own.
std::vector<std::int64_t> ids_of_batch(int step, int rank) {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < kRowsOfBatch; ++i) {
    const auto drawn =
        philox(random_key(5, RandomPurpose::kTest), static_cast<std::uint64_t>(1000 * step + i),
               static_cast<std::uint64_t>(i % 4 == 0 ? 99 : rank));
    ids.push_back(drawn[0] % kCopyRows);
  }
  return ids;
}

/// A list of bags of one id each, with memory of its own.
struct OneIdBags {
  explicit OneIdBags(std::vector<std::int64_t> rows) : ids(std::move(rows)) {
    for (std::size_t i = 0; i <= ids.size(); ++i) {
      offsets.push_back(static_cast<std::int64_t>(i));
    }
  }

  [[nodiscard]] kernels::Bags bags() const {
    return {
        .ids = ids.data(), .offsets = offsets.data(), .weights = nullptr, .bags = std::ssize(ids)};
  }

  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> offsets;
};

/// A rank's copy of the table, and the batches that it has in flight: one is updated while the next
/// has been fetched.
class Copy {
 public:
  Copy(comm::Communicator& world,
       Context& ctx,
       const spec::Table& table,
       layout::RowSums sums,
       CopyLeftOut left_out)
      : rank_(world.rank()),
        part_(static_cast<std::int32_t>(rank_parts(kCopyParts, world.size(), world.rank()).begin)),
        left_out_(left_out),
        below_(layout::packed_row(table, kCopyCols).bytes()),
        shard_(*ctx.device,
               table,
               Range{0, kCopyRows},
               {0, kCopyCols},
               1,
               {.parts = kCopyParts,
                .backing = table.memory.tier == spec::MemoryTier::kSsd ? &below_ : nullptr,

                .cache_bytes = layout::cache_bytes(
                    table,
                    kCopyCols,
                    layout::cache_shape(84, table.memory.ways, layout::kSpillShare))}),
        gradients_(*ctx.device, shard_),
        sync_(world, *ctx.device, std::span(&own_, 1), kCopyParts, sums) {
    if (shard_.tier() != nullptr) {
      for (auto& resident : resident_) {
        resident = shard_.tier()->make_batch();
      }
      updated_ = left_out == CopyLeftOut::kRoom ? shard_.tier()->make_batch()
                                                : shard_.tier()->make_inserted_batch();
    }
    begin(ctx, 0);
  }

  /// Step `step`, after the next batch's rows have been asked for.
  void step(Context& ctx, int step) {
    begin(ctx, step + 1);
    const OneIdBags& rows = *batches_.at(step);
    storage::ResidentRows* const resident = resident_[step % 2].get();
    if (resident != nullptr) {
      resident->fetch_late(ctx);
    }
    const std::vector<std::int32_t> parts(rows.ids.size(), part_);
    std::vector<float> values;
    for (std::size_t i = 0; i < rows.ids.size() * kCopyCols; ++i) {
      const auto drawn = philox(random_key(static_cast<std::uint64_t>(rank_), RandomPurpose::kTest),
                                static_cast<std::uint64_t>(step), i);
      values.push_back(uniform_float(drawn[0]) - 0.5F);
    }
    const embedding::GradientBlock block{.bags = rows.bags(),
                                         .grads = values.data(),
                                         .grad_stride = kCopyCols,
                                         .parts = parts.data()};
    gradients_.coalesce(ctx, {&block, 1});
    embedding::RowGradients* const one = &gradients_;
    sync_.update(ctx, {&one, 1}, {.step = step + 1, .seed = 3}, [&] { find_rows(ctx); });
    if (resident != nullptr) {
      resident->release(storage::Release::kUpdated);
      updated_->release(left_out_ == CopyLeftOut::kChanges ? storage::Release::kUnchanged
                                                           : storage::Release::kUpdated);
    }
    batches_.erase(step);
  }

  /// Slots of the cache, 0 where there is none.
  [[nodiscard]] std::int64_t slots() const {
    return shard_.tier() == nullptr ? 0 : shard_.tier()->most_rows();
  }

  /// All numbers of all items as bits.
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    const auto items = shard_.state_items();
    for (std::size_t k = 0; k < items.size(); ++k) {
      const std::int64_t bytes =
          kCopyRows * (items[k].col_end - items[k].col_begin) * size_of(items[k].dtype);
      all.resize(all.size() + static_cast<std::size_t>(bytes));
      shard_.read_state(k, 0, kCopyRows, all.data() + all.size() - bytes);
    }
    return all;
  }

 private:
  void begin(Context& ctx, int step) {
    batches_[step] = std::make_unique<OneIdBags>(ids_of_batch(step, rank_));
    if (resident_[step % 2] != nullptr) {
      const kernels::Bags bags = batches_[step]->bags();
      resident_[step % 2]->fetch(ctx, {&bags, 1});
    }
  }

  void find_rows(Context& ctx) {
    if (updated_ == nullptr) {
      return;
    }
    const std::span unique(gradients_.unique_rows(),
                           static_cast<std::size_t>(gradients_.num_unique()));
    ends_ = {0, gradients_.num_unique()};
    const kernels::Bags rows{
        .ids = unique.data(), .offsets = ends_.data(), .weights = nullptr, .bags = 1};
    updated_->fetch(ctx, {&rows, 1});
    updated_->fetch_late(ctx);
    gradients_.use_slots(updated_->resolve(ctx, unique).data());
  }

  int rank_;
  std::int32_t part_;
  CopyLeftOut left_out_;
  storage::MemoryBacking below_;
  TableShard shard_;
  TableShard* own_ = &shard_;
  embedding::RowGradients gradients_;
  ReplicaSync sync_;
  std::map<int, std::unique_ptr<OneIdBags>> batches_;
  std::unique_ptr<storage::ResidentRows> resident_[2];
  std::unique_ptr<storage::ResidentRows> updated_;
  std::array<std::int64_t, 2> ends_{};  // of the rows that updated_ has
};

/// Whether all ranks' copies have the bits of one with all rows in memory, after every step.
bool copies_have_the_same_bits(const CopyCase& one) {
  std::int64_t same = 0;
  comm::run_local(one.ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({.threads = 2});
    Context ctx{.device = device.get(), .pool = &device->pool()};
    Copy dense(world, ctx, copied_table(one, spec::MemoryTier::kDense), layout::RowSums::kGathered,
               CopyLeftOut::kNothing);
    Copy tiered(world, ctx, copied_table(one, one.tier), one.sums, one.left_out);
    std::int64_t own = 1;
    for (int step = 0; step < kCopySteps; ++step) {
      dense.step(ctx, step);
      tiered.step(ctx, step);
      own &= dense.bytes() == tiered.bytes() ? 1 : 0;
    }
    world.all_reduce(ctx, &own, 1, comm::ReduceOp::kMin);
    if (world.rank() == 0) {
      same = own;
      if (one.tier == spec::MemoryTier::kSsd) {
        // Those of the batches of all ranks, and not the next batch's too.
        EXPECT_GE(tiered.slots(), kRowsOfBatch / 4 + one.ranks * kRowsOfBatch * 3 / 4);
        EXPECT_LT(tiered.slots(), kRowsOfBatch / 4 + (one.ranks + 1) * kRowsOfBatch * 3 / 4);
      }
    }
  });
  return same == 1;
}

TEST(CopiedRows, HaveTheBitsOfAllRowsInMemory) {
  for (const auto tier : {spec::MemoryTier::kLazy, spec::MemoryTier::kSsd}) {
    for (const auto dtype : {spec::RowDType::kFp32, spec::RowDType::kBf16}) {
      for (const auto optimizer : {SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad,
                                   SparseOptimizerKind::kAdagrad}) {
        for (const auto sums : {layout::RowSums::kGathered, layout::RowSums::kOwned}) {
          EXPECT_TRUE(copies_have_the_same_bits(
              {.optimizer = optimizer, .dtype = dtype, .tier = tier, .sums = sums}))
              << "tier " << static_cast<int>(tier) << ", rows " << static_cast<int>(dtype)
              << ", optimizer " << static_cast<int>(optimizer) << ", sums "
              << static_cast<int>(sums);
        }
      }
    }
  }
}

// The test above would see it: rows of other ranks that change in their slots and nowhere else.
TEST(CopiedRows, ChangesOfOtherRanksRowsThatAreNotKeptAreMissed) {
  EXPECT_TRUE(copies_have_the_same_bits({}));
  EXPECT_FALSE(copies_have_the_same_bits({.left_out = CopyLeftOut::kChanges}));
}

// A batch that has been fetched ahead would keep the update from its rows.
TEST(CopiedRows, BehindABatchThatWasFetchedAheadHaveNoRoom) {
  try {
    copies_have_the_same_bits({.left_out = CopyLeftOut::kRoom});
    FAIL() << "all rows had slots";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource) << error.what();
  }
}

}  // namespace
}  // namespace weft::sharding
