// The same checkpoint in another number of files: what it loads, whose child it is, and what is
// there when anything goes wrong.
#include "weft/checkpoint/reshard.h"

#include <optional>
#include <random>

#include <fmt/format.h>

#include "tests/checkpoint/tool_state.h"
#include "tests/io/faulty_file_system.h"
#include "weft/checkpoint/diff.h"
#include "weft/checkpoint/state_hash.h"

namespace weft::checkpoint {
namespace {

using io::CallKind;
using io::FaultyFileSystem;
using io::Survival;
using io::Verdict;
using What = io::Verdict::What;

std::string cut(const std::string& from, const std::string& to, std::int64_t files) {
  return reshard(CheckpointReader(from), {.directory = to, .files = files, .weft_version = "9.9"});
}

StateHash loaded_hash(const std::string& path, std::uint32_t seed, int ranks) {
  StateHash out;
  comm::run_local(ranks, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryState state = make_state(small_matrices(), seed, ranks, world.rank());
    StateSink* sink = &state;
    load(world, ctx, {path}, std::span(&sink, 1));
    const StateSource* source = &state;
    const StateHash hash = hash_state(world, ctx, std::span(&source, 1));
    if (world.rank() == 0) {
      out = hash;
    }
  });
  return out;
}

TEST(Reshard, AnyNumberOfFilesLoadsTheSame) {
  std::uint32_t seed = 40;
  for (const std::int64_t files : {1, 2, 3, 7, 40, 150}) {
    const TemporaryDirectory one;
    const TemporaryDirectory other;
    const int ranks = 1 + static_cast<int>(files % 5);
    save_all(save_options(one.path(), 10), small_matrices(), ++seed, ranks);
    const std::string directory = cut(one.path(), other.path(), files);
    EXPECT_EQ(directory, other.path() + "/step-00000010");
    EXPECT_EQ(find_checkpoint(other.path()), directory);
    const Manifest manifest = read_manifest(directory);
    EXPECT_EQ(std::ssize(manifest.files), files);
    for (const StoredItem& item : manifest.items) {
      EXPECT_EQ(std::ssize(item.blocks), std::min(files, item.rows));
    }
    EXPECT_EQ(load_all({other.path()}, small_matrices(), ++seed, 3), 0);
    EXPECT_EQ(loaded_hash(one.path(), seed, 2), loaded_hash(other.path(), seed + 1, 3));
    EXPECT_TRUE(compare(CheckpointReader(one.path()), CheckpointReader(other.path())).is_equal());
    const Verified verified = CheckpointReader(other.path()).verify();
    EXPECT_TRUE(verified.strangers.empty());
    EXPECT_EQ(read_blob(other.path(), "vocabularies"), std::string("a\0b\n", 4));
  }
}

TEST(Reshard, ManyChunks) {
  const std::vector<Matrix> matrices = {{"tables.big", "weight", DType::kFloat32, 5001, 1000},
                                        {"tables.wide", "weight", DType::kUInt8, 2, 9 << 20}};
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_all(save_options(one.path(), 10), matrices, 8, 2);
  cut(one.path(), other.path(), 2);
  const Manifest manifest = read_manifest(other.path());
  EXPECT_EQ(manifest.items[0].blocks[0].checksums.size(), 2U);
  EXPECT_EQ(manifest.items[0].blocks[0].chunk_rows, kChunkBytes / 4000);
  EXPECT_EQ(load_all({other.path()}, matrices, 4, 1), 0);
}

TEST(Reshard, IsAChildOfTheSameJob) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_all(save_options(one.path(), 10), small_matrices(), 1, 3);
  save_all(save_options(one.path(), 20), small_matrices(), 2, 3);
  const CheckpointReader from(one.path());
  cut(one.path(), other.path(), 4);
  const CheckpointReader to(other.path());
  Metadata expected = from.manifest().metadata;
  expected.weft_version = "9.9";
  expected.lineage.save_number = 3;
  expected.lineage.parent_name = "step-00000020";
  expected.lineage.parent_id = from.id();
  EXPECT_EQ(to.manifest().metadata, expected);
  // A job goes on from it in the parent's folder, and its line has all that were there.
  Folder folder({.directory = one.path()});
  folder.resume_job(other.path());
  SaveOptions options = save_options(one.path(), 30);
  options.folder = &folder;
  options.keep = 2;
  save_all(options, small_matrices(), 3, 2);
  EXPECT_EQ(list_checkpoints(one.path()),
            (std::vector<std::string>{one.path() + "/step-00000010", one.path() + "/step-00000020",
                                      one.path() + "/step-00000030"}))
      << "the line is cut where the new files lie elsewhere, and nothing of it is left behind";
  EXPECT_EQ(find_checkpoint(one.path()), one.path() + "/step-00000030");
}

/// In a folder of its own the job goes on as anywhere, and keeps as many as it is told.
TEST(Reshard, AJobGoesOnInItsFolder) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_all(save_options(one.path(), 10), small_matrices(), 1, 3);
  cut(one.path(), other.path() + "/new/folder", 4);
  for (const std::int64_t step : {20, 30}) {
    SaveOptions options = save_options(other.path() + "/new/folder", step);
    options.keep = 2;
    save_all(options, small_matrices(), 1, 2);
  }
  EXPECT_EQ(list_checkpoints(other.path() + "/new/folder"),
            (std::vector<std::string>{other.path() + "/new/folder/step-00000020",
                                      other.path() + "/new/folder/step-00000030"}));
  EXPECT_EQ(read_manifest(other.path() + "/new/folder").metadata.lineage.job_id,
            read_manifest(one.path()).metadata.lineage.job_id);
}

TEST(Reshard, EarlierVersionsBeginAJob) {
  for (const int version : {1, 2}) {
    const TemporaryDirectory other;
    cut(earlier_checkpoint(version), other.path(), 3);
    const CheckpointReader to(other.path());
    EXPECT_EQ(to.format_version(), 4);
    EXPECT_NE(to.manifest().metadata.lineage.job_id, 0U);
    EXPECT_EQ(to.manifest().metadata.lineage.save_number, 1);
    EXPECT_EQ(to.manifest().metadata.lineage.parent_name, fmt::format("version-{}", version));
    EXPECT_TRUE(compare(CheckpointReader(earlier_checkpoint(version)), to).is_equal());
  }
}

/// The code and message of the Error that `action` throws.
template <typename Action>
std::string any_error(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return "NO ERROR";
}

TEST(Reshard, NothingIsOverwritten) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_all(save_options(one.path(), 10), small_matrices(), 1, 3);
  EXPECT_TRUE(says(any_error([&] { cut(one.path(), one.path(), 2); }),
                   {"usage: '" + one.path() + "' is not empty"}));
  set_file_bytes(other.path() + "/file", "x");
  EXPECT_TRUE(says(any_error([&] { cut(one.path(), other.path(), 2); }), {"it has 'file'"}));
  EXPECT_TRUE(says(any_error([&] { cut(one.path(), other.path() + "/file", 2); }),
                   {"usage: '" + other.path() + "/file' is not a folder"}));
  EXPECT_TRUE(says(any_error([&] { cut(one.path(), other.path() + "/new", 0); }),
                   {"usage: a checkpoint in 0 files"}));
  EXPECT_EQ(file_bytes(other.path() + "/file"), "x");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(other.path()), {}), 1);
}

TEST(Reshard, DamageLeavesNothing) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_all(save_options(one.path(), 10), small_matrices(), 1, 3);
  const std::string directory = one.path() + "/step-00000010";
  int damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string path = entry.path().string();
    const std::string good = file_bytes(path);
    if (path.ends_with("manifest.json") || good.empty()) {
      continue;
    }
    std::string bad = good;
    bad[bad.size() / 2] ^= 1;
    set_file_bytes(path, bad);
    EXPECT_TRUE(says(any_error([&] { cut(one.path(), other.path() + "/new", 4); }),
                     {"checkpoint: '" + path}));
    EXPECT_TRUE(std::filesystem::is_empty(other.path()));
    set_file_bytes(path, good);
    ++damaged;
  }
  EXPECT_EQ(damaged, 4);
}

/// A small checkpoint on a disk that fails and forgets, and its cut.
class ReshardFaults : public testing::Test {
 protected:
  static constexpr const char* kFrom = "/run/ck";
  static constexpr const char* kTo = "/run/cut";

  static std::vector<Matrix> matrices() {
    return {{"tables.a", "weight", DType::kFloat32, 5, 6},
            {"dense.0", "sum", DType::kFloat64, 2, 2}};
  }

  static void begin(FaultyFileSystem& files) {
    SaveOptions options = save_options(kFrom, 10);
    options.files = &files;
    save_all(options, matrices(), 1, 1);
  }

  static bool try_cut(FaultyFileSystem& files) {
    try {
      reshard(CheckpointReader(kFrom, {.files = &files}),
              {.directory = kTo, .files = 3, .weft_version = "1", .system = &files});
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCheckpoint) << error.what();
      return false;
    }
  }

  static std::vector<io::Call> calls() {
    FaultyFileSystem files;
    begin(files);
    files.set_hook([](const io::Call&) { return Verdict{}; });
    EXPECT_TRUE(try_cut(files));
    return files.calls();
  }

  /// What is wrong, where the cut had returned (`done`) or not: empty if nothing.
  static std::string find_fault_in(FaultyFileSystem& files, bool done) {
    try {
      const auto loads = [&](const std::string& path) {
        LoadOptions options{.path = path};
        options.files = &files;
        const CheckpointReader reader(path, {.files = &files});
        static_cast<void>(reader.verify());
        return load_all(options, matrices(), 2, 1) == 0 &&
               read_blob(path, "vocabularies", files) == std::string("a\0b\n", 4);
      };
      if (!loads(kFrom)) {
        return "the parent has changed";
      }
      const bool is_there = !list_checkpoints(kTo, files).empty();
      if (done && !is_there) {
        return "it has returned, and is not there";
      }
      if (!is_there && !try_cut(files)) {
        return "a second call fails";
      }
      return loads(kTo) ? "" : "it has other bytes";
    } catch (const Error& error) {
      return error.what();
    }
  }
};

TEST_F(ReshardFaults, EndedAnywhereItIsWholeOrNotThere) {
  const auto count = std::ssize(calls());
  EXPECT_GT(count, 50);
  for (std::int64_t at = 0; at <= count; ++at) {
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      FaultyFileSystem files;
      begin(files);
      files.set_hook([at](const io::Call& call) {
        return call.index < at ? Verdict{} : Verdict{What::kFail, EIO};
      });
      const bool done = try_cut(files);
      files.set_hook({});
      files.crash(seed == 0   ? Survival::kNothing
                  : seed == 1 ? Survival::kAll
                              : Survival::kSome,
                  seed + static_cast<std::uint32_t>(at) * 10);
      EXPECT_EQ(find_fault_in(files, done), "") << "ended at call " << at << ", seed " << seed;
    }
  }
}

TEST_F(ReshardFaults, AnyCallMayFailOnce) {
  const auto all = calls();
  int refused = 0;
  for (const io::Call& failing : all) {
    FaultyFileSystem files;
    begin(files);
    files.set_hook([&](const io::Call& call) {
      return call.index == failing.index ? Verdict{What::kFail, ENOSPC} : Verdict{};
    });
    const bool done = try_cut(files);
    refused += done ? 0 : 1;
    files.set_hook({});
    if (!done) {
      EXPECT_TRUE(list_checkpoints(kTo, files).empty());
      for (const std::string& name : files.list(kTo).names) {
        EXPECT_TRUE(name == "lock" || name.ends_with(".tmp") || name == "next") << name;
      }
    }
    EXPECT_EQ(find_fault_in(files, done), "") << "call " << failing.index << " on " << failing.path;
  }
  EXPECT_GT(refused, 40);
}

/// Negative control: the crashes find every sync of its own that is left out.
TEST_F(ReshardFaults, WithoutAnyOneSyncSomethingIsLost) {
  int syncs = 0;
  for (const io::Call& call : calls()) {
    const bool is_sync = call.kind == CallKind::kSync || call.kind == CallKind::kSyncDirectory;
    const bool is_its_own =
        call.path.find(".tmp") != std::string::npos && !call.path.ends_with("blob-empty");
    if (!is_sync || !is_its_own) {
      continue;
    }
    ++syncs;
    FaultyFileSystem files;
    begin(files);
    files.set_hook([&](const io::Call& now) {
      return now.index == call.index ? Verdict{What::kIgnore} : Verdict{};
    });
    const bool done = try_cut(files);
    EXPECT_TRUE(done);
    files.set_hook({});
    files.crash(Survival::kNothing);
    EXPECT_NE(find_fault_in(files, done), "") << "without the sync of " << call.path;
  }
  EXPECT_EQ(syncs, 6) << "three files, a blob, the manifest, their directory";
}

}  // namespace
}  // namespace weft::checkpoint
