/// Hashes of state that do not depend on who holds what.
///
/// hash = Σ modulo 2^64 over elements of mix(parameter, kind, dtype, row, column, bits), with rows
/// and columns of the whole logical matrix. A sum has no order, so any rank and any thread adds its
/// part at any time, and every sharding gives the same number. docs/checkpoint_format.md states the
/// word of one element.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "weft/comm/communicator.h"
#include "weft/tensor/device.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// Fills `out` with the initial values of rows [row_begin, row_begin + rows) of the item's block,
/// as StateSource::read_state lays them out, and returns true; false where the item has none, and
/// then every element counts. Called from several threads at once.
using InitialValues = std::function<bool(
    const StateItem& item, std::int64_t row_begin, std::int64_t rows, void* out)>;

/// The hashes of a state, or a rank's part of them.
struct StateHash {
  std::uint64_t weights = 0;  ///< items of kind "weight"
  std::uint64_t state = 0;    ///< all items: weights and optimizer state

  friend bool operator==(const StateHash&, const StateHash&) = default;
};

/// The part of the hash that this rank's first-holder blocks contribute. Elements whose bits equal
/// their initial value count zero, and so do rows that do not exist, of sources that have them by
/// list: these are not looked at. Parallel over ctx.pool (may be null); read_state() and
/// rows_in_place() are then called from several threads at once. Where a source counts which rows
/// were written (RowState::written_rows()) and these are few, the others are not looked at either:
/// they have their initial values. Memory: 1 MiB per thread, 2 where rows by list are in halves.
/// Cost: a few ns per element that is looked at.
StateHash hash_state(Context& ctx,
                     std::span<const StateSource* const> sources,
                     const InitialValues& initial = {});

/// The same over all ranks: equal on all of them. Collective.
StateHash hash_state(comm::Communicator& comm,
                     Context& ctx,
                     std::span<const StateSource* const> sources,
                     const InitialValues& initial = {});

/// Compares every copy (first_holder false) with its first holder's block, by a hash of both.
/// Collective. Throws Error(kInternal) on all ranks, naming item, block and rank of the first copy
/// that differs or that has no first holder.
void compare_replicas(comm::Communicator& comm,
                      Context& ctx,
                      std::span<const StateSource* const> sources);

/// The word of one item that goes into every element's word.
std::uint64_t item_key(const StateItem& item);

}  // namespace weft::checkpoint
