// The bytes that exchanges are said to have against those that communicators send.
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/topology/small_cluster.h"
#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/cost/exchange.h"

namespace weft::cost {
namespace {

using comm::Collective;
using comm::Communicator;
using topology::all_ranks;
using topology::Cluster;
using topology::small_cluster;

/// Runs `body` on `ranks` threads and compares what each has sent with what is said.
template <typename Body>
void compare_flat(int ranks, Collective collective, const Exchange& said, const Body& body) {
  std::vector<comm::Traffic::Entry> sent(static_cast<std::size_t>(ranks));
  comm::run_local(ranks, {}, [&](Communicator& world) {
    body(world);
    sent[static_cast<std::size_t>(world.rank())] = world.traffic().of(collective);
  });
  for (std::size_t r = 0; r < sent.size(); ++r) {
    EXPECT_EQ(static_cast<double>(sent[r].bytes), said.ranks[r].sent_away()) << "rank " << r;
    EXPECT_EQ(static_cast<double>(sent[r].messages),
              said.ranks[r].messages[1] + said.ranks[r].messages[2])
        << "rank " << r;
  }
}

TEST(Traffic, AllToAll) {
  for (const int ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(ranks);
    const auto count = [&](int from, int to) { return std::int64_t{3} * from + 11 * to + 1; };
    const Cluster cluster = small_cluster({{1, ranks}});
    std::vector<double> bytes;
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        bytes.push_back(static_cast<double>(count(from, to)));
      }
    }
    compare_flat(ranks, Collective::kAllToAll, all_to_all(cluster, all_ranks(cluster), bytes),
                 [&](Communicator& world) {
                   std::vector<std::int64_t> send, recv;
                   for (int peer = 0; peer < ranks; ++peer) {
                     send.push_back(count(world.rank(), peer));
                     recv.push_back(count(peer, world.rank()));
                   }
                   const std::vector<char> from(10000);
                   std::vector<char> to(10000);
                   Context ctx;
                   world.all_to_all_v(ctx, {from.data(), send, to.data(), recv});
                 });
  }
}

TEST(Traffic, AllGatherReduceScatterAndBarrier) {
  for (const int ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(ranks);
    const Cluster cluster = small_cluster({{1, ranks}});
    const std::vector<double> each(static_cast<std::size_t>(ranks), 40.0);
    compare_flat(ranks, Collective::kAllGather, all_gather(cluster, all_ranks(cluster), each),
                 [&](Communicator& world) {
                   const std::vector<float> from(10);
                   std::vector<float> to(10 * static_cast<std::size_t>(ranks));
                   Context ctx;
                   world.all_gather(ctx, from.data(), to.data(), 40);
                 });
    compare_flat(ranks, Collective::kReduceScatter,
                 reduce_scatter(cluster, all_ranks(cluster), 1001), [&](Communicator& world) {
                   const std::vector<float> from(1001);
                   std::vector<float> to(1001);
                   Context ctx;
                   world.reduce_scatter(ctx, from.data(), to.data(), 1001);
                 });
    compare_flat(ranks, Collective::kBarrier, barrier(cluster, all_ranks(cluster)),
                 [&](Communicator& world) {
                   Context ctx;
                   world.barrier(ctx);
                 });
  }
}

TEST(Traffic, Merge) {
  for (const int ranks : {1, 2, 5, 8, 9, 17, 64, 65}) {
    SCOPED_TRACE(ranks);
    const Cluster cluster = small_cluster({{1, ranks}});
    Exchange said = no_exchange(cluster);
    for (const Exchange& level : merge(cluster, all_ranks(cluster), 40.0)) {
      add(said, level);
    }
    compare_flat(ranks, Collective::kMerge, said, [&](Communicator& world) {
      std::vector<std::byte> block(40);
      Context ctx;
      world.merge(ctx, block, [](auto, auto) {});
    });
  }
}

TEST(Traffic, OrderedAllReduce) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::int64_t parts : {5, 8, 13}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << parts << " parts");
      const Cluster cluster = small_cluster({{1, ranks}});
      OrderedAllReduce said = ordered_all_reduce(cluster, all_ranks(cluster), parts, 1001);
      add(said.partials, said.sums);  // the communicator counts both together
      compare_flat(ranks, Collective::kAllToAll, said.partials, [&](Communicator& world) {
        const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
        Context ctx{.device = device.get(), .pool = &device->pool()};
        comm::OrderedAllReduce reduce(world, *device, parts, 1001);
        for (std::int64_t i = 0; i < reduce.num_partials(); ++i) {
          std::fill_n(reduce.partial(i), 1001, 1.0F);
        }
        const std::vector<std::uint8_t> present(static_cast<std::size_t>(reduce.num_partials()), 1);
        reduce.run(ctx, present);
      });
    }
  }
}

TEST(Traffic, OrderedAllReduceWithACodec) {
  for (int format = 0; format < kNumCodecFormats; ++format) {
    for (const int ranks : {1, 2, 3, 5}) {
      for (const std::int64_t count : {3, 1001}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, format " << format);
        const Cluster cluster = small_cluster({{1, ranks}});
        OrderedAllReduce said =
            ordered_all_reduce(cluster, all_ranks(cluster), 13, count,
                               {.format = static_cast<CodecFormat>(format), .group = 16});
        add(said.partials, said.sums);
        compare_flat(ranks, Collective::kAllToAll, said.partials, [&](Communicator& world) {
          const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
          Context ctx{.device = device.get(), .pool = &device->pool()};
          comm::OrderedAllReduce reduce(
              world, *device, 13, count,
              {.codec = {.format = static_cast<CodecFormat>(format), .group = 16},
               .error_feedback = true});
          std::fill_n(reduce.partial(0), count * reduce.num_partials(), 1.0F);
          std::vector<float> out(static_cast<std::size_t>(count));
          reduce.run(ctx,
                     std::vector<std::uint8_t>(static_cast<std::size_t>(reduce.num_partials()), 1),
                     out.data());
        });
      }
    }
  }
}

}  // namespace
}  // namespace weft::cost
