/// Private to kernels/cpu: where the results of a lookup are written.
#pragma once

#include <cstdint>

namespace weft::kernels {

/// Whether the results of a call stay in the caches near a core until they are used. Those that
/// do not are written past them. Changes no bit.
enum class Output : std::uint8_t { kNear, kFar };

}  // namespace weft::kernels
