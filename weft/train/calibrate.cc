#include "weft/train/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/base/text.h"
#include "weft/tensor/stream.h"
#include "weft/train/compute_probe.h"
#include "weft/train/disk_probe.h"
#include "weft/train/timing.h"

namespace weft::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kProbedRowBytes[] = {64, 256, 512, 1024};
constexpr std::int64_t kMessageBytes[] = {64, 1024, 8192, 65536, 262144, 1048576};
constexpr std::int64_t kQuickTable = std::int64_t{16} << 20;
constexpr std::uint64_t kFile = std::uint64_t{64} << 20;
constexpr std::uint64_t kQuickFile = std::uint64_t{1} << 20;
constexpr std::int64_t kHostTable = std::int64_t{2} << 30;

/// Four digits: more would only look like it.
double rounded(double value) {
  return std::strtod(fmt::format("{:.3e}", value).c_str(), nullptr);
}

double host_memory_bytes() {
  const double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
  return pages * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

std::string temporary_folder() {
  std::error_code error;
  const std::string folder = std::filesystem::temp_directory_path(error).string();
  return error ? "/tmp" : folder;
}

/// Start and bytes/s of exchanges of one group.
struct ExchangeFigures {
  double start_s = 0.0;      ///< of an exchange
  double bytes_per_s = 0.0;  ///< that a rank sends
  double peers = 0.0;
};

/// Unwinds a calibration on all ranks at the same place.
struct StopAsked {};

class Calibration {
 public:
  Calibration(const std::atomic<bool>& stop,
              comm::Communicator& world,
              const CalibrateOptions& options)
      : stop_(stop),
        world_(world),
        options_(options),
        device_(make_device({.kind = DeviceKind::kCpu, .threads = options.threads})),
        ctx_{.device = device_.get(), .pool = &device_->pool()} {}

  topology::Cluster run() {
    cluster_.name = options_.name;
    cluster_.threads = options_.threads;
    describe_hosts();
    cluster_.notes =
        fmt::format("Measured by weft topology calibrate{}: {} on {}.",
                    quick() ? " --quick, which sees caches and not memory" : "",
                    counted(world_.size(), "rank"), counted(topology::hosts(cluster_), "host"));
    measure_compute();
    note_cache();
    measure_stage();
    measure_disk();
    measure_links();
    topology::check(cluster_);
    return cluster_;
  }

 private:
  [[nodiscard]] bool quick() const { return options_.effort == Effort::kQuick; }

  /// Of one figure.
  [[nodiscard]] double budget_s() const { return quick() ? 0.01 : 0.3; }

  [[nodiscard]] int host(int rank) const {
    return options_.ranks_per_host > 0 ? rank / options_.ranks_per_host : world_.host(rank);
  }

  [[nodiscard]] int own_host() const { return host(world_.rank()); }

  /// This rank's place on its host.
  [[nodiscard]] int local_rank() const {
    int local = 0;
    while (local < world_.rank() && host(world_.rank() - local - 1) == own_host()) {
      ++local;
    }
    return local;
  }

  /// The median over all ranks, equal on all; ranks that have no figure give 0 and do not count.
  /// Here ranks also learn that one was asked to stop.
  double agree(double own) {
    std::vector<double> all(static_cast<std::size_t>(world_.size()));
    own = stop_.load() ? kStopping : own;
    world_.all_gather(ctx_, &own, all.data(), sizeof(double));
    if (std::find(all.begin(), all.end(), kStopping) != all.end()) {
      throw StopAsked();
    }
    std::erase(all, 0.0);
    return all.empty() ? 0.0 : rounded(median(std::move(all)));
  }

  void describe_hosts() {
    std::vector<int> seen;
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (rank > 0 && host(rank) == host(rank - 1)) {
        ++cluster_.hosts.back().ranks;
        continue;
      }
      if (std::find(seen.begin(), seen.end(), host(rank)) != seen.end()) {
        fail(ErrorCode::kUsage,
             "rank {} is on the host of an earlier rank, with others in between; number the ranks "
             "host by host, as mpirun --map-by slot does",
             rank);
      }
      seen.push_back(host(rank));
      cluster_.hosts.push_back({.count = 1, .ranks = 1});
    }
    most_ranks_ = 0;
    std::vector<topology::HostGroup> groups;
    for (const topology::HostGroup& one : cluster_.hosts) {
      most_ranks_ = std::max(most_ranks_, one.ranks);
      if (!groups.empty() && groups.back().ranks == one.ranks) {
        ++groups.back().count;
      } else {
        groups.push_back(one);
      }
    }
    cluster_.hosts = std::move(groups);
  }

  /// Runs a measurement on all ranks at once and takes the median of what they say.
  double measure(const std::function<double()>& probe) {
    world_.barrier(ctx_);
    return agree(probe());
  }

  topology::Rate measured(double value, const std::string& how) const {
    return {.value = value, .source = fmt::format("measured: {}", how)};
  }

  void measure_compute() {
    const double memory = agree(host_memory_bytes()) / static_cast<double>(most_ranks_);
    cluster_.memory.ddr = {.value = memory, .source = "the host's memory by the number of ranks"};
    cluster_.memory.reserve.source = "a default";
    const auto share = static_cast<std::int64_t>(
        std::min(static_cast<double>(kHostTable / most_ranks_), memory / 8.0));
    ComputeProbe probe(*device_, {.table_bytes = (quick() ? kQuickTable : share) / 4096 * 4096,
                                  .budget_s = budget_s(),
                                  .seed = static_cast<std::uint64_t>(world_.rank()) << 32});
    topology::Compute& compute = cluster_.compute;
    const auto gemm = [&](DType dtype) {
      return measured(measure([&] { return probe.gemm_flops_per_s(dtype); }),
                      "products [256, 512] by [512, 512] on every thread of all ranks");
    };
    compute.gemm_fp32 = gemm(DType::kFloat32);
    compute.gemm_bf16 = gemm(DType::kBFloat16);
    compute.dots = measured(measure([&] { return probe.dot_flops_per_s(); }),
                            "dot interactions of 16 fields of 64 values on every thread");
    compute.copy =
        measured(measure([&] { return probe.copy_bytes_per_s(); }), "memcpy by all ranks at once");
    for (const std::int64_t row_bytes : kProbedRowBytes) {
      const double read = measure([&] { return probe.row_read_bytes_per_s(row_bytes); });
      const double update = measure([&] { return probe.row_update_bytes_per_s(row_bytes); });
      const double near = measure([&] { return probe.near_row_bytes_per_s(row_bytes); });
      compute.rows.points.push_back({.row_bytes = static_cast<double>(row_bytes),
                                     .read = read,
                                     .update = update,
                                     .near = near});
    }
    compute.sort = measured(measure([&] { return probe.sort_bytes_per_s(); }),
                            "coalescing of 65,536 ids of 262,144 rows by every thread");
    compute.repeat = {.value = measure([&] { return probe.repeat_s(); }),
                      .source =
                          "measured: an update of rows drawn as 1/k, less one of the same "
                          "rows with a gradient each"};
    compute.draw = {.value = measure([&] { return probe.draw_s(); }),
                    .source =
                        "measured: an update of bf16 rows of 64 columns in a cache, less one of "
                        "fp32 rows, by the columns"};
    compute.rows.source = fmt::format(
        "measured: lookups of 16 rows a bag and SGD updates of distinct rows, in a table of {} MiB "
        "per rank, all ranks at once; near: lookups in 256 KiB",
        (quick() ? kQuickTable : share) >> 20);
  }

  /// Of a core, by as many as this rank has threads.
  void note_cache() {
    const auto bytes = static_cast<double>(std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE)));
    cluster_.compute.cache = {
        .value = agree(bytes) * options_.threads,
        .source = "as the system says: the second level of its threads' cores"};
  }

  void measure_stage() {
    const std::unique_ptr<Stream> stream = device_->make_stream({.name = "probe"});
    const Stage nothing = [](Context&) {};
    const double seconds = measure([&] {
      const auto rest = [] { std::this_thread::sleep_for(std::chrono::microseconds(50)); };
      return median_pass_s(budget_s() / 3, rest, [&] {  // the stream sleeps too by now
        stream->enqueue(nothing);
        stream->synchronize();
      });
    });
    cluster_.compute.stage = {
        .value = seconds,
        .source = "measured: an empty stage handed to a stream that sleeps, and waited for"};
  }

  void measure_disk() {
    const std::string folder = options_.folder.empty() ? temporary_folder() : options_.folder;
    DiskFigures own;
    topology::Disk& disk = cluster_.disk;
    const double rate = measure([&] {
      own = probe_disk({.folder = folder,
                        .name = fmt::format("weft-disk-{}-{}.tmp", getpid(), world_.rank()),
                        .bytes = static_cast<std::int64_t>(quick() ? kQuickFile : kFile),
                        .budget_s = budget_s(),
                        .seed = static_cast<std::uint64_t>(world_.rank()) << 32});
      return own.blocks_per_s;
    });
    disk.block.value = agree(own.block_s);
    if (rate == 0.0) {
      disk.read_blocks = {.value = 0.0,
                          .source = fmt::format(
                              "not measured: no file of {} in '{}' could be written and read past "
                              "the page cache; give --disk another folder",
                              format_bytes(quick() ? kQuickFile : kFile), folder)};
      return;
    }
    disk.read_blocks = measured(
        rate, fmt::format("reads at random places of a file of {} in '{}', all ranks at once",
                          format_bytes(quick() ? kQuickFile : kFile), folder));
    disk.block.source = "measured: a thread that reads blocks and takes their checksums";
  }

  /// Median seconds of exchanges in which every rank of `group` sends `bytes` to each other one, or
  /// itself where it is alone. Collective over the world, whose groups measure at the same time; a
  /// null group only waits.
  double exchange_s(comm::Communicator* group, std::int64_t bytes) {
    std::vector<std::int64_t> counts(group == nullptr ? 0 : static_cast<std::size_t>(group->size()),
                                     bytes);
    if (counts.size() > 1) {
      counts[static_cast<std::size_t>(group->rank())] = 0;
    }
    const std::int64_t total = bytes * std::max<std::int64_t>(1, std::ssize(counts) - 1);
    send_.resize(total);
    recv_.resize(total);
    const auto once = [&] {
      const auto start = Clock::now();
      group->all_to_all_v(ctx_, {send_.as<void>(), counts, recv_.as<void>(), counts});
      return seconds_since(start);
    };
    double first = 0.0;
    for (int i = 0; i < 3 && group != nullptr; ++i) {
      first = once();
    }
    world_.all_reduce(ctx_, &first, 1, comm::ReduceOp::kMax);
    const auto times = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(budget_s() / 2 / std::max(first, 1e-7)), 5, quick() ? 20 : 300);
    world_.barrier(ctx_);
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < times && group != nullptr; ++i) {
      seconds.push_back(once());
    }
    return agree(seconds.empty() ? 0.0 : median(std::move(seconds)));
  }

  /// Of the groups of equal `color`; a negative one takes no part.
  ExchangeFigures measure_groups(int color) {
    const std::unique_ptr<comm::Communicator> group =
        world_.split(color, world_.rank(), "calibrate");
    std::vector<double> bytes;
    std::vector<double> seconds;
    for (const std::int64_t size : kMessageBytes) {
      bytes.push_back(static_cast<double>(size));
      seconds.push_back(exchange_s(group.get(), size));
    }
    const Line line = fit_line(bytes, seconds);
    const double peers =
        agree(group == nullptr ? 0.0 : std::max(1.0, static_cast<double>(group->size() - 1)));
    return {.start_s = line.start, .bytes_per_s = peers / line.per_unit, .peers = peers};
  }

  topology::Link link_of(const ExchangeFigures& figures, const std::string& how) const {
    const double start = cluster_.compute.collective.value;
    return {.rank = measured(rounded(figures.bytes_per_s), how),
            .host = {},
            .latency = {.value = rounded(std::max(0.0, figures.start_s - start) / figures.peers),
                        .source = "measured: the same fit, less the start of a collective"}};
  }

  void measure_links() {
    send_ = Buffer(*device_);
    recv_ = Buffer(*device_);
    const ExchangeFigures alone = measure_groups(world_.rank());
    cluster_.compute.collective = {.value = rounded(alone.start_s),
                                   .source = "measured: exchanges of one rank with itself"};
    topology::Links& links = cluster_.links;
    links.self.rank = measured(rounded(alone.bytes_per_s), "exchanges of one rank with itself");
    if (most_ranks_ > 1) {
      links.host = link_of(measure_groups(own_host()),
                           "all_to_all of 64 B to 1 MiB per peer inside all hosts at once");
    }
    if (topology::hosts(cluster_) > 1) {
      links.network = link_of(measure_groups(local_rank() == 0 ? 0 : -1),
                              "all_to_all of 64 B to 1 MiB per peer, one rank of each host");
    }
    if (topology::hosts(cluster_) > 1 && most_ranks_ > 1) {
      const double each = measure_groups(local_rank()).bytes_per_s;
      links.network.host = measured(rounded(each * static_cast<double>(most_ranks_)),
                                    "the same by all ranks of each host at once");
    }
  }

  static constexpr double kStopping = -1.0;  // in place of a figure

  const std::atomic<bool>& stop_;
  comm::Communicator& world_;
  const CalibrateOptions& options_;
  std::unique_ptr<Device> device_;
  Context ctx_;
  Buffer send_, recv_;
  topology::Cluster cluster_;
  std::int64_t most_ranks_ = 1;  ///< on one host
};

}  // namespace

Line fit_line(std::span<const double> x, std::span<const double> t) {
  WEFT_CHECK(x.size() == t.size() && x.size() >= 2, "{} and {} points", x.size(), t.size());
  // Relative errors: weights 1/t². Normal equations of start and slope.
  double w = 0.0, wx = 0.0, wxx = 0.0, wt = 0.0, wxt = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double weight = 1.0 / (t[i] * t[i]);
    w += weight;
    wx += weight * x[i];
    wxx += weight * x[i] * x[i];
    wt += weight * t[i];
    wxt += weight * x[i] * t[i];
  }
  const double slope = (w * wxt - wx * wt) / (w * wxx - wx * wx);
  const double start = (wt - slope * wx) / w;
  if (start < 0.0) {
    return {.start = 0.0, .per_unit = wxt / wxx};
  }
  return slope > 0.0 ? Line{start, slope} : Line{start, t.back() / x.back()};
}

topology::Cluster calibrate(comm::Communicator& world, const CalibrateOptions& options) {
  const std::atomic<bool> never = false;
  return calibrate_unless(never, world, options).value();
}

std::optional<topology::Cluster> calibrate_unless(const std::atomic<bool>& stop,
                                                  comm::Communicator& world,
                                                  const CalibrateOptions& options) {
  try {
    return Calibration(stop, world, options).run();
  } catch (const StopAsked&) {
    return std::nullopt;
  }
}

}  // namespace weft::train
