/// InPlace: slots that a rank serves for itself with whole bags (in_place.cc).
#pragma once

#include <cstdint>

#include "weft/sharding/paths/slot_path.h"

namespace weft::sharding {

class InPlace : public SlotPath {
 public:
  explicit InPlace(const Parts& parts) : SlotPath(parts, Path::kInPlace) {}

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
  void list_assembly(const InputStep& input,
                     OutputStep& output,
                     const SlotAddress& address,
                     std::int64_t cut) const override;
  [[nodiscard]] VectorDraws vector_draws(const InputStep& input,
                                         const SlotAddress& address,
                                         std::int64_t source) const override;
  [[nodiscard]] VectorDraws gradient_draws(const InputStep& input,
                                           const SlotAddress& address) const override;
};

}  // namespace weft::sharding
