#include "weft/checkpoint/reshard.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash_stream.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/folder.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/step_names.h"
#include "weft/rowfile/segment_writer.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kFilesAtOnce = 64;

/// One run of an item's rows on its way into a file, all columns. Rows come in pieces of any size;
/// chunks get their checksums as they fill.
class BlockWriter {
 public:
  BlockWriter(OutputFile& file, std::int64_t index, const StoredItem& item, const Range& rows)
      : file_(file) {
    block_.file = index;
    block_.offset = file.bytes();
    block_.row_begin = rows.begin;
    block_.row_end = rows.end;
    block_.col_end = item.cols;
    row_bytes_ = block_row_bytes(item, block_);
    block_.chunk_rows = std::clamp<std::int64_t>(kChunkBytes / row_bytes_, 1, rows.size());
    left_ = block_.chunk_rows;
  }

  /// The next rows.
  void write(std::span<const std::byte> bytes) {
    file_.write(bytes.data(), std::ssize(bytes));
    while (!bytes.empty()) {
      const std::int64_t rows = std::min(left_, std::ssize(bytes) / row_bytes_);
      hash_.add(bytes.first(at(rows * row_bytes_)));
      bytes = bytes.subspan(at(rows * row_bytes_));
      left_ -= rows;
      if (left_ == 0) {
        close_chunk();
      }
    }
  }

  StoredBlock finish() {
    if (left_ < block_.chunk_rows) {
      close_chunk();
    }
    return std::move(block_);
  }

 private:
  void close_chunk() {
    block_.checksums.push_back(hash_.value());
    hash_.reset();
    left_ = block_.chunk_rows;
  }

  OutputFile& file_;
  StoredBlock block_;
  HashStream hash_;
  std::int64_t row_bytes_ = 0;
  std::int64_t left_ = 0;  ///< rows of the chunk in hand that are still to come
};

std::string name_of_file(std::int64_t index) {
  return fmt::format("file-{:04}.bin", index);
}

/// Some of the new files, by their numbers, with their part of one item.
void write_item(const CheckpointReader& from,
                std::size_t index,
                const Range& numbers,
                std::vector<OutputFile>& files,
                Manifest& manifest) {
  StoredItem& item = manifest.items[index];
  const auto count = static_cast<std::int64_t>(manifest.files.size());
  const auto run_of = [&](std::int64_t k) { return piece(item.rows, count, k); };
  const Range all{run_of(numbers.begin).begin, run_of(numbers.end - 1).end};
  if (all.empty() || item.cols == 0) {
    return;
  }
  const std::unique_ptr<ItemRows> stream = from.open_rows(index, all);
  const std::int64_t row_bytes = item.cols * size_of(item.dtype);
  StoredRows rows;
  std::int64_t used = 0;  // of `rows`
  for (std::int64_t k = numbers.begin; k < numbers.end; ++k) {
    const Range run = run_of(k);
    if (run.empty()) {
      continue;
    }
    BlockWriter block(files[at(k - numbers.begin)], k, item, run);
    for (std::int64_t row = run.begin; row < run.end;) {
      if (used == rows.size()) {
        WEFT_CHECK(stream->next(rows), "row {} of {}", row, run.end);
        used = 0;
      }
      WEFT_CHECK(rows.ids[at(used)] == row, "row {} where {} is due", rows.ids[at(used)], row);
      const std::int64_t some = std::min(rows.size() - used, run.end - row);
      block.write(rows.bytes.subspan(at(used * row_bytes), at(some * row_bytes)));
      used += some;
      row += some;
    }
    item.blocks.push_back(block.finish());
  }
  WEFT_CHECK(!stream->next(rows), "rows beyond {}", all.end);  // and all checksums were right
}

/// The files with these numbers, whole.
void write_files(const CheckpointReader& from,
                 io::FileSystem& system,
                 const std::string& directory,
                 const Range& numbers,
                 Manifest& manifest) {
  std::vector<OutputFile> files;
  for (std::int64_t k = numbers.begin; k < numbers.end; ++k) {
    files.emplace_back(system, join(directory, manifest.files[at(k)].name));
  }
  for (std::size_t i = 0; i < manifest.items.size(); ++i) {
    write_item(from, i, numbers, files, manifest);
  }
  for (std::int64_t k = numbers.begin; k < numbers.end; ++k) {
    OutputFile& file = files[at(k - numbers.begin)];
    file.finish();
    manifest.files[at(k)].bytes = file.bytes();
  }
}

void copy_blobs(const CheckpointReader& from,
                io::FileSystem& system,
                const std::string& directory) {
  const std::vector<BlobFile>& blobs = from.manifest().blobs;
  for (std::size_t b = 0; b < blobs.size(); ++b) {
    OutputFile file(system, join(directory, blobs[b].file));
    from.for_each_blob_bytes(
        b, [&](std::span<const std::byte> bytes) { file.write(bytes.data(), std::ssize(bytes)); });
    file.finish();
  }
}

/// One new segment: a run of the rows of every table.
class ReshardedSegment {
 public:
  ReshardedSegment(io::FileSystem& system, std::string directory, const Manifest& manifest)
      : system_(system), directory_(std::move(directory)), set_(manifest.segments.front()) {
    streams_.push_back({0, 1});  // the segment's own name, without rows
    for (const StoredTable& table : manifest.tables) {
      const RowStream& stream = table.streams.front();
      streams_.push_back({stream_key(table, stream), packed_bytes(table, stream)});
    }
  }

  /// The rows of a table that belong to segment number `file`.
  void write(std::int64_t file, std::size_t table, ItemRows& rows) {
    StoredRows some;
    while (rows.next(some)) {
      if (writer_ == nullptr) {
        file_ = {.rank = file, .number = 0, .bytes = 0};
        const std::string name = segment_name(set_.prefix, file_);
        streams_.front().key = name_key(name);
        writer_ = std::make_unique<rowfile::SegmentWriter>(system_, join(directory_, name),
                                                           streams_, ErrorCode::kCheckpoint);
      }
      ids_.assign(some.ids.begin(), some.ids.end());
      writer_->append(table + 1, ids_, some.bytes);
    }
  }

  /// Closes the segment, if there is one, and adds it to the set.
  void finish(SegmentSet& set) {
    if (writer_ == nullptr) {
      return;
    }
    file_.bytes = writer_->bytes();
    set.rows += writer_->rows();
    writer_->seal();
    writer_.reset();
    set.files.push_back(file_);
  }

 private:
  io::FileSystem& system_;
  std::string directory_;
  SegmentSet set_;
  std::vector<rowfile::Stream> streams_;
  std::unique_ptr<rowfile::SegmentWriter> writer_;
  SegmentFile file_;
  std::vector<rowfile::RowId> ids_;
};

/// One stream of all columns for every table, as one full save of `files` ranks would write them.
void plan_segments(const std::string& prefix, std::int64_t files, Manifest& manifest) {
  RowLayout layout;
  for (std::size_t t = 0; t < manifest.tables.size(); ++t) {
    StoredTable& table = manifest.tables[t];
    const RowItem& weights = table.items.front();
    table.streams = {{{0, weights.cols}, weights.dtype}};
    CutRule rule{.rows = {0, table.rows}, .cols = {0, weights.cols}};
    rule.count = files;
    layout.push_back({static_cast<std::int64_t>(t), 0, rule});
  }
  manifest.layouts = {std::move(layout)};
  manifest.segments = {{.prefix = prefix, .files = {}}};
}

void write_segments(const CheckpointReader& from,
                    io::FileSystem& system,
                    const std::string& directory,
                    Manifest& manifest) {
  const auto files = std::ssize(manifest.files);
  for (std::int64_t k = 0; k < files; ++k) {
    ReshardedSegment segment(system, directory, manifest);
    for (std::size_t t = 0; t < manifest.tables.size(); ++t) {
      const Range run = piece(manifest.tables[t].rows, files, k);
      if (!run.empty()) {
        segment.write(k, t, *from.open_table(t, run));
      }
    }
    segment.finish(manifest.segments.front());
  }
}

/// Throws where a table cannot be cut by ranges of its rows, or its whole rows are too long.
void check_tables(const CheckpointReader& from) {
  for (const StoredTable& table : from.manifest().tables) {
    const RowItem& weights = table.items.front();
    if (table.ids == RowIds::kRaw) {
      fail(ErrorCode::kCheckpoint,
           "cannot cut '{}' anew: the rows of {} have raw ids, and only rows with numbers are cut; "
           "resume from the checkpoint on as many ranks as files are wanted, and save",
           from.directory(), table.parameter);
    }
    if (packed_bytes(table, {{0, weights.cols}, weights.dtype}) > rowfile::kMaxRowBytes) {
      fail(ErrorCode::kCheckpoint,
           "cannot cut '{}' anew: a whole row of {} has more than {} bytes; resume from the "
           "checkpoint on as many ranks as files are wanted, and save",
           from.directory(), table.parameter, rowfile::kMaxRowBytes);
    }
  }
}

/// The manifest without blocks, and with names of files alone.
Manifest manifest_of(const CheckpointReader& from, const ReshardOptions& options) {
  Manifest manifest = from.manifest();
  manifest.metadata.weft_version = options.weft_version;
  for (StoredItem& item : manifest.items) {
    item.blocks.clear();
  }
  manifest.files.clear();
  for (std::int64_t k = 0; k < options.files; ++k) {
    manifest.files.push_back({name_of_file(k), 0});
  }
  return manifest;
}

/// What a reshard that was interrupted may have left is no reason.
void check_empty(io::FileSystem& system, const std::string& directory) {
  const io::Kind kind = kind_of(system, directory);
  if (kind == io::Kind::kFile || kind == io::Kind::kOther) {
    fail(ErrorCode::kUsage, "'{}' is not a folder: give one that is empty, or a new name",
         directory);
  }
  for (const std::string& name : list_directory(system, directory)) {
    // Segments without a checkpoint are what an interrupted one has left, too.
    if (!is_unfinished(name) && name != kRowsName && name != kNextName &&
        !name.starts_with(kLockName)) {
      fail(ErrorCode::kUsage,
           "'{}' is not empty, it has '{}', and nothing is overwritten: give an empty folder, or "
           "a new name",
           directory, name);
    }
  }
}

}  // namespace

std::string reshard(const CheckpointReader& from, const ReshardOptions& options) {
  if (options.files < 1 || options.directory.empty()) {
    fail(ErrorCode::kUsage, "a checkpoint in {} files in the folder '{}'", options.files,
         options.directory);
  }
  io::FileSystem& system = options.system != nullptr ? *options.system : io::real_file_system();
  check_empty(system, options.directory);
  check_tables(from);
  Folder folder({.directory = options.directory, .files = &system});
  check_empty(system, options.directory);
  folder.resume_job(from.directory());
  const std::int64_t step = from.manifest().metadata.step;
  const std::string unfinished = folder.begin(step);
  try {
    Manifest manifest = manifest_of(from, options);
    for (std::int64_t k = 0; k < options.files; k += kFilesAtOnce) {
      write_files(from, system, unfinished, {k, std::min(options.files, k + kFilesAtOnce)},
                  manifest);
    }
    if (!manifest.tables.empty()) {
      plan_segments(folder.begin_rows(), options.files, manifest);
      write_segments(from, system, join(options.directory, std::string(kRowsName)), manifest);
    }
    copy_blobs(from, system, unfinished);
    manifest.metadata.lineage = folder.lineage();
    if (const std::string fault = find_fault(manifest); !fault.empty()) {
      fail(ErrorCode::kInternal, "cannot cut '{}' into {} files: {}; this is a bug",
           from.directory(), options.files, fault);
    }
    return folder.commit(unfinished, step, manifest_to_json(manifest));
  } catch (...) {
    folder.discard(unfinished);
    throw;
  }
}

}  // namespace weft::checkpoint
