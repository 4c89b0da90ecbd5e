// How long may a message be? Long lanes travel over MPI in messages of at most max_message_bytes.
//
// Two figures of one size of messages: the time of an all-to-all of --bytes to each peer, and the
// time of an exchange of 8 bytes in another group while such all-to-alls are under way. An MPI
// session has one size, so a size is a run; runs of several sizes take turns, by hand:
//   for i in 1 2 3 4 5; do for m in 1 4 8 16 32 1024; do
//     mpirun -n 2 pieces_bench --message-mib $m; done; done
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/comm/mpi/mpi.h"

namespace weft::bench {
namespace {

struct Options {
  std::string out;
  std::int64_t message_mib = 8;
  std::int64_t bytes = std::int64_t{128} << 20;
  int repetitions = 5;
};

/// All-to-alls of a group of its own, each of so many bytes to each peer.
class LongExchange {
 public:
  LongExchange(comm::Communicator& world, std::int64_t bytes)
      : group_(world.duplicate("long")),
        bytes_(bytes),
        send_(static_cast<std::size_t>(world.size() * bytes)),
        recv_(send_.size()) {}

  double run_ms() {
    Context ctx;
    const auto begin = std::chrono::steady_clock::now();
    group_->all_to_all(ctx, send_.data(), recv_.data(), bytes_);
    return 1e3 * seconds_since(begin);
  }

 private:
  std::unique_ptr<comm::Communicator> group_;
  std::int64_t bytes_;
  std::vector<std::byte> send_;
  std::vector<std::byte> recv_;
};

Figure make_figure(const std::string& name, const Options& options, int ranks) {
  Figure figure;
  figure.name = name;
  figure.parameters = {{"ranks", std::to_string(ranks)},
                       {"message_mib", std::to_string(options.message_mib)},
                       {"bytes", std::to_string(options.bytes)}};
  figure.unit = "ms";
  figure.better = Better::kLower;
  return figure;
}

std::vector<Figure> run_rank(const Options& options, comm::Communicator& world) {
  Figure alone = make_figure("long_exchange", options, world.size());
  Figure beside = make_figure("8_bytes_beside_it", options, world.size());
  LongExchange exchange(world, options.bytes);
  const auto urgent = world.duplicate("urgent");
  exchange.run_ms();
  for (int i = 0; i < options.repetitions; ++i) {
    alone.values.push_back(exchange.run_ms());
  }
  std::thread busy([&] {
    for (int i = 0; i < options.repetitions; ++i) {
      exchange.run_ms();
    }
  });
  Context ctx;
  std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()));
  for (std::int64_t i = 0; i < 10 * options.repetitions; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // at any moment of the long one
    const auto begin = std::chrono::steady_clock::now();
    urgent->all_gather(ctx, &i, all.data(), sizeof i);
    beside.values.push_back(1e3 * seconds_since(begin));
  }
  busy.join();
  return {alone, beside};
}

void run(const Options& options) {
  std::vector<Figure> figures;
  comm::MpiSession session({.max_message_bytes = options.message_mib << 20});
  session.run([&](comm::Communicator& world) {
    std::vector<Figure> own = run_rank(options, world);
    if (world.rank() == 0) {
      figures = std::move(own);
    }
  });
  if (!figures.empty()) {
    fmt::print("{}", to_text(figures));
  }
  if (!figures.empty() && !options.out.empty()) {
    write_json(options.out, "pieces", figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  bool quick = false;
  weft::bench::Arguments arguments("Compares sizes of messages over MPI; run it under mpirun");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--message-mib", options.message_mib).within(1, 1024);
  arguments.add("--bytes", options.bytes, "To each peer").within(1 << 20, 1 << 30);
  arguments.add("--repetitions", options.repetitions).within(1, 1000);
  arguments.add_flag("--quick", quick, "Little, to see that it runs");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  if (quick) {
    options.bytes = 1 << 20;
    options.repetitions = 1;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pieces_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
