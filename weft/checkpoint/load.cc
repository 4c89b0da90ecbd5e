#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/parts.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/row_reader.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

/// An item of a sink and where it is stored.
struct Wanted {
  StateSink* sink = nullptr;
  std::size_t index = 0;
  StateItem item;
  std::size_t stored = 0;  ///< index into Manifest::items
};

/// What this rank asks for.
struct Request {
  std::vector<Wanted> blocks;
  std::vector<RowTarget> rows;
  std::vector<std::uint8_t> asked;  ///< for each stored item whether it is wanted here
};

/// An item of a checkpoint: a list of blocks, or a part of rows.
struct Place {
  StoredItem matrix;  ///< without its blocks
  bool is_row = false;
  std::size_t index = 0;  ///< of the item, or of the table
  std::size_t part = 0;   ///< of the table
};

/// All items of a checkpoint.
std::vector<Place> places_of(const Manifest& manifest) {
  std::vector<Place> places;
  for (std::size_t i = 0; i < manifest.items.size(); ++i) {
    const StoredItem& item = manifest.items[i];
    places.push_back({{item.parameter, item.kind, item.dtype, item.rows, item.cols, {}}, false, i});
  }
  for (std::size_t t = 0; t < manifest.tables.size(); ++t) {
    const StoredTable& table = manifest.tables[t];
    for (std::size_t p = 0; p < table.items.size(); ++p) {
      const RowItem& item = table.items[p];
      places.push_back(
          {{table.parameter, item.kind, item.dtype, table.rows, item.cols, {}}, true, t, p});
    }
  }
  return places;
}

/// Adds an item of a sink to the target of its table. Those of one sink come one after the other.
void add_to_target(std::vector<RowTarget>& targets, const Wanted& wanted, const Place& place) {
  if (targets.empty() || targets.back().sink != wanted.sink ||
      targets.back().table != place.index || !(targets.back().rows == wanted.item.held())) {
    targets.push_back({wanted.sink, place.index, wanted.item.held(), {}});
  }
  targets.back().items.push_back(
      {wanted.index, place.part, {wanted.item.col_begin, wanted.item.col_end}});
}

/// "a, b, c and 4 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > kShown ? fmt::format("{} and {} more", text, names.size() - kShown) : text;
}

void check_same_matrix(const StateItem& item, const StoredItem& stored, const std::string& path) {
  if (item.dtype != stored.dtype || item.rows != stored.rows || item.cols != stored.cols) {
    fail(ErrorCode::kCheckpoint,
         "{} is {} x {} {} in the checkpoint '{}' but {} x {} {} in this job: load it with the "
         "configuration it was written with (it is in the manifest)",
         item_name(item.parameter, item.kind), stored.rows, stored.cols, to_string(stored.dtype),
         path, item.rows, item.cols, to_string(item.dtype));
  }
}

Request match(std::span<StateSink* const> sinks,
              const std::vector<Place>& places,
              const std::string& path) {
  std::map<std::pair<std::string, std::string>, std::size_t> by_name;
  for (std::size_t i = 0; i < places.size(); ++i) {
    by_name.emplace(std::pair(places[i].matrix.parameter, places[i].matrix.kind), i);
  }
  Request request;
  request.asked.resize(places.size());
  std::vector<std::string> missing;
  for (StateSink* sink : sinks) {
    const auto items = sink->state_items();
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto found = by_name.find({items[i].parameter, items[i].kind});
      if (found == by_name.end()) {
        missing.push_back(item_name(items[i].parameter, items[i].kind));
        continue;
      }
      const Place& place = places[found->second];
      check_same_matrix(items[i], place.matrix, path);
      request.asked[found->second] = 1;
      const Wanted wanted{sink, i, items[i], place.index};
      if (place.is_row) {
        add_to_target(request.rows, wanted, place);
      } else {
        request.blocks.push_back(wanted);
      }
    }
  }
  if (!missing.empty()) {
    fail(ErrorCode::kCheckpoint,
         "the checkpoint '{}' does not hold {}, which this job has: it was written with another "
         "model or optimizer; load it with its own configuration (it is in the manifest)",
         path, some_of(missing));
  }
  return request;
}

std::int64_t bytes_to_read(const std::vector<Wanted>& wanted) {
  std::int64_t bytes = 0;
  for (const Wanted& one : wanted) {
    bytes +=
        one.item.held().size() * (one.item.col_end - one.item.col_begin) * size_of(one.item.dtype);
  }
  return bytes;
}

/// Whether the two have a row in common; true too for some that have none.
bool may_meet(const RowSet& a, const RowSet& b) {
  return std::max(a.begin, b.begin) < std::min(a.end, b.end) &&
         (a.begin - b.begin) % std::gcd(a.step, b.step) == 0;
}

/// The stored items that no rank asks for, on rank 0.
std::vector<std::size_t> find_extra(const Gathered& asked, std::size_t count) {
  std::vector<std::size_t> extra;
  for (std::size_t i = 0; i < count; ++i) {
    bool is_asked = false;
    for (std::size_t at = i; at < asked.bytes.size(); at += count) {
      is_asked = is_asked || asked.bytes[at] != std::byte{0};
    }
    if (!is_asked) {
      extra.push_back(i);
    }
  }
  return extra;
}

/// All ranks together must ask for every stored item that may not be left out. Returns whether they
/// ask for all.
bool check_extra(comm::Communicator& comm,
                 Context& ctx,
                 const LoadOptions& options,
                 const Request& request,
                 const std::vector<Place>& places) {
  const Gathered asked = gather_to_first(comm, ctx, std::as_bytes(std::span(request.asked)));
  std::string all = "1";
  agree(comm, ctx, [&](WorkProgress& /*progress*/) {
    if (comm.rank() != 0) {
      return;
    }
    std::vector<std::string> refused;
    for (const std::size_t i : find_extra(asked, places.size())) {
      all = "";
      const StoredItem& item = places[i].matrix;
      const auto& may = options.left_out;
      if (options.extra == ExtraItems::kRefuse &&
          std::find(may.begin(), may.end(), item.parameter) == may.end()) {
        refused.push_back(item_name(item.parameter, item.kind));
      }
    }
    if (!refused.empty()) {
      fail(ErrorCode::kCheckpoint,
           "the checkpoint '{}' also holds {}, which this job does not have: it was written with "
           "another model or optimizer; load it with its own configuration (it is in the manifest)",
           options.path, some_of(refused));
    }
  });
  share_text(comm, ctx, all);
  return !all.empty();
}

/// Reads chunks, checks them, and hands out what sinks want of them.
class Reader {
 public:
  Reader(io::FileSystem& system,
         const Manifest& manifest,
         std::string directory,
         WorkProgress& progress)
      : system_(system),
        manifest_(manifest),
        directory_(std::move(directory)),
        progress_(progress),
        files_(manifest.files.size()) {}

  void fill(const Wanted& wanted) {
    const StoredItem& stored = manifest_.items[wanted.stored];
    for (const StoredBlock& block : stored.blocks) {
      const bool meets = may_meet(wanted.item.held(), block.rows()) &&
                         std::max(wanted.item.col_begin, block.col_begin) <
                             std::min(wanted.item.col_end, block.col_end);
      if (meets) {
        fill_from(wanted, stored, block);
      }
    }
  }

 private:
  const InputFile& file(std::int64_t index) {
    auto& slot = files_[static_cast<std::size_t>(index)];
    if (slot == nullptr) {
      const DataFile& expected = manifest_.files[static_cast<std::size_t>(index)];
      const std::string path = join(directory_, expected.name);
      progress_.go_to(fmt::format("'{}'", path));
      slot = std::make_unique<InputFile>(system_, path);
      if (slot->bytes() != expected.bytes) {
        fail(ErrorCode::kCheckpoint,
             "'{}' has {} bytes, but {} were written; restore the checkpoint from a copy or resume "
             "from another one",
             slot->path(), slot->bytes(), expected.bytes);
      }
    }
    return *slot;
  }

  void fill_from(const Wanted& wanted, const StoredItem& stored, const StoredBlock& block) {
    const RowSet rows = block.rows();
    const std::int64_t row_end = std::min(wanted.item.row_end, block.row_end);
    const std::int64_t first =
        wanted.item.row_begin <= rows.begin ? 0 : rows.index(wanted.item.row_begin + rows.step - 1);
    for (std::int64_t chunk = first / block.chunk_rows;; ++chunk) {
      const std::int64_t begin = chunk * block.chunk_rows;
      if (rows.row(begin) >= row_end) {
        return;
      }
      const std::int64_t end = std::min(begin + block.chunk_rows, rows.size());
      read_chunk(stored, block, chunk, end - begin);
      hand_over(wanted, stored, block, {rows.row(begin), rows.row(end - 1) + 1, rows.step});
    }
  }

  void read_chunk(const StoredItem& stored,
                  const StoredBlock& block,
                  std::int64_t chunk,
                  std::int64_t rows) {
    const std::int64_t row_bytes = block_row_bytes(stored, block);
    const std::int64_t offset = block.offset + chunk * block.chunk_rows * row_bytes;
    const InputFile& from = file(block.file);
    chunk_.resize(static_cast<std::size_t>(rows * row_bytes));
    if (block.file != place_) {
      progress_.go_to(fmt::format("'{}'", from.path()));
      place_ = block.file;
    }
    from.read(offset, chunk_.data(), rows * row_bytes);
    progress_.move();
    const std::uint64_t checksum = hash_bytes(chunk_);
    const std::uint64_t expected = block.checksums[static_cast<std::size_t>(chunk)];
    if (checksum != expected) {
      fail(ErrorCode::kCheckpoint,
           "'{}' has changed: the {} bytes at offset {} ({}, rows from {}) have checksum {:016x}, "
           "but {:016x} was written; restore the checkpoint from a copy or resume from another one",
           from.path(), chunk_.size(), offset, item_name(stored.parameter, stored.kind),
           block.rows().row(chunk * block.chunk_rows), checksum, expected);
    }
  }

  /// What is wanted of a chunk, which has `rows`: their common rows are evenly spaced in both.
  void hand_over(const Wanted& wanted,
                 const StoredItem& stored,
                 const StoredBlock& block,
                 const RowSet& rows) {
    const RowSet held = wanted.item.held();
    std::int64_t first = 0;
    while (first < rows.size() && !held.contains(rows.row(first))) {
      ++first;
    }
    const std::int64_t step = std::lcm(rows.step, held.step);
    const RowSet common{rows.row(first), std::min(rows.end, held.end), step};
    const std::int64_t at_once = step == held.step ? common.size() : 1;
    for (std::int64_t i = 0; i < common.size(); i += at_once) {
      write(wanted, stored, block, {rows.index(common.row(i)), step / rows.step, at_once},
            common.row(i));
    }
  }

  /// Rows of a chunk: `count` from `first` on.
  struct ChunkRows {
    std::int64_t first = 0;
    std::int64_t step = 1;
    std::int64_t count = 0;
  };

  /// From row `row` of the whole matrix on, in the columns that are both stored and wanted.
  void write(const Wanted& wanted,
             const StoredItem& stored,
             const StoredBlock& block,
             const ChunkRows& rows,
             std::int64_t row) {
    const std::int64_t size = size_of(stored.dtype);
    const std::int64_t row_bytes = block_row_bytes(stored, block);
    const Range cols{std::max(wanted.item.col_begin, block.col_begin),
                     std::min(wanted.item.col_end, block.col_end)};
    const std::byte* from = chunk_.data() + rows.first * row_bytes;
    if (rows.step != 1 || cols.size() * size != row_bytes) {
      const std::int64_t cut_bytes = cols.size() * size;
      cut_.resize(static_cast<std::size_t>(rows.count * cut_bytes));
      for (std::int64_t r = 0; r < rows.count; ++r) {
        std::memcpy(cut_.data() + r * cut_bytes,
                    from + r * rows.step * row_bytes + (cols.begin - block.col_begin) * size,
                    static_cast<std::size_t>(cut_bytes));
      }
      from = cut_.data();
    }
    wanted.sink->write_state(wanted.index, row, rows.count, cols.begin, cols.end, from);
    progress_.add(rows.count * cols.size() * size);
  }

  io::FileSystem& system_;
  const Manifest& manifest_;
  std::string directory_;
  WorkProgress& progress_;
  std::vector<std::unique_ptr<InputFile>> files_;
  std::int64_t place_ = -1;  ///< the file that `progress_` names
  std::vector<std::byte> chunk_;
  std::vector<std::byte> cut_;
};

/// A manifest, its place, and the checksum that closes it.
struct Opened {
  std::string directory;
  Manifest manifest;
  std::uint64_t id = 0;
};

/// Every rank reads the manifest; all have the same.
Opened open_checkpoint(comm::Communicator& comm,
                       Context& ctx,
                       const std::string& path,
                       io::FileSystem& files) {
  Opened opened;
  agree(comm, ctx, [&](WorkProgress& progress) {
    progress.begin({.activity = "opening", .place = fmt::format("'{}'", path)});
    opened.directory = find_checkpoint(path, files);
    const std::string file = join(opened.directory, kManifestName);
    const std::string text = load_file(files, file, kMaxManifestBytes);
    opened.manifest = manifest_from_json(text, file);
    opened.id = manifest_id(text, file);
  });
  std::uint64_t first = opened.id;
  comm.broadcast(ctx, &first, sizeof first, 0);
  agree(comm, ctx, [&](WorkProgress& /*progress*/) {
    if (first != opened.id) {
      fail(ErrorCode::kCheckpoint,
           "ranks 0 and {} read different manifests from '{}': all ranks must see one directory",
           comm.world_rank(comm.rank()), path);
    }
  });
  return opened;
}

/// What has changed counts from this checkpoint on, where nothing of it was left out.
void mark_rows(std::span<StateSink* const> sinks, std::uint64_t id, Increments* increments) {
  for (StateSink* sink : sinks) {
    if (RowState* rows = sink->row_sink()) {
      rows->mark();
    }
  }
  if (increments != nullptr) {
    increments->base = id;
  }
}

}  // namespace

Manifest load(comm::Communicator& comm,
              Context& ctx,
              const LoadOptions& options,
              std::span<StateSink* const> sinks) {
  io::FileSystem& files = options.files != nullptr ? *options.files : io::real_file_system();
  const Opened opened = open_checkpoint(comm, ctx, options.path, files);
  const Manifest& manifest = opened.manifest;
  const std::vector<Place> places = places_of(manifest);
  Request request;
  agree(comm, ctx, [&](WorkProgress& /*progress*/) {
    request = match(sinks, places, opened.directory);
    check_initial_values(manifest, request.rows, opened.directory);
  });
  const bool all = check_extra(comm, ctx, options, request, places);
  agree(comm, ctx, [&](WorkProgress& progress) {
    progress.begin(
        {.activity = "reading",
         .place = fmt::format("'{}'", opened.directory),
         .total = bytes_to_read(request.blocks) + bytes_to_fill(manifest, request.rows)});
    Reader reader(files, manifest, opened.directory, progress);
    for (const Wanted& one : request.blocks) {
      reader.fill(one);
    }
    fill_rows(files, manifest, opened.directory, request.rows, progress);
  });
  if (options.increments != nullptr) {
    mark_rows(sinks, all && !manifest.segments.empty() ? opened.id : 0, options.increments);
  }
  return manifest;
}

}  // namespace weft::checkpoint
