#include "bench/row_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/row_probe.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bench/timing.h"
#include "weft/base/parts.h"

HWY_BEFORE_NAMESPACE();

namespace weft::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The widest vectors: a line that is written in pieces costs several times as much. A row that does
// not begin at one is written from the vector it begins in: nothing but the probe's zeros lies
// there.
void stream_row(std::byte* row, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto misaligned =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row)) & (lanes - 1);
  for (std::int64_t at = -misaligned; at < bytes; at += lanes) {
    hn::Stream(hn::Zero(d), d, reinterpret_cast<std::uint8_t*>(row + at));
  }
}

}  // namespace weft::bench::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::bench {
namespace {

HWY_EXPORT(stream_row);

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

std::uint64_t read_row(const RowMemory& memory, std::int64_t offset) {
  std::uint64_t sum = 0;
  for_lines(memory, offset, [&sum](std::byte* line) {
    std::uint64_t word = 0;
    std::memcpy(&word, line, sizeof(word));
    sum += word;
  });
  return sum;
}

std::uint64_t rewrite_row(const RowMemory& memory, std::int64_t offset) {
  std::uint64_t sum = 0;
  for_lines(memory, offset, [&sum](std::byte* line) {
    std::uint64_t word = 0;
    std::memcpy(&word, line, sizeof(word));
    sum += word;
    ++word;
    std::memcpy(line, &word, sizeof(word));
  });
  return sum;
}

std::uint64_t touch_row(const RowList& list, std::int64_t offset) {
  switch (list.touch) {
    case Touch::kRead:
      return read_row(list.memory, offset);
    case Touch::kRewrite:
      return rewrite_row(list.memory, offset);
    case Touch::kStream:
      HWY_DYNAMIC_DISPATCH(stream_row)(list.memory.base + offset, list.memory.row_bytes);
      break;
  }
  return 0;
}

}  // namespace

std::uint64_t touch_rows(std::span<const RowList> lists, std::size_t ahead) {
  std::uint64_t sum = 0;
  const std::size_t steps = lists.empty() ? 0 : lists.front().offsets.size();
  for (std::size_t step = 0; step < steps; ++step) {
    for (const RowList& list : lists) {
      const std::size_t later = step + ahead;
      if (ahead > 0 && later < steps && list.touch != Touch::kStream) {
        for_lines(list.memory, list.offsets[later],
                  [](std::byte* line) { __builtin_prefetch(line); });
      }
      if (list.every == 1 || step % list.every == 0) {
        sum += touch_row(list, list.offsets[step / list.every]);
      }
    }
  }
  return sum;
}

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
        const RowList list{memory, part,
                           access == RowAccess::kGather ? Touch::kRead : Touch::kRewrite};
        sink += touch_rows(std::span(&list, 1), ahead);
      });
      rates.push_back(static_cast<double>(offsets.size()) / seconds_since(start));
    }
    best = std::max(best, median(rates));
  }
  return best;
}

}  // namespace weft::bench

#endif  // HWY_ONCE
