#include "weft/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash_stream.h"
#include "weft/checkpoint/block_rows.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/segment_rows.h"
#include "weft/checkpoint/segments.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kLargestManifest = std::int64_t{4} << 30;

/// Of a manifest that has been read already: its lists are left aside.
std::int64_t version_in(const std::string& text) {
  using Json = nlohmann::json;
  const Json::parser_callback_t keep = [](int depth, Json::parse_event_t event, Json& /*value*/) {
    return depth == 0 || event == Json::parse_event_t::value || event == Json::parse_event_t::key;
  };
  const Json json = Json::parse(text, keep);
  return json.at("version").get<std::int64_t>();
}

/// Reads a file from begin to end, a piece at a time, and hears of each.
template <typename Visit>
void read_pieces(const InputFile& file, Range bytes, std::vector<std::byte>& piece, Visit visit) {
  while (!bytes.empty()) {
    const std::int64_t count = std::min(kPieceBytes, bytes.size());
    piece.resize(at(count));
    file.read(bytes.begin, piece.data(), count);
    visit(std::span<const std::byte>(piece));
    bytes.begin += count;
  }
}

/// A block of a file, with its item.
using PlacedBlock = std::pair<const StoredItem*, const StoredBlock*>;

/// The blocks of every file by offset.
std::vector<std::vector<PlacedBlock>> blocks_by_file(const Manifest& manifest) {
  std::vector<std::vector<PlacedBlock>> placed(manifest.files.size());
  for (const StoredItem& item : manifest.items) {
    for (const StoredBlock& block : item.blocks) {
      placed[at(block.file)].emplace_back(&item, &block);
    }
  }
  for (auto& blocks : placed) {
    std::sort(blocks.begin(), blocks.end(), [](const PlacedBlock& a, const PlacedBlock& b) {
      return a.second->offset < b.second->offset;
    });
  }
  return placed;
}

/// Ids of any 64 bits are never all there.
bool has_all_numbers(const StoredTable& table) {
  return table.has_all_rows && table.ids == RowIds::kNumbers;
}

/// What lies beside the files that the manifest names.
std::vector<std::string> strangers_in(io::FileSystem& files,
                                      const std::string& directory,
                                      const Manifest& manifest) {
  std::set<std::string> known{std::string(kManifestName)};
  for (const DataFile& file : manifest.files) {
    known.insert(file.name);
  }
  for (const BlobFile& blob : manifest.blobs) {
    known.insert(blob.file);
  }
  std::vector<std::string> out;
  for (const std::string& name : list_directory(files, directory)) {
    if (!known.contains(name)) {
      out.push_back(name);
    }
  }
  return out;
}

/// Segments that are called like those of the manifest's sets, and are none. Others beside them are
/// other checkpoints'.
std::vector<std::string> stray_segments_in(io::FileSystem& files,
                                           const std::string& directory,
                                           const Manifest& manifest) {
  std::set<std::string> known;
  for (const SegmentSet& set : manifest.segments) {
    for (const SegmentFile& file : set.files) {
      known.insert(segment_name(set.prefix, file));
    }
  }
  std::vector<std::string> out;
  for (const std::string& name : list_directory(files, directory)) {
    const bool is_called_so =
        std::any_of(manifest.segments.begin(), manifest.segments.end(),
                    [&](const SegmentSet& set) { return name.starts_with(set.prefix + "-"); });
    if (is_called_so && !known.contains(name)) {
      out.push_back(join(std::string(kRowsName), name));
    }
  }
  return out;
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& path, ReaderOptions options)
    : files_(options.files != nullptr ? *options.files : io::real_file_system()),
      on_read_(std::move(options.on_read)),
      directory_(find_checkpoint(path, files_)) {
  const std::string file = join(directory_, kManifestName);
  const std::string text = load_file(files_, file, kLargestManifest);
  manifest_ = manifest_from_json(text, file);
  id_ = manifest_id(text, file);
  version_ = version_in(text);
  manifest_bytes_ = std::ssize(text);
  for (const StoredItem& item : manifest_.items) {
    items_.push_back({.parameter = item.parameter,
                      .kind = item.kind,
                      .dtype = item.dtype,
                      .rows = item.rows,
                      .cols = item.cols,
                      .form = RowForm::kAll,
                      .stored_rows = item.rows});
  }
  for (const StoredTable& table : manifest_.tables) {
    const bool has_all = has_all_numbers(table);
    for (const RowItem& item : table.items) {
      items_.push_back({.parameter = table.parameter,
                        .kind = item.kind,
                        .dtype = item.dtype,
                        .rows = table.rows,
                        .cols = item.cols,
                        .form = has_all ? RowForm::kAll : RowForm::kListed,
                        .stored_rows = has_all ? table.rows : 0});
    }
  }
}

const std::vector<ItemInfo>& CheckpointReader::items() const {
  const std::lock_guard lock(mutex_);
  if (!has_counted_) {
    count_rows();
    has_counted_ = true;
  }
  return items_;
}

/// A table that has come to have all its rows is like one that was saved so.
void CheckpointReader::count_rows() const {
  std::size_t next = block_items();
  for (std::size_t t = 0; t < manifest_.tables.size(); ++t) {
    const StoredTable& table = manifest_.tables[t];
    const std::size_t end = next + table.items.size();
    if (has_all_numbers(table)) {
      next = end;
      continue;
    }
    const std::int64_t rows =
        count_stored_rows({files_, manifest_, rows_directory_of(directory_), on_read_}, t);
    for (; next < end; ++next) {
      items_[next].stored_rows = rows;
      items_[next].form =
          table.ids == RowIds::kNumbers && rows == table.rows ? RowForm::kAll : RowForm::kListed;
    }
  }
}

CheckpointReader::Place CheckpointReader::place_in_segments(std::size_t item) const {
  Place place{0, item - block_items()};
  while (place.item >= manifest_.tables[place.table].items.size()) {
    place.item -= manifest_.tables[place.table++].items.size();
  }
  return place;
}

std::int64_t CheckpointReader::stored_bytes() const {
  std::int64_t bytes = 0;
  for (const DataFile& file : manifest_.files) {
    bytes += file.bytes;
  }
  for (const SegmentSet& set : manifest_.segments) {
    bytes += set.bytes();
  }
  for (const BlobFile& blob : manifest_.blobs) {
    bytes += blob.bytes;
  }
  return bytes;
}

std::unique_ptr<ItemRows> CheckpointReader::open_rows(std::size_t item, const Range& rows) const {
  WEFT_CHECK(item < items_.size(), "item {} of {}", item, items_.size());
  if (item >= block_items()) {
    const Place place = place_in_segments(item);
    return std::make_unique<SegmentRows>(
        SegmentSource{files_, manifest_, rows_directory_of(directory_), on_read_},
        TableRows{place.table, {place.item}, rows});
  }
  return std::make_unique<BlockRows>(BlockSource{files_, manifest_, directory_, on_read_},
                                     manifest_.items[item], rows);
}

std::unique_ptr<ItemRows> CheckpointReader::open_table(std::size_t table, const Range& rows) const {
  WEFT_CHECK(table < manifest_.tables.size(), "table {} of {}", table, manifest_.tables.size());
  TableRows wanted{table, {}, rows};
  for (std::size_t i = 0; i < manifest_.tables[table].items.size(); ++i) {
    wanted.items.push_back(i);
  }
  return std::make_unique<SegmentRows>(
      SegmentSource{files_, manifest_, rows_directory_of(directory_), on_read_}, std::move(wanted));
}

void CheckpointReader::for_each_blob_bytes(
    std::size_t blob, const std::function<void(std::span<const std::byte>)>& visit) const {
  WEFT_CHECK(blob < manifest_.blobs.size(), "blob {} of {}", blob, manifest_.blobs.size());
  const BlobFile& stored = manifest_.blobs[blob];
  const InputFile file(files_, join(directory_, stored.file));
  HashStream hash;
  std::vector<std::byte> piece;
  if (file.bytes() == stored.bytes) {
    read_pieces(file, {0, stored.bytes}, piece, [&](std::span<const std::byte> bytes) {
      hash.add(bytes);
      if (on_read_) {
        on_read_(std::ssize(bytes));
      }
      visit(bytes);
    });
  }
  if (file.bytes() != stored.bytes || hash.value() != stored.checksum) {
    fail(ErrorCode::kCheckpoint,
         "'{}', the blob {}, has {} bytes{}, but {} bytes with checksum {:016x} were written; "
         "restore the checkpoint from a copy or use another one",
         file.path(), stored.name, file.bytes(),
         file.bytes() == stored.bytes ? fmt::format(" with checksum {:016x}", hash.value()) : "",
         stored.bytes, stored.checksum);
  }
}

/// Every byte of every segment, and that a set has as many rows and tombstones as it should.
void CheckpointReader::verify_segments(Verified& out) const {
  const std::string directory = rows_directory_of(directory_);
  const Segments segments(files_, manifest_, directory);
  std::map<const SegmentSet*, std::pair<std::int64_t, std::int64_t>> counts;
  for (const ListedSegment& one : segments.list()) {
    const rowfile::SegmentReader reader = segments.open(one);
    reader.for_each_group([&](const rowfile::GroupIds& group) {
      for (std::size_t i = 0; group.stream > 0 && i < group.ids.size(); ++i) {
        segments.check_id(segments.place_of(reader, group.stream), group.ids[i]);
      }
    });
    reader.verify();
    counts[one.set].first += reader.rows();
    counts[one.set].second += reader.tombstones();
    ++out.segments;
    out.segment_rows += reader.rows();
    out.segment_bytes += reader.bytes();
    if (on_read_) {
      on_read_(reader.bytes());
    }
  }
  for (const SegmentSet& set : manifest_.segments) {
    const auto [rows, tombstones] = counts[&set];
    if (rows != set.rows || tombstones != set.tombstones) {
      fail(ErrorCode::kCheckpoint,
           "'{}': the segments {}-* have {} rows and {} tombstones, but {} and {} were written; "
           "restore the checkpoint from a copy or use another one",
           directory, set.prefix, rows, tombstones, set.rows, set.tombstones);
    }
  }
}

Verified CheckpointReader::verify() const {
  Verified out{.manifest_bytes = manifest_bytes_};
  const auto placed = blocks_by_file(manifest_);
  OpenFiles open(files_, manifest_, directory_);
  HashStream hash;
  std::vector<std::byte> piece;
  for (std::size_t f = 0; f < placed.size(); ++f) {
    const InputFile& file = open.at(static_cast<std::int64_t>(f));
    for (const auto& [item, block] : placed[f]) {
      const std::int64_t row_bytes = block_row_bytes(*item, *block);
      std::int64_t offset = block->offset;
      for (std::int64_t chunk = 0; chunk < std::ssize(block->checksums); ++chunk) {
        const std::int64_t bytes = rows_of_chunk(*block, chunk) * row_bytes;
        hash.reset();
        read_pieces(file, {offset, offset + bytes}, piece, [&](std::span<const std::byte> some) {
          hash.add(some);
          if (on_read_) {
            on_read_(std::ssize(some));
          }
        });
        check_chunk({file, *item, *block, chunk}, hash.value());
        offset += bytes;
        ++out.chunks;
      }
    }
    ++out.files;
    out.bytes += file.bytes();
  }
  verify_segments(out);
  for (std::size_t b = 0; b < manifest_.blobs.size(); ++b) {
    for_each_blob_bytes(b, [](std::span<const std::byte>) {});
    ++out.blobs;
    out.blob_bytes += manifest_.blobs[b].bytes;
  }
  out.strangers = strangers_in(files_, directory_, manifest_);
  const auto stray = stray_segments_in(files_, rows_directory_of(directory_), manifest_);
  out.strangers.insert(out.strangers.end(), stray.begin(), stray.end());
  return out;
}

}  // namespace weft::checkpoint
