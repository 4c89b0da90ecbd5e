/// Private to sharding/: small blocks whose bags lie behind each other share a job of a kernel.
/// With thousands of ranks nearly all blocks have one bag or two, and a job for each takes longer
/// than its rows. What a job says of one block in two numbers, where its vectors lie, it says of
/// several in a list.
///
/// Bits        bags stay in their order, and each is summed by itself.
/// Memory      8 bytes for each id that other ranks ask, once for each micro-batch and once for
///             gradients; reused from step to step.
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include "weft/base/error.h"
#include "weft/kernels/rows.h"
#include "weft/sharding/incoming_ids.h"
#include "weft/sharding/wire_ids.h"

namespace weft::sharding {

/// A block that shares a job has at most so many vectors: of more, a job of its own is little
/// beside these.
inline constexpr std::int64_t kMostSharedVectors = 64;

/// Returns whether a block with so many vectors shares a job: a small one of another rank.
inline bool is_shared(const IncomingBlock& block, std::int64_t vectors) {
  return block.origin == IdOrigin::kReceived && vectors <= kMostSharedVectors;
}

/// Returns whether the bags of a run go on with `next`.
inline bool goes_on(const kernels::Bags& run, const kernels::Bags& next) {
  return run.ids == next.ids && run.weights == next.weights &&
         run.offsets + run.bags == next.offsets;
}

/// Where the vectors of shared jobs lie, in elements from an address that all have.
class SharedPlaces {
 public:
  /// Forgets all, and makes room for so many vectors: jobs point to theirs.
  void begin(std::int64_t vectors) {
    size_ = 0;
    grow(places_, vectors);
  }

  /// Appends those of a block, which lie behind each other from `place` on; returns where the list
  /// of these begins.
  const std::int64_t* add(std::int64_t place, std::int64_t dim, std::int64_t vectors) {
    WEFT_CHECK(size_ + vectors <= std::ssize(places_), "more vectors than their room");
    std::int64_t* const own = places_.data() + size_;
    for (std::int64_t v = 0; v < vectors; ++v, place += dim) {
      own[v] = place;
    }
    size_ += vectors;
    return own;
  }

 private:
  std::vector<std::int64_t> places_;
  std::int64_t size_ = 0;  // of the list
};

}  // namespace weft::sharding
