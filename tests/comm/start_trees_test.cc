// What a job does together before its first step goes along the tree over ranks: groups, lists,
// texts and clocks. How many messages that takes, and what becomes of a rank lost on the way.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/failing_group.h"
#include "tests/comm/forwarding_group.h"
#include "weft/base/error.h"
#include "weft/comm/clock.h"
#include "weft/comm/communicator.h"
#include "weft/comm/local/local.h"

namespace weft::comm {
namespace {

constexpr int kStarted = 64;       // two levels
constexpr int kMostOfLevels = 14;  // messages of a rank in one way through two levels of seven

using Call = std::function<void(Communicator& world, Context& ctx)>;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// A text that names its rank, as long as no other's near it.
std::string text_of(int rank) {
  return std::string(static_cast<std::size_t>(rank % 5), '.') + std::to_string(rank) + ";";
}

void append(std::vector<std::byte>& block, std::span<const std::byte> later) {
  block.insert(block.end(), later.begin(), later.end());
}

const std::vector<std::pair<std::string, Call>>& calls() {
  static const std::vector<std::pair<std::string, Call>> all = {
      {"split",
       [](Communicator& world, Context&) {
         const auto half = world.split(world.rank() % 2, -world.rank(), "half");
         EXPECT_EQ(half->size(), (world.size() + 1 - world.rank() % 2) / 2);
         EXPECT_EQ(half->world_rank(0),
                   (world.size() - 1) / 2 * 2 + world.rank() % 2 -
                       (world.size() % 2 == 1 && world.rank() % 2 == 1 ? 2 : 0));
       }},
      {"duplicate", [](Communicator& world,
                       Context&) { EXPECT_EQ(world.duplicate("copy")->rank(), world.rank()); }},
      {"merge_to_first",
       [](Communicator& world, Context& ctx) {
         const auto merged = world.merge_to_first(ctx, bytes_of(text_of(world.rank())), append);
         std::string expected;
         for (int rank = 0; world.rank() == 0 && rank < world.size(); ++rank) {
           expected += text_of(rank);
         }
         if (world.rank() == 0) {
           EXPECT_EQ(merged, bytes_of(expected));
         }
       }},
      {"share",
       [](Communicator& world, Context& ctx) {
         std::string text = text_of(world.rank());
         world.share(ctx, text, world.size() / 3);
         EXPECT_EQ(text, text_of(world.size() / 3));
       }},
  };
  return all;
}

std::int64_t sent_by(const Communicator& comm) {
  return comm.traffic().total().messages;
}

TEST(StartTrees, GiveWhatIsAskedForOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 8, 9, 24, kStarted, kStarted + 1}) {
    run_local(ranks, {}, [&](Communicator& world) {
      Context ctx;
      for (const auto& [name, call] : calls()) {
        SCOPED_TRACE(name + " of " + std::to_string(ranks));
        call(world, ctx);
      }
    });
  }
}

TEST(StartTrees, MessagesOfARankGrowWithTheLevels) {
  for (const auto& [name, call] : calls()) {
    std::atomic<std::int64_t> all = 0;
    run_local(kStarted, {}, [&](Communicator& world) {
      Context ctx;
      const std::int64_t before = sent_by(world);
      call(world, ctx);
      const std::int64_t own = sent_by(world) - before;
      EXPECT_LE(own, 2 * kMostOfLevels) << name << ", rank " << world.rank();
      all += own;
    });
    EXPECT_EQ(all, 2 * (kStarted - 1)) << name;
  }
}

/// Hosts of eight ranks, with one clock in truth.
class OnHostsOfEight final : public testing::ForwardingGroup<Communicator> {
 public:
  using ForwardingGroup::ForwardingGroup;

  [[nodiscard]] int host(int rank) const override { return rank / 8; }

  void exchange(const Exchange& call) override {
    Context ctx;
    under().exchange_lent(ctx, call.send, call.recv, call.read);
  }

  std::int64_t propose_token() override { return 0; }

  std::unique_ptr<Group> make_group(const SubgroupOptions& /*options*/) override { return nullptr; }

  [[nodiscard]] ActivityLog& activity() override { return activity_; }

 private:
  ActivityLog activity_;
};

TEST(StartTrees, ClocksAreComparedAlongTheTree) {
  run_local(kStarted, {}, [](Communicator& world) {
    Communicator apart(std::make_unique<OnHostsOfEight>(world.duplicate("apart")));
    Context ctx;
    constexpr int kRounds = 3;
    const std::int64_t before = sent_by(apart);
    const ClockOffset offset = clock_offset(apart, ctx, kRounds);
    EXPECT_LE(std::abs(offset.offset_ns), offset.error_ns) << world.rank();
    EXPECT_EQ(offset.error_ns > 0, world.rank() >= 8) << "ranks of a host have its clock";
    EXPECT_LE(sent_by(apart) - before, 7 * (kRounds + 1)) << "not one by one with rank 0";
  });
}

/// The error that a call ends with on each rank, where `lost` fails before its exchange number
/// `after`.
std::vector<std::string> errors_of(const Call& call, int lost, int after, const Error& with) {
  std::vector<std::string> errors(kStarted);
  std::atomic<int> named = 0;
  try {
    run_local(kStarted, {.timeout_s = 60}, [&](Communicator& world) {
      auto failure = std::make_shared<testing::Failure>();
      if (world.rank() == lost) {
        *failure = {.after = after, .fail = [&] { throw Error(with); }};
      }
      Communicator group(
          std::make_unique<testing::FailingGroup>(world.duplicate("group"), failure));
      Context ctx;
      try {
        call(group, ctx);
        ctx = {};
        world.barrier(ctx);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(world.rank())] = error.what();
        named += error.origin_rank() == lost || world.rank() == lost ? 1 : 0;
        throw;
      }
    });
  } catch (const Error&) {
    EXPECT_EQ(named, kStarted) << "all know who it was";
  }
  return errors;
}

// Leaders of both levels and a rank below them, before each exchange that a call has.
TEST(StartTrees, ALostRankEndsAllWithItsCause) {
  for (const auto& [name, call] : calls()) {
    for (const int lost : {0, 8, 21}) {
      for (const int after : {0, 1, 2, 3}) {
        const std::string what = "rank " + std::to_string(lost) + " is lost";
        const Error with(ErrorCode::kData, what, lost);
        EXPECT_EQ(errors_of(call, lost, after, with), std::vector<std::string>(kStarted, what))
            << name << " before exchange " << after;
      }
    }
  }
}

TEST(StartTrees, AMergerThatThrowsEndsAll) {
  const Call call = [](Communicator& world, Context& ctx) {
    world.merge_to_first(ctx, bytes_of("x"),
                         [&](std::vector<std::byte>& block, std::span<const std::byte> later) {
                           if (world.rank() == 16) {
                             fail(ErrorCode::kData, "rank 16 cannot merge");
                           }
                           append(block, later);
                         });
  };
  try {
    run_local(kStarted, {.timeout_s = 60}, [&](Communicator& world) {
      Context ctx;
      call(world, ctx);
    });
    FAIL() << "it was merged";
  } catch (const Error& error) {
    EXPECT_EQ(error.origin_rank(), 16);
    EXPECT_STREQ(error.what(), "rank 16 cannot merge");
  }
}

}  // namespace
}  // namespace weft::comm
