#include "weft/checkpoint/row_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <vector>

#include <fmt/core.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/checkpoint/row_batch.h"
#include "weft/checkpoint/segments.h"
#include "weft/rowfile/segment_reader.h"

namespace weft::checkpoint {
namespace {

using rowfile::GroupIds;
using rowfile::Place;
using rowfile::RowId;
using rowfile::SegmentReader;

std::string describe(const InitialRule& rule) {
  return fmt::format("{} with scale {}, key {:016x} and accumulators of {}", rule.rule, rule.scale,
                     rule.key, rule.accumulator);
}

/// Where a tombstone stands in the order of all rows.
struct Removal {
  std::size_t segment = 0;  ///< in the order of the manifest
  Place before;
  Range cols;
};

class RowFiller {
 public:
  RowFiller(io::FileSystem& files,
            const Manifest& manifest,
            std::string directory,
            const std::vector<RowTarget>& targets,
            WorkProgress& progress)
      : segments_(files, manifest, std::move(directory)),
        manifest_(manifest),
        targets_(targets),
        progress_(progress) {}

  void run() {
    const std::vector<ListedSegment> listed = list();
    for (const ListedSegment& one : listed) {
      if (one.set->tombstones > 0) {
        note_tombstones(one);
      }
    }
    for (const ListedSegment& one : listed) {
      fill_from(one);
    }
  }

 private:
  /// The segments of ranks that have written any row of a target.
  [[nodiscard]] std::vector<ListedSegment> list() const {
    MarkedRanks wanted;
    for (const RowLayout& layout : manifest_.layouts) {
      wanted.push_back(wanted_ranks(layout));
    }
    return segments_.list(wanted);
  }

  [[nodiscard]] std::vector<bool> wanted_ranks(const RowLayout& layout) const {
    std::vector<bool> ranks;
    for (const RowTarget& target : targets_) {
      for (const StreamCut& cut : layout) {
        if (std::cmp_not_equal(cut.table, target.table)) {
          continue;
        }
        const StoredTable& table = manifest_.tables[target.table];
        if (!RowBatch(table, table.streams[at(cut.stream)], target).meets()) {
          continue;
        }
        for (std::int64_t i = 0; i < cut.rule.count; ++i) {
          const RankBlock block = cut.rule.block(i);
          if (meet(block.rows, target.rows)) {
            ranks.resize(std::max(ranks.size(), at(block.rank + 1)));
            ranks[at(block.rank)] = true;
          }
        }
      }
    }
    return ranks;
  }

  SegmentReader open(const ListedSegment& one) {
    progress_.go_to(fmt::format("'{}'", segments_.path_of(one)));
    return segments_.open(one);
  }

  [[nodiscard]] bool is_wanted(const StreamPlace& place, RowId id) const {
    return std::any_of(targets_.begin(), targets_.end(), [&](const RowTarget& target) {
      return target.table == place.table && id < static_cast<RowId>(target.rows.end) &&
             target.rows.contains(static_cast<std::int64_t>(id));
    });
  }

  void note_tombstones(const ListedSegment& one) {
    const SegmentReader reader = open(one);
    reader.for_each_tombstone(
        [&](std::size_t stream, std::span<const rowfile::Tombstone> tombstones) {
          if (stream == 0) {
            return;
          }
          const StreamPlace place = segments_.place_of(reader, stream);
          const Range cols = manifest_.tables[place.table].streams[place.stream].cols;
          for (const rowfile::Tombstone& tombstone : tombstones) {
            if (is_wanted(place, tombstone.id)) {
              removals_[{place.table, tombstone.id}].push_back({one.order, tombstone.before, cols});
            }
          }
        });
    progress_.move();
  }

  /// Whether a later tombstone removes the row at a place.
  [[nodiscard]] bool is_removed(const StreamPlace& place,
                                RowId id,
                                std::size_t segment,
                                const Place& at_place) const {
    const auto found = removals_.empty() ? removals_.end() : removals_.find({place.table, id});
    if (found == removals_.end()) {
      return false;
    }
    const Range cols = manifest_.tables[place.table].streams[place.stream].cols;
    return std::any_of(found->second.begin(), found->second.end(), [&](const Removal& removal) {
      const bool later =
          removal.segment > segment || (removal.segment == segment && at_place < removal.before);
      return later &&
             std::max(cols.begin, removal.cols.begin) < std::min(cols.end, removal.cols.end);
    });
  }

  /// The batches of a stream, one per target of its table.
  std::vector<RowBatch> batches_of(const StreamPlace& place) const {
    std::vector<RowBatch> batches;
    const StoredTable& table = manifest_.tables[place.table];
    for (const RowTarget& target : targets_) {
      if (target.table == place.table) {
        RowBatch batch(table, table.streams[place.stream], target);
        if (batch.meets()) {
          batches.push_back(std::move(batch));
        }
      }
    }
    return batches;
  }

  void fill_from(const ListedSegment& one) {
    const SegmentReader reader = open(one);
    std::vector<std::vector<RowBatch>> batches(1);
    for (std::size_t s = 1; s < reader.streams().size(); ++s) {
      batches.push_back(batches_of(segments_.place_of(reader, s)));
    }
    const auto has_wanted = [&](const GroupIds& group) {
      return std::any_of(group.ids.begin(), group.ids.end(), [&](RowId id) {
        return std::any_of(batches[group.stream].begin(), batches[group.stream].end(),
                           [&](const RowBatch& batch) { return batch.wants(id); });
      });
    };
    std::size_t current = 0;
    std::int64_t bytes = 0;
    const auto flush = [&] {
      for (RowBatch& batch : batches[current]) {
        bytes += batch.flush();
      }
      progress_.add(std::exchange(bytes, 0));
    };
    const auto take = [&](const GroupIds& group, const std::byte* rows) {
      if (group.stream != current) {
        flush();
        current = group.stream;
      }
      const StreamPlace place = segments_.place_of(reader, group.stream);
      const std::int64_t row_bytes = reader.streams()[group.stream].row_bytes;
      for (std::size_t i = 0; i < group.ids.size(); ++i) {
        const RowId id = group.ids[i];
        segments_.check_id(place, id);
        if (is_removed(place, id, one.order, {group.block, static_cast<std::uint32_t>(i)})) {
          continue;
        }
        for (RowBatch& batch : batches[group.stream]) {
          if (batch.wants(id)) {
            batch.add(id, rows + static_cast<std::int64_t>(i) * row_bytes);
          }
        }
      }
      progress_.move();
    };
    read_wanted(reader, has_wanted, take);
    flush();
  }

  /// Where most groups are wanted the file is read from front to back, else group by group.
  template <typename HasWanted, typename Take>
  static void read_wanted(const SegmentReader& reader,
                          const HasWanted& has_wanted,
                          const Take& take) {
    std::int64_t groups = 0;
    std::int64_t wanted = 0;
    reader.for_each_group([&](const GroupIds& group) {
      ++groups;
      wanted += has_wanted(group) ? 1 : 0;
    });
    if (wanted == 0) {
      return;
    }
    if (wanted * 4 >= groups) {
      reader.for_each_row([&](const rowfile::GroupRows& group) {
        if (has_wanted(group.group)) {
          take(group.group, group.rows.data());
        }
      });
      return;
    }
    std::vector<std::byte> bytes;
    reader.for_each_group([&](const GroupIds& group) {
      if (has_wanted(group)) {
        bytes.resize(at(rowfile::group_bytes(reader.streams()[group.stream].row_bytes)));
        reader.read_group(group.stream, group.block, bytes);
        take(group, bytes.data() + rowfile::kBlockHeaderBytes);
      }
    });
  }

  Segments segments_;
  const Manifest& manifest_;
  const std::vector<RowTarget>& targets_;
  WorkProgress& progress_;
  std::map<std::pair<std::size_t, RowId>, std::vector<Removal>> removals_;
};

}  // namespace

namespace {

/// The rule, with the accumulator of a sink: sums may be other multiples where the number of
/// replica groups has changed.
InitialRule with_accumulator(InitialRule rule, const RowState& rows) {
  rule.accumulator = rows.row_shape().initial.accumulator;
  return rule;
}

/// Gives all rows of a target the state that rows had where the checkpoint was written, where it is
/// another than the target's. They exist then.
void fill_initial_state(const StoredTable& table, const RowTarget& target) {
  RowState* const rows = target.sink->row_sink();
  if (rows == nullptr || table.has_all_rows ||
      rows->row_shape().initial.accumulator == table.initial.accumulator) {
    return;
  }
  constexpr std::int64_t kRows = 4096;
  const layout::PackedRow row = rows->row_shape().packed;
  const std::vector<float> state(static_cast<std::size_t>(row.state_bytes) / sizeof(float),
                                 table.initial.accumulator);
  std::vector<std::int64_t> numbers;
  std::vector<std::byte> packed;
  for (std::int64_t first = 0; first < target.rows.size(); first += kRows) {
    numbers.clear();
    for (std::int64_t i = first; i < std::min(first + kRows, target.rows.size()); ++i) {
      numbers.push_back(target.rows.row(i));
    }
    packed.resize(numbers.size() * static_cast<std::size_t>(row.bytes()));
    rows->initial_rows(numbers, packed.data());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      std::memcpy(packed.data() + static_cast<std::int64_t>(i) * row.bytes() + row.state_offset(),
                  state.data(), static_cast<std::size_t>(row.state_bytes));
    }
    rows->write_rows(numbers, packed.data());
  }
}

}  // namespace

void check_initial_values(const Manifest& manifest,
                          const std::vector<RowTarget>& targets,
                          const std::string& path) {
  for (const RowTarget& target : targets) {
    const StoredTable& table = manifest.tables[target.table];
    if (table.ids == RowIds::kRaw) {
      fail(ErrorCode::kCheckpoint,
           "the rows of {} in the checkpoint '{}' have raw ids, and this job's have numbers: load "
           "it with a build that has tables that grow",
           table.parameter, path);
    }
    if (table.has_all_rows) {
      continue;
    }
    const RowState* rows = target.sink->row_sink();
    if (rows == nullptr || !(rows->row_shape().initial == with_accumulator(table.initial, *rows))) {
      fail(ErrorCode::kCheckpoint,
           "rows of {} that were never changed are not in the checkpoint '{}': they had their "
           "initial values, {}, and this job's are {}; load it with the seed, the initial values "
           "and the optimizer it was written with (its configuration is in the manifest)",
           table.parameter, path, describe(table.initial),
           rows == nullptr ? "not known" : describe(rows->row_shape().initial));
    }
  }
}

std::int64_t bytes_to_fill(const Manifest& manifest, const std::vector<RowTarget>& targets) {
  std::int64_t bytes = 0;
  for (const RowTarget& target : targets) {
    const StoredTable& table = manifest.tables[target.table];
    for (const RowTarget::Item& item : target.items) {
      bytes += target.rows.size() * item.cols.size() * size_of(table.items[item.stored].dtype);
    }
  }
  return bytes;
}

void fill_rows(io::FileSystem& files,
               const Manifest& manifest,
               const std::string& checkpoint,
               const std::vector<RowTarget>& targets,
               WorkProgress& progress) {
  for (const RowTarget& target : targets) {
    fill_initial_state(manifest.tables[target.table], target);
  }
  RowFiller(files, manifest, rows_directory_of(checkpoint), targets, progress).run();
}

}  // namespace weft::checkpoint
