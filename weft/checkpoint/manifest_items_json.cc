// The items of a manifest as JSON: blocks one by one, or a cut over files as a rule.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/checkpoint/cover.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/manifest_fields.h"

namespace weft::checkpoint {
namespace {

Json encode_block(const StoredBlock& block) {
  Json json = {{"file", block.file},
               {"offset", block.offset},
               {"row_begin", block.row_begin},
               {"row_end", block.row_end},
               {"col_begin", block.col_begin},
               {"col_end", block.col_end},
               {"chunk_rows", block.chunk_rows},
               {"checksums", to_hex(block.checksums)}};
  if (block.row_step != 1) {
    json["row_step"] = block.row_step;
  }
  return json;
}

/// The block of a rule, whose checksums are not known yet.
StoredBlock block_of(const StoredItem& item, const RankBlock& part, std::int64_t offset) {
  StoredBlock block{.file = part.rank,
                    .offset = offset,
                    .row_begin = part.rows.begin,
                    .row_end = part.rows.end,
                    .col_begin = part.cols.begin,
                    .col_end = part.cols.end,
                    .checksums = {},
                    .row_step = part.rows.step};
  block.chunk_rows = usual_chunk_rows(item, block);
  return block;
}

/// The rule whose blocks are exactly these, in their order.
std::optional<CutRule> cut_of(const StoredItem& item) {
  if (item.blocks.size() < 2) {
    return std::nullopt;
  }
  std::vector<RankBlock> parts;
  for (const StoredBlock& block : item.blocks) {
    parts.push_back({block.file, block.rows(), {block.col_begin, block.col_end}});
    if (block.chunk_rows != usual_chunk_rows(item, block)) {
      return std::nullopt;
    }
  }
  const auto rules = rules_of(parts);
  if (rules.size() != 1 || std::cmp_not_equal(rules.front().count, parts.size()) ||
      rules.front().by == CutBy::kCopy) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!(rules.front().block(static_cast<std::int64_t>(i)) == parts[i])) {
      return std::nullopt;
    }
  }
  return rules.front();
}

void encode_cut(const CutRule& rule, const StoredItem& item, Json& json) {
  std::vector<std::int64_t> offsets;
  std::string checksums;
  for (const StoredBlock& block : item.blocks) {
    offsets.push_back(block.offset);
    checksums += to_hex(block.checksums);
  }
  json["cut"] = encode_rule(rule, "files");
  json["offsets"] = to_number_list(offsets);
  json["checksums"] = checksums;
}

void decode_cut(const Fields& fields, StoredItem& item) {
  const CutRule rule = decode_rule(fields.member("cut"), "files");
  const auto offsets = fields.numbers("offsets");
  const auto checksums = fields.hashes("checksums");
  if (area_bytes({item.rows, item.cols, size_of(item.dtype)}) < 0) {
    fields.damaged(
        fmt::format("a matrix of {} x {} {}", item.rows, item.cols, to_string(item.dtype)));
  }
  if (!rule.is_sound() || std::cmp_not_equal(rule.count, offsets.size()) ||
      rule.cols.end > item.cols || rule.rows.end > item.rows) {
    fields.damaged("'cut' is no cut of the matrix, or has other 'offsets'");
  }
  auto next = checksums.begin();
  for (std::int64_t i = 0; i < rule.count; ++i) {
    StoredBlock block = block_of(item, rule.block(i), offsets[static_cast<std::size_t>(i)]);
    const std::int64_t rows = block.rows().size();
    const std::int64_t chunks = rows > 0 ? (rows - 1) / block.chunk_rows + 1 : 0;
    if (rows == 0 || chunks > checksums.end() - next) {
      fields.damaged(fmt::format("'checksums' has none for chunk {} of block {}", chunks - 1, i));
    }
    block.checksums.assign(next, next + chunks);
    next += chunks;
    item.blocks.push_back(std::move(block));
  }
  if (next != checksums.end()) {
    fields.damaged("'checksums' has more than there are chunks");
  }
}

StoredBlock decode_block(const Fields& fields) {
  StoredBlock block;
  block.file = fields.integer("file", 0);
  block.offset = fields.integer("offset", 0);
  block.row_begin = fields.integer("row_begin", 0);
  block.row_end = fields.integer("row_end", 0);
  block.col_begin = fields.integer("col_begin", 0);
  block.col_end = fields.integer("col_end", 0);
  block.chunk_rows = fields.integer("chunk_rows", 1);
  block.checksums = fields.hashes("checksums");
  block.row_step = fields.has("row_step") ? fields.integer("row_step", 1) : 1;
  return block;
}

StoredItem decode_item(const Fields& fields) {
  StoredItem item;
  item.parameter = fields.text("parameter");
  item.kind = fields.text("kind");
  item.dtype = fields.dtype("dtype");
  item.rows = fields.integer("rows", 0);
  item.cols = fields.integer("cols", 0);
  if (fields.has("cut")) {
    decode_cut(fields, item);
  } else {
    fields.list("blocks", [&](const Fields& block) { item.blocks.push_back(decode_block(block)); });
  }
  return item;
}

}  // namespace

Json encode_items(const Manifest& manifest, std::int64_t version) {
  Json items = Json::array();
  for (const StoredItem& item : manifest.items) {
    Json json = {{"parameter", item.parameter},
                 {"kind", item.kind},
                 {"dtype", std::string(to_string(item.dtype))},
                 {"rows", item.rows},
                 {"cols", item.cols}};
    const auto rule = version >= kFormatVersion ? cut_of(item) : std::nullopt;
    if (rule) {
      encode_cut(*rule, item, json);
    } else {
      json["blocks"] = Json::array();
      for (const StoredBlock& block : item.blocks) {
        json["blocks"].push_back(encode_block(block));
      }
    }
    items.push_back(std::move(json));
  }
  return items;
}

void decode_items(const Fields& fields, Manifest& manifest) {
  fields.list("items", [&](const Fields& one) { manifest.items.push_back(decode_item(one)); });
}

}  // namespace weft::checkpoint
