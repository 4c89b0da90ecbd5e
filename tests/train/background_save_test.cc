// Checkpoints that are written while steps go on: each has the state at its step, and training has
// the bits that it has without them.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/io/file_system.h"

namespace weft::train {
namespace {

/// The real files, in which segments take their time to begin, or cannot be made: so long steps go
/// on and change rows that have not been written.
class LateFiles final : public io::FileSystem {
 public:
  explicit LateFiles(std::chrono::milliseconds late) : late_(late) {}

  /// How many of the next segments cannot be made.
  std::atomic<int> failures = 0;
  /// Files on two disks are not linked.
  std::atomic<bool> refuses_links = false;

  io::Opened open(const std::string& path, io::OpenMode mode) override {
    if (path.ends_with(".rows") && mode == io::OpenMode::kExclusive) {
      std::this_thread::sleep_for(late_);
      if (failures.fetch_sub(1) > 0) {
        return {nullptr, std::make_error_code(std::errc::no_space_on_device)};
      }
    }
    return real_.open(path, mode);
  }

  std::error_code sync_directory(const std::string& path) override {
    return real_.sync_directory(path);
  }

  std::error_code rename(const std::string& from, const std::string& to) override {
    return real_.rename(from, to);
  }

  std::error_code exchange(const std::string& a, const std::string& b) override {
    return real_.exchange(a, b);
  }

  std::error_code link(const std::string& from, const std::string& to) override {
    return refuses_links && to.ends_with(".rows") ? io::error_of(EXDEV) : real_.link(from, to);
  }

  std::error_code remove(const std::string& path) override { return real_.remove(path); }

  std::error_code make_directory(const std::string& path) override {
    return real_.make_directory(path);
  }

  io::Listed list(const std::string& path) override { return real_.list(path); }

  io::Status status(const std::string& path) override { return real_.status(path); }

  io::Locked lock(const std::string& path) override { return real_.lock(path); }

 private:
  io::FileSystem& real_ = io::real_file_system();
  const std::chrono::milliseconds late_;
};

spec::Config job_of(const std::string& tier,
                    const std::string& schedule,
                    const std::string& sharding,
                    const std::string& folder) {
  return make_job(joined(joined(all_tables("memory.tier", tier), all_tables("sharding", sharding)),
                         {"tiers.directories=[" + folder + "/rows]", "tiers.cache_bytes=600000",
                          "tiers.segment_bytes=65536", "pipeline.schedule=" + schedule,
                          "train.epochs=2", "sparse_optimizer.type=adam"}),
                  1);
}

std::vector<std::string> saved_in(const std::string& folder) {
  return checkpoint::list_checkpoints(folder);
}

using Case = std::tuple<const char*, const char*, const char*>;

class BackgroundSaves : public ::testing::TestWithParam<Case> {};

TEST_P(BackgroundSaves, HaveTheStateOfTheirStep) {
  const auto& [tier, schedule, sharding] = GetParam();
  const TemporaryFolder folder;
  const spec::Config config = job_of(tier, schedule, sharding, folder.path());
  const Summary expected = train_on(2, job_options(in_memory(config)));
  LateFiles files(std::chrono::milliseconds(30));
  JobOptions saving = job_options(config);
  saving.checkpoint_dir = folder.path() + "/ck";
  saving.checkpoint_every = 3;
  saving.checkpoint_background = true;
  saving.checkpoint_files = &files;
  std::string notes;
  saving.progress.on_note = [&](const std::string& note) { notes += note + "\n"; };
  const Summary got = train_on(2, saving);
  EXPECT_EQ(got.state_hash, expected.state_hash);
  EXPECT_EQ(got.weights_hash, expected.weights_hash);
  EXPECT_NE(notes.find("beside steps"), std::string::npos) << notes;
  const std::vector<std::string> saved = saved_in(saving.checkpoint_dir);
  ASSERT_GE(saved.size(), 4U);
  for (const std::string& path : saved) {
    JobOptions resumed = job_options(config);
    resumed.resume = path;
    const Summary again = train_on(2, resumed);
    EXPECT_EQ(again.state_hash, expected.state_hash) << path;
    EXPECT_EQ(again.lifetime_ne, expected.lifetime_ne) << path;
  }
}

INSTANTIATE_TEST_SUITE_P(Train,
                         BackgroundSaves,
                         ::testing::Values(Case("dense", "sync", "row_wise"),
                                           Case("dense", "nested", "column_wise"),
                                           Case("lazy", "prefetch", "table_wise"),
                                           Case("ssd", "sync", "row_wise"),
                                           Case("ssd", "nested", "column_wise")));

/// Of rows on disks whose files are linked, or copied where they cannot be; in every step, so that
/// small files are put together and rows move between saves.
TEST(LinkedCheckpoints, ResumeWithAnyMemoryWhenTheirStoresAreGone) {
  const std::vector<std::tuple<const char*, const char*, bool, bool>> cases = {
      {"sync", "row_wise", false, false},
      {"sync", "table_wise", false, true},
      {"prefetch", "column_wise", false, false},
      {"nested", "row_wise", true, false},
      {"dbp", "grid_shard", true, true}};
  int number = 0;
  for (const auto& [schedule, sharding, in_background, refuses] : cases) {
    const TemporaryFolder folder;
    const auto small_batches = [&](const char* tier, const char* with) {
      spec::Config config = job_of(tier, with, sharding, folder.path());
      config.batch_size = 24;
      config.train.steps = 24;
      for (spec::Table& table : config.tables) {
        table.memory.ways = 8;
        table.memory.cache_bytes = table.memory.tier == spec::MemoryTier::kSsd ? 24000 : 0;
      }
      return config;
    };
    const spec::Config config = small_batches("ssd", schedule);
    const Summary expected = train_on(2, job_options(in_memory(config)));
    LateFiles files(std::chrono::milliseconds(0));
    files.refuses_links = refuses;
    JobOptions saving = job_options(config);
    saving.checkpoint_dir = folder.path() + "/ck";
    saving.checkpoint_every = 1;
    saving.checkpoint_background = in_background;
    saving.checkpoint_files = &files;
    std::string notes;
    saving.progress.on_note = [&](const std::string& note) { notes += note + "\n"; };
    const Summary got = train_on(2, saving);
    EXPECT_EQ(got.state_hash, expected.state_hash) << number;
    EXPECT_GT(got.tiers.disks.rows_moved, 0) << "rows move between saves";
    EXPECT_NE(notes.find(refuses ? " copied, " : " files of rows linked, "), std::string::npos)
        << notes;
    EXPECT_EQ(notes.find(refuses ? " files of rows linked, " : " copied, "), std::string::npos)
        << notes;
    std::filesystem::remove_all(folder.path() + "/rows");
    const std::vector<std::string> saved = saved_in(saving.checkpoint_dir);
    ASSERT_GE(saved.size(), 10U);
    for (std::size_t i = static_cast<std::size_t>(number % 3); i < saved.size(); i += 5) {
      const char* const tier = std::vector{"dense", "lazy", "ssd"}[i / 5 % 3];
      JobOptions resumed = job_options(small_batches(tier, "sync"));
      resumed.resume = saved[i];
      const Summary again = train_on(1 + static_cast<int>(i) % 3, resumed);
      EXPECT_EQ(again.state_hash, expected.state_hash) << saved[i] << " with " << tier;
    }
    ++number;
  }
}

TEST(BackgroundSave, OneThatFailsIsAWarningAndTheNextHasAllRows) {
  Warnings warnings("checkpoint");
  const TemporaryFolder folder;
  const spec::Config config = job_of("lazy", "sync", "row_wise", folder.path());
  const Summary expected = train_on(2, job_options(in_memory(config)));
  LateFiles files(std::chrono::milliseconds(5));
  files.failures = 1;  // of one of the two ranks, at the first save
  JobOptions saving = job_options(config);
  saving.checkpoint_dir = folder.path() + "/ck";
  saving.checkpoint_every = 3;
  saving.checkpoint_background = true;
  saving.checkpoint_files = &files;
  const Summary got = train_on(2, saving);
  EXPECT_EQ(got.state_hash, expected.state_hash);
  EXPECT_EQ(got.lost.checkpoints, 1);
  EXPECT_EQ(warnings.take().size(), 1U);
  const std::vector<std::string> saved = saved_in(saving.checkpoint_dir);
  ASSERT_GE(saved.size(), 3U);
  EXPECT_TRUE(saved.front().ends_with("step-00000006")) << saved.front();
  EXPECT_EQ(checkpoint::read_manifest(saved[0]).segments.size(), 1U);
  EXPECT_EQ(checkpoint::read_manifest(saved[1]).segments.size(), 2U);
  for (const std::string& path : saved) {
    JobOptions resumed = job_options(config);
    resumed.resume = path;
    EXPECT_EQ(train_on(3, resumed).state_hash, expected.state_hash) << path;
  }
}

TEST(BackgroundSave, AveragedReplicasAreSavedBetweenSteps) {
  const TemporaryFolder folder;
  const spec::Config config = make_job(joined(mesh(2, "dense"), {"mesh.sync_every=2"}));
  const Summary expected = train_on(2, job_options(config));
  JobOptions saving = job_options(config);
  saving.checkpoint_dir = folder.path();
  saving.checkpoint_every = 4;
  saving.checkpoint_background = true;
  std::string notes;
  saving.progress.on_note = [&](const std::string& note) { notes += note + "\n"; };
  EXPECT_EQ(train_on(2, saving).state_hash, expected.state_hash);
  EXPECT_EQ(notes.find("beside steps"), std::string::npos) << notes;
}

}  // namespace
}  // namespace weft::train
