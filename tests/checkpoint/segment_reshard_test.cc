// Checkpoints whose tables are in segments, cut anew: chains become one full set.
#include <atomic>

#include "tests/checkpoint/segment_chain.h"
#include "tests/io/faulty_file_system.h"
#include "weft/checkpoint/diff.h"
#include "weft/checkpoint/reshard.h"

namespace weft::checkpoint {
namespace {

TEST(SegmentReshard, AChainIsOneFullSet) {
  std::uint32_t seed = 700;
  const std::vector<Table> tables = small_tables();
  for (const Holding holding : {Holding::kSparse, Holding::kDense}) {
    for (const std::int64_t files : {1, 2, 5, 70}) {
      io::FaultyFileSystem system;
      const Versions versions =
          save_chain("/ck", tables, {{++seed, 3, holding, 2}, {++seed, 2, holding, 1}}, &system);
      const CheckpointReader from("/ck", {.files = &system});
      reshard(from, {.directory = "/cut", .files = files, .weft_version = "9", .system = &system});
      const CheckpointReader cut("/cut", {.files = &system});
      ASSERT_EQ(cut.manifest().segments.size(), 1U);
      EXPECT_LE(std::ssize(cut.manifest().segments[0].files), files);
      EXPECT_EQ(wrong_items(cut, tables, versions, holding == Holding::kSparse), 0);
      EXPECT_TRUE(cut.verify().strangers.empty());
      EXPECT_TRUE(compare(from, cut).is_equal());
      std::atomic<std::int64_t> wrong = 0;
      comm::run_local(3, {}, [&](comm::Communicator& world) {
        Context ctx;
        const RankTables own = make_tables(tables, 77, 3, world.rank(), holding);
        MemoryState dense = make_state(small_matrices(), 77, 3, world.rank());
        auto sinks = sinks_of(own);
        sinks.push_back(&dense);
        load(world, ctx, {.path = "/cut", .left_out = {}, .files = &system}, sinks);
        wrong += differences(own, versions) + dense.differences();
      });
      EXPECT_EQ(wrong, 0);
    }
  }
}

/// A job that goes on from it adds increments to the new set.
TEST(SegmentReshard, AJobGoesOnFromAReshard) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_chain(one.path(), {kSmall}, {{1, 2, Holding::kSparse, 2}});
  reshard(CheckpointReader(one.path()),
          {.directory = other.path(), .files = 3, .weft_version = "9"});
  Folder folder({.directory = other.path()});
  folder.resume_job(other.path());
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryRows rows(kSmall, {.rows = {0, 100}, .cols = {0, 8}, .sparse = true});
    Increments increments{.rows = {&rows}};
    MemoryState dense = make_state(small_matrices(), 5, 1, 0);
    const std::vector<StateSink*> sinks{&rows, &dense};
    load(world, ctx, {.path = other.path(), .left_out = {}, .increments = &increments}, sinks);
    rows.update(50, 9);
    SaveOptions options = save_options(other.path(), 9);
    options.folder = &folder;
    options.increments = &increments;
    options.increment_share = 100;
    const std::vector<const StateSource*> sources{&rows, &dense};
    save(world, ctx, options, sources);
  });
  const CheckpointReader last(other.path());
  ASSERT_EQ(last.manifest().segments.size(), 2U);
  EXPECT_EQ(last.manifest().segments[1].rows, 1);
  EXPECT_EQ(checkpoint_error([&] { static_cast<void>(last.verify()); }), "NO ERROR");
}

/// A small chain on a disk that fails and forgets, and its cut.
class SegmentReshardFaults : public testing::Test {
 protected:
  static void begin(io::FaultyFileSystem& files) {
    save_chain("/ck", {{"rows.a", 9, 8}}, {{1, 1, Holding::kDense, 2}}, &files);
  }

  static bool try_cut(io::FaultyFileSystem& files) {
    try {
      reshard(CheckpointReader("/ck", {.files = &files}),
              {.directory = "/cut", .files = 2, .weft_version = "1", .system = &files});
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCheckpoint) << error.what();
      return false;
    }
  }

  static std::vector<io::Call> calls() {
    io::FaultyFileSystem files;
    begin(files);
    files.set_hook([](const io::Call&) { return io::Verdict{}; });
    EXPECT_TRUE(try_cut(files));
    return files.calls();
  }

  /// Empty where the cut is whole, or is not there and a second one succeeds.
  static std::string find_fault_in(io::FaultyFileSystem& files, bool done) {
    try {
      const bool is_there = !list_checkpoints("/cut", files).empty();
      if (done && !is_there) {
        return "it has returned, and is not there";
      }
      if (!is_there && !try_cut(files)) {
        return "a second call fails";
      }
      const CheckpointReader from("/ck", {.files = &files});
      const CheckpointReader cut("/cut", {.files = &files});
      if (const auto strangers = cut.verify().strangers; !strangers.empty()) {
        return "there is " + strangers.front();
      }
      if (files.list("/cut/rows").names.size() != 2) {
        return "segments are left";
      }
      return compare(from, cut).is_equal() ? "" : "it has other bytes";
    } catch (const Error& error) {
      return error.what();
    }
  }
};

TEST_F(SegmentReshardFaults, AReshardEndedAnywhereIsWholeOrNotThere) {
  const std::int64_t count = std::ssize(calls());
  for (std::int64_t at = 0; at <= count; at += 1) {
    io::FaultyFileSystem files;
    begin(files);
    files.set_hook([at](const io::Call& call) {
      return call.index < at ? io::Verdict{} : io::Verdict{io::Verdict::What::kFail, EIO};
    });
    const bool done = try_cut(files);
    files.set_hook({});
    files.crash(at % 3 == 0   ? io::Survival::kNothing
                : at % 3 == 1 ? io::Survival::kAll
                              : io::Survival::kSome,
                static_cast<std::uint32_t>(at));
    EXPECT_EQ(find_fault_in(files, done), "") << "ended at call " << at;
  }
}

/// Negative control: the crashes find a sync of segments or their names that is left out.
TEST_F(SegmentReshardFaults, WithoutAnyOneSyncOfSegmentsSomethingIsLost) {
  int syncs = 0;
  for (const io::Call& call : calls()) {
    const bool is_sync =
        call.kind == io::CallKind::kSync || call.kind == io::CallKind::kSyncDirectory;
    if (!is_sync || call.path.find("/cut/rows") == std::string::npos) {
      continue;
    }
    ++syncs;
    io::FaultyFileSystem files;
    begin(files);
    files.set_hook([&](const io::Call& now) {
      return now.index == call.index ? io::Verdict{io::Verdict::What::kIgnore} : io::Verdict{};
    });
    EXPECT_TRUE(try_cut(files));
    files.set_hook({});
    files.crash(io::Survival::kNothing);
    // Of a segment's two syncs the second has what the first had not.
    const bool is_first_of_two = call.kind == io::CallKind::kSync && syncs % 2 == 1;
    if (!is_first_of_two) {
      EXPECT_NE(find_fault_in(files, true), "") << "without the sync of " << call.path;
    }
  }
  EXPECT_EQ(syncs, 5) << "two segments, twice each, and their directory";
}

}  // namespace
}  // namespace weft::checkpoint
