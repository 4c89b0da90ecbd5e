/// UniqueRowsPath: slots of tables that are pooled at the sample (unique_rows_path.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "weft/sharding/paths/slot_path.h"

namespace weft::sharding {

class UniqueRowsPath : public SlotPath {
 public:
  explicit UniqueRowsPath(const Parts& parts) : SlotPath(parts, Path::kUniqueRows) {}

  void lay_out(ThreadPool& pool, AskedIds& asked) const override;
  void point(AskedIds& asked) const override;
  void finish(ThreadPool& pool, AskedIds& asked) const override;
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
  void place_own_features(InputStep& input) const override;

  [[nodiscard]] BlockCut served_cut(const InputStep& input,
                                    const ServedBlock& of,
                                    std::int64_t cut) const override;
  [[nodiscard]] AskedCut asked_cut(const InputStep& input,
                                   const SlotAddress& address,
                                   const AskedSlot& asked,
                                   std::int64_t cut) const override;
  void list_work(const SlotAddress& address, VectorWork& work) const override;
  void prepare(const InputStep& input, OutputStep& output) const override;
  [[nodiscard]] VectorPlace vectors_to(const OutputStep& output,
                                       const SlotKind& slot) const override;
  [[nodiscard]] VectorPlace gradients_from(const OutputStep& output,
                                           const SlotKind& slot) const override;
  void pool(Context& ctx,
            const InputStep& input,
            OutputStep& output,
            std::int64_t cut) const override;
  void coalesce(Context& ctx, const InputStep& input, OutputStep& output) const override;
  void sum_gradients(Context& ctx, const InputStep& input, OutputStep& output) const override;
  [[nodiscard]] VectorDraws vector_draws(const InputStep& input,
                                         const SlotAddress& address,
                                         std::int64_t source) const override;
  [[nodiscard]] VectorDraws gradient_draws(const InputStep& input,
                                           const SlotAddress& address) const override;

 private:
  [[nodiscard]] std::int64_t num_tables() const {
    return static_cast<std::int64_t>(routing_.fetches.size());
  }

  /// Calls visit(place, cut of rows) for the slots of a table that have places in `asked`.
  template <typename Visit>
  void for_slots_of(const AskedIds& asked, std::int64_t fetch, const Visit& visit) const {
    const RowFetch& cuts = routing_.fetches[at(fetch)];
    if (cuts.regular) {
      const Range places = asked.fetch_places[at(fetch)];
      for (std::int64_t p = places.begin; p < places.end; ++p) {
        visit(p, std::int64_t{asked.rule_cuts[at(p - routing_.num_listed)]});
      }
      return;
    }
    for (std::int64_t i = 0; i < std::ssize(cuts.listed); ++i) {
      visit(cuts.first_number + i, i / cuts.col_cuts);
    }
  }

  /// Bytes of the two pieces of a slot: the lengths of the runs of `source`, and its rows.
  [[nodiscard]] std::int64_t lengths_bytes(const SlotCounts& counts, std::int64_t source) const {
    return counts.ids > 0 ? 4 * runs_.runs(source) : 0;
  }

  [[nodiscard]] static std::int64_t ids_bytes(const SlotKind& slot, const SlotCounts& counts) {
    return slot.packed ? counts.packed_bytes : slot.id_bytes * counts.ids;
  }

  void add_places(AskedIds& asked, std::int64_t fetch) const;
  void lay_out_table(AskedIds& asked, std::int64_t fetch) const;
  void fill_own(AskedIds& asked, std::int64_t fetch) const;
  void unpack_runs(ServedIds& served, const ArrivedBlock& from, IncomingBlock& block) const;
  void unpack_packed(ServedIds& served, const ArrivedBlock& from, const IncomingBlock& block) const;
  void add_blocks(const InputStep& input, OutputStep& output, std::int64_t fetch) const;
};

}  // namespace weft::sharding
