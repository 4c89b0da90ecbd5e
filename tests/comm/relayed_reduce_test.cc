// Sums whose slices cross hosts by relays against those that cross directly, on 5 to 64 ranks as
// threads: sums, residuals and what goes on from saved residuals have the same bits.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/faulty_world.h"
#include "tests/comm/forwarding_group.h"
#include "weft/base/at.h"
#include "weft/base/host_layout.h"
#include "weft/base/philox.h"
#include "weft/comm/copies.h"
#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"

namespace weft::comm {
namespace {

/// A group that copies what another lends, as ranks of several processes do.
class CopyingGroup final : public testing::ForwardingGroup<Communicator> {
 public:
  explicit CopyingGroup(std::unique_ptr<Communicator> under) : ForwardingGroup(std::move(under)) {}

  [[nodiscard]] bool lends() const override { return false; }

  void exchange(const Exchange& call) override {
    Context ctx{.device = nullptr, .pool = call.pool};
    under().exchange_lent(ctx, call.send, call.recv, [&](std::span<const Lane> arrived) {
      std::vector<Lane> lanes(call.recv.begin(), call.recv.end());
      lanes[at(rank())] = arrived[at(rank())];
      std::vector<Copy> copies;
      copy_lanes(call.pool, arrived, lanes, 0, copies);
      call.read(lanes);
    });
  }

  std::int64_t propose_token() override { return 0; }

  std::unique_ptr<Group> make_group(const SubgroupOptions& options) override {
    return std::make_unique<CopyingGroup>(split(options));
  }

  [[nodiscard]] ActivityLog& activity() override { return activity_; }

 private:
  ActivityLog activity_;
};

/// Both matrices of residuals, of all ranks.
struct Residuals {
  std::vector<float> partials;
  std::vector<float> sums;

  friend bool operator==(const Residuals&, const Residuals&) = default;
};

/// Some steps of a sum.
struct Steps {
  std::vector<int> hosts;
  std::int64_t count = 0;
  ReduceCodec codec;
  bool copies = false;  ///< and nothing is lent
  std::int64_t first = 0;
  std::int64_t number = 3;
};

struct StepsOutcome {
  std::vector<std::vector<float>> sums;  ///< [ranks] of all steps
  Residuals residuals;
};

/// Uneven parts, so that ranks and hosts have several whole subtrees.
std::int64_t parts_of(const Steps& steps) {
  return std::ssize(steps.hosts) + 3;
}

/// Between a rank's residuals and the whole matrices.
template <typename Move>
void move_residuals(const OrderedAllReduce& reduce, Residuals& whole, const Move& move) {
  for (const ResidualBlock& block : reduce.residuals()) {
    std::vector<float>& matrix = block.of_sums ? whole.sums : whole.partials;
    for (std::int64_t row = block.row_range.begin; row < block.row_range.end; ++row) {
      float* const own = block.data + (row - block.row_range.begin) * block.stride;
      for (std::int64_t c = block.col_range.begin; c < block.col_range.end; ++c) {
        move(own[c - block.col_range.begin], matrix.at(at(row * reduce.count() + c)));
      }
    }
  }
}

/// `from`: residuals to begin with, or null.
StepsOutcome run_steps(const Steps& steps, Residuals* from = nullptr) {
  const HostLayout layout(steps.hosts);
  std::size_t rows = 0;
  for (int h = 0; h < layout.hosts(); ++h) {
    rows += host_subtrees(layout, parts_of(steps), h).size();
  }
  StepsOutcome outcome{.sums = std::vector<std::vector<float>>(steps.hosts.size()),
                       .residuals = {}};
  outcome.residuals.partials.resize(rows * at(steps.count));
  outcome.residuals.sums.resize(at(steps.count));
  const auto ranks = static_cast<int>(steps.hosts.size());
  run_local(ranks, {.timeout_s = 60.0, .hosts = steps.hosts}, [&](Communicator& world) {
    std::unique_ptr<Communicator> under = world.duplicate("under");
    if (steps.copies) {
      under = std::make_unique<Communicator>(std::make_unique<CopyingGroup>(std::move(under)));
    }
    const auto comm = under->duplicate("test", Form::kHierarchical);
    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
    Context ctx{.device = device.get(), .pool = &device->pool()};
    OrderedAllReduce reduce(*comm, *device, parts_of(steps), steps.count, steps.codec);
    if (from != nullptr) {
      move_residuals(reduce, *from, [](float& own, const float& whole) { own = whole; });
    }
    std::vector<float> out(at(steps.count));
    for (std::int64_t step = steps.first; step < steps.first + steps.number; ++step) {
      std::vector<std::uint8_t> present;
      for (std::int64_t k = 0; k < reduce.num_partials(); ++k) {
        const std::int64_t part = reduce.partial_parts(k).begin;
        present.push_back(step % 3 != 1 || part % 3 != 1 ? 1 : 0);
        for (std::int64_t i = 0; i < steps.count; ++i) {
          const auto word = philox(static_cast<std::uint64_t>(part), static_cast<std::uint64_t>(i),
                                   static_cast<std::uint64_t>(step))[0];
          reduce.partial(k)[i] = static_cast<float>(word) * 0x1p-31F - 1.0F;
        }
      }
      reduce.run(ctx, present, out.data());
      reduce.keep_residuals();
      std::vector<float>& own = outcome.sums[at(world.rank())];
      own.insert(own.end(), out.begin(), out.end());
    }
    move_residuals(reduce, outcome.residuals, [](const float& own, float& whole) { whole = own; });
  });
  for (const std::vector<float>& sums : outcome.sums) {
    EXPECT_EQ(sums, outcome.sums.front()) << "ranks have different sums";
  }
  return outcome;
}

class RelayedReduce : public ::testing::TestWithParam<std::vector<int>> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         RelayedReduce,
                         ::testing::Values(std::vector<int>{0, 0, 0, 1, 1},
                                           std::vector<int>{0, 1, 0, 2, 1},
                                           std::vector<int>{0, 1, 1, 1, 1, 1, 2},
                                           testing::hosts_of_sizes({8, 8, 8}),
                                           testing::hosts_of_sizes({1, 3, 8, 20, 31}),
                                           testing::hosts_of_sizes(std::vector<int>(8, 8)),
                                           testing::hosts_of_sizes(std::vector<int>(32, 2))));

TEST_P(RelayedReduce, HasTheBitsOfTheDirectOne) {
  for (const std::int64_t count : {3, 301}) {
    for (const ReduceCodec& codec :
         {ReduceCodec{}, ReduceCodec{.codec = {.format = CodecFormat::kInt8, .group = 16}},
          ReduceCodec{.codec = {.format = CodecFormat::kInt4, .group = 16},
                      .error_feedback = true}}) {
      SCOPED_TRACE(std::string(to_string(codec.codec.format)) + ", " + std::to_string(count));
      Steps steps{.hosts = GetParam(), .count = count, .codec = codec};
      const StepsOutcome direct = run_steps(steps);
      steps.codec.crossing = Crossing::kRelayed;
      for (const bool copies : {false, true}) {
        if (copies && (count == 3 || !codec.error_feedback)) {
          continue;
        }
        steps.copies = copies;
        const StepsOutcome relayed = run_steps(steps);
        EXPECT_EQ(relayed.sums.front(), direct.sums.front()) << "copies: " << copies;
        EXPECT_EQ(relayed.residuals, direct.residuals) << "copies: " << copies;
      }
    }
  }
}

TEST_P(RelayedReduce, GoesOnFromResidualsOfTheDirectOne) {
  Steps steps{
      .hosts = GetParam(),
      .count = 301,
      .codec = {.codec = {.format = CodecFormat::kInt4, .group = 16}, .error_feedback = true}};
  StepsOutcome direct = run_steps(steps);
  EXPECT_NE(direct.residuals.sums, std::vector<float>(301));
  steps.first = 3;
  steps.number = 2;
  const StepsOutcome after = run_steps(steps, &direct.residuals);
  EXPECT_NE(after.sums.front(), run_steps(steps).sums.front()) << "residuals decide nothing";
  steps.codec.crossing = Crossing::kRelayed;
  const StepsOutcome relayed = run_steps(steps, &direct.residuals);
  EXPECT_EQ(relayed.sums.front(), after.sums.front());
  EXPECT_EQ(relayed.residuals, after.residuals);
}

}  // namespace
}  // namespace weft::comm
