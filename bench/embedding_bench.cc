// Embedding lookup against rows gathered at random: pooled sums of L random rows of D fp32 columns
// from tables of some GiB.
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/kernel_main.h"
#include "bench/limits.h"
#include "weft/base/hash.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kIdsPerBatch = 1 << 16;

/// One device, table and set of limits for all benchmarks of a number of threads.
struct Machine {
  explicit Machine(std::int64_t threads)
      : device(make_device({.kind = DeviceKind::kCpu, .threads = static_cast<int>(threads)})),
        limits(*device, {.memory_bytes = row_memory_bytes(), .budget_s = 0.1, .align = {}}),
        table(*device, row_memory_bytes()) {
    context = {.device = device.get(), .pool = &device->pool(), .native_stream = nullptr};
    device->fill_zero(context, table.as<void>(), row_memory_bytes());
  }

  static Machine& of(std::int64_t threads) {
    static std::vector<std::pair<std::int64_t, std::unique_ptr<Machine>>> made;
    for (auto& [count, machine] : made) {
      if (count == threads) {
        return *machine;
      }
    }
    made.clear();  // one table at a time
    return *made.emplace_back(threads, std::make_unique<Machine>(threads)).second;
  }

  std::unique_ptr<Device> device;
  Limits limits;
  Buffer table;
  Context context;
};

/// Bags of `length` uniform ids.
class Batches {
 public:
  Batches(std::int64_t rows, std::int64_t length) : rows_(rows), ids_(kIdsPerBatch) {
    for (std::int64_t offset = 0; offset <= kIdsPerBatch; offset += length) {
      offsets_.push_back(offset);
    }
    draw();
  }

  /// Another batch, whose rows no cache knows.
  void draw() {
    for (std::int64_t& id : ids_) {
      id = static_cast<std::int64_t>(mix64(++draws_) % static_cast<std::uint64_t>(rows_));
    }
  }

  [[nodiscard]] kernels::Bags bags() const {
    return {.ids = ids_.data(),
            .offsets = offsets_.data(),
            .weights = nullptr,
            .bags = static_cast<std::int64_t>(offsets_.size()) - 1};
  }

 private:
  std::int64_t rows_;
  std::uint64_t draws_ = 0;
  std::vector<std::int64_t> ids_, offsets_;
};

void lookup(benchmark::State& state) {
  const std::int64_t dim = state.range(0);
  const std::int64_t length = state.range(1);
  Machine& machine = Machine::of(state.range(2));
  const std::int64_t row_bytes = dim * 4;
  Batches batches(row_memory_bytes() / row_bytes, length);
  Buffer out(*machine.device, kIdsPerBatch / length * row_bytes);
  const double limit = machine.limits.random_rows_per_s(row_bytes, RowAccess::kGather);
  const auto run = [&] {
    const kernels::BagLookup lookup{.weights = machine.table.as<void>(),
                                    .weight_stride = row_bytes,
                                    .dtype = DType::kFloat32,
                                    .cols = dim,
                                    .bags = batches.bags(),
                                    .pooled = true,
                                    .out = out.as<float>(),
                                    .out_stride = dim};
    kernels::embedding_bag(machine.context, std::span(&lookup, 1));
  };
  run();  // maps `out`, and the table again where the hypervisor has forgotten it
  for (auto _ : state) {
    state.PauseTiming();
    batches.draw();
    state.ResumeTiming();
    run();
  }
  report_rate(state, {.work = static_cast<double>(kIdsPerBatch),
                      .unit = "rows/s",
                      .limit_name = "gather",
                      .limit = limit});
}

BENCHMARK(lookup)
    ->ArgNames({"dim", "length", "threads"})
    ->ArgsProduct({{16, 64, 128}, {1, 32}, {1}})
    ->UseRealTime();

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_kernels("embedding", argc, argv);
}
