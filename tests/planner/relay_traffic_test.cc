// What relays hold, by hand and against the definition over all pairs of ranks.
#include "weft/planner/relay_traffic.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/planner/made_up.h"
#include "weft/planner/place.h"
#include "weft/planner/step_memory.h"

namespace weft::planner {
namespace {

const std::vector<std::vector<int>> kHosts = {
    {0, 0, 1, 1}, {0, 1, 1}, {0, 0, 0, 1, 1, 2}, {0, 0, 1, 2, 2, 2, 3, 3}};

/// bytes(a, b): what rank a sends rank b.
template <typename Bytes>
RelayBlocks expected(const HostLayout& layout, int rank, const Bytes& bytes) {
  RelayBlocks blocks;
  for (int other = 0; other < layout.hosts(); ++other) {
    const int self = layout.host(rank);
    if (other == self) {
      continue;
    }
    const bool relays = layout.relay(self, other) == rank;
    blocks.crossing += relays ? 16.0 : 0.0;
    for (const int there : layout.ranks_of(other)) {
      blocks.out += bytes(rank, there);
      blocks.in += bytes(there, rank);
      for (const int here : layout.ranks_of(self)) {
        blocks.crossing += relays ? bytes(here, there) + bytes(there, here) : 0.0;
      }
    }
  }
  return blocks;
}

void expect_equal(const RelayBlocks& a, const RelayBlocks& b) {
  EXPECT_DOUBLE_EQ(a.crossing, b.crossing);
  EXPECT_DOUBLE_EQ(a.out, b.out);
  EXPECT_DOUBLE_EQ(a.in, b.in);
}

TEST(RelayTraffic, OfLanesToShards) {
  for (const std::vector<int>& hosts : kHosts) {
    const HostLayout layout(hosts);
    std::vector<std::size_t> kind_of;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      kind_of.push_back(rank % 2);
    }
    const auto bytes = [&](int samples, int shard) {  // to a shard
      return 100.0 * shard + 7.0 * static_cast<double>(kind_of[static_cast<std::size_t>(samples)]);
    };
    RelayedLanes lanes(layout, kind_of, 2);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      for (std::size_t kind = 0; kind < 2; ++kind) {
        lanes.add(static_cast<std::size_t>(rank), kind,
                  100.0 * rank + 7.0 * static_cast<double>(kind));
      }
    }
    lanes.add_up_hosts();
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      expect_equal(lanes.of(static_cast<std::size_t>(rank)), expected(layout, rank, bytes));
    }
  }
}

TEST(RelayTraffic, OfWhatAllSendToAll) {
  for (const std::vector<int>& hosts : kHosts) {
    const HostLayout layout(hosts);
    std::vector<std::size_t> kind_of(hosts.size(), 0);
    kind_of.back() = 1;
    const std::vector<double> bytes = {1000.0, 3000.0};
    const RelayedGather gather(layout, kind_of, bytes);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      // A rank's bytes are packed once, and cross once to each other host.
      const auto all_bytes = [&](int host) {
        double sum = 0.0;
        for (const int from : layout.ranks_of(host)) {
          sum += bytes[kind_of[static_cast<std::size_t>(from)]];
        }
        return sum;
      };
      const int self = layout.host(rank);
      RelayBlocks expected{.out = bytes[kind_of[static_cast<std::size_t>(rank)]]};
      for (int other = 0; other < layout.hosts(); ++other) {
        expected.in += other == self ? 0.0 : all_bytes(other);
        if (other != self && layout.relay(self, other) == rank) {
          expected.crossing += 16.0 + all_bytes(self) + all_bytes(other);
        }
      }
      expect_equal(gather.of(static_cast<std::size_t>(rank)), expected);
    }
    expect_equal(RelayedGather(layout, kind_of, std::vector<double>{0.0, 0.0}).of(0), {});
  }
}

TEST(RelayTraffic, OfSomePairs) {
  for (const std::vector<int>& hosts : kHosts) {
    const HostLayout layout(hosts);
    RelayedPairs pairs(layout);
    expect_equal(pairs.of(0), {});
    const auto bytes = [](int from, int to) { return (from + to) % 3 == 0 ? 10.0 * from : 0.0; };
    for (int from = 0; from < layout.ranks(); ++from) {
      for (int to = 0; to < layout.ranks(); ++to) {
        pairs.add(static_cast<std::size_t>(from), static_cast<std::size_t>(to), bytes(from, to));
      }
    }
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      expect_equal(pairs.of(static_cast<std::size_t>(rank)), expected(layout, rank, bytes));
    }
  }
}

/// Ids alone are relayed: of one table on rank 0, 1024 samples on each of four ranks, an id of two
/// bytes each. Ranks 0 and 2 relay.
TEST(RelayTraffic, OfIdsOnly) {
  spec::Config config = testing::make_config({{.rows = 1000, .dim = 16, .length = 1}}, 4096);
  config.data.synthetic.columns[0].zipf = 0.0;
  config.tables[0].sharding = spec::Sharding::kTableWise;
  config.tables[0].rank = 0;
  spec::Plan plan = make_plan(config, 4);
  plan.hosts = {0, 0, 1, 1};
  const Workload workload = make_workload(config);
  const auto relays = [&](std::size_t rank) {
    return step_memory(config, workload, plan, {})[rank].relays;
  };
  EXPECT_EQ(relays(0), 0.0) << "flat";
  plan.collectives.ids = spec::CollectiveForm::kHierarchical;
  const double rank = 2.0 * 1024;  // bytes of its ids
  EXPECT_EQ(relays(0), (16 + 2 * rank) + 2 * rank) << "crossing, unpacked";
  EXPECT_EQ(relays(1), 0.0);
  EXPECT_EQ(relays(2), (16 + 2 * rank) + rank) << "crossing, packed";
  EXPECT_EQ(relays(3), rank) << "packed";
  plan.hosts = {0, 0, 0, 0};
  EXPECT_EQ(relays(0), 0.0) << "one host";
}

}  // namespace
}  // namespace weft::planner
