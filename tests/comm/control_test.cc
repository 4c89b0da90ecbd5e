// Errors, signs of life and the end of a job over many ranks of one thread, with a clock of their
// own: how many messages each rank sends, and what becomes of ranks that are lost.
#include "weft/comm/mpi/control.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weft/comm/mpi/rank_links.h"

namespace weft::comm {
namespace {

using std::chrono::milliseconds;

/// Ranks and what carries their letters: a millisecond each.
class Many {
 public:
  explicit Many(int size, double timeout_s = 60.0) {
    for (int rank = 0; rank < size; ++rank) {
      desks_.push_back(std::make_unique<Desk>(*this, rank));
    }
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Control>(*desks_[static_cast<std::size_t>(rank)], rank,
                                                 size, timeout_s));
    }
  }

  Many(const Many&) = delete;
  Many& operator=(const Many&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }

  Control& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  /// It takes nothing in from now on.
  void stop(int rank) { stopped_.insert(rank); }

  /// What a rank waits for, when it is asked.
  std::map<int, std::vector<Wait>> waits;

  /// Ranks that are not stopped go on for so long, or until nothing moves where `time` is 0.
  void run(milliseconds time = milliseconds(0)) {
    const auto end = now_ + time;
    for (;;) {
      bool moves = false;
      for (const auto& desk : desks_) {
        moves = moves || (!desk->letters.empty() && !stopped_.contains(desk->rank));
      }
      if (!moves && now_ >= end) {
        return;
      }
      now_ += moves ? milliseconds(1) : milliseconds(10);
      for (const auto& desk : desks_) {
        desk->come = desk->letters.size();  // what is sent from here on comes later
      }
      for (int rank = 0; rank < size(); ++rank) {
        if (!stopped_.contains(rank)) {
          (*this)[rank].poll();
          if ((*this)[rank].is_asked()) {
            (*this)[rank].answer(waits[rank]);
          }
        }
      }
    }
  }

  /// Calls do(control) on all ranks that are not stopped.
  void each(const std::function<void(int rank, Control& control)>& call) {
    for (int rank = 0; rank < size(); ++rank) {
      if (!stopped_.contains(rank)) {
        call(rank, (*this)[rank]);
      }
    }
  }

  /// The letters that each rank has sent since this was last asked.
  std::vector<std::int64_t> sent() {
    std::vector<std::int64_t> counts;
    for (const auto& desk : desks_) {
      counts.push_back(std::exchange(desk->sent, 0));
    }
    return counts;
  }

 private:
  struct Desk final : Post {
    Desk(Many& owner, int own) : many(owner), rank(own) {}

    void send(int to, std::vector<std::byte> bytes) override {
      ++sent;
      many.desks_[static_cast<std::size_t>(to)]->letters.push_back({rank, std::move(bytes)});
    }

    std::optional<Letter> receive() override {
      if (come == 0) {
        return std::nullopt;
      }
      --come;
      Letter letter = std::move(letters.front());
      letters.pop_front();
      return letter;
    }

    [[nodiscard]] std::size_t backlog() const override { return 0; }

    [[nodiscard]] Clock::time_point now() const override { return many.now_; }

    Many& many;
    int rank;
    std::deque<Letter> letters;
    std::size_t come = 0;
    std::int64_t sent = 0;
  };

  Post::Clock::time_point now_;
  std::set<int> stopped_;
  std::vector<std::unique_ptr<Desk>> desks_;
  std::vector<std::unique_ptr<Control>> ranks_;
};

constexpr int kHost = 8;  // ranks
const std::vector<int> kSizes = {8, 64, 512, 4096};

std::int64_t most(const std::vector<std::int64_t>& counts) {
  return *std::max_element(counts.begin(), counts.end());
}

/// Whether a count grows by the same number whenever there are eight times as many ranks.
bool grows_like_log(const std::map<int, std::int64_t>& by_size) {
  std::set<std::int64_t> steps;
  for (auto one = std::next(by_size.begin()); one != by_size.end(); ++one) {
    steps.insert(one->second - std::prev(one)->second);
  }
  return steps.size() == 1;
}

/// What a rank sends where each tells all others.
std::map<int, std::int64_t> flat_counts() {
  std::map<int, std::int64_t> counts;
  for (const int size : kSizes) {
    counts[size] = size - 1;
  }
  return counts;
}

/// Rank `at` leads these in the tree, itself included.
bool leads(int at, int rank) {
  while (rank > at) {
    rank = tree_parent(rank);
  }
  return rank == at;
}

/// Of a merge in the tree for which `late` has not come: its leaders wait for each other up to
/// rank 0, and all others for what comes down.
void wait_for(Many& many, int late) {
  for (int rank = 0; rank < many.size(); ++rank) {
    if (rank == late) {
      continue;
    }
    int missing = tree_parent(rank);
    for (const int child : tree_children(rank, many.size())) {
      missing = leads(child, late) ? child : missing;
    }
    many.waits[rank] = {{.self = {rank, rank},
                         .group = "world",
                         .stamp = {.sequence = 3, .collective = Collective::kMerge},
                         .seconds = 60.0,
                         .missing = {{missing, missing}}}};
  }
}

TEST(Control, OfTheEndEachRankTellsItsLeaderAndThoseItLeads) {
  std::map<int, std::int64_t> counts;
  for (const int size : kSizes) {
    Many many(size);
    for (int i = 0; i < size; ++i) {
      const int rank = (i * 37 + 11) % size;
      EXPECT_FALSE(many[0].all_have_ended());
      many[rank].say_end();
      if (i % 64 == 63 || i == size - 1) {
        many.run();
      }
    }
    many.each([](int, Control& control) { EXPECT_TRUE(control.all_have_ended()); });
    const std::vector<std::int64_t> sent = many.sent();
    EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), std::int64_t{0}), 2 * (size - 1));
    EXPECT_EQ(most(sent), sent[0]);
    counts[size] = most(sent);
  }
  EXPECT_EQ(counts.at(4096), 28);
  EXPECT_TRUE(grows_like_log(counts));
  EXPECT_FALSE(grows_like_log(flat_counts())) << "what each rank sent when it told all others";
}

TEST(Control, ASignOfLifeGoesOnceThroughEachRankHoweverManyGiveOne) {
  std::map<int, std::int64_t> counts;
  for (const int size : kSizes) {
    for (const bool all : {false, true}) {
      Many many(size);
      many.each([&](int rank, Control& control) {
        if (all || rank == size / 3) {
          control.say_alive();
        }
      });
      many.run();
      const std::vector<std::int64_t> sent = many.sent();
      counts[size] = most(sent);
      EXPECT_EQ(std::set<std::int64_t>(sent.begin(), sent.end()).size(), 1U) << "all the same";
      many.each([](int, Control& control) {
        EXPECT_GT(control.last_alive(), Post::Clock::time_point::min());
      });
      many[0].say_alive();
      many.run();
      EXPECT_EQ(most(many.sent()), 0) << "another one says nothing new";
      many.run(milliseconds(600));
      many[0].say_alive();
      many.run();
      EXPECT_EQ(most(many.sent()), counts.at(size)) << "a later one does";
    }
  }
  EXPECT_EQ(counts.at(4096), 23);
  EXPECT_TRUE(grows_like_log(counts));
}

// Where a flood answered every message that comes, it would never end; and a rank that was slow
// would keep others waiting for one that is lost.
TEST(Control, ARankThatWasSlowGivesNoNewSignOfLife) {
  Many many(64);
  many.stop(5);
  many[0].say_alive();
  many.run();
  const auto heard = many[1].last_alive();
  many.run(milliseconds(2000));
  EXPECT_EQ(many[1].last_alive(), heard);
}

TEST(Control, AnErrorOfAnyRankOrOfAllAtOnceIsEverybodys) {
  std::map<int, std::int64_t> counts;
  for (const int size : kSizes) {
    for (const int failing : {0, size - 1, -1}) {
      Many many(size);
      many.each([&](int rank, Control& control) {
        if (failing < 0 || rank == failing) {
          control.fail_with(Error(ErrorCode::kData, "file of " + std::to_string(rank)));
        }
      });
      many.run();
      const std::string text = many[0].verdict()->what();
      EXPECT_EQ(text, "file of " + std::to_string(std::max(failing, 0)));
      many.each([&](int, Control& control) {
        ASSERT_TRUE(control.verdict());
        EXPECT_EQ(control.verdict()->what(), text);
        EXPECT_TRUE(control.settled());
        EXPECT_TRUE(control.flushed());
      });
      counts[size] = most(many.sent());
    }
  }
  EXPECT_EQ(counts.at(4096), 23 + 1) << "all fail: a report of each, and none is passed on";
  EXPECT_TRUE(grows_like_log(counts));
}

TEST(Control, AReportFindsItsWayAroundLostLeaders) {
  for (const int lost : {8, 64, 72}) {
    Many many(512);
    many.stop(lost);
    many.stop(64);
    many[73].fail_with(Error(ErrorCode::kData, "the disk is gone"));
    many.run(milliseconds(1000));
    many.each([&](int rank, Control& control) {
      ASSERT_TRUE(control.verdict()) << rank << " without " << lost;
      EXPECT_STREQ(control.verdict()->what(), "the disk is gone");
      EXPECT_EQ(control.verdict()->origin_rank(), 73);
    });
  }
}

TEST(Control, AnErrorReachesAllWhereHostsAreLost) {
  for (const int host : {1, 3, 7}) {
    Many many(64);
    for (int rank = host * kHost; rank < (host + 1) * kHost; ++rank) {
      many.stop(rank);
      many.stop((rank + 2 * kHost) % 64 == 0 ? 63 : (rank + 2 * kHost) % 64);
    }
    many[0].fail_with(Error(ErrorCode::kData, "the disk is gone"));
    many.run();
    many.each([](int rank, Control& control) { EXPECT_TRUE(control.verdict()) << rank; });
  }
}

TEST(Control, ALateOrStoppedRankIsNamedWhenAllPatienceEndsAtOnce) {
  for (const int size : {64, 512}) {
    for (const int lost : {1, 8, 9, 56, size - 1}) {
      for (const bool stopped : {false, true}) {
        Many many(size);
        wait_for(many, lost);
        if (stopped) {
          many.stop(lost);
        }
        many.each([&](int rank, Control& control) {
          if (rank != lost) {
            control.report_late(many.waits.at(rank).front());
          }
        });
        many.run(milliseconds(2000));
        const std::string named =
            "these are missing: rank " + std::to_string(lost) +
            (stopped ? " (rank " + std::to_string(lost) + " did not answer" : "; look at");
        many.each([&](int rank, Control& control) {
          ASSERT_TRUE(control.verdict()) << rank;
          EXPECT_NE(std::string(control.verdict()->what()).find(named), std::string::npos)
              << control.verdict()->what();
        });
        // The verdict; of rank 0 also questions to the ranks on the way, three at most; of others
        // a report, one from below, and those that climb past a lost rank, or an answer.
        const std::int64_t links = std::ssize(neighbours(0, size));
        EXPECT_LE(most(many.sent()), links + 5);
      }
    }
  }
}

TEST(Control, WithoutRankZeroAllEndWithAnErrorThatSaysSo) {
  Many many(64);
  wait_for(many, 0);
  many.stop(0);
  many.each([&](int rank, Control& control) {
    if (rank % 9 == 1) {
      control.report_late(many.waits.at(rank).front());
    }
  });
  many.run(milliseconds(4500));
  many.each([](int rank, Control& control) {
    ASSERT_TRUE(control.verdict()) << rank;
    EXPECT_NE(std::string(control.verdict()->what()).find("rank 0, which hears of all errors"),
              std::string::npos);
  });
}

TEST(Control, ARealErrorGoesBeforeOneOfWaiting) {
  Many many(64);
  wait_for(many, 9);
  many.stop(9);  // so that the inquiry lasts
  many[0].report_late(many.waits.at(0).front());
  many[17].report_late(many.waits.at(17).front());
  many.run();
  EXPECT_FALSE(many[0].verdict());
  many[18].fail_with(Error(ErrorCode::kData, "the disk is gone"));
  many.run();
  ASSERT_TRUE(many[60].verdict());
  EXPECT_STREQ(many[60].verdict()->what(), "the disk is gone");
}

TEST(Control, WhoIsAskedTellsItsEndThenOrLater) {
  Many many(64);
  many[3].ask_for_end(40);
  many[3].ask_for_end(40);
  many[5].say_end();
  many[3].ask_for_end(5);
  many.run(milliseconds(900));
  EXPECT_FALSE(many[3].ended_long_ago(5)) << "what it sent before may still come";
  many[40].say_end();
  many.run(milliseconds(200));
  EXPECT_TRUE(many[3].ended_long_ago(5));
  EXPECT_FALSE(many[3].ended_long_ago(40));
  many.run(milliseconds(1000));
  EXPECT_TRUE(many[3].ended_long_ago(40));
  EXPECT_EQ(many.sent()[3], 2) << "one question to each";
}

TEST(Control, WhoDoesNotComeToTheEndIsNamed) {
  for (const int lost : {1, 8, 9, 63}) {
    for (const bool stopped : {false, true}) {
      Many many(64);
      if (stopped) {
        many.stop(lost);
      }
      many.each([&](int rank, Control& control) {
        if (rank != lost) {
          control.say_end();
        }
      });
      many.run();
      many.each([&](int rank, Control& control) {
        if (rank != lost) {
          control.report_late(control.end_wait(60.0));
        }
      });
      many.run(milliseconds(2000));
      const std::string leader = std::to_string(tree_parent(lost));
      const std::string wanted = "rank " + leader +
                                 " has come to the end and waited 60.0 s for rank " +
                                 std::to_string(lost) + (stopped ? " (rank" : "");
      many.each([&](int, Control& control) {
        ASSERT_TRUE(control.verdict());
        const std::string text = control.verdict()->what();
        EXPECT_TRUE(stopped ? text.starts_with(wanted) : text == wanted) << text;
      });
    }
  }
}

/// After an error these are stopped, `hang` is elsewhere, and the others have come or wait. All
/// must know the same, and in turns of their own.
void expect_roll(int size, const std::set<int>& stopped, int hang) {
  Many many(size);
  for (const int rank : stopped) {
    many.stop(rank);
  }
  many.each([](int rank, Control& control) {
    control.fail_with(Error(ErrorCode::kData, "file of " + std::to_string(rank)));
  });
  many.run(milliseconds(5000));
  many.sent();
  std::set<int> wanted = stopped;
  const auto answer = [&](int rank, Control& control) {
    EXPECT_TRUE(control.verdict());
    control.answer_roll(rank == hang    ? RollState::kElsewhere
                        : rank % 2 == 0 ? RollState::kWaits
                                        : RollState::kEnded);
  };
  if (hang >= 0) {
    wanted.insert(hang);
  }
  many.each(answer);
  many.run(milliseconds(900));
  std::set<int> turns;
  int first = -1;
  many.each([&](int rank, Control& control) {
    EXPECT_EQ(control.roll().lost(), std::vector<int>(wanted.begin(), wanted.end()));
    turns.insert(control.roll().turn());
    first = control.roll().turn() == 0 ? rank : first;
  });
  EXPECT_EQ(std::ssize(turns), size - std::ssize(stopped)) << "no two in one turn";
  EXPECT_EQ(*turns.begin(), 0);
  EXPECT_FALSE(wanted.contains(first)) << "who ends the job is not lost";
  const std::int64_t links = std::ssize(neighbours(0, size));
  int hops = 0;
  while ((1 << hops) < size) {
    ++hops;
  }
  EXPECT_LE(most(many.sent()), links * (hops + 1)) << "once for each hop from the farthest rank";
}

TEST(Control, AfterAnErrorAllKnowWhoIsLostAndOneEndsTheJob) {
  expect_roll(64, {9}, -1);
  expect_roll(64, {0}, -1);
  expect_roll(64, {8, 16, 63}, -1);
  expect_roll(64, {24, 25, 26, 27, 28, 29, 30, 31}, 8);
  expect_roll(64, {1, 2, 4, 8, 16, 32, 63, 62, 60}, 0);
  expect_roll(512, {64, 72, 73}, 448);
  expect_roll(5, {}, 0);
  expect_roll(4, {1, 2, 3}, -1);
}

// Where every caller hangs outside of Weft, one rank still ends the job.
TEST(Control, WhereAllHangOneEndsTheJob) {
  Many many(64);
  many[3].fail_with(Error(ErrorCode::kData, "the disk is gone"));
  many.run();
  many.each([](int, Control& control) { control.answer_roll(RollState::kElsewhere); });
  many.run(milliseconds(900));
  many.each([](int rank, Control& control) { EXPECT_EQ(control.roll().turn(), rank); });
}

}  // namespace
}  // namespace weft::comm
