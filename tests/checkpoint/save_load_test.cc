#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/checkpoint/memory_state.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/background_save.h"

namespace weft::checkpoint {
namespace {

TEST(SaveLoad, AnyRanksAndLayoutToAnyOther) {
  const auto matrices = small_matrices();
  std::uint32_t seed = 1;
  for (const int writers : {1, 2, 3, 5}) {
    for (int round = 0; round < 2; ++round) {
      const TemporaryDirectory directory;
      save_all(save_options(directory.path(), 10), matrices, ++seed, writers);
      for (const int readers : {1, 2, 3, 5, 8}) {
        EXPECT_EQ(load_all({directory.path()}, matrices, ++seed, readers), 0)
            << writers << " ranks to " << readers << ", seed " << seed;
      }
    }
  }
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(SaveLoad, ManyChunks) {
  const std::vector<Matrix> matrices = {{"tables.big", "weight", DType::kFloat32, 2500, 1000},
                                        {"tables.wide", "weight", DType::kUInt8, 2, 9 << 20}};
  const TemporaryDirectory directory;
  save_all(save_options(directory.path(), 0), matrices, 4, 2);
  const Manifest manifest = read_manifest(directory.path());
  std::size_t chunks = 0;
  for (const StoredItem& item : manifest.items) {
    for (const StoredBlock& block : item.blocks) {
      chunks += block.checksums.size();
    }
  }
  EXPECT_GE(chunks, 4U);
  EXPECT_EQ(load_all({directory.path()}, matrices, 9, 3), 0);
}

TEST(Agree, WaitsForARankThatWorksLongerThanAPeerIsWaitedFor) {
  std::atomic<int> done = 0;
  comm::run_local(2, {.timeout_s = 2.0}, [&](comm::Communicator& world) {
    Context ctx;
    agree(world, ctx, [&](WorkProgress& progress) {
      for (int i = 0; i < 35 && world.rank() == 1; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        progress.add(1);
      }
      ++done;
    });
    EXPECT_EQ(done, 2);
  });
}

/// Runs `body` on 2 ranks, of which rank 1 blocks until the backend gives it up. Returns the error,
/// which every rank must have thrown.
Error with_a_blocked_rank(std::promise<void>& release,
                          const std::function<void(comm::Communicator&)>& body) {
  std::vector<std::string> thrown(2);
  std::vector<int> given_up;
  const auto give_up = [&](const Error&, std::span<const int> ranks, double) {
    given_up.assign(ranks.begin(), ranks.end());
    release.set_value();
  };
  try {
    comm::run_local(2, {.timeout_s = 1.0, .give_up = give_up}, [&](comm::Communicator& world) {
      try {
        body(world);
      } catch (const Error& error) {
        thrown[static_cast<std::size_t>(world.rank())] = error.what();
        throw;
      }
    });
  } catch (const Error& error) {
    EXPECT_EQ(given_up, std::vector<int>{1});
    EXPECT_EQ(thrown[0], error.what());
    EXPECT_EQ(thrown[1], error.what());
    return error;
  }
  return {ErrorCode::kInternal, "no error"};
}

TEST(Agree, NamesARankWhoseWorkDoesNotMove) {
  std::promise<void> release;
  const Error error = with_a_blocked_rank(release, [&](comm::Communicator& world) {
    Context ctx;
    agree(world, ctx, [&](WorkProgress& progress) {
      progress.begin({.activity = "reading", .place = "'rank-0001.bin'", .total = 40 << 20});
      if (world.rank() == 1) {
        progress.add(12 << 20);
        release.get_future().wait();
      }
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_EQ(error.origin_rank(), 1);
  EXPECT_TRUE(says(error.what(), {"rank 1 has been reading 'rank-0001.bin'", "nothing has moved",
                                  "for 1.0 s", "at 12.0 MiB of 40.0 MiB"}));
}

/// A source of one row that never comes.
class BlockedState final : public StateSource {
 public:
  explicit BlockedState(std::shared_future<void> released) : released_(std::move(released)) {}

  [[nodiscard]] std::vector<StateItem> state_items() const override {
    return {{"tables.blocked", "weight", DType::kFloat32, 1, 8, 0, 1, 0, 8, true, 1}};
  }

  void read_state(std::size_t, std::int64_t, std::int64_t, void*) const override {
    released_.wait();
  }

 private:
  std::shared_future<void> released_;
};

TEST(SaveLoad, ASaveThatHangsNamesRankAndFile) {
  const TemporaryDirectory directory;
  std::promise<void> release;
  const BlockedState blocked(release.get_future().share());
  const Error error = with_a_blocked_rank(release, [&](comm::Communicator& world) {
    Context ctx;
    std::vector<const StateSource*> sources;
    if (world.rank() == 1) {
      sources.push_back(&blocked);
    }
    save(world, ctx, save_options(directory.path(), 10), sources);
  });
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(
      says(error.what(), {"rank 1 has been writing '", "rank-0001.bin'", "at 0 B of 32 B"}));
}

TEST(SaveLoad, AFifoInPlaceOfAFileIsRefused) {
  const TemporaryDirectory directory;
  save_all(save_options(directory.path(), 10), small_matrices(), 1, 2);
  const std::string file = directory.path() + "/step-00000010/rank-0001.bin";
  std::filesystem::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_TRUE(says(checkpoint_error([&] { load_all({directory.path()}, small_matrices(), 1, 2); }),
                   {"rank-0001.bin' is not a regular file"}));
}

TEST(SaveLoad, MetadataAndBlobsComeBack) {
  const TemporaryDirectory directory;
  const SaveOptions options = save_options(directory.path(), 10);
  save_all(options, small_matrices(), 1, 3);
  const Manifest manifest = read_manifest(directory.path());
  Metadata expected = options.metadata;
  expected.ranks = 3;
  EXPECT_NE(manifest.metadata.lineage.job_id, 0U);
  EXPECT_EQ(manifest.metadata.lineage.save_number, 1);
  expected.lineage = manifest.metadata.lineage;
  EXPECT_EQ(manifest.metadata, expected);
  EXPECT_EQ(read_blob(directory.path(), "vocabularies"), options.blobs[0].bytes);
  EXPECT_EQ(read_blob(directory.path(), "empty"), "");
  EXPECT_TRUE(
      says(checkpoint_error([&] { read_blob(directory.path(), "no"); }), {"holds no 'no'"}));
  EXPECT_EQ(manifest_from_json(manifest_to_json(manifest), "m"), manifest);
}

TEST(SaveLoad, KeepsTheNewestAndFindsThem) {
  const TemporaryDirectory parent;
  const std::string directory = parent.path() + "/run/checkpoints";
  for (const std::int64_t step : {10, 20, 30, 40}) {
    SaveOptions options = save_options(directory, step);
    options.keep = 2;
    save_all(options, small_matrices(), 1, 2);
  }
  EXPECT_EQ(list_checkpoints(directory),
            (std::vector<std::string>{directory + "/step-00000030", directory + "/step-00000040"}));
  EXPECT_EQ(find_checkpoint(directory), directory + "/step-00000040");
  EXPECT_EQ(find_checkpoint(directory + "/step-00000030"), directory + "/step-00000030");
  EXPECT_EQ(read_manifest(directory + "/step-00000030").metadata.step, 30);
  // The newest is the one written last, not the one of the highest step (retention_test.cc has the
  // rest): a step 5 that goes on from step 40 is the newest, and step 30 goes.
  SaveOptions back = save_options(directory, 5);
  back.keep = 2;
  save_all(back, small_matrices(), 1, 2);
  EXPECT_EQ(list_checkpoints(directory),
            (std::vector<std::string>{directory + "/step-00000005", directory + "/step-00000040"}));
  EXPECT_EQ(find_checkpoint(directory), directory + "/step-00000005");
  // Without `latest`, or where it leads nowhere, the save numbers of the line decide.
  std::filesystem::remove(directory + "/latest");
  EXPECT_EQ(find_checkpoint(directory), directory + "/step-00000005");
  for (const char* wrong : {"step-00000050\n", "../elsewhere\n", ""}) {
    std::ofstream(directory + "/latest") << wrong;
    EXPECT_EQ(find_checkpoint(directory), directory + "/step-00000005") << wrong;
  }
  EXPECT_TRUE(says(checkpoint_error([&] { find_checkpoint(parent.path() + "/none"); }),
                   {"no checkpoint in"}));
}

TEST(SaveLoad, TheSameStepGetsAnotherName) {
  const TemporaryDirectory directory;
  save_all(save_options(directory.path(), 10), small_matrices(), 1, 3);
  SaveOptions again = save_options(directory.path(), 10);
  again.metadata.target = "avx3";
  save_all(again, small_matrices(), 2, 2);
  EXPECT_EQ(list_checkpoints(directory.path()),
            (std::vector<std::string>{directory.path() + "/step-00000010",
                                      directory.path() + "/step-00000010.2"}));
  const Manifest manifest = read_manifest(directory.path());
  EXPECT_EQ(manifest.metadata.target, "avx3");
  EXPECT_EQ(manifest.metadata.ranks, 2);
  EXPECT_EQ(manifest.metadata.lineage.parent_name, "step-00000010");
  EXPECT_EQ(load_all({directory.path()}, small_matrices(), 3, 2), 0);
  EXPECT_EQ(load_all({directory.path() + "/step-00000010"}, small_matrices(), 3, 2), 0);
}

/// Until it goes out of scope no file of this process grows beyond `bytes`: the disk is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }

  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(SaveLoad, AFullDiskKeepsWhatThereWas) {
  const TemporaryDirectory directory;
  save_all(save_options(directory.path(), 10), small_matrices(), 1, 3);
  save_all(save_options(directory.path(), 20), small_matrices(), 2, 3);
  // At 0 bytes `latest` already fails in a rank's file, at 700 a rank's file or the manifest.
  for (const rlim_t limit : {0, 5, 50, 300, 700, 2000}) {
    const FullDisk full(limit);
    EXPECT_TRUE(says(checkpoint_error([&] {
                       save_all(save_options(directory.path(), 30), small_matrices(), 3, 3);
                     }),
                     {"earlier checkpoints are as they were"}))
        << limit;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 3)
        << "two steps and latest";
    EXPECT_EQ(find_checkpoint(directory.path()), directory.path() + "/step-00000020");
    EXPECT_EQ(load_all({directory.path()}, small_matrices(), 4, 2), 0);
  }
  {
    const FullDisk full(50);
    EXPECT_TRUE(says(checkpoint_error([&] {
                       save_all(save_options(directory.path(), 20), small_matrices(), 3, 3);
                     }),
                     {"cannot write"}));
  }
  EXPECT_EQ(load_all({directory.path()}, small_matrices(), 4, 2), 0);
  // What a killed save has left is removed by the next one.
  std::filesystem::create_directory(directory.path() + "/step-00000025.tmp");
  std::ofstream(directory.path() + "/step-00000025.tmp/rank-0000.bin") << "cut";
  save_all(save_options(directory.path(), 30), small_matrices(), 3, 3);
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/step-00000025.tmp"));
  EXPECT_EQ(find_checkpoint(directory.path()), directory.path() + "/step-00000030");
}

TEST(SaveLoad, AnErrorOfOneRankReachesAllAndTheyGoOn) {
  const TemporaryDirectory directory;
  std::atomic<int> told = 0;
  comm::run_local(4, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryState state = make_state(small_matrices(), 5, 1, 0);
    MemoryState none;
    if (world.rank() == 2) {
      state.fill();
      state.break_reads();
    }
    const StateSource* source = world.rank() == 2 ? &state : &none;
    try {
      save(world, ctx, save_options(directory.path(), 1), std::span(&source, 1));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResource);
      EXPECT_EQ(error.origin_rank(), 2);
      EXPECT_STREQ(error.what(), "the device has gone");
      ++told;
    }
    world.barrier(ctx);
  });
  EXPECT_EQ(told, 4);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SaveLoad, BlocksThatDoNotFitTogetherAreRefused) {
  const TemporaryDirectory directory;
  const Matrix m{"tables.a", "weight", DType::kFloat32, 10, 4};
  const auto save_rows = [&](const RowSet& first, const RowSet& second) {
    comm::run_local(2, {}, [&](comm::Communicator& world) {
      Context ctx;
      MemoryState state;
      state.add(m, world.rank() == 0 ? first : second, {0, 4}, 1);
      const StateSource* source = &state;
      save(world, ctx, save_options(directory.path(), 1), std::span(&source, 1));
    });
  };
  const auto message = [&](const RowSet& first, const RowSet& second) {
    try {
      save_rows(first, second);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_TRUE(says(message({0, 5}, {4, 10}), {"two blocks overlap"}));
  EXPECT_TRUE(says(message({0, 5}, {6, 10}), {"cover 144 of 160 bytes"}));
  EXPECT_EQ(message({0, 5}, {5, 10}), "");
  EXPECT_TRUE(says(message({0, 10, 2}, {0, 10, 2}), {"two blocks overlap"}));
  EXPECT_TRUE(says(message({0, 10, 2}, {2, 10, 2}), {"two blocks overlap"}));
  EXPECT_TRUE(says(message({0, 10, 2}, {3, 10, 2}), {"cover 144 of 160 bytes"}));
  EXPECT_TRUE(says(message({0, 10, 2}, {1, 10, 3}), {"rows in steps of 2 and of 3"}));
  EXPECT_TRUE(says(message({0, 10, 11}, {1, 10, 11}), {"rows in steps of 11 of 10"}));
  EXPECT_EQ(message({0, 10, 2}, {1, 10, 2}), "");
}

/// A matrix of several chunks on each of two ranks or three, as ranges or as every n-th row.
TEST(SaveLoad, RowsInStepsAndRangesFillEachOther) {
  const Matrix m{"tables.a", "weight", DType::kFloat32, 9001, 700};
  const auto own = [&](bool steps, const comm::Communicator& world) {
    MemoryState state;
    state.add(m,
              steps ? RowSet(world.rank(), m.rows, world.size())
                    : RowSet(piece(m.rows, world.size(), world.rank())),
              {0, 700}, 1);
    return state;
  };
  for (const bool from_steps : {true, false}) {
    const TemporaryDirectory directory;
    comm::run_local(2, {}, [&](comm::Communicator& world) {
      Context ctx;
      MemoryState state = own(from_steps, world);
      state.fill();
      const StateSource* source = &state;
      save(world, ctx, save_options(directory.path(), 1), std::span(&source, 1));
    });
    const std::string text = read_text(directory.path() + "/step-00000001/manifest.json");
    EXPECT_NE(text.find("\"version\": 4"), std::string::npos);
    EXPECT_EQ(text.find("\"by\": \"modulo\"") != std::string::npos, from_steps);
    for (const bool to_steps : {true, false}) {
      for (const int ranks : {2, 3}) {
        comm::run_local(ranks, {}, [&](comm::Communicator& world) {
          Context ctx;
          MemoryState state = own(to_steps, world);
          StateSink* sink = &state;
          load(world, ctx, {directory.path()}, std::span(&sink, 1));
          EXPECT_EQ(state.differences(), 0)
              << from_steps << " to " << to_steps << " on " << ranks << " ranks";
        });
      }
    }
  }
}

TEST(SaveLoad, OtherModelsAreRefusedByName) {
  const TemporaryDirectory directory;
  auto matrices = small_matrices();
  save_all(save_options(directory.path(), 10), matrices, 1, 2);
  const auto message = [&](const std::vector<Matrix>& job) {
    return checkpoint_error([&] { load_all({directory.path()}, job, 1, 2); });
  };
  auto more = matrices;
  more.push_back({"tables.x", "weight", DType::kFloat32, 2, 2});
  EXPECT_TRUE(says(message(more), {"does not hold tables.x weight"}));
  auto fewer = matrices;
  fewer.erase(fewer.begin() + 1);
  EXPECT_TRUE(says(message(fewer), {"also holds tables.a sum"}));
  EXPECT_EQ(load_all({directory.path(), ExtraItems::kIgnore}, fewer, 1, 2), 0);
  auto other = matrices;
  other[0].cols = 24;
  EXPECT_TRUE(says(message(other), {"tables.a weight is 13 x 20 fp32"}));
  EXPECT_TRUE(says(message(other), {"13 x 24 fp32 in this job"}));
  other = matrices;
  other[0].dtype = DType::kFloat16;
  EXPECT_TRUE(says(message(other), {"fp16 in this job"}));
}

/// Blocks that one rank may not copy are saved by all ranks before the constructor returns; others
/// are copied, so what changes afterwards is not in the checkpoint.
TEST(BackgroundBlocks, AreCopiedWhereAllRanksHaveRoom) {
  const auto matrices = small_matrices();
  for (const bool has_room : {false, true}) {
    const TemporaryDirectory directory;
    comm::run_local(3, {}, [&](comm::Communicator& world) {
      const std::unique_ptr<Device> device = make_device({});
      MemoryState state = make_state(matrices, 7, 3, world.rank());
      state.fill();
      Increments increments;
      SaveOptions options = save_options(directory.path(), 10);
      options.increments = &increments;
      options.copy_bytes = has_room ? 1 << 20 : 1;
      BackgroundSave save(world, *device, options, {&state});
      EXPECT_EQ(save.is_open(), has_room);
      state = make_state(matrices, 7, 3, world.rank());  // without its values
      const std::string where = save.finish();
      EXPECT_EQ(where, find_checkpoint(directory.path()));
      EXPECT_FALSE(save.is_open());
      EXPECT_NE(increments.base, 0U);
    });
    EXPECT_EQ(load_all({directory.path()}, matrices, 9, 2), 0) << has_room;
  }
}

}  // namespace
}  // namespace weft::checkpoint
