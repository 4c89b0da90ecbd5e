#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/json_walk.h"
#include "tests/checkpoint/memory_state.h"

namespace weft::checkpoint {
namespace {

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_all(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// Few bytes, since every one of them is flipped.
std::vector<Matrix> tiny_matrices() {
  return {{"tables.a", "weight", DType::kFloat32, 5, 6},
          {"tables.a", "sum", DType::kFloat32, 5, 1},
          {"dense.0", "weight", DType::kBFloat16, 3, 7},
          {"dense.0", "exp_avg", DType::kFloat64, 2, 2}};
}

/// A small checkpoint, saved once, and what load() says of it.
class Damage : public testing::Test {
 protected:
  void SetUp() override {
    save_all(save_options(parent_.path(), 10), tiny_matrices(), 2, 2);
    directory_ = find_checkpoint(parent_.path());
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      files_.push_back(entry.path().string());
    }
  }

  /// Everything that a resuming job reads.
  void read_everything() {
    ASSERT_EQ(load_all({directory_}, tiny_matrices(), 3, 1), 0);
    for (const Blob& blob : save_options("", 0).blobs) {
      ASSERT_EQ(read_blob(directory_, blob.name), blob.bytes);
    }
  }

  std::string error() {
    return checkpoint_error([&] { read_everything(); });
  }

  Json manifest() {
    Json json = Json::parse(read_all(directory_ + "/manifest.json"));
    json.erase("checksum");
    return json;
  }

  TemporaryDirectory parent_;
  std::string directory_;
  std::vector<std::string> files_;
};

TEST_F(Damage, EveryFlippedByteIsFound) {
  read_everything();
  ASSERT_EQ(files_.size(), 5U);  // two ranks, two blobs, a manifest
  for (const std::string& path : files_) {
    const std::string good = read_all(path);
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      write_all(path, bad);
      // load() begins with the manifest, and refuses it as read_manifest() does.
      const std::string message = path.ends_with("manifest.json")
                                      ? checkpoint_error([&] { read_manifest(directory_); })
                                      : error();
      ASSERT_TRUE(says(message, {"restore", "use a build"})) << path << " byte " << i;
    }
    write_all(path, good);
  }
  read_everything();
}

TEST_F(Damage, CutLongAndMissingFilesAreNamed) {
  for (const std::string& path : files_) {
    const std::string good = read_all(path);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, good.size() / 2, good.size() - 1}) {
      if (size < good.size()) {
        write_all(path, good.substr(0, size));
        EXPECT_TRUE(says(error(), {"'" + path + "'"})) << size;
      }
    }
    write_all(path, good + "x");
    EXPECT_TRUE(says(error(), {"'" + path + "'"}));
    std::filesystem::remove(path);
    EXPECT_TRUE(
        says(error(), {path.ends_with("manifest.json") ? directory_ : "cannot open '" + path}));
    std::filesystem::create_directory(path);
    EXPECT_TRUE(says(error(), {"'" + path + "'"}));
    std::filesystem::remove(path);
    write_all(path, good);
  }
  read_everything();
}

TEST_F(Damage, AnotherVersionSaysSo) {
  Json json = manifest();
  json["version"] = kFormatVersion + 1;
  json["weft"] = "9.9";
  EXPECT_TRUE(
      says(checkpoint_error([&] { manifest_from_json(seal_json(json.dump(1)), "m"); }),
           {fmt::format("format version {}, written by Weft 9.9, but this build reads versions 1 "
                        "to {}",
                        kFormatVersion + 1, kFormatVersion)}));
}

/// A well-sealed manifest with one strange value is refused, or is a good one; nothing else.
TEST_F(Damage, EveryFieldIsChecked) {
  const Json good = manifest();
  const std::vector<Json> strange = {nullptr,
                                     true,
                                     -1,
                                     1.5,
                                     "x",
                                     Json::array(),
                                     Json::object(),
                                     9223372036854775807LL,
                                     18446744073709551615ULL,
                                     1 << 20};
  int refused = 0;
  int accepted = 0;
  walk(good, Json::json_pointer(), [&](const Json::json_pointer& at) {
    for (const Json& value : strange) {
      Json bad = good;
      bad[at] = value;
      const std::string message =
          checkpoint_error([&] { manifest_from_json(seal_json(bad.dump(1)), "m"); });
      ASSERT_TRUE(says(message, {"NO ERROR", "damaged", "format version"})) << at << " = " << value;
      ++(message == "NO ERROR" ? accepted : refused);
    }
    if (!at.empty() && good.at(at.parent_pointer()).is_object() && at.back() != "best" &&
        at.back() != "row_draws") {  // these may be missing
      Json bad = good;
      bad.at(at.parent_pointer()).erase(at.back());
      EXPECT_TRUE(says(checkpoint_error([&] { manifest_from_json(seal_json(bad.dump(1)), "m"); }),
                       {"missing", "damaged"}))
          << at;
    }
  });
  EXPECT_GT(refused, 500);
  // Texts and the step are free within their type.
  EXPECT_LT(accepted, 90) << "of " << refused;
}

/// Rows 0, 2, 4 and rows 1, 3 of a matrix of 5 x 2.
Manifest in_steps() {
  Manifest manifest;
  manifest.files = {{"rank-0000.bin", 24}, {"rank-0001.bin", 16}};
  StoredItem& item = manifest.items.emplace_back();
  item = {"tables.a", "weight", DType::kFloat32, 5, 2, {}};
  for (std::int64_t k = 0; k < 2; ++k) {
    item.blocks.push_back({.file = k,
                           .row_begin = k,
                           .row_end = 5,
                           .col_end = 2,
                           .chunk_rows = 2,
                           .checksums = std::vector<std::uint64_t>(k == 0 ? 2 : 1),
                           .row_step = 2});
  }
  return manifest;
}

TEST(Manifest, EveryFieldOfRowsInStepsIsChecked) {
  const Json good = [] {
    Json json = Json::parse(manifest_to_json(in_steps()));
    json.erase("checksum");
    return json;
  }();
  const auto message = [](const Json& json) {
    return checkpoint_error([&] { manifest_from_json(seal_json(json.dump(1)), "m"); });
  };
  EXPECT_EQ(message(good), "NO ERROR");
  const Json::json_pointer blocks("/items/0/blocks");
  for (std::size_t k = 0; k < 2; ++k) {
    for (const char* key : {"row_step", "row_begin", "row_end", "col_begin", "col_end",
                            "chunk_rows", "offset", "file", "checksums"}) {
      const Json::json_pointer at = blocks / k / key;
      for (const Json& value : {Json(nullptr), Json(-1), Json(0), Json(1), Json(2), Json(3),
                                Json(4), Json(6), Json(1.5), Json("x"), Json(1LL << 40),
                                Json(9223372036854775807LL), Json(18446744073709551615ULL)}) {
        Json bad = good;
        bad[at] = value;
        if (bad != good) {
          // The last of block 1's rows is 3, so it may end at 4 too.
          const bool same = k == 1 && std::string(key) == "row_end" && value == 4;
          EXPECT_EQ(message(bad) == "NO ERROR", same) << at << " = " << value;
        }
      }
      Json bad = good;
      bad[blocks / k].erase(key);
      EXPECT_TRUE(says(message(bad), {"damaged"})) << at;
    }
  }
}

/// With the identity of its data, and without any matrix.
Manifest with_data() {
  Manifest manifest;
  manifest.metadata.lineage.job_id = 5;
  manifest.metadata.lineage.save_number = 1;
  manifest.metadata.data = DataIdentity{.format = "criteo",
                                        .files = {{123456, 0xfedcba9876543210ULL}, {7, 8}},
                                        .max_samples = 5000,
                                        .samples = -1,
                                        .window = 65536,
                                        .shuffle_seed = 9};
  return manifest;
}

TEST(Manifest, KeepsTheIdentityOfTheData) {
  const Manifest good = with_data();
  EXPECT_EQ(manifest_from_json(manifest_to_json(good), "m"), good);
  EXPECT_EQ(Json::parse(manifest_to_json(good)).at("version"), 4);
  Manifest without = good;
  without.metadata.data.reset();
  EXPECT_EQ(manifest_from_json(manifest_to_json(without), "m"), without);
  EXPECT_FALSE(Json::parse(manifest_to_json(without)).contains("data"));
}

TEST(Manifest, EveryFieldOfTheDataIsChecked) {
  Json good = Json::parse(manifest_to_json(with_data()));
  good.erase("checksum");
  const auto message = [](const Json& json) {
    return checkpoint_error([&] { manifest_from_json(seal_json(json.dump(1)), "m"); });
  };
  EXPECT_EQ(message(good), "NO ERROR");
  for (const char* text : {"/data", "/data/format", "/data/max_samples", "/data/samples",
                           "/data/window", "/data/shuffle_seed", "/data/files", "/data/files/0",
                           "/data/files/1/bytes", "/data/files/1/fingerprint"}) {
    const Json::json_pointer at{text};
    for (const Json& value : {Json(nullptr), Json(-2), Json(1.5), Json(true), Json("xyz"),
                              Json(18446744073709551615ULL), Json({{"a", 1}})}) {
      Json bad = good;
      bad[at] = value;
      const bool fits = std::string(text) == "/data/format" && value.is_string();
      EXPECT_EQ(message(bad) == "NO ERROR", fits) << at << " = " << value;
      EXPECT_TRUE(fits || says(message(bad), {"damaged"})) << message(bad);
    }
    if (!at.parent_pointer().empty() && good.at(at.parent_pointer()).is_object()) {
      Json bad = good;
      bad.at(at.parent_pointer()).erase(at.back());
      EXPECT_TRUE(says(message(bad), {"missing"})) << at;
    }
  }
}

/// A reader that goes down by calls has no stack for these.
TEST(Manifest, NestingWithoutEndIsRefused) {
  const std::string good = manifest_to_json(in_steps());
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  for (const std::string key : {"extra", "version", "weft", "items"}) {
    std::string text = good.substr(0, good.rfind(",\n \"checksum\"")) + "\n}\n";
    const std::size_t begin = text.find("\"" + key + "\": ") + key.size() + 4;
    ASSERT_LT(begin, text.size());
    const std::size_t end =
        key == "extra" ? begin + 2 : text.find(key == "items" ? "\n]" : ",", begin);
    text.replace(begin, end - begin, key == "extra" ? "{\"a\": " + deep + "}" : deep);
    EXPECT_TRUE(says(checkpoint_error([&] { manifest_from_json(seal_json(text), "m"); }),
                     {"'m': nested more than 64 deep"}))
        << key;
  }
}

/// One file with blocks of a matrix of 4 x 4, which lie where they are given.
Manifest of_blocks(const std::vector<StoredBlock>& places) {
  Manifest manifest;
  StoredItem item{"tables.a", "weight", DType::kFloat32, 4, 4, {}};
  std::int64_t bytes = 0;
  for (StoredBlock block : places) {
    const std::int64_t rows = block.rows().size();
    block.offset = bytes;
    block.chunk_rows = rows;
    block.checksums.resize(1);
    bytes += 4 * rows * (block.col_end - block.col_begin);
    item.blocks.push_back(block);
  }
  manifest.files = {{"rank-0000.bin", bytes}};
  manifest.items.push_back(item);
  return manifest;
}

bool share_an_element(const StoredBlock& a, const StoredBlock& b) {
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t col = 0; col < 4; ++col) {
      const auto has = [&](const StoredBlock& block) {
        return block.rows().contains(row) && block.col_begin <= col && col < block.col_end;
      };
      if (has(a) && has(b)) {
        return true;
      }
    }
  }
  return false;
}

/// Random blocks against a look at every element.
TEST(Manifest, OverlapsAreFoundWhereverTheyAre) {
  std::mt19937 random(7);
  const auto draw = [&](std::int64_t low, std::int64_t high) {  // from low to high
    return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
  };
  int overlapping = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::int64_t step = draw(1, 2);
    std::vector<StoredBlock> blocks;
    bool overlap = false;
    for (std::int64_t n = draw(2, 5); n > 0; --n) {
      StoredBlock block{
          .row_begin = draw(0, 3), .col_begin = draw(0, 3), .checksums = {}, .row_step = step};
      block.row_end = draw(block.row_begin + 1, 4);
      block.col_end = draw(block.col_begin + 1, 4);
      for (const StoredBlock& other : blocks) {
        overlap |= share_an_element(block, other);
      }
      blocks.push_back(block);
    }
    const std::string message =
        checkpoint_error([&] { manifest_from_json(manifest_to_json(of_blocks(blocks)), "m"); });
    EXPECT_EQ(message.find("two blocks overlap") != std::string::npos, overlap) << message;
    overlapping += overlap ? 1 : 0;
  }
  EXPECT_GT(overlapping, 300);
  EXPECT_LT(overlapping, 2700);
}

TEST_F(Damage, BlocksMustFitTogether) {
  const Manifest good = read_manifest(directory_);
  const auto message = [&](const auto& change) {
    Manifest bad = good;
    change(bad);
    return checkpoint_error([&] { manifest_from_json(manifest_to_json(bad), "m"); });
  };
  EXPECT_EQ(message([](Manifest&) {}), "NO ERROR");
  EXPECT_TRUE(says(message([](Manifest& m) { m.items.push_back(m.items[0]); }), {"listed twice"}));
  EXPECT_TRUE(says(message([](Manifest& m) { m.items[0].blocks.push_back(m.items[0].blocks[0]); }),
                   {"overlap"}));
  EXPECT_TRUE(says(message([](Manifest& m) { m.items[0].blocks.clear(); }), {"cover 0 of"}));
  EXPECT_TRUE(says(message([](Manifest& m) { m.items[0].blocks[0].checksums.push_back(1); }),
                   {"checksums"}));
  EXPECT_TRUE(says(message([](Manifest& m) { m.items[0].blocks[0].file = 2; }), {"file 2 of 2"}));
  EXPECT_TRUE(says(message([](Manifest& m) { m.items[0].blocks[0].offset += 1; }),
                   {"outside", "was expected"}));
  EXPECT_TRUE(says(message([](Manifest& m) { m.files[0].bytes += 1; }), {"bytes of blocks in"}));
  EXPECT_TRUE(says(message([](Manifest& m) { m.files[0].name = "../../etc/passwd"; }),
                   {"not a name of a file"}));
  EXPECT_TRUE(
      says(message([](Manifest& m) { m.files[0].name = m.files[1].name; }), {"listed twice"}));
  EXPECT_TRUE(says(message([](Manifest& m) {
                     m.items[0].rows = std::int64_t{1} << 40;
                     m.items[0].cols = std::int64_t{1} << 40;
                   }),
                   {"a matrix of"}));
}

TEST_F(Damage, RandomTextIsRefused) {
  std::mt19937 random(1);
  const std::string good = read_all(directory_ + "/manifest.json");
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good.substr(0, good.size() - 40);
    for (unsigned n = 0; n <= random() % 3; ++n) {
      const std::size_t at = random() % bad.size();
      if (random() % 2 == 0) {
        bad[at] = static_cast<char>(random());
      } else {
        bad.erase(at, random() % 20);
      }
    }
    const std::string message = checkpoint_error([&] { manifest_from_json(seal_json(bad), "m"); });
    ASSERT_TRUE(says(message, {"NO ERROR", "damaged", "format version"})) << bad;
  }
}

}  // namespace
}  // namespace weft::checkpoint
