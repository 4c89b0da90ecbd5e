/// Files below rows of state, where a part of the rows lies in files that never change: a
/// checkpoint names such files in place of copies of their rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft {

/// The rows of one state in the files.
struct RowFileStream {
  std::uint64_t key = 0;  ///< that the files have for them (weft/tensor/row_streams.h)
  std::int64_t row_bytes = 0;

  friend auto operator<=>(const RowFileStream&, const RowFileStream&) = default;
};

/// A file of packed rows (weft/rowfile), under their numbers in the whole matrix. It never changes.
struct RowFile {
  std::string path;
  std::int64_t bytes = 0;
  std::int64_t rows = 0;  ///< in it, also those that hold no longer
  std::uint64_t key = 0;  ///< of its first stream, which has no rows: no other file has the same
  bool is_new = false;    ///< the seal that was marked last does not have it
};

/// The rows that had been written to files at one moment. Used by one thread at a time.
///
/// Until its files are known, rows in them move to no other file, unless has_moved_rows() says so.
class RowSeal {
 public:
  /// Its files may go.
  virtual ~RowSeal() = default;

  /// Whether a new file may have rows that were not written since the last marked seal, but moved
  /// there from other files: rows that have changed since, and were not written, are older there.
  [[nodiscard]] virtual bool has_moved_rows() const = 0;

  /// The moment. Returns at once. Called once.
  virtual void begin() = 0;

  /// From now on files are new that this seal does not have. After begin().
  virtual void mark() = 0;

  /// Waits until the rows lie in files on the disk, which stay as long as the seal. Of a row the
  /// last entry of the last file holds. Throws what writing them threw.
  virtual const std::vector<RowFile>& wait() = 0;
};

/// The files of a rank's states. Threads: any.
class RowFiles {
 public:
  virtual ~RowFiles() = default;

  /// What the files have, in any order.
  [[nodiscard]] virtual std::vector<RowFileStream> streams() const = 0;

  /// Bytes that new files of a seal would have now, about.
  [[nodiscard]] virtual std::int64_t new_bytes() const = 0;

  /// Makes a seal, which outlives nobody but this.
  [[nodiscard]] virtual std::unique_ptr<RowSeal> make_seal() = 0;
};

}  // namespace weft
