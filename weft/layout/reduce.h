/// Lengths of the buffers of the dense all-reduce on one rank (comm/ordered_reduce.h), in all its
/// forms: weft/comm allocates by them, the planner adds them up.
///
/// Notation: n floats in slices of n / W, k partial sums of this rank (maximal whole subtrees of
/// its parts), t of all others, b(c) the code of c floats; h host sums of this rank's host, x of
/// all other hosts, m floats of the slices for which this rank acts on its host. Plain values and
/// pure functions; bytes everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/codec_format.h"
#include "weft/base/host_layout.h"
#include "weft/base/parts.h"

namespace weft::layout {

/// The rank whose memory is asked for, and its surroundings: it is `rank` of `ranks` that share
/// `parts` parts of the global batch. REQUIRES: 0 <= rank < ranks <= parts.
struct ReduceShape {
  std::int64_t parts = 8;
  std::int64_t ranks = 1;
  std::int64_t rank = 0;
  std::int64_t floats = 0;  ///< n
  bool lent = true;  ///< whether others' memory can be read: of all ranks, or of those of a host
  std::vector<std::int64_t> hosts = {};  ///< [ranks] where sums are added inside hosts; empty: flat
  Crossing crossing = Crossing::kDirect;    ///< between these hosts
  CodecFormat format = CodecFormat::kFp32;  ///< of slices that travel
  std::int64_t group = 128;
  bool error_feedback = false;

  /// Whether slices travel as codes: between several ranks alone.
  [[nodiscard]] bool is_coded() const { return ranks > 1 && format != CodecFormat::kFp32; }
};

/// The code of a slice of so many floats, which may be none.
constexpr std::int64_t code_bytes(CodecFormat format, std::int64_t group, std::int64_t floats) {
  return floats == 0 ? 0 : encoded_bytes(format, group, floats);
}

/// Sums that wait on the way up the tree below `root` over sums at `nodes`, in order, where all of
/// them are there; not the total.
std::int64_t waiting_sums(Range root, const std::vector<Range>& nodes);

/// The buffers. What a form has not is 0.
struct ReduceBuffers {
  std::int64_t partials = 0;  ///< 4 k n, this rank's partial sums
  std::int64_t received = 0;  ///< of others, where nothing is lent: flat 4 t n / W, or with a codec
                              ///< the larger of t b(n / W) and of all others' sums as code;
                              ///< hierarchical 4 m for each sum of the host's other ranks
  std::int64_t waiting = 0;   ///< slices of sums that wait
  // Hierarchical.
  std::int64_t host_sums = 0;  ///< 4 h m
  std::int64_t crossed = 0;    ///< 4 x n / W; flat with a codec: others' sums decoded, 4 t n / W
  std::int64_t passed = 0;     ///< of a relay: of each host to which it is one, that host's sums of
                               ///< the slices of this host's other ranks, as they travel
  // With a codec.
  std::int64_t sent = 0;          ///< flat k b(n / W) for each other rank; hierarchical h codes of
                                  ///< the slices of others for which this rank acts
  std::int64_t crossed_code = 0;  ///< hierarchical: x b(n / W)
  std::int64_t total = 0;         ///< the own sum, 4 n / W
  std::int64_t total_code = 0;    ///< flat: of the own sum; hierarchical: of all slices' sums
  // With error feedback.
  std::int64_t partial_residuals = 0;  ///< of what is encoded first: 4 k n, hierarchical 4 h m
  std::int64_t total_residual = 0;     ///< 4 n / W

  /// As the allocators count them.
  [[nodiscard]] std::int64_t counted_bytes() const;
};

/// Of a rank. The form is hierarchical where `hosts` has several, of which one has several ranks.
/// O(ranks + parts), hierarchical O(ranks · hosts + parts).
ReduceBuffers reduce_buffers(const ReduceShape& shape);

}  // namespace weft::layout
