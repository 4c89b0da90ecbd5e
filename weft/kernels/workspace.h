/// Workspace: what a backend keeps from one dense operation to the next.
///
/// On the CPU it holds oneDNN's primitives and scratch memory for compact copies and partial sums;
/// on CUDA it would hold the library's handle and its work memory.
///
/// Threads     One workspace belongs to one thread at a time; many may be in use at once.
/// Cost        It grows with the shapes it meets, then allocates nothing of Weft's own.
#pragma once

#include <memory>

#include "weft/tensor/device.h"

namespace weft::kernels {

/// The base of the backends' own workspaces.
class Workspace {
 public:
  Workspace() = default;
  virtual ~Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
};

/// Makes a workspace for operations on ctx.device.
std::unique_ptr<Workspace> make_workspace(Context& ctx);

namespace cpu {
/// The same by the CPU's kernels.
std::unique_ptr<Workspace> make_workspace(Context& ctx);
}  // namespace cpu

namespace cuda {
/// The same on a GPU.
std::unique_ptr<Workspace> make_workspace(Context& ctx);
}  // namespace cuda

}  // namespace weft::kernels
