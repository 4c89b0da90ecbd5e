/// Coalescing: which entries of a step touch which row.
///
/// Entries come in a given order (block, bag, place). One stable LSD radix sort by (row, part) over
/// the bits that occur keeps that order inside every (row, part). Gradient values are not read,
/// only their addresses noted, so it can run before they exist.
/// Cost: per entry 8 bytes sorted in ⌈bits/11⌉ passes, bits = those of the rows, and of the parts
/// where these do not ascend in the given order; 36 bytes written. One thread, tables in parallel.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/parts.h"
#include "weft/kernels/rows.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// Keeps its buffers from step to step. One caller at a time, inside a stage.
class Coalescer {
 public:
  explicit Coalescer(Device& device);

  /// Views that stay valid until the next run(). Ids lie in [0, rows), parts in [0, parts). Throws
  /// Error(kConfig) for 2^31 - 1 entries or more.
  RowRuns run(std::span<const GradientBlock> blocks, std::int64_t rows, std::int64_t parts);

 private:
  /// Bits of a key: all, and those of its part, which are the lowest.
  struct KeyBits {
    int all;
    int part;
  };

  /// Where cut() writes.
  struct Runs;

  template <typename Item>
  RowRuns sort(std::span<const GradientBlock> blocks, std::int64_t n, KeyBits bits);
  Runs make_runs(std::int64_t n, bool weighted);

  Buffer grads_;
  Buffer weights_;
  Buffer rows_;
  Buffer row_segments_;
  Buffer segment_entries_;
  Buffer segment_parts_;
};

namespace reference {
/// Whether `runs` is what std::stable_sort of plain entries gives, field by field.
bool same_runs(const RowRuns& runs, std::span<const GradientBlock> blocks);
}  // namespace reference

}  // namespace weft::kernels
