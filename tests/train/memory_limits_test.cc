// Limits of memory, read from made-up folders of proc and cgroups, and what a job does about them.
#include "weft/train/memory_limits.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/train/memory_check.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMiB = 1 << 20;
constexpr const char* kV1 =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
constexpr const char* kV2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A made-up system.
class Tree {
 public:
  void write(const std::string& path, const std::string& text) const {
    const fs::path at = root() + path;
    fs::create_directories(at.parent_path());
    std::ofstream(at) << text;
  }

  void write(const std::string& path, std::int64_t value) const {
    write(path, std::to_string(value) + "\n");
  }

  [[nodiscard]] std::string root() const { return folder_.path(); }

  [[nodiscard]] std::vector<MemoryLimit> limits() const { return memory_limits(root()); }

  /// The bytes left of the limit with this name; -1 where there is none.
  [[nodiscard]] std::int64_t left(const std::string& name) const {
    for (const MemoryLimit& limit : limits()) {
      if (limit.name.find(name) != std::string::npos) {
        return limit.left;
      }
    }
    return -1;
  }

 private:
  TemporaryFolder folder_;
};

TEST(MemoryLimits, NothingKnownLimitsNothing) {
  EXPECT_TRUE(Tree().limits().empty());
  const Tree garbage;
  for (const char* file : {"/proc/meminfo", "/proc/self/limits", "/proc/self/statm",
                           "/proc/self/mountinfo", "/proc/self/cgroup"}) {
    garbage.write(file, "Max address space -\n:::\n- - -\nMemAvailable:\n0::\n");
  }
  EXPECT_TRUE(garbage.limits().empty());
}

TEST(MemoryLimits, OfTheHost) {
  const Tree tree;
  tree.write("/proc/meminfo",
             "MemTotal:       8000 kB\nMemFree:         100 kB\nMemAvailable:   3000 kB\n"
             "SwapTotal:      2000 kB\nSwapFree:        500 kB\n");
  EXPECT_EQ(tree.left("the host"), 3500 * 1024);
}

TEST(MemoryLimits, OfTheAddressSpace) {
  const Tree tree;
  tree.write("/proc/self/statm", "10 5 2 1 0 3 0\n");
  tree.write("/proc/self/limits",
             "Limit                     Soft Limit           Hard Limit           Units\n"
             "Max data size             unlimited            unlimited            bytes\n"
             "Max address space         104857600            unlimited            bytes\n");
  EXPECT_EQ(tree.left("ulimit -v"), 100 * kMiB - 10 * sysconf(_SC_PAGESIZE));
  tree.write("/proc/self/limits", "Max address space         unlimited   unlimited   bytes\n");
  EXPECT_EQ(tree.left("ulimit -v"), -1);
}

TEST(MemoryLimits, OfVersion2AndOfTheGroupsAbove) {
  const Tree tree;
  const std::string base = "/sys/fs/cgroup";
  tree.write("/proc/self/mountinfo", kV2);
  tree.write("/proc/self/cgroup", "0::/jobs/7/task\n");
  tree.write(base + "/jobs/7/task/memory.max", "max\n");
  tree.write(base + "/jobs/7/memory.max", 500 * kMiB);
  tree.write(base + "/jobs/7/memory.current", 300 * kMiB);
  tree.write(base + "/jobs/7/memory.stat",
             "anon 1\nfile 9\ninactive_file 52428800\nactive_file 10485760\n");
  tree.write(base + "/jobs/memory.max", 200 * kMiB);
  tree.write(base + "/jobs/memory.current", 300 * kMiB);
  EXPECT_EQ(tree.limits().size(), 2U);
  EXPECT_EQ(tree.left("cgroup /jobs/7"), 260 * kMiB);  // pages of files could be given back
  tree.write(base + "/jobs/7/memory.max", "max");
  EXPECT_EQ(tree.left("cgroup /jobs"), 0);  // used up, and not below it
}

TEST(MemoryLimits, OfVersion1BesideAnEmptyVersion2) {
  const Tree tree;
  const std::string base = "/sys/fs/cgroup/memory";
  tree.write("/proc/self/mountinfo", kV1);
  tree.write("/proc/self/cgroup", "5:devices:/x\n4:cpu,memory:/docker/abc\n0::/\n");
  tree.write(base + "/memory.limit_in_bytes", "9223372036854771712\n");
  tree.write(base + "/docker/memory.limit_in_bytes", 100 * kMiB);
  tree.write(base + "/docker/memory.usage_in_bytes", 10 * kMiB);
  tree.write(base + "/docker/abc/memory.limit_in_bytes", 50 * kMiB);
  tree.write(base + "/docker/abc/memory.usage_in_bytes", 20 * kMiB);
  tree.write(base + "/docker/abc/memory.stat", "cache 7\ntotal_inactive_file 5242880\n");
  EXPECT_EQ(tree.limits().size(), 2U);
  EXPECT_EQ(tree.left("cgroup /docker/abc"), 35 * kMiB);
  EXPECT_EQ(tree.limits().back().left, 90 * kMiB);
  tree.write(base + "/docker/memory.use_hierarchy", 0);  // then it does not limit those below
  EXPECT_EQ(tree.limits().size(), 1U);
}

TEST(MemoryLimits, InAContainerThatSeesItsGroupAsTheRoot) {
  for (const char* cgroup : {"0::/\n", "0::/../..\n", "0::/kube/pod/abc\n"}) {
    const Tree tree;
    tree.write("/proc/self/mountinfo",
               "30 23 0:26 /kube/pod/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    tree.write("/proc/self/cgroup", cgroup);
    tree.write("/sys/fs/cgroup/memory.max", 64 * kMiB);
    tree.write("/sys/fs/cgroup/memory.current", 4 * kMiB);
    EXPECT_EQ(tree.left("cgroup /"), 60 * kMiB) << cgroup;
  }
}

TEST(MemoryLimits, IdsSayWhatIsShared) {
  const Tree one;
  const Tree other;
  for (const Tree* tree : {&one, &other}) {
    tree->write("/proc/self/mountinfo", kV2);
    tree->write("/proc/self/cgroup", "0::/job\n");
    tree->write("/sys/fs/cgroup/job/memory.max", kMiB);
    tree->write("/proc/meminfo", "MemAvailable: 3000 kB\n");
  }
  EXPECT_EQ(one.limits()[0].id, other.limits()[0].id);  // the host is one
  EXPECT_NE(one.limits()[1].id, other.limits()[1].id);
  EXPECT_EQ(one.limits()[1].id, one.limits()[1].id);
}

TEST(MemoryLimits, OfThisSystem) {
  const auto limits = memory_limits();
  ASSERT_FALSE(limits.empty());
  EXPECT_GT(limits.front().left, 0);
}

// Bytes of every position add up to what the engine allocates, of any scheme.
TEST(TableBytes, AddUpToTheSummary) {
  for (const auto& [sharding, groups] :
       {std::pair{"table_wise", 1}, {"column_wise", 1}, {"data_parallel", 1}, {"row_wise", 2}}) {
    std::vector<std::string> set = all_tables("sharding", sharding);
    set.push_back("mesh.groups=" + std::to_string(groups));
    set.emplace_back("train.steps=1");
    const spec::Config config = make_job(set);
    const spec::Plan plan = planner::make_plan(config, 4);
    std::int64_t bytes = 0;
    for (std::int64_t position = 0; position < 4; ++position) {
      const auto own = table_bytes(config, plan, position);
      bytes += std::accumulate(own.begin(), own.end(), std::int64_t{0});
    }
    EXPECT_EQ(bytes, train_on(4, job_options(config)).memory.tables) << sharding << groups;
  }
}

class MemoryOfAJob : public testing::Test {
 protected:
  MemoryOfAJob() {
    set_log_sink([this](LogLevel, std::string_view text) {
      const std::lock_guard lock(mutex_);
      log_ += std::string(text) + "\n";
    });
    options_ = job_options(make_job({"train.steps=1"}));
    options_.system_root = tree_.root();
    const spec::Plan plan = planner::make_plan(options_.config, 2);
    for (std::int64_t position = 0; position < 2; ++position) {
      const auto own = table_bytes(options_.config, plan, position);
      tables_ += std::accumulate(own.begin(), own.end(), std::int64_t{0});
    }
  }

  ~MemoryOfAJob() override { set_log_sink({}); }

  MemoryOfAJob(const MemoryOfAJob&) = delete;
  MemoryOfAJob& operator=(const MemoryOfAJob&) = delete;

  void leave(std::int64_t bytes) {
    tree_.write("/proc/meminfo", "MemAvailable: " + std::to_string(bytes / 1024) + " kB\n");
  }

  Tree tree_;
  JobOptions options_;
  std::int64_t tables_ = 0;  // of both ranks, which share the host
  std::mutex mutex_;
  std::string log_;
};

TEST_F(MemoryOfAJob, IsRefusedWhereTablesOfAllItsRanksDoNotFit) {
  leave(tables_ - 2048);  // either rank's would fit
  for (const auto run : {run_train, run_eval}) {
    try {
      comm::run_local(2, {}, [&](comm::Communicator& world) { run(world, options_); });
      FAIL() << "it began";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResource);
      EXPECT_EQ(error.origin_rank(), 0);
      EXPECT_TRUE(says(error.what(), "of 2 ranks of the host of rank 0 take")) << error.what();
      EXPECT_TRUE(says(error.what(), "the largest tables there: rare ")) << error.what();
      EXPECT_TRUE(says(error.what(), "--ignore-memory-limits")) << error.what();
    }
  }
}

TEST_F(MemoryOfAJob, BeginsWhereItIsInsisted) {
  leave(tables_ - 2048);
  options_.on_shortage = Shortage::kWarn;
  EXPECT_EQ(train_on(2, options_).steps, 1);
  EXPECT_TRUE(says(log_, "the system may end the job")) << log_;
}

TEST_F(MemoryOfAJob, WarnsWhereThePredictedRestDoesNotFit) {
  leave(tables_ + 2048);
  EXPECT_EQ(train_on(2, options_).steps, 1);
  EXPECT_TRUE(says(log_, "buffers of exchanges and the dense model as predicted")) << log_;
  log_.clear();
  leave(tables_ + 1024 * kMiB);
  EXPECT_EQ(train_on(2, options_).steps, 1);
  EXPECT_FALSE(says(log_, "predicted")) << log_;
}

}  // namespace
}  // namespace weft::train
