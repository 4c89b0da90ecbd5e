/// Private to comm/: the forms of OrderedAllReduce.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/base/host_layout.h"
#include "weft/comm/communicator.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/kernels/codec.h"
#include "weft/layout/reduce.h"
#include "weft/tensor/device.h"

namespace weft::comm {

inline constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));

/// What an OrderedAllReduce reduces.
struct ReduceShape {
  std::int64_t parts = 1;
  std::int64_t count = 0;
  float* partials = nullptr;  ///< [partial sums of this rank][count]
  ReduceCodec codec = {};
  Crossing crossing = Crossing::kDirect;
  layout::ReduceBuffers buffers = {};
};

class SliceReduce {
 public:
  explicit SliceReduce(float* partials) : partials_(partials) {}

  virtual ~SliceReduce() = default;
  SliceReduce(const SliceReduce&) = delete;
  SliceReduce& operator=(const SliceReduce&) = delete;

  /// Where this rank's partial sums are written next.
  [[nodiscard]] float* partials() const { return partials_; }

  /// `present`: one per partial sum of this rank. `out`: [count], outside the partial sums or the
  /// first of them.
  virtual void run(Context& ctx, std::span<const std::uint8_t> present, float* out) = 0;

  /// As OrderedAllReduce says; here of forms that encode nothing.
  virtual void keep_residuals() {}

  [[nodiscard]] virtual std::vector<ResidualBlock> residuals() const { return {}; }

  [[nodiscard]] virtual kernels::CodecClips clips() const { return {}; }

 protected:
  float* partials_;
};

/// Partial sums to the owner of each slice, sums to all.
std::unique_ptr<SliceReduce> make_flat_reduce(Communicator& communicator,
                                              Device& device,
                                              const ReduceShape& shape);

/// The same, encoded: partial sums to the owners of slices, and the sums to all.
std::unique_ptr<SliceReduce> make_coded_reduce(Communicator& communicator,
                                               Device& device,
                                               const ReduceShape& shape);

/// Requires a hierarchical communicator. With a codec what goes to other hosts is encoded, and the
/// sums.
std::unique_ptr<SliceReduce> make_hierarchical_reduce(Communicator& communicator,
                                                      Device& device,
                                                      const ReduceShape& shape);

}  // namespace weft::comm
