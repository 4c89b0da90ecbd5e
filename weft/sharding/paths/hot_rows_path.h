/// HotRowsPath: the slots of hot rows (hot_rows_path.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "weft/sharding/paths/slot_path.h"

namespace weft::sharding {

class HotRowsPath : public SlotPath {
 public:
  /// `split` and `unique` are the paths of the tables' other cuts, which outlive it.
  HotRowsPath(const Parts& parts, const SlotPath& split, const SlotPath& unique);

  [[nodiscard]] IncomingBlock own_block(const InputStep& input,
                                        const SlotAddress& address) const override;
  [[nodiscard]] BlockCut served_cut(const InputStep& input,
                                    const ServedBlock& of,
                                    std::int64_t cut) const override;
  [[nodiscard]] AskedCut asked_cut(const InputStep& input,
                                   const SlotAddress& address,
                                   const AskedSlot& asked,
                                   std::int64_t cut) const override;
  void list_work(const SlotAddress& address, VectorWork& work) const override;
  [[nodiscard]] VectorPlace vectors_to(const OutputStep& output,
                                       const SlotKind& slot) const override;
  [[nodiscard]] VectorPlace gradients_from(const OutputStep& output,
                                           const SlotKind& slot) const override;
  [[nodiscard]] VectorDraws vector_draws(const InputStep& input,
                                         const SlotAddress& address,
                                         std::int64_t source) const override;
  [[nodiscard]] VectorDraws gradient_draws(const InputStep& input,
                                           const SlotAddress& address) const override;

 private:
  [[nodiscard]] const SlotPath& tail(const SlotKind& slot) const {
    return slot.tail == Path::kUniqueRows ? unique_ : split_;
  }

  [[nodiscard]] VectorDraws by_row(VectorDraws draws, const SlotAddress& address) const;

  const SlotPath& split_;
  const SlotPath& unique_;
};

}  // namespace weft::sharding
