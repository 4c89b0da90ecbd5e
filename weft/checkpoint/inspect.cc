#include "weft/checkpoint/inspect.h"

#include <algorithm>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "weft/base/at.h"
#include "weft/base/text.h"

namespace weft::checkpoint {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::string size_text(std::int64_t bytes) {
  return format_bytes(static_cast<std::uint64_t>(bytes));
}

std::string job_text(const Lineage& lineage) {
  if (lineage.job_id == 0) {
    return "not known: format versions 1 and 2 name none";
  }
  const std::string parent =
      lineage.parent_id == 0
          ? std::string("no parent")
          : fmt::format("parent {} (id {})", lineage.parent_name, hex(lineage.parent_id));
  return fmt::format("{}, save {}, {}", hex(lineage.job_id), lineage.save_number, parent);
}

std::string data_text(const Metadata& metadata) {
  if (!metadata.data) {
    return "not known";
  }
  const DataIdentity& data = *metadata.data;
  std::int64_t bytes = 0;
  for (const DataIdentity::File& file : data.files) {
    bytes += file.bytes;
  }
  return fmt::format("{}, {} of {}, {}", data.format, counted(std::ssize(data.files), "file"),
                     size_text(bytes),
                     data.samples < 0 ? std::string("its end not met yet")
                                      : format_count(data.samples) + " samples an epoch");
}

/// Columns that are as wide as their widest cell; numbers stand to the right.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> heads) { rows_.push_back(std::move(heads)); }

  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  /// Cells from `numbers` on are numbers.
  [[nodiscard]] std::string text(std::size_t numbers) const {
    std::vector<std::size_t> widths(rows_.front().size());
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        widths[i] = std::max(widths[i], row[i].size());
      }
    }
    std::string out;
    for (const auto& row : rows_) {
      std::string line = " ";
      for (std::size_t i = 0; i < row.size(); ++i) {
        line += i < numbers ? fmt::format(" {:<{}}", row[i], widths[i])
                            : fmt::format(" {:>{}}", row[i], widths[i] + 1);
      }
      out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string head_text(const CheckpointReader& reader) {
  const Metadata& metadata = reader.manifest().metadata;
  std::string out = fmt::format("{}\n", reader.directory());
  const auto line = [&out](const char* name, const std::string& value) {
    out += fmt::format("  {:<12} {}\n", name, value);
  };
  line("step", fmt::format("{}, epoch {}, {} of its samples read", metadata.step, metadata.epoch,
                           format_count(metadata.sample)));
  line("job", job_text(metadata.lineage));
  line("id", hex(reader.id()));
  line("format", fmt::format("version {}, written by Weft {}", reader.format_version(),
                             metadata.weft_version));
  line("ranks", fmt::format("{}, parts {}, row draws {}, target {}", metadata.ranks, metadata.parts,
                            metadata.row_draws, metadata.target));
  line("config_hash", hex(metadata.config_hash));
  line("plan_hash", hex(metadata.plan_hash));
  line("data", data_text(metadata));
  line("extra", metadata.extra_json.size() <= 200 ? metadata.extra_json
                                                  : metadata.extra_json.substr(0, 197) + "...");
  return out;
}

std::string form_text(const ItemInfo& item) {
  return item.form == RowForm::kAll ? std::string("all") : format_count(item.stored_rows);
}

/// How many blocks have the item; none where its rows are in segments.
std::string blocks_text(const CheckpointReader& reader, std::size_t item) {
  return item < reader.block_items() ? std::to_string(reader.manifest().items[item].blocks.size())
                                     : std::string("segments");
}

/// The chain: a full set of segments, then what was added to it.
std::string chain_text(const Manifest& manifest) {
  if (manifest.segments.empty()) {
    return "";
  }
  TextTable sets({"segments in " + std::string(kRowsName), "files", "rows", "tombstones", "bytes"});
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
  for (const SegmentSet& set : manifest.segments) {
    sets.add({set.prefix + "-*", std::to_string(set.files.size()), format_count(set.rows),
              format_count(set.tombstones), size_text(set.bytes())});
    rows += set.rows;
    bytes += set.bytes();
  }
  return "\n" + sets.text(1) +
         fmt::format(
             "  chain: {}, {} rows and {} in all\n",
             manifest.segments.size() == 1
                 ? std::string("one full set")
                 : "a full set and " + counted(std::ssize(manifest.segments) - 1, "increment"),
             format_count(rows), size_text(bytes));
}

OrderedJson chain_json(const Manifest& manifest) {
  OrderedJson list = OrderedJson::array();
  for (const SegmentSet& set : manifest.segments) {
    OrderedJson files = OrderedJson::array();
    for (const SegmentFile& file : set.files) {
      files.push_back({{"name", segment_name(set.prefix, file)}, {"bytes", file.bytes}});
    }
    list.push_back({{"prefix", set.prefix},
                    {"rows", set.rows},
                    {"tombstones", set.tombstones},
                    {"bytes", set.bytes()},
                    {"files", std::move(files)}});
  }
  return list;
}

OrderedJson items_json(const CheckpointReader& reader) {
  OrderedJson list = OrderedJson::array();
  for (std::size_t i = 0; i < reader.items().size(); ++i) {
    const ItemInfo& item = reader.items()[i];
    list.push_back(
        {{"parameter", item.parameter},
         {"kind", item.kind},
         {"dtype", std::string(to_string(item.dtype))},
         {"rows", item.rows},
         {"cols", item.cols},
         {"rows_stored", item.stored_rows},
         {"rows_listed", item.form == RowForm::kListed},
         {"bytes", item.stored_bytes()},
         {"in_segments", i >= reader.block_items()},
         {"blocks", i < reader.block_items() ? reader.manifest().items[i].blocks.size() : 0}});
  }
  return list;
}

OrderedJson job_json(const Lineage& lineage) {
  if (lineage.job_id == 0) {
    return nullptr;
  }
  OrderedJson json = {
      {"id", hex(lineage.job_id)}, {"save_number", lineage.save_number}, {"parent", nullptr}};
  if (lineage.parent_id != 0) {
    json["parent"] = {{"name", lineage.parent_name}, {"id", hex(lineage.parent_id)}};
  }
  return json;
}

OrderedJson data_json(const std::optional<DataIdentity>& data) {
  if (!data) {
    return nullptr;
  }
  OrderedJson files = OrderedJson::array();
  for (const DataIdentity::File& file : data->files) {
    files.push_back({{"bytes", file.bytes}, {"fingerprint", hex(file.fingerprint)}});
  }
  return {{"format", data->format},
          {"max_samples", data->max_samples},
          {"samples", data->samples},
          {"window", data->window},
          {"shuffle_seed", hex(data->shuffle_seed)},
          {"files", std::move(files)}};
}

}  // namespace

std::string inspect_text(const CheckpointReader& reader) {
  const Manifest& manifest = reader.manifest();
  std::string out = head_text(reader);
  TextTable items({"item", "dtype", "rows", "cols", "stored", "bytes", "blocks"});
  for (std::size_t i = 0; i < reader.items().size(); ++i) {
    const ItemInfo& item = reader.items()[i];
    items.add({item_name(item.parameter, item.kind), std::string(to_string(item.dtype)),
               format_count(item.rows), format_count(item.cols), form_text(item),
               size_text(item.stored_bytes()), blocks_text(reader, i)});
  }
  out += "\n" + items.text(2);
  out += chain_text(manifest);
  TextTable files({"file", "bytes", "checksum"});
  for (const BlobFile& blob : manifest.blobs) {
    files.add({blob.file, size_text(blob.bytes), hex(blob.checksum)});
  }
  for (const DataFile& file : manifest.files) {
    files.add({file.name, size_text(file.bytes), "by chunks"});
  }
  out += "\n" + files.text(1);
  out += fmt::format("\n{}, {}, {}: {}\n", counted(std::ssize(reader.items()), "item"),
                     counted(std::ssize(manifest.files), "data file"),
                     counted(std::ssize(manifest.blobs), "blob"),
                     size_text(reader.stored_bytes() + reader.manifest_bytes()));
  return out;
}

std::string inspect_json(const CheckpointReader& reader) {
  const Manifest& manifest = reader.manifest();
  const Metadata& metadata = manifest.metadata;
  OrderedJson json = {
      {"version", 1},
      {"directory", reader.directory()},
      {"format_version", reader.format_version()},
      {"weft", metadata.weft_version},
      {"step", metadata.step},
      {"epoch", metadata.epoch},
      {"sample", metadata.sample},
      {"job", job_json(metadata.lineage)},
      {"id", hex(reader.id())},
      {"ranks", metadata.ranks},
      {"parts", metadata.parts},
      {"row_draws", metadata.row_draws},
      {"target", metadata.target},
      {"config_hash", hex(metadata.config_hash)},
      {"plan_hash", hex(metadata.plan_hash)},
      {"data", data_json(metadata.data)},
      {"extra", OrderedJson::parse(metadata.extra_json)},
      {"items", items_json(reader)},
      {"blobs", OrderedJson::array()},
      {"files", OrderedJson::array()},
      {"segments", chain_json(manifest)},
      {"manifest_bytes", reader.manifest_bytes()},
      {"bytes", reader.stored_bytes() + reader.manifest_bytes()},
      {"config", metadata.config_yaml},
      {"plan", metadata.plan_yaml},
  };
  for (const BlobFile& blob : manifest.blobs) {
    json["blobs"].push_back({{"name", blob.name},
                             {"file", blob.file},
                             {"bytes", blob.bytes},
                             {"checksum", hex(blob.checksum)}});
  }
  for (const DataFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace weft::checkpoint
