/// Jobs that fail, for check_mpi_failures.py: `mpi_failure SCENARIO`. Prints one line per rank,
/// "rank R: CODE origin=O MESSAGE", and exits with 0 when the session ended in order: mpirun kills
/// the other ranks as soon as one exits with another status, maybe before they have printed.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "tests/comm/failing_group.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/comm/mpi/mpi_calls.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/io/process.h"
#include "weft/tensor/device.h"

namespace {

std::atomic<int> given_up = 0;

}  // namespace

/// MPI's own, counted: a send that is given up is still read from memory that its caller has back.
extern "C" int MPI_Request_free(MPI_Request* request) {
  ++given_up;
  return PMPI_Request_free(request);
}

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

/// Rank 1 sends many times what rank 0 expects, in one message.
void longer(Communicator& world) {
  Context ctx;
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::byte> send(ranks * 3000);
  std::vector<std::byte> recv(ranks * 3000);
  std::vector<std::int64_t> sent(ranks, 10);
  std::vector<std::int64_t> expected(ranks, 10);
  if (world.rank() == 1) {
    sent[0] = 3000;
  }
  if (world.rank() == 0) {
    expected[1] = 12;
  }
  world.all_to_all_v(ctx, {send.data(), sent, recv.data(), expected});
}

/// Rank 1 sends data behind its header where none is expected.
void short_collective(Communicator& world) {
  Context ctx;
  std::vector<float> data(100);
  if (world.rank() == 1) {
    world.all_reduce(ctx, data.data(), 100);
  } else {
    world.barrier(ctx);
  }
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
  world.explain_lost_ranks([](std::span<const int> ranks) {
    return "Lost: " + std::to_string(ranks.size()) + ", the first " + std::to_string(ranks[0]);
  });
  world.barrier(ctx);
  if (world.rank() == 0) {
    nap(0.5);  // the last rank may be in the barrier still, where it would hear of the error
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

/// Rank 1 sends at length to ranks that do not come: rank 0 throws, rank 2 sees it. Were rank 2 at
/// its barrier before, it would call rank 1 out of step, so it comes much later.
void untaken(Communicator& world) {
  Context ctx;
  world.barrier(ctx);
  if (world.rank() == 1) {
    std::vector<float> data(kLarge);
    world.broadcast(ctx, data.data(), kLarge * 4, 1);
  }
  nap(world.rank() == 0 ? 0.5 : 4.0);
  if (world.rank() == 0) {
    fail(ErrorCode::kData, "nobody takes it");
  }
  world.barrier(ctx);
}

// Enough for MPI to start, and fewer than io::kUnclaimedFiles.
constexpr rlim_t kFewFiles = 100;

/// Before MPI starts: "few_files", rank 1 may have few files and no more; "raised_files", every
/// rank may raise a low limit.
void limit_files(const std::string& scenario) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (scenario == "raised_files") {
    limit.rlim_cur = kFewFiles;
  } else if (scenario == "few_files" && rank != nullptr && std::string_view(rank) == "1") {
    limit = {.rlim_cur = kFewFiles, .rlim_max = kFewFiles};
  }
  setrlimit(RLIMIT_NOFILE, &limit);
}

void few_files(Communicator& world) {
  Context ctx;
  world.barrier(ctx);
}

void raised_files(Communicator& world) {
  Context ctx;
  world.barrier(ctx);
  if (const std::int64_t soft = io::open_file_limits().soft; soft < io::kUnclaimedFiles) {
    fail(ErrorCode::kInternal, "the limit is {} still", soft);
  }
}

void exchange_lanes(Communicator& comm) {
  Context ctx;
  const std::int64_t bytes = comm.size() > 8 ? 1000 : kLarge;
  std::vector<std::byte> send(static_cast<std::size_t>(comm.size() * bytes));
  std::vector<std::byte> recv(send.size());
  const std::vector<std::int64_t> each(static_cast<std::size_t>(comm.size()), bytes);
  comm.all_to_all_v(ctx, {send.data(), each, recv.data(), each});
}

void reduce_parts(Communicator& comm) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  OrderedAllReduce reduce(comm, *device, std::max(8, comm.size()), comm.size() > 8 ? 1000 : kLarge);
  reduce.run(ctx, std::vector<std::uint8_t>(static_cast<std::size_t>(reduce.num_partials()), 0));
}

/// Rank `lost` fails before exchange `stage` of a hierarchical collective.
void lose_in_stage(Communicator& world, const Body& step, int lost, int stage, void (*fail)()) {
  const auto failure = std::make_shared<testing::Failure>();
  failure->fail = fail;
  Communicator under(std::make_unique<testing::FailingGroup>(world.duplicate("under"), failure));
  const auto comm = under.duplicate("test", Form::kHierarchical);
  step(*comm);
  if (world.rank() == lost) {
    failure->after = stage;
  }
  step(*comm);
  Context ctx;
  world.barrier(ctx);
}

/// The last rank is killed at any moment of hierarchical collectives that follow each other.
void kill_midway(Communicator& world, const Body& step) {
  const auto comm = world.duplicate("test", Form::kHierarchical);
  step(*comm);
  std::thread killer;
  if (world.rank() == world.size() - 1) {
    killer = std::thread([] {
      nap(0.2);
      kill(getpid(), SIGKILL);
    });
  }
  for (;;) {
    step(*comm);
  }
}

void throw_error() {
  fail(ErrorCode::kData, "the disk is gone");
}

void kill_process() {
  kill(getpid(), SIGKILL);
}

void merge_blocks(Communicator& comm) {
  Context ctx;
  std::vector<std::byte> block(40);
  comm.merge(ctx, block, [](std::span<std::byte>, std::span<const std::byte>) {});
}

void send_from_first(Communicator& comm) {
  Context ctx;
  std::vector<std::byte> block(40);
  comm.broadcast(ctx, block.data(), 40, 0);
}

void meet(Communicator& comm) {
  Context ctx;
  comm.barrier(ctx);
}

void gather_from_all(Communicator& comm) {
  Context ctx;
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.size()));
  const std::int64_t own = comm.rank();
  comm.all_gather(ctx, &own, all.data(), 8);
}

/// One of many ranks, on hosts of kHostRanks: "late_merge_9_of_16", with "_at_2" before exchange 2
/// of the step.
struct Many {
  std::string kind;  ///< late, stopped, killed, thrown
  Body step;
  int rank = 0;
  int at = 0;
};

constexpr int kHostRanks = 4;
constexpr int kMostRanks = 64;
constexpr double kPatience = 2.0;  // of scenarios in which a rank is late or stopped

std::optional<Many> parse_many(const std::string& scenario) {
  static const std::map<std::string, Body> steps = {
      {"merge", merge_blocks},     {"broadcast", send_from_first}, {"barrier", meet},
      {"gather", gather_from_all}, {"relays", exchange_lanes},     {"reduce", reduce_parts}};
  std::array<char, 16> kind{};
  std::array<char, 16> step{};
  int rank = 0;
  int ranks = 0;
  int at = 0;
  // KIND_STEP_RANK_of_RANKS[_at_EXCHANGE]; other scenarios end before RANKS.
  if (std::sscanf(scenario.c_str(), "%15[a-z]_%15[a-z]_%d_of_%d_at_%d", kind.data(), step.data(),
                  &rank, &ranks, &at) < 4) {
    return std::nullopt;
  }
  return Many{.kind = kind.data(), .step = steps.at(step.data()), .rank = rank, .at = at};
}

/// The step twice, the second time with the fault, then a barrier.
void fail_among_many(Communicator& world, const Many& many) {
  const std::map<std::string, std::function<void()>> faults = {
      {"late", [] { nap(kPatience + 1.0); }},  // well before the others end without it
      {"stopped", [] { kill(getpid(), SIGSTOP); }},
      {"killed", [] { kill(getpid(), SIGKILL); }},
      {"thrown", [] { fail(ErrorCode::kData, "the disk is gone"); }}};
  const auto failure = std::make_shared<testing::Failure>();
  failure->fail = faults.at(many.kind);
  Communicator under(std::make_unique<testing::FailingGroup>(world.duplicate("under"), failure));
  const auto comm = under.duplicate("test", Form::kHierarchical);
  many.step(*comm);
  if (world.rank() == many.rank) {
    failure->after = many.at;
  }
  many.step(*comm);
  Context ctx;
  world.barrier(ctx);
}

/// "relays_lost_2": the last rank in exchange 2 of an all_to_all_v; "reduce_killed_0_rank_2";
/// "relays_midway".
Body stage_scenario(const std::string& scenario) {
  if (const auto many = parse_many(scenario)) {
    return [=](Communicator& world) { fail_among_many(world, *many); };
  }

  const Body step = scenario.starts_with("relays") ? exchange_lanes : reduce_parts;
  if (scenario.ends_with("midway")) {
    return [=](Communicator& world) { kill_midway(world, step); };
  }
  const bool killed = scenario.find("killed") != std::string::npos;
  const auto loss = killed ? kill_process : throw_error;
  const std::string_view before = killed ? "killed_" : "lost_";
  const int stage = scenario[scenario.find(before) + before.size()] - '0';
  const int named = scenario.find("rank") == std::string::npos ? -1 : scenario.back() - '0';
  return [=](Communicator& world) {
    lose_in_stage(world, step, named < 0 ? world.size() - 1 : named, stage, loss);
  };
}

int run(const std::string& scenario) {
  set_log_sink([](LogLevel, std::string_view text) {
    std::fprintf(stderr, "%s\n", std::string(text).c_str());
  });
  const std::map<std::string, Body> bodies = {{"throw_on_last", throw_on_last},
                                              {"throw_on_first", throw_on_first},
                                              {"other_collective", other_collective},
                                              {"other_size", other_size},
                                              {"longer", longer},
                                              {"short_collective", short_collective},
                                              {"late", late},
                                              {"early_return", early_return},
                                              {"killed", killed},
                                              {"stuck", stuck},
                                              {"untaken", untaken},
                                              {"busy", busy},
                                              {"few_files", few_files},
                                              {"raised_files", raised_files}};
  limit_files(scenario);
  int rank = -1;
  try {
    MpiOptions options{.timeout_s = 60.0, .shutdown_timeout_s = 4.0, .hosts = {0, 0, 1, 1}};
    if (scenario.starts_with("late") || scenario.starts_with("stopped")) {
      options.timeout_s = kPatience;
    }
    if (parse_many(scenario)) {
      options.hosts.clear();
      for (int r = 0; r < kMostRanks; ++r) {
        options.hosts.push_back(r / kHostRanks);
      }
    }
    MpiSession session(options);
    rank = session.world().rank();
    session.run(bodies.contains(scenario) ? bodies.at(scenario) : stage_scenario(scenario));
  } catch (const Error& error) {
    if (rank < 0) {  // the session did not begin
      rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
    }
    std::printf("rank %d: %s origin=%d %s\n", rank, std::string(to_string(error.code())).c_str(),
                error.origin_rank(), error.what());
    if (given_up > 0) {
      std::printf("rank %d gave up %d sends\n", rank, given_up.load());
      return 3;
    }
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
