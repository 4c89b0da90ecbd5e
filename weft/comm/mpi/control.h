/// Private to comm/mpi: errors and the end of the job, on a communicator of their own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/mpi/control_message.h"
#include "weft/comm/mpi/post.h"
#include "weft/comm/mpi/roll_call.h"
#include "weft/comm/waits.h"

namespace weft::comm {

/// Which error is the world's, and who has come to the end.
///
/// A rank that fails reports up the tree over ranks, in which each rank passes on the first report
/// that it hears; where no verdict comes, the report goes again, each time to the next rank above.
/// Rank 0 makes the first error it hears of the verdict, and each rank passes that on to its
/// neighbours (rank_links.h), so all ranks throw the same. A rank whose patience has ended reports
/// its wait; rank 0 then asks those that it misses what they wait for, then those that they miss,
/// so that the verdict names the rank at fault and not one that waits for it (weft/comm/waits.h),
/// or did not answer. A rank that gets no verdict in time makes do with its own error. At the end
/// each rank says so up the tree, after its error is settled, and when all have, rank 0 says that
/// down the tree.
///
/// Messages of a rank, of W: at most 7 log8 W and one at the end; 2 log2 W - 1 for the verdict and
/// for each sign of life, however many ranks give one at the same time; an answer, a report of its
/// own and one of each kind from below; of rank 0 a question to each rank on the way to the one at
/// fault. Memory: two bits and a byte of each rank.
/// Progress thread only. Messages between two ranks arrive in order.
class Control {
 public:
  /// `post` outlives the object. timeout_s: how long ranks wait for others.
  Control(Post& post, int rank, int size, double timeout_s);

  /// This rank has failed.
  void fail_with(const Error& error);

  /// A wait of this rank has lasted too long.
  void report_late(const Wait& wait);

  /// Whether rank 0 has asked what this rank waits for, and answer() has not been called.
  [[nodiscard]] bool is_asked() const { return is_asked_; }

  /// Tells rank 0 all waits of this rank in exchanges.
  void answer(std::span<const Wait> waits);

  /// Takes in and sends off messages. Returns whether any came.
  bool poll();

  /// The world's error, once it is known here.
  [[nodiscard]] const std::optional<Error>& verdict() const { return verdict_; }

  /// No report is waiting for its verdict, of this rank or of one that said its end.
  [[nodiscard]] bool settled() const;

  /// Tells all others that this rank is alive in long work of its own, unless one has just said so.
  void say_alive();

  /// When any rank, this one included, has last said so; the beginning of time where none has.
  [[nodiscard]] std::chrono::steady_clock::time_point last_alive() const { return last_alive_; }

  /// Asks a rank to tell this one when it has come to the end. Once is enough.
  void ask_for_end(int rank);

  /// Whether `rank` has told its end longer ago than messages it sent before may take.
  [[nodiscard]] bool ended_long_ago(int rank) const;

  /// This rank has come to the end.
  void say_end();

  [[nodiscard]] bool has_said_end() const { return said_end_; }

  [[nodiscard]] bool all_have_ended() const { return all_have_ended_; }

  /// The wait of this rank for others to come to the end.
  [[nodiscard]] Wait end_wait(double seconds) const;

  /// After an error, when ranks are lost: tells the others what this one is doing.
  void answer_roll(RollState own) { roll_.answer(own); }

  [[nodiscard]] const RollCall& roll() const { return roll_; }

  /// All messages have gone, and all copies of the verdict have come.
  [[nodiscard]] bool flushed() const;

 private:
  using Clock = Post::Clock;

  /// Of rank 0, while it asks.
  struct Inquiry {
    Wait first;
    Clock::time_point begun;
    Clock::time_point last_asked;
    std::vector<Wait> waits = {};
    std::set<int> asked = {};
    std::set<int> silent = {};  ///< of these who has not answered
  };

  /// A report of this rank on its way up.
  struct Climb {
    std::vector<std::byte> bytes;
    int at = 0;  ///< who has it
    Clock::time_point next;
  };

  void receive(const Letter& letter);
  void receive_end(int from, const ControlRecord& record);
  void receive_report(const Letter& letter, const ControlRecord& record);
  void pass_on(const std::vector<std::byte>& bytes);
  void pass_alive();
  void pass_end_up();
  void pass_end_down();
  void send_up(std::vector<std::byte> bytes);
  void climb();
  void ask(const Wait& first);
  void ask_missing_of(const Wait& wait);
  void take_answer(int rank, std::span<const Wait> waits);
  void end_inquiry();
  void give_up_on_verdict();
  void decide(const Error& error);

  Post& post_;
  int rank_;
  int size_;
  std::vector<int> neighbours_;
  std::vector<int> children_;
  std::optional<Error> verdict_;
  std::size_t verdicts_heard_ = 0;  ///< from neighbours
  std::optional<Error> own_;        ///< reported, and no verdict yet
  bool own_is_late_ = false;
  Clock::time_point reported_;
  std::optional<Climb> climb_;
  bool passed_report_ = false;  ///< of another rank, up the tree
  bool passed_late_ = false;
  std::optional<Inquiry> inquiry_;
  bool is_asked_ = false;
  bool is_asked_of_end_ = false;
  std::set<int> open_children_;  ///< whose subtrees have not come to the end
  bool said_end_ = false;
  bool passed_end_ = false;
  bool all_have_ended_ = false;
  std::set<int> asked_for_end_;                  ///< by this rank
  std::vector<int> to_tell_;                     ///< when this rank has come to the end
  std::map<int, Clock::time_point> has_ended_;   ///< and when it told
  std::optional<Clock::time_point> failed_end_;  ///< ranks ended with an error not known here
  Clock::duration alive_pause_;
  std::uint64_t alive_number_ = 0;  ///< of signs of life, in the world
  Clock::time_point last_alive_ = Clock::time_point::min();
  RollCall roll_;
};

}  // namespace weft::comm
