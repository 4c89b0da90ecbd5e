// Rows of a checkpoint as streams, and whether all of it is as it was written.
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/tool_state.h"
#include "tests/io/faulty_file_system.h"
#include "weft/checkpoint/inspect.h"

namespace weft::checkpoint {
namespace {

std::vector<std::int64_t> numbers(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = begin; i < end; ++i) {
    out.push_back(i);
  }
  return out;
}

TEST(Reader, JoinsRowsHoweverTheyAreCut) {
  std::uint32_t seed = 100;
  for (const int ranks : {1, 2, 3, 4, 6, 8}) {
    for (int round = 0; round < 4; ++round) {
      const TemporaryDirectory directory;
      save_all(save_options(directory.path(), 10), small_matrices(), ++seed, ranks);
      std::int64_t read = 0;
      const CheckpointReader reader(directory.path(),
                                    {.on_read = [&](std::int64_t bytes) { read += bytes; }});
      ASSERT_EQ(reader.items().size(), small_matrices().size());
      for (std::size_t i = 0; i < reader.items().size(); ++i) {
        const ItemInfo& item = reader.items()[i];
        EXPECT_EQ(item.form, RowForm::kAll);
        EXPECT_EQ(item.stored_rows, item.rows);
        const CopiedRows rows = copy_rows(reader, i, kAllRows);
        EXPECT_EQ(rows.ids, numbers(0, item.rows));
        EXPECT_EQ(rows.bytes, expected_bytes(item))
            << item.parameter << " of " << ranks << " ranks, seed " << seed;
      }
      EXPECT_EQ(read, reader.stored_bytes() - 4) << "every byte once, but those of the blob";
    }
  }
}

/// Every range of every item, of chunks of one row and of three.
TEST(Reader, AnyRangeOfSmallChunks) {
  std::uint32_t seed = 300;
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for (const std::int64_t chunk : {1, 3}) {
      const TemporaryDirectory directory;
      save_all(save_options(directory.path(), 10), small_matrices(), ++seed, ranks);
      cut_chunks(find_checkpoint(directory.path()), chunk);
      const CheckpointReader reader(directory.path());
      static_cast<void>(reader.verify());
      for (std::size_t i = 0; i < reader.items().size(); ++i) {
        const ItemInfo& item = reader.items()[i];
        const std::vector<std::byte> all = expected_bytes(item);
        for (std::int64_t begin = 0; begin < item.rows; ++begin) {
          for (std::int64_t end = begin + 1; end <= item.rows; end += 1 + end % 3) {
            const CopiedRows rows = copy_rows(reader, i, {begin, end});
            ASSERT_EQ(rows.ids, numbers(begin, end));
            ASSERT_TRUE(std::equal(rows.bytes.begin(), rows.bytes.end(),
                                   all.begin() + begin * item.row_bytes(),
                                   all.begin() + end * item.row_bytes()))
                << item.parameter << " rows " << begin << " to " << end << ", seed " << seed;
          }
        }
      }
    }
  }
}

/// Cut so that windows, chunks, blocks and ranges all end at other rows.
std::vector<Matrix> matrices_of_many_chunks() {
  return {{"tables.big", "weight", DType::kFloat32, 3001, 1000},
          {"tables.wide", "weight", DType::kUInt8, 2, 9 << 20}};
}

TEST(Reader, ManyChunksAndRanges) {
  std::mt19937 random(5);
  for (const std::uint32_t seed : {3U, 8U, 11U}) {
    io::FaultyFileSystem files;
    save_all(memory_options(files, "/ck", 1), matrices_of_many_chunks(), seed, 2);
    const CheckpointReader reader("/ck", {.files = &files});
    for (std::size_t i = 0; i < reader.items().size(); ++i) {
      const ItemInfo& item = reader.items()[i];
      const std::vector<std::byte> all = expected_bytes(item);
      std::vector<Range> ranges{{0, item.rows}, kAllRows, {item.rows, item.rows + 5}, {1, 2}};
      for (int n = 0; n < 4; ++n) {
        const auto begin = static_cast<std::int64_t>(random() % static_cast<unsigned>(item.rows));
        ranges.push_back({begin, begin + 1 + static_cast<std::int64_t>(random() % 900)});
      }
      for (const Range& range : ranges) {
        const std::int64_t begin = std::max<std::int64_t>(range.begin, 0);
        const std::int64_t end = std::min(range.end, item.rows);
        const CopiedRows rows = copy_rows(reader, i, range);
        ASSERT_EQ(rows.ids, numbers(begin, end));
        ASSERT_TRUE(begin >= end || std::equal(rows.bytes.begin(), rows.bytes.end(),
                                               all.begin() + begin * item.row_bytes(),
                                               all.begin() + end * item.row_bytes()))
            << item.parameter << " rows " << begin << " to " << end << ", seed " << seed;
      }
    }
  }
}

TEST(Reader, HoldsAFewMegabytesAtATime) {
  io::FaultyFileSystem files;
  save_all(memory_options(files, "/ck", 1), matrices_of_many_chunks(), 3, 2);
  const CheckpointReader reader("/ck", {.files = &files});
  for (std::size_t i = 0; i < reader.items().size(); ++i) {
    const std::int64_t most = std::max<std::int64_t>(8 << 20, reader.items()[i].row_bytes());
    int calls = 0;
    reader.for_each_rows(i, [&](const StoredRows& rows) {
      EXPECT_LE(std::ssize(rows.bytes), most);
      ++calls;
    });
    EXPECT_EQ(calls, 2);
  }
}

/// More files than are kept open at once, all of them needed for every row range.
TEST(Reader, MoreFilesThanAreOpenAtOnce) {
  const Matrix m{"tables.a", "weight", DType::kFloat32, 1000, 3};
  const int ranks = 150;
  const TemporaryDirectory directory;
  Manifest manifest;
  manifest.metadata = save_options("", 7).metadata;
  StoredItem item{m.parameter, m.kind, m.dtype, m.rows, m.cols, {}};
  for (int k = 0; k < ranks; ++k) {
    const RowSet rows(k, m.rows, ranks);
    MemoryState state;
    state.add(m, rows, {0, 3}, 1);
    state.fill();
    std::string bytes(static_cast<std::size_t>(rows.size() * 12), '\0');
    state.read_state(0, k, rows.size(), bytes.data());
    manifest.files.push_back({fmt::format("f{}", k), std::ssize(bytes)});
    item.blocks.push_back({k, 0, k, m.rows, 0, 3, rows.size(), {hash_string(bytes)}, ranks});
    set_file_bytes(directory.path() + "/" + manifest.files.back().name, bytes);
  }
  manifest.items.push_back(item);
  set_file_bytes(directory.path() + "/manifest.json", manifest_to_json(manifest));
  const CheckpointReader reader(directory.path());
  EXPECT_EQ(reader.format_version(), 2);
  EXPECT_EQ(copy_rows(reader, 0, kAllRows).bytes, expected_bytes(reader.items()[0]));
  EXPECT_EQ(copy_rows(reader, 0, {77, 80}).ids, numbers(77, 80));
  EXPECT_EQ(reader.verify().chunks, ranks);
}

/// A small checkpoint every byte of which is flipped.
class ReaderDamage : public testing::Test {
 protected:
  void SetUp() override {
    save_all(save_options(parent_.path(), 10),
             {{"tables.a", "weight", DType::kFloat32, 5, 6},
              {"tables.a", "sum", DType::kFloat32, 5, 1},
              {"dense.0", "weight", DType::kBFloat16, 3, 7},
              {"dense.0", "exp_avg", DType::kFloat64, 2, 2}},
             2, 2);
    directory_ = find_checkpoint(parent_.path());
    cut_chunks(directory_, 2);
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      files_.push_back(entry.path().string());
    }
  }

  std::string verify_error() {
    return checkpoint_error([&] { static_cast<void>(CheckpointReader(directory_).verify()); });
  }

  /// Of reading all rows and blobs as streams.
  std::string stream_error() {
    return checkpoint_error([&] {
      const CheckpointReader reader(directory_);
      for (std::size_t i = 0; i < reader.items().size(); ++i) {
        reader.for_each_rows(i, [](const StoredRows&) {});
      }
      for (std::size_t b = 0; b < reader.manifest().blobs.size(); ++b) {
        reader.for_each_blob_bytes(b, [](std::span<const std::byte>) {});
      }
    });
  }

  TemporaryDirectory parent_;
  std::string directory_;
  std::vector<std::string> files_;
};

TEST_F(ReaderDamage, EveryFlippedByteIsFound) {
  EXPECT_EQ(verify_error(), "NO ERROR");
  EXPECT_EQ(stream_error(), "NO ERROR");
  ASSERT_EQ(files_.size(), 5U);  // two ranks, two blobs, a manifest
  for (const std::string& path : files_) {
    const std::size_t size = file_bytes(path).size();
    for (std::size_t i = 0; i < size; ++i) {
      flip_bits(path, i, 1 << (i % 8));
      const std::string message = verify_error();
      ASSERT_TRUE(says(message, {"restore", "use a build"})) << path << " byte " << i;
      ASSERT_TRUE(says(message, {"'" + path + "'"}));
      ASSERT_TRUE(says(stream_error(), {"restore", "use a build"})) << path << " byte " << i;
      flip_bits(path, i, 1 << (i % 8));
    }
  }
  EXPECT_EQ(verify_error(), "NO ERROR");
}

TEST_F(ReaderDamage, OffsetItemAndRowsAreNamed) {
  const CheckpointReader reader(directory_);
  const Manifest& manifest = reader.manifest();
  int chunks = 0;
  for (const StoredItem& item : manifest.items) {
    for (const StoredBlock& block : item.blocks) {
      const std::string path =
          directory_ + "/" + manifest.files[static_cast<std::size_t>(block.file)].name;
      const std::string good = file_bytes(path);
      const RowSet rows = block.rows();
      const std::int64_t row_bytes = (block.col_end - block.col_begin) * size_of(item.dtype);
      for (std::int64_t first = 0; first < rows.size(); first += block.chunk_rows) {
        const std::int64_t offset = block.offset + first * row_bytes;
        const std::int64_t last = std::min(first + block.chunk_rows, rows.size()) - 1;
        std::string bad = good;
        bad[static_cast<std::size_t>(offset)] ^= 1;
        set_file_bytes(path, bad);
        EXPECT_TRUE(says(verify_error(),
                         {fmt::format("bytes at offset {} ({} {}, rows {} to {}, columns {} to {})",
                                      offset, item.parameter, item.kind, rows.row(first),
                                      rows.row(last), block.col_begin, block.col_end - 1)}));
        EXPECT_EQ(verify_error(), stream_error());
        set_file_bytes(path, good);
        ++chunks;
      }
    }
  }
  EXPECT_GE(chunks, 9);
}

TEST_F(ReaderDamage, CutLongAndMissingFilesAreNamed) {
  for (const std::string& path : files_) {
    const std::string good = file_bytes(path);
    for (const std::string& bad : {std::string(), good + "x", good.substr(0, good.size() / 2)}) {
      if (bad == good) {
        continue;
      }
      set_file_bytes(path, bad);
      EXPECT_TRUE(says(verify_error(), {"'" + path + "'"}));
      EXPECT_TRUE(says(stream_error(), {"'" + path + "'"}));
    }
    std::filesystem::remove(path);
    EXPECT_TRUE(says(verify_error(),
                     {path.ends_with("manifest.json") ? directory_ : "cannot open '" + path}));
    set_file_bytes(path, good);
  }
  EXPECT_EQ(verify_error(), "NO ERROR");
}

/// A chunk of which one row is wanted is checked from its begin to its end, and no other is.
TEST_F(ReaderDamage, ARangeChecksTheChunksThatItMeets) {
  const CheckpointReader reader(directory_);
  for (std::size_t i = 0; i < reader.items().size(); ++i) {
    const StoredItem& item = reader.manifest().items[i];
    for (const StoredBlock& block : item.blocks) {
      const std::string path =
          directory_ + "/" + reader.manifest().files[static_cast<std::size_t>(block.file)].name;
      const std::string good = file_bytes(path);
      const RowSet rows = block.rows();
      const std::int64_t row_bytes = (block.col_end - block.col_begin) * size_of(item.dtype);
      for (std::int64_t damaged = 0; damaged < rows.size(); ++damaged) {
        std::string bad = good;
        bad[static_cast<std::size_t>(block.offset + damaged * row_bytes)] ^= 1;
        set_file_bytes(path, bad);
        for (std::int64_t wanted = 0; wanted < rows.size(); ++wanted) {
          const std::int64_t row = rows.row(wanted);
          const bool is_met = damaged / block.chunk_rows == wanted / block.chunk_rows;
          EXPECT_TRUE(says(checkpoint_error([&] { copy_rows(reader, i, {row, row + 1}); }),
                           {is_met ? "has changed" : "NO ERROR"}));
        }
        set_file_bytes(path, good);
      }
    }
  }
}

TEST(Verify, SaysWhatWasChecked) {
  const TemporaryDirectory directory;
  save_all(save_options(directory.path(), 10), small_matrices(), 5, 3);
  const CheckpointReader reader(directory.path());
  Verified verified = reader.verify();
  EXPECT_EQ(verified.files, 3);
  EXPECT_EQ(verified.blobs, 2);
  EXPECT_EQ(verified.blob_bytes, 4);
  EXPECT_EQ(verified.bytes + verified.blob_bytes, reader.stored_bytes());
  EXPECT_EQ(verified.manifest_bytes, std::ssize(file_bytes(reader.directory() + "/manifest.json")));
  EXPECT_TRUE(verified.strangers.empty());
  set_file_bytes(reader.directory() + "/notes.txt", "of a person");
  verified = reader.verify();
  EXPECT_EQ(verified.strangers, std::vector<std::string>{"notes.txt"});
}

TEST(Verify, EarlierVersions) {
  for (const int version : {1, 2}) {
    const CheckpointReader reader(earlier_checkpoint(version));
    EXPECT_EQ(reader.format_version(), version);
    EXPECT_EQ(reader.verify().files, version);
  }
  const CheckpointReader one(earlier_checkpoint(1));
  const CheckpointReader two(earlier_checkpoint(2));
  ASSERT_EQ(one.items().size(), two.items().size());
  for (std::size_t i = 0; i < one.items().size(); ++i) {
    for (std::size_t k = 0; k < two.items().size(); ++k) {
      if (one.items()[i].parameter == two.items()[k].parameter &&
          one.items()[i].kind == two.items()[k].kind) {
        EXPECT_EQ(copy_rows(one, i, kAllRows), copy_rows(two, k, kAllRows));
      }
    }
  }
}

TEST(Inspect, ShowsTheManifest) {
  const TemporaryDirectory directory;
  save_all(save_options(directory.path(), 10), small_matrices(), 5, 3);
  save_all(save_options(directory.path(), 20), small_matrices(), 6, 2);
  const CheckpointReader first(directory.path() + "/step-00000010");
  const CheckpointReader reader(directory.path());
  const std::string text = inspect_text(reader);
  const std::string id = fmt::format("{:016x}", first.id());
  for (const std::string& part :
       {reader.directory(), std::string("step         20, epoch 3, 12,345 of its samples read"),
        "save 2, parent step-00000010 (id " + id + ")", std::string("tables.a weight"),
        std::string("blob-vocabularies"), std::string("rank-0001.bin"),
        std::string("7 items, 2 data files, 2 blobs"), std::string("fedcba9876543210")}) {
    EXPECT_TRUE(says(text, {part})) << part;
  }
  const auto json = nlohmann::json::parse(inspect_json(reader));
  EXPECT_EQ(json.at("step"), 20);
  EXPECT_EQ(json.at("job").at("parent").at("id"), id);
  EXPECT_EQ(json.at("format_version"), 4);
  EXPECT_EQ(json.at("config"), "seed: 1\nname: \"ü\"\n");
  EXPECT_EQ(json.at("items").size(), 7U);
  EXPECT_EQ(json.at("items")[0].at("rows_listed"), false);
  std::int64_t bytes = 0;
  for (const auto& item : json.at("items")) {
    bytes += item.at("bytes").get<std::int64_t>();
  }
  EXPECT_EQ(bytes, 13 * 20 * 4 + 13 * 4 + 33 * 2 + 35 * 4 + 35 * 8 + 120);
  EXPECT_EQ(json.at("bytes").get<std::int64_t>(),
            bytes + 4 + json.at("manifest_bytes").get<std::int64_t>());
}

TEST(Inspect, OfAVersionWithoutJobs) {
  const CheckpointReader reader(earlier_checkpoint(1));
  EXPECT_TRUE(says(inspect_text(reader), {"not known: format versions 1 and 2 name none"}));
  EXPECT_TRUE(nlohmann::json::parse(inspect_json(reader)).at("job").is_null());
}

}  // namespace
}  // namespace weft::checkpoint
