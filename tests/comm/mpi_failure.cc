/// Jobs that fail, for check_mpi_failures.py: `mpi_failure SCENARIO`. Prints one line per rank,
/// "rank R: CODE origin=O MESSAGE", and exits with 0 when the session ended in order: mpirun kills
/// the other ranks as soon as one exits with another status, maybe before they have printed.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/comm/mpi/mpi.h"

namespace weft::comm {
namespace {

using Body = std::function<void(Communicator& world)>;

constexpr std::int64_t kLarge = 3'000'000;  // floats: far more than MPI sends without its receiver

void nap(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// The last rank throws while the others are in several collectives of several groups.
void throw_on_last(Communicator& world) {
  Context ctx;
  const auto copy = world.duplicate("copy");
  const auto half = world.split(world.rank() % 2, 0, "half");
  world.barrier(ctx);
  if (world.rank() == world.size() - 1) {
    fail(ErrorCode::kData, "file day_3 is cut");
  }
  std::vector<float> data(kLarge);
  if (world.rank() == 0) {
    copy->all_reduce(ctx, data.data(), kLarge);
  } else {
    world.all_reduce(ctx, data.data(), kLarge);
  }
}

/// Rank 0 throws something that is no weft::Error.
void throw_on_first(Communicator& world) {
  Context ctx;
  if (world.rank() == 0) {
    throw std::runtime_error("something odd");
  }
  world.barrier(ctx);
}

void other_collective(Communicator& world) {
  Context ctx;
  std::vector<float> data(kLarge);
  if (world.rank() == 1) {
    world.all_reduce(ctx, data.data(), kLarge);
  } else {
    world.barrier(ctx);
  }
}

void other_size(Communicator& world) {
  Context ctx;
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::byte> send(ranks * 100);
  std::vector<std::byte> recv(ranks * 100);
  const std::vector<std::int64_t> sent(ranks, 10);
  std::vector<std::int64_t> expected(ranks, 10);
  if (world.rank() == 0) {
    expected[1] = 12;
  }
  world.all_to_all_v(ctx, {send.data(), sent, recv.data(), expected});
}

/// The last rank does something else for longer than the timeout, then comes to the end.
void late(Communicator& world) {
  Context ctx;
  world.barrier(ctx);
  if (world.rank() == world.size() - 1) {
    nap(5.0);
    return;
  }
  world.barrier(ctx);
}

void early_return(Communicator& world) {
  Context ctx;
  world.barrier(ctx);
  if (world.rank() != 0) {
    world.barrier(ctx);
  }
}

/// The last rank is killed while the others wait.
void killed(Communicator& world) {
  Context ctx;
  world.barrier(ctx);
  if (world.rank() == world.size() - 1) {
    kill(getpid(), SIGKILL);
  }
  world.barrier(ctx);
}

/// The last rank never comes to the end.
void stuck(Communicator& world) {
  Context ctx;
  world.barrier(ctx);
  if (world.rank() == 0) {
    fail(ErrorCode::kData, "file day_3 is cut");
  }
  while (world.rank() == world.size() - 1) {
    nap(1.0);
  }
  world.barrier(ctx);
}

/// Errors in the middle of large messages: all ranks end in order, every time.
void busy(Communicator& world) {
  Context ctx;
  for (int i = 0;; ++i) {
    std::vector<float> data(kLarge, 1.0F);
    if (world.rank() == 1 && i == 3) {
      fail(ErrorCode::kData, "stop");
    }
    world.all_reduce(ctx, data.data(), kLarge);
  }
}

int run(const std::string& scenario) {
  set_log_sink([](LogLevel, std::string_view text) {
    std::fprintf(stderr, "%s\n", std::string(text).c_str());
  });
  const std::map<std::string, Body> bodies = {{"throw_on_last", throw_on_last},
                                              {"throw_on_first", throw_on_first},
                                              {"other_collective", other_collective},
                                              {"other_size", other_size},
                                              {"late", late},
                                              {"early_return", early_return},
                                              {"killed", killed},
                                              {"stuck", stuck},
                                              {"busy", busy}};
  MpiSession session({.timeout_s = scenario == "late" ? 2.0 : 60.0, .shutdown_timeout_s = 4.0});
  const int rank = session.world().rank();
  try {
    session.run(bodies.at(scenario));
  } catch (const Error& error) {
    std::printf("rank %d: %s origin=%d %s\n", rank, std::string(to_string(error.code())).c_str(),
                error.origin_rank(), error.what());
    return 0;
  }
  std::printf("rank %d: no error\n", rank);
  return 0;
}

}  // namespace
}  // namespace weft::comm

int main(int argc, char** argv) {
  return argc == 2 ? weft::comm::run(argv[1]) : 2;
}
