/// Links that are slow: every long message takes 50 ms to be sent, and a rank is waited for one
/// second.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "weft/comm/mpi/mpi.h"
#include "weft/comm/mpi/mpi_calls.h"
#include "weft/comm/work_watch.h"

namespace {

constexpr int kPiece = 64 << 10;
constexpr std::int64_t kBytes = 64 * kPiece;  // 3.2 s

}  // namespace

/// MPI's own, on a slow link. The progress thread calls it, which handles what has arrived between
/// two messages only.
extern "C" int MPI_Isend(const void* data,
                         int count,
                         MPI_Datatype type,
                         int to,
                         int tag,
                         MPI_Comm comm,
                         MPI_Request* request) {
  if (count >= kPiece) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

namespace weft::comm {
namespace {

Communicator* world = nullptr;

void exchange_slowly(Communicator& comm) {
  Context ctx;
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<std::byte> send(ranks * kBytes);
  std::vector<std::byte> recv(send.size());
  for (std::size_t i = 0; i < send.size(); ++i) {
    send[i] = static_cast<std::byte>((i / 4093 + static_cast<std::size_t>(comm.rank())) % 251);
  }
  comm.all_to_all(ctx, send.data(), recv.data(), kBytes);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < recv.size(); ++i) {
    const std::size_t from = i / kBytes;
    const std::size_t at = static_cast<std::size_t>(comm.rank()) * kBytes + i % kBytes;
    wrong += recv[i] == static_cast<std::byte>((at / 4093 + from) % 251) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
}

TEST(MpiSlow, AnExchangeWhoseBytesMoveDoesNotTimeOut) {
  exchange_slowly(*world);
}

TEST(MpiSlow, AnUrgentMessageDoesNotWaitBehindALongOne) {
  const auto urgent = world->duplicate("urgent");
  Context ctx;
  std::atomic<bool> done = false;
  std::thread thread([&] {
    exchange_slowly(*world);
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the long one is under way
  for (int i = 0; i < 3; ++i) {
    urgent->barrier(ctx);
  }
  EXPECT_FALSE(done);
  thread.join();
}

TEST(MpiSlow, OthersWaitForWorkThatMoves) {
  Context ctx;
  if (world->rank() == 1) {
    WorkProgress progress;
    WorkWatch watch(*world, progress);
    for (int i = 0; i < 50; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      progress.move();
      watch.look();
    }
  }
  world->barrier(ctx);
}

}  // namespace
}  // namespace weft::comm

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int status = 1;
  try {
    weft::comm::MpiSession session({.timeout_s = 1.0, .max_message_bytes = kPiece});
    session.run([&](weft::comm::Communicator& own) {
      weft::comm::world = &own;
      status = RUN_ALL_TESTS();
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return status;
}
