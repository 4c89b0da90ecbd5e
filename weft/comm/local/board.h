/// Private to comm/local: the memory that ranks in threads share.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/activity.h"
#include "weft/comm/collective.h"
#include "weft/comm/group.h"
#include "weft/comm/waits.h"

namespace weft::comm {

class LocalWorld;

/// Where the ranks of one group meet.
///
/// An exchange has three phases. Post: a rank writes down where its lanes are and waits until all
/// ranks have. Read: it compares the others' stamps with its own and reads what they send to it
/// where they hold it. Finish: it waits until all have read; then its memory is its own again.
///
/// Pointers on the board stay good until the owner leaves the exchange. In order it leaves when
/// everybody has read. After an abort nobody begins to read, and nobody leaves while somebody
/// still does. The abort flag is set before the boards' mutexes are taken to wake the waiting, and
/// is read under the mutex, so those who read are known to those who leave.
class Board {
 public:
  Board(LocalWorld& world, std::string name, std::vector<int> members);

  void exchange(int rank, const Exchange& call);

  /// Wakes the waiting ranks, for the world's error or a rank's end.
  void wake();

  /// Adds the waits of the ranks that have come to a round which is not full yet.
  void add_waits(std::vector<Wait>& waits);

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] const std::vector<int>& members() const { return members_; }  ///< world ranks

 private:
  struct Post {
    std::uint64_t posted = 0;                     ///< exchanges this rank has come to
    std::chrono::steady_clock::time_point since;  ///< when it came to the last
    Stamp stamp;
    std::span<const Lane> send;
    std::span<const Lane> recv;
    std::vector<Lane> arrived;  ///< what the others send to this rank
  };

  using Lock = std::unique_lock<std::mutex>;

  void post(int rank, const Exchange& call);
  void wait_for_all(Lock& lock, int rank, std::uint64_t round);
  void check_present(Lock& lock, int rank, std::uint64_t round);
  [[noreturn]] void fail_late(Lock& lock, int rank, std::uint64_t round);
  [[nodiscard]] Wait wait_of(int rank, std::uint64_t round) const;

  [[nodiscard]] bool is_missing(std::size_t rank, std::uint64_t round) const {
    return posts_[rank].posted <= round;
  }

  std::optional<Error> read_from_peers(int rank, const LaneReader& read);
  std::optional<Error> collect_arrived(int rank);
  void finish(Lock& lock, std::uint64_t round);
  [[noreturn]] void fail_world(Lock& lock, const Error& error);
  [[noreturn]] void leave_aborted(Lock& lock);

  LocalWorld& world_;
  std::string name_;
  std::vector<int> members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Post> posts_;
  int arrived_ = 0;             ///< ranks that have posted in the round that is filling
  std::uint64_t filled_ = 0;    ///< rounds in which all have posted
  int reading_ = 0;             ///< ranks that read now
  int have_read_ = 0;           ///< ranks that have read in the last filled round
  std::uint64_t finished_ = 0;  ///< rounds in which all have read
};

/// The ranks of one run_local and their error.
class LocalWorld {
 public:
  LocalWorld(int ranks,
             double timeout_s,
             std::shared_ptr<ActivityLog> activity,
             std::vector<int> hosts);

  std::shared_ptr<Board> make_board(std::string name, std::vector<int> members);

  /// The board of a new group: the first member that comes makes it, the last takes the note away.
  std::shared_ptr<Board> meet(const Board& parent, const SubgroupOptions& options);

  /// Makes `error` the world's unless there is one, and wakes everybody.
  void abort(const Error& error);

  void check() const;

  /// The waits of all ranks, group by group.
  std::vector<Wait> waits();

  [[nodiscard]] bool aborted() const { return aborted_.load(); }

  void end_rank(int rank);

  /// Waits until ranks [0, started) have ended, after an error no longer than `seconds`. Returns
  /// those that have not.
  std::vector<int> wait_for_ranks(int started, double seconds);

  [[nodiscard]] bool has_ended(int rank) const {
    return ended_[static_cast<std::size_t>(rank)].load();
  }

  [[nodiscard]] int host(int rank) const {
    return hosts_.empty() ? 0 : hosts_[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] double timeout_s() const { return timeout_s_.load(); }

  /// Gives every wait another timeout, those that have begun too. Any thread.
  void set_timeout_s(double seconds);

  using Clock = std::chrono::steady_clock;

  /// A rank does long work of its own; from now on every wait may take the timeout again.
  void say_alive() noexcept { last_alive_.store(Clock::now().time_since_epoch().count()); }

  [[nodiscard]] Clock::time_point last_alive() const {
    return Clock::time_point(Clock::duration(last_alive_.load()));
  }

  [[nodiscard]] ActivityLog& activity() const { return *activity_; }

 private:
  struct Meeting {
    std::shared_ptr<Board> board;
    std::size_t expected = 0;
  };

  using MeetingKey = std::tuple<const Board*, std::uint64_t, std::int64_t>;

  std::vector<std::shared_ptr<Board>> live_boards();

  std::atomic<double> timeout_s_;
  std::shared_ptr<ActivityLog> activity_;
  std::vector<int> hosts_;  ///< [ranks], or none where all share one
  std::vector<std::atomic<bool>> ended_;
  std::atomic<Clock::rep> last_alive_ = Clock::time_point::min().time_since_epoch().count();
  std::atomic<bool> aborted_ = false;
  mutable std::mutex mutex_;
  std::condition_variable ended_changed_;  ///< or the error
  std::optional<Error> error_;
  std::vector<std::weak_ptr<Board>> boards_;
  std::map<MeetingKey, Meeting> meetings_;
};

std::unique_ptr<Group> make_local_group(std::shared_ptr<LocalWorld> world,
                                        std::shared_ptr<Board> board,
                                        int rank);

}  // namespace weft::comm
