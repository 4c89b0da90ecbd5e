#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weft/comm/local/local.h"

namespace weft::comm {
namespace {

using Counts = std::vector<std::vector<std::int64_t>>;

std::uint8_t value(int from, int to, std::int64_t i) {
  return static_cast<std::uint8_t>(from * 41 + to * 17 + i);
}

/// Every rank sends counts[r][p] bytes to rank p; true where it receives what was sent to it.
bool exchanges(Communicator& world, const Counts& counts) {
  Context ctx;
  const int self = world.rank();
  const auto ranks = counts.size();
  std::vector<std::int64_t> send_bytes = counts[static_cast<std::size_t>(self)];
  std::vector<std::int64_t> recv_bytes(ranks);
  std::vector<std::uint8_t> send;
  std::vector<std::uint8_t> expected;
  for (std::size_t p = 0; p < ranks; ++p) {
    const int peer = static_cast<int>(p);
    recv_bytes[p] = counts[p][static_cast<std::size_t>(self)];
    for (std::int64_t i = 0; i < send_bytes[p]; ++i) {
      send.push_back(value(self, peer, i));
    }
    for (std::int64_t i = 0; i < recv_bytes[p]; ++i) {
      expected.push_back(value(peer, self, i));
    }
  }
  std::vector<std::uint8_t> recv(expected.size());
  world.all_to_all_v(ctx, {send.data(), send_bytes, recv.data(), recv_bytes});
  return recv == expected;
}

RC_GTEST_PROP(AllToAllV, DeliversEveryByte, ()) {
  const int ranks = *rc::gen::inRange(1, 9);
  Counts counts(static_cast<std::size_t>(ranks));
  for (auto& row : counts) {
    row = *rc::gen::container<std::vector<std::int64_t>>(
        static_cast<std::size_t>(ranks),
        rc::gen::oneOf(rc::gen::just<std::int64_t>(0), rc::gen::inRange<std::int64_t>(0, 3000)));
  }
  std::vector<char> good(static_cast<std::size_t>(ranks), 0);
  run_local(ranks, {}, [&](Communicator& world) {
    const bool first = exchanges(world, counts);
    const bool second = exchanges(world, counts);
    good[static_cast<std::size_t>(world.rank())] = first && second ? 1 : 0;
  });
  for (const char each : good) {
    RC_ASSERT(each == 1);
  }
}

}  // namespace
}  // namespace weft::comm
