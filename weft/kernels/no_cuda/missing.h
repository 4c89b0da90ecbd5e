/// Private to kernels/: what stands in for an operation that a build has no CUDA form of.
///
/// Each operation has its stub in a source file of its own here. A linker takes an object file of
/// the library only for a name that nothing else defines, so a backend that defines some of the
/// operations of namespace `cuda` gets the stubs of the rest.
#pragma once

#include <string_view>

#include "weft/base/error.h"

namespace weft::kernels {

/// Throws Error(kConfig) that names the operation.
[[noreturn]] inline void missing_operation(std::string_view operation) {
  fail(ErrorCode::kConfig,
       "operation '{}' is not there for device cuda in this build of Weft; use device 'cpu'",
       operation);
}

}  // namespace weft::kernels
