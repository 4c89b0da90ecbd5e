/// SplitBags: slots of features whose bags go to several cuts of rows (split_bags.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/kernels/assemble_bags.h"
#include "weft/sharding/paths/bag_slots.h"
#include "weft/sharding/row_owner.h"

namespace weft::sharding {

class SplitBags : public BagSlots {
 public:
  explicit SplitBags(const Parts& parts);

  [[nodiscard]] std::int64_t cuts(std::int64_t feature) const override;
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
  /// A cut of a feature's rows of which this rank holds a shard, or the hot rows; only one, as
  /// shards of the same rows are on different ranks.
  struct OwnCut {
    std::int64_t row_cut = 0;
    SlotAddress address;
  };

  struct Feature {
    std::int64_t index = 0;
    RowOwner owner;
    std::vector<OwnCut> own;
    std::size_t terms = 0;  ///< index in AskedBags::term_sections
  };

  [[nodiscard]] const Feature& feature(std::int64_t f) const {
    return features_[at(place_[at(f)])];
  }

  [[nodiscard]] static const OwnCut* own_cut(const Feature& feature, std::int64_t row_cut);
  void find_cuts(AskedIds& asked, const BagTask& task) const;
  void lay_out_feature(AskedIds& asked, const Feature& feature) const;
  void lay_out_own(AskedIds& asked, const SlotAddress& address, const CutCount& total) const;
  [[nodiscard]] bool lists_terms(std::int64_t feature) const;
  void lay_out_terms(AskedIds& asked, const Feature& feature, std::int64_t terms) const;
  void point_feature(AskedIds& asked, const Feature& feature) const;
  template <bool kSequence, bool kLists, typename PlaceOf, typename StoreId>
  void split(const AskedIds& asked,
             const BagTask& task,
             std::span<const AskedBags::Writer> writers,
             const PlaceOf& place_of,
             const StoreId& store) const;
  void fill_terms(AskedIds& asked,
                  const BagTask& task,
                  std::span<const AskedBags::Writer> writers) const;
  void fill_own(AskedIds& asked, const BagTask& task, const OwnCut& cut) const;
  [[nodiscard]] kernels::BagVectors partial_sums(const InputStep& input,
                                                 const OutputStep& output,
                                                 std::int64_t place,
                                                 std::int64_t stride) const;

  std::vector<Feature> features_;
  std::vector<std::int64_t> place_;  // [F] in features_
  bool has_rules_ = false;           // for some feature
};

}  // namespace weft::sharding
