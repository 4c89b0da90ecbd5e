/// The loop over the slices of a batch, and over the tiles of a gradient: dense operations take one
/// each.
///
/// CPU       slices at once, each on a thread of the pool with a lane of its own: its operations
/// run
///           on that thread.
/// CUDA      one lane and the calling thread: its operations are enqueued, slice after slice, on
/// the
///           context's stream, so the loop on the host only launches.
/// Order     which lane gets which slice is left to chance, so no result may depend on it. No
///           allocation.
#pragma once

#include <cstdint>
#include <type_traits>

#include "weft/tensor/device.h"

namespace weft::kernels {

/// A non-owning reference to a callable void(slice, lane).
class SliceFunction {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, SliceFunction>)
  SliceFunction(const F& f)  // NOLINT(google-explicit-constructor): a parameter type
      : object_(&f), call_([](const void* object, std::int64_t slice, std::int64_t lane) {
          (*static_cast<const F*>(object))(slice, lane);
        }) {}

  void operator()(std::int64_t slice, std::int64_t lane) const { call_(object_, slice, lane); }

 private:
  const void* object_;
  void (*call_)(const void*, std::int64_t, std::int64_t);
};

/// The slices that a device has in work at once, and so the lanes that a caller makes for it: the
/// threads of its pool, or one.
std::int64_t slice_lanes(Device& device);

/// Calls body(slice, lane) for each slice in [0, count), with lanes in [0, slice_lanes()), a lane
/// by one thread at a time. Throws what a body throws, once the other lanes are done.
void for_each_slice(Context& ctx, std::int64_t count, SliceFunction body);

}  // namespace weft::kernels
