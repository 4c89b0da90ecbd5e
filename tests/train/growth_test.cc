// The laws of docs/scaling.md by which messages and bytes of a step grow with the ranks, on counts,
// which are exact: 8 to 64 ranks as threads, on hosts of 8.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/train/step_traffic.h"
#include "weft/base/at.h"
#include "weft/base/host_layout.h"
#include "weft/planner/place.h"
#include "weft/spec/yaml.h"
#include "weft/train/batch_control.h"
#include "weft/train/step_report.h"

namespace weft::train {
namespace {

constexpr std::int64_t kPerHost = 8;
constexpr std::int64_t kWorlds[] = {8, 16, 32, 64};

/// Tables of one row a rank cut over all ranks, one whole table, and one that all hold: each rank
/// has samples of every row, so that no lane between ranks with slots is empty.
spec::Config growth_config(std::int64_t ranks) {
  return spec::parse_config(fmt::format(R"(
version: 1
batch_size: {0}
data:
  format: synthetic
  synthetic:
    samples: {0}
    dense_columns: 1
    columns: [{{name: "c{{1..4}}", cardinality: {1}}}]
numerics: {{parts: {2}}}
dense_features: [{{name: d1}}]
sparse_features: [{{name: "c{{1..4}}", mapping: identity}}]
tables:
  - {{name: c1, num_embeddings: {1}, embedding_dim: 16, sharding: row_wise}}
  - {{name: c2, num_embeddings: {1}, embedding_dim: 16, sharding: row_wise, pooled_at: sample}}
  - {{name: c3, num_embeddings: {1}, embedding_dim: 16, sharding: row_wise}}
  - {{name: c4, num_embeddings: 64, embedding_dim: 16, sharding: data_parallel}}
model: {{type: deepfm, bottom_mlp: [], top_mlp: [8], projection_dim: 8}}
)",
                                        128 * ranks, ranks, 2 * ranks),
                            "growth");
}

spec::Plan growth_plan(const spec::Config& config, std::int64_t ranks, spec::CollectiveForm form) {
  std::vector<std::int64_t> hosts;
  for (std::int64_t r = 0; r < ranks; ++r) {
    hosts.push_back(r / kPerHost);
  }
  spec::Plan plan = planner::make_plan(config, {.ranks = ranks, .hosts = hosts});
  plan.collectives = {.ids = form, .vectors = form, .dense = form};
  return plan;
}

std::vector<StepTraffic> count_traffic(std::int64_t ranks,
                                       spec::CollectiveForm form,
                                       const std::vector<std::string>& overrides) {
  const spec::Config config =
      overrides.empty()
          ? growth_config(ranks)
          : spec::parse_config(spec::to_yaml(growth_config(ranks)), "growth", overrides);
  return step_traffic(config, growth_plan(config, ranks, form), IdKind::kDealt);
}

/// Under `sync`; counted once for all tests.
const std::vector<StepTraffic>& traffic_of(std::int64_t ranks, spec::CollectiveForm form) {
  static std::map<std::pair<std::int64_t, spec::CollectiveForm>, std::vector<StepTraffic>> known;
  std::vector<StepTraffic>& traffic = known[{ranks, form}];
  if (traffic.empty()) {
    traffic = count_traffic(ranks, form, {});
  }
  return traffic;
}

std::int64_t hosts_of(std::int64_t ranks) {
  return ranks / kPerHost;
}

/// Hosts of `per_host` between which and its own a rank relays: ⌈(H - 1)/g⌉ or one less.
std::int64_t crossings_of(std::int64_t ranks, std::int64_t rank, std::int64_t per_host = kPerHost) {
  std::vector<int> hosts;
  for (std::int64_t r = 0; r < ranks; ++r) {
    hosts.push_back(static_cast<int>(r / per_host));
  }
  const HostLayout layout(hosts);
  const int host = layout.host(static_cast<int>(rank));
  std::int64_t crossings = 0;
  for (int other = 0; other < layout.hosts(); ++other) {
    crossings += other != host && layout.relay(host, other) == rank ? 1 : 0;
  }
  return crossings;
}

/// H/g + g: of a hierarchical exchange of blocks of one size. Lanes in the host, what crosses, and
/// what came.
std::int64_t block_messages(std::int64_t ranks, std::int64_t rank) {
  if (ranks <= kPerHost) {
    return ranks - 1;
  }
  const std::int64_t crossings = crossings_of(ranks, rank);
  return (kPerHost - 1) + crossings + (crossings > 0 ? kPerHost - 1 : 0);
}

/// H/g + g: the same between all pairs of ranks, each lane of which has something on it: sizes to
/// the relays come first.
std::int64_t relayed_messages(std::int64_t ranks, std::int64_t rank) {
  if (ranks <= kPerHost) {
    return ranks - 1;
  }
  const std::int64_t relays = std::min(kPerHost, hosts_of(ranks) - 1);
  return relays - (crossings_of(ranks, rank) > 0 ? 1 : 0) + block_messages(ranks, rank);
}

/// log W: what the first rank of a tree with a fan of 8 sends down, on all its levels.
std::int64_t tree_messages(std::int64_t ranks) {
  std::int64_t messages = 0;
  for (std::int64_t nodes = ranks; nodes > 1; nodes = (nodes + 7) / 8) {
    messages += std::min<std::int64_t>(8, nodes) - 1;
  }
  return messages;
}

std::int64_t most_messages(const std::vector<StepTraffic>& traffic, StepPart part) {
  std::int64_t most = 0;
  for (const StepTraffic& rank : traffic) {
    most = std::max(most, rank.of(part).messages);
  }
  return most;
}

TEST(Growth, ExchangesThroughRelaysGrowWithHostsOverRanksOfOne) {
  for (const std::int64_t ranks : kWorlds) {
    const auto& traffic = traffic_of(ranks, spec::CollectiveForm::kHierarchical);
    for (std::int64_t r = 0; r < ranks; ++r) {
      EXPECT_EQ(traffic[at(r)].of(StepPart::kExchangeCounts).messages, block_messages(ranks, r))
          << "rank " << r << " of " << ranks;
      for (const StepPart part :
           {StepPart::kExchangeIds, StepPart::kOutputDist, StepPart::kGradDist}) {
        EXPECT_EQ(traffic[at(r)].of(part).messages, relayed_messages(ranks, r))
            << to_string(part) << " of rank " << r << " of " << ranks;
      }
    }
  }
}

TEST(Growth, FlatExchangesGrowWithTheRanks) {
  for (const std::int64_t ranks : {32, 64}) {
    const auto& traffic = traffic_of(ranks, spec::CollectiveForm::kFlat);
    for (std::int64_t r = 0; r < ranks; ++r) {
      for (const StepPart part : {StepPart::kExchangeCounts, StepPart::kExchangeIds,
                                  StepPart::kOutputDist, StepPart::kGradDist}) {
        EXPECT_EQ(traffic[at(r)].of(part).messages, ranks - 1);
        EXPECT_NE(traffic[at(r)].of(part).messages, relayed_messages(ranks, r))
            << "the laws do not tell the forms apart";
      }
      EXPECT_EQ(traffic[at(r)].of(StepPart::kReduce).messages, 2 * (ranks - 1));
    }
    EXPECT_LT(most_messages(traffic, StepPart::kExchangeReport), ranks - 1)
        << "a report goes along the tree in any form";
  }
}

TEST(Growth, ReportsGrowWithTheLevelsOfATree) {
  for (const std::int64_t ranks : kWorlds) {
    const auto& traffic = traffic_of(ranks, spec::CollectiveForm::kHierarchical);
    const std::int64_t block = StepReport(2 * ranks, 1).bytes();
    EXPECT_EQ(traffic.front().of(StepPart::kExchangeReport).messages, tree_messages(ranks));
    EXPECT_EQ(most_messages(traffic, StepPart::kExchangeReport), tree_messages(ranks));
    for (const StepTraffic& rank : traffic) {
      const Sent& sent = rank.of(StepPart::kExchangeReport);
      EXPECT_EQ(sent.bytes, sent.messages * block);
    }
  }
}

TEST(Growth, SumsOfDenseGradientsGrowWithTheHosts) {
  for (const std::int64_t ranks : kWorlds) {
    const std::int64_t hosts = hosts_of(ranks);
    const std::int64_t law = hosts == 1 ? 2 * (ranks - 1) : 2 * (kPerHost - 1) + 2 * (hosts - 1);
    for (const StepTraffic& rank : traffic_of(ranks, spec::CollectiveForm::kHierarchical)) {
      EXPECT_EQ(rank.of(StepPart::kReduce).messages, law) << ranks;
    }
  }
}

/// The dense sum of one step on hosts of `per_host`.
std::vector<StepTraffic> count_sum(std::int64_t ranks,
                                   std::int64_t per_host,
                                   spec::CollectiveForm form) {
  const spec::Config config = growth_config(ranks);
  spec::Plan plan = growth_plan(config, ranks, spec::CollectiveForm::kFlat);
  for (std::int64_t r = 0; r < ranks; ++r) {
    plan.hosts[at(r)] = r / per_host;
  }
  plan.collectives.dense = form;
  return step_traffic(config, plan, IdKind::kDealt);
}

/// H/g + g: in the host to all ranks twice, and of a relay to pass on and to spread; across to the
/// hosts to which it is one, there and back. Directly, which is counted beside it, H + g.
TEST(Growth, SumsOfDenseGradientsByRelaysGrowWithHostsOverRanksOfOne) {
  for (const std::int64_t per_host : {2, 8}) {
    for (const std::int64_t ranks : {16, 32, 64}) {
      const std::int64_t hosts = ranks / per_host;
      const auto direct = count_sum(ranks, per_host, spec::CollectiveForm::kHierarchical);
      const auto relayed = count_sum(ranks, per_host, spec::CollectiveForm::kRelayed);
      for (std::int64_t r = 0; r < ranks; ++r) {
        const std::int64_t crossings = crossings_of(ranks, r, per_host);
        const std::int64_t near = per_host - 1;
        const std::int64_t law = (crossings > 0 ? 4 : 2) * near + 2 * crossings;
        EXPECT_EQ(relayed[at(r)].of(StepPart::kReduce).messages, law)
            << "rank " << r << " of " << ranks << " on hosts of " << per_host;
        EXPECT_LE(law, 4 * near + 2 * ((hosts - 1 + near) / per_host));
        EXPECT_EQ(relayed[at(r)].of(StepPart::kReduce).exchanges, 6);
        EXPECT_EQ(direct[at(r)].of(StepPart::kReduce).messages, 2 * near + 2 * (hosts - 1));
        EXPECT_EQ(direct[at(r)].of(StepPart::kReduce).exchanges, 4);
      }
      if (per_host == 2) {
        EXPECT_LT(most_messages(relayed, StepPart::kReduce),
                  most_messages(direct, StepPart::kReduce))
            << "the laws do not tell the forms apart";
      }
    }
  }
}

/// To each rank a header, the control block, and of up to 8 ranks the counts of its slots.
TEST(Growth, CountsAreOneBlockToEachRank) {
  std::map<std::int64_t, std::int64_t> blocks;  // by ranks
  for (const std::int64_t ranks : {16, 32, 64}) {
    const auto& traffic = traffic_of(ranks, spec::CollectiveForm::kFlat);
    const std::int64_t block = traffic.front().of(StepPart::kExchangeCounts).bytes / (ranks - 1);
    for (const StepTraffic& rank : traffic) {
      EXPECT_EQ(rank.of(StepPart::kExchangeCounts).bytes, (ranks - 1) * block) << ranks;
    }
    blocks[ranks] = block;
  }
  EXPECT_EQ(blocks.at(32), blocks.at(16));
  EXPECT_EQ(blocks.at(64), blocks.at(16));
}

/// A report has sums for the subtrees of any run of parts, of which there are about 2 log2 P; a
/// control block for those of a rank's own parts.
TEST(Growth, ReportsGrowWithTheLogarithmOfParts) {
  const auto bytes = [](std::int64_t parts) { return StepReport(parts, 1).bytes(); };
  const std::int64_t doubling = bytes(128) - bytes(64);
  EXPECT_GT(doubling, 0);
  for (std::int64_t parts = 64; parts < 4096; parts *= 2) {
    EXPECT_EQ(bytes(2 * parts) - bytes(parts), doubling) << parts;
    EXPECT_EQ(BatchControl(2 * parts, 1).bytes(parts), BatchControl(2, 1).bytes(1));
  }
}

/// Rows of which all hold copies: partial sums to their owners, sums from them. Every row of the
/// table of 64 is touched by every rank.
TEST(Growth, CopiedRowsDoNotGrowWithTheRanks) {
  for (const std::int64_t ranks : {16, 32, 64}) {
    std::int64_t most = 0;
    const auto& traffic = traffic_of(ranks, spec::CollectiveForm::kFlat);
    for (const StepTraffic& rank : traffic) {
      most = std::max(most, rank.of(StepPart::kUpdateRows).bytes);
      EXPECT_LE(rank.of(StepPart::kUpdateRows).messages, 4 * (ranks - 1));
    }
    constexpr std::int64_t kRow = 4 * 16;
    const std::int64_t to_owners = 64 * (12 + kRow) * (ranks - 1) / ranks;
    const std::int64_t sums = (ranks - 1) * (64 / ranks) * (8 + kRow);
    const std::int64_t counts = most - to_owners - sums;  // numbers of rows, to owners and of sums
    EXPECT_EQ(counts % (ranks - 1), 0) << ranks;
    EXPECT_GT(counts, 0) << ranks;
    EXPECT_LE(counts, 2 * 8 * (ranks - 1)) << ranks;
    EXPECT_LT(most - counts, 64 * (12 + kRow) + 64 * (8 + kRow)) << "the union, once each way";
  }
}

/// Micro-batches exchange vectors and gradients each, and nothing else more often.
TEST(Growth, MicroBatchesMultiplyVectorsAndGradients) {
  for (const std::int64_t ranks : {8, 16}) {
    const auto& sync = traffic_of(ranks, spec::CollectiveForm::kHierarchical);
    const auto nested = count_traffic(ranks, spec::CollectiveForm::kHierarchical,
                                      {"pipeline.schedule=nested", "pipeline.micro_batches=2"});
    for (std::size_t r = 0; r < sync.size(); ++r) {
      for (std::size_t p = 0; p < kStepParts; ++p) {
        const auto part = static_cast<StepPart>(p);
        const std::int64_t times =
            part == StepPart::kOutputDist || part == StepPart::kGradDist ? 2 : 1;
        EXPECT_EQ(nested[r].of(part).messages, times * sync[r].of(part).messages)
            << to_string(part) << " of rank " << r << " of " << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace weft::train
