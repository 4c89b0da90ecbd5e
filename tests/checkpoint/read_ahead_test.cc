// Loads by several threads: the state is that of one thread, in whatever order they read.
#include "weft/checkpoint/read_ahead.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/segment_chain.h"
#include "tests/io/faulty_file_system.h"
#include "weft/checkpoint/block_reader.h"
#include "weft/checkpoint/row_reader.h"
#include "weft/checkpoint/state_hash.h"

namespace weft::checkpoint {
namespace {

/// What the pieces of a test do, and what has become of them.
struct Trace {
  std::function<void(int)> read = [](int) {};
  std::vector<int> handed_over = {};
  std::atomic<int> read_ahead = 0;  ///< read and not handed over
  std::atomic<int> most_ahead = 0;
};

class NumberedPiece {
 public:
  void set(Trace& trace, int number) {
    trace_ = &trace;
    number_ = number;
    path_ = fmt::format("piece {}", number);
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  void read() {
    const int ahead = ++trace_->read_ahead;
    int most = trace_->most_ahead;
    while (most < ahead && !trace_->most_ahead.compare_exchange_weak(most, ahead)) {
    }
    trace_->read(number_);
  }

  void hand_over() {
    --trace_->read_ahead;
    trace_->handed_over.push_back(number_);
  }

 private:
  Trace* trace_ = nullptr;
  int number_ = 0;
  std::string path_;
};

void run_pieces(Trace& trace, int count, const ReadThreads& threads) {
  WorkProgress progress;
  ReadAhead<NumberedPiece> ahead(threads, progress);
  for (int i = 0; i < count; ++i) {
    ahead.next().set(trace, i);
    ahead.give(1);
  }
  ahead.finish();
}

std::vector<int> up_to(int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Later pieces are read faster.
void delay_early_ones(int number) {
  std::this_thread::sleep_for(std::chrono::microseconds(300 - 100 * (number % 4)));
}

TEST(ReadAheadPieces, AreHandedOverInOrderAndAreFew) {
  for (const int threads : {1, 2, 3, 8}) {
    Trace trace;
    trace.read = delay_early_ones;
    run_pieces(trace, 60, {threads, 1});
    EXPECT_EQ(trace.handed_over, up_to(60)) << threads;
    EXPECT_LE(trace.most_ahead, threads == 1 ? 1 : threads + 1) << threads;
  }
  Trace wrong;
  run_pieces(wrong, 60, {4, 1, ReadRule::kOrder});
  EXPECT_NE(wrong.handed_over, up_to(60));
}

TEST(ReadAheadPieces, ThreadsComeWithTheBytes) {
  const ReadThreads threads{4, 10};
  EXPECT_EQ(threads.worth(0), 1);
  EXPECT_EQ(threads.worth(19), 1);
  EXPECT_EQ(threads.worth(20), 2);
  EXPECT_EQ(threads.worth(1000), 4);
  EXPECT_EQ(ReadThreads{}.worth(1000), 1);
  Trace trace;
  std::atomic<int> elsewhere = 0;
  const auto caller = std::this_thread::get_id();
  trace.read = [&](int) { elsewhere += std::this_thread::get_id() == caller ? 0 : 1; };
  run_pieces(trace, 19, threads);
  EXPECT_EQ(elsewhere, 0);
}

TEST(ReadAheadPieces, TheFirstErrorInTheirOrderEndsAll) {
  for (const int threads : {1, 2, 5}) {
    Trace trace;
    trace.read = [](int number) {
      if (number >= 17) {
        throw std::runtime_error(fmt::format("piece {}", number));
      }
      delay_early_ones(number);
    };
    try {
      run_pieces(trace, 60, {threads, 1});
      FAIL() << "an error was lost";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "piece 17");
    }
    EXPECT_EQ(trace.handed_over, up_to(17)) << threads;
  }
}

/// A checkpoint of tables and matrices in many small segments and chunks, and how it is loaded.
struct Checkpoint {
  std::string path;
  io::FileSystem& files;
  std::vector<Table> tables;
  std::vector<Matrix> matrices;
  Holding holding = Holding::kDense;

  struct Outcome {
    std::int64_t differences = 0;
    StateHash hash;
  };

  /// By rank 0 of 2 whose layout is drawn from `seed`.
  [[nodiscard]] Outcome load_with(const ReadThreads& threads,
                                  std::uint32_t seed,
                                  const Versions& versions) const {
    Context ctx;
    const Manifest manifest = read_manifest(path, files);
    const RankTables own = make_tables(tables, seed, 2, 0, holding);
    MemoryState dense = make_state(matrices, seed, 2, 0);
    const LoadSource source{files, manifest, find_checkpoint(path, files), threads};
    WorkProgress progress;
    fill_blocks(source, block_targets(manifest, dense), progress);
    fill_rows(source, row_targets(manifest, own), progress);
    auto sources = sources_of(own);
    sources.push_back(&dense);
    return {differences(own, versions) + dense.differences(), hash_state(ctx, sources)};
  }

 private:
  static std::vector<BlockTarget> block_targets(const Manifest& manifest, MemoryState& state) {
    std::vector<BlockTarget> targets;
    const auto items = state.state_items();
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (std::size_t s = 0; s < manifest.items.size(); ++s) {
        if (manifest.items[s].parameter == items[i].parameter &&
            manifest.items[s].kind == items[i].kind) {
          targets.push_back({&state, i, items[i], s});
        }
      }
    }
    return targets;
  }

  static std::vector<RowTarget> row_targets(const Manifest& manifest, const RankTables& own) {
    std::vector<RowTarget> targets;
    for (const auto& rows : own) {
      for (std::size_t t = 0; t < manifest.tables.size(); ++t) {
        if (manifest.tables[t].parameter != rows->table().name) {
          continue;
        }
        const auto items = rows->state_items();
        RowTarget target{rows.get(), t, items[0].held(), {}};
        for (std::size_t i = 0; i < items.size(); ++i) {
          target.items.push_back({i, i, {items[i].col_begin, items[i].col_end}});
        }
        targets.push_back(target);
      }
    }
    return targets;
  }
};

std::vector<Table> some_tables() {
  std::vector<Table> tables = small_tables();
  tables.push_back({"rows.e", 12'000, 12, DType::kFloat32, RowExtra::kOfRow});
  return tables;
}

/// Chains of saves by 1 to 3 ranks.
TEST(LoadByThreads, HasTheStateOfOneThread) {
  for (const Holding holding : {Holding::kDense, Holding::kSparse}) {
    io::FaultyFileSystem files;
    const auto tables = some_tables();
    const Versions versions = save_chain(
        "/ck", tables, {{1, 2, holding, 3}, {2, 1, holding, 3}, {3, 3, holding, 2}}, &files);
    const Checkpoint checkpoint{"/ck", files, tables, small_matrices(), holding};
    for (const std::uint32_t seed : {11U, 12U}) {
      const auto one = checkpoint.load_with({1, 1}, seed, versions);
      EXPECT_EQ(one.differences, 0);
      for (const int threads : {2, 4}) {
        const auto several = checkpoint.load_with({threads, 1}, seed, versions);
        EXPECT_EQ(several.differences, 0) << "seed " << seed;
        EXPECT_EQ(several.hash, one.hash) << "seed " << seed;
      }
    }
    const ReadThreads without_order{4, 1, ReadRule::kOrder};
    EXPECT_GT(checkpoint.load_with(without_order, 11, versions).differences, 0)
        << "rows of an earlier save replace later ones";
  }
}

TEST(LoadByThreads, TombstonesRemoveWhatIsEarlier) {
  const TemporaryDirectory directory;
  const Versions versions = save_tombstones(directory.path());
  const Checkpoint checkpoint{
      directory.path(), io::real_file_system(), {kSmall}, {}, Holding::kSparse};
  for (const int threads : {1, 4}) {
    const auto outcome = checkpoint.load_with({threads, 1}, 1, versions);
    EXPECT_EQ(outcome.differences, 0) << threads;
  }
}

/// Blocks of several chunks, which ranks cut otherwise by rows and columns.
TEST(LoadByThreads, ChunksHaveTheirPlaces) {
  io::FaultyFileSystem files;
  const std::vector<Matrix> matrices = {{"dense.a", "weight", DType::kFloat32, 45'000, 100},
                                        {"dense.b", "weight", DType::kFloat32, 9, 9}};
  SaveOptions options = save_options("/ck", 1);
  options.files = &files;
  save_all(options, matrices, 1, 2);
  const Checkpoint checkpoint{"/ck", files, {}, matrices};
  for (const std::uint32_t seed : {1U, 2U}) {
    const auto one = checkpoint.load_with({1, 1}, seed, {});
    const auto several = checkpoint.load_with({3, 1}, seed, {});
    EXPECT_EQ(one.differences + several.differences, 0) << seed;
    EXPECT_EQ(several.hash, one.hash) << seed;
  }
}

/// Bytes that have changed in two places at least are the same message, whoever reads them.
TEST(LoadByThreads, DamageIsTheMessageOfOneThread) {
  io::FaultyFileSystem files;
  const auto tables = some_tables();
  save_chain("/ck", tables, {{1, 2, Holding::kDense, 3}}, &files);
  const Checkpoint checkpoint{"/ck", files, tables, small_matrices()};
  const auto message = [&](int threads) {
    return checkpoint_error([&] { static_cast<void>(checkpoint.load_with({threads, 1}, 11, {})); });
  };
  std::set<std::string> messages;
  for (const std::string& name : files.list("/ck/rows").names) {
    const std::string path = "/ck/rows/" + name;
    std::string good;
    ASSERT_FALSE(io::read_file(files, path, 1 << 30, good));
    std::string bad = good;
    for (std::size_t place = good.size() / 3; place < good.size(); place += good.size() / 3) {
      bad[place] = static_cast<char>(bad[place] ^ 4);
    }
    ASSERT_FALSE(io::write_file(files, path, bad));
    const std::string expected = message(1);
    EXPECT_EQ(message(4), expected);
    messages.insert(expected);
    // A later segment that is missing is met first, and is not the first in the order.
    const std::string last = files.list("/ck/rows").names.back();
    if (last != name) {
      ASSERT_FALSE(files.rename("/ck/rows/" + last, "/ck/away"));
      EXPECT_EQ(message(4), message(1));
      ASSERT_FALSE(files.rename("/ck/away", "/ck/rows/" + last));
    }
    ASSERT_FALSE(io::write_file(files, path, good));
  }
  EXPECT_GT(messages.size(), 2U);
  EXPECT_EQ(message(4), "NO ERROR");
}

/// Whichever read fails, the load ends with its error.
TEST(LoadByThreads, EveryReadFailsInTurn) {
  io::FaultyFileSystem files;
  const auto tables = small_tables();
  save_chain("/ck", tables, {{1, 2, Holding::kDense, 2}}, &files);
  const Checkpoint checkpoint{"/ck", files, tables, small_matrices()};
  bool has_failed = true;
  int failures = 0;
  for (int n = 0; has_failed; ++n) {
    std::atomic<int> reads = 0;
    std::atomic<bool> failed = false;
    files.set_hook([&](const io::Call& call) {
      if (call.kind == io::CallKind::kRead && reads++ == n) {
        failed = true;
        return io::Verdict{.what = io::Verdict::What::kFail, .error = EIO};
      }
      return io::Verdict{};
    });
    const std::string message =
        checkpoint_error([&] { static_cast<void>(checkpoint.load_with({4, 1}, 11, {})); });
    has_failed = failed;
    failures += has_failed ? 1 : 0;
    EXPECT_TRUE(has_failed ? says(message, {"cannot read", "cannot open"})
                           : says(message, {"NO ERROR"}));
  }
  files.set_hook({});
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace weft::checkpoint
