// Flat or hierarchical: from which size of messages on does one message per pair of hosts lose?
//
// Each repetition times, form by form and by turns, all-to-alls of equal blocks and sums of dense
// gradients (comm::OrderedAllReduce) of several sizes. The limit of a figure is its bytes between
// hosts at the rate that the longest flat all-to-all of the same run has reached. Run it under
// mpirun across hosts: lab/lab mpi runs it across emulated ones. Beside the times it prints the
// bytes that a host sends to others: by the formulas of weft/comm, as communicators count them, and
// as the host's interfaces do, whose own headers, handshakes and repetitions are in the last.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/base/host_layout.h"
#include "weft/comm/local/local.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/kernels/codec.h"

namespace weft::bench {
namespace {

using comm::Form;

constexpr std::int64_t kParts = 16;

struct Options {
  std::string out;
  std::vector<int> hosts = {0, 0, 1, 1};  // of ranks without mpirun
  int repetitions = 5;
  std::int64_t largest = std::int64_t{1} << 20;
};

/// What all interfaces of this host but the loopback have sent.
std::int64_t interface_bytes() {
  std::ifstream file("/proc/self/net/dev");
  std::int64_t sent = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.find("lo:") < colon) {
      continue;
    }
    std::istringstream columns(line.substr(colon + 1));
    std::int64_t value = 0;
    for (int column = 0; column < 9 && columns >> value; ++column) {
    }
    sent += value;  // the ninth
  }
  return sent;
}

HostLayout layout_of(const comm::Communicator& world) {
  std::vector<int> hosts;
  for (int p = 0; p < world.size(); ++p) {
    hosts.push_back(world.host(p));
  }
  return HostLayout(hosts);
}

/// One collective of one size in one form.
struct Case {
  Figure figure;
  std::int64_t rounds = 1;
  std::int64_t formula_bytes = 0;  ///< of a round, from this host to others
  std::int64_t counted_bytes = 0;  ///< of this rank, all rounds
  std::int64_t interface_bytes = 0;
  std::shared_ptr<comm::Communicator> group;
  std::function<void(Context&)> run;
};

class CollectiveBench {
 public:
  CollectiveBench(const Options& options, comm::Communicator& world, Device& device)
      : world_(world), device_(device), layout_(layout_of(world)) {
    for (std::int64_t bytes = 256; bytes <= options.largest; bytes *= 16) {
      for (const Form form : {Form::kFlat, Form::kHierarchical}) {
        add_all_to_all(form, bytes);
      }
    }
    for (std::int64_t bytes = 4096; bytes <= 4 * options.largest; bytes *= 32) {
      for (const Form form : {Form::kFlat, Form::kHierarchical}) {
        add_reduce("ordered_all_reduce", form, bytes, {});
        add_reduce("ordered_all_reduce_int8", form, bytes,
                   {.codec = {.format = CodecFormat::kInt8}, .error_feedback = true});
      }
    }
  }

  /// One repetition of everything.
  void run() {
    for (Case& one : cases_) {
      Context ctx{.device = &device_, .pool = &device_.pool()};
      one.run(ctx);
      world_.barrier(ctx);
      const std::int64_t counted = one.group->traffic().total().cross_host_bytes;
      const std::int64_t sent = interface_bytes();
      const auto begin = std::chrono::steady_clock::now();
      for (std::int64_t round = 0; round < one.rounds; ++round) {
        one.run(ctx);
      }
      world_.barrier(ctx);  // the slowest rank's time
      one.figure.values.push_back(1e3 * seconds_since(begin) / static_cast<double>(one.rounds));
      one.interface_bytes += interface_bytes() - sent;
      one.counted_bytes += one.group->traffic().total().cross_host_bytes - counted;
    }
  }

  std::vector<Figure> figures() {
    const double bytes_per_ms = fastest();
    std::vector<Figure> all;
    for (Case& one : cases_) {
      if (bytes_per_ms > 0.0) {
        one.figure.limit = Limit{"its bytes at the rate of the longest",
                                 {static_cast<double>(one.formula_bytes) / bytes_per_ms}};
      }
      all.push_back(one.figure);
    }
    return all;
  }

  /// Bytes of a round from this rank's host: formula, communicators, interfaces. Collective.
  std::string bytes_table(int repetitions) {
    std::string text = fmt::format("{:<44} {:>12} {:>12} {:>12}\n", "bytes to other hosts, a round",
                                   "formula", "counted", "interface");
    for (const Case& one : cases_) {
      std::vector<std::int64_t> counted(static_cast<std::size_t>(world_.size()));
      Context ctx;
      world_.all_gather(ctx, &one.counted_bytes, counted.data(), sizeof(std::int64_t));
      std::int64_t of_host = 0;
      for (const int rank : layout_.ranks_of(layout_.host(world_.rank()))) {
        of_host += counted[static_cast<std::size_t>(rank)];
      }
      const std::int64_t rounds = one.rounds * repetitions;
      text += fmt::format("{:<44} {:>12} {:>12} {:>12}\n",
                          one.figure.name + " " + one.figure.parameters.at("bytes") + " " +
                              one.figure.parameters.at("form"),
                          one.formula_bytes, of_host / rounds, one.interface_bytes / rounds);
    }
    return text;
  }

 private:
  /// Bytes per ms of the longest flat all_to_all.
  [[nodiscard]] double fastest() const {
    const Case* longest = nullptr;
    for (const Case& one : cases_) {
      if (one.figure.name == "all_to_all" && one.figure.parameters.at("form") == "flat") {
        longest = &one;
      }
    }
    return static_cast<double>(longest->formula_bytes) / spread(longest->figure.values).median;
  }

  Case& add_case(const std::string& name, Form form, std::int64_t bytes) {
    Case& one = cases_.emplace_back();
    one.figure.name = name;
    one.figure.parameters = {
        {"ranks", fmt::format("{} {}", world_.size(), comm::launched_by_mpi() ? "mpi" : "local")},
        {"hosts", std::to_string(layout_.hosts())},
        {"bytes", std::to_string(bytes)},
        {"form", std::string(to_string(form))}};
    one.figure.unit = "ms";
    one.figure.better = Better::kLower;
    one.rounds = std::clamp<std::int64_t>((std::int64_t{1} << 20) / bytes, 2, 40);
    one.group = world_.duplicate(fmt::format("{}{}", name, cases_.size()), form);
    return one;
  }

  /// Blocks of `bytes` to each rank.
  void add_all_to_all(Form form, std::int64_t bytes) {
    Case& one = add_case("all_to_all", form, bytes);
    const int here = layout_.host(world_.rank());
    const auto near = static_cast<std::int64_t>(layout_.ranks_of(here).size());
    one.formula_bytes = near * (world_.size() - near) * bytes +
                        (one.group->form() == Form::kFlat ? 0 : 8 * (layout_.hosts() - 1));
    const auto size = static_cast<std::size_t>(world_.size() * bytes);
    one.run = [group = one.group, bytes, send = std::vector<std::byte>(size),
               recv = std::vector<std::byte>(size)](Context& ctx) mutable {
      group->all_to_all(ctx, send.data(), recv.data(), bytes);
    };
  }

  /// The sum of `bytes` of floats.
  void add_reduce(const std::string& name,
                  Form form,
                  std::int64_t bytes,
                  const comm::ReduceCodec& codec) {
    Case& one = add_case(name, form, bytes);
    const std::int64_t count = bytes / 4;
    auto reduce =
        std::make_shared<comm::OrderedAllReduce>(*one.group, device_, kParts, count, codec);
    std::fill_n(reduce->partial(0), count * reduce->num_partials(), 0.0F);
    one.formula_bytes = reduce_bytes(one.group->form(), count, codec.codec);
    one.run = [reduce, out = std::vector<float>(static_cast<std::size_t>(count)),
               present = std::vector<std::uint8_t>(static_cast<std::size_t>(reduce->num_partials()),
                                                   1)](Context& ctx) mutable {
      reduce->run(ctx, present, out.data());
      reduce->keep_residuals();
    };
  }

  /// docs/collectives.md.
  [[nodiscard]] std::int64_t reduce_bytes(Form form,
                                          std::int64_t count,
                                          const kernels::Codec& codec) const {
    const int here = layout_.host(world_.rank());
    const int ranks = world_.size();
    std::int64_t far_slices = 0;  // bytes of slices owned on other hosts, flags included
    std::int64_t own_slices = 0;
    for (int owner = 0; owner < ranks; ++owner) {
      const std::int64_t slice = kernels::encoded_bytes(codec, piece(count, ranks, owner).size());
      (layout_.host(owner) == here ? own_slices : far_slices) +=
          layout_.host(owner) == here ? slice : slice + 1;
    }
    const auto near = static_cast<std::int64_t>(layout_.ranks_of(here).size());
    if (form == Form::kHierarchical) {
      const auto sums = static_cast<std::int64_t>(host_subtrees(layout_, kParts, here).size());
      return sums * far_slices + (layout_.hosts() - 1) * own_slices;
    }
    std::int64_t sums = 0;
    for (const int rank : layout_.ranks_of(here)) {
      sums += static_cast<std::int64_t>(
          maximal_subtrees(kParts, rank_parts(kParts, ranks, rank)).size());
    }
    return sums * far_slices + (ranks - near) * own_slices;
  }

  comm::Communicator& world_;
  Device& device_;
  HostLayout layout_;
  std::vector<Case> cases_;
};

struct Result {
  std::vector<Figure> figures;
  std::string bytes;
};

Result run_rank(const Options& options, comm::Communicator& world) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  CollectiveBench bench(options, world, *device);
  for (int i = 0; i < options.repetitions; ++i) {
    bench.run();
  }
  return {.figures = bench.figures(), .bytes = bench.bytes_table(options.repetitions)};
}

void run(const Options& options) {
  Result result;
  const auto body = [&](comm::Communicator& world) {
    Result own = run_rank(options, world);
    if (world.rank() == 0) {
      result = std::move(own);
    }
  };
  if (comm::launched_by_mpi()) {
    comm::MpiSession session({});
    session.run(body);
  } else {
    comm::run_local(static_cast<int>(options.hosts.size()), {.hosts = options.hosts}, body);
  }
  if (!result.figures.empty()) {
    fmt::print("{}\n{}", to_text(result.figures), result.bytes);
  }
  if (!result.figures.empty() && !options.out.empty()) {
    write_json(options.out, "collective", result.figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments("Compares the flat and the hierarchical form of collectives");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--hosts", options.hosts, "Without mpirun: the pretended host of each rank")
      .separated_by(',');
  arguments.add("--repetitions", options.repetitions).within(1, 1000);
  arguments.add("--largest", options.largest, "Bytes to each peer; of sums four times as many")
      .within(256, 1 << 28);
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "collective_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
