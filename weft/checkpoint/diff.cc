#include "weft/checkpoint/diff.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "weft/base/at.h"
#include "weft/base/hash.h"
#include "weft/base/text.h"

namespace weft::checkpoint {
namespace {

constexpr const char* kAbsent = "none";

/// In `extra`: where ranks were, which decides nothing.
constexpr const char* kHostsOfRanks = "hosts";

template <typename T>
T bits_at(const std::byte* place) {
  T value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

std::string element_text(DType dtype, const std::byte* place) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kSplitBFloat16:
      return fmt::format("{} ({:08x})", bits_at<float>(place), bits_at<std::uint32_t>(place));
    case DType::kFloat16:
      return fmt::format("{} ({:04x})", to_float(bits_at<Float16>(place)),
                         bits_at<std::uint16_t>(place));
    case DType::kBFloat16:
      return fmt::format("{} ({:04x})", to_float(bits_at<BFloat16>(place)),
                         bits_at<std::uint16_t>(place));
    case DType::kFloat64:
      return fmt::format("{} ({:016x})", bits_at<double>(place), bits_at<std::uint64_t>(place));
    case DType::kInt32:
      return fmt::format("{}", bits_at<std::int32_t>(place));
    case DType::kInt64:
      return fmt::format("{}", bits_at<std::int64_t>(place));
    case DType::kUInt8:
      return fmt::format("{}", bits_at<std::uint8_t>(place));
  }
  return "";
}

/// A stream of which one row after the other is taken.
class RowCursor {
 public:
  RowCursor(const ItemSource& source, std::size_t item)
      : stream_(source.open_rows(item, kAllRows)), row_bytes_(source.items()[item].row_bytes()) {
    fill();
  }

  /// Of the rows in hand.
  [[nodiscard]] bool ended() const { return ended_; }

  [[nodiscard]] std::int64_t id() const { return rows_.ids[at(next_)]; }

  [[nodiscard]] std::int64_t left() const { return rows_.size() - next_; }

  [[nodiscard]] const std::int64_t* ids() const { return rows_.ids.data() + next_; }

  [[nodiscard]] const std::byte* bytes() const { return rows_.bytes.data() + next_ * row_bytes_; }

  void skip(std::int64_t rows) {
    next_ += rows;
    if (next_ == rows_.size()) {
      fill();
    }
  }

 private:
  void fill() {
    ended_ = !stream_->next(rows_);
    next_ = 0;
  }

  std::unique_ptr<ItemRows> stream_;
  std::int64_t row_bytes_;
  StoredRows rows_;
  std::int64_t next_ = 0;
  bool ended_ = false;
};

/// Notes where rows of the same number, at these places, differ.
void compare_rows(const ItemInfo& item,
                  const RowCursor& a,
                  const RowCursor& b,
                  std::int64_t rows,
                  ItemDifference& out) {
  const std::int64_t row_bytes = item.row_bytes();
  if (row_bytes == 0 || std::memcmp(a.bytes(), b.bytes(), at(rows * row_bytes)) == 0) {
    return;
  }
  const std::int64_t size = size_of(item.dtype);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* const left = a.bytes() + r * row_bytes;
    const std::byte* const right = b.bytes() + r * row_bytes;
    if (std::memcmp(left, right, at(row_bytes)) == 0) {
      continue;
    }
    ++out.rows;
    if (!out.first) {
      std::int64_t col = 0;
      while (std::memcmp(left + col * size, right + col * size, at(size)) == 0) {
        ++col;
      }
      out.first = {a.ids()[r], col, element_text(item.dtype, left + col * size),
                   element_text(item.dtype, right + col * size)};
    }
  }
}

/// How many rows from the present ones on have the same numbers in both.
std::int64_t common_run(const RowCursor& a, const RowCursor& b) {
  const std::int64_t most = std::min(a.left(), b.left());
  return std::mismatch(a.ids(), a.ids() + most, b.ids()).first - a.ids();
}

ItemDifference compare_item(const ItemSource& a,
                            std::size_t in_a,
                            const ItemSource& b,
                            std::size_t in_b) {
  const ItemInfo& item = a.items()[in_a];
  ItemDifference out{.item = item_name(item.parameter, item.kind), .shape = {}};
  RowCursor left(a, in_a);
  RowCursor right(b, in_b);
  while (!left.ended() || !right.ended()) {
    if (right.ended() || (!left.ended() && left.id() < right.id())) {
      ++out.rows_only_a;
      ++out.rows_compared;
      left.skip(1);
    } else if (left.ended() || right.id() < left.id()) {
      ++out.rows_only_b;
      ++out.rows_compared;
      right.skip(1);
    } else {
      const std::int64_t run = common_run(left, right);
      compare_rows(item, left, right, run, out);
      out.rows_compared += run;
      left.skip(run);
      right.skip(run);
    }
  }
  out.rows += out.rows_only_a + out.rows_only_b;
  return out;
}

std::string shape_text(const ItemInfo& item) {
  return fmt::format("{} x {} {}", item.rows, item.cols, to_string(item.dtype));
}

using Values = std::map<std::string, std::string>;

/// What of the metadata decides results, or belongs to them.
Values deciding_values(const Manifest& manifest) {
  const Metadata& metadata = manifest.metadata;
  Values values{{"step", std::to_string(metadata.step)},
                {"reader.epoch", std::to_string(metadata.epoch)},
                {"reader.sample", std::to_string(metadata.sample)},
                {"parts", std::to_string(metadata.parts)},
                {"row_draws", std::to_string(metadata.row_draws)},
                {"target", metadata.target},
                {"config_hash", fmt::format("{:016x}", metadata.config_hash)}};
  if (metadata.data) {
    const DataIdentity& data = *metadata.data;
    std::uint64_t files = 0;
    for (const DataIdentity::File& file : data.files) {
      files = hash_combine(files, static_cast<std::uint64_t>(file.bytes));
      files = hash_combine(files, file.fingerprint);
    }
    values["data"] = fmt::format(
        "{}, {} files (hash {:016x}), {} samples of at most {}, shuffled by {} with seed {}",
        data.format, data.files.size(), files, data.samples, data.max_samples, data.window,
        data.shuffle_seed);
  }
  const auto extra = nlohmann::json::parse(metadata.extra_json);
  for (const auto& [name, value] : extra.items()) {
    if (name != kHostsOfRanks) {
      values["extra." + name] = value.dump();
    }
  }
  for (const BlobFile& blob : manifest.blobs) {
    values["blob " + blob.name] =
        fmt::format("{} bytes with checksum {:016x}", blob.bytes, blob.checksum);
  }
  return values;
}

Values other_values(const CheckpointReader& reader) {
  const Metadata& metadata = reader.manifest().metadata;
  return {{"job", fmt::format("{:016x}", metadata.lineage.job_id)},
          {"save_number", std::to_string(metadata.lineage.save_number)},
          {"ranks", std::to_string(metadata.ranks)},
          {"plan_hash", fmt::format("{:016x}", metadata.plan_hash)},
          {"weft", metadata.weft_version},
          {"format", std::to_string(reader.format_version())}};
}

/// Rows that neither has stored are equal where they have the same initial values. Rows that one
/// has stored count already.
void compare_initial_values(const CheckpointReader& a,
                            const CheckpointReader& b,
                            Values& in_a,
                            Values& in_b) {
  const auto text = [](const InitialRule& rule) {
    return fmt::format("{} with scale {}, key {:016x}, accumulators of {}", rule.rule, rule.scale,
                       rule.key, rule.accumulator);
  };
  for (const StoredTable& one : a.manifest().tables) {
    for (const StoredTable& other : b.manifest().tables) {
      if (one.parameter == other.parameter && !one.has_all_rows && !other.has_all_rows) {
        in_a["initial values of " + one.parameter] = text(one.initial);
        in_b["initial values of " + one.parameter] = text(other.initial);
      }
    }
  }
}

std::vector<ValueDifference> compare_values(const Values& a, const Values& b) {
  std::vector<ValueDifference> out;
  std::set<std::string> names;
  for (const Values* values : {&a, &b}) {
    for (const auto& [name, value] : *values) {
      names.insert(name);
    }
  }
  const auto of = [](const Values& values, const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string(kAbsent) : found->second;
  };
  for (const std::string& name : names) {
    if (of(a, name) != of(b, name)) {
      out.push_back({name, of(a, name), of(b, name)});
    }
  }
  return out;
}

/// What a line says of an item, after its name.
std::string difference_text(const ItemDifference& item) {
  if (!item.shape.empty()) {
    return item.shape;
  }
  std::string out = fmt::format("differing rows: {} of {}", format_count(item.rows),
                                format_count(item.rows_compared));
  if (item.rows_only_a + item.rows_only_b > 0) {
    out += fmt::format(", {} stored only in A and {} only in B", format_count(item.rows_only_a),
                       format_count(item.rows_only_b));
  }
  if (item.first) {
    out += fmt::format("; row {}, column {}: {} and {}", item.first->row, item.first->col,
                       item.first->a, item.first->b);
  }
  return out;
}

}  // namespace

void compare_items(const ItemSource& a, const ItemSource& b, Difference& out) {
  using Name = std::pair<std::string, std::string>;
  std::map<Name, std::size_t> places;
  for (std::size_t i = 0; i < b.items().size(); ++i) {
    places.emplace(Name(b.items()[i].parameter, b.items()[i].kind), i);
  }
  for (std::size_t i = 0; i < a.items().size(); ++i) {
    const ItemInfo& item = a.items()[i];
    const std::string name = item_name(item.parameter, item.kind);
    const auto found = places.find(Name(item.parameter, item.kind));
    if (found == places.end()) {
      out.items.push_back({.item = name, .shape = "only in A: " + shape_text(item)});
      continue;
    }
    const std::size_t in_b = found->second;
    places.erase(found);
    const std::string other = shape_text(b.items()[in_b]);
    if (shape_text(item) != other) {
      out.items.push_back({.item = name, .shape = shape_text(item) + " and " + other});
      continue;
    }
    ItemDifference difference = compare_item(a, i, b, in_b);
    ++out.items_compared;
    out.bytes_compared += item.stored_bytes();
    if (difference.rows > 0) {
      out.items.push_back(std::move(difference));
    }
  }
  for (const ItemInfo& item : b.items()) {
    if (places.contains(Name(item.parameter, item.kind))) {
      out.items.push_back({.item = item_name(item.parameter, item.kind),
                           .shape = "only in B: " + shape_text(item)});
    }
  }
}

Difference compare(const CheckpointReader& a, const CheckpointReader& b) {
  Difference out;
  Values in_a = deciding_values(a.manifest());
  Values in_b = deciding_values(b.manifest());
  compare_initial_values(a, b, in_a, in_b);
  out.metadata = compare_values(in_a, in_b);
  out.notes = compare_values(other_values(a), other_values(b));
  compare_items(a, b, out);
  return out;
}

std::string to_text(const Difference& difference, const std::string& a, const std::string& b) {
  std::string out = fmt::format("A: {}\nB: {}\n", a, b);
  const auto add_values = [&out](const char* what, const std::vector<ValueDifference>& values) {
    for (const ValueDifference& value : values) {
      out += fmt::format("{} {}: {} and {}\n", what, value.name, value.a, value.b);
    }
  };
  add_values("no difference by itself:", difference.notes);
  add_values("metadata", difference.metadata);
  const auto first = std::find_if(difference.items.begin(), difference.items.end(),
                                  [](const ItemDifference& item) { return item.first; });
  if (first != difference.items.end()) {
    out += fmt::format("first difference: {}, row {}, column {}: {} and {}\n", first->item,
                       first->first->row, first->first->col, first->first->a, first->first->b);
  }
  bool has_lone_rows = false;
  for (const ItemDifference& item : difference.items) {
    out += fmt::format("item {}: {}\n", item.item, difference_text(item));
    has_lone_rows = has_lone_rows || item.rows_only_a + item.rows_only_b > 0;
  }
  if (has_lone_rows) {
    out +=
        "rows stored in one alone have their initial values in the other, which are not made here: "
        "they count as different, also where they are equal\n";
  }
  out += fmt::format("{}: {} compared ({})", difference.is_equal() ? "equal" : "different",
                     counted(difference.items_compared, "item"),
                     format_bytes(static_cast<std::uint64_t>(difference.bytes_compared)));
  if (!difference.is_equal()) {
    out += fmt::format("; differing: {}, {}", counted(std::ssize(difference.items), "item"),
                       counted(std::ssize(difference.metadata), "value of the metadata",
                               "values of the metadata"));
  }
  return out + "\n";
}

}  // namespace weft::checkpoint
