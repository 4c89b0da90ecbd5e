#include "bench/row_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "bench/timing.h"
#include "weft/base/parts.h"

namespace weft::bench {
namespace {

constexpr std::uintptr_t kLine = 64;
constexpr std::size_t kAhead[] = {0, 8, 32};

/// Keeps loads from being optimised away.
std::atomic<std::uint64_t> sink;

template <typename Touch>
void for_lines(const RowMemory& memory, std::int64_t offset, const Touch& touch) {
  std::byte* const row = memory.base + offset;
  std::byte* const end = row + memory.row_bytes;
  for (std::byte* line = row - reinterpret_cast<std::uintptr_t>(row) % kLine; line < end;
       line += kLine) {
    touch(line);
  }
}

template <bool kWrite>
std::uint64_t walk(const RowMemory& memory,
                   std::span<const std::int64_t> offsets,
                   std::size_t ahead) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (ahead > 0 && i + ahead < offsets.size()) {
      for_lines(memory, offsets[i + ahead],
                [](std::byte* line) { __builtin_prefetch(line, kWrite ? 1 : 0); });
    }
    for_lines(memory, offsets[i], [&sum](std::byte* line) {
      std::uint64_t word = 0;
      std::memcpy(&word, line, sizeof(word));
      sum += word;
      if constexpr (kWrite) {
        ++word;
        std::memcpy(line, &word, sizeof(word));
      }
    });
  }
  return sum;
}

}  // namespace

double row_rate(ThreadPool& pool,
                const RowMemory& memory,
                const NextRows& next,
                RowAccess access,
                double budget_s) {
  double best = 0.0;
  for (const std::size_t ahead : kAhead) {
    std::span<const std::int64_t> offsets;
    std::vector<double> rates;
    const auto begin = std::chrono::steady_clock::now();
    while (rates.size() < 3 || seconds_since(begin) < budget_s / std::size(kAhead)) {
      offsets = next();
      const auto start = std::chrono::steady_clock::now();
      pool.parallel_for(pool.threads(), [&](std::int64_t thread) {
        const Range own = piece(static_cast<std::int64_t>(offsets.size()), pool.threads(), thread);
        const auto part = offsets.subspan(static_cast<std::size_t>(own.begin),
                                          static_cast<std::size_t>(own.size()));
        sink += access == RowAccess::kGather ? walk<false>(memory, part, ahead)
                                             : walk<true>(memory, part, ahead);
      });
      rates.push_back(static_cast<double>(offsets.size()) / seconds_since(start));
    }
    best = std::max(best, median(rates));
  }
  return best;
}

}  // namespace weft::bench
