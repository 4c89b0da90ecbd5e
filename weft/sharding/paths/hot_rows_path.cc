// Every rank has a copy of a table's hot rows and serves them to itself. They are one more cut of
// rows, the last, of a table whose bags are split or that is asked for unique rows.
//
// Travels     no id of a hot row, and no vector or gradient between ranks in these exchanges:
//             row gradients go to all ranks at the update (row_sync.h).
// Ids         the path of the other cuts sorts them out in the pass that it makes over all ids, and
//             keeps those of hot rows in OwnIds.
// Vectors     a partial sum per bag, or a row, looked up in the own copy and passed through the
//             exchange's buffers from this rank to itself: no copy; encoded as all of the table.
// Gradients   of bags are read in the gradient matrix; of sequences and of unique rows they go from
//             this rank to itself, one copy.
// Order       as that of the other cuts, of which this is the last.
// Draws       a hot row is numbered by the table, from a list: the rows are any ranges.
#include "weft/sharding/paths/hot_rows_path.h"

namespace weft::sharding {

HotRowsPath::HotRowsPath(const Parts& parts, const SlotPath& split, const SlotPath& unique)
    : SlotPath(parts, Path::kHotRows), split_(split), unique_(unique) {
}

IncomingBlock HotRowsPath::own_block(const InputStep& input, const SlotAddress& address) const {
  return tail(routing_.kind(address)).own_block(input, address);
}

BlockCut HotRowsPath::served_cut(const InputStep& input,
                                 const ServedBlock& of,
                                 std::int64_t cut) const {
  return tail(routing_.kind(of.address)).served_cut(input, of, cut);
}

AskedCut HotRowsPath::asked_cut(const InputStep& input,
                                const SlotAddress& address,
                                const AskedSlot& asked,
                                std::int64_t cut) const {
  return tail(routing_.kind(address)).asked_cut(input, address, asked, cut);
}

void HotRowsPath::list_work(const SlotAddress& address, VectorWork& work) const {
  tail(routing_.kind(address)).list_work(address, work);
}

VectorPlace HotRowsPath::vectors_to(const OutputStep& output, const SlotKind& slot) const {
  return tail(slot).vectors_to(output, slot);
}

VectorPlace HotRowsPath::gradients_from(const OutputStep& output, const SlotKind& slot) const {
  return tail(slot).gradients_from(output, slot);
}

/// With the rows' numbers in the table.
VectorDraws HotRowsPath::by_row(VectorDraws draws, const SlotAddress& address) const {
  draws.row_list = keys_.hot_rows[at(routing_.kind(address).table)].data();
  return draws;
}

VectorDraws HotRowsPath::vector_draws(const InputStep& input,
                                      const SlotAddress& address,
                                      std::int64_t source) const {
  return by_row(tail(routing_.kind(address)).vector_draws(input, address, source), address);
}

VectorDraws HotRowsPath::gradient_draws(const InputStep& input, const SlotAddress& address) const {
  return by_row(tail(routing_.kind(address)).gradient_draws(input, address), address);
}

}  // namespace weft::sharding
