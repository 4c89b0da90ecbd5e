#include "weft/train/link_report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/train/network_devices.h"
#include "weft/train/timing.h"

namespace weft::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUps = 5;  // the first connects
constexpr int kShortExchanges = 21;
constexpr std::int64_t kFirstBytes = 16 * 1024;
constexpr std::int64_t kLastBytes = 4 * 1024 * 1024;
constexpr int kLongExchanges = 3;  // of each length: hosts have other work too

// Seconds after which no longer exchanges are made, and that one may take.
constexpr double kLongest = 0.06;
constexpr double kLongestExchange = 0.02;

// Far below a profile. A rank's progress thread sleeps up to 0.1 ms between two looks, at both
// ends.
constexpr double kLeastShare = 0.25;
constexpr double kMostLatencies = 10.0;
constexpr double kHandOffs = 3e-4;

constexpr std::size_t kUnusedText = 160;

/// What ranks merge: each fills in what it knows.
struct Block {
  std::array<PairFigures, kMeasuredPairs> pairs;
  std::array<char, kUnusedText> unused{};
  int unused_rank = -1;
  int unused_ranks = 0;
};

Block load_block(std::span<const std::byte> bytes) {
  Block block;
  std::memcpy(&block, bytes.data(), sizeof block);
  return block;
}

void take_later(std::span<std::byte> bytes, std::span<const std::byte> later) {
  Block block = load_block(bytes);
  const Block other = load_block(later);
  for (std::size_t i = 0; i < block.pairs.size(); ++i) {
    if (block.pairs[i].first < 0) {
      block.pairs[i] = other.pairs[i];
    }
  }
  if (block.unused_rank < 0) {
    block.unused_rank = other.unused_rank;
    block.unused = other.unused;
  }
  block.unused_ranks += other.unused_ranks;
  std::memcpy(bytes.data(), &block, sizeof block);
}

/// Two ranks that exchange by themselves.
class Pair {
 public:
  Pair(comm::Communicator& group, Context& ctx)
      : group_(group),
        ctx_(ctx),
        send_(static_cast<std::size_t>(kLastBytes)),
        recv_(send_.size()) {}

  /// Equal at both ends.
  PairFigures measure() {
    PairFigures figures{.first = group_.world_rank(0), .second = group_.world_rank(1)};
    for (int i = 0; i < kWarmUps; ++i) {
      exchange_s(8);
    }
    double quickest = exchange_s(8);
    for (int i = 1; i < kShortExchanges; ++i) {
      quickest = std::min(quickest, exchange_s(8));
    }
    figures.latency_s = slower(quickest);
    double spent = 0.0;
    double best = 0.0;
    for (std::int64_t bytes = kFirstBytes;
         bytes <= kLastBytes && spent < kLongest && 4.0 * best < kLongestExchange; bytes *= 4) {
      best = exchange_s(bytes);
      double all = best;
      for (int i = 1; i < kLongExchanges; ++i) {
        const double once = exchange_s(bytes);
        best = std::min(best, once);
        all += once;
      }
      best = slower(best);
      spent += slower(all);
      const double moving = best - std::min(figures.latency_s, best / 2.0);
      figures.bytes_per_s = std::max(figures.bytes_per_s, static_cast<double>(bytes) / moving);
    }
    return figures;
  }

 private:
  double exchange_s(std::int64_t bytes) {
    std::array<std::int64_t, 2> counts{bytes, bytes};
    counts[static_cast<std::size_t>(group_.rank())] = 0;
    const auto begin = Clock::now();
    group_.all_to_all_v(ctx_, {send_.data(), counts, recv_.data(), counts});
    return std::max(1e-9, seconds_since(begin));
  }

  /// Of both ends, so that both go on alike.
  double slower(double seconds) {
    group_.all_reduce(ctx_, &seconds, 1, comm::ReduceOp::kMax);
    return seconds;
  }

  comm::Communicator& group_;
  Context& ctx_;
  std::vector<std::byte> send_, recv_;
};

std::vector<int> hosts_of(const comm::Communicator& world) {
  std::vector<int> hosts;
  for (int rank = 0; rank < world.size(); ++rank) {
    hosts.push_back(world.host(rank));
  }
  return hosts;
}

/// The first rank of each host, in the order of these.
std::vector<int> first_ranks(std::span<const int> hosts) {
  std::vector<int> sorted;
  std::vector<int> firsts;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), hosts[rank]);
    if (at == sorted.end() || *at != hosts[rank]) {
      sorted.insert(at, hosts[rank]);
      firsts.push_back(static_cast<int>(rank));
    }
  }
  return firsts;
}

/// Names of the devices that this process leaves unused; empty where it uses one.
std::string unused_devices(const std::string& root) {
  std::string names;
  for (const FastDevice& device : fast_devices(root)) {
    if (device.is_open) {
      return "";
    }
    names += (names.empty() ? "" : ", ") + describe(device);
  }
  return names;
}

std::string microseconds(double seconds) {
  const double value = seconds * 1e6;
  return value < 1000.0 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

std::string gigabytes(double bytes_per_s) {
  return fmt::format("{:.3g}", bytes_per_s / 1e9);
}

/// "3", or "3 to 5".
std::string range(const std::string& least, const std::string& most) {
  return least == most ? least : fmt::format("{} to {}", least, most);
}

std::string measured(const std::vector<PairFigures>& pairs) {
  const auto [quick, late] =
      std::minmax_element(pairs.begin(), pairs.end(),
                          [](const auto& a, const auto& b) { return a.latency_s < b.latency_s; });
  const auto [slow, fast] = std::minmax_element(
      pairs.begin(), pairs.end(),
      [](const auto& a, const auto& b) { return a.bytes_per_s < b.bytes_per_s; });
  return fmt::format("{} measured: {} us, {} GB/s each way",
                     counted(static_cast<std::int64_t>(pairs.size()), "pair"),
                     range(microseconds(quick->latency_s), microseconds(late->latency_s)),
                     range(gigabytes(slow->bytes_per_s), gigabytes(fast->bytes_per_s)));
}

void compare(const LinkFigures& figures, const LinkProfile& profile, LinkNotes& notes) {
  const topology::Links& links = profile.cluster->links;
  const topology::Link& link = figures.between_hosts() ? links.network : links.host;
  const char* const where = figures.between_hosts() ? "network" : "host";
  const auto slow =
      std::min_element(figures.pairs.begin(), figures.pairs.end(),
                       [](const auto& a, const auto& b) { return a.bytes_per_s < b.bytes_per_s; });
  const double expected = link.rank.achieved();
  if (slow->bytes_per_s < kLeastShare * expected) {
    notes.warnings.push_back(fmt::format(
        "links: ranks {} and {} reach {} GB/s each way, far below the {} GB/s of cluster {} "
        "(links.{}.rank): messages go by {}; see docs/cluster.md, \"What carries messages\"",
        slow->first, slow->second, gigabytes(slow->bytes_per_s), gigabytes(expected), profile.name,
        where,
        figures.between_hosts() ? figures.carrier.between_hosts : figures.carrier.inside_hosts));
  }
  const auto late =
      std::max_element(figures.pairs.begin(), figures.pairs.end(),
                       [](const auto& a, const auto& b) { return a.latency_s < b.latency_s; });
  const double latency = link.latency.value + profile.cluster->compute.collective.value;
  if (latency > 0.0 && late->latency_s > kMostLatencies * (latency + kHandOffs)) {
    notes.warnings.push_back(fmt::format(
        "links: an exchange of ranks {} and {} takes {} us, far above the {} us of cluster {} "
        "(links.{}.latency and compute.collective) and the {} us of hand-offs",
        late->first, late->second, microseconds(late->latency_s), microseconds(latency),
        profile.name, where, microseconds(kHandOffs)));
  }
}

}  // namespace

std::vector<std::pair<int, int>> pairs_to_measure(std::span<const int> hosts) {
  const std::vector<int> firsts = first_ranks(hosts);
  if (firsts.size() < 2) {
    return hosts.size() < 2 ? std::vector<std::pair<int, int>>{}
                            : std::vector{std::pair{0, static_cast<int>(hosts.size()) - 1}};
  }
  const std::size_t half = firsts.size() / 2;
  const std::size_t number = std::min<std::size_t>(kMeasuredPairs, half);
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t i = 0; i < number; ++i) {
    const std::size_t first = i * half / number;
    pairs.emplace_back(firsts[first], firsts[first + half]);
  }
  return pairs;
}

LinkFigures measure_links(comm::Communicator& world, Context& ctx, const std::string& system_root) {
  const std::vector<int> hosts = hosts_of(world);
  const std::vector<std::pair<int, int>> pairs = pairs_to_measure(hosts);
  int own = -1;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].first == world.rank() || pairs[i].second == world.rank()) {
      own = static_cast<int>(i);
    }
  }
  Block block;
  const std::unique_ptr<comm::Communicator> group = world.split(own, world.rank(), "links");
  if (group != nullptr) {
    block.pairs[static_cast<std::size_t>(own)] = Pair(*group, ctx).measure();
  }
  if (const std::string unused = unused_devices(system_root); !unused.empty()) {
    unused.copy(block.unused.data(), kUnusedText - 1);
    block.unused_rank = world.rank();
    block.unused_ranks = 1;
  }
  std::array<std::byte, sizeof(Block)> bytes{};
  std::memcpy(bytes.data(), &block, sizeof block);
  world.merge(ctx, bytes, [](std::span<std::byte> merged, std::span<const std::byte> later) {
    take_later(merged, later);
  });
  block = load_block(bytes);
  LinkFigures figures{.carrier = world.carrier(),
                      .ranks = world.size(),
                      .hosts = static_cast<int>(first_ranks(hosts).size()),
                      .pairs = {},
                      .unused = block.unused.data(),
                      .unused_rank = block.unused_rank,
                      .unused_ranks = block.unused_ranks};
  figures.pairs.assign(block.pairs.begin(),
                       block.pairs.begin() + static_cast<std::ptrdiff_t>(pairs.size()));
  return figures;
}

LinkNotes describe_links(const LinkFigures& figures, const LinkProfile& profile) {
  LinkNotes notes;
  notes.info = fmt::format(
      "links: {} on {}; {} go by {}", counted(figures.ranks, "rank"),
      counted(figures.hosts, "host"),
      figures.between_hosts() ? "messages between hosts" : "messages",
      figures.between_hosts() ? figures.carrier.between_hosts : figures.carrier.inside_hosts);
  if (!figures.pairs.empty()) {
    notes.info += "; " + measured(figures.pairs);
    if (profile.cluster != nullptr) {
      compare(figures, profile, notes);
    }
  }
  if (figures.between_hosts() && !figures.unused.empty()) {
    notes.warnings.push_back(fmt::format(
        "links: fast network devices stand unused at {} of {} (rank {} has {}): messages between "
        "hosts go by {}; docs/cluster.md, \"What carries messages\", has mpirun's options for them",
        figures.unused_ranks, counted(figures.ranks, "rank"), figures.unused_rank, figures.unused,
        figures.carrier.between_hosts));
  }
  return notes;
}

}  // namespace weft::train
