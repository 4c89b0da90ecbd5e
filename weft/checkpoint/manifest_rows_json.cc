// Tables, layouts and segments of a manifest as JSON.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/checkpoint/manifest_fields.h"

namespace weft::checkpoint {
namespace {

constexpr std::string_view kNumbers = "numbers";
constexpr std::string_view kRaw = "raw";
constexpr std::string_view kRange = "range";
constexpr std::string_view kModulo = "modulo";

Json encode_table(const StoredTable& table) {
  Json json = {{"parameter", table.parameter},
               {"ids", table.ids == RowIds::kRaw ? kRaw : kNumbers},
               {"rows", table.rows},
               {"has_all_rows", table.has_all_rows},
               {"initial",
                {{"rule", table.initial.rule},
                 {"key", to_hex(table.initial.key)},
                 {"scale", table.initial.scale},
                 {"accumulator", table.initial.accumulator}}},
               {"items", Json::array()},
               {"streams", Json::array()}};
  for (const RowItem& item : table.items) {
    json["items"].push_back(
        {{"kind", item.kind}, {"dtype", std::string(to_string(item.dtype))}, {"cols", item.cols}});
  }
  for (const RowStream& stream : table.streams) {
    json["streams"].push_back({{"cols", {stream.cols.begin, stream.cols.end}},
                               {"dtype", std::string(to_string(stream.dtype))}});
  }
  return json;
}

StoredTable decode_table(const Fields& fields) {
  StoredTable table;
  table.parameter = fields.text("parameter");
  const std::string ids = fields.text("ids");
  if (ids != kNumbers && ids != kRaw) {
    fields.damaged(fmt::format("'ids' is '{}'", ids));
  }
  table.ids = ids == kRaw ? RowIds::kRaw : RowIds::kNumbers;
  table.rows = fields.integer("rows", 0);
  table.has_all_rows = fields.flag("has_all_rows");
  const Fields initial = fields.member("initial");
  table.initial = {.rule = initial.text("rule"),
                   .key = initial.hash("key"),
                   .scale = initial.number("scale"),
                   .accumulator = initial.number("accumulator")};
  fields.list("items", [&](const Fields& item) {
    table.items.push_back({item.text("kind"), item.dtype("dtype"), item.integer("cols", 1)});
  });
  fields.list("streams", [&](const Fields& stream) {
    const auto cols = stream.integers("cols", 2, 2);
    table.streams.push_back({{cols[0], cols[1]}, stream.dtype("dtype")});
  });
  return table;
}

/// "RANK NUMBER BYTES", and of a linked one "RANK NUMBER BYTES KEY".
std::string encode_file(const SegmentFile& file) {
  const std::string numbers = to_number_list({file.rank, file.number, file.bytes});
  return file.key == 0 ? numbers : numbers + " " + to_hex(file.key);
}

bool decode_file(std::string_view text, SegmentFile& file) {
  if (std::count(text.begin(), text.end(), ' ') == 3) {
    const std::size_t space = text.rfind(' ');
    if (!from_hex(text.substr(space + 1), file.key) || file.key == 0) {
      return false;
    }
    text = text.substr(0, space);
  }
  std::vector<std::int64_t> numbers;
  if (!from_number_list(text, numbers) || numbers.size() != 3) {
    return false;
  }
  file.rank = numbers[0];
  file.number = numbers[1];
  file.bytes = numbers[2];
  return true;
}

SegmentSet decode_set(const Fields& fields) {
  SegmentSet set;
  set.prefix = fields.text("prefix");
  set.layout = fields.integer("layout", 0);
  set.rows = fields.integer("rows", 0);
  set.tombstones = fields.integer("tombstones", 0);
  for (const Json& entry : fields.array("files")) {
    if (!entry.is_string() || !decode_file(entry.get<std::string>(), set.files.emplace_back())) {
      fields.damaged("'files' has an entry that is not \"RANK NUMBER BYTES\" or with a key");
    }
  }
  return set;
}

}  // namespace

Json encode_rule(const CutRule& rule, const char* ranks) {
  WEFT_CHECK(rule.by != CutBy::kCopy, "a checkpoint holds rows [{}, {}) once", rule.rows.begin,
             rule.rows.end);
  Json json;
  json["rows"] = {rule.rows.begin, rule.rows.end};
  if (rule.rows.step != 1) {
    json["rows"].push_back(rule.rows.step);
  }
  json["cols"] = {rule.cols.begin, rule.cols.end};
  json[ranks] = {rule.first_rank, rule.rank_step, rule.count};
  json["by"] = rule.by == CutBy::kModulo ? kModulo : kRange;
  return json;
}

CutRule decode_rule(const Fields& fields, const char* ranks) {
  const auto rows = fields.integers("rows", 2, 3);
  const auto cols = fields.integers("cols", 2, 2);
  const auto over = fields.integers(ranks, 3, 3);
  const std::string by = fields.text("by");
  if (by != kRange && by != kModulo) {
    fields.damaged(fmt::format("'by' is '{}'", by));
  }
  return {.rows = {rows[0], rows[1], rows.size() > 2 ? rows[2] : 1},
          .cols = {cols[0], cols[1]},
          .first_rank = over[0],
          .rank_step = over[1],
          .count = over[2],
          .by = by == kModulo ? CutBy::kModulo : CutBy::kRange};
}

void encode_rows(Json& json, const Manifest& manifest) {
  json["tables"] = Json::array();
  for (const StoredTable& table : manifest.tables) {
    json["tables"].push_back(encode_table(table));
  }
  json["layouts"] = Json::array();
  for (const RowLayout& layout : manifest.layouts) {
    Json cuts = Json::array();
    for (const StreamCut& cut : layout) {
      Json rule = encode_rule(cut.rule, "ranks");
      rule["table"] = cut.table;
      rule["stream"] = cut.stream;
      cuts.push_back(std::move(rule));
    }
    json["layouts"].push_back({{"cuts", std::move(cuts)}});
  }
  json["segments"] = Json::array();
  for (const SegmentSet& set : manifest.segments) {
    Json files = Json::array();
    for (const SegmentFile& file : set.files) {
      files.push_back(encode_file(file));
    }
    json["segments"].push_back({{"prefix", set.prefix},
                                {"layout", set.layout},
                                {"rows", set.rows},
                                {"tombstones", set.tombstones},
                                {"files", std::move(files)}});
  }
}

void decode_rows(const Fields& fields, Manifest& manifest) {
  fields.list("tables",
              [&](const Fields& table) { manifest.tables.push_back(decode_table(table)); });
  fields.list("layouts", [&](const Fields& layout) {
    RowLayout& cuts = manifest.layouts.emplace_back();
    layout.list("cuts", [&](const Fields& cut) {
      cuts.push_back(
          {cut.integer("table", 0), cut.integer("stream", 0), decode_rule(cut, "ranks")});
    });
  });
  fields.list("segments", [&](const Fields& set) { manifest.segments.push_back(decode_set(set)); });
}

}  // namespace weft::checkpoint
