/// Private to checkpoint/: fills sinks with the rows of a checkpoint's segments.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/work_progress.h"
#include "weft/checkpoint/manifest.h"
#include "weft/checkpoint/read_ahead.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// A sink's block of a stored table.
struct RowTarget {
  /// An item of the sink and which of the table's items it is.
  struct Item {
    std::size_t index = 0;   ///< in the sink
    std::size_t stored = 0;  ///< in StoredTable::items
    Range cols;              ///< held
  };

  StateSink* sink = nullptr;
  std::size_t table = 0;  ///< index into Manifest::tables
  RowSet rows;            ///< held
  std::vector<Item> items;
};

/// Throws Error(kCheckpoint), naming the table, where rows that are in no segment would get other
/// initial values than they had. Initial sums may differ, as they do where the number of replica
/// groups has changed (train/mesh.h): fill_rows() gives all rows those of the checkpoint.
void check_initial_values(const Manifest& manifest,
                          const std::vector<RowTarget>& targets,
                          const std::string& path);

/// The bytes of rows that the targets have, at most.
std::int64_t bytes_to_fill(const Manifest& manifest, const std::vector<RowTarget>& targets);

/// Writes the rows of all segments to the targets, which have their initial values: for each row
/// the latest that no later tombstone removes. Reads segments of those ranks alone that have
/// written rows of a target, and of a segment the groups that have some. Memory: 4 MiB for each
/// thread and once more, or four times a row of more than 1 MiB; 64 bytes per tombstone of a
/// target's table. Throws Error(kCheckpoint) naming file and offset.
void fill_rows(const LoadSource& source,
               const std::vector<RowTarget>& targets,
               WorkProgress& progress);

}  // namespace weft::checkpoint
