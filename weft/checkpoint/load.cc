#include <algorithm>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/block_reader.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/linked_rows.h"
#include "weft/checkpoint/row_reader.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

/// What this rank asks for.
struct Request {
  std::vector<BlockTarget> blocks;
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
void add_to_target(std::vector<RowTarget>& targets, const BlockTarget& wanted, const Place& place) {
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
      const BlockTarget wanted{sink, i, items[i], place.index};
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
  comm.share(ctx, all, 0);
  return !all.empty();
}

/// What has changed counts from this checkpoint on, where nothing of it was left out.
void mark_rows(std::span<StateSink* const> sinks, std::uint64_t id, Increments* increments) {
  std::vector<RowFiles*> below;
  for (StateSink* sink : sinks) {
    if (RowState* rows = sink->row_sink()) {
      rows->mark();
      below.push_back(rows->files());
    }
  }
  mark_files(below);
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
  const OpenedCheckpoint opened = open_checkpoint(comm, ctx, options.path, files);
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
    const LoadSource source{
        files, manifest, opened.directory, {options.readers, options.reader_bytes}};
    fill_blocks(source, request.blocks, progress);
    fill_rows(source, request.rows, progress);
  });
  if (options.increments != nullptr) {
    mark_rows(sinks, all && !manifest.segments.empty() ? opened.id : 0, options.increments);
  }
  return manifest;
}

}  // namespace weft::checkpoint
