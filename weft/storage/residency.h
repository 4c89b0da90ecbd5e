/// Residency: which rows of a shard lie in slots that kernels reach, where a store keeps the others
/// elsewhere. This is the interface that such a store is written against, and what the stages
/// `fetch`, `lookup` and `update_rows` call. RowStore holds all rows in memory and has none of it
/// (RowStore::residency()); a store of tiers puts its cache here.
///
/// One copy    a row lies in at most one slot, whatever the number of batches that use it. An
/// update
///             writes there, and the next lookup reads there: nothing is forwarded.
/// A batch     fetch() -> fetch_late() -> lookups -> release(), each of one batch before the next.
///             Of batches in flight, fetch() of the one before comes before fetch() of the one
///             behind; nothing else is ordered between two batches but what stages declare
///             (weft/pipeline/stage.h): fetch_late() and lookups come behind the release of every
///             earlier batch that updates rows.
/// Pins        from fetch() or fetch_late() to release() the row keeps its slot. With many batches
///             in flight it is free for others behind the last release. A batch that has not been
///             looked up may lose its pins (Groups).
/// Room        a row that finds no slot beside the pinned ones lacks one until fetch_late(). As
///             many slots as a batch lacks are kept from later batches, so that its fetch_late()
///             has room whenever the slots hold the rows of all batches that have been looked up
///             and not been released, and its own. That is one batch in training, and two while an
///             evaluation runs with a training batch begun.
/// Groups      updates with the gradients of other replica groups, or of all ranks (data_parallel
///             tables), and averages over groups touch rows that no batch of this rank has asked
///             for. They fetch them for themselves, by a batch of make_inserted_batch(), which
///             stands before all others. Where a fetch_late() lacks room it takes the pins of
///             batches behind that have not been looked up, from the last on, whose own
///             fetch_late() gives them slots again. So a batch ahead never keeps an update or an
///             average from its rows, which need as many slots as they have rows, and nobody waits
///             for a pin.
/// Victims     a changed row that leaves its slot is written back from a write buffer, and is read
///             from there until its write has landed: a row is never read from below before that.
/// Threads     calls for one batch come one at a time, but for begin_fetch_late() and fetch_late()
///             of lookups of several micro-batches: fetch_late() returns when all rows have slots.
///             Calls for different batches may come at the same time from different threads, and a
///             store locks what they share. They block, and run inside a stage, except drain() and
///             release() behind all stages of their batch.
/// Determinism which rows have a slot changes no bit. A row that was never written is its initial
///             value, a function of its name. What a policy counts advances in the order of
///             fetch().
/// Limits      copies of hot rows stay in memory.
/// Not here    a row's slot, which the store says (RowStore::resolve()), and state that is saved.
/// Source      NestPipe (arXiv 2604.06956) section 3; docs/pipeline_fetch.md says what is
/// different.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "weft/kernels/rows.h"
#include "weft/tensor/device.h"

namespace weft::storage {

/// What a batch has done to its rows.
enum class Release : std::uint8_t {
  kUnchanged,  ///< read them: an evaluation, or a step that is not applied
  kUpdated,    ///< written them
};

/// What one batch holds of a store's rows. Reused from batch to batch; allocates only to grow.
class ResidentRows {
 public:
  /// Releases what it holds, as unchanged. The store outlives it.
  virtual ~ResidentRows() = default;

  /// Takes the rows that the batch will read or update, each once or often, and gives slots to
  /// those that find one beside what other batches have pinned; begins to read them and returns, so
  /// that reads of several stores overlap. `rows` are bags in the shard's numbers, which stay as
  /// they are until release(). Throws Error(kIo) where a write of what has left its slot failed.
  virtual void begin_fetch(Context& ctx, std::span<const kernels::Bags> rows) = 0;

  /// Waits until these rows have been read. Throws Error(kData) naming the table where one cannot
  /// be.
  virtual void finish_fetch(Context& ctx) { static_cast<void>(ctx); }

  /// Rows whose reads have begun and that finish_fetch() will wait for, from begin_fetch() to
  /// finish_fetch(): how long a store below is busy. 0 where nothing is read.
  [[nodiscard]] virtual std::int64_t rows_being_read() const { return 0; }

  /// Both.
  void fetch(Context& ctx, std::span<const kernels::Bags> rows) {
    begin_fetch(ctx, rows);
    finish_fetch(ctx);
  }

  /// Begins fetch_late() as far as it has to wait for nobody, so that late reads of several stores
  /// overlap: for all of them in the order in which they were fetched, then fetch_late() in that
  /// order. Optional.
  virtual void begin_fetch_late(Context& ctx) { static_cast<void>(ctx); }

  /// Gives slots to the rest, before the first row is read. Every lookup calls it, and all but the
  /// first find nothing to do. Throws Error(kResource) naming the table, its slots and the rows of
  /// the batch where they have no room.
  virtual void fetch_late(Context& ctx) = 0;

  /// Returns the bags of a lookup with slots in place of rows, between fetch_late() and release().
  /// `list` is the number of the bags among those of fetch() whose ids, or some of them, these are:
  /// the same array, other offsets. Where rows are their own slots, the bags themselves.
  [[nodiscard]] virtual kernels::Bags resolve(std::size_t list, const kernels::Bags& bags) const {
    static_cast<void>(list);
    return bags;
  }

  /// Returns the slots of rows of the batch, which ascend, between fetch_late() and release();
  /// valid until the next call. Rows and slots are in memory of the context's device.
  [[nodiscard]] virtual std::span<const std::int64_t> resolve(Context& ctx,
                                                              std::span<const std::int64_t> rows) {
    static_cast<void>(ctx);
    return rows;
  }

  /// Gives up the pins. A second call does nothing.
  virtual void release(Release how) = 0;
};

/// Implemented by a store that keeps rows elsewhere.
class Residency {
 public:
  virtual ~Residency() = default;

  /// Returns memory for one batch in flight. Once per batch in flight.
  virtual std::unique_ptr<ResidentRows> make_batch() = 0;

  /// The same for rows that an update or an average touches beside those of its batch. Its calls
  /// come one after the other, release() before the next lookup of any batch; they may come beside
  /// begin_fetch() and finish_fetch() of others. fetch_late() may wait until others' fetches that
  /// have begun are finished, or released. For a store that has room for all rows, a batch.
  virtual std::unique_ptr<ResidentRows> make_inserted_batch() { return make_batch(); }

  /// Writes changed rows back, pinned or not, and blocks until all writes have landed: what lies
  /// below is then the table. No lookup and no update runs. Throws what a write threw.
  virtual void drain() = 0;
};

}  // namespace weft::storage
