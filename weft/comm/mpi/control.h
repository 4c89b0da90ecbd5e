/// Private to comm/mpi: errors and the end of the job, on a communicator of their own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/mpi/mpi_calls.h"
#include "weft/comm/waits.h"

namespace weft::comm {

/// Which error is the world's, and who has come to the end.
///
/// A rank that fails reports to rank 0. Rank 0 makes the first error it hears of the verdict and
/// sends it to everybody, so all ranks throw the same. A rank whose patience has ended reports its
/// wait; rank 0 then asks all ranks what they wait for, so that the verdict names the rank at fault
/// and not one that waits for it (weft/comm/waits.h), or did not answer. A rank that gets no
/// verdict in time makes do with its own error. At the end each rank says so to all others, after
/// its error is settled.
/// Progress thread only. Messages between two ranks arrive in order.
class Control {
 public:
  Control(MPI_Comm comm, int rank, int size);

  /// This rank has failed.
  void fail_with(const Error& error);

  /// A wait of this rank has lasted too long.
  void report_late(const Wait& wait);

  /// Whether rank 0 has asked what this rank waits for, and answer() has not been called.
  [[nodiscard]] bool is_asked() const { return is_asked_; }

  /// Tells rank 0 all waits of this rank.
  void answer(std::span<const Wait> waits);

  /// Takes in and sends off messages. Returns whether any came.
  bool poll();

  /// The world's error, once it is known here.
  [[nodiscard]] const std::optional<Error>& verdict() const { return verdict_; }

  /// No report is waiting for its verdict, of this rank or of one that said its end.
  [[nodiscard]] bool settled() const;

  /// Tells all others that this rank is alive in long work of its own.
  void say_alive();

  /// When any rank, this one included, has last said so; the beginning of time where none has.
  [[nodiscard]] std::chrono::steady_clock::time_point last_alive() const { return last_alive_; }

  /// After an error: tells all others that this rank waits for lost ones to take what was sent to
  /// them.
  void say_waiting();

  /// Ranks that have neither said their end nor that they wait, apart from this one.
  [[nodiscard]] std::vector<int> lost() const;

  void say_end();

  [[nodiscard]] bool has_said_end() const { return said_end_; }

  /// Whether another rank has said its end.
  [[nodiscard]] bool any_has_ended() const { return any_ended_; }

  [[nodiscard]] bool all_have_ended() const;

  [[nodiscard]] std::vector<int> not_ended() const;

  /// Whether `rank` said its end longer ago than messages it sent before may take.
  [[nodiscard]] bool ended_long_ago(int rank) const;

  /// All messages have gone.
  [[nodiscard]] bool flushed() const { return outbox_.empty(); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Kind : std::uint32_t {
    kReport = 1,
    kVerdict = 2,
    kEnd = 3,
    kAlive = 4,
    kWaiting = 5,
    kLate = 6,    ///< a wait that has lasted too long; to rank 0
    kAsk = 7,     ///< what do you wait for? from rank 0
    kAnswer = 8,  ///< the waits of a rank; to rank 0
  };

  struct Outgoing {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  /// Of rank 0, while it asks.
  struct Inquiry {
    Wait first;
    Clock::time_point asked;
    std::vector<Wait> waits;
    std::vector<bool> answered;  ///< [W]
  };

  void receive(const MPI_Status& status);
  void send(int to, Kind kind, const std::optional<Error>& error);
  void send_bytes(int to, std::vector<std::byte> bytes);
  void send_waits(Kind kind, std::span<const Wait> waits);
  void ask(const Wait& first);
  void take_answer(int rank, std::vector<Wait> waits);
  void end_inquiry();
  void give_up_on_verdict();
  void decide(const Error& error);

  MPI_Comm comm_;
  int rank_;
  std::optional<Error> verdict_;
  std::optional<Error> own_;  ///< reported, and no verdict yet
  Clock::time_point reported_;
  std::optional<Inquiry> inquiry_;
  bool is_asked_ = false;
  bool said_end_ = false;
  bool said_waiting_ = false;
  std::vector<bool> waiting_;
  bool any_ended_ = false;
  std::vector<std::optional<Clock::time_point>> ended_;
  std::optional<Clock::time_point> failed_end_;  ///< a rank ended with an error not known here
  Clock::time_point last_alive_ = Clock::time_point::min();
  std::list<Outgoing> outbox_;
};

}  // namespace weft::comm
