#include "weft/io/block_reads.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/io/faulty_file_system.h"
#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::io {
namespace {

constexpr std::int64_t kBlocks = 300;

struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};

using Aligned = std::unique_ptr<std::byte, Freed>;

Aligned aligned(std::int64_t bytes) {
  return Aligned(static_cast<std::byte*>(std::aligned_alloc(at(kBlockAlignment), at(bytes))));
}

std::string content_of(std::uint32_t seed, std::int64_t blocks) {
  std::mt19937 random(seed);
  std::string content(at(blocks * kBlockAlignment), '\0');
  for (std::size_t i = 0; i < content.size(); i += 4) {
    const auto word = static_cast<std::uint32_t>(random());
    std::memcpy(content.data() + i, &word, sizeof word);
  }
  return content;
}

/// Reads of random places and lengths, begun in some calls, and what they should give.
class RandomReads {
 public:
  RandomReads(BlockReads& reads, std::vector<std::int32_t> files, std::uint32_t seed)
      : batch_(reads.make_batch()), files_(std::move(files)), random_(seed) {}

  void round(const std::vector<std::string>& contents) {
    std::vector<BlockRead> reads(random_() % 400);
    std::int64_t bytes = 0;
    for (BlockRead& read : reads) {
      const std::size_t file = random_() % files_.size();
      read.file = files_[file];
      const auto blocks = static_cast<std::int64_t>(contents[file].size()) / kBlockAlignment;
      read.bytes = (1 + random_() % 3) * kBlockAlignment;
      read.offset = (random_() % (blocks - 2)) * kBlockAlignment;
      bytes += read.bytes;
    }
    const Aligned memory = aligned(std::max(bytes, kBlockAlignment));
    std::byte* next = memory.get();
    for (BlockRead& read : reads) {
      read.data = next;
      next += read.bytes;
    }
    const std::size_t half = reads.size() / 2;
    std::vector<BlockRead> first(reads.begin(), reads.begin() + static_cast<std::ptrdiff_t>(half));
    batch_->begin(first);
    first.assign(half, BlockRead{});  // the list may go
    batch_->begin(std::span(reads).subspan(half));
    batch_->wait();
    for (const BlockRead& read : reads) {
      const auto file = static_cast<std::size_t>(
          std::find(files_.begin(), files_.end(), read.file) - files_.begin());
      ASSERT_EQ(std::memcmp(read.data, contents[file].data() + read.offset, at(read.bytes)), 0);
    }
  }

 private:
  std::unique_ptr<ReadBatch> batch_;
  std::vector<std::int32_t> files_;
  std::mt19937 random_;
};

class BothReadMethods : public testing::TestWithParam<ReadMethod> {
 protected:
  BothReadMethods() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-io-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    for (std::uint32_t i = 0; i < 3; ++i) {
      contents_.push_back(content_of(i, kBlocks + i));
      paths_.push_back(folder_ + "/" + std::to_string(i));
      EXPECT_FALSE(write_file(real_file_system(), paths_.back(), contents_.back()));
    }
  }

  ~BothReadMethods() override { std::filesystem::remove_all(folder_); }

  /// Null where the machine forbids io_uring.
  static std::unique_ptr<BlockReads> make(int depth, FileSystem& files = real_file_system()) {
    try {
      return make_block_reads(files, {.method = GetParam(), .depth = depth, .threads = 3});
    } catch (const Error& error) {
      EXPECT_EQ(GetParam(), ReadMethod::kRing) << error.what();
      reason_ = error.what();
      return nullptr;
    }
  }

  std::vector<std::int32_t> add_all(BlockReads& reads) {
    std::vector<std::int32_t> files;
    for (const std::string& path : paths_) {
      files.push_back(reads.add(path, OpenMode::kReadDirect));
    }
    return files;
  }

  static std::string message_of(ReadBatch& batch) {
    try {
      batch.wait();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      return error.what();
    }
    return "no error";
  }

  static inline std::string reason_;
  std::string folder_;
  std::vector<std::string> paths_;
  std::vector<std::string> contents_;
};

TEST_P(BothReadMethods, GiveTheBytesOfTheFiles) {
  for (const int depth : {1, 3, 128}) {
    const auto reads = make(depth);
    if (!reads) {
      GTEST_SKIP() << reason_;
    }
    EXPECT_EQ(reads->method(), GetParam());
    RandomReads random(*reads, add_all(*reads), static_cast<std::uint32_t>(depth));
    for (int i = 0; i < 5; ++i) {
      random.round(contents_);
    }
  }
}

TEST_P(BothReadMethods, BatchesOfSeveralThreadsShareTheQueue) {
  const auto reads = make(16);
  if (!reads) {
    GTEST_SKIP() << reason_;
  }
  const auto files = add_all(*reads);
  std::vector<std::thread> threads;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      RandomReads one(*reads, files, seed);
      RandomReads other(*reads, files, seed + 100);
      for (int i = 0; i < 5; ++i) {
        one.round(contents_);
        other.round(contents_);
      }
    });
  }
  // Files come and go beside them.
  for (int i = 0; i < 50; ++i) {
    reads->remove(reads->add(paths_[0], OpenMode::kRead));
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_P(BothReadMethods, ABatchThatIsBegunNeedsNobodyForOthersToGoOn) {
  const auto reads = make(8);
  if (!reads) {
    GTEST_SKIP() << reason_;
  }
  const std::int32_t file = reads->add(paths_[0], OpenMode::kReadDirect);
  const Aligned memory = aligned(100 * kBlockAlignment);
  const auto list = [&](std::int64_t first, std::int64_t count) {
    std::vector<BlockRead> made;
    for (std::int64_t i = first; i < first + count; ++i) {
      made.push_back(
          {file, i * kBlockAlignment, kBlockAlignment, memory.get() + i * kBlockAlignment});
    }
    return made;
  };
  const auto first = reads->make_batch();
  const auto second = reads->make_batch();
  first->begin(list(0, 8));    // fills the queue, and waits for nothing
  second->begin(list(8, 92));  // more than the queue has room for
  second->wait();
  first->wait();
  first->wait();
  EXPECT_EQ(std::memcmp(memory.get(), contents_[0].data(), 100 * at(kBlockAlignment)), 0);
}

TEST_P(BothReadMethods, NumbersAreUsedAgain) {
  const auto reads = make(4);
  if (!reads) {
    GTEST_SKIP() << reason_;
  }
  const auto files = add_all(*reads);
  reads->remove(files[1]);
  EXPECT_EQ(reads->add(paths_[2], OpenMode::kReadDirect), files[1]);
  const Aligned memory = aligned(kBlockAlignment);
  const auto batch = reads->make_batch();
  batch->begin(std::vector<BlockRead>{{files[1], 0, kBlockAlignment, memory.get()}});
  batch->wait();
  EXPECT_EQ(std::memcmp(memory.get(), contents_[2].data(), at(kBlockAlignment)), 0);
}

TEST_P(BothReadMethods, ErrorsNameFileAndOffset) {
  const auto reads = make(4);
  if (!reads) {
    GTEST_SKIP() << reason_;
  }
  try {
    reads->add(folder_ + "/none", OpenMode::kReadDirect);
    ADD_FAILURE() << "there is no such file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find(folder_ + "/none"), std::string::npos);
  }
  const std::int32_t file = reads->add(paths_[0], OpenMode::kReadDirect);
  const Aligned memory = aligned(30 * kBlockAlignment);
  const std::int64_t end = kBlocks * kBlockAlignment;
  std::vector<BlockRead> list;
  for (std::int64_t i = 0; i < 10; ++i) {
    list.push_back(
        {file, i * kBlockAlignment, kBlockAlignment, memory.get() + i * kBlockAlignment});
  }
  list[5].offset = end - kBlockAlignment;  // begins in the file
  list[5].bytes = 2 * kBlockAlignment;
  list[5].data = memory.get() + 20 * kBlockAlignment;
  list[7].offset = end;
  const auto batch = reads->make_batch();
  batch->begin(list);
  const std::string message = message_of(*batch);
  EXPECT_NE(message.find("8192 bytes at offset " + std::to_string(end - kBlockAlignment)),
            std::string::npos)
      << message;
  EXPECT_NE(message.find(paths_[0]), std::string::npos) << message;
  EXPECT_NE(message.find("ends"), std::string::npos) << message;
  EXPECT_EQ(std::memcmp(memory.get(), contents_[0].data(), 5 * at(kBlockAlignment)), 0)
      << "the others were read";
  EXPECT_EQ(message_of(*batch), "no error") << "it is thrown once";
  batch->begin(std::span(list).first(3));
  EXPECT_EQ(message_of(*batch), "no error");
  batch->begin(std::span(list).last(3));  // its destructor drops the error
}

TEST_P(BothReadMethods, TooManyFilesAreAnErrorThatSaysSo) {
  const auto reads = make(4);
  if (!reads) {
    GTEST_SKIP() << reason_;
  }
  FaultyFileSystem files;
  ASSERT_FALSE(write_file(files, "/f", contents_[0]));
  files.set_hook([](const Call&) { return Verdict{Verdict::What::kFail, EMFILE}; });
  const auto faulty = make(4, files);
  try {
    faulty->add("/f", OpenMode::kReadDirect);
    ADD_FAILURE() << "the file was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    EXPECT_NE(std::string(error.what()).find("ulimit -n"), std::string::npos) << error.what();
  }
}

/// Files without a descriptor, whose reads fail now and then.
TEST_P(BothReadMethods, AFaultyFileSystemIsRead) {
  FaultyFileSystem files;
  for (std::size_t i = 0; i < contents_.size(); ++i) {
    paths_[i] = "/" + std::to_string(i);
    ASSERT_FALSE(write_file(files, paths_[i], contents_[i]));
  }
  const auto reads = make(4, files);
  if (!reads) {
    GTEST_SKIP() << reason_;
  }
  const auto numbers = add_all(*reads);
  RandomReads random(*reads, numbers, 1);
  random.round(contents_);
  files.set_hook([](const Call& call) {
    return call.kind == CallKind::kRead && call.path == "/1" ? Verdict{Verdict::What::kFail, EIO}
                                                             : Verdict{};
  });
  const Aligned memory = aligned(2 * kBlockAlignment);
  const auto batch = reads->make_batch();
  batch->begin(std::vector<BlockRead>{
      {numbers[0], 0, kBlockAlignment, memory.get()},
      {numbers[1], 3 * kBlockAlignment, kBlockAlignment, memory.get() + kBlockAlignment}});
  const std::string message = message_of(*batch);
  EXPECT_NE(message.find("offset 12288 of '/1': " + error_of(EIO).message()), std::string::npos)
      << message;
}

INSTANTIATE_TEST_SUITE_P(Reads,
                         BothReadMethods,
                         testing::Values(ReadMethod::kRing, ReadMethod::kThreads),
                         [](const auto& param_info) {
                           return param_info.param == ReadMethod::kRing ? "Ring" : "Threads";
                         });

TEST(BlockReads, AutoTakesWhatTheMachineHas) {
  const auto reads = make_block_reads(real_file_system());
  bool has_ring = true;
  try {
    make_block_reads(real_file_system(), {.method = ReadMethod::kRing});
  } catch (const Error& error) {
    has_ring = false;
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find("io_uring"), std::string::npos);
  }
  EXPECT_EQ(reads->method(), has_ring ? ReadMethod::kRing : ReadMethod::kThreads);
}

/// /dev/shm refuses O_DIRECT; the temporary folder may or may not.
TEST(BlockReads, AFileSystemWithoutDirectReadsIsReadThroughItsCache) {
  const std::vector<std::string> parents = {"/dev/shm",
                                            std::filesystem::temp_directory_path().string()};
  for (const std::string& parent : parents) {
    std::string pattern = parent + "/weft-io-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) {
      continue;
    }
    const std::string path = pattern + "/f";
    ASSERT_FALSE(write_file(real_file_system(), path, content_of(1, 2)));
    const Opened opened = real_file_system().open(path, OpenMode::kReadDirect);
    ASSERT_FALSE(opened.error) << parent;
    EXPECT_GE(opened.file->descriptor(), 0);
    const Aligned memory = aligned(kBlockAlignment);
    std::int64_t got = 0;
    EXPECT_FALSE(opened.file->read(kBlockAlignment, memory.get(), kBlockAlignment, got));
    EXPECT_EQ(got, kBlockAlignment);
    std::filesystem::remove_all(pattern);
  }
}

}  // namespace
}  // namespace weft::io
