// One of 64 ranks throws, leaves, stops or is late before any exchange of any tree or relay: all
// ranks end, with its name. By hand, with WEFT_ALL_FAULTS=1 in the environment, more of them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/expect_fault.h"
#include "weft/base/hash.h"
#include "weft/comm/communicator.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/tensor/device.h"

namespace weft::comm {
namespace {

using testing::Fault;
using testing::FaultKind;
using testing::FaultOutcome;
using testing::hosts_of_sizes;

constexpr int kRanksOfFaults = 64;

struct NamedHosts {
  std::string name;
  std::vector<int> hosts;
};

const std::vector<NamedHosts>& layouts() {
  static const std::vector<NamedHosts> all = {
      {"hosts of 8", hosts_of_sizes(std::vector<int>(8, 8))},
      {"uneven hosts", hosts_of_sizes({1, 3, 8, 20, 32})},
      {"one host", hosts_of_sizes({kRanksOfFaults})},
      {"a host each", hosts_of_sizes(std::vector<int>(kRanksOfFaults, 1))}};
  return all;
}

/// A step is what ranks do together, once.
struct Together {
  std::string name;
  std::function<void(Communicator& comm)> run;
};

void send_to_two(Communicator& comm) {
  Context ctx;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto self = static_cast<std::size_t>(comm.rank());
  std::vector<std::int64_t> out(2, comm.rank());
  std::vector<std::int64_t> in(2);
  const std::vector<Piece> pieces = {{&out[0], 8}, {&out[1], 8}, {&in[0], 8}, {&in[1], 8}};
  std::vector<Lane> send(ranks, Lane{.pieces = {}, .silent = true});
  std::vector<Lane> recv = send;
  for (const std::size_t i : {0U, 1U}) {
    const std::size_t away = i == 0 ? 1 : 9;
    send[(self + away) % ranks] = {.pieces = {&pieces[i], 1}};
    recv[(self + ranks - away) % ranks] = {.pieces = {&pieces[2 + i], 1}};
  }
  comm.exchange(ctx, send, recv);
}

void gather_lanes(Communicator& comm) {
  Context ctx;
  std::int64_t own = comm.rank();
  const Piece piece{&own, 8};
  const Piece expected{nullptr, 8};
  std::vector<std::int64_t> memory(static_cast<std::size_t>(comm.size()));
  std::vector<Piece> pieces;
  for (std::int64_t& one : memory) {
    pieces.push_back({&one, expected.bytes});
  }
  std::vector<Lane> recv;
  for (const Piece& one : pieces) {
    recv.push_back({.pieces = {&one, 1}});
  }
  comm.gather_lent(ctx, {.pieces = {&piece, 1}}, recv, [](std::span<const Lane>) {});
}

void sum_once(Communicator& comm, const ReduceCodec& codec) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  OrderedAllReduce reduce(comm, *device, kRanksOfFaults, 300, codec);
  std::fill_n(reduce.partial(0), 300 * reduce.num_partials(), 1.0F);
  const std::vector<std::uint8_t> present(static_cast<std::size_t>(reduce.num_partials()), 1);
  std::vector<float> sums(300);
  reduce.run(ctx, present, sums.data());
}

constexpr std::size_t kTrees = 4;  // the first steps

/// Trees and relays, and what is flat by nature.
const std::vector<Together>& steps() {
  static const std::vector<Together> list = {
      {"barrier",
       [](Communicator& comm) {
         Context ctx;
         comm.barrier(ctx);
       }},
      {"broadcast",
       [](Communicator& comm) {
         Context ctx;
         std::vector<std::byte> bytes(100);
         comm.broadcast(ctx, bytes.data(), 100, 5);
       }},
      {"merge",
       [](Communicator& comm) {
         Context ctx;
         std::vector<std::byte> block(40);
         comm.merge(ctx, block, [](std::span<std::byte>, std::span<const std::byte>) {});
       }},
      {"short sum",
       [](Communicator& comm) {
         Context ctx;
         std::vector<float> data(10);
         comm.all_reduce(ctx, data.data(), 10);
       }},
      {"long sum",
       [](Communicator& comm) {
         Context ctx;
         std::vector<float> data(4000);
         comm.all_reduce(ctx, data.data(), 4000);
       }},
      {"all_gather",
       [](Communicator& comm) {
         Context ctx;
         std::vector<std::int64_t> all(kRanksOfFaults);
         const std::int64_t own = comm.rank();
         comm.all_gather(ctx, &own, all.data(), 8);
       }},
      {"gather of lanes", gather_lanes},
      {"all_to_all",
       [](Communicator& comm) {
         Context ctx;
         std::vector<std::int64_t> send(kRanksOfFaults);
         std::vector<std::int64_t> recv(kRanksOfFaults);
         comm.all_to_all(ctx, send.data(), recv.data(), 8);
       }},
      {"few lanes", send_to_two},
      {"dense sum", [](Communicator& comm) { sum_once(comm, {}); }},
      {"encoded dense sum",
       [](Communicator& comm) {
         sum_once(comm, {.codec = {.format = CodecFormat::kBf16}, .error_feedback = true});
       }},
      {"groups", [](Communicator& comm) { comm.split(comm.rank() % 3, 0, "thirds"); }},
      {"relayed dense sum",
       [](Communicator& comm) { sum_once(comm, {.crossing = Crossing::kRelayed}); }},
      {"encoded relayed dense sum", [](Communicator& comm) {
         sum_once(comm, {.codec = {.format = CodecFormat::kBf16},
                         .error_feedback = true,
                         .crossing = Crossing::kRelayed});
       }}};
  return list;
}

/// The step, a second time with the fault, and a barrier in which ranks that were through hear
/// of it.
FaultOutcome run_step(const NamedHosts& layout, const Together& step, const Fault& fault) {
  return testing::run_with(fault, layout.hosts, [&](Communicator& world, testing::FaultyRun& run) {
    const auto comm = world.duplicate("test", Form::kHierarchical);
    step.run(*comm);
    run.arm(world.rank());
    step.run(*comm);
    Context ctx;
    world.barrier(ctx);
  });
}

/// Ranks that have something to do in a tree or a relay, and some that have not.
int drawn_rank(std::uint64_t& seed) {
  constexpr std::array<int, 8> kChosen = {0, 1, 8, 9, 32, 37, 56, 63};
  seed = mix64(seed + 1);
  return kChosen[seed % kChosen.size()];
}

/// Exchanges of a rank in the step itself.
int exchanges_of(const NamedHosts& layout, const Together& step) {
  const FaultOutcome whole = run_step(layout, step, {.kind = FaultKind::kNone, .rank = 37});
  EXPECT_EQ(whole.seen, std::vector<std::string>(kRanksOfFaults)) << step.name;
  int count = 0;
  for (const testing::NamedExchange& one : whole.exchanges) {
    count += one.name == "barrier of group 'world'" ? 0 : 1;
  }
  EXPECT_GT(count, 0) << step.name;
  return count;
}

/// Returns whether this layout and step have their turn.
bool is_chosen(int layout, std::size_t step, bool waits) {
  if (testing::all_faults() || layout == 0) {
    return true;
  }
  // A flat form has trees of its own alone; every wait takes its time.
  return layout == 1 ? step % (waits ? 4 : 2) == 1 : layout == 2 && step < kTrees;
}

class Faults : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] static const NamedHosts& layout() {
    return layouts()[static_cast<std::size_t>(GetParam())];
  }
};

INSTANTIATE_TEST_SUITE_P(Layouts, Faults, ::testing::Values(0, 1, 2, 3));

TEST_P(Faults, ARankThatThrowsOrLeavesEndsAll) {
  std::uint64_t seed = 1;
  for (std::size_t i = 0; i < steps().size(); ++i) {
    const Together& step = steps()[i];
    if (!is_chosen(GetParam(), i, false)) {
      continue;
    }
    const int exchanges = exchanges_of(layout(), step);
    for (int before = 0; before < exchanges; ++before) {
      const FaultKind kind = before % 2 == 0 ? FaultKind::kThrows : FaultKind::kLeaves;
      const Fault fault{.kind = kind, .rank = drawn_rank(seed), .before = before};
      expect_named(fault, run_step(layout(), step, fault), layout().name + ", " + step.name);
    }
  }
}

TEST_P(Faults, ARankThatStopsOrIsLateIsNamed) {
  std::uint64_t seed = 2;
  for (std::size_t i = 0; i < steps().size(); ++i) {
    const Together& step = steps()[i];
    if (!is_chosen(GetParam(), i, true)) {
      continue;
    }
    seed = mix64(seed);
    const Fault fault{.kind = seed % 2 == 0 ? FaultKind::kStops : FaultKind::kLate,
                      .rank = drawn_rank(seed),
                      .before = static_cast<int>(
                          seed % static_cast<std::uint64_t>(exchanges_of(layout(), step)))};
    expect_named(fault, run_step(layout(), step, fault), layout().name + ", " + step.name);
  }
}

}  // namespace
}  // namespace weft::comm
