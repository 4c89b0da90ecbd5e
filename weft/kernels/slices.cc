#include "weft/kernels/slices.h"

#include <atomic>

#include "weft/base/thread_pool.h"
#include "weft/kernels/dispatch.h"

namespace weft::kernels {
namespace {

void on_the_calling_thread(std::int64_t count, SliceFunction body) {
  for (std::int64_t slice = 0; slice < count; ++slice) {
    body(slice, 0);
  }
}

}  // namespace

std::int64_t slice_lanes(Device& device) {
  std::int64_t lanes = 1;
  Context ctx{.device = &device};
  on_device(ctx, [&] { lanes = device.pool().threads(); }, [] {});
  return lanes;
}

void for_each_slice(Context& ctx, std::int64_t count, SliceFunction body) {
  const auto on_cpu = [&] {
    if (ctx.pool == nullptr) {
      on_the_calling_thread(count, body);
      return;
    }
    std::atomic<std::int64_t> next = 0;
    ctx.pool->parallel_for(ctx.pool->threads(), [&](std::int64_t lane) {
      for (std::int64_t slice = next++; slice < count; slice = next++) {
        body(slice, lane);
      }
    });
  };
  on_device(ctx, on_cpu, [&] { on_the_calling_thread(count, body); });
}

}  // namespace weft::kernels
