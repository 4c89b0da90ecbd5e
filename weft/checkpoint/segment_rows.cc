#include "weft/checkpoint/segment_rows.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::checkpoint {
namespace {

using rowfile::GroupIds;
using rowfile::Place;
using rowfile::RowId;
using rowfile::SegmentReader;

constexpr std::size_t kMostOpenSegments = 64;
constexpr std::int64_t kRowsWindowBytes = std::int64_t{8} << 20;
constexpr std::int64_t kMostWindowRows = std::int64_t{1} << 18;

/// A tombstone in the order of all rows.
struct TombstonePlace {
  std::size_t segment = 0;
  Place before;
  Range cols;
};

bool have_common(const Range& a, const Range& b) {
  return std::max(a.begin, b.begin) < std::min(a.end, b.end);
}

/// Walks over the places of the rows of one table that no tombstone removes.
class PlaceWalk {
 public:
  PlaceWalk(const Segments& segments, std::size_t table, const Range& rows)
      : segments_(segments), table_(table), rows_(rows) {
    const Manifest& manifest = segments.manifest();
    MarkedRanks marked;
    for (const RowLayout& layout : manifest.layouts) {
      marked.push_back(ranks_of(layout));
    }
    listed_ = segments.list(marked);
    for (const ListedSegment& one : listed_) {
      if (one.set->tombstones > 0) {
        note_tombstones(one);
      }
    }
  }

  /// Calls visit(segment, stream of the table, id, place), segment by segment.
  template <typename Visit>
  void run(const Visit& visit) const {
    for (const ListedSegment& one : listed_) {
      const SegmentReader reader = segments_.open(one);
      reader.for_each_group([&](const GroupIds& group) {
        if (group.stream == 0) {
          return;
        }
        const StreamPlace place = segments_.place_of(reader, group.stream);
        if (place.table != table_) {
          return;
        }
        for (std::size_t i = 0; i < group.ids.size(); ++i) {
          const RowId id = group.ids[i];
          segments_.check_id(place, id);
          const Place where{group.block, static_cast<std::uint32_t>(i)};
          if (is_wanted(id) && !is_gone(place, id, one.order, where)) {
            visit(one.order, place.stream, id, where);
          }
        }
      });
    }
  }

 private:
  [[nodiscard]] const StoredTable& table() const { return segments_.manifest().tables[table_]; }

  /// Ids of any 64 bits are in whatever segment.
  [[nodiscard]] std::vector<bool> ranks_of(const RowLayout& layout) const {
    std::vector<bool> ranks;
    const RowSet wanted(rows_);
    for (const StreamCut& cut : layout) {
      if (std::cmp_not_equal(cut.table, table_)) {
        continue;
      }
      for (std::int64_t i = 0; i < cut.rule.count; ++i) {
        const RankBlock block = cut.rule.block(i);
        if (table().ids == RowIds::kRaw || meet(block.rows, wanted)) {
          ranks.resize(std::max(ranks.size(), at(block.rank + 1)));
          ranks[at(block.rank)] = true;
        }
      }
    }
    return ranks;
  }

  [[nodiscard]] bool is_wanted(RowId id) const {
    const auto row = static_cast<std::int64_t>(id);
    return rows_ == kAllRows || (rows_.begin <= row && row < rows_.end);
  }

  void note_tombstones(const ListedSegment& one) {
    const SegmentReader reader = segments_.open(one);
    reader.for_each_tombstone(
        [&](std::size_t stream, std::span<const rowfile::Tombstone> tombstones) {
          if (stream == 0 || segments_.place_of(reader, stream).table != table_) {
            return;
          }
          const Range cols = table().streams[segments_.place_of(reader, stream).stream].cols;
          for (const rowfile::Tombstone& tombstone : tombstones) {
            if (is_wanted(tombstone.id)) {
              tombstones_[tombstone.id].push_back({one.order, tombstone.before, cols});
            }
          }
        });
  }

  [[nodiscard]] bool is_gone(const StreamPlace& place,
                             RowId id,
                             std::size_t segment,
                             const Place& where) const {
    const auto found = tombstones_.empty() ? tombstones_.end() : tombstones_.find(id);
    if (found == tombstones_.end()) {
      return false;
    }
    const Range cols = table().streams[place.stream].cols;
    return std::any_of(
        found->second.begin(), found->second.end(), [&](const TombstonePlace& tombstone) {
          const bool later = tombstone.segment > segment ||
                             (tombstone.segment == segment && where < tombstone.before);
          return later && have_common(cols, tombstone.cols);
        });
  }

  const Segments& segments_;
  std::size_t table_;
  Range rows_;
  std::vector<ListedSegment> listed_;
  std::unordered_map<RowId, std::vector<TombstonePlace>> tombstones_;
};

/// Ids of any 64 bits have no range.
Range clamped(const StoredTable& table, const Range& rows) {
  if (table.ids == RowIds::kRaw) {
    return rows;
  }
  const std::int64_t begin = std::clamp<std::int64_t>(rows.begin, 0, table.rows);
  return {begin, std::clamp(rows.end, begin, table.rows)};
}

}  // namespace

std::int64_t count_stored_rows(const SegmentSource& source, std::size_t table) {
  const Segments segments(source.files, source.manifest, source.directory);
  std::vector<RowId> ids;
  PlaceWalk(segments, table, clamped(source.manifest.tables[table], kAllRows))
      .run([&](std::size_t, std::size_t, RowId id, const Place&) { ids.push_back(id); });
  std::sort(ids.begin(), ids.end());
  return std::unique(ids.begin(), ids.end()) - ids.begin();
}

SegmentRows::SegmentRows(const SegmentSource& source, TableRows wanted)
    : segments_(source.files, source.manifest, source.directory),
      table_(source.manifest.tables[wanted.table]),
      wanted_(std::move(wanted)),
      on_read_(source.on_read),
      directory_(source.directory),
      listed_(segments_.list()) {
  wanted_.rows = clamped(table_, wanted_.rows);
  plan_parts();
  find_entries();
  keep_latest();
  check_all_there();
}

void SegmentRows::plan_parts() {
  for (const RowStream& stream : table_.streams) {
    std::vector<Part>& parts = parts_.emplace_back();
    std::int64_t to = 0;
    for (const std::size_t index : wanted_.items) {
      std::int64_t from = 0;
      for (std::size_t i = 0; i < index; ++i) {
        const std::int64_t size = size_of(i == 0 ? stream.dtype : table_.items[i].dtype);
        from += item_cols(table_, stream, i).size() * size;
      }
      const RowItem& item = table_.items[index];
      const Range cols = item_cols(table_, stream, index);
      PackedItem packed{.offset = from, .cols = cols.size(), .dtype = item.dtype};
      packed.in_halves = index == 0 && stream.dtype == DType::kSplitBFloat16;
      packed.low_offset = from + cols.size() * 2;
      parts.push_back({packed, to + cols.begin * size_of(item.dtype)});
      to += item.cols * size_of(item.dtype);
    }
  }
  for (const std::size_t index : wanted_.items) {
    row_bytes_ += table_.items[index].cols * size_of(table_.items[index].dtype);
  }
}

void SegmentRows::find_entries() {
  const PlaceWalk walk(segments_, wanted_.table, wanted_.rows);
  walk.run([&](std::size_t segment, std::size_t stream, RowId id, const Place& place) {
    entries_.push_back({static_cast<std::int64_t>(id), static_cast<std::uint32_t>(segment),
                        static_cast<std::uint32_t>(stream), place});
  });
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.id, a.segment, a.place) < std::tie(b.id, b.segment, b.place);
  });
}

/// Drops those of which a later one has all columns.
void SegmentRows::keep_latest() {
  const auto cols_of = [&](const Entry& entry) { return table_.streams[entry.stream].cols; };
  std::size_t kept = 0;
  for (std::size_t begin = 0; begin < entries_.size();) {
    std::size_t end = begin + 1;
    while (end < entries_.size() && entries_[end].id == entries_[begin].id) {
      ++end;
    }
    const std::size_t first = kept;
    for (std::size_t i = begin; i < end; ++i) {
      const Range cols = cols_of(entries_[i]);
      const bool is_over =
          std::any_of(entries_.begin() + static_cast<std::ptrdiff_t>(i + 1),
                      entries_.begin() + static_cast<std::ptrdiff_t>(end), [&](const Entry& later) {
                        const Range other = cols_of(later);
                        return other.begin <= cols.begin && cols.end <= other.end;
                      });
      if (!is_over) {
        entries_[kept++] = entries_[i];
      }
    }
    check_columns(first, kept);
    begin = end;
  }
  entries_.resize(kept);
}

/// That the entries of a row have all its columns.
void SegmentRows::check_columns(std::size_t begin, std::size_t end) {
  const std::int64_t cols = table_.items.front().cols;
  std::int64_t reached = 0;
  for (bool moved = true; moved && reached < cols;) {
    moved = false;
    for (std::size_t i = begin; i < end; ++i) {
      const Range some = table_.streams[entries_[i].stream].cols;
      if (some.begin <= reached && reached < some.end) {
        reached = some.end;
        moved = true;
      }
    }
  }
  if (reached < cols) {
    fail(ErrorCode::kCheckpoint,
         "'{}': row {} of {} is stored without its column {}; restore the checkpoint from a copy "
         "or use another one",
         directory_, entries_[begin].id, table_.parameter, reached);
  }
}

void SegmentRows::check_all_there() const {
  if (!table_.has_all_rows || table_.ids == RowIds::kRaw) {
    return;
  }
  std::int64_t due = wanted_.rows.begin;
  for (const Entry& entry : entries_) {
    if (entry.id > due) {
      break;
    }
    due = entry.id + 1;
  }
  if (due < wanted_.rows.end) {
    fail(ErrorCode::kCheckpoint,
         "'{}': row {} of {} is in no segment, and all should be; restore the checkpoint from a "
         "copy or use another one",
         directory_, due, table_.parameter);
  }
}

const SegmentRows::Opened& SegmentRows::open(std::size_t order) {
  const auto found = open_.find(order);
  if (found != open_.end()) {
    found->second.used = ++uses_;
    return found->second;
  }
  if (open_.size() >= kMostOpenSegments) {
    open_.erase(std::min_element(open_.begin(), open_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  }
  Opened opened{std::make_unique<SegmentReader>(segments_.open(listed_[order])),
                std::vector<std::size_t>(table_.streams.size()), ++uses_};
  for (std::size_t s = 1; s < opened.reader->streams().size(); ++s) {
    const StreamPlace place = segments_.place_of(*opened.reader, s);
    if (place.table == wanted_.table) {
      opened.stream_of[place.stream] = s;
    }
  }
  return open_.emplace(order, std::move(opened)).first->second;
}

bool SegmentRows::next(StoredRows& out) {
  if (next_ == entries_.size()) {
    return false;
  }
  const std::int64_t most = std::clamp<std::int64_t>(
      kRowsWindowBytes / std::max<std::int64_t>(row_bytes_, 1), 1, kMostWindowRows);
  const std::size_t begin = next_;
  ids_.clear();
  for (; next_ < entries_.size(); ++next_) {
    const std::int64_t id = entries_[next_].id;
    if (!ids_.empty() && ids_.back() == id) {
      continue;
    }
    if (std::ssize(ids_) == most) {
      break;
    }
    ids_.push_back(id);
  }
  window_.resize(ids_.size() * at(row_bytes_));
  read_entries(begin, next_);
  out = {ids_, window_};
  return true;
}

/// In the order of segments and places, so that of one row the latest is written last.
void SegmentRows::read_entries(std::size_t begin, std::size_t end) {
  order_.clear();
  for (std::size_t i = begin; i < end; ++i) {
    order_.push_back(i);
  }
  std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
    return std::tie(entries_[a].segment, entries_[a].place) <
           std::tie(entries_[b].segment, entries_[b].place);
  });
  const Entry* last = nullptr;
  std::int64_t rows_there = 0;
  for (const std::size_t i : order_) {
    const Entry& entry = entries_[i];
    const std::int64_t packed = packed_bytes(table_, table_.streams[entry.stream]);
    if (last == nullptr || last->segment != entry.segment ||
        last->place.block != entry.place.block) {
      const Opened& opened = open(entry.segment);
      group_.resize(at(rowfile::group_bytes(packed)));
      rows_there =
          opened.reader->read_group(opened.stream_of[entry.stream], entry.place.block, group_);
      if (on_read_) {
        on_read_(std::ssize(group_));
      }
    }
    last = &entry;
    if (entry.place.row >= rows_there) {
      fail(ErrorCode::kCheckpoint,
           "'{}' has {} rows in its block {}, and its footer names more; restore the checkpoint "
           "from a copy or use another one",
           segments_.path_of(listed_[entry.segment]), rows_there, entry.place.block);
    }
    const std::byte* const from = group_.data() + rowfile::offset_in_group(entry.place.row, packed);
    const auto row = std::lower_bound(ids_.begin(), ids_.end(), entry.id) - ids_.begin();
    for (const Part& part : parts_[entry.stream]) {
      copy_item(part.item, from, packed, 1, window_.data() + row * row_bytes_ + part.offset);
    }
  }
}

}  // namespace weft::checkpoint
