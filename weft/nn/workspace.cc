#include "weft/nn/workspace.h"

#include <cstdlib>

#include "weft/base/error.h"

namespace weft::nn {

void PartWorkspace::Free::operator()(void* data) const {
  std::free(data);
}

void* PartWorkspace::grow(Slot& slot, std::int64_t bytes) {
  if (bytes > slot.bytes) {
    constexpr std::int64_t kAlignment = 64;
    const std::int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    slot.data.reset();
    slot.bytes = 0;
    slot.data.reset(std::aligned_alloc(kAlignment, static_cast<std::size_t>(rounded)));
    if (slot.data == nullptr) {
      fail(ErrorCode::kResource,
           "activations of a part: no memory for {} bytes; use more parts (numerics.parts) or a "
           "smaller batch_size",
           rounded);
    }
    slot.bytes = rounded;
  }
  return slot.data.get();
}

}  // namespace weft::nn
