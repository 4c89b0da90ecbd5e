#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/checkpoint/manifest.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/manifest_fields.h"

namespace weft::checkpoint {
namespace {

constexpr std::string_view kSealBegin = ",\n \"checksum\": \"";
constexpr std::string_view kSealEnd = "\"\n}\n";

/// Copying and printing JSON go down by calls, so what is nested without end would overflow the
/// stack.
void check_depth(std::string_view text, const std::string& file) {
  constexpr int kMaxDepth = 64;
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      i += c == '\\' ? 1 : 0;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) {
        fail_damaged(file, fmt::format("nested more than {} deep", kMaxDepth));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

Json encode_data(const DataIdentity& data) {
  Json json = {{"format", data.format},
               {"max_samples", data.max_samples},
               {"samples", data.samples},
               {"window", data.window},
               {"shuffle_seed", to_hex(data.shuffle_seed)},
               {"files", Json::array()}};
  for (const DataIdentity::File& file : data.files) {
    json["files"].push_back({{"bytes", file.bytes}, {"fingerprint", to_hex(file.fingerprint)}});
  }
  return json;
}

DataIdentity decode_data(const Fields& fields) {
  DataIdentity data;
  data.format = fields.text("format");
  data.max_samples = fields.integer("max_samples", 0);
  data.samples = fields.integer("samples", -1);
  data.window = fields.integer("window", 0);
  data.shuffle_seed = fields.hash("shuffle_seed");
  fields.list("files", [&](const Fields& file) {
    data.files.push_back({file.integer("bytes", 0), file.hash("fingerprint")});
  });
  return data;
}

/// The lowest that has what the manifest needs.
std::int64_t version_of(const Manifest& manifest) {
  if (manifest.metadata.lineage.job_id != 0 || !manifest.tables.empty()) {
    return kFormatVersion;
  }
  for (const StoredItem& item : manifest.items) {
    for (const StoredBlock& block : item.blocks) {
      if (block.row_step != 1) {
        return kRowStepVersion;
      }
    }
  }
  return kFirstVersion;
}

Json encode_lineage(const Lineage& lineage) {
  Json json = {{"id", to_hex(lineage.job_id)}, {"save_number", lineage.save_number}};
  if (lineage.parent_id != 0) {
    json["parent"] = {{"name", lineage.parent_name}, {"id", to_hex(lineage.parent_id)}};
  }
  return json;
}

Json encode_metadata(const Metadata& metadata, std::int64_t version) {
  const Json extra = Json::parse(metadata.extra_json);
  if (!extra.is_object()) {
    fail(ErrorCode::kCheckpoint, "cannot save a checkpoint: extra_json is not a JSON object");
  }
  Json json = {{"version", version},
               {"weft", metadata.weft_version},
               {"step", metadata.step},
               {"reader", {{"epoch", metadata.epoch}, {"sample", metadata.sample}}},
               {"ranks", metadata.ranks},
               {"parts", metadata.parts},
               {"row_draws", metadata.row_draws},
               {"target", metadata.target},
               {"config_hash", to_hex(metadata.config_hash)},
               {"plan_hash", to_hex(metadata.plan_hash)},
               {"config", metadata.config_yaml},
               {"plan", metadata.plan_yaml},
               {"extra", extra}};
  if (metadata.data) {
    json["data"] = encode_data(*metadata.data);
  }
  return json;
}

Json encode(const Manifest& manifest) {
  const std::int64_t version = version_of(manifest);
  Json json = encode_metadata(manifest.metadata, version);
  if (manifest.metadata.lineage.job_id != 0) {
    json["job"] = encode_lineage(manifest.metadata.lineage);
  }
  json["files"] = Json::array();
  for (const DataFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  json["blobs"] = Json::array();
  for (const BlobFile& blob : manifest.blobs) {
    json["blobs"].push_back({{"name", blob.name},
                             {"file", blob.file},
                             {"bytes", blob.bytes},
                             {"checksum", to_hex(blob.checksum)}});
  }
  json["items"] = encode_items(manifest, version);
  if (version >= kFormatVersion) {
    encode_rows(json, manifest);
  }
  return json;
}

Lineage decode_lineage(const Fields& fields) {
  Lineage lineage;
  lineage.job_id = fields.hash("id");
  lineage.save_number = fields.integer("save_number", 1);
  if (fields.has("parent")) {
    const Fields parent = fields.member("parent");
    lineage.parent_name = parent.text("name");
    lineage.parent_id = parent.hash("id");
    if (lineage.parent_id == 0) {
      parent.damaged("'id' is 0");
    }
  }
  if (lineage.job_id == 0) {
    fields.damaged("'id' is 0");
  }
  return lineage;
}

Metadata decode_metadata(const Fields& fields) {
  Metadata metadata;
  metadata.weft_version = fields.text("weft");
  metadata.step = fields.integer("step", 0);
  const Fields reader = fields.member("reader");
  metadata.epoch = reader.integer("epoch", 0);
  metadata.sample = reader.integer("sample", 0);
  metadata.ranks = fields.integer("ranks", 1);
  metadata.parts = fields.integer("parts", 1);
  metadata.row_draws = fields.has("row_draws") ? fields.integer("row_draws", 1) : 1;
  metadata.target = fields.text("target");
  metadata.config_hash = fields.hash("config_hash");
  metadata.plan_hash = fields.hash("plan_hash");
  metadata.config_yaml = fields.text("config");
  metadata.plan_yaml = fields.text("plan");
  metadata.extra_json = fields.object("extra").dump();
  if (fields.has("data")) {
    metadata.data = decode_data(fields.member("data"));
  }
  if (fields.integer("version", kFirstVersion) >= kJobVersion) {
    metadata.lineage = decode_lineage(fields.member("job"));
  }
  return metadata;
}

/// Before anything else: another version may have another seal.
void check_version(const Json& json, const std::string& file) {
  const auto version = json.is_object() ? json.find("version") : json.end();
  if (version == json.end() || !version->is_number_integer()) {
    fail_damaged(file, "'version' is missing");
  }
  if (*version < kFirstVersion || *version > kFormatVersion) {
    const auto weft = json.find("weft");
    const std::string writer =
        weft != json.end() && weft->is_string() ? weft->get<std::string>() : "unknown";
    fail(ErrorCode::kCheckpoint,
         "'{}' has format version {}, written by Weft {}, but this build reads versions {} to {}: "
         "use a build that reads it",
         file, version->dump(), writer, kFirstVersion, kFormatVersion);
  }
}

std::uint64_t checksum_of(std::string_view text) {
  return hash_string(text);
}

/// Returns the checksum.
std::uint64_t check_seal(std::string_view text, const std::string& file) {
  const std::size_t seal = kSealBegin.size() + kHexDigits + kSealEnd.size();
  if (text.size() < seal || !text.ends_with(kSealEnd) ||
      text.substr(text.size() - seal, kSealBegin.size()) != kSealBegin) {
    fail_damaged(file, "the checksum that closes it is missing");
  }
  const std::string_view body = text.substr(0, text.size() - seal);
  const std::string_view digits = text.substr(body.size() + kSealBegin.size(), kHexDigits);
  const std::uint64_t checksum = checksum_of(body);
  const std::string expected = to_hex(checksum);
  if (digits != expected) {
    fail_damaged(file, fmt::format("its bytes have checksum {}, not {} as written", expected,
                                   std::string(digits)));
  }
  return checksum;
}

}  // namespace

std::string seal_json(std::string body) {
  while (!body.empty() && (body.back() == '\n' || body.back() == ' ')) {
    body.pop_back();
  }
  if (body.ends_with('}')) {
    body.pop_back();
  }
  while (!body.empty() && (body.back() == '\n' || body.back() == ' ')) {
    body.pop_back();
  }
  const std::string digits = to_hex(checksum_of(body));
  return fmt::format("{}{}{}{}", body, kSealBegin, digits, kSealEnd);
}

std::uint64_t manifest_id(const std::string& text, const std::string& file) {
  return check_seal(text, file);
}

std::string manifest_to_json(const Manifest& manifest) {
  try {
    return seal_json(encode(manifest).dump(1));
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::kCheckpoint, "cannot write a manifest: {}", error.what());
  }
}

Manifest decode_manifest(const std::string& text, const std::string& file) {
  try {
    check_depth(text, file);
    const Json json = Json::parse(text);
    check_version(json, file);
    check_seal(text, file);
    const Fields fields(json, "", file);
    Manifest manifest;
    manifest.metadata = decode_metadata(fields);
    fields.list("files", [&](const Fields& one) {
      manifest.files.push_back({one.text("name"), one.integer("bytes", 0)});
    });
    fields.list("blobs", [&](const Fields& one) {
      manifest.blobs.push_back(
          {one.text("name"), one.text("file"), one.integer("bytes", 0), one.hash("checksum")});
    });
    decode_items(fields, manifest);
    if (fields.integer("version", kFirstVersion) >= kFormatVersion) {
      decode_rows(fields, manifest);
    }
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    fail_damaged(file, error.what());
  }
}

Manifest manifest_from_json(const std::string& text, const std::string& file) {
  Manifest manifest = decode_manifest(text, file);
  if (const std::string fault = find_fault(manifest); !fault.empty()) {
    fail_damaged(file, fault);
  }
  return manifest;
}

}  // namespace weft::checkpoint
