/// These tests count what one rank hands to MPI: messages, their lengths, and the requests that it
/// asks about. Short lanes are one message, silent ones none, and a request that is done is never
/// tested again.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/mpi_main.h"
#include "weft/comm/communicator.h"
#include "weft/comm/mpi/mpi_calls.h"

namespace {

struct Counts {
  std::atomic<std::int64_t> sends = 0;
  std::atomic<std::int64_t> sent_bytes = 0;
  std::atomic<std::int64_t> receives = 0;
  std::atomic<std::int64_t> room = 0;         ///< bytes of receives
  std::atomic<std::int64_t> most_tested = 0;  ///< requests in one test
  std::atomic<std::int64_t> done_tested = 0;  ///< requests in tests that were done before
};

Counts counts;

/// Tag 0 is that of errors and of the world, which tests leave alone.
bool counted(int tag) {
  return tag > 0;
}

}  // namespace

extern "C" int MPI_Isend(const void* data,
                         int count,
                         MPI_Datatype type,
                         int to,
                         int tag,
                         MPI_Comm comm,
                         MPI_Request* request) {
  if (counted(tag)) {
    ++counts.sends;
    counts.sent_bytes += count;
  }
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

extern "C" int MPI_Irecv(void* data,
                         int count,
                         MPI_Datatype type,
                         int from,
                         int tag,
                         MPI_Comm comm,
                         MPI_Request* request) {
  if (counted(tag)) {
    ++counts.receives;
    counts.room += count;
  }
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

extern "C" int MPI_Testsome(
    int count, MPI_Request requests[], int* completed, int indices[], MPI_Status statuses[]) {
  counts.done_tested += std::count(requests, requests + count, MPI_REQUEST_NULL);
  counts.most_tested = std::max<std::int64_t>(counts.most_tested, count);
  return PMPI_Testsome(count, requests, completed, indices, statuses);
}

namespace weft::comm {
namespace {

using testing::world;

constexpr std::int64_t kHeader = 64;
constexpr std::int64_t kMessage = 10000;  // of mpi_main.h, and so the longest short lane

/// The messages and requests that a call of this rank has handed to MPI.
struct Handed {
  std::int64_t sends = 0;
  std::int64_t sent_bytes = 0;
  std::int64_t receives = 0;
  std::int64_t room = 0;
  std::int64_t most_tested = 0;
  std::int64_t done_tested = 0;
};

Handed handed_by(const std::function<void()>& call) {
  counts.sends = counts.sent_bytes = counts.receives = counts.room = 0;
  counts.most_tested = counts.done_tested = 0;
  call();
  return {counts.sends, counts.sent_bytes,  counts.receives,
          counts.room,  counts.most_tested, counts.done_tested};
}

Handed all_to_all(Communicator& comm, std::int64_t bytes) {
  Context ctx;
  const auto all = static_cast<std::size_t>(comm.size() * bytes);
  std::vector<std::byte> send(all);
  std::vector<std::byte> recv(all);
  return handed_by([&] { comm.all_to_all(ctx, send.data(), recv.data(), bytes); });
}

/// Every rank sends to the next one, and all other lanes are silent.
Handed to_the_next(Communicator& comm, std::int64_t bytes) {
  Context ctx;
  const int ranks = comm.size();
  std::vector<std::byte> sent(static_cast<std::size_t>(bytes), std::byte(comm.rank() + 1));
  std::vector<std::byte> came(sent.size());
  Piece out{.data = sent.data(), .bytes = bytes};
  Piece in{.data = came.data(), .bytes = bytes};
  std::vector<Lane> send(static_cast<std::size_t>(ranks), Lane{.pieces = {}, .silent = true});
  std::vector<Lane> recv = send;
  const int before = (comm.rank() + ranks - 1) % ranks;
  send[static_cast<std::size_t>((comm.rank() + 1) % ranks)] = {.pieces = {&out, 1}};
  recv[static_cast<std::size_t>(before)] = {.pieces = {&in, 1}};
  const Handed handed = handed_by([&] { comm.exchange(ctx, send, recv); });
  EXPECT_EQ(std::count(came.begin(), came.end(), std::byte(before + 1)), bytes);
  return handed;
}

std::unique_ptr<Communicator> group() {
  return world()->duplicate("counted");
}

TEST(MpiMessages, AShortLaneIsOneMessageWithItsHeader) {
  const auto comm = group();
  const std::int64_t peers = comm->size() - 1;
  for (const std::int64_t bytes :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{5000}, kMessage}) {
    const Handed handed = all_to_all(*comm, bytes);
    EXPECT_EQ(handed.sends, peers) << bytes;
    EXPECT_EQ(handed.receives, peers) << bytes;
    EXPECT_EQ(handed.sent_bytes, peers * (kHeader + bytes));
    EXPECT_EQ(handed.room, peers * (kHeader + kMessage)) << "a slot has room for any short lane";
  }
}

TEST(MpiMessages, ALongLaneIsAHeaderAndMessagesOfBoundedLength) {
  const auto comm = group();
  const std::int64_t peers = comm->size() - 1;
  for (const std::int64_t bytes : {kMessage + 1, 20 * kMessage, 20 * kMessage + 1}) {
    const Handed handed = all_to_all(*comm, bytes);
    const std::int64_t messages = 1 + (bytes + kMessage - 1) / kMessage;
    EXPECT_EQ(handed.sends, peers * messages) << bytes;
    EXPECT_EQ(handed.receives, peers * messages) << bytes;
    EXPECT_EQ(handed.sent_bytes, peers * (kHeader + bytes));
  }
}

TEST(MpiMessages, ASilentLaneHasNoMessageAndNoSlot) {
  const auto comm = group();
  for (const std::int64_t bytes : {0, 3, 9000}) {
    const Handed handed = to_the_next(*comm, bytes);
    EXPECT_EQ(handed.sends, 1);
    EXPECT_EQ(handed.receives, 1);
    EXPECT_EQ(handed.sent_bytes, kHeader + bytes);
    EXPECT_EQ(handed.room, kHeader + kMessage);
    EXPECT_LE(handed.most_tested, 2);
  }
}

TEST(MpiMessages, OnlyRequestsUnderWayAreTested) {
  const auto comm = group();
  const std::int64_t peers = comm->size() - 1;
  for (int i = 0; i < 20; ++i) {
    for (const std::int64_t bytes : {std::int64_t{100}, 30 * kMessage}) {
      // A header and two messages of data in each direction.
      const Handed all = all_to_all(*comm, bytes);
      EXPECT_EQ(all.done_tested, 0);
      EXPECT_LE(all.most_tested, peers * 6);
      const Handed one = to_the_next(*comm, bytes);
      EXPECT_EQ(one.done_tested, 0);
      EXPECT_LE(one.most_tested, 6);
    }
  }
}

}  // namespace
}  // namespace weft::comm

int main(int argc, char** argv) {
  return weft::comm::testing::run_all_tests(argc, argv);
}
