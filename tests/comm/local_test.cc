#include "weft/comm/local/local.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/cases.h"
#include "weft/base/error.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/stream.h"

namespace weft::comm {
namespace {

/// Fails unless `text` contains every one of `parts`.
void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
  }
}

class LocalRanks : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, LocalRanks, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(LocalRanks, CollectivesGiveClosedForms) {
  for (const std::int64_t count : {0, 1, 7, 1025, 40001}) {
    run_local(GetParam(), {},
              [&](Communicator& world) { testing::check_collectives(world, count); });
  }
}

TEST_P(LocalRanks, PiecesOfRows) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    run_local(GetParam(), {}, [&](Communicator& world) { testing::check_rows(world, seed); });
  }
}

TEST_P(LocalRanks, TrafficIsAsDocumented) {
  run_local(GetParam(), {}, [](Communicator& world) { testing::check_traffic(world); });
}

TEST_P(LocalRanks, GroupsOfGroups) {
  run_local(GetParam(), {}, [](Communicator& world) { testing::check_groups(world); });
}

TEST_P(LocalRanks, GroupsAtTheSameTime) {
  run_local(GetParam(), {}, [](Communicator& world) { testing::check_concurrent_groups(world); });
}

TEST_P(LocalRanks, OrderedReduceIsThePlainTreeOverParts) {
  for (const std::int64_t parts : testing::fewer_if_slow({8, 11, 5, 7})) {
    for (const std::int64_t count : {0, 1, 3, 1000, 20011}) {
      if (GetParam() <= parts) {
        run_local(GetParam(), {},
                  [&](Communicator& world) { testing::check_ordered_reduce(world, parts, count); });
      }
    }
  }
}

TEST_P(LocalRanks, SmallSumsOfParts) {
  for (const std::int64_t parts : {5, 8, 11}) {
    if (GetParam() <= parts) {
      run_local(GetParam(), {}, [&](Communicator& world) { testing::check_parts(world, parts); });
    }
  }
}

TEST_P(LocalRanks, ExchangeOfPieces) {
  run_local(GetParam(), {}, [](Communicator& world) {
    // Two pieces to every rank, nothing to oneself.
    Context ctx;
    const auto ranks = static_cast<std::size_t>(world.size());
    std::vector<std::int64_t> out(ranks * 2);
    std::vector<std::int64_t> in(ranks * 2, -1);
    std::vector<Piece> pieces(ranks * 4);
    std::vector<Lane> send(ranks, Lane{.pieces = {}, .silent = true});
    std::vector<Lane> recv = send;
    for (std::size_t p = 0; p < ranks; ++p) {
      out[p] = world.rank() * 10 + static_cast<int>(p);
      out[ranks + p] = -out[p];
      pieces[p * 4] = {&out[p], 8};
      pieces[p * 4 + 1] = {&out[ranks + p], 8};
      pieces[p * 4 + 2] = {&in[p], 8};
      pieces[p * 4 + 3] = {&in[ranks + p], 8};
      if (p != static_cast<std::size_t>(world.rank())) {
        send[p] = {.pieces = {&pieces[p * 4], 2}};
        recv[p] = {.pieces = {&pieces[p * 4 + 2], 2}};
      }
    }
    world.exchange(ctx, send, recv);
    for (std::size_t p = 0; p < ranks; ++p) {
      const std::int64_t expected = static_cast<int>(p) * 10 + world.rank();
      const bool self = p == static_cast<std::size_t>(world.rank());
      EXPECT_EQ(in[p], self ? -1 : expected);
      EXPECT_EQ(in[ranks + p], self ? -1 : -expected);
    }
  });
}

TEST_P(LocalRanks, StagesOnTheCheckDevice) {
  run_local(GetParam(), {}, [](Communicator& world) {
    const auto device = make_device({.kind = DeviceKind::kCheck,
                                     .threads = 2,
                                     .check_seed = static_cast<std::uint64_t>(world.rank()) + 1});
    constexpr std::int64_t kCount = 10007;
    OrderedAllReduce reduce(world, *device, 8, kCount);
    const auto other = world.duplicate("other");
    Buffer sums(*device, kCount * 4);
    Buffer ranks(*device, world.size() * 8);
    const std::vector<std::uint8_t> present(static_cast<std::size_t>(reduce.num_partials()), 1);
    const auto dense = device->make_stream({.name = "dense"});
    const auto control = device->make_stream({.name = "control"});
    const Stage produce = [&](Context&) {
      for (std::int64_t k = 0; k < reduce.num_partials(); ++k) {
        std::fill_n(reduce.partial(k), kCount, static_cast<float>(reduce.partial_parts(k).size()));
      }
    };
    const Stage sum = [&](Context& ctx) { reduce.run(ctx, present, sums.as<float>()); };
    const Stage gather = [&](Context& ctx) {
      ranks.as<std::int64_t>()[world.rank()] = world.rank();
      other->all_gather(ctx, ranks.as<std::int64_t>() + world.rank(), ranks.as<void>(), 8);
    };
    for (int step = 0; step < 3; ++step) {
      dense->enqueue(produce);
      dense->enqueue(sum);
      control->enqueue(gather);
    }
    dense->synchronize();
    control->synchronize();
    Context ctx{.device = device.get()};
    std::vector<float> result(kCount);
    device->copy_to_host(ctx, result.data(), sums.as<float>(), kCount * 4);
    EXPECT_EQ(result, std::vector<float>(kCount, 8.0F));
    std::vector<std::int64_t> seen(static_cast<std::size_t>(world.size()));
    device->copy_to_host(ctx, seen.data(), ranks.as<std::int64_t>(), world.size() * 8);
    for (int p = 0; p < world.size(); ++p) {
      EXPECT_EQ(seen[static_cast<std::size_t>(p)], p);
    }
  });
}

// --- Failures ------------------------------------------------------------------------------------

/// What every rank's body saw, and what run_local threw.
struct Outcome {
  std::vector<std::string> seen;  ///< per rank, empty where the body returned
  std::vector<int> origins;
  std::string thrown;
  ErrorCode code = ErrorCode::kInternal;
  int origin = -1;
};

Outcome run_failing(int ranks,
                    const LocalOptions& options,
                    const std::function<void(Communicator&)>& body) {
  Outcome outcome;
  outcome.seen.resize(static_cast<std::size_t>(ranks));
  outcome.origins.resize(static_cast<std::size_t>(ranks), -1);
  try {
    run_local(ranks, options, [&](Communicator& world) {
      try {
        body(world);
      } catch (const Error& error) {
        outcome.seen[static_cast<std::size_t>(world.rank())] = error.what();
        outcome.origins[static_cast<std::size_t>(world.rank())] = error.origin_rank();
        throw;
      }
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    outcome.thrown = error.what();
    outcome.code = error.code();
    outcome.origin = error.origin_rank();
  }
  return outcome;
}

TEST(LocalFailure, AnExceptionReachesAllWaits) {
  const Outcome outcome = run_failing(4, {}, [](Communicator& world) {
    Context ctx;
    const auto pair = world.split(world.rank() / 2, 0, "pair");
    const auto copy = world.duplicate("copy");
    world.barrier(ctx);
    if (world.rank() == 2) {
      fail(ErrorCode::kData, "file day_3 is cut");
    }
    std::vector<float> data(5000);
    if (world.rank() == 0) {
      copy->all_reduce(ctx, data.data(), 5000);
    } else if (world.rank() == 3) {
      pair->barrier(ctx);
    } else {
      world.broadcast(ctx, data.data(), 100, 2);
    }
    ADD_FAILURE() << "rank " << world.rank() << " went on";
  });
  EXPECT_EQ(outcome.code, ErrorCode::kData);
  EXPECT_EQ(outcome.thrown, "file day_3 is cut");
  EXPECT_EQ(outcome.origin, 2);
  for (const std::string& text : outcome.seen) {
    EXPECT_EQ(text, "file day_3 is cut");
  }
  EXPECT_EQ(outcome.origins, (std::vector<int>{2, 2, -1, 2}));
}

TEST(LocalFailure, OtherExceptionsBecomeInternal) {
  try {
    run_local(3, {}, [](Communicator& world) {
      Context ctx;
      if (world.rank() == 1) {
        throw std::runtime_error("something odd");
      }
      world.barrier(ctx);
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_STREQ(error.what(), "something odd");
    EXPECT_EQ(error.origin_rank(), 1);
  }
}

TEST(LocalFailure, AnErrorEndsAllLaterCalls) {
  run_failing(2, {}, [](Communicator& world) {
    Context ctx;
    if (world.rank() == 0) {
      world.abort(Error(ErrorCode::kData, "bad"));
    }
    EXPECT_THROW(
        {
          while (true) {
            world.barrier(ctx);
          }
        },
        Error);
    EXPECT_THROW(world.barrier(ctx), Error);
    EXPECT_THROW(world.check(), Error);
    world.check();
  });
}

TEST(LocalFailure, TimeoutNamesWhoIsMissing) {
  std::atomic<bool> thrown = false;
  const Outcome outcome = run_failing(4, {.timeout_s = 1.0}, [&](Communicator& world) {
    Context ctx;
    const auto odd = world.split(world.rank() % 2, 0, "odd_or_even");
    if (world.rank() == 3) {
      while (!thrown) {  // busy with something else
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      world.check();
    }
    try {
      odd->barrier(ctx);
      world.barrier(ctx);
    } catch (...) {
      thrown = true;
      throw;
    }
  });
  EXPECT_EQ(outcome.code, ErrorCode::kTimeout);
  expect_parts(outcome.thrown, {"barrier #", "has waited 1.0 s", "missing: ", "rank 3"});
  for (const std::string& text : outcome.seen) {
    EXPECT_EQ(text, outcome.thrown);
  }
}

TEST(LocalFailure, AnotherCollectiveIsNamed) {
  const Outcome outcome = run_failing(3, {}, [](Communicator& world) {
    Context ctx;
    world.barrier(ctx);
    std::vector<std::int64_t> data(3);
    if (world.rank() == 1) {
      world.all_gather(ctx, &data[0], data.data(), 8);
    } else {
      world.barrier(ctx);
    }
  });
  EXPECT_EQ(outcome.code, ErrorCode::kComm);
  expect_parts(outcome.thrown, {"out of step", "group 'world'", "rank 1 calls",
                                "all_gather #1 of 8 bytes", "barrier #1"});
  for (const std::string& text : outcome.seen) {
    EXPECT_EQ(text, outcome.thrown);
  }
}

TEST(LocalFailure, AnotherSizeIsNamed) {
  const Outcome outcome = run_failing(2, {}, [](Communicator& world) {
    Context ctx;
    std::vector<float> data(100);
    world.all_reduce(ctx, data.data(), world.rank() == 0 ? 10 : 12);
  });
  expect_parts(outcome.thrown, {"all_reduce #0 of 40 bytes", "all_reduce #0 of 48 bytes"});
}

TEST(LocalFailure, AnotherOperationIsNamed) {
  const Outcome outcome = run_failing(2, {}, [](Communicator& world) {
    Context ctx;
    std::vector<float> data(100);
    world.all_reduce(ctx, data.data(), 10, world.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax);
  });
  expect_parts(outcome.thrown, {"another type, operation, root or name"});
}

TEST(LocalFailure, WrongCountsAreNamed) {
  const Outcome outcome = run_failing(3, {}, [](Communicator& world) {
    Context ctx;
    const auto group = world.split(world.rank() == 0 ? -1 : 0, 0, "last two");
    if (!group) {
      return;
    }
    std::vector<std::byte> send(64);
    std::vector<std::byte> recv(64);
    const std::vector<std::int64_t> sent = {10, 10};
    const std::vector<std::int64_t> expected =
        group->rank() == 0 ? std::vector<std::int64_t>{10, 10} : std::vector<std::int64_t>{12, 10};
    group->all_to_all_v(ctx, {send.data(), sent, recv.data(), expected});
  });
  EXPECT_EQ(outcome.code, ErrorCode::kComm);
  EXPECT_EQ(outcome.origin, 2);
  expect_parts(outcome.thrown, {"all_to_all #0 of group 'last two': rank 0 (world rank 1) sends 10 "
                                "bytes to rank 1 (world rank 2), which expects 12 bytes"});
}

TEST(LocalFailure, RowsOfOtherLengthsAreNamed) {
  const Outcome outcome = run_failing(2, {}, [](Communicator& world) {
    Context ctx;
    std::vector<std::byte> memory(240);
    // 120 bytes in rows of 12 and of 8.
    const std::int64_t row_bytes = world.rank() == 0 ? 12 : 8;
    const Piece piece{memory.data(), 120, row_bytes, 2 * row_bytes};
    const std::vector<Lane> lanes(2, Lane{.pieces = {&piece, 1}});
    world.exchange(ctx, lanes, lanes);
  });
  EXPECT_EQ(outcome.code, ErrorCode::kUsage);
  expect_parts(outcome.thrown, {"120 bytes in rows of", "where rows of"});
}

TEST(LocalFailure, AnExceptionWhileReadingWhatIsLent) {
  const Outcome outcome = run_failing(3, {}, [](Communicator& world) {
    Context ctx;
    std::vector<std::byte> memory(100);
    const Piece piece{memory.data(), 100};
    const std::vector<Lane> lanes(3, Lane{.pieces = {&piece, 1}});
    world.exchange_lent(ctx, lanes, lanes, [&](std::span<const Lane>) {
      if (world.rank() == 1) {
        fail(ErrorCode::kData, "row 7 is outside");
      }
    });
    world.barrier(ctx);
  });
  EXPECT_EQ(outcome.code, ErrorCode::kData);
  EXPECT_EQ(outcome.thrown, "row 7 is outside");
  EXPECT_EQ(outcome.origin, 1);
  for (const std::string& text : outcome.seen) {
    EXPECT_EQ(text, outcome.thrown);
  }
}

TEST(LocalFailure, ARankThatReturnsEarlyIsNamed) {
  const Outcome outcome = run_failing(3, {}, [](Communicator& world) {
    Context ctx;
    world.barrier(ctx);
    if (world.rank() != 0) {
      world.barrier(ctx);
    }
  });
  EXPECT_EQ(outcome.code, ErrorCode::kComm);
  expect_parts(outcome.thrown, {"waits for rank 0, which has ended"});
}

/// Blocks until rank 0 is seen waiting in its first barrier, which no one else may end before.
void await_barrier(const ActivityLog& activity) {
  while (activity.describe().find("rank 0: barrier #0 of group 'world' for ") ==
         std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(LocalFailure, TheLogTellsWhoWaits) {
  const auto activity = std::make_shared<ActivityLog>();
  const Outcome outcome = run_failing(2, {.activity = activity}, [&](Communicator& world) {
    Context ctx;
    if (world.rank() == 1) {
      await_barrier(*activity);
      fail(ErrorCode::kData, "enough");
    }
    world.barrier(ctx);
  });
  EXPECT_EQ(outcome.thrown, "enough");
  EXPECT_EQ(activity->describe(), "no collective under way");
}

TEST(LocalFailure, AbortsWhileOthersCopy) {
  // Many rounds of errors in the middle of traffic: buffers must not be read after their owner
  // has left. The sanitizers judge.
  for (int round = 0; round < 30; ++round) {
    try {
      run_local(4, {}, [&](Communicator& world) {
        Context ctx;
        for (int i = 0;; ++i) {
          std::vector<float> data(20000, 1.0F);
          if (world.rank() == round % 4 && i == round % 5) {
            fail(ErrorCode::kData, "stop");
          }
          world.all_reduce(ctx, data.data(), 20000);
        }
      });
      FAIL();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "stop");
      EXPECT_EQ(error.origin_rank(), round % 4);
    }
  }
}

TEST(LocalFailure, TwoThreadsOnOneCommunicator) {
  const auto activity = std::make_shared<ActivityLog>();
  std::atomic<bool> refused = false;
  run_local(2, {.activity = activity}, [&](Communicator& world) {
    Context ctx;
    if (world.rank() == 0) {
      std::thread first([&] { world.barrier(ctx); });
      await_barrier(*activity);
      EXPECT_THROW(world.barrier(ctx), Error);
      refused = true;
      first.join();
      return;
    }
    while (!refused) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    world.barrier(ctx);
  });
}

TEST(LocalFailure, AnotherNameIsNamed) {
  const Outcome outcome = run_failing(2, {}, [](Communicator& world) {
    const auto group = world.duplicate(world.rank() == 0 ? "ids" : "vectors");
  });
  expect_parts(outcome.thrown, {"split #0", "another type, operation, root or name"});
}

TEST(Mpi, ABuildWithoutItSaysSo) {
  if (mpi_available()) {
    GTEST_SKIP() << "this build has MPI";
  }
  try {
    const MpiSession session({});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    expect_parts(error.what(), {"WEFT_ENABLE_MPI", "--ranks"});
  }
}

TEST(LocalFailure, NoRanks) {
  EXPECT_THROW(run_local(0, {}, [](Communicator&) {}), Error);
}

}  // namespace
}  // namespace weft::comm
