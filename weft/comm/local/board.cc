#include "weft/comm/local/board.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <string_view>
#include <utility>

#include "weft/comm/messages.h"
#include "weft/trace/recorder.h"

namespace weft::comm {

Board::Board(LocalWorld& world, std::string name, std::vector<int> members)
    : world_(world), name_(std::move(name)), members_(std::move(members)), posts_(members_.size()) {
  for (Post& post : posts_) {
    post.arrived.resize(members_.size());
  }
}

void Board::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Board::exchange(int rank, const Exchange& call) {
  Lock lock(mutex_);
  if (world_.aborted()) {
    leave_aborted(lock);
  }
  const std::uint64_t round = posts_[static_cast<std::size_t>(rank)].posted;
  post(rank, call);
  wait_for_all(lock, rank, round);
  if (call.arrivals != nullptr) {
    call.arrivals->last_ns = trace::now_ns();
  }

  ++reading_;
  lock.unlock();
  const std::optional<Error> error = read_from_peers(rank, call.read);
  lock.lock();
  --reading_;
  if (error) {
    fail_world(lock, *error);
  }
  finish(lock, round);
}

void Board::post(int rank, const Exchange& call) {
  Post& own = posts_[static_cast<std::size_t>(rank)];
  ++own.posted;
  own.since = std::chrono::steady_clock::now();
  own.stamp = call.stamp;
  own.send = call.send;
  own.recv = call.recv;
  if (++arrived_ == static_cast<int>(members_.size())) {
    arrived_ = 0;
    have_read_ = 0;
    ++filled_;
    changed_.notify_all();
  }
}

void Board::wait_for_all(Lock& lock, int rank, std::uint64_t round) {
  const auto begin = posts_[static_cast<std::size_t>(rank)].since;
  const auto end = [&] {
    return std::max(begin, world_.last_alive()) +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(
               std::chrono::duration<double>(world_.timeout_s()));
  };
  while (filled_ == round && !world_.aborted()) {
    check_present(lock, rank, round);
    changed_.wait_until(lock, end());
    // Somebody may have said meanwhile that it is alive.
    const bool late = std::chrono::steady_clock::now() >= end();
    if (late && filled_ == round && !world_.aborted()) {
      fail_late(lock, rank, round);
    }
  }
  if (world_.aborted()) {
    leave_aborted(lock);
  }
}

/// The patience of `rank` has ended.
void Board::fail_late(Lock& lock, int rank, std::uint64_t round) {
  Wait own = wait_of(rank, round);
  own.seconds = world_.timeout_s();
  lock.unlock();  // one board at a time
  const std::vector<Wait> all = world_.waits();
  lock.lock();
  fail_world(lock, timed_out(find_fault(own, all)));
}

Wait Board::wait_of(int rank, std::uint64_t round) const {
  const Post& post = posts_[static_cast<std::size_t>(rank)];
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - post.since;
  Wait wait{.self = {rank, members_[static_cast<std::size_t>(rank)]},
            .group = name_,
            .stamp = post.stamp,
            .seconds = waited.count(),
            .missing = {}};
  for (std::size_t p = 0; p < posts_.size(); ++p) {
    if (is_missing(p, round)) {
      wait.missing.push_back({static_cast<int>(p), members_[p]});
    }
  }
  return wait;
}

void Board::add_waits(std::vector<Wait>& waits) {
  const std::lock_guard lock(mutex_);
  for (std::size_t p = 0; p < posts_.size() && arrived_ > 0; ++p) {
    if (!is_missing(p, filled_)) {
      waits.push_back(wait_of(static_cast<int>(p), filled_));
    }
  }
}

/// Nobody waits for a rank that has ended.
void Board::check_present(Lock& lock, int rank, std::uint64_t round) {
  const GroupNames names{name_, members_};
  for (std::size_t p = 0; p < posts_.size(); ++p) {
    const int peer = static_cast<int>(p);
    if (is_missing(p, round) && world_.has_ended(names.world(peer))) {
      fail_world(lock, peer_ended(names, posts_[static_cast<std::size_t>(rank)].stamp, rank, peer));
    }
  }
}

std::optional<Error> Board::read_from_peers(int rank, const LaneReader& read) {
  if (std::optional<Error> error = collect_arrived(rank)) {
    return error;
  }
  try {
    read(posts_[static_cast<std::size_t>(rank)].arrived);
  } catch (...) {
    return as_error(std::current_exception(), members_[static_cast<std::size_t>(rank)]);
  }
  return std::nullopt;
}

/// Compares stamps and sizes, and notes what has come.
std::optional<Error> Board::collect_arrived(int rank) {
  const GroupNames names{name_, members_};
  const auto self = static_cast<std::size_t>(rank);
  Post& own = posts_[self];
  for (std::size_t p = 0; p < posts_.size(); ++p) {
    if (!(posts_[p].stamp == own.stamp)) {
      return out_of_step(names, rank, own.stamp, static_cast<int>(p), posts_[p].stamp);
    }
  }
  for (std::size_t p = 0; p < posts_.size(); ++p) {
    const Lane& from = posts_[p].send[self];
    const Lane& to = own.recv[p];
    if (from.silent && to.silent) {
      own.arrived[p] = {.pieces = {}, .silent = true};
      continue;
    }
    if (from.silent != to.silent || !same_pieces(from, to)) {
      return wrong_size(names, own.stamp, static_cast<int>(p), size_of(from), rank, size_of(to));
    }
    own.arrived[p] = from;
  }
  return std::nullopt;
}

void Board::finish(Lock& lock, std::uint64_t round) {
  if (++have_read_ == static_cast<int>(members_.size())) {
    ++finished_;
    changed_.notify_all();
    return;
  }
  if (world_.aborted()) {
    changed_.notify_all();  // others may wait for the last one that reads
  }
  changed_.wait(lock, [&] { return finished_ != round || world_.aborted(); });
  if (finished_ == round) {
    leave_aborted(lock);
  }
}

void Board::fail_world(Lock& lock, const Error& error) {
  lock.unlock();  // abort() takes the mutex of every board
  world_.abort(error);
  lock.lock();
  leave_aborted(lock);
}

void Board::leave_aborted(Lock& lock) {
  changed_.notify_all();
  changed_.wait(lock, [&] { return reading_ == 0; });
  world_.check();
  fail(ErrorCode::kInternal, "group '{}' was left without an error; this is a bug in Weft", name_);
}

LocalWorld::LocalWorld(int ranks,
                       double timeout_s,
                       std::shared_ptr<ActivityLog> activity,
                       std::vector<int> hosts)
    : timeout_s_(timeout_s),
      activity_(std::move(activity)),
      hosts_(std::move(hosts)),
      ended_(static_cast<std::size_t>(ranks)) {
}

std::shared_ptr<Board> LocalWorld::make_board(std::string name, std::vector<int> members) {
  auto board = std::make_shared<Board>(*this, std::move(name), std::move(members));
  const std::lock_guard lock(mutex_);
  std::erase_if(boards_, [](const std::weak_ptr<Board>& other) { return other.expired(); });
  boards_.push_back(board);
  return board;
}

std::shared_ptr<Board> LocalWorld::meet(const Board& parent, const SubgroupOptions& options) {
  std::vector<int> members;
  for (const int rank : options.members) {
    members.push_back(parent.members()[static_cast<std::size_t>(rank)]);
  }
  const std::lock_guard lock(mutex_);
  const MeetingKey key{&parent, options.sequence, options.color};
  auto [meeting, is_new] = meetings_.try_emplace(key);
  if (is_new) {
    meeting->second = {std::make_shared<Board>(*this, options.name, members), members.size()};
    boards_.push_back(meeting->second.board);
  }
  std::shared_ptr<Board> board = meeting->second.board;
  if (--meeting->second.expected == 0) {
    meetings_.erase(meeting);
  }
  return board;
}

std::vector<std::shared_ptr<Board>> LocalWorld::live_boards() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Board>> live;
  for (const std::weak_ptr<Board>& board : boards_) {
    if (std::shared_ptr<Board> alive = board.lock()) {
      live.push_back(std::move(alive));
    }
  }
  return live;
}

void LocalWorld::abort(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) {
      return;
    }
    error_ = error;
    aborted_.store(true);
    ended_changed_.notify_all();
  }
  for (const std::shared_ptr<Board>& board : live_boards()) {
    board->wake();
  }
}

void LocalWorld::set_timeout_s(double seconds) {
  timeout_s_.store(seconds);
  for (const std::shared_ptr<Board>& board : live_boards()) {
    board->wake();
  }
}

std::vector<Wait> LocalWorld::waits() {
  std::vector<Wait> waits;
  for (const std::shared_ptr<Board>& board : live_boards()) {
    board->add_waits(waits);
  }
  return waits;
}

void LocalWorld::check() const {
  if (!aborted()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  throw Error(*error_);
}

void LocalWorld::end_rank(int rank) {
  {
    const std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(rank)].store(true);
    ended_changed_.notify_all();
  }
  for (const std::shared_ptr<Board>& board : live_boards()) {
    board->wake();
  }
}

std::vector<int> LocalWorld::wait_for_ranks(int started, double seconds) {
  const auto all_ended = [&] {
    for (int rank = 0; rank < started; ++rank) {
      if (!has_ended(rank)) {
        return false;
      }
    }
    return true;
  };
  std::unique_lock lock(mutex_);
  ended_changed_.wait(lock, [&] { return aborted() || all_ended(); });
  ended_changed_.wait_for(lock, std::chrono::duration<double>(seconds), all_ended);
  std::vector<int> left;
  for (int rank = 0; rank < started; ++rank) {
    if (!has_ended(rank)) {
      left.push_back(rank);
    }
  }
  return left;
}

namespace {

/// Throws Error(kInternal) for a list of peers that does not ascend or leaves out a lane in use. A
/// backend that sends messages would not send on that lane, and its receiver would wait; this one
/// sees all lanes, so that tests over threads find such a list.
void check_peers(std::string_view group, const Exchange& call) {
  if (!call.peers) {
    return;
  }
  const auto none =
      std::adjacent_find(call.peers->begin(), call.peers->end(), std::greater_equal<>());
  WEFT_CHECK(none == call.peers->end(), "{}: the peers that are listed do not ascend",
             describe(call.stamp, group));
  std::size_t seen = 0;
  call.for_peers([&](std::size_t p) { seen += call.send[p].silent ? 0 : 1; });
  call.for_peers([&](std::size_t p) { seen += call.recv[p].silent ? 0 : 1; });
  const auto is_used = [](const Lane& lane) { return !lane.silent; };
  const auto used = std::count_if(call.send.begin(), call.send.end(), is_used) +
                    std::count_if(call.recv.begin(), call.recv.end(), is_used);
  WEFT_CHECK(static_cast<std::ptrdiff_t>(seen) == used,
             "{}: {} lanes are in use, {} of them with the peers that are listed",
             describe(call.stamp, group), used, seen);
}

class LocalGroup final : public Group {
 public:
  LocalGroup(std::shared_ptr<LocalWorld> world, std::shared_ptr<Board> board, int rank)
      : world_(std::move(world)), board_(std::move(board)), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }

  [[nodiscard]] int size() const override { return static_cast<int>(board_->members().size()); }

  [[nodiscard]] const std::string& name() const override { return board_->name(); }

  [[nodiscard]] int world_rank(int rank) const override {
    return board_->members()[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] int host(int rank) const override { return world_->host(world_rank(rank)); }

  [[nodiscard]] bool lends() const override { return true; }

  void exchange(const Exchange& call) override {
    check_peers(name(), call);
    if (size() == 1) {
      world_->check();
      check_own_lane(name(), call.stamp, call.send[0], call.recv[0]);
      call.read(call.send);
      return;
    }
    board_->exchange(rank_, call);
  }

  std::int64_t propose_token() override { return 0; }

  std::unique_ptr<Group> make_group(const SubgroupOptions& options) override {
    int rank = 0;
    while (options.members[static_cast<std::size_t>(rank)] != rank_) {
      ++rank;
    }
    return make_local_group(world_, world_->meet(*board_, options), rank);
  }

  void abort(const Error& error) noexcept override {
    // Without memory to list the boards the process ends here: others would wait for ever.
    world_->abort(error);
  }

  void check() const override { world_->check(); }

  [[nodiscard]] double timeout_s() const override { return world_->timeout_s(); }

  void say_alive() noexcept override { world_->say_alive(); }

  [[nodiscard]] ActivityLog& activity() override { return world_->activity(); }

 private:
  std::shared_ptr<LocalWorld> world_;
  std::shared_ptr<Board> board_;
  int rank_;
};

}  // namespace

std::unique_ptr<Group> make_local_group(std::shared_ptr<LocalWorld> world,
                                        std::shared_ptr<Board> board,
                                        int rank) {
  return std::make_unique<LocalGroup>(std::move(world), std::move(board), rank);
}

}  // namespace weft::comm
