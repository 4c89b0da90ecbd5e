// Averages of replicas whose changes travel encoded.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sharding/replica_items.h"
#include "tests/sharding/sparse_run.h"
#include "tests/sharding/touched_note.h"
#include "weft/base/philox.h"
#include "weft/comm/local/local.h"
#include "weft/cost/replicas.h"
#include "weft/embedding/table_shard.h"
#include "weft/layout/replicas.h"
#include "weft/sharding/replica_average.h"

namespace weft::sharding {
namespace {

using embedding::TableShard;

constexpr CodecFormat kLossy[] = {CodecFormat::kFp16,    CodecFormat::kBf16, CodecFormat::kFp8E4m3,
                                  CodecFormat::kFp8E5m2, CodecFormat::kInt8, CodecFormat::kInt4};

ReplicaAverageOptions coded_average(CodecFormat format,
                                    spec::SyncForm form = spec::SyncForm::kDense,
                                    bool error_feedback = true) {
  return {.form = form,
          .seed = 5,
          .codec = {.format = format, .group = 16},
          .error_feedback = error_feedback};
}

/// All items as bits.
std::vector<std::uint32_t> bits(const StateSource& from) {
  std::vector<std::uint32_t> all;
  for (std::size_t k = 0; k < from.state_items().size(); ++k) {
    for (const float value : read_item(from, k)) {
      all.push_back(std::bit_cast<std::uint32_t>(value));
    }
  }
  return all;
}

/// Updates rows [first, first + count) with gradients of any magnitude.
embedding::RowGradients touch_at_random(
    Context& ctx, TableShard& shard, std::int64_t first, std::int64_t count, int seed) {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> offsets;
  for (std::int64_t i = 0; i <= count; ++i) {
    offsets.push_back(i);
    ids.push_back(first + i);
  }
  const std::vector<std::int32_t> parts(ids.size());
  std::vector<float> gradients;
  for (std::int64_t i = 0; i < count * kReplicaCols; ++i) {
    const auto random = philox(random_key(static_cast<std::uint64_t>(seed), RandomPurpose::kTest),
                               static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(i));
    gradients.push_back(
        std::ldexp(uniform_float(random[0]) - 0.5F, static_cast<int>(random[1] % 12) - 8));
  }
  const embedding::GradientBlock block{
      .bags = {.ids = ids.data(), .offsets = offsets.data(), .weights = nullptr, .bags = count},
      .grads = gradients.data(),
      .grad_stride = kReplicaCols,
      .parts = parts.data()};
  embedding::RowGradients touched(*ctx.device, shard);
  touched.coalesce(ctx, {&block, 1});
  touched.accumulate(ctx);
  shard.update(ctx, touched, {.step = seed, .seed = 3});
  return touched;
}

/// One replica of a table.
struct Replica {
  Replica(comm::Communicator& world,
          Device& device,
          const spec::Table& table,
          const ReplicaAverageOptions& options)
      : shard(device, table, Range{0, kReplicaRows}, {0, kReplicaCols}, 1, {}),
        average(world, device, {&shard}, options) {}

  TableShard shard;
  ReplicaAverage average;
};

using GroupBody = std::function<void(comm::Communicator& world, Context& ctx, Device& device)>;

void on_groups(int groups, const GroupBody& body) {
  comm::run_local(groups, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({.threads = 2});
    Context ctx{.device = device.get(), .pool = &device->pool()};
    body(world, ctx, *device);
  });
}

void expect_equal_replicas(comm::Communicator& world, Context& ctx, const TableShard& shard) {
  const std::vector<std::uint32_t> own = bits(shard);
  std::vector<std::uint32_t> all(own.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(ctx, own.data(), all.data(), static_cast<std::int64_t>(own.size()) * 4);
  ASSERT_TRUE(std::equal(own.begin(), own.end(), all.begin())) << "not the bits of group 0";
}

// Some rows by one group, some by several, some by none, and steps between syncs.
TEST(CodedAverage, TouchedHasTheBitsOfDenseAndReplicasAreEqual) {
  std::size_t turn = 0;
  for (const CodecFormat format : kLossy) {
    for (const auto dtype : {spec::RowDType::kFp32, spec::RowDType::kFp16, spec::RowDType::kBf16,
                             spec::RowDType::kSplitBf16}) {
      const spec::Table table =
          replica_table(kSparseOptimizers[turn++ % std::size(kSparseOptimizers)], dtype);
      const std::string what = std::string(to_string(format)) + ", optimizer " +
                               std::to_string(static_cast<int>(table.optimizer.type)) + ", rows " +
                               std::to_string(static_cast<int>(dtype));
      on_groups(3, [&](comm::Communicator& world, Context& ctx, Device& device) {
        Replica dense(world, device, table, coded_average(format));
        Replica touched(world, device, table, coded_average(format, spec::SyncForm::kTouched));
        const std::vector<float> initial = read_item(dense.shard, 0);
        for (int step = 1; step <= 10; ++step) {
          // Rows from 80 on are nobody's, and after step 6 nobody updates any.
          const std::int64_t first = (step * 11 + world.rank() * 5) % 70;
          for (Replica* replica : {&dense, &touched}) {
            note_updated(replica->average,
                         touch_at_random(ctx, replica->shard, first, step > 6 ? 0 : 10,
                                         10 * step + world.rank()));
            if (step % 2 == 0) {
              replica->average.run(ctx, step);
              expect_equal_replicas(world, ctx, replica->shard);
            }
          }
          if (step % 2 == 0) {
            ASSERT_EQ(bits(dense.shard), bits(touched.shard)) << what << ", step " << step;
            ASSERT_EQ(bits(*dense.average.residuals()), bits(*touched.average.residuals()))
                << what << ", step " << step;
          }
        }
        const std::vector<float> last = read_item(dense.shard, 0);
        EXPECT_FALSE(std::equal(last.begin(), last.begin() + 80 * kReplicaCols, initial.begin()));
        EXPECT_TRUE(std::equal(last.begin() + 80 * kReplicaCols, last.end(),
                               initial.begin() + 80 * kReplicaCols))
            << "rows that nobody touched have moved";
        EXPECT_EQ(dense.average.clips().codec, kernels::CodecClips{}) << what;
      });
    }
  }
}

TEST(CodedAverage, NumbersWithoutChangeKeepTheirBits) {
  for (const CodecFormat format : kLossy) {
    on_groups(3, [&](comm::Communicator& world, Context& ctx, Device& device) {
      Replica replica(world, device,
                      replica_table(SparseOptimizerKind::kSgd, spec::RowDType::kFp32),
                      coded_average(format));
      std::vector<float> values = read_item(replica.shard, 0);
      for (std::size_t i = 0; i < values.size(); i += 3) {
        values[i] = -0.0F;
      }
      write_item(replica.shard, 0, values);
      replica.average.restored(ctx);
      const std::vector<std::uint32_t> before = bits(replica.shard);
      replica.average.run(ctx, 1);
      EXPECT_EQ(bits(replica.shard), before) << to_string(format);
    });
  }
}

TEST(CodedAverage, Fp32HasTheBitsOfNoCodec) {
  on_groups(3, [&](comm::Communicator& world, Context& ctx, Device& device) {
    const spec::Table table = replica_table(SparseOptimizerKind::kAdam, spec::RowDType::kBf16);
    Replica plain(world, device, table, {.form = spec::SyncForm::kTouched, .seed = 5});
    Replica fp32(world, device, table, coded_average(CodecFormat::kFp32, spec::SyncForm::kTouched));
    for (int step = 1; step <= 4; ++step) {
      for (Replica* replica : {&plain, &fp32}) {
        note_updated(replica->average,
                     touch_at_random(ctx, replica->shard, 3 * world.rank(), 8, step));
        replica->average.run(ctx, step);
      }
      ASSERT_EQ(bits(plain.shard), bits(fp32.shard));
    }
    EXPECT_EQ(fp32.average.residuals(), nullptr);
    EXPECT_EQ(fp32.average.copies_bytes(), 0);
  });
}

/// Half a step of a code, of a group's largest magnitude (docs/codecs.md).
double error_of(CodecFormat format) {
  switch (format) {
    case CodecFormat::kFp16:
      return 0x1p-11;
    case CodecFormat::kBf16:
      return 0x1p-8;
    case CodecFormat::kFp8E4m3:
      return 1.0 / 27;
    case CodecFormat::kInt8:
      return 1.0 / 252;
    default:
      return 1.0 / 13;
  }
}

/// The largest difference, over 100 syncs in which every number drifts in the same way, between
/// where it is and where the groups' changes sum up to.
double drift_error(CodecFormat format, bool error_feedback) {
  constexpr int kGroups = 2;
  double largest = 0.0;
  on_groups(kGroups, [&](comm::Communicator& world, Context& ctx, Device& device) {
    Replica replica(world, device, replica_table(SparseOptimizerKind::kSgd, spec::RowDType::kFp32),
                    coded_average(format, spec::SyncForm::kDense, error_feedback));
    std::vector<float> values = read_item(replica.shard, 0);
    std::vector<double> expected(values.begin(), values.end());
    for (int step = 1; step <= 100; ++step) {
      std::vector<float> moved = values;
      for (std::size_t i = 0; i < values.size(); ++i) {
        moved[i] +=
            i % kReplicaCols % 16 == 0 ? 1.0F : 0.003F;  // one large number per group of columns
        expected[i] += static_cast<double>(moved[i]) - static_cast<double>(values[i]);
      }
      write_item(replica.shard, 0, moved);
      replica.average.run(ctx, step);
      values = read_item(replica.shard, 0);
    }
    if (world.rank() == 0) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(values[i]) - expected[i]));
      }
    }
  });
  return largest;
}

TEST(CodedAverage, WhatIsLostFollows) {
  for (const CodecFormat format : kLossy) {
    // Half a step of the change, half of one of the mean, of numbers of up to 1 and what was lost;
    // and a hundred roundings of numbers of up to 100.
    const double bound = 2.0 * error_of(format) * (1.0 + 2.0 * error_of(format)) + 1e-3;
    EXPECT_LE(drift_error(format, true), bound) << to_string(format);
  }
  // The test can fail: a drift of 0.003 is below half a step, and in 100 syncs it is 0.3.
  for (const CodecFormat format : {CodecFormat::kInt8, CodecFormat::kInt4}) {
    EXPECT_GT(drift_error(format, false), 0.25) << to_string(format);
  }
}

TEST(CodedAverage, SendsTheBytesOfTheFormula) {
  for (const CodecFormat format : kLossy) {
    for (const auto kind : kSparseOptimizers) {
      for (const auto form : {spec::SyncForm::kDense, spec::SyncForm::kTouched}) {
        for (const int groups : {2, 4, 8}) {
          const spec::Table table = replica_table(kind, spec::RowDType::kBf16);
          const spec::Codecs codecs{.sync = static_cast<CodecFormat>(format), .group_size = 16};
          on_groups(groups, [&](comm::Communicator& world, Context& ctx, Device& device) {
            Replica replica(world, device, table, coded_average(format, form));
            // Each group's 8 rows overlap with the next one's by half.
            note_updated(replica.average,
                         touch_at_random(ctx, replica.shard, 4 * world.rank(), 8, 1));
            const std::int64_t before = world.traffic().total().bytes;
            replica.average.run(ctx, 1);
            const auto sent = static_cast<double>(world.traffic().total().bytes - before);
            const bool all = form == spec::SyncForm::kDense;
            const std::int64_t rows = all ? kReplicaRows : 4 * groups + 4;
            std::int64_t own = 0;
            for (std::int64_t row = world.rank(); row < rows; row += groups) {
              ++own;
            }
            const double row_bytes = cost::coded_row_bytes(table, kReplicaCols, codecs);
            EXPECT_EQ(cost::sync_row_bytes(table, kReplicaCols, codecs), row_bytes);
            const double lists = all ? 0.0 : cost::touched_list_bytes(groups, 1, 8);
            EXPECT_EQ(sent,
                      row_bytes * static_cast<double>(rows - own + (groups - 1) * own) + lists)
                << to_string(format) << ", " << groups << " groups";
            if (all) {
              EXPECT_EQ(sent, cost::replica_average_bytes(groups, row_bytes * kReplicaRows));
            }
          });
        }
      }
    }
  }
}

// Rows of which something was lost travel again, and then no more.
TEST(CodedAverage, TouchedRowsRestOnceNothingIsLeft) {
  for (const CodecFormat format : {CodecFormat::kBf16, CodecFormat::kInt8, CodecFormat::kInt4}) {
    on_groups(2, [&](comm::Communicator& world, Context& ctx, Device& device) {
      Replica replica(world, device,
                      replica_table(SparseOptimizerKind::kRowWiseAdagrad, spec::RowDType::kFp32),
                      coded_average(format, spec::SyncForm::kTouched));
      note_updated(replica.average, touch_at_random(ctx, replica.shard, 10 * world.rank(), 10, 1));
      replica.average.run(ctx, 1);
      std::vector<double> sent;
      for (int step = 2; step < 24; ++step) {
        note_updated(replica.average, touch_at_random(ctx, replica.shard, 0, 0, step));
        const std::int64_t before = world.traffic().total().bytes;
        replica.average.run(ctx, step);
        sent.push_back(static_cast<double>(world.traffic().total().bytes - before));
      }
      EXPECT_GT(sent.front(), cost::touched_list_bytes(2, 1, 0)) << to_string(format);
      EXPECT_EQ(sent.back(), cost::touched_list_bytes(2, 1, 0)) << to_string(format);
    });
  }
}

TEST(CodedAverage, KeepsTheMemoryOfTheFormula) {
  for (const auto dtype : {spec::RowDType::kFp32, spec::RowDType::kFp16, spec::RowDType::kBf16,
                           spec::RowDType::kSplitBf16}) {
    for (const auto kind : kSparseOptimizers) {
      for (const bool feedback : {false, true}) {
        on_groups(2, [&](comm::Communicator& world, Context& /*ctx*/, Device& device) {
          const spec::Table table = replica_table(kind, dtype);
          const Replica replica(
              world, device, table,
              coded_average(CodecFormat::kInt8, spec::SyncForm::kDense, feedback));
          const layout::SyncRow row = layout::sync_row(table, kReplicaCols);
          const auto lengths = layout::sync_copy_lengths<std::int64_t>(
              kReplicaRows, row, feedback ? row.floats(kReplicaCols) : 0);
          EXPECT_EQ(replica.average.copies_bytes(), layout::total_bytes(lengths));
        });
      }
    }
  }
}

// A moment of 0.1 falls by 0.099 beside one that falls by 20 of its group: a step is 0.16.
TEST(CodedAverage, MomentsThatWouldBeNegativeStayAndAreCounted) {
  on_groups(2, [&](comm::Communicator& world, Context& ctx, Device& device) {
    Replica replica(world, device, replica_table(SparseOptimizerKind::kAdam, spec::RowDType::kFp32),
                    coded_average(CodecFormat::kInt8));
    constexpr std::size_t kSquares = 2;  // behind weights and means
    std::vector<float> squares(kReplicaRows * kReplicaCols, 1.0F);
    for (std::size_t row = 0; row < kReplicaRows; ++row) {
      squares[row * kReplicaCols] = 100.0F;
      squares[row * kReplicaCols + 1] = 0.1F;
    }
    write_item(replica.shard, kSquares, squares);
    replica.average.restored(ctx);
    const std::vector<float> before = squares;
    for (std::size_t row = 0; row < kReplicaRows; ++row) {
      squares[row * kReplicaCols] = 80.0F;
      squares[row * kReplicaCols + 1] = 0.001F;
    }
    write_item(replica.shard, kSquares, squares);
    replica.average.run(ctx, 1);
    std::int64_t kept = replica.average.clips().kept;
    world.all_reduce(ctx, &kept, 1);
    EXPECT_EQ(kept, kReplicaRows);
    std::vector<float> got = read_item(replica.shard, kSquares);
    for (std::size_t row = 0; row < kReplicaRows; ++row) {
      ASSERT_EQ(got[row * kReplicaCols + 1], before[row * kReplicaCols + 1]) << "row " << row;
      ASSERT_NEAR(got[row * kReplicaCols], 80.0F, 0.2F);
    }
    expect_equal_replicas(world, ctx, replica.shard);
    // What it should have been follows, beside smaller changes.
    for (int step = 2; step < 5; ++step) {
      replica.average.run(ctx, step);
    }
    got = read_item(replica.shard, kSquares);
    for (std::size_t row = 0; row < kReplicaRows; ++row) {
      ASSERT_NEAR(got[row * kReplicaCols + 1], 0.001F, 2e-3F) << "row " << row;
      ASSERT_GE(got[row * kReplicaCols + 1], 0.0F);
    }
  });
}

TEST(CodedAverage, WhatIsTooLargeIsCountedAndFollows) {
  on_groups(2, [&](comm::Communicator& world, Context& ctx, Device& device) {
    Replica replica(world, device, replica_table(SparseOptimizerKind::kSgd, spec::RowDType::kFp32),
                    coded_average(CodecFormat::kFp16));
    std::vector<float> values = read_item(replica.shard, 0);
    values[7] += 1e5F;
    write_item(replica.shard, 0, values);
    replica.average.run(ctx, 1);
    std::int64_t clipped = replica.average.clips().codec.clipped;
    world.all_reduce(ctx, &clipped, 1);
    EXPECT_EQ(clipped, 2) << "of the change, and of the mean";
    EXPECT_LT(read_item(replica.shard, 0)[7], 0.7e5F);
    for (int step = 2; step < 6; ++step) {
      replica.average.run(ctx, step);
    }
    EXPECT_NEAR(read_item(replica.shard, 0)[7], 1e5F, 1.0F);
    expect_equal_replicas(world, ctx, replica.shard);
  });
}

TEST(CodedAverage, GoesOnFromSavedResiduals) {
  for (const auto form : {spec::SyncForm::kDense, spec::SyncForm::kTouched}) {
    on_groups(3, [&](comm::Communicator& world, Context& ctx, Device& device) {
      const spec::Table table =
          replica_table(SparseOptimizerKind::kRowWiseAdam, spec::RowDType::kBf16);
      Replica whole(world, device, table, coded_average(CodecFormat::kInt4, form));
      Replica resumed(world, device, table, coded_average(CodecFormat::kInt4, form));
      Replica dropped(world, device, table, coded_average(CodecFormat::kInt4, form));
      const auto step = [&](Replica& replica, int number) {
        note_updated(
            replica.average,
            touch_at_random(ctx, replica.shard, (7 * number + 4 * world.rank()) % 60, 9, number));
        replica.average.run(ctx, number);
      };
      const auto copy = [](const StateSource& from, StateSink& to) {
        for (std::size_t k = 0; k < from.state_items().size(); ++k) {
          const StateItem item = from.state_items()[k];
          std::vector<std::byte> bytes(static_cast<std::size_t>(
              kReplicaRows * (item.col_end - item.col_begin) * size_of(item.dtype)));
          from.read_state(k, 0, kReplicaRows, bytes.data());
          to.write_state(k, 0, kReplicaRows, item.col_begin, item.col_end, bytes.data());
        }
      };
      for (int number = 1; number <= 3; ++number) {
        step(whole, number);
      }
      copy(whole.shard, resumed.shard);
      copy(whole.shard, dropped.shard);
      copy(*whole.average.residuals(), *resumed.average.residuals());
      resumed.average.restored(ctx);
      dropped.average.restored(ctx);
      for (int number = 4; number <= 6; ++number) {
        step(whole, number);
        step(resumed, number);
        step(dropped, number);
      }
      EXPECT_EQ(bits(resumed.shard), bits(whole.shard));
      EXPECT_EQ(bits(*resumed.average.residuals()), bits(*whole.average.residuals()));
      EXPECT_NE(bits(dropped.shard), bits(whole.shard)) << "residuals decide nothing";
    });
  }
}

}  // namespace
}  // namespace weft::sharding
