#include "weft/kernels/assemble_bags.h"

#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::assemble_bags(Context& /*ctx*/, std::span<const BagAssembly> /*jobs*/) {
  missing_operation("assemble_bags");
}
