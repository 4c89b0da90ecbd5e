// The same with rows in segments that checkpoints share: full saves, increments, and removals.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/crash_kit.h"
#include "tests/checkpoint/memory_rows.h"
#include "weft/checkpoint/background_save.h"

namespace weft::checkpoint {
namespace {

std::vector<Table> tables_to_crash() {
  return {{"rows.a", 12, 4, DType::kFloat32, RowExtra::kOfRow}, {"rows.b", 3, 5}};
}

/// Tables that change with every save. The configuration says which saves' changes they have.
class RowJob final : public CrashJob {
 public:
  /// All rows are saved again by saves of numbers that divide by `full_every`. In the background,
  /// rows change while they are written. In files, some rows lie in those of a store.
  explicit RowJob(int full_every, bool in_background = false, bool in_files = false)
      : full_every_(full_every), in_background_(in_background), in_files_(in_files) {}

  void resume(FaultyFileSystem& files, const std::string& directory) override {
    begin_store(files);
    load_here(files, directory, &increments_);
  }

  void save(SaveOptions options, int number) override {
    begin_store(*options.files);
    change(number);
    if (store_ != nullptr) {
      write_back(2);
      store_->clean();
    }
    options.metadata.config_yaml = line_;
    options.increments = &increments_;
    options.increment_share = number % full_every_ == 0 ? 0.0 : 100.0;
    comm::run_local(1, {}, [&](comm::Communicator& world) {
      Context ctx;
      MemoryState dense = make_state(few_matrices(), 1, 1, 0);
      dense.fill();
      auto sources = sources_of(tables_);
      sources.push_back(&dense);
      if (!in_background_) {
        checkpoint::save(world, ctx, options, sources);
        return;
      }
      const std::unique_ptr<Device> device = make_device({});
      BackgroundSave one(world, *device, options, sources);
      change(1000 + number);
      write_back(3);
      one.finish();
    });
  }

  std::string fault_of(FaultyFileSystem& files, const std::string& directory) override {
    load_here(files, directory, nullptr);
    return differences(tables_, versions_) == 0 ? "" : "it has other rows";
  }

 private:
  static std::vector<Table> all() { return tables_to_crash(); }

  void begin_store(io::FileSystem& files) {
    if (in_files_ && store_ == nullptr) {
      store_ = std::make_unique<FileStore>(files, "/run/store");
      use_store(tables_, *store_);
    }
  }

  void write_back(std::int64_t share) {
    for (const auto& table : tables_) {
      table->write_back([share](std::int64_t row) { return row % share == 0; });
    }
  }

  void change(int number) {
    const Versions before = versions_;
    draw_updates(all(), static_cast<std::uint32_t>(number), 40, versions_);
    apply(tables_, before, versions_);
    line_ = fmt::format("{} {}", number, line_);
  }

  void load_here(FaultyFileSystem& files, const std::string& directory, Increments* increments) {
    LoadOptions options{.path = directory};
    options.files = &files;
    options.increments = increments;
    comm::run_local(1, {}, [&](comm::Communicator& world) {
      Context ctx;
      MemoryState dense = make_state(few_matrices(), 2, 1, 0);
      auto sinks = sinks_of(tables_);
      sinks.push_back(&dense);
      line_ = load(world, ctx, options, sinks).metadata.config_yaml;
      EXPECT_EQ(dense.differences(), 0);
    });
    std::istringstream numbers(line_);
    for (std::uint32_t number = 0; numbers >> number;) {
      draw_updates(all(), number, 40, versions_);
    }
  }

  int full_every_;
  bool in_background_;
  bool in_files_;
  std::unique_ptr<FileStore> store_;
  RankTables tables_ = make_tables(all(), 1, 1, 0, in_files_ ? Holding::kSparse : Holding::kDrawn);
  Increments increments_{.rows = rows_of(tables_)};
  Versions versions_;
  std::string line_;
};

/// WEFT_EVERY_FAULT: all calls, and not every n-th (minutes, by hand).
std::int64_t every(std::int64_t n) {
  return std::getenv("WEFT_EVERY_FAULT") != nullptr ? 1 : n;
}

MakeJob row_job(int full_every, bool in_background = false) {
  return [=] { return std::make_unique<RowJob>(full_every, in_background); };
}

/// Rows of it are linked from the files of a store.
MakeJob linking_job(int full_every, bool in_background = false) {
  return [=] { return std::make_unique<RowJob>(full_every, in_background, true); };
}

/// Of each of both kinds of saves and removals: segments of the chain stay, or the old chain goes.
TEST(RowCrash, BetweenAnyTwoCallsTheNewestCompleteCheckpointIsFound) {
  std::int64_t points = 0;  // where something ends, and what survives of each
  for (const bool in_background : {false, true}) {
    for (const auto& [full_every, keep] :
         std::vector<std::pair<int, std::int64_t>>{{100, 1}, {100, 2}, {4, 1}, {4, 2}}) {
      if (in_background && keep == 1) {
        continue;  // what is removed is the same
      }
      const MakeJob make = row_job(full_every, in_background);
      const auto count = static_cast<std::int64_t>(calls_of(make, keep).size());
      EXPECT_GT(count, 100);
      points += (count + every(5)) / every(5) * 3;
      EXPECT_EQ(faults_of_kills(
                    {.make = make, .end = count + 1, .stride = every(5), .keep = keep, .seeds = 1}),
                std::vector<std::string>{});
    }
  }
  RecordProperty("points", static_cast<int>(points));
  std::fprintf(stderr, "%d points\n", static_cast<int>(points));
}

TEST(RowCrash, OfSavesThatLinkFiles) {
  for (const auto& [full_every, in_background] :
       std::vector<std::pair<int, bool>>{{100, false}, {4, false}, {100, true}}) {
    const MakeJob make = linking_job(full_every, in_background);
    const auto calls = calls_of(make, 2);
    EXPECT_GT(std::count_if(calls.begin(), calls.end(),
                            [](const Call& call) { return call.kind == CallKind::kLink; }),
              1);
    const auto count = static_cast<std::int64_t>(calls.size());
    EXPECT_EQ(faults_of_kills({.make = make, .end = count + 1, .stride = every(13), .seeds = 1}),
              std::vector<std::string>{});
  }
}

/// Negative control: each last sync of a file of the store, whose bytes the checkpoint has.
TEST(RowCrash, WithoutItsSyncALinkedFileIsLost) {
  const MakeJob make = linking_job(100);
  std::map<std::string, std::int64_t> last;
  for (const Call& call : calls_of(make)) {
    if (call.kind == CallKind::kSync && call.path.starts_with("/run/store/")) {
      last[call.path] = call.index;
    }
  }
  EXPECT_GE(last.size(), 3U);
  for (const auto& [path, index] : last) {
    FaultyFileSystem files;
    begin_job(files, make);
    files.set_hook([left_out = index](const Call& call) {
      return call.index == left_out ? Verdict{What::kIgnore} : Verdict{};
    });
    const int done = go_back_and_on(files, make);
    files.set_hook({});
    files.crash(Survival::kNothing);
    EXPECT_NE(find_fault(files, make, done), "") << path;
  }
}

/// Negative control.
TEST(RowCrash, WithoutAnyOneSyncSomethingIsLost) {
  EXPECT_EQ(leave_out_every_sync(row_job(100), fmt::format("{}/rows", kFolder)), 2)
      << "a segment, and the directory of segments";
}

/// Negative control: segments that go before the checkpoints that name them.
TEST(RowCrash, RemovalOfSegmentsBeforeTheirCheckpointsIsFound) {
  const MakeJob make = row_job(4);
  const auto calls = calls_of(make, 1);
  std::int64_t first = 0;
  for (const Call& call : calls) {
    if (first == 0 && call.kind == CallKind::kRename && call.path.ends_with("step-00000010")) {
      first = call.index;
    }
  }
  ASSERT_GT(first, 0);
  FaultyFileSystem files;
  begin_job(files, make);
  const io::Hook killed = killed_at(first);
  files.set_hook([&](const Call& call) {
    if (call.index == first) {
      const std::string rows = fmt::format("{}/rows", kFolder);
      for (const std::string& name : files.list(rows).names) {
        if (name.find("-1-") != std::string::npos) {
          EXPECT_FALSE(files.remove(rows + "/" + name));
        }
      }
    }
    return killed(call);
  });
  const int done = go_back_and_on(files, make, 1);
  files.set_hook({});
  files.crash(Survival::kAll);
  EXPECT_NE(find_fault(files, make, done).find("it is missing"), std::string::npos);
}

TEST(RowFaults, EveryCallFailsInTurnAndTheJobGoesOn) {
  EXPECT_GT(fail_every_call(row_job(100), every(2)), 20);
  EXPECT_GT(fail_every_call(row_job(4), every(3)), 20);
  EXPECT_GT(fail_every_call(row_job(100, true), every(3)), 20);
}

TEST(RowFaults, EveryCallOfSavesThatLinkFilesFailsInTurn) {
  EXPECT_GT(fail_every_call(linking_job(100), every(7)), 10);
  EXPECT_GT(fail_every_call(linking_job(4), every(7)), 10);
  EXPECT_GT(fail_every_call(linking_job(100, true), every(7)), 10);
}

/// A file that cannot be linked is copied, and what a copy needs may fail as well.
TEST(RowCrash, OfSavesThatCopyFilesWhereLinksAreRefused) {
  for (const bool in_background : {false, true}) {
    const MakeJob make = linking_job(100, in_background);
    const auto refuse = [](const Call& call) {
      return call.kind == CallKind::kLink ? Verdict{What::kFail, EXDEV} : Verdict{};
    };
    FaultyFileSystem files;
    begin_job(files, make);
    files.set_hook(refuse);
    EXPECT_EQ(go_back_and_on(files, make), 4);
    const auto count = static_cast<std::int64_t>(files.calls().size());
    files.set_hook({});
    EXPECT_EQ(find_fault(files, make, 4), "");
    EXPECT_EQ(faults_of_kills(
                  {.make = make, .end = count + 1, .stride = every(13), .seeds = 1, .too = refuse}),
              std::vector<std::string>{});
  }
}

TEST(RowFaults, ASegmentThatCannotBeRemovedEndsNothing) {
  const MakeJob make = row_job(4);
  FaultyFileSystem files;
  begin_job(files, make);
  files.set_hook([](const Call& call) {
    const bool removes = call.kind == CallKind::kRemove && call.path.ends_with(".rows");
    return removes ? Verdict{What::kFail, EACCES} : Verdict{};
  });
  EXPECT_EQ(go_back_and_on(files, make, 1), 4);
  files.set_hook({});
  EXPECT_EQ(files.list(fmt::format("{}/rows", kFolder)).names.size(), 4U);
  EXPECT_EQ(find_fault(files, make, 4), "") << "the next save tries again";
}

}  // namespace
}  // namespace weft::checkpoint
