// Making a table, its memory included, against writing as much fresh memory; and its values alone,
// over and over in memory that the caches hold, which is the time that a first write does not have.
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "bench/kernel_main.h"
#include "bench/timing.h"
#include "weft/base/thread_pool.h"
#include "weft/embedding/table_shard.h"
#include "weft/kernels/initial_values.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kTableBytes = std::int64_t{256} << 20;
constexpr std::int64_t kTaskBytes = std::int64_t{2} << 20;

/// Bytes per second of writing memory that has just been mapped, with the device's pool.
double first_write_bytes_per_s(Device& device) {
  const std::int64_t bytes = bytes_of_run(kTableBytes);
  const double seconds = median_pass_s(0.5 * static_cast<double>(bytes) / kTableBytes, [&] {
    const Buffer fresh(device, bytes);
    device.pool().parallel_for(bytes / kTaskBytes, [&](std::int64_t task) {
      std::memset(fresh.as<char>() + task * kTaskBytes, 1, static_cast<std::size_t>(kTaskBytes));
    });
  });
  return static_cast<double>(bytes) / seconds;
}

spec::Table table_of(std::int64_t dim, spec::TableInit init, spec::RowDType dtype) {
  spec::Table table;
  table.name = "C1";
  table.embedding_dim = dim;
  table.num_embeddings = bytes_of_run(kTableBytes) / (4 * dim);
  table.init = init;
  table.dtype = dtype;
  table.optimizer.type = SparseOptimizerKind::kSgd;
  return table;
}

void make_table(benchmark::State& state, spec::TableInit init, spec::RowDType dtype) {
  const std::unique_ptr<Device> device = make_device({.threads = static_cast<int>(state.range(1))});
  const spec::Table table = table_of(state.range(0), init, dtype);
  const double limit = first_write_bytes_per_s(*device);
  std::int64_t bytes = 0;
  for (auto _ : state) {
    const embedding::TableShard shard(*device, table, {0, table.num_embeddings},
                                      {0, table.embedding_dim}, 1, {});
    bytes = shard.bytes();
  }
  report_rate(state, {.work = static_cast<double>(bytes) / 1e9,
                      .unit = "GB/s",
                      .limit_name = "first write",
                      .limit = limit / 1e9});
}

/// Makes the same quarter of a MiB of rows again and again, which stays in the second cache.
void make_values(benchmark::State& state, kernels::InitialRule rule) {
  constexpr std::int64_t kRowsInCache = 1024;
  constexpr std::int64_t kDim = 64;
  const std::unique_ptr<Device> device = make_device({.threads = 1});
  const double limit = first_write_bytes_per_s(*device);
  const Buffer rows(*device, kRowsInCache * kDim * 4);
  const kernels::InitialRows job{.table = {.weights = rows.as<void>(),
                                           .weight_stride = kDim * 4,
                                           .dtype = DType::kFloat32,
                                           .cols = kDim,
                                           .dim = kDim},
                                 .rows = {0, kRowsInCache},
                                 .rule = rule,
                                 .key = 1};
  Context ctx{.device = device.get()};
  for (auto _ : state) {
    kernels::set_initial_rows(ctx, std::span(&job, 1));
  }
  report_rate(state, {.work = static_cast<double>(rows.bytes()) / 1e9,
                      .unit = "GB/s",
                      .limit_name = "first write",
                      .limit = limit / 1e9});
}

void add_arguments(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dim", "threads"})->ArgsProduct({{16, 128}, {1, 2}})->UseRealTime();
}

BENCHMARK_CAPTURE(make_table, uniform_fp32, spec::TableInit::kUniform, spec::RowDType::kFp32)
    ->Apply(add_arguments);
BENCHMARK_CAPTURE(make_table,
                  uniform_split_bf16,
                  spec::TableInit::kUniform,
                  spec::RowDType::kSplitBf16)
    ->Apply(add_arguments);
BENCHMARK_CAPTURE(make_table, normal_fp32, spec::TableInit::kNormal, spec::RowDType::kFp32)
    ->Apply(add_arguments);
BENCHMARK_CAPTURE(make_values, uniform_in_cache, kernels::InitialRule::kUniform)->UseRealTime();
BENCHMARK_CAPTURE(make_values, normal_in_cache, kernels::InitialRule::kNormal)->UseRealTime();

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_kernels("initial_values", argc, argv);
}
