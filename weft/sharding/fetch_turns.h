/// FetchTurns: when the fetches of many tables are finished, which have begun one after the other.
///
/// A disk has work as long as reads are in flight, and what a fetch does behind its reads (checks,
/// copies, places in the cache) is work of a processor. So a fetch is finished while reads of later
/// tables are in flight: as soon as so many of their rows have been asked for that its own reads
/// must have ended. With hundreds of tables of a few rows each, nearly all of that work then lies
/// behind reads; were all fetches finished behind the last one's beginning, the disk would rest.
/// The order is that of add(), and no bit depends on the turns.
/// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/storage/residency.h"
#include "weft/tensor/device.h"

namespace weft::sharding {

class FetchTurns {
 public:
  /// Rows that are asked for behind a fetch before it is finished: twice what a store has in flight
  /// at most (io::BlockReadsOptions::depth), since rows may share a block.
  static constexpr std::int64_t kRowsBehind = 256;

  /// Forgets fetches that have not been finished.
  void begin() {
    rows_.clear();
    first_ = 0;
    being_read_ = 0;
  }

  /// Adds rows whose begin_fetch() has returned, and finishes those whose turn it is. They outlive
  /// the next finish() or begin(). Throws what finish_fetch() does.
  void add(Context& ctx, storage::ResidentRows& rows) {
    rows_.push_back(&rows);
    being_read_ += rows.rows_being_read();
    while (being_read_ - rows_[first_]->rows_being_read() >= kRowsBehind) {
      finish_first(ctx);
    }
  }

  /// Finishes the others.
  void finish(Context& ctx) {
    while (first_ < rows_.size()) {
      finish_first(ctx);
    }
    begin();
  }

 private:
  void finish_first(Context& ctx) {
    being_read_ -= rows_[first_]->rows_being_read();
    rows_[first_++]->finish_fetch(ctx);
  }

  std::vector<storage::ResidentRows*> rows_;  // in the order of add(); allocates only to grow
  std::size_t first_ = 0;                     // that has not been finished
  std::int64_t being_read_ = 0;               // rows of it and of all behind it
};

}  // namespace weft::sharding
