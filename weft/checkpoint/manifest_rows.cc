// What must hold of the tables, layouts and segments of a manifest.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "weft/checkpoint/cover.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/rowfile/layout.h"

namespace weft::checkpoint {
namespace {

/// Of a set's names, which so cannot lead out of their directory.
bool is_prefix(std::string_view text) {
  return !text.empty() && text.size() <= 100 && std::all_of(text.begin(), text.end(), [](char c) {
    return ('0' <= c && c <= '9') || ('a' <= c && c <= 'z') || c == '-';
  });
}

/// What packed rows can be made of.
bool is_weight_form(DType as_they_lie, DType item) {
  return as_they_lie == item || (as_they_lie == DType::kSplitBFloat16 && item == DType::kFloat32);
}

std::string find_stream_fault(const StoredTable& table, const RowStream& stream) {
  const RowItem& weight = table.items.front();
  if (stream.cols.begin < 0 || stream.cols.begin >= stream.cols.end ||
      stream.cols.end > weight.cols || !is_weight_form(stream.dtype, weight.dtype)) {
    return fmt::format("a stream of columns [{}, {}) in {} of a table of {} columns in {}",
                       stream.cols.begin, stream.cols.end, to_string(stream.dtype), weight.cols,
                       to_string(weight.dtype));
  }
  const std::int64_t bytes = packed_bytes(table, stream);
  return 1 <= bytes && bytes <= rowfile::kMaxRowBytes ? "" : fmt::format("rows of {} bytes", bytes);
}

std::string find_table_fault(const StoredTable& table) {
  if (table.items.empty() || (table.ids == RowIds::kNumbers) != (table.rows > 0)) {
    return fmt::format("a table of {} items and {} rows", table.items.size(), table.rows);
  }
  for (const RowItem& item : table.items) {
    // So a row's bytes fit 64 bits whatever the file says.
    if (item.cols < 1 || item.cols > rowfile::kMaxRowBytes || item.dtype == DType::kSplitBFloat16 ||
        area_bytes({table.rows, item.cols, size_of(item.dtype)}) < 0) {
      return fmt::format("{}: a matrix of {} x {} {}", item.kind, table.rows, item.cols,
                         to_string(item.dtype));
    }
  }
  if (table.items.size() > 64) {
    return fmt::format("{} items", table.items.size());
  }
  for (const RowStream& stream : table.streams) {
    if (auto fault = find_stream_fault(table, stream); !fault.empty()) {
      return fault;
    }
    if (std::count(table.streams.begin(), table.streams.end(), stream) > 1) {
      return "a stream is listed twice";
    }
  }
  return "";
}

std::string find_cut_fault(const Manifest& manifest, const StreamCut& cut) {
  const auto tables = static_cast<std::int64_t>(manifest.tables.size());
  if (cut.table < 0 || cut.table >= tables) {
    return fmt::format("table {} of {}", cut.table, tables);
  }
  const StoredTable& table = manifest.tables[static_cast<std::size_t>(cut.table)];
  const auto streams = static_cast<std::int64_t>(table.streams.size());
  if (cut.stream < 0 || cut.stream >= streams) {
    return fmt::format("stream {} of {}", cut.stream, streams);
  }
  const CutRule& rule = cut.rule;
  const bool known_rows = table.ids == RowIds::kNumbers;
  if (!rule.is_sound() ||
      !(rule.cols == table.streams[static_cast<std::size_t>(cut.stream)].cols) ||
      (known_rows && rule.rows.end > table.rows)) {
    return fmt::format("rows [{}, {}) columns [{}, {}) over {} ranks are no cut of {}",
                       rule.rows.begin, rule.rows.end, rule.cols.begin, rule.cols.end, rule.count,
                       table.parameter);
  }
  return "";
}

/// Together the rules of a table cover it once; the parts of a rule are its rows by themselves.
std::string find_layout_fault(const Manifest& manifest, const RowLayout& layout) {
  std::vector<std::vector<Rect>> rects(manifest.tables.size());
  for (const StreamCut& cut : layout) {
    if (auto fault = find_cut_fault(manifest, cut); !fault.empty()) {
      return fault;
    }
    rects[static_cast<std::size_t>(cut.table)].push_back({cut.rule.rows, cut.rule.cols});
  }
  for (std::size_t t = 0; t < rects.size(); ++t) {
    const StoredTable& table = manifest.tables[t];
    if (table.ids == RowIds::kRaw) {
      continue;
    }
    const MatrixSize size{table.rows, table.items.front().cols};
    if (auto fault = find_cover_fault(std::move(rects[t]), size); !fault.empty()) {
      return fmt::format("{}: {}", item_name(table.parameter, table.items.front().kind), fault);
    }
  }
  return "";
}

std::string find_set_fault(const Manifest& manifest, const SegmentSet& set) {
  const auto layouts = static_cast<std::int64_t>(manifest.layouts.size());
  if (!is_prefix(set.prefix)) {
    return fmt::format("'{}' is not a name of segments", set.prefix);
  }
  if (set.layout < 0 || set.layout >= layouts) {
    return fmt::format("layout {} of {}", set.layout, layouts);
  }
  std::map<std::int64_t, std::int64_t> last;  // number of a rank
  std::int64_t sum = 0;
  for (const SegmentFile& file : set.files) {
    if (file.bytes < 1 || __builtin_add_overflow(sum, file.bytes, &sum)) {
      return fmt::format("{} bytes in '{}'", file.bytes, segment_name(set.prefix, file));
    }
    const auto [before, is_first] = last.try_emplace(file.rank, file.number);
    if (!is_first && std::exchange(before->second, file.number) >= file.number) {
      return fmt::format("'{}' is not in the order of their numbers",
                         segment_name(set.prefix, file));
    }
  }
  return "";
}

}  // namespace

std::string find_row_fault(const Manifest& manifest) {
  std::set<std::pair<std::string, std::string>> names;
  for (const StoredItem& item : manifest.items) {
    names.emplace(item.parameter, item.kind);
  }
  for (const StoredTable& table : manifest.tables) {
    if (auto fault = find_table_fault(table); !fault.empty()) {
      return fmt::format("table {}: {}", table.parameter, fault);
    }
    for (const RowItem& item : table.items) {
      if (!names.emplace(table.parameter, item.kind).second) {
        return fmt::format("item {} is listed twice", item_name(table.parameter, item.kind));
      }
    }
  }
  for (std::size_t i = 0; i < manifest.layouts.size(); ++i) {
    if (auto fault = find_layout_fault(manifest, manifest.layouts[i]); !fault.empty()) {
      return fmt::format("layout {}: {}", i, fault);
    }
  }
  std::set<std::string> prefixes;
  for (const SegmentSet& set : manifest.segments) {
    if (auto fault = find_set_fault(manifest, set); !fault.empty()) {
      return fmt::format("segments: {}", fault);
    }
    if (!prefixes.insert(set.prefix).second) {
      return fmt::format("segments '{}' are listed twice", set.prefix);
    }
  }
  return "";
}

}  // namespace weft::checkpoint
