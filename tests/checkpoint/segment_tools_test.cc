// Tools on checkpoints whose tables are in segments: chains of increments, tombstones, any layout.
#include <nlohmann/json.hpp>

#include "tests/checkpoint/segment_chain.h"
#include "tests/io/faulty_file_system.h"
#include "weft/checkpoint/diff.h"
#include "weft/checkpoint/inspect.h"
#include "weft/checkpoint/reshard.h"

namespace weft::checkpoint {
namespace {

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

/// A chain of which some files were made by stores that are gone: everything reads it.
TEST(SegmentTools, ReadFilesThatAreLinked) {
  std::uint32_t seed = 700;
  const std::vector<Table> tables = small_tables();
  int linked = 0;
  for (const int ranks : {1, 2, 3}) {
    io::FaultyFileSystem files;
    const std::vector<Leg> legs = {{++seed, ranks, Holding::kSparse, 5, true},
                                   {++seed, 4 - ranks, Holding::kSparse, 3, true}};
    const Versions versions = save_chain("/ck", tables, legs, &files);
    EXPECT_TRUE(files.list("/store/0").names.empty());
    const CheckpointReader reader("/ck", {.files = &files});
    for (const SegmentSet& set : reader.manifest().segments) {
      for (const SegmentFile& file : set.files) {
        linked += file.key != 0 ? 1 : 0;
      }
    }
    EXPECT_EQ(wrong_items(reader, tables, versions, true), 0) << ranks << " ranks, seed " << seed;
    const Verified verified = reader.verify();
    EXPECT_TRUE(verified.strangers.empty());
    EXPECT_TRUE(says(inspect_text(reader), {"chain: a full set and 7 increments"}));
    // The same state, all of whose rows have been written.
    std::vector<Leg> copied = legs;
    copied[0].in_files = copied[1].in_files = false;
    save_chain("/copied", tables, copied, &files);
    EXPECT_TRUE(compare(reader, CheckpointReader("/copied", {.files = &files})).is_equal());
    reshard(reader, {.directory = "/cut", .files = 3, .weft_version = "9", .system = &files});
    const CheckpointReader cut("/cut", {.files = &files});
    EXPECT_EQ(wrong_items(cut, tables, versions, true), 0);
    EXPECT_TRUE(compare(reader, cut).is_equal());
    static_cast<void>(cut.verify());
  }
  EXPECT_GT(linked, 20);
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
