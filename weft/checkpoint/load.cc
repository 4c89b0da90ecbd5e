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

using Places = std::map<std::pair<std::string, std::string>, std::size_t>;

Places places_of(const Manifest& manifest) {
  Places places;
  for (std::size_t i = 0; i < manifest.items.size(); ++i) {
    places.emplace(std::pair(manifest.items[i].parameter, manifest.items[i].kind), i);
  }
  return places;
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

std::vector<Wanted> match(std::span<StateSink* const> sinks,
                          const Manifest& manifest,
                          const std::string& path) {
  const Places places = places_of(manifest);
  std::vector<Wanted> wanted;
  std::vector<std::string> missing;
  for (StateSink* sink : sinks) {
    const auto items = sink->state_items();
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto found = places.find({items[i].parameter, items[i].kind});
      if (found == places.end()) {
        missing.push_back(item_name(items[i].parameter, items[i].kind));
        continue;
      }
      check_same_matrix(items[i], manifest.items[found->second], path);
      wanted.push_back({sink, i, items[i], found->second});
    }
  }
  if (!missing.empty()) {
    fail(ErrorCode::kCheckpoint,
         "the checkpoint '{}' does not hold {}, which this job has: it was written with another "
         "model or optimizer; load it with its own configuration (it is in the manifest)",
         path, some_of(missing));
  }
  return wanted;
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

/// All ranks together must ask for every stored item. Equal on all ranks, so all throw alike.
void check_extra(comm::Communicator& comm,
                 Context& ctx,
                 const std::vector<Wanted>& wanted,
                 const Manifest& manifest,
                 const std::string& path,
                 const std::vector<std::string>& left_out) {
  const std::size_t count = manifest.items.size();
  std::vector<std::uint8_t> own(count);
  for (const Wanted& one : wanted) {
    own[one.stored] = 1;
  }
  const auto all = gather_values<std::uint8_t>(comm, ctx, own);
  std::vector<std::string> extra;
  for (std::size_t i = 0; i < count; ++i) {
    bool asked = false;
    for (std::size_t at = i; at < all.size(); at += count) {
      asked = asked || all[at] != 0;
    }
    const std::string& parameter = manifest.items[i].parameter;
    if (!asked && std::find(left_out.begin(), left_out.end(), parameter) == left_out.end()) {
      extra.push_back(item_name(parameter, manifest.items[i].kind));
    }
  }
  if (!extra.empty()) {
    fail(ErrorCode::kCheckpoint,
         "the checkpoint '{}' also holds {}, which this job does not have: it was written with "
         "another model or optimizer; load it with its own configuration (it is in the manifest)",
         path, some_of(extra));
  }
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

}  // namespace

Manifest load(comm::Communicator& comm,
              Context& ctx,
              const LoadOptions& options,
              std::span<StateSink* const> sinks) {
  io::FileSystem& files = options.files != nullptr ? *options.files : io::real_file_system();
  std::string directory;
  Manifest manifest;
  std::vector<Wanted> wanted;
  std::uint64_t text_hash = 0;
  agree(comm, ctx, [&](WorkProgress& progress) {
    progress.begin({.activity = "opening", .place = fmt::format("'{}'", options.path)});
    directory = find_checkpoint(options.path, files);
    manifest = read_manifest(directory, files);
    text_hash = hash_string(manifest_to_json(manifest));
  });
  const auto hashes = gather_values<std::uint64_t>(comm, ctx, std::span(&text_hash, 1));
  for (std::size_t r = 1; r < hashes.size(); ++r) {
    if (hashes[r] != hashes[0]) {
      fail(ErrorCode::kCheckpoint,
           "ranks 0 and {} read different manifests from '{}': all ranks must see one directory", r,
           options.path);
    }
  }
  agree(comm, ctx, [&](WorkProgress& /*progress*/) { wanted = match(sinks, manifest, directory); });
  if (options.extra == ExtraItems::kRefuse) {
    check_extra(comm, ctx, wanted, manifest, directory, options.left_out);
  }
  agree(comm, ctx, [&](WorkProgress& progress) {
    progress.begin({.activity = "reading",
                    .place = fmt::format("'{}'", directory),
                    .total = bytes_to_read(wanted)});
    Reader reader(files, manifest, directory, progress);
    for (const Wanted& one : wanted) {
      reader.fill(one);
    }
  });
  return manifest;
}

}  // namespace weft::checkpoint
