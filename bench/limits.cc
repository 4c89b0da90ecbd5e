#include "bench/limits.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "bench/timing.h"
#include "weft/base/hash.h"
#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kRowsPerPass = 1 << 16;

/// Keeps loads from being optimised away.
std::atomic<std::uint64_t> sink;

/// Touches memory with all threads, so that it is mapped.
void map_pages(ThreadPool& pool, std::byte* data, std::int64_t bytes) {
  pool.parallel_for(64, [&](std::int64_t i) {
    const Range own = piece(bytes, 64, i);
    std::memset(data + own.begin, 1, static_cast<std::size_t>(own.size()));
  });
}

/// One load per cache line, which brings all of it.
std::uint64_t read_lines(const std::byte* data, std::int64_t lines) {
  std::uint64_t sum = 0;
  for (std::int64_t line = 0; line < lines; ++line) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + line * 64, sizeof(word));
    sum += word;
  }
  return sum;
}

/// One load and store per cache line, which is all of it for the memory.
void write_lines(std::byte* data, std::int64_t lines) {
  for (std::int64_t line = 0; line < lines; ++line) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + line * 64, sizeof(word));
    ++word;
    std::memcpy(data + line * 64, &word, sizeof(word));
  }
}

}  // namespace

Limits::Limits(Device& device, const LimitOptions& options)
    : device_(device),
      options_(options),
      rows_(device),
      from_(device),
      to_(device),
      other_(device) {
}

void Limits::align() const {
  if (options_.align) {
    options_.align();
  }
}

std::byte* Limits::row_memory() {
  if (rows_.bytes() == 0) {
    rows_.resize(options_.memory_bytes +
                 64);  // rows that end off a line reach past their last byte
    map_pages(device_.pool(), rows_.as<std::byte>(), rows_.bytes());
  }
  return rows_.as<std::byte>();
}

double Limits::copy_bytes_per_s(std::int64_t bytes) {
  const std::int64_t half = std::max<std::int64_t>(bytes / 2, 64);
  from_.resize(half);
  to_.resize(half);
  map_pages(device_.pool(), from_.as<std::byte>(), half);
  align();
  const std::int64_t threads = device_.pool().threads();
  const double time = median_pass_s(options_.budget_s, [&] {
    device_.pool().parallel_for(threads, [&](std::int64_t thread) {
      const Range own = piece(half, threads, thread);
      std::memcpy(to_.as<std::byte>() + own.begin, from_.as<std::byte>() + own.begin,
                  static_cast<std::size_t>(own.size()));
    });
  });
  return 2.0 * static_cast<double>(half) / time;
}

double Limits::read_bytes_per_s(std::int64_t bytes) {
  from_.resize(std::max<std::int64_t>(bytes, 64));
  map_pages(device_.pool(), from_.as<std::byte>(), from_.bytes());
  align();
  const std::int64_t threads = device_.pool().threads();
  const double time = median_pass_s(options_.budget_s, [&] {
    device_.pool().parallel_for(threads, [&](std::int64_t thread) {
      const Range own = piece(from_.bytes() / 64, threads, thread);
      sink += read_lines(from_.as<std::byte>() + own.begin * 64, own.size());
    });
  });
  return static_cast<double>(from_.bytes()) / time;
}

double Limits::update_s(std::int64_t updated, std::int64_t read) {
  to_.resize(std::max<std::int64_t>(updated, 64));
  from_.resize(std::max<std::int64_t>(read, 64));
  map_pages(device_.pool(), to_.as<std::byte>(), to_.bytes());
  map_pages(device_.pool(), from_.as<std::byte>(), from_.bytes());
  align();
  // In blocks of a page of each, so that the two are walked side by side.
  constexpr std::int64_t kBlock = 4096;
  const std::int64_t blocks = (to_.bytes() + kBlock - 1) / kBlock;
  const std::int64_t threads = device_.pool().threads();
  return median_pass_s(options_.budget_s, [&] {
    device_.pool().parallel_for(threads, [&](std::int64_t thread) {
      const Range own = piece(blocks, threads, thread);
      for (std::int64_t block = own.begin; block < own.end; ++block) {
        const Range lines = piece(to_.bytes() / 64, blocks, block);
        const Range beside = piece(from_.bytes() / 64, blocks, block);
        write_lines(to_.as<std::byte>() + lines.begin * 64, lines.size());
        sink += read_lines(from_.as<std::byte>() + beside.begin * 64, beside.size());
      }
    });
  });
}

double Limits::random_rows_per_s(std::int64_t row_bytes, RowAccess access) {
  std::vector<std::int64_t> offsets(kRowsPerPass);
  const std::int64_t threads = device_.pool().threads();
  const NextRows next = [&] {
    for (std::int64_t thread = 0; thread < threads; ++thread) {
      const Range rows = piece(options_.memory_bytes / row_bytes, threads, thread);
      const Range own = piece(kRowsPerPass, threads, thread);
      for (std::int64_t i = own.begin; i < own.end; ++i) {
        const auto draw =
            static_cast<std::int64_t>(mix64(++draws_) % static_cast<std::uint64_t>(rows.size()));
        offsets[static_cast<std::size_t>(i)] = (rows.begin + draw) * row_bytes;
      }
    }
    return std::span<const std::int64_t>(offsets);
  };
  return rows_per_s(next, row_bytes, access);
}

double Limits::rows_per_s(const NextRows& next, std::int64_t row_bytes, RowAccess access) {
  const RowMemory memory{.base = row_memory(), .row_bytes = row_bytes};
  align();
  return row_rate(device_.pool(), memory, next, access, options_.budget_s);
}

void Limits::forget_caches() {
  constexpr std::int64_t kBytes = std::int64_t{64} << 20;
  if (other_.bytes() == 0) {
    other_.resize(kBytes);
    map_pages(device_.pool(), other_.as<std::byte>(), kBytes);
  }
  const std::int64_t threads = device_.pool().threads();
  device_.pool().parallel_for(
      threads, [&](std::int64_t) { sink += read_lines(other_.as<std::byte>(), kBytes / 64); });
}

double Limits::gemm_flops_per_s(const GemmShape& shape) {
  align();
  return bench::gemm_flops_per_s(device_.pool(), shape, options_.budget_s);
}

}  // namespace weft::bench
