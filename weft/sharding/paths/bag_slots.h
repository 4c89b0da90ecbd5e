/// Private to sharding/: what the paths of whole and of split bags share: how bags look on the
/// wire, how they are unpacked where they are served, and whose random words their vectors get.
///
/// Wire        lengths of all bags of the batch, empty ones too, or the bag of each id; ids,
/// counted
///             within the rows of the cut; fp32 weights of weighted slots. wire_ids.h has the
///             widths, and says when bags are listed.
/// Served      without empty bags; a vector per bag, or per id of a sequence.
#pragma once

#include <cstdint>

#include "weft/sharding/paths/slot_path.h"

namespace weft::sharding {

class BagSlots : public SlotPath {
 public:
  using SlotPath::SlotPath;

  void add_pieces(const AskedIds& asked,
                  const SlotAddress& address,
                  std::int64_t place,
                  SlotPieces& pieces) const override;
  [[nodiscard]] std::int64_t section_bytes(const SlotKind& slot,
                                           const SlotCounts& counts,
                                           std::int64_t source) const override;
  void expect_block(ServedIds& served,
                    const ArrivedBlock& from,
                    IncomingBlock& block) const override;
  void add_expected(const ArrivedBlock& from, SlotPieces& pieces) const override;
  [[nodiscard]] std::int64_t unpack_tasks(const ArrivedBlock& from) const override;
  void unpack(ServedIds& served,
              const ArrivedBlock& from,
              std::int64_t task,
              IncomingBlock& block) const override;
  [[nodiscard]] IncomingBlock own_block(const InputStep& input,
                                        const SlotAddress& address) const override;
  [[nodiscard]] BlockCut served_cut(const InputStep& input,
                                    const ServedBlock& of,
                                    std::int64_t cut) const override;
  [[nodiscard]] AskedCut asked_cut(const InputStep& input,
                                   const SlotAddress& address,
                                   const AskedSlot& asked,
                                   std::int64_t cut) const override;
  [[nodiscard]] VectorDraws vector_draws(const InputStep& input,
                                         const SlotAddress& address,
                                         std::int64_t source) const override;
  [[nodiscard]] VectorDraws gradient_draws(const InputStep& input,
                                           const SlotAddress& address) const override;

 protected:
  /// Bytes of an id of a feature on the wire.
  [[nodiscard]] std::int64_t id_bytes(std::int64_t feature) const {
    return routing_.kinds[at(route(feature).first_kind)].id_bytes;
  }

  /// Narrows lengths, or bags of ids, of slots that are sent the same ones, once nobody needs them
  /// as they are.
  static void narrow_bags(AskedIds& asked, Range places);

 private:
  void unpack_bags(ServedIds& served, const ArrivedBlock& from, IncomingBlock& block) const;
  template <typename Length>
  void unpack_lengths(ServedIds& served,
                      const Length& length,
                      const ArrivedBlock& from,
                      IncomingBlock& block) const;
  template <typename Bag>
  void unpack_listed(ServedIds& served,
                     const WireNumbers<Bag>& bag_of,
                     const ArrivedBlock& from,
                     IncomingBlock& block) const;
  void unpack_ids(ServedIds& served,
                  const ArrivedBlock& from,
                  const IncomingBlock& block,
                  Range ids) const;
};

}  // namespace weft::sharding
