// The sparse operations: each goes to its form for the kind of the context's device.

#include "weft/base/error.h"
#include "weft/kernels/embedding_bag.h"

namespace weft::kernels {
namespace {

/// Calls one of both forms. A context without a device works on host memory.
template <typename Cpu, typename Cuda>
void choose_sparse(const Context& ctx, const Cpu& on_cpu, const Cuda& on_cuda) {
  switch (ctx.device == nullptr ? DeviceKind::kCpu : ctx.device->kind()) {
    case DeviceKind::kCpu:
    case DeviceKind::kCheck:
      return on_cpu();
    case DeviceKind::kCuda:
      return on_cuda();
  }
  fail(ErrorCode::kInternal, "a device of unknown kind");
}

}  // namespace

void embedding_bag(Context& ctx, std::span<const BagLookup> lookups) {
  choose_sparse(
      ctx, [&] { cpu::embedding_bag(ctx, lookups); }, [&] { cuda::embedding_bag(ctx, lookups); });
}

}  // namespace weft::kernels
