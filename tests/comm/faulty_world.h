/// Ranks as threads of which one does something wrong before one of its exchanges, whichever group
/// it is of: for trees, relays and whole steps of many ranks.
///
/// No test waits for a clock to be right: as long as somebody is under way all ranks have much
/// patience, and only when every other rank stands still does it become short.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/comm/forwarding_group.h"
#include "weft/comm/communicator.h"
#include "weft/comm/group.h"
#include "weft/comm/local/board.h"
#include "weft/comm/messages.h"
#include "weft/comm/waits.h"

namespace weft::comm::testing {

enum class FaultKind {
  kNone,    ///< the exchanges are only listed
  kThrows,  ///< an error of its own
  kLeaves,  ///< returns, and calls nothing more
  kStops,   ///< never comes: hears of the error of the others, and ends with it
  kLate,    ///< comes when the others' patience has ended
};

/// A fault is what goes wrong on rank `rank`, before which of its exchanges: of all, or, with a
/// name, of those that are called so.
struct Fault {
  FaultKind kind = FaultKind::kNone;
  int rank = 0;
  int before = 0;         ///< so many exchanges go well
  std::string name = {};  ///< "merge of group 'test'"
};

inline constexpr const char* kOwnError = "the disk is gone";

/// The patience of every wait while ranks are under way, and when they stand still.
inline constexpr double kMuchPatience_s = 300.0;
inline constexpr double kShortPatience_s = 0.1;

/// An exchange of the faulty rank.
struct NamedExchange {
  std::string name;   ///< "merge of group 'test'"
  std::string exact;  ///< "merge #12 of group 'test'"
};

/// FaultyRun is what the ranks of one run share.
class FaultyRun {
 public:
  FaultyRun(LocalWorld& world, Fault fault, int ranks)
      : world_(world), fault_(std::move(fault)), ranks_(ranks) {}

  /// From here on exchanges of `rank` count. Before, nothing goes wrong.
  void arm(int rank) {
    const std::lock_guard lock(mutex_);
    armed_ = armed_ || rank == fault_.rank;
  }

  /// Called by every rank.
  void before_exchange(Group& group, const Exchange& call) {
    if (group.world_rank(group.rank()) != fault_.rank || group.size() == 1) {
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      if (!armed_) {
        return;
      }
      NamedExchange one{
          .name = fmt::format("{} of group '{}'", to_string(call.stamp.collective), group.name()),
          .exact = describe(call.stamp, group.name())};
      const bool counts = fault_.name.empty() || fault_.name == one.name;
      exchanges_.push_back(one);
      if (fault_.kind == FaultKind::kNone || !counts || count_++ != fault_.before) {
        return;
      }
      hit_ = one.exact;
    }
    go_wrong(group);
  }

  /// Thrown by a rank that leaves.
  struct Left {};

  [[nodiscard]] const std::vector<NamedExchange>& exchanges() const { return exchanges_; }

  [[nodiscard]] const std::string& hit() const { return hit_; }

 private:
  void go_wrong(Group& group) {
    switch (fault_.kind) {
      case FaultKind::kNone:
        return;
      case FaultKind::kThrows:
        fail(ErrorCode::kData, "{}", kOwnError);
      case FaultKind::kLeaves:
        throw Left{};
      case FaultKind::kStops:
      case FaultKind::kLate:
        break;
    }
    await_standstill();
    world_.say_alive();  // what they have waited counts no more
    world_.set_timeout_s(kShortPatience_s);
    while (!world_.aborted()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (fault_.kind == FaultKind::kStops) {
      group.check();
    }
  }

  /// Until every other rank waits for one that has not come. Who does so in the same exchange twice
  /// has done so all the time between, so between two equal looks nobody was under way.
  void await_standstill() {
    using std::chrono::steady_clock;
    std::map<int, std::string> before;
    for (const auto end = steady_clock::now() + std::chrono::seconds(90);;) {
      std::map<int, std::string> now;
      for (const Wait& wait : world_.waits()) {
        now.emplace(wait.self.in_world, describe(wait.stamp, wait.group));
      }
      now.erase(fault_.rank);
      if (std::ssize(now) == ranks_ - 1 && now == before) {
        return;
      }
      if (steady_clock::now() > end) {
        fail(ErrorCode::kInternal, "{} others do not wait for rank {}",
             ranks_ - 1 - std::ssize(now), fault_.rank);
      }
      before = std::move(now);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  LocalWorld& world_;
  Fault fault_;
  int ranks_;
  std::mutex mutex_;
  bool armed_ = false;
  int count_ = 0;
  std::string hit_;
  std::vector<NamedExchange> exchanges_;
};

class FaultyGroup final : public ForwardingGroup<Group> {
 public:
  FaultyGroup(std::unique_ptr<Group> under, FaultyRun& run)
      : ForwardingGroup(std::move(under)), run_(run) {}

  void exchange(const Exchange& call) override {
    run_.before_exchange(under(), call);
    under().exchange(call);
  }

  std::int64_t propose_token() override { return under().propose_token(); }

  std::unique_ptr<Group> make_group(const SubgroupOptions& options) override {
    return std::make_unique<FaultyGroup>(under().make_group(options), run_);
  }

  [[nodiscard]] ActivityLog& activity() override { return under().activity(); }

 private:
  FaultyRun& run_;
};

/// How a run has ended.
struct FaultOutcome {
  std::vector<std::string> seen;  ///< [ranks] the error's text, "" where the body returned or left
  std::vector<int> codes;         ///< [ranks] of these errors, -1 where there is none
  std::vector<int> origins;       ///< [ranks]
  std::string hit;                ///< the exchange before which it happened: "merge #12 of ..."
  std::vector<NamedExchange> exchanges;  ///< of the faulty rank
};

using FaultyBody = std::function<void(Communicator& world, FaultyRun& run)>;

/// Runs `body` on ranks as threads, on hosts as given.
inline FaultOutcome run_with(const Fault& fault,
                             const std::vector<int>& hosts,
                             const FaultyBody& body) {
  const auto ranks = static_cast<int>(hosts.size());
  const auto world =
      std::make_shared<LocalWorld>(ranks, kMuchPatience_s, std::make_shared<ActivityLog>(), hosts);
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) {
    members.push_back(rank);
  }
  const std::shared_ptr<Board> board = world->make_board("world", members);
  FaultyRun run(*world, fault, ranks);
  FaultOutcome outcome{.seen = std::vector<std::string>(hosts.size()),
                       .codes = std::vector<int>(hosts.size(), -1),
                       .origins = std::vector<int>(hosts.size(), -1),
                       .hit = {},
                       .exchanges = {}};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto self = static_cast<std::size_t>(rank);
      try {
        Communicator own(std::make_unique<FaultyGroup>(make_local_group(world, board, rank), run));
        body(own, run);
      } catch (const FaultyRun::Left&) {
        outcome.seen[self].clear();
      } catch (...) {
        const Error error = as_error(std::current_exception(), rank);
        outcome.seen[self] = error.what();
        outcome.codes[self] = static_cast<int>(error.code());
        outcome.origins[self] = error.origin_rank();
        world->abort(error);
      }
      world->end_rank(rank);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  outcome.hit = run.hit();
  outcome.exchanges = run.exchanges();
  return outcome;
}

/// Returns whether nothing is left out that takes long, which is for runs by hand.
inline bool all_faults() {
  return std::getenv("WEFT_ALL_FAULTS") != nullptr;
}

/// [ranks] hosts with so many ranks each.
inline std::vector<int> hosts_of_sizes(const std::vector<int>& sizes) {
  std::vector<int> hosts;
  for (std::size_t h = 0; h < sizes.size(); ++h) {
    hosts.insert(hosts.end(), static_cast<std::size_t>(sizes[h]), static_cast<int>(h));
  }
  return hosts;
}

}  // namespace weft::comm::testing
