#include "weft/checkpoint/row_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/checkpoint/row_batch.h"
#include "weft/checkpoint/row_piece.h"
#include "weft/checkpoint/segments.h"
#include "weft/rowfile/segment_reader.h"

namespace weft::checkpoint {
namespace {

using rowfile::GroupIds;
using rowfile::RowId;
using rowfile::SegmentReader;

std::string describe(const InitialRule& rule) {
  return fmt::format("{} with scale {}, key {:016x} and accumulators of {}", rule.rule, rule.scale,
                     rule.key, rule.accumulator);
}

/// The calling thread walks the footers and cuts groups into pieces. Any thread reads a piece,
/// checks it and picks out its rows; the calling thread gives them to the sinks, piece after piece.
class RowFiller {
 public:
  RowFiller(const LoadSource& source, const std::vector<RowTarget>& targets, WorkProgress& progress)
      : segments_(source.files, source.manifest, rows_directory_of(source.directory)),
        manifest_(source.manifest),
        targets_(targets),
        progress_(progress),
        tombstones_(source.manifest),
        context_{segments_, tombstones_, progress},
        ahead_(source.threads, progress) {}

  void run() {
    const std::vector<ListedSegment> listed = list();
    for (const ListedSegment& one : listed) {
      if (one.set->tombstones > 0) {
        note_tombstones(one);
      }
    }
    try {
      for (const ListedSegment& one : listed) {
        give_rows_of(one);
      }
    } catch (...) {
      ahead_.finish();  // an error of an earlier piece comes first
      throw;
    }
    ahead_.finish();
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
        if (!RowSelection(table, table.streams[at(cut.stream)], target).meets()) {
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
          for (const rowfile::Tombstone& tombstone : tombstones) {
            if (is_wanted(place, tombstone.id)) {
              tombstones_.add(place, tombstone, one.order);
            }
          }
        });
    progress_.move();
  }

  [[nodiscard]] WantedStream wanted_stream(const StreamPlace& place) const {
    WantedStream stream{place, {}};
    const StoredTable& table = manifest_.tables[place.table];
    for (const RowTarget& target : targets_) {
      if (target.table == place.table) {
        const RowSelection selection(table, table.streams[place.stream], target);
        if (selection.meets()) {
          stream.selections.push_back(selection);
        }
      }
    }
    return stream;
  }

  /// Where most groups are wanted the file is read from front to back, else those groups alone.
  void give_rows_of(const ListedSegment& one) {
    const auto segment = std::make_shared<OpenSegment>(
        OpenSegment{one.order, segments_.path_of(one), open(one), std::vector<WantedStream>(1)});
    for (std::size_t s = 1; s < segment->reader.streams().size(); ++s) {
      segment->streams.push_back(wanted_stream(segments_.place_of(segment->reader, s)));
    }
    std::int64_t groups = 0;
    std::int64_t wanted = 0;
    segment->reader.for_each_group([&](const GroupIds& group) {
      ++groups;
      wanted += segment->streams[group.stream].wants_any(group.ids) ? 1 : 0;
    });
    if (wanted > 0) {
      give_groups(segment, wanted * 4 < groups);
    }
  }

  void give_groups(const std::shared_ptr<const OpenSegment>& segment, bool only_wanted) {
    RowPiece* piece = nullptr;
    const auto give = [&] { ahead_.give(std::exchange(piece, nullptr)->bytes()); };
    segment->reader.for_each_group([&](const GroupIds& group) {
      if (only_wanted && !segment->streams[group.stream].wants_any(group.ids)) {
        return;
      }
      if (piece != nullptr && !piece->takes(group)) {
        give();
      }
      if (piece == nullptr) {
        piece = &ahead_.next();
        piece->begin(context_, segment, group.stream);
      }
      piece->add(group);
    });
    if (piece != nullptr) {
      give();
    }
  }

  Segments segments_;
  const Manifest& manifest_;
  const std::vector<RowTarget>& targets_;
  WorkProgress& progress_;
  Tombstones tombstones_;
  RowPieceContext context_;
  ReadAhead<RowPiece> ahead_;
};

}  // namespace

namespace {

/// The rule, with the accumulator of a sink: sums may be other multiples where the number of
/// replica groups has changed.
InitialRule with_accumulator(InitialRule rule, const RowState& rows) {
  rule.accumulator = rows.row_shape().initial.accumulator;
  return rule;
}

/// Whether rows that are in no segment are zero, with all their state.
bool is_zero(const InitialRule& rule) {
  return rule.rule == "zero" && rule.accumulator == 0.0F;
}

/// Makes all rows zero of a sink that knows no rows that are not there.
void fill_zero(const RowTarget& target) {
  constexpr std::int64_t kRows = 4096;
  const std::vector<StateItem> items = target.sink->state_items();
  std::vector<std::byte> zeros;
  for (const RowTarget::Item& item : target.items) {
    zeros.resize(at(kRows * item.cols.size() * size_of(items[item.index].dtype)));
    for (std::int64_t first = 0; first < target.rows.size(); first += kRows) {
      target.sink->write_state(item.index, target.rows.row(first),
                               std::min(kRows, target.rows.size() - first), item.cols.begin,
                               item.cols.end, zeros.data());
    }
  }
}

/// Gives all rows of a target the state that rows had where the checkpoint was written, where it is
/// another than the target's. They exist then.
void fill_initial_state(const StoredTable& table, const RowTarget& target) {
  RowState* const rows = target.sink->row_sink();
  if (rows == nullptr && !table.has_all_rows) {
    fill_zero(target);
    return;
  }
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
    if (rows == nullptr && is_zero(table.initial)) {
      continue;
    }
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

void fill_rows(const LoadSource& source,
               const std::vector<RowTarget>& targets,
               WorkProgress& progress) {
  for (const RowTarget& target : targets) {
    fill_initial_state(source.manifest.tables[target.table], target);
  }
  RowFiller(source, targets, progress).run();
}

}  // namespace weft::checkpoint
