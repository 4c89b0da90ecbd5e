#include "weft/checkpoint/save.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/rank_table.h"
#include "weft/checkpoint/row_writer.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

void check_options(const SaveOptions& options) {
  if (options.directory.empty() || options.metadata.step < 0 || options.keep < 0) {
    fail(ErrorCode::kUsage, "a checkpoint of step {} in '{}', of which {} stay",
         options.metadata.step, options.directory, options.keep);
  }
  if (options.writers < 1 || options.writer_bytes < 1 || options.segment_bytes < 1) {
    fail(ErrorCode::kUsage, "{} writers, one for {} bytes, of segments of {} bytes",
         options.writers, options.writer_bytes, options.segment_bytes);
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
                 const comm::Communicator& comm,
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
  block.chunk_rows = usual_chunk_rows(stored, block);
  std::vector<std::byte> chunk(static_cast<std::size_t>(block.chunk_rows * row_bytes));
  for (std::int64_t i = 0; i < rows; i += block.chunk_rows) {
    comm.check();
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

/// Every rank: its data file, if it has any block, and the table of what is in it. An item of which
/// a rank holds no first block is not in its table.
void write_blocks(io::FileSystem& files,
                  const std::string& path,
                  const SaveSources& sources,
                  RankTable& table,
                  const comm::Communicator& comm,
                  WorkProgress& progress) {
  progress.begin({.activity = "writing",
                  .place = fmt::format("'{}'", path),
                  .total = bytes_of_blocks(sources)});
  std::optional<OutputFile> file;
  sources.for_each_block([&](const StateSource& source, std::size_t index, const StateItem& item) {
    table.items.push_back(describe(item));
    if (item.held().size() > 0 && item.col_end > item.col_begin) {
      if (!file) {
        file.emplace(files, path);
      }
      write_block(*file, source, index, item, table.items.back(), comm, progress);
    }
  });
  if (file) {
    file->finish();
    table.file_bytes = file->bytes();
  }
}

/// What the other ranks wrote must be seen from here: all names, and of some files their bytes.
void check_files(io::FileSystem& files,
                 const std::string& directory,
                 const std::vector<DataFile>& written) {
  constexpr std::size_t kLookedAt = 64;
  const auto names = list_directory(files, directory);
  const std::set<std::string> seen(names.begin(), names.end());
  const std::size_t stride = written.size() / kLookedAt + 1;
  for (std::size_t i = 0; i < written.size(); ++i) {
    bool is_there = seen.contains(written[i].name);
    const std::string path = join(directory, written[i].name);
    if (is_there && i % stride == 0) {
      const io::Status status = files.status(path);
      is_there = status.kind == io::Kind::kFile && status.bytes == written[i].bytes;
    }
    if (!is_there) {
      fail(ErrorCode::kCheckpoint,
           "rank 0 does not see '{}' as another rank has written it: checkpoints must go to a "
           "directory that all ranks share",
           path);
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

}  // namespace

Save::Save(comm::Communicator& comm,
           Context& ctx,
           const SaveOptions& options,
           std::span<const StateSource* const> sources)
    : comm_(comm),
      ctx_(ctx),
      options_(options),
      files_(options.files != nullptr ? *options.files : io::real_file_system()),
      sources_(sources),
      folder_(options.folder) {
}

template <typename Phase>
void Save::discarding(const Phase& phase) {
  try {
    phase();
  } catch (...) {
    if (is_first() && !plan_.unfinished.empty()) {
      folder_->discard(plan_.unfinished);
    }
    throw;
  }
}

void Save::prepare() {
  discarding([this] { decide(begin()); });
}

void Save::cut(CopyRoom& room) {
  discarding([&] {
    agree(comm_, ctx_, [&](WorkProgress& progress) {
      progress.begin({.activity = "cutting", .place = fmt::format("'{}'", plan_.unfinished)});
      options_.increments->base = 0;  // until finish(): what has changed is known no longer
      room_ = &room;
      copied_.emplace(sources_);
      for (const std::size_t i : sources_.first) {
        RowShard& shard = sources_.shards[i];
        const auto& all = options_.increments->rows;
        const auto rows = std::find(all.begin(), all.end(), shard.state);
        WEFT_CHECK(rows != all.end(), "changes of {} do not count", shard.shape.parameter);
        cuts_.push_back((*rows)->cut(rows_to_write(shard, rows_to_save()), room));
        shard.cut = cuts_.back().get();
        progress.move();
      }
      links_->begin();
      links_->mark();
      // Rows that this rank does not save are marked all the same.
      for (RowState* const rows : options_.increments->rows) {
        const bool is_cut =
            std::any_of(sources_.first.begin(), sources_.first.end(),
                        [&](std::size_t i) { return sources_.shards[i].state == rows; });
        if (!is_cut) {
          rows->mark();
        }
      }
    });
  });
}

void Save::end_cuts() {
  if (room_ != nullptr) {
    room_->open();
  }
  cuts_.clear();
  links_.reset();
}

void Save::write() {
  discarding([this] { complete(write_own()); });
}

/// Rank 0 makes the directory; all look how much has changed.
Gathered Save::begin() {
  RankOffer offer;
  agree(comm_, ctx_, [&](WorkProgress& progress) {
    progress.begin({.activity = "preparing", .place = fmt::format("'{}'", options_.directory)});
    if (is_first()) {
      check_options(options_);
      if (folder_ == nullptr) {
        folder_ = &own_folder_.emplace(
            FolderOptions{.directory = options_.directory, .files = options_.files});
      }
      plan_.unfinished = folder_->begin(options_.metadata.step, [&progress] { progress.move(); });
    }
    links_.emplace(sources_, options_.links);
    offer = offer_of(sources_, *links_, options_.increments);
  });
  return gather_to_first(comm_, ctx_, std::as_bytes(std::span(&offer, 1)));
}

void Save::decide(const Gathered& gathered) {
  agree(comm_, ctx_, [&](WorkProgress& progress) {
    if (is_first()) {
      progress.begin({.activity = "preparing", .place = fmt::format("'{}'", options_.directory)});
      std::vector<RankOffer> offers(gathered.counts.size());
      std::copy(gathered.bytes.begin(), gathered.bytes.end(),
                std::as_writable_bytes(std::span(offers)).begin());
      const bool has_rows = std::any_of(offers.begin(), offers.end(),
                                        [](const RankOffer& one) { return one.shards > 0; });
      plan_.copies_blocks = std::all_of(offers.begin(), offers.end(), [this](const RankOffer& one) {
        return one.block_bytes <= options_.copy_bytes;
      });
      if (has_rows) {
        plan_.parent = parent_to_extend(options_, *folder_, offers);
        plan_.prefix = folder_->begin_rows();
      }
    }
  });
  std::string text = plan_.encode();
  comm_.share(ctx_, text, 0);
  plan_.decode(text);
}

Gathered Save::write_own() {
  std::string table;
  agree(comm_, ctx_, [&](WorkProgress& progress) {
    RankTable own;
    try {
      if (!plan_.prefix.empty()) {  // first: updates may wait for it
        write_segments(own, progress);
      }
      write_blocks(files_, join(plan_.unfinished, data_file_name(comm_.rank())),
                   copied_ ? copied_->sources() : sources_, own, comm_, progress);
      copied_.reset();
    } catch (...) {
      end_cuts();  // others may write for long before this rank hears that they have ended
      throw;
    }
    table = own.encode();
  });
  return gather_to_first(comm_, ctx_, std::as_bytes(std::span(table)));
}

/// What is listed before the seal begins is written, and what leaves memory before it is in files.
void Save::list_unwritten_rows() {
  lists_.resize(sources_.first.size());
  for (std::size_t k = 0; k < lists_.size(); ++k) {
    RowShard& shard = sources_.shards[sources_.first[k]];
    if (shard.seal != nullptr) {
      lists_[k] = list_rows(*shard.state, rows_to_write(shard, rows_to_save()));
      shard.list = &lists_[k];
    }
  }
  links_->begin();
}

/// Links come first in the order of files, so that rows which are written hold; they are made last,
/// for updates may wait until the cuts are empty.
void Save::write_segments(RankTable& table, WorkProgress& progress) {
  progress.begin({.activity = "writing",
                  .place = fmt::format("rows to '{}'", join(options_.directory, kRowsName))});
  if (room_ == nullptr) {
    list_unwritten_rows();
  }
  const std::vector<RowFile> sealed = links_->wait(rows_to_save());
  const RowWriteOptions options{.directory = join(options_.directory, kRowsName),
                                .prefix = plan_.prefix,
                                .rank = comm_.rank(),
                                .first_number = std::ssize(sealed),
                                .which = rows_to_save(),
                                .writers = options_.writers,
                                .writer_bytes = options_.writer_bytes,
                                .segment_bytes = options_.segment_bytes,
                                .check = [this] { comm_.check(); }};
  std::vector<RowShard> shards;
  for (const std::size_t i : sources_.first) {
    shards.push_back(sources_.shards[i]);
  }
  const WrittenRows written = write_rows(files_, options, shards, progress);
  table.segments = link_files(files_, sealed, options, saved_, progress);
  table.segment_rows = written.all_rows();
  for (const RowFile& file : sealed) {
    table.segment_rows += file.rows;
  }
  for (const SegmentFile& file : written.files) {
    table.segments.push_back(file);
    ++saved_.written_files;
    saved_.written_bytes += file.bytes;
  }
  if (room_ != nullptr) {
    links_.reset();  // the save may be there for long
  }
  for (std::size_t s = 0; s < shards.size(); ++s) {
    table.rows.push_back({shards[s].key, shards[s].shape.rows, written.rows[s]});
    if (shards[s].shape.rows.contains(0)) {
      table.tables.push_back(shards[s].table);
    }
  }
}

void Save::complete(const Gathered& tables) {
  agree(comm_, ctx_, [&](WorkProgress& progress) {
    if (is_first()) {
      progress.begin({.activity = "completing", .place = fmt::format("'{}'", plan_.unfinished)});
      const auto on_removed = [&progress] { progress.move(); };
      commit(tables);
      folder_->prune(options_.keep, on_removed);
      folder_->sweep(on_removed);
    }
  });
}

/// Rank 0: blobs, manifest, and the names that make it the newest.
void Save::commit(const Gathered& tables) {
  MergeOptions merging{
      .metadata = options_.metadata, .prefix = plan_.prefix, .parent = std::move(plan_.parent)};
  merging.metadata.ranks = comm_.size();
  merging.metadata.lineage = folder_->lineage();
  Manifest manifest = merge(merging, tables);
  write_blobs(files_, plan_.unfinished, options_.blobs, manifest);
  if (const std::string fault = find_fault(manifest); !fault.empty()) {
    fail(ErrorCode::kInternal,
         "cannot save a checkpoint: {}; the ranks' first-holder blocks must cover every item "
         "once, this is a bug, please report it",
         fault);
  }
  check_files(files_, plan_.unfinished, manifest.files);
  if (!plan_.prefix.empty() && !manifest.segments.empty() &&
      manifest.segments.back().prefix == plan_.prefix) {
    check_segments(manifest.segments.back());
  }
  const std::string text = manifest_to_json(manifest);
  final_ = folder_->commit(plan_.unfinished, options_.metadata.step, text);
  id_ = folder_->lineage().parent_id;
}

void Save::check_segments(const SegmentSet& set) {
  std::vector<DataFile> written;
  for (const SegmentFile& file : set.files) {
    written.push_back({segment_name(set.prefix, file), file.bytes});
  }
  check_files(files_, join(options_.directory, kRowsName), written);
}

/// All know where it is, and count changes anew.
std::string Save::finish() {
  ByteWriter out;
  out.put(final_);
  out.put(id_);
  std::string text = out.bytes();
  comm_.share(ctx_, text, 0);
  ByteReader in(text);
  final_ = in.take<std::string>();
  id_ = in.take<std::uint64_t>();
  if (options_.increments != nullptr) {
    if (room_ == nullptr) {  // else the cut has marked
      for (RowState* rows : options_.increments->rows) {
        rows->mark();
      }
      links_->mark();
    }
    options_.increments->saved = saved_;
    options_.increments->base = id_;
  }
  return final_;
}

std::string save(comm::Communicator& comm,
                 Context& ctx,
                 const SaveOptions& options,
                 std::span<const StateSource* const> sources) {
  Save one(comm, ctx, options, sources);
  one.prepare();
  one.write();
  return one.finish();
}

}  // namespace weft::checkpoint
