// Tools on checkpoints whose tables are in segments: chains of increments, tombstones, any layout.
#include <optional>
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/memory_rows.h"
#include "tests/checkpoint/tool_state.h"
#include "tests/io/faulty_file_system.h"
#include "weft/checkpoint/diff.h"
#include "weft/checkpoint/inspect.h"
#include "weft/checkpoint/reshard.h"
#include "weft/rowfile/segment_writer.h"

namespace weft::checkpoint {
namespace {

/// Some ranks with a layout of their own, and how many times they save.
struct Leg {
  std::uint32_t seed = 1;
  int ranks = 1;
  Holding holding = Holding::kSparse;
  int saves = 1;
};

/// A job that saves again and again, each time what has changed; every leg resumes from the one
/// before. Returns what the newest checkpoint has.
Versions save_chain(const std::string& directory,
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
CopiedRows expected_rows(const Table& table,
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
int wrong_items(const CheckpointReader& reader,
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

TEST(SegmentTools, StreamsHaveTheLatestOfEachRow) {
  std::uint32_t seed = 500;
  const std::vector<Table> tables = small_tables();
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Holding holding : {Holding::kSparse, Holding::kDense}) {
      io::FaultyFileSystem files;
      const Versions versions = save_chain(
          "/ck", tables, {{++seed, ranks, holding, 3}, {++seed, 5 - ranks, holding, 2}}, &files);
      std::int64_t read = 0;
      const CheckpointReader reader(
          "/ck", {.files = &files, .on_read = [&](std::int64_t bytes) { read += bytes; }});
      EXPECT_EQ(reader.manifest().segments.size(), 5U);
      EXPECT_EQ(wrong_items(reader, tables, versions, holding == Holding::kSparse), 0)
          << ranks << " ranks, seed " << seed;
      EXPECT_GT(wrong_items(reader, tables, {}, holding == Holding::kSparse), 0) << "the control";
      read = 0;
      const Verified verified = reader.verify();
      EXPECT_EQ(read, reader.stored_bytes());
      EXPECT_GE(verified.segments, 5);
      EXPECT_TRUE(verified.strangers.empty());
    }
  }
}

/// More rows than a window has, in several segments.
TEST(SegmentTools, ManyWindows) {
  const std::vector<Table> tables = {{"rows.a", 6000, 700, DType::kFloat32, RowExtra::kOfRow}};
  io::FaultyFileSystem files;
  const Versions versions = save_chain("/ck", tables, {{3, 2, Holding::kDense, 2}}, &files);
  const CheckpointReader reader("/ck", {.files = &files});
  const std::size_t weight = reader.block_items();
  int calls = 0;
  reader.for_each_rows(weight, [&](const StoredRows& rows) {
    EXPECT_LE(std::ssize(rows.bytes), 8 << 20);
    ++calls;
  });
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(copy_rows(reader, weight, kAllRows) ==
              expected_rows(tables[0], reader.items()[weight], versions, false, kAllRows));
}

const Table kSmall{"rows.a", 100, 8, DType::kFloat32, RowExtra::kOfRow};

/// Saves rows [0, 10) of the small table, and adds two segments by hand: row 1 goes; 2 goes and
/// comes back behind its tombstone, 3 comes and goes, 4 and 5 come back in the next segment, 5 to
/// go once more, and 6 comes twice.
Versions save_tombstones(const std::string& directory) {
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

TEST(SegmentTools, TombstonesRemoveWhatIsBeforeThem) {
  const TemporaryDirectory directory;
  const TemporaryDirectory other;
  const Versions versions = save_tombstones(directory.path());
  const CheckpointReader reader(directory.path());
  EXPECT_EQ(reader.items().at(0).stored_rows, 7);
  EXPECT_EQ(wrong_items(reader, {kSmall}, versions, true), 0);
  EXPECT_EQ(reader.verify().segment_rows, 10 + 2 + 4);
  reshard(reader, {.directory = other.path(), .files = 3, .weft_version = "9"});
  const CheckpointReader cut(other.path());
  EXPECT_EQ(wrong_items(cut, {kSmall}, versions, true), 0);
  ASSERT_EQ(cut.manifest().segments.size(), 1U);
  EXPECT_EQ(cut.manifest().segments[0].rows, 7);
  EXPECT_EQ(cut.manifest().segments[0].tombstones, 0);
  // The control: where tombstones are not looked for.
  Manifest manifest = reader.manifest();
  manifest.segments[1].tombstones = 0;
  manifest.segments[2].tombstones = 0;
  set_file_bytes(directory.path() + "/step-00000001/manifest.json", manifest_to_json(manifest));
  const CheckpointReader wrong(directory.path());
  EXPECT_GT(wrong_items(wrong, {kSmall}, versions, true), 0);
  EXPECT_TRUE(
      says(checkpoint_error([&] { static_cast<void>(wrong.verify()); }),
           {"the segments abc-0-* have 2 rows and 5 tombstones, but 2 and 0 were written"}));
}

TEST(SegmentTools, EveryFlippedByteIsFound) {
  const TemporaryDirectory directory;
  save_tombstones(directory.path());
  const CheckpointReader reader(directory.path());
  const auto verify = [&] { return checkpoint_error([&] { static_cast<void>(reader.verify()); }); };
  EXPECT_EQ(verify(), "NO ERROR");
  int segments = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path() + "/rows")) {
    const std::string path = entry.path().string();
    const std::size_t size = file_bytes(path).size();
    // Every byte of what is not padding, and of that some: blocks are long.
    const std::string bytes = file_bytes(path);
    for (std::size_t i = 0; i < size; ++i) {
      if (bytes[i] == 0 && i % 16 != 5) {
        continue;
      }
      flip_bits(path, i, 1 << (i % 8));
      ASSERT_TRUE(says(verify(), {"'" + path + "'"})) << path << " byte " << i;
      flip_bits(path, i, 1 << (i % 8));
    }
    for (const std::string& bad : {std::string(), bytes + "x", bytes.substr(0, size / 2)}) {
      set_file_bytes(path, bad);
      EXPECT_TRUE(says(verify(), {"'" + path + "'"}));
    }
    std::filesystem::remove(path);
    EXPECT_TRUE(says(verify(), {"cannot open '" + path + "': it is missing"}));
    set_file_bytes(path, bytes);
    ++segments;
  }
  EXPECT_EQ(segments, 3);
  EXPECT_EQ(verify(), "NO ERROR");
}

/// A row is checked with its group whenever it is read, and nothing is handed out before.
TEST(SegmentTools, StreamsCheckWhatTheyRead) {
  const TemporaryDirectory directory;
  save_tombstones(directory.path());
  const CheckpointReader reader(directory.path());
  const std::string path = directory.path() + "/rows/abc-1-0-0.rows";
  const auto block = static_cast<std::size_t>(rowfile::kBlockBytes);
  flip_bits(path, block + 20, 1);
  EXPECT_TRUE(says(checkpoint_error([&] { copy_rows(reader, 0, {6, 7}); }), {"'" + path + "'"}));
  EXPECT_EQ(checkpoint_error([&] { copy_rows(reader, 0, {7, 100}); }), "NO ERROR");
}

TEST(SegmentTools, RowsThatShouldBeThereAreMissed) {
  const TemporaryDirectory directory;
  save_chain(directory.path(), {kSmall}, {{1, 2, Holding::kDense, 2}});
  const std::string path = find_checkpoint(directory.path()) + "/manifest.json";
  const Manifest good = read_manifest(directory.path());
  Manifest bad = good;
  bad.segments.erase(bad.segments.begin());
  set_file_bytes(path, manifest_to_json(bad));
  const CheckpointReader reader(directory.path());
  EXPECT_TRUE(says(checkpoint_error([&] { copy_rows(reader, reader.block_items(), kAllRows); }),
                   {"of rows.a is in no segment, and all should be"}));
  set_file_bytes(path, manifest_to_json(good));
  set_file_bytes(directory.path() + "/rows/" + good.segments[0].prefix + "-0-77.rows", "x");
  set_file_bytes(directory.path() + "/rows/another-0-77.rows", "x");
  EXPECT_EQ(CheckpointReader(directory.path()).verify().strangers,
            std::vector<std::string>{"rows/" + good.segments[0].prefix + "-0-77.rows"});
}

TEST(SegmentTools, AReshardIsOneFullSet) {
  std::uint32_t seed = 700;
  const std::vector<Table> tables = small_tables();
  for (const Holding holding : {Holding::kSparse, Holding::kDense}) {
    for (const std::int64_t files : {1, 2, 5, 70}) {
      io::FaultyFileSystem system;
      const Versions versions =
          save_chain("/ck", tables, {{++seed, 3, holding, 2}, {++seed, 2, holding, 1}}, &system);
      const CheckpointReader from("/ck", {.files = &system});
      reshard(from, {.directory = "/cut", .files = files, .weft_version = "9", .system = &system});
      const CheckpointReader cut("/cut", {.files = &system});
      ASSERT_EQ(cut.manifest().segments.size(), 1U);
      EXPECT_LE(std::ssize(cut.manifest().segments[0].files), files);
      EXPECT_EQ(wrong_items(cut, tables, versions, holding == Holding::kSparse), 0);
      EXPECT_TRUE(cut.verify().strangers.empty());
      EXPECT_TRUE(compare(from, cut).is_equal());
      std::atomic<std::int64_t> wrong = 0;
      comm::run_local(3, {}, [&](comm::Communicator& world) {
        Context ctx;
        const RankTables own = make_tables(tables, 77, 3, world.rank(), holding);
        MemoryState dense = make_state(small_matrices(), 77, 3, world.rank());
        auto sinks = sinks_of(own);
        sinks.push_back(&dense);
        load(world, ctx, {.path = "/cut", .left_out = {}, .files = &system}, sinks);
        wrong += differences(own, versions) + dense.differences();
      });
      EXPECT_EQ(wrong, 0);
    }
  }
}

/// A job that goes on from it adds increments to the new set.
TEST(SegmentTools, AJobGoesOnFromAReshard) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_chain(one.path(), {kSmall}, {{1, 2, Holding::kSparse, 2}});
  reshard(CheckpointReader(one.path()),
          {.directory = other.path(), .files = 3, .weft_version = "9"});
  Folder folder({.directory = other.path()});
  folder.resume_job(other.path());
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryRows rows(kSmall, {.rows = {0, 100}, .cols = {0, 8}, .sparse = true});
    Increments increments{.rows = {&rows}};
    StateSink* sink = &rows;
    load(world, ctx,
         {.path = other.path(),
          .extra = ExtraItems::kIgnore,
          .left_out = {},
          .increments = &increments},
         std::span(&sink, 1));
    rows.update(50, 9);
    SaveOptions options = save_options(other.path(), 9);
    options.folder = &folder;
    options.increments = &increments;
    options.increment_share = 100;
    const StateSource* source = &rows;
    save(world, ctx, options, std::span(&source, 1));
  });
  const CheckpointReader last(other.path());
  ASSERT_EQ(last.manifest().segments.size(), 2U);
  EXPECT_EQ(last.manifest().segments[1].rows, 1);
  EXPECT_FALSE(says(checkpoint_error([&] { static_cast<void>(last.verify()); }), {"restore"}));
}

/// A small chain on a disk that fails and forgets, and its cut.
class SegmentFaults : public testing::Test {
 protected:
  static void begin(io::FaultyFileSystem& files) {
    save_chain("/ck", {{"rows.a", 9, 8}}, {{1, 1, Holding::kDense, 2}}, &files);
  }

  static bool try_cut(io::FaultyFileSystem& files) {
    try {
      reshard(CheckpointReader("/ck", {.files = &files}),
              {.directory = "/cut", .files = 2, .weft_version = "1", .system = &files});
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCheckpoint) << error.what();
      return false;
    }
  }

  static std::vector<io::Call> calls() {
    io::FaultyFileSystem files;
    begin(files);
    files.set_hook([](const io::Call&) { return io::Verdict{}; });
    EXPECT_TRUE(try_cut(files));
    return files.calls();
  }

  /// Empty where the cut is whole, or is not there and a second one succeeds.
  static std::string find_fault_in(io::FaultyFileSystem& files, bool done) {
    try {
      const bool is_there = !list_checkpoints("/cut", files).empty();
      if (done && !is_there) {
        return "it has returned, and is not there";
      }
      if (!is_there && !try_cut(files)) {
        return "a second call fails";
      }
      const CheckpointReader from("/ck", {.files = &files});
      const CheckpointReader cut("/cut", {.files = &files});
      if (const auto strangers = cut.verify().strangers; !strangers.empty()) {
        return "there is " + strangers.front();
      }
      if (files.list("/cut/rows").names.size() != 2) {
        return "segments are left";
      }
      return compare(from, cut).is_equal() ? "" : "it has other bytes";
    } catch (const Error& error) {
      return error.what();
    }
  }
};

TEST_F(SegmentFaults, AReshardEndedAnywhereIsWholeOrNotThere) {
  const std::int64_t count = std::ssize(calls());
  for (std::int64_t at = 0; at <= count; at += 1) {
    io::FaultyFileSystem files;
    begin(files);
    files.set_hook([at](const io::Call& call) {
      return call.index < at ? io::Verdict{} : io::Verdict{io::Verdict::What::kFail, EIO};
    });
    const bool done = try_cut(files);
    files.set_hook({});
    files.crash(at % 3 == 0   ? io::Survival::kNothing
                : at % 3 == 1 ? io::Survival::kAll
                              : io::Survival::kSome,
                static_cast<std::uint32_t>(at));
    EXPECT_EQ(find_fault_in(files, done), "") << "ended at call " << at;
  }
}

/// Negative control: the crashes find a sync of segments or their names that is left out.
TEST_F(SegmentFaults, WithoutAnyOneSyncOfSegmentsSomethingIsLost) {
  int syncs = 0;
  for (const io::Call& call : calls()) {
    const bool is_sync =
        call.kind == io::CallKind::kSync || call.kind == io::CallKind::kSyncDirectory;
    if (!is_sync || call.path.find("/cut/rows") == std::string::npos) {
      continue;
    }
    ++syncs;
    io::FaultyFileSystem files;
    begin(files);
    files.set_hook([&](const io::Call& now) {
      return now.index == call.index ? io::Verdict{io::Verdict::What::kIgnore} : io::Verdict{};
    });
    EXPECT_TRUE(try_cut(files));
    files.set_hook({});
    files.crash(io::Survival::kNothing);
    // Of a segment's two syncs the second has what the first had not.
    const bool is_first_of_two = call.kind == io::CallKind::kSync && syncs % 2 == 1;
    if (!is_first_of_two) {
      EXPECT_NE(find_fault_in(files, true), "") << "without the sync of " << call.path;
    }
  }
  EXPECT_EQ(syncs, 5) << "two segments, twice each, and their directory";
}

/// A row that one alone has stored counts, and is said to.
TEST(SegmentTools, DiffOfDenseAndSparseTables) {
  io::FaultyFileSystem files;
  const std::vector<Table> tables = {kSmall};
  const Versions versions = save_chain("/dense", tables, {{1, 1, Holding::kDense, 1}}, &files);
  save_chain("/sparse", tables, {{1, 1, Holding::kSparse, 1}}, &files);
  const CheckpointReader dense("/dense", {.files = &files});
  const CheckpointReader sparse("/sparse", {.files = &files});
  const Difference difference = compare(dense, sparse);
  ASSERT_EQ(difference.items.size(), 2U) << "weight and sum";
  EXPECT_EQ(difference.items[0].rows_only_a, 100 - std::ssize(versions));
  EXPECT_EQ(difference.items[0].rows_only_b, 0);
  EXPECT_EQ(difference.items[0].rows, 100 - std::ssize(versions));
  EXPECT_FALSE(difference.items[0].first);
  EXPECT_TRUE(difference.metadata.empty());
  EXPECT_TRUE(
      says(to_text(difference, "A", "B"), {"they count as different, also where they are"}));
  EXPECT_TRUE(compare(sparse, sparse).is_equal());
}

/// Rows that neither has are other rows where they are made by another rule.
TEST(SegmentTools, DiffOfInitialValues) {
  io::FaultyFileSystem files;
  Table other = kSmall;
  other.initial.key = 78;
  save_chain("/a", {kSmall}, {{1, 1, Holding::kSparse, 1}}, &files);
  save_chain("/b", {other}, {{1, 1, Holding::kSparse, 1}}, &files);
  const Difference difference =
      compare(CheckpointReader("/a", {.files = &files}), CheckpointReader("/b", {.files = &files}));
  ASSERT_EQ(difference.metadata.size(), 1U);
  EXPECT_EQ(difference.metadata[0].name, "initial values of rows.a");
}

TEST(SegmentTools, InspectShowsTheChain) {
  io::FaultyFileSystem files;
  const Versions versions = save_chain("/ck", {kSmall}, {{1, 2, Holding::kSparse, 3}}, &files);
  const CheckpointReader reader("/ck", {.files = &files});
  const std::string text = inspect_text(reader);
  EXPECT_TRUE(says(text, {"chain: a full set and 2 increments"})) << text;
  EXPECT_TRUE(says(text, {reader.manifest().segments[1].prefix + "-*"}));
  const auto json = nlohmann::json::parse(inspect_json(reader));
  EXPECT_EQ(json.at("segments").size(), 3U);
  const auto& item = json.at("items").back();
  EXPECT_EQ(item.at("parameter"), "rows.a");
  EXPECT_EQ(item.at("in_segments"), true);
  EXPECT_EQ(item.at("rows_stored"), std::ssize(versions));
}

}  // namespace
}  // namespace weft::checkpoint
