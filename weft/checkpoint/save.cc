#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

void check_options(const SaveOptions& options) {
  if (options.directory.empty() || options.metadata.step < 0 || options.keep < 0) {
    fail(ErrorCode::kUsage, "a checkpoint of step {} in '{}', of which {} stay",
         options.metadata.step, options.directory, options.keep);
  }
  for (const Blob& blob : options.blobs) {
    const bool plain = std::all_of(blob.name.begin(), blob.name.end(), [](char c) {
      return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9') || c == '_' || c == '-';
    });
    if (!plain || blob.name.empty()) {
      fail(ErrorCode::kUsage, "'{}' is not a blob's name: use a-z, 0-9, '_' and '-'", blob.name);
    }
  }
}

StoredItem describe(const StateItem& item) {
  return {item.parameter, item.kind, item.dtype, item.rows, item.cols, {}};
}

void write_block(OutputFile& file,
                 const StateSource& source,
                 std::size_t index,
                 const StateItem& item,
                 StoredItem& stored,
                 WorkProgress& progress) {
  StoredBlock block;
  block.offset = file.bytes();
  block.row_begin = item.row_begin;
  block.row_end = item.row_end;
  block.col_begin = item.col_begin;
  block.col_end = item.col_end;
  block.row_step = item.row_step;
  const RowSet held = item.held();
  const std::int64_t rows = held.size();
  const std::int64_t row_bytes = block_row_bytes(stored, block);
  if (rows <= 0 || row_bytes <= 0) {
    return;
  }
  block.chunk_rows = std::clamp<std::int64_t>(kChunkBytes / row_bytes, 1, rows);
  std::vector<std::byte> chunk(static_cast<std::size_t>(block.chunk_rows * row_bytes));
  for (std::int64_t i = 0; i < rows; i += block.chunk_rows) {
    const std::int64_t count = std::min(block.chunk_rows, rows - i);
    source.read_state(index, held.row(i), count, chunk.data());
    const std::span<const std::byte> bytes(chunk.data(),
                                           static_cast<std::size_t>(count * row_bytes));
    block.checksums.push_back(hash_bytes(bytes));
    file.write(bytes.data(), static_cast<std::int64_t>(bytes.size()));
    progress.add(static_cast<std::int64_t>(bytes.size()));
  }
  stored.blocks.push_back(std::move(block));
}

/// What this rank will write of `sources`.
std::int64_t bytes_to_write(std::span<const StateSource* const> sources) {
  std::int64_t bytes = 0;
  for (const StateSource* source : sources) {
    for (const StateItem& item : source->state_items()) {
      if (item.first_holder) {
        bytes += item.held().size() * (item.col_end - item.col_begin) * size_of(item.dtype);
      }
    }
  }
  return bytes;
}

/// Every rank: its file, and the table of what is in it. An item of which a rank holds no first
/// block is not in its table.
Manifest write_rank(io::FileSystem& files,
                    const std::string& directory,
                    int rank,
                    std::span<const StateSource* const> sources,
                    WorkProgress& progress) {
  Manifest table;
  const std::string name = fmt::format("rank-{:04}.bin", rank);
  const std::string path = join(directory, name);
  progress.begin({.activity = "writing",
                  .place = fmt::format("'{}'", path),
                  .total = bytes_to_write(sources)});
  OutputFile file(files, path);
  for (const StateSource* source : sources) {
    const auto items = source->state_items();
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i].first_holder) {
        table.items.push_back(describe(items[i]));
        write_block(file, *source, i, items[i], table.items.back(), progress);
      }
    }
  }
  file.finish();
  table.files.push_back({name, file.bytes()});
  return table;
}

bool same_matrix(const StoredItem& a, const StoredItem& b) {
  return a.dtype == b.dtype && a.rows == b.rows && a.cols == b.cols;
}

/// Adds what one rank has written to the manifest of all.
void add_table(Manifest& all,
               std::map<std::pair<std::string, std::string>, std::size_t>& places,
               const Manifest& table) {
  const auto file = static_cast<std::int64_t>(all.files.size());
  all.files.insert(all.files.end(), table.files.begin(), table.files.end());
  for (const StoredItem& item : table.items) {
    const auto [place, is_new] = places.try_emplace({item.parameter, item.kind}, all.items.size());
    if (is_new) {
      all.items.push_back(item);
      all.items.back().blocks.clear();
    }
    StoredItem& whole = all.items[place->second];
    if (!same_matrix(whole, item)) {
      fail(ErrorCode::kCheckpoint, "cannot save {}: ranks disagree, {} x {} {} and {} x {} {}",
           item_name(item.parameter, item.kind), whole.rows, whole.cols, to_string(whole.dtype),
           item.rows, item.cols, to_string(item.dtype));
    }
    for (StoredBlock block : item.blocks) {
      block.file += file;
      whole.blocks.push_back(std::move(block));
    }
  }
}

Manifest merge_tables(const Metadata& metadata, const Gathered& tables) {
  Manifest all;
  all.metadata = metadata;
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  const auto* next = reinterpret_cast<const char*>(tables.bytes.data());
  for (const std::int64_t bytes : tables.counts) {
    const std::string text(next, static_cast<std::size_t>(bytes));
    next += bytes;
    add_table(all, places, decode_manifest(text, "the table of a rank"));
  }
  return all;
}

/// What the other ranks wrote must be seen from here.
void check_files(io::FileSystem& files, const std::string& directory, const Manifest& manifest) {
  for (std::size_t r = 0; r < manifest.files.size(); ++r) {
    const std::string path = join(directory, manifest.files[r].name);
    const io::Status status = files.status(path);
    if (status.kind != io::Kind::kFile || status.bytes != manifest.files[r].bytes) {
      fail(ErrorCode::kCheckpoint,
           "rank 0 does not see '{}' as rank {} has written it: checkpoints must go to a directory "
           "that all ranks share",
           path, r);
    }
  }
}

void write_blobs(io::FileSystem& files,
                 const std::string& directory,
                 std::span<const Blob> blobs,
                 Manifest& manifest) {
  for (const Blob& blob : blobs) {
    const std::string file = "blob-" + blob.name;
    create_file(files, join(directory, file), blob.bytes);
    manifest.blobs.push_back(
        {blob.name, file, static_cast<std::int64_t>(blob.bytes.size()), hash_string(blob.bytes)});
  }
}

/// Rank 0: blobs, manifest, and the names that make it the newest.
std::string commit(io::FileSystem& files,
                   Folder& folder,
                   const SaveOptions& options,
                   const std::string& unfinished,
                   Manifest manifest) {
  manifest.metadata.lineage = folder.lineage();
  write_blobs(files, unfinished, options.blobs, manifest);
  if (const std::string fault = find_fault(manifest); !fault.empty()) {
    fail(ErrorCode::kInternal,
         "cannot save a checkpoint: {}; the ranks' first-holder blocks must cover every item "
         "once, this is a bug, please report it",
         fault);
  }
  check_files(files, unfinished, manifest);
  return folder.commit(unfinished, options.metadata.step, manifest_to_json(manifest));
}

/// Rank 0's text, on all ranks.
std::string shared_text(comm::Communicator& comm, Context& ctx, const std::string& text) {
  const Gathered all = gather_bytes(comm, ctx, std::as_bytes(std::span(text)));
  return {reinterpret_cast<const char*>(all.bytes.data()), all.bytes.size()};
}

}  // namespace

std::string save(comm::Communicator& comm,
                 Context& ctx,
                 const SaveOptions& options,
                 std::span<const StateSource* const> sources) {
  io::FileSystem& files = options.files != nullptr ? *options.files : io::real_file_system();
  const bool is_first = comm.rank() == 0;
  std::optional<Folder> own_folder;
  Folder* folder = options.folder;
  std::string unfinished;
  std::string final;
  try {
    agree(comm, ctx, [&](WorkProgress& progress) {
      if (is_first) {
        check_options(options);
        progress.begin({.activity = "preparing", .place = fmt::format("'{}'", options.directory)});
        if (folder == nullptr) {
          folder = &own_folder.emplace(
              FolderOptions{.directory = options.directory, .files = options.files});
        }
        unfinished = folder->begin(options.metadata.step, [&progress] { progress.move(); });
      }
    });
    unfinished = shared_text(comm, ctx, unfinished);
    std::string table;
    agree(comm, ctx, [&](WorkProgress& progress) {
      table = manifest_to_json(write_rank(files, unfinished, comm.rank(), sources, progress));
    });
    const Gathered tables = gather_bytes(comm, ctx, std::as_bytes(std::span(table)));
    agree(comm, ctx, [&](WorkProgress& progress) {
      if (is_first) {
        progress.begin({.activity = "completing", .place = fmt::format("'{}'", unfinished)});
        Metadata metadata = options.metadata;
        metadata.ranks = comm.size();
        final = commit(files, *folder, options, unfinished, merge_tables(metadata, tables));
        folder->prune(options.keep, [&progress] { progress.move(); });
      }
    });
  } catch (...) {
    if (is_first && !unfinished.empty()) {
      folder->discard(unfinished);
    }
    throw;
  }
  return shared_text(comm, ctx, final);
}

}  // namespace weft::checkpoint
