#include "weft/comm/local/local.h"

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/local/board.h"
#include "weft/comm/messages.h"

namespace weft::comm {
namespace {

void run_rank(int rank,
              const std::shared_ptr<LocalWorld>& world,
              const std::shared_ptr<Board>& board,
              const std::function<void(Communicator&)>& body) {
  try {
    Communicator communicator(make_local_group(world, board, rank));
    body(communicator);
  } catch (...) {
    world->abort(as_error(std::current_exception(), rank));
  }
  world->end_rank(rank);
}

/// Returns when all ranks have ended, or have not in time and nobody ends the process.
void wait_for_end(LocalWorld& world, int started, const LocalOptions& options) {
  const double limit = std::min(options.shutdown_timeout_s, 2.0 * options.timeout_s);
  const std::vector<int> stuck = world.wait_for_ranks(started, limit);
  if (stuck.empty() || options.give_up == nullptr) {
    return;
  }
  try {
    world.check();
  } catch (const Error& error) {
    options.give_up(error, stuck, limit);
  }
}

}  // namespace

void run_local(int ranks,
               const LocalOptions& options,
               const std::function<void(Communicator& world)>& body) {
  if (ranks < 1) {
    fail(ErrorCode::kUsage, "run_local over {} ranks; at least 1 is needed", ranks);
  }
  if (!options.hosts.empty() && options.hosts.size() != static_cast<std::size_t>(ranks)) {
    fail(ErrorCode::kUsage, "run_local over {} ranks got hosts of {}", ranks, options.hosts.size());
  }
  const auto world = std::make_shared<LocalWorld>(
      ranks, options.timeout_s,
      options.activity ? options.activity : std::make_shared<ActivityLog>(), options.hosts);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    members[static_cast<std::size_t>(rank)] = rank;
  }
  const std::shared_ptr<Board> board = world->make_board("world", members);
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] { run_rank(rank, world, board, body); });
    }
  } catch (const std::system_error& error) {
    world->abort(Error(
        ErrorCode::kResource,
        fmt::format("cannot start thread {} of {} ranks: {}", threads.size(), ranks, error.what()),
        static_cast<int>(threads.size())));
  }
  wait_for_end(*world, static_cast<int>(threads.size()), options);
  for (std::thread& thread : threads) {
    thread.join();
  }
  world->check();
}

}  // namespace weft::comm
