/// Chains of checkpoints whose tables are in segments, and what tools should read from them.
#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/checkpoint/memory_rows.h"
#include "tests/checkpoint/tool_state.h"
#include "weft/rowfile/segment_writer.h"

namespace weft::checkpoint {

/// Some ranks with a layout of their own, and how many times they save.
struct Leg {
  std::uint32_t seed = 1;
  int ranks = 1;
  Holding holding = Holding::kSparse;
  int saves = 1;
  bool in_files = false;  ///< a part of the rows lies in files, which are linked
};

/// A job that saves again and again, each time what has changed; every leg resumes from the one
/// before. Returns what the newest checkpoint has.
inline Versions save_chain(const std::string& directory,
                           const std::vector<Table>& tables,
                           const std::vector<Leg>& legs,
                           io::FileSystem* files = nullptr) {
  Versions now;
  std::int64_t step = 0;
  for (const Leg& leg : legs) {
    Folder folder({.directory = directory, .files = files});
    step == 0 ? folder.start_job() : folder.resume_job(directory);
    Versions after;
    comm::run_local(leg.ranks, {}, [&](comm::Communicator& world) {
      Context ctx;
      const RankTables own = make_tables(tables, leg.seed, leg.ranks, world.rank(), leg.holding);
      MemoryState dense = make_state(small_matrices(), leg.seed, leg.ranks, world.rank());
      dense.fill();
      std::optional<FileStore> store;
      if (leg.in_files) {
        use_store(own, store.emplace(*files, fmt::format("/store/{}", world.rank())));
      }
      Increments increments{.rows = rows_of(own)};
      if (step > 0) {
        auto sinks = sinks_of(own);
        sinks.push_back(&dense);
        load(world, ctx,
             {.path = directory, .left_out = {}, .files = files, .increments = &increments}, sinks);
      }
      auto sources = sources_of(own);
      sources.push_back(&dense);
      Versions mine = now;
      for (int i = 1; i <= leg.saves; ++i) {
        Versions next = mine;
        draw_updates(tables, leg.seed * 100 + static_cast<std::uint32_t>(i), 15, next);
        apply(own, mine, next);
        mine = next;
        for (const auto& table : own) {
          table->write_back([&](std::int64_t row) { return row % 3 == i % 3; });
        }
        if (store && i % 2 == 0) {
          store->clean();
        }
        SaveOptions options = save_options(directory, step + i);
        options.files = files;
        options.folder = &folder;
        options.increments = &increments;
        options.increment_share = 100;
        save(world, ctx, options, sources);
      }
      if (world.rank() == 0) {
        after = mine;
      }
    });
    now = after;
    step += leg.saves;
  }
  return now;
}

/// What a stream of an item should give: rows with a version alone where the table is sparse.
inline CopiedRows expected_rows(const Table& table,
                                const ItemInfo& item,
                                const Versions& versions,
                                bool sparse,
                                const Range& range) {
  MemoryRows whole(table, {.rows = {0, table.rows}, .cols = {0, table.cols}, .sparse = true});
  std::size_t index = 0;
  while (whole.state_items()[index].kind != item.kind) {
    ++index;
  }
  CopiedRows out;
  for (std::int64_t row = std::max<std::int64_t>(range.begin, 0);
       row < std::min(range.end, table.rows); ++row) {
    const int version = version_of(versions, table.name, row);
    if (version > 0) {
      whole.update(row, version);
    } else if (sparse) {
      continue;
    }
    out.ids.push_back(row);
    const std::size_t begin = out.bytes.size();
    out.bytes.resize(begin + static_cast<std::size_t>(item.row_bytes()));
    whole.read_state(index, row, 1, out.bytes.data() + begin);
  }
  return out;
}

/// How many items of tables, or ranges of them, are not as they should be.
inline int wrong_items(const CheckpointReader& reader,
                       const std::vector<Table>& tables,
                       const Versions& versions,
                       bool sparse) {
  std::mt19937 random(9);
  int wrong = 0;
  for (std::size_t i = reader.block_items(); i < reader.items().size(); ++i) {
    const ItemInfo& item = reader.items()[i];
    const Table& table = *std::find_if(
        tables.begin(), tables.end(), [&](const Table& one) { return one.name == item.parameter; });
    const CopiedRows all = expected_rows(table, item, versions, sparse, kAllRows);
    const bool is_whole = std::ssize(all.ids) == table.rows;
    wrong += item.stored_rows == std::ssize(all.ids) ? 0 : 1;
    wrong += (item.form == RowForm::kAll) == is_whole ? 0 : 1;
    wrong += copy_rows(reader, i, kAllRows) == all ? 0 : 1;
    for (int n = 0; n < 3; ++n) {
      const auto begin = static_cast<std::int64_t>(random() % static_cast<unsigned>(table.rows));
      const Range range{begin, begin + 1 + static_cast<std::int64_t>(random() % 50)};
      wrong += copy_rows(reader, i, range) == expected_rows(table, item, versions, sparse, range)
                   ? 0
                   : 1;
    }
  }
  return wrong;
}

inline const Table kSmall{"rows.a", 100, 8, DType::kFloat32, RowExtra::kOfRow};

/// Saves rows [0, 10) of the small table, and adds two segments by hand: row 1 goes; 2 goes and
/// comes back behind its tombstone, 3 comes and goes, 4 and 5 come back in the next segment, 5 to
/// go once more, and 6 comes twice.
inline Versions save_tombstones(const std::string& directory) {
  Versions versions;
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryRows rows(kSmall, {.rows = {0, 100}, .cols = {0, 8}, .sparse = true});
    const StateSource* source = &rows;
    for (std::int64_t row = 0; row < 10; ++row) {
      rows.update(row, 1);
      versions[{"rows.a", row}] = 1;
    }
    save(world, ctx, save_options(directory, 1), std::span(&source, 1));
  });
  Manifest manifest = read_manifest(directory);
  const std::uint64_t key = stream_key(manifest.tables[0], manifest.tables[0].streams[0]);
  for (int number = 0; number < 2; ++number) {
    SegmentSet set;
    set.prefix = fmt::format("abc-{}", number);
    SegmentFile file;
    const std::string name = segment_name(set.prefix, file);
    rowfile::SegmentWriter writer(io::real_file_system(), directory + "/rows/" + name,
                                  {{name_key(name), 1}, {key, 36}});
    const auto append = [&](std::int64_t row, int version) {
      MemoryRows other(kSmall, {.rows = {0, 100}, .cols = {0, 8}, .sparse = true});
      other.update(row, version);
      std::vector<std::byte> packed(36);
      other.read_rows(std::span(&row, 1), packed.data());
      const auto id = static_cast<std::uint64_t>(row);
      writer.append(1, std::span(&id, 1), packed);
    };
    const auto remove = [&](std::uint64_t id) { writer.remove(1, std::span(&id, 1)); };
    if (number == 0) {
      append(3, 2);
      for (const std::uint64_t id : {1, 2, 3, 4, 5}) {
        remove(id);
      }
      append(2, 3);
    } else {
      append(4, 5);
      append(5, 5);
      append(6, 5);
      append(6, 6);
      remove(5);
    }
    set.rows = writer.rows();
    set.tombstones = writer.tombstones();
    file.bytes = writer.bytes();
    writer.seal();
    set.files = {file};
    manifest.segments.push_back(set);
  }
  set_file_bytes(directory + "/step-00000001/manifest.json", manifest_to_json(manifest));
  for (const std::int64_t row : {1, 3, 5}) {
    versions.erase({"rows.a", row});
  }
  versions[{"rows.a", 2}] = 3;
  versions[{"rows.a", 4}] = 5;
  versions[{"rows.a", 6}] = 6;
  return versions;
}

}  // namespace weft::checkpoint
