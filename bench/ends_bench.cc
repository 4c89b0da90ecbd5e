// The hash of a table's state, of which a share of the rows has been written, against reading as
// much memory.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "bench/kernel_main.h"
#include "bench/timing.h"
#include "weft/base/thread_pool.h"
#include "weft/checkpoint/state_hash.h"
#include "weft/embedding/table_shard.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kTableBytes = std::int64_t{256} << 20;
constexpr std::int64_t kTaskBytes = std::int64_t{2} << 20;
constexpr std::int64_t kDim = 64;

/// Bytes per second of adding up the words of memory, with the device's pool.
double read_bytes_per_s(Device& device) {
  const std::int64_t bytes = bytes_of_run(kTableBytes);
  const Buffer memory(device, bytes);
  std::memset(memory.as<char>(), 1, static_cast<std::size_t>(bytes));
  std::atomic<std::uint64_t> all = 0;
  const double seconds = median_pass_s(0.5 * static_cast<double>(bytes) / kTableBytes, [&] {
    device.pool().parallel_for(bytes / kTaskBytes, [&](std::int64_t task) {
      const auto* const words =
          reinterpret_cast<const std::uint64_t*>(memory.as<char>() + task * kTaskBytes);
      all += std::accumulate(words, words + kTaskBytes / 8, std::uint64_t{0});
    });
  });
  benchmark::DoNotOptimize(all.load());
  return static_cast<double>(bytes) / seconds;
}

/// As a job does it at its end. Rows that are written lie evenly among the others.
void hash_table(benchmark::State& state) {
  const std::unique_ptr<Device> device = make_device({.threads = static_cast<int>(state.range(1))});
  spec::Table table;
  table.name = "C1";
  table.embedding_dim = kDim;
  table.num_embeddings = bytes_of_run(kTableBytes) / (4 * kDim);
  embedding::TableShard shard(*device, table, {0, table.num_embeddings}, {0, kDim}, 1, {});
  std::vector<float> row(kDim, 0.5F);
  const std::int64_t percent = state.range(0);
  for (std::int64_t r = 0; r < table.num_embeddings; ++r) {
    if (r * percent / 100 != (r + 1) * percent / 100) {
      row[0] = static_cast<float>(r);
      shard.write_state(0, r, 1, 0, kDim, row.data());
    }
  }
  const checkpoint::InitialValues initial = [&](const StateItem& item, std::int64_t begin,
                                                std::int64_t rows, void* out) {
    shard.initial_state(item.kind == "weight" ? 0 : 1, begin, rows, out);
    return true;
  };
  const StateSource* const source = &shard;
  Context ctx;
  ctx.device = device.get();
  ctx.pool = &device->pool();
  const double limit = read_bytes_per_s(*device);
  for (auto _ : state) {
    benchmark::DoNotOptimize(checkpoint::hash_state(ctx, std::span(&source, 1), initial).state);
  }
  report_rate(state, {.work = static_cast<double>(shard.bytes()) / 1e9,
                      .unit = "GB/s",
                      .limit_name = "memory read",
                      .limit = limit / 1e9});
}

BENCHMARK(hash_table)
    ->ArgNames({"written", "threads"})
    ->ArgsProduct({{1, 10, 50, 100}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_kernels("ends", argc, argv);
}
