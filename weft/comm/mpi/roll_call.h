/// Private to comm/mpi: which ranks are there, some time after an error, and which of them ends the
/// job.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::comm {

/// What is known of a rank; a later one holds.
enum class RollState : std::uint8_t {
  kUnheard = 0,
  kElsewhere = 1,  ///< it answers, but its caller has not come back since the error
  kWaits = 2,      ///< for a lost rank to take what was sent to it, or for the end
  kEnded = 3,      ///< it has said its end
};

/// A rank that is asked tells its neighbours (rank_links.h) what it is doing, and again whenever it
/// has learned of others, at most every kPause: so that all ranks that are there know the same
/// after a few pauses, whichever are lost, in O(log W) messages of each and two bits of a rank in
/// each message. Plain state: who holds it sends and receives.
class RollCall {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kPause = std::chrono::milliseconds(50);

  RollCall(int rank, int size);

  /// Whether this rank or another has answered.
  [[nodiscard]] bool begun() const { return begun_; }

  /// What this rank is doing. Any number of times.
  void answer(RollState own);

  /// What another rank knows.
  void take(std::span<const std::byte> states);

  /// Whether there is something new to tell.
  [[nodiscard]] bool is_due(Clock::time_point now) const {
    return answered_ && has_news_ && now >= next_;
  }

  /// Returns what is to be told.
  std::vector<std::byte> tell(Clock::time_point now);

  /// Returns the ranks that have not come to an end and do not wait for others either; where there
  /// are none, those that have not ended.
  [[nodiscard]] std::vector<int> lost() const;

  /// How many ranks are to end the job before this one does: those that are there, by their
  /// numbers, then those that are elsewhere. 0 on one rank of all that know the same.
  [[nodiscard]] int turn() const;

 private:
  void learn(std::size_t rank, RollState state);

  std::size_t rank_;
  std::vector<RollState> states_;  ///< [W]
  bool begun_ = false;
  bool answered_ = false;
  bool has_news_ = false;
  Clock::time_point next_ = Clock::time_point::min();
};

}  // namespace weft::comm
