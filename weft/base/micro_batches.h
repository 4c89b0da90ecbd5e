/// MicroBatches: how a rank's part of a batch is cut into runs of its parts, so that vectors and
/// gradients of one run travel while another one computes (weft/pipeline/schedule.h).
///
/// Cuts have relative sizes s_0 ... s_{N-1}, S in all. A rank with P_r parts has in cut i its parts
/// [floor(P_r (s_0 + ... + s_{i-1}) / S), floor(P_r (s_0 + ... + s_i) / S)), which may be none. The
/// cut of another rank's batch follows from its parts alone, so no message says it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"

namespace weft {

class MicroBatches {
 public:
  /// One cut: the whole batch.
  MicroBatches() = default;

  /// REQUIRES: there is a size, and all are positive.
  explicit MicroBatches(std::span<const std::int64_t> sizes);

  /// N.
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(ends_.size()); }

  /// The parts of cut `index` of a rank that has the parts `own`.
  [[nodiscard]] Range parts(const Range& own, std::int64_t index) const;

  /// The runs of [0, total) that begin or end a cut of `own` or a maximal whole subtree of it: each
  /// lies in one cut and in one subtree. In order; cuts without parts have none.
  [[nodiscard]] std::vector<Range> runs(std::int64_t total, const Range& own) const;

 private:
  std::vector<std::int64_t> ends_ = {1};  // [N] sums of sizes up to and with each
};

}  // namespace weft
