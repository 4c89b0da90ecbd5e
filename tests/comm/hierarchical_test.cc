// The hierarchical form over threads that pretend to be on several hosts.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/comm/cases.h"
#include "tests/comm/lost_rank.h"
#include "tests/comm/on_hosts.h"
#include "weft/base/error.h"
#include "weft/base/host_layout.h"
#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/tensor/memory_use.h"
#include "weft/trace/recorder.h"

namespace weft::comm {
namespace {

class OnHosts : public ::testing::TestWithParam<Hosts> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         OnHosts,
                         ::testing::Values(Hosts{0},
                                           Hosts{0, 0},
                                           Hosts{0, 1},
                                           Hosts{0, 0, 1},
                                           Hosts{4, 2, 2},
                                           Hosts{0, 0, 1, 1},
                                           Hosts{0, 1, 0, 1},
                                           Hosts{0, 0, 0, 1},
                                           Hosts{0, 1, 2, 3},
                                           Hosts{0, 0, 0, 1, 1},
                                           Hosts{0, 0, 0, 0, 1, 1, 1, 1},
                                           Hosts{0, 0, 1, 1, 2, 2, 3, 3},
                                           Hosts{0, 0, 0, 1, 1, 1, 2, 3},
                                           Hosts{0, 1, 1, 1, 1, 1, 1, 2}));

TEST_P(OnHosts, CollectivesGiveClosedForms) {
  for (const std::int64_t count : {0, 1, 7, 1025, 40001}) {
    run_on(GetParam(), [&](Communicator& comm) { testing::check_collectives(comm, count); });
  }
}

TEST_P(OnHosts, PiecesOfRows) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    run_on(GetParam(), [&](Communicator& comm) { testing::check_rows(comm, seed); });
  }
}

/// Lanes of one run each that lie behind each other, in the other order, or all in one place, some
/// of them cut into two pieces, some empty, some silent: what leaves from its own memory and what
/// is packed arrives.
TEST_P(OnHosts, LanesThatLieAnywhere) {
  enum class Order : std::uint8_t { kAscending, kDescending, kSame };
  constexpr std::int64_t kMost = 40;
  const auto size_of_lane = [](int from, int to, int cut) -> std::int64_t {
    return (from * 7 + to * 3 + cut) % 5 == 0 ? 0 : 8 + (from * 5 + to * 11) % (kMost - 8);
  };
  const auto is_silent = [](int from, int to) { return (from + 2 * to) % 4 == 3; };
  run_on(GetParam(), [&](Communicator& comm) {
    const int self = comm.rank();
    const auto ranks = static_cast<std::size_t>(comm.size());
    for (const Order order : {Order::kAscending, Order::kDescending, Order::kSame}) {
      for (int cut = 0; cut < 3; ++cut) {
        const auto size = [&](int from, int to) {
          return order == Order::kSame ? kMost : size_of_lane(from, to, cut);
        };
        const auto value = [&](int from, int to, std::int64_t i) {
          return static_cast<std::uint8_t>(from * 41 + (order == Order::kSame ? 0 : to * 17) + i);
        };
        std::vector<std::uint8_t> sent(ranks * kMost);
        std::vector<std::uint8_t> received(ranks * kMost, 1);
        std::vector<std::uint8_t> expected = received;
        std::vector<std::vector<Piece>> out(ranks);
        std::vector<std::vector<Piece>> in(ranks);
        std::vector<Lane> send;
        std::vector<Lane> recv;
        const auto cut_lane = [&](std::uint8_t* data, std::int64_t bytes, int from, int to) {
          const std::int64_t first =
              (from + to) % 3 < cut ? std::min<std::int64_t>(bytes, 5) : bytes;
          std::vector<Piece> pieces = {{data, first}};
          if (first < bytes || (from + to) % 3 < cut) {
            pieces.push_back({data + first, bytes - first});
          }
          return pieces;
        };
        std::int64_t next = order == Order::kDescending ? std::ssize(sent) : 0;
        std::int64_t place = 0;
        for (int p = 0; p < comm.size(); ++p) {
          const auto peer = static_cast<std::size_t>(p);
          const std::int64_t bytes = size(self, p);
          next -= order == Order::kDescending ? bytes : 0;
          for (std::int64_t i = 0; i < bytes; ++i) {
            sent[static_cast<std::size_t>(next + i)] = value(self, p, i);
          }
          out[peer] = cut_lane(sent.data() + next, bytes, self, p);
          next += order == Order::kAscending ? bytes : 0;
          in[peer] = cut_lane(received.data() + place, size(p, self), p, self);
          for (std::int64_t i = 0; i < size(p, self) && !is_silent(p, self); ++i) {
            expected[static_cast<std::size_t>(place + i)] = value(p, self, i);
          }
          place += kMost;
          send.push_back(is_silent(self, p) ? Lane{.pieces = {}, .silent = true} : Lane{out[peer]});
          recv.push_back(is_silent(p, self) ? Lane{.pieces = {}, .silent = true} : Lane{in[peer]});
        }
        Context ctx;
        comm.exchange(ctx, send, recv);
        EXPECT_EQ(received, expected) << "order " << static_cast<int>(order) << ", cut " << cut;
      }
    }
  });
}

TEST_P(OnHosts, GroupsOfGroups) {
  run_on(GetParam(), [](Communicator& comm) { testing::check_groups(comm); });
}

TEST_P(OnHosts, OneMessagePerPairOfHosts) {
  run_on(GetParam(), [](Communicator& comm) { testing::check_crossings(comm); });
}

TEST_P(OnHosts, OrderedReduceIsThePlainTreeOverParts) {
  for (const std::int64_t parts : testing::fewer_if_slow({8, 13, 11, 16})) {
    for (const std::int64_t count : {0, 1, 3, 1000, 20011}) {
      run_on(GetParam(),
             [&](Communicator& comm) { testing::check_ordered_reduce(comm, parts, count); });
    }
  }
}

TEST_P(OnHosts, OrderedReduceCrossesOncePerHostAndSubtree) {
  for (const std::int64_t parts : {8, 13}) {
    run_on(GetParam(), [&](Communicator& comm) { testing::check_reduce_crossings(comm, parts); });
  }
}

TEST(HierarchicalForm, EveryStageIsACollectiveOfTheTrace) {
  run_on({0, 0, 1, 1, 1}, [](Communicator& comm) {
    trace::Recorder recorder;
    trace::Track& track = recorder.make_track("compute", trace::TrackKind::kStream);
    recorder.start();
    Context ctx{.track = &track};
    std::vector<std::int64_t> send(5, comm.rank());
    std::vector<std::int64_t> recv(5);
    const std::vector<std::int64_t> bytes_each(5, 8);
    comm.all_to_all_v(ctx, {send.data(), bytes_each, recv.data(), bytes_each});
    ASSERT_EQ(track.spans().size(), 4U);
    const std::string host = comm.rank() < 2 ? "test.host0" : "test.host1";
    const std::vector<std::string> groups = {host, host, "test", host};
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const trace::Collective& moved = track.collective(track.spans()[i]);
      EXPECT_EQ(*moved.group, groups[i]) << "stage " << i;
      EXPECT_EQ(moved.cross_host_bytes, i == 2 ? moved.bytes : 0) << "stage " << i;
      bytes += moved.bytes;
    }
    EXPECT_EQ(bytes, comm.traffic().of(Collective::kAllToAll).bytes);
    const bool relays = comm.rank() == 0 || comm.rank() == 2;
    EXPECT_EQ(track.collective(track.spans()[2]).bytes, relays ? 8 + 6 * 8 : 0);
    // Blocks of one size need no stage of sizes.
    comm.all_to_all(ctx, send.data(), recv.data(), 8);
    ASSERT_EQ(track.spans().size(), 7U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(*track.collective(track.spans()[4 + i]).group, groups[1 + i]) << "stage " << i;
    }
    EXPECT_EQ(track.collective(track.spans()[5]).bytes, relays ? 8 + 6 * 8 : 0);
  });
}

/// Pieces behind each other are received where they belong; those apart come through a block.
TEST(HierarchicalForm, UnpacksOnlyLanesWhosePiecesLieApart) {
  constexpr std::int64_t kPiece = 256 * 1024;
  const Hosts hosts{0, 0, 1, 1};
  const auto taken = [&](std::int64_t gap) {
    std::int64_t bytes = 0;
    run_on(hosts, [&](Communicator& comm) {
      Context ctx;
      const std::size_t ranks = hosts.size();
      const std::int64_t each = 2 * kPiece + gap;
      std::vector<std::byte> out(static_cast<std::size_t>(2 * kPiece), std::byte{7});
      std::vector<std::byte> in(ranks * static_cast<std::size_t>(each));
      std::vector<Piece> sent{{out.data(), kPiece}, {out.data() + kPiece, kPiece}};
      std::vector<Piece> received;
      for (std::size_t p = 0; p < ranks; ++p) {
        std::byte* const begin = in.data() + p * static_cast<std::size_t>(each);
        received.push_back({begin, kPiece});
        received.push_back({begin + kPiece + gap, kPiece});
      }
      std::vector<Lane> send(ranks, Lane{.pieces = sent});
      std::vector<Lane> recv;
      for (std::size_t p = 0; p < ranks; ++p) {
        recv.push_back({.pieces = std::span(received).subspan(2 * p, 2)});
      }
      comm.barrier(ctx);
      const std::int64_t before = host_memory_use().now;
      comm.barrier(ctx);
      comm.exchange(ctx, send, recv);
      comm.barrier(ctx);
      if (comm.rank() == 0) {
        bytes = host_memory_use().now - before;
      }
      comm.barrier(ctx);
      EXPECT_EQ(std::count(in.begin(), in.end(), std::byte{7}),
                static_cast<std::int64_t>(ranks) * 2 * kPiece);
    });
    return bytes;
  };
  // Each rank has two senders on the other host.
  EXPECT_GE(taken(8) - taken(0), std::ssize(hosts) * 2 * 2 * kPiece);
}

TEST(HierarchicalForm, NeedsHostsWithSeveralRanks) {
  const auto form_on = [](const Hosts& hosts) {
    std::vector<Form> forms(hosts.size());
    run_on(hosts, [&](Communicator& comm) {
      forms[static_cast<std::size_t>(comm.rank())] = comm.form();
      EXPECT_EQ(comm.host_group() == nullptr, comm.form() == Form::kFlat);
    });
    return forms.front();
  };
  EXPECT_EQ(form_on({0, 0, 0}), Form::kFlat);
  EXPECT_EQ(form_on({0, 1, 2}), Form::kFlat);
  EXPECT_EQ(form_on({0, 1, 1}), Form::kHierarchical);
}

/// Every rank sends counts[r][p] bytes to rank p, in the flat and in the hierarchical form.
RC_GTEST_PROP(HierarchicalForm, DeliversWhatTheFlatOneDoes, ()) {
  const int ranks = *rc::gen::inRange(2, 9);
  const auto wide = static_cast<std::size_t>(ranks);
  const Hosts hosts = *rc::gen::container<Hosts>(wide, rc::gen::inRange(0, 4));
  std::vector<std::vector<std::int64_t>> counts(wide);
  for (auto& row : counts) {
    row = *rc::gen::container<std::vector<std::int64_t>>(
        wide,
        rc::gen::oneOf(rc::gen::just<std::int64_t>(0), rc::gen::inRange<std::int64_t>(0, 3000)));
  }
  std::vector<char> equal(wide, 0);
  run_on(hosts, [&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    const auto flat = comm.duplicate("flat");
    std::vector<std::int64_t> recv_bytes;
    std::vector<std::uint8_t> send;
    std::int64_t received = 0;
    for (std::size_t p = 0; p < wide; ++p) {
      recv_bytes.push_back(counts[p][self]);
      received += recv_bytes.back();
      for (std::int64_t i = 0; i < counts[self][p]; ++i) {
        send.push_back(static_cast<std::uint8_t>(self * 41 + p * 17 + static_cast<std::size_t>(i)));
      }
    }
    Context ctx;
    std::vector<std::uint8_t> there(static_cast<std::size_t>(received), 1);
    std::vector<std::uint8_t> here(there.size(), 2);
    for (int repeat = 0; repeat < 2; ++repeat) {
      comm.all_to_all_v(ctx, {send.data(), counts[self], there.data(), recv_bytes});
      flat->all_to_all_v(ctx, {send.data(), counts[self], here.data(), recv_bytes});
    }
    equal[self] = there == here ? 1 : 0;
  });
  for (const char each : equal) {
    RC_ASSERT(each == 1);
  }
}

// --- Errors --------------------------------------------------------------------------------------

using Step = std::function<void(Communicator& comm)>;

void exchange_lanes(Communicator& comm) {
  Context ctx;
  std::vector<std::int64_t> send(static_cast<std::size_t>(comm.size()) * 50);
  std::vector<std::int64_t> recv(send.size());
  const std::vector<std::int64_t> each(static_cast<std::size_t>(comm.size()), 400);
  comm.all_to_all_v(ctx, {send.data(), each, recv.data(), each});
}

void exchange_blocks(Communicator& comm) {
  Context ctx;
  std::vector<std::int64_t> send(static_cast<std::size_t>(comm.size()) * 50);
  std::vector<std::int64_t> recv(send.size());
  comm.all_to_all(ctx, send.data(), recv.data(), 400);
}

void reduce_parts(Communicator& comm, Crossing crossing) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  OrderedAllReduce reduce(comm, *device, 8, 500, {.crossing = crossing});
  std::fill_n(reduce.partial(0), 500 * reduce.num_partials(), 1.0F);
  reduce.run(ctx, std::vector<std::uint8_t>(static_cast<std::size_t>(reduce.num_partials()), 1));
}

TEST(HierarchicalErrors, ARankLostInAnyStageEndsAllWithTheCause) {
  const Hosts hosts = {0, 0, 1, 1, 1};
  const auto reduce = [](Communicator& comm) { reduce_parts(comm, Crossing::kDirect); };
  const auto relayed = [](Communicator& comm) { reduce_parts(comm, Crossing::kRelayed); };
  const auto of = [](const Step& step) {
    return [&step](Communicator& comm) { return [&step, &comm] { step(comm); }; };
  };
  for (int after = 0; after < 6; ++after) {
    for (const int lost : {0, 1, 4}) {      // a relay, and ranks that are none
      std::vector<Step> steps = {relayed};  // of six exchanges
      if (after < 4) {
        steps.insert(steps.end(), {exchange_lanes, reduce});
      }
      if (after < 3) {
        steps.emplace_back(exchange_blocks);
      }
      for (const Step& step : steps) {
        for (const std::string& error : errors_when_lost(hosts, lost, after, of(step))) {
          EXPECT_EQ(error, "the disk is gone") << "rank " << lost << " before exchange " << after;
        }
      }
    }
  }
}

/// Rank 0 sends other sizes than the others expect, by `wrong` to rank 2 and `less` to rank 3.
std::string error_of_sizes(std::int64_t more, std::int64_t less) {
  try {
    run_on({0, 0, 1, 1}, [&](Communicator& comm) {
      Context ctx;
      const std::vector<std::int64_t> expected(4, 16);
      std::vector<std::int64_t> sent = expected;
      if (comm.rank() == 0) {
        sent[2] += more;
        sent[3] -= less;
      }
      std::vector<std::byte> send(128);
      std::vector<std::byte> recv(64);
      comm.all_to_all_v(ctx, {send.data(), sent, recv.data(), expected});
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kComm);
    return error.what();
  }
  return "";
}

TEST(HierarchicalErrors, WrongSizesAreFound) {
  EXPECT_NE(error_of_sizes(8, 0).find("expects"), std::string::npos);
  EXPECT_NE(error_of_sizes(8, 8).find("though the sums agree"), std::string::npos);
}

TEST(HierarchicalErrors, BlocksOfAnotherSizeAreFound) {
  for (const int other : {0, 1, 3}) {
    try {
      run_on({0, 0, 1, 1}, [&](Communicator& comm) {
        Context ctx;
        const std::int64_t bytes = comm.rank() == other ? 24 : 16;
        std::vector<std::byte> send(96);
        std::vector<std::byte> recv(96);
        comm.all_to_all(ctx, send.data(), recv.data(), bytes);
      });
      FAIL() << "blocks of rank " << other << " have another size";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kComm) << error.what();
      EXPECT_NE(std::string(error.what()).find("out of step"), std::string::npos) << error.what();
    }
  }
}

TEST(HierarchicalErrors, AnotherCollectiveIsFound) {
  try {
    run_on({0, 0, 1, 1}, [](Communicator& comm) {
      Context ctx;
      std::vector<std::int64_t> data(8);
      if (comm.rank() == 3) {
        comm.barrier(ctx);
      } else {
        comm.all_gather(ctx, data.data(), data.data() + 4, 8);
      }
    });
    FAIL() << "ranks were out of step";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("out of step"), std::string::npos) << error.what();
  }
}

TEST(HostLayout, DealsHostsToRelays) {
  const std::vector<int> hosts = {7, 7, 3, 3, 3, 9};
  const HostLayout layout(hosts);
  EXPECT_EQ(layout.hosts(), 3);
  EXPECT_EQ(layout.host(5), 2);
  EXPECT_EQ(layout.place(4), 2);
  EXPECT_EQ(layout.relay(0, 1), 0);
  EXPECT_EQ(layout.relay(0, 2), 1);
  EXPECT_EQ(layout.relay(1, 2), 2);
  EXPECT_EQ(layout.relay(1, 0), 3);
  EXPECT_EQ(layout.relay(2, 0), 5);
  EXPECT_EQ(layout.relay(2, 1), 5);
  EXPECT_EQ(layout.deputy(1, 3), 3);
  std::vector<int> deputies;
  for (const int rank : {0, 1, 5}) {
    deputies.push_back(layout.deputy(1, rank));
  }
  EXPECT_EQ(deputies, (std::vector{2, 3, 4}));
  EXPECT_EQ(layout.deputy(0, 3, Crossing::kRelayed), 0) << "the relay to host 1";
  EXPECT_EQ(layout.deputy(0, 5, Crossing::kRelayed), 1) << "and to host 2";
  EXPECT_EQ(layout.deputy(1, 3, Crossing::kRelayed), 3);
  EXPECT_EQ(layout.most_direct_messages(), 5)
      << "the rank of the host of one, of every other slice";
  EXPECT_EQ(HostLayout(std::vector<int>{0, 0, 1, 1, 2, 2}).most_direct_messages(), 2);
  EXPECT_EQ(host_subtrees(layout, 12, 1), (std::vector<Range>{{4, 8}, {8, 10}}));
}

}  // namespace
}  // namespace weft::comm
