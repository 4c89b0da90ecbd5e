#include "weft/planner/partition.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/planner/partition_state.h"

namespace weft::planner {
namespace {

constexpr std::int64_t kMostGroup = std::int64_t{1} << 62;  // halving counts on from the largest

void check_cost(double cost, const char* what, std::size_t i) {
  if (!std::isfinite(cost) || cost < 0.0) {
    fail(ErrorCode::kUsage, "partition: {} {} costs {}; a cost is finite and not negative", what, i,
         cost);
  }
}

void check_bytes(const Bytes& bytes, const char* what, std::size_t i) {
  for (const std::int64_t b : bytes) {
    if (b < 0) {
      fail(ErrorCode::kUsage, "partition: {} {} has {} bytes; bytes are not negative", what, i, b);
    }
  }
}

/// Sums must not overflow, whatever goes where.
void check_total_bytes(const Problem& problem) {
  constexpr double kMost = 0x1p62;
  for (std::size_t t = 0; t < kTiers; ++t) {
    double total = 0.0;
    for (const Item& item : problem.items) {
      total += static_cast<double>(item.bytes[t]);
    }
    for (const Bin& bin : problem.bins) {
      total += static_cast<double>(bin.bytes[t]);
    }
    if (total > kMost) {
      fail(ErrorCode::kUsage, "partition: all items and bins together have {} bytes; at most 2^62",
           total);
    }
  }
}

double max_over_mean(const std::vector<double>& values) {
  double sum = 0.0;
  double most = 0.0;
  for (const double v : values) {
    sum += v;
    most = std::max(most, v);
  }
  return sum > 0.0 ? most * static_cast<double>(values.size()) / sum : 1.0;
}

}  // namespace

void check(const Problem& problem) {
  const auto bins = static_cast<std::int64_t>(problem.bins.size());
  if (bins == 0) {
    fail(ErrorCode::kUsage, "partition: there are no bins; give one at least");
  }
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    const Item& item = problem.items[i];
    check_cost(item.cost, "item", i);
    check_bytes(item.bytes, "item", i);
    if (item.group < kNoGroup || item.group > kMostGroup) {
      fail(ErrorCode::kUsage, "partition: item {} is of group {}; groups are -1 (none) to {}", i,
           item.group, kMostGroup);
    }
    if (item.bins.begin < 0 || item.bins.begin > item.bins.end || item.bins.end > bins) {
      fail(ErrorCode::kUsage, "partition: item {} may go to bins [{}, {}), but there are {}", i,
           item.bins.begin, item.bins.end, bins);
    }
  }
  check_total_bytes(problem);
  for (std::size_t b = 0; b < problem.bins.size(); ++b) {
    check_cost(problem.bins[b].cost, "bin", b);
    check_bytes(problem.bins[b].bytes, "bin", b);
    check_bytes(problem.bins[b].capacity, "the capacity of bin", b);
  }
}

double Partition::max_cost() const {
  return cost.empty() ? 0.0 : *std::max_element(cost.begin(), cost.end());
}

double Partition::mean_cost() const {
  double sum = 0.0;
  for (const double c : cost) {
    sum += c;
  }
  return cost.empty() ? 0.0 : sum / static_cast<double>(cost.size());
}

double Partition::imbalance() const {
  return max_over_mean(cost);
}

double Partition::bytes_imbalance(std::size_t tier) const {
  std::vector<double> values;
  values.reserve(bytes.size());
  for (const Bytes& b : bytes) {
    values.push_back(static_cast<double>(b.at(tier)));
  }
  return max_over_mean(values);
}

Partition evaluate(const Problem& problem, std::span<const std::int64_t> bin) {
  const Instance instance(problem);
  return state_of(instance, bin).result();
}

}  // namespace weft::planner
