// A checkpoint that many ranks open: who reads its manifest, and whose error is everybody's.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/checkpoint/memory_state.h"
#include "tests/io/faulty_file_system.h"
#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/comm/local/local.h"

namespace weft::checkpoint {
namespace {

constexpr int kRanks = 24;
constexpr int kHostRanks = 8;

/// What one rank sees of a file system: it counts the files that the rank opens, and may show
/// another directory under the name of one, or none.
class RankView final : public io::FileSystem {
 public:
  explicit RankView(io::FileSystem& below) : below_(below) {}

  /// Opens by the last part of their names.
  std::map<std::string, int> opened;
  std::string hidden = {};                           ///< a directory that is not there
  std::pair<std::string, std::string> instead = {};  ///< the first is the second

  [[nodiscard]] io::Opened open(const std::string& path, io::OpenMode mode) override {
    ++opened[path.substr(path.rfind('/') + 1)];
    return below_.open(seen(path), mode);
  }

  [[nodiscard]] std::error_code sync_directory(const std::string& path) override {
    return below_.sync_directory(path);
  }

  [[nodiscard]] std::error_code rename(const std::string& from, const std::string& to) override {
    return below_.rename(from, to);
  }

  [[nodiscard]] std::error_code exchange(const std::string& a, const std::string& b) override {
    return below_.exchange(a, b);
  }

  [[nodiscard]] std::error_code link(const std::string& from, const std::string& to) override {
    return below_.link(from, to);
  }

  [[nodiscard]] std::error_code remove(const std::string& path) override {
    return below_.remove(path);
  }

  [[nodiscard]] std::error_code make_directory(const std::string& path) override {
    return below_.make_directory(path);
  }

  [[nodiscard]] io::Listed list(const std::string& path) override {
    return below_.list(seen(path));
  }

  [[nodiscard]] io::Status status(const std::string& path) override {
    return below_.status(seen(path));
  }

  [[nodiscard]] io::Locked lock(const std::string& path) override { return below_.lock(path); }

 private:
  [[nodiscard]] std::string seen(const std::string& path) const {
    if (!hidden.empty() && path.starts_with(hidden)) {
      return "/nowhere" + path;
    }
    if (!instead.first.empty() && path.starts_with(instead.first)) {
      return instead.second + path.substr(instead.first.size());
    }
    return path;
  }

  io::FileSystem& below_;
};

class OpenCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < kRanks; ++rank) {
      views_.emplace_back(std::make_unique<RankView>(files_));
    }
    for (const std::string name : {"/ck", "/other"}) {
      SaveOptions options = save_options(name, 10);
      options.files = &files_;
      save_all(options, small_matrices(), 3, 2);
    }
    directory_ = find_checkpoint("/ck", files_);
    other_ = find_checkpoint("/other", files_);
    files_.set_hook({});
  }

  RankView& view(int rank) { return *views_[static_cast<std::size_t>(rank)]; }

  /// Runs body(world, ctx, its view) on ranks of three hosts. Returns the one error that all of
  /// them had, "" where none had any.
  std::string run(const std::function<void(comm::Communicator&, Context&, RankView&)>& body) {
    std::vector<int> hosts;
    for (int rank = 0; rank < kRanks; ++rank) {
      hosts.push_back(rank / kHostRanks);
    }
    std::vector<std::string> errors(kRanks);
    comm::run_local(kRanks, {.hosts = hosts}, [&](comm::Communicator& world) {
      Context ctx;
      try {
        body(world, ctx, view(world.rank()));
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(world.rank())] =
            std::to_string(error.origin_rank()) + ": " + error.what();
      }
    });
    EXPECT_EQ(std::count(errors.begin(), errors.end(), errors[0]), kRanks) << errors[0];
    return errors[0];
  }

  std::string open() {
    return run([&](comm::Communicator& world, Context& ctx, RankView& files) {
      const OpenedCheckpoint opened = open_checkpoint(world, ctx, "/ck", files);
      EXPECT_EQ(opened.directory, directory_);
      EXPECT_EQ(opened.manifest, read_manifest("/ck", files_));
      EXPECT_NE(opened.id, 0U);
    });
  }

  /// Ranks that have opened a file of this name, and how often.
  std::map<int, int> readers_of(const std::string& name) {
    std::map<int, int> readers;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (const int opens = std::exchange(view(rank).opened[name], 0); opens > 0) {
        readers[rank] = opens;
      }
    }
    return readers;
  }

  [[nodiscard]] std::int64_t bytes_of(const std::string& path) { return files_.status(path).bytes; }

  io::FaultyFileSystem files_;
  std::vector<std::unique_ptr<RankView>> views_;
  std::string directory_;
  std::string other_;
};

const std::string kManifest = "manifest.json";

TEST_F(OpenCheckpoint, RankZeroReadsTheManifestAndOneOfEachOtherHostItsEnd) {
  const std::map<int, int> wanted = {{0, 1}, {8, 1}, {16, 1}};
  EXPECT_EQ(open(), "");
  EXPECT_EQ(readers_of(kManifest), wanted);
  EXPECT_EQ(run([&](comm::Communicator&, Context&, RankView& files) {
              static_cast<void>(read_manifest("/ck", files));
            }),
            "");
  EXPECT_EQ(readers_of(kManifest).size(), std::size_t{kRanks}) << "where each rank reads it itself";
}

TEST_F(OpenCheckpoint, ALoadReadsItNoMoreOften) {
  EXPECT_EQ(run([&](comm::Communicator& world, Context& ctx, RankView& files) {
              MemoryState state = make_state(small_matrices(), 5, kRanks, world.rank());
              StateSink* sink = &state;
              load(world, ctx, {.path = "/ck", .files = &files}, std::span(&sink, 1));
              EXPECT_EQ(state.differences(), 0);
            }),
            "");
  EXPECT_EQ(readers_of(kManifest), (std::map<int, int>{{0, 1}, {8, 1}, {16, 1}}));
}

TEST_F(OpenCheckpoint, RankZeroReadsABlob) {
  const Manifest manifest = read_manifest("/ck", files_);
  const std::string file = manifest.blobs.at(0).file;
  EXPECT_EQ(run([&](comm::Communicator& world, Context& ctx, RankView& files) {
              EXPECT_EQ(share_blob(world, ctx, "/ck", "vocabularies", files),
                        std::string("a\0b\n", 4));
            }),
            "");
  EXPECT_EQ(readers_of(file), (std::map<int, int>{{0, 1}}));
  EXPECT_NE(run([&](comm::Communicator& world, Context& ctx, RankView& files) {
              static_cast<void>(share_blob(world, ctx, "/ck", "no such", files));
            }).find("0: the checkpoint '" + directory_ + "' holds no 'no such'"),
            std::string::npos);
}

TEST_F(OpenCheckpoint, AnErrorOfRankZeroReachesAll) {
  for (const io::CallKind kind : {io::CallKind::kOpen, io::CallKind::kRead}) {
    files_.set_hook([kind](const io::Call& call) {
      const bool fails = call.kind == kind && call.path.ends_with(kManifest);
      return io::Verdict{fails ? io::Verdict::What::kFail : io::Verdict::What::kDo, EIO};
    });
    const std::string error = open();
    EXPECT_TRUE(error.starts_with("0: ")) << error;
    EXPECT_NE(error.find(directory_ + "/" + kManifest), std::string::npos) << error;
    EXPECT_EQ(readers_of(kManifest), (std::map<int, int>{{0, 1}})) << "nobody else goes on";
  }
}

TEST_F(OpenCheckpoint, ADamagedManifestSaysWhatReadManifestSays) {
  const auto path = directory_ + "/" + kManifest;
  std::string text(static_cast<std::size_t>(bytes_of(path)), ' ');
  std::int64_t moved = 0;
  ASSERT_FALSE(
      files_.open(path, io::OpenMode::kRead).file->read(0, text.data(), std::ssize(text), moved));
  text[text.size() / 2] ^= 1;
  const auto file = files_.open(path, io::OpenMode::kReplace).file;
  ASSERT_FALSE(file->write(text.data(), std::ssize(text), moved));
  ASSERT_FALSE(file->close());
  const std::string wanted =
      "0: " + checkpoint_error([&] { static_cast<void>(read_manifest("/ck", files_)); });
  EXPECT_EQ(open(), wanted);
}

TEST_F(OpenCheckpoint, WhereThereIsNoneAllSaySo) {
  EXPECT_NE(run([&](comm::Communicator& world, Context& ctx, RankView& files) {
              open_checkpoint(world, ctx, "/none", files);
            }).find("0: there is no checkpoint in '/none'"),
            std::string::npos);
}

TEST_F(OpenCheckpoint, AHostThatSeesNoManifestOrAnotherIsNamedByAll) {
  for (int rank = kHostRanks; rank < 2 * kHostRanks; ++rank) {
    view(rank).hidden = directory_;
  }
  EXPECT_EQ(open(), "8: rank 8 does not see '" + directory_ + "/" + kManifest +
                        "', which rank 0 has read: all ranks must see one directory");
  // Another job's, of the same length: its checksum tells them apart.
  ASSERT_EQ(bytes_of(directory_ + "/" + kManifest), bytes_of(other_ + "/" + kManifest));
  for (int rank = kHostRanks; rank < 2 * kHostRanks; ++rank) {
    view(rank).hidden = "";
    view(rank).instead = {directory_, other_};
  }
  EXPECT_EQ(open(), "8: ranks 0 and 8 read different manifests from '" + directory_ +
                        "': all ranks must see one directory");
}

}  // namespace
}  // namespace weft::checkpoint
