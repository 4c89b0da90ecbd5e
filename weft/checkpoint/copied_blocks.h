/// Private to checkpoint/: copies of the blocks that a rank is to write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/checkpoint/save_plan.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// Holds copies of the blocks that for_each_block() of some sources visits, in the same order, as
/// they were when this was made. Memory: all bytes of these blocks.
class CopiedBlocks final : public StateSource {
 public:
  explicit CopiedBlocks(const SaveSources& sources);
  CopiedBlocks(const CopiedBlocks&) = delete;
  CopiedBlocks& operator=(const CopiedBlocks&) = delete;

  [[nodiscard]] std::vector<StateItem> state_items() const override { return items_; }

  void read_state(std::size_t index,
                  std::int64_t row_begin,
                  std::int64_t rows,
                  void* out) const override;

  /// Itself as the only source.
  [[nodiscard]] const SaveSources& sources() const { return *sources_; }

 private:
  std::vector<StateItem> items_;
  std::vector<std::vector<std::byte>> bytes_;  ///< of each
  const StateSource* const self_ = this;
  std::optional<SaveSources> sources_;
};

}  // namespace weft::checkpoint
