/// WholeBags: slots of tables whose rows are not cut, served by another rank (whole_bags.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "weft/sharding/paths/bag_slots.h"

namespace weft::sharding {

class WholeBags : public BagSlots {
 public:
  explicit WholeBags(const Parts& parts);

  void begin(AskedIds& asked) const override;
  void read(AskedIds& asked, const BagTask& task) const override;
  void lay_out(ThreadPool& pool, AskedIds& asked) const override;
  void point(AskedIds& asked) const override;
  void fill(AskedIds& asked, const BagTask& task) const override;
  void finish(ThreadPool& pool, AskedIds& asked) const override;

  void list_work(const SlotAddress& address, VectorWork& work) const override;
  void list_assembly(const InputStep& input,
                     OutputStep& output,
                     const SlotAddress& address,
                     std::int64_t cut) const override;

 private:
  /// The places of a feature's slots in AskedIds.
  [[nodiscard]] Range places_of(std::int64_t feature) const {
    const RowCuts& cuts = route(feature);
    return {cuts.first_number, cuts.first_number + cuts.col_cuts};
  }

  std::vector<std::int64_t> features_;  // that this rank packs
};

}  // namespace weft::sharding
