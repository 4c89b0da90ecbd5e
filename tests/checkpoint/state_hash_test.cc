#include "weft/checkpoint/state_hash.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include <gtest/gtest.h>

#include "tests/checkpoint/memory_state.h"
#include "weft/base/thread_pool.h"

namespace weft::checkpoint {
namespace {

/// Initial values of tables.a weight: equal to byte_at() in rows below 5, other bits elsewhere.
bool initial_values(const StateItem& item, std::int64_t row_begin, std::int64_t rows, void* out) {
  if (item.parameter != "tables.a" || item.kind != "weight") {
    return false;
  }
  auto* next = static_cast<std::uint8_t*>(out);
  for (std::int64_t r = row_begin; r < row_begin + rows; ++r) {
    for (std::int64_t c = item.col_begin; c < item.col_end; ++c) {
      for (std::int64_t b = 0; b < size_of(item.dtype); ++b) {
        *next++ = static_cast<std::uint8_t>(byte_at(seed_of(item), r * item.cols + c, b) ^
                                            (r < 5 ? 0U : 1U));
      }
    }
  }
  return true;
}

StateHash hash_of(int ranks, std::uint32_t seed, int threads, const InitialValues& initial = {}) {
  StateHash out;
  std::mutex mutex;
  comm::run_local(ranks, {}, [&](comm::Communicator& world) {
    ThreadPool pool(threads);
    Context ctx;
    ctx.pool = threads > 1 ? &pool : nullptr;
    MemoryState state = make_state(small_matrices(), seed, ranks, world.rank());
    state.fill();
    const StateSource* source = &state;
    const StateHash hash = hash_state(world, ctx, std::span(&source, 1), initial);
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(out == StateHash{} || out == hash);
    out = hash;
  });
  return out;
}

TEST(StateHash, IndependentOfRanksLayoutAndThreads) {
  const StateHash expected = hash_of(1, 1, 1);
  EXPECT_NE(expected.weights, expected.state);
  std::uint32_t seed = 1;
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const int threads : {1, 3}) {
      EXPECT_EQ(hash_of(ranks, ++seed, threads), expected) << ranks << " ranks";
    }
  }
}

TEST(StateHash, ElementsAtTheirInitialValueCountZero) {
  const StateHash all = hash_of(1, 1, 1);
  const StateHash some = hash_of(1, 1, 1, initial_values);
  EXPECT_NE(all, some);
  EXPECT_EQ(all.state - all.weights, some.state - some.weights);
  for (const int ranks : {2, 3, 5}) {
    EXPECT_EQ(hash_of(ranks, 77, 2, initial_values), some);
  }
  // Rows [0, 5) alone are as they began: they add nothing.
  MemoryState start;
  start.add({"tables.a", "weight", DType::kFloat32, 13, 20}, {0, 5}, {0, 20}, 1);
  start.fill();
  const StateSource* source = &start;
  Context ctx;
  EXPECT_EQ(hash_state(ctx, std::span(&source, 1), initial_values), StateHash{});
}

TEST(StateHash, EveryBitAndPlaceCounts) {
  const Matrix m{"t", "weight", DType::kFloat32, 3, 4};
  const auto hash = [](const Matrix& matrix, std::size_t flip) {
    MemoryState state;
    state.add(matrix, {0, matrix.rows}, {0, matrix.cols}, 1);
    state.at(0, flip / 8) ^= std::byte{static_cast<unsigned char>(1U << (flip % 8))};
    const StateSource* source = &state;
    Context ctx;
    return hash_state(ctx, std::span(&source, 1)).weights;
  };
  std::vector<std::uint64_t> seen;
  for (std::size_t bit = 0; bit < 3 * 4 * 32; ++bit) {
    seen.push_back(hash(m, bit));
  }
  seen.push_back(hash({"u", "weight", DType::kFloat32, 3, 4}, 0));
  seen.push_back(hash({"t", "weight", DType::kInt32, 3, 4}, 0));
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST(StateHash, StatedWord) {
  // The format document's example: one element, row 2, column 3, bits of 1.0f.
  StateItem item{"tables.C1", "weight", DType::kFloat32, 10, 8, 2, 3, 3, 4, true};

  class One : public StateSource {
   public:
    explicit One(StateItem one) : item_(std::move(one)) {}

    [[nodiscard]] std::vector<StateItem> state_items() const override { return {item_}; }

    void read_state(std::size_t, std::int64_t, std::int64_t, void* out) const override {
      const float value = 1.0F;
      std::memcpy(out, &value, sizeof(value));
    }

   private:
    StateItem item_;
  } one(item);

  const std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
  const std::uint64_t key = hash_combine(
      hash_combine(hash_string("tables.C1"), hash_string("weight")), hash_string("fp32"));
  const std::uint64_t word = mix64(mix64(mix64(key + 3 * golden) + 4 * golden) ^ 0x3f800000ULL);
  const StateSource* source = &one;
  Context ctx;
  EXPECT_EQ(hash_state(ctx, std::span(&source, 1)).weights, word);
}

/// A matrix whose rows lie some bytes apart, the first at an odd address, and are not to be copied.
class InPlace final : public StateSource {
 public:
  explicit InPlace(const MemoryState& from)
      : item_(from.state_items()[0]),
        bytes_((item_.col_end - item_.col_begin) * size_of(item_.dtype)) {
    const std::int64_t rows = item_.held().size();
    memory_.resize(static_cast<std::size_t>(1 + rows * (bytes_ + 3)), std::byte{0x5A});
    std::vector<std::byte> row(static_cast<std::size_t>(bytes_));
    for (std::int64_t r = 0; r < rows; ++r) {
      from.read_state(0, item_.held().row(r), 1, row.data());
      std::copy(row.begin(), row.end(), memory_.begin() + 1 + r * (bytes_ + 3));
    }
  }

  [[nodiscard]] std::vector<StateItem> state_items() const override { return {item_}; }

  void read_state(std::size_t, std::int64_t, std::int64_t, void*) const override {
    ADD_FAILURE() << "rows are in place";
  }

  [[nodiscard]] RowsInPlace rows_in_place(std::size_t,
                                          std::int64_t row_begin,
                                          std::int64_t) const override {
    return {memory_.data() + 1 + item_.held().index(row_begin) * (bytes_ + 3), bytes_ + 3};
  }

 private:
  StateItem item_;
  std::int64_t bytes_;
  std::vector<std::byte> memory_;
};

TEST(StateHash, RowsInPlaceAreHashedThere) {
  MemoryState state;
  state.add({"tables.a", "weight", DType::kFloat32, 9000, 20}, {0, 9000}, {0, 20}, 1);
  state.fill();
  const InPlace in_place(state);
  ThreadPool pool(3);
  Context ctx;
  ctx.pool = &pool;
  const auto hash = [&](const StateSource& source) {
    const StateSource* const one = &source;
    return hash_state(ctx, std::span(&one, 1), initial_values);
  };
  EXPECT_NE(hash(state), StateHash{});
  EXPECT_EQ(hash(in_place), hash(state));
}

TEST(Replicas, EqualCopiesPassAndOthersAreNamed) {
  for (const int broken : {-1, 0, 1, 2}) {
    std::atomic<int> told = 0;
    comm::run_local(3, {}, [&](comm::Communicator& world) {
      Context ctx;
      MemoryState state;
      state.add({"tables.own", "weight", DType::kFloat32, 9, 4}, piece(9, 3, world.rank()), {0, 4},
                1);
      state.add({"dense.0", "weight", DType::kFloat32, 5, 4}, {0, 5}, {0, 4},
                world.rank() == 0 ? 1 : 0);
      state.fill();
      if (world.rank() == broken) {
        state.at(1, 17) ^= std::byte{4};
      }
      const StateSource* source = &state;
      try {
        compare_replicas(world, ctx, std::span(&source, 1));
      } catch (const Error& error) {
        EXPECT_TRUE(says(error.what(), {"dense.0 weight rows [0, 5)"}));
        EXPECT_EQ(error.origin_rank(), broken == 0 ? 1 : broken);
        ++told;
      }
    });
    EXPECT_EQ(told, broken < 0 ? 0 : 3);
  }
}

/// Ten million numbers, of which few are not 0: those are rows by list.
class SparseState final : public StateSource, public RowState {
 public:
  SparseState(std::map<std::int64_t, float> rows, bool first) : rows_(std::move(rows)) {
    item_ = {.parameter = "tables.wide",
             .kind = "weight",
             .rows = 10'000'000,
             .cols = 1,
             .row_end = 10'000'000,
             .col_end = 1,
             .first_holder = first};
  }

  [[nodiscard]] std::vector<StateItem> state_items() const override { return {item_}; }

  void read_state(std::size_t, std::int64_t, std::int64_t, void*) const override {
    ADD_FAILURE() << "rows are read by list";
  }

  [[nodiscard]] const RowState* row_state() const override { return this; }

  [[nodiscard]] Shape row_shape() const override {
    return {.parameter = item_.parameter,
            .items = 1,
            .rows = item_.held(),
            .cols = {0, 1},
            .packed = {.weight_bytes = 4},
            .initial = {}};
  }

  [[nodiscard]] bool is_sparse() const override { return true; }

  void for_each_row(StateRows, const StateRowsVisitor& visit) const override {
    for (const auto& [row, value] : rows_) {
      visit(std::span(&row, 1));
    }
  }

  void read_rows(std::span<const std::int64_t> rows, std::byte* packed) const override {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto found = rows_.find(rows[i]);
      const float value = found == rows_.end() ? 0.0F : found->second;
      std::memcpy(packed + i * 4, &value, 4);
    }
  }

  void initial_rows(std::span<const std::int64_t> rows, std::byte* packed) const override {
    std::memset(packed, 0, rows.size() * 4);
  }

  void write_rows(std::span<const std::int64_t>, const std::byte*) override {}

  void mark() override {}

  std::unique_ptr<RowCut> cut(StateRows, CopyRoom&) override { return nullptr; }

 private:
  std::map<std::int64_t, float> rows_;
  StateItem item_;
};

/// Rows that exist on one rank alone, and have their initial values there, are equal.
TEST(Replicas, CopiesOfRowsByListAreComparedByThose) {
  for (const int broken : {-1, 1}) {
    std::atomic<int> told = 0;
    comm::run_local(2, {}, [&](comm::Communicator& world) {
      Context ctx;
      std::map<std::int64_t, float> rows = {{7, 1.5F}, {9'999'999, -2.0F}};
      if (world.rank() == 1) {
        rows[40] = 0.0F;
      }
      if (world.rank() == broken) {
        rows[9'999'999] = 2.0F;
      }
      const SparseState state(std::move(rows), world.rank() == 0);
      const StateSource* source = &state;
      try {
        compare_replicas(world, ctx, std::span(&source, 1));
      } catch (const Error& error) {
        EXPECT_TRUE(says(error.what(), {"tables.wide weight rows [0, 10000000)"}));
        ++told;
      }
    });
    EXPECT_EQ(told, broken < 0 ? 0 : 2);
  }
}

TEST(Replicas, ACopyWithoutFirstHolderIsNamed) {
  comm::run_local(2, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryState state;
    state.add({"x", "weight", DType::kFloat32, 5, 4}, {0, 5}, {0, 4}, 0);
    const StateSource* source = &state;
    try {
      compare_replicas(world, ctx, std::span(&source, 1));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_TRUE(says(error.what(), {"no rank is first holder"}));
    }
  });
}

}  // namespace
}  // namespace weft::checkpoint
