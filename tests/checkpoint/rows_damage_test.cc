// Damaged, foreign and strange segments and manifests of them.
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/json_walk.h"
#include "tests/checkpoint/memory_rows.h"
#include "tests/io/faulty_file_system.h"
#include "weft/checkpoint/row_reader.h"

namespace weft::checkpoint {
namespace {

/// A small checkpoint with two segments, in a file system in memory.
class RowDamage : public testing::Test {
 protected:
  void SetUp() override {
    options_ = save_options("/ck", 1);
    options_.files = &files_;
    options_.segment_bytes = 1;  // a segment for each batch
    comm::run_local(1, {}, [&](comm::Communicator& world) {
      Context ctx;
      MemoryRows rows(table_, {.rows = {0, 6}, .cols = {0, 3}, .sparse = true});
      MemoryRows others(other_, {.rows = {0, 3}, .cols = {0, 3}});
      for (const std::int64_t row : {1, 4}) {
        rows.update(row, 1);
      }
      const std::vector<const StateSource*> sources = {&rows, &others};
      save(world, ctx, options_, sources);
    });
    manifest_ = read_manifest("/ck", files_);
    for (const std::string& name : files_.list("/ck/rows").names) {
      segments_.push_back("/ck/rows/" + name);
    }
  }

  /// What reading the rows says, and the manifest before them.
  std::string error() {
    return checkpoint_error([&] {
      const Manifest manifest = read_manifest("/ck", files_);
      MemoryRows rows(table_, {.rows = {0, 6}, .cols = {0, 3}, .sparse = true});
      MemoryRows others(other_, {.rows = {0, 3}, .cols = {0, 3}});
      const std::vector<RowTarget> targets = {{&rows, 0, {0, 6}, {{0, 0, {0, 3}}}},
                                              {&others, 1, {0, 3}, {{0, 0, {0, 3}}}}};
      WorkProgress progress;
      check_initial_values(manifest, targets, "/ck");
      fill_rows({files_, manifest, "/ck/step-00000001"}, targets, progress);
      ASSERT_EQ(rows.differences({{{"rows.a", 1}, 1}, {{"rows.a", 4}, 1}}), 0);
      ASSERT_EQ(others.differences({}), 0);
    });
  }

  std::string read_all(const std::string& path) {
    std::string text;
    EXPECT_FALSE(io::read_file(files_, path, 1 << 20, text));
    return text;
  }

  void write_all(const std::string& path, const std::string& text) {
    EXPECT_FALSE(io::write_file(files_, path, text));
  }

  void write_manifest() {
    write_all("/ck/step-00000001/manifest.json", manifest_to_json(manifest_));
  }

  io::FaultyFileSystem files_;
  Table table_ = {"rows.a", 6, 3};
  Table other_ = {"rows.b", 3, 3};
  SaveOptions options_;
  Manifest manifest_;
  std::vector<std::string> segments_;
};

TEST_F(RowDamage, EveryFlippedByteIsFound) {
  ASSERT_EQ(error(), "NO ERROR");
  ASSERT_GE(segments_.size(), 2U);
  std::vector<std::string> paths = {segments_[0], segments_[1], "/ck/step-00000001/manifest.json"};
  for (const std::string& path : paths) {
    const std::string good = read_all(path);
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      write_all(path, bad);
      ASSERT_TRUE(says(error(), {"restore", "use a build"})) << path << " byte " << i;
    }
    write_all(path, good);
  }
  ASSERT_EQ(error(), "NO ERROR");
}

TEST_F(RowDamage, CutMissingAndForeignSegmentsAreNamed) {
  for (const std::string& path : segments_) {
    const std::string good = read_all(path);
    for (const std::size_t size : {std::size_t{0}, std::size_t{4096}, good.size() - 1}) {
      write_all(path, good.substr(0, size));
      EXPECT_TRUE(says(error(), {"'" + path + "'"})) << size;
    }
    write_all(path, good + std::string(4096, '\0'));
    EXPECT_TRUE(says(error(), {"'" + path + "'"}));
    EXPECT_FALSE(files_.remove(path));
    EXPECT_TRUE(says(error(), {"cannot open '" + path + "': it is missing"}));
    write_all(path, good);
  }
  // Sound ones of the same size in each other's place.
  const std::string first = read_all(segments_[0]);
  const std::string second = read_all(segments_[1]);
  ASSERT_EQ(first.size(), second.size());
  write_all(segments_[0], second);
  EXPECT_TRUE(says(error(), {"'" + segments_[0] + "' was written under another name"}));
  write_all(segments_[0], first);
  ASSERT_EQ(error(), "NO ERROR");
}

/// A well-sealed manifest that does not fit its segments.
TEST_F(RowDamage, AManifestOfOtherRowsIsRefused) {
  const Manifest good = manifest_;
  const auto message = [&](const std::function<void(Manifest&)>& change) {
    manifest_ = good;
    change(manifest_);
    write_manifest();
    return error();
  };
  EXPECT_EQ(message([](Manifest&) {}), "NO ERROR");
  EXPECT_TRUE(
      says(message([](Manifest& m) { m.segments[0].files[0].bytes += 4096; }), {"bytes, but"}));
  EXPECT_TRUE(says(message([](Manifest& m) { m.tables[0].items[0].kind = "weights"; }),
                   {"which the manifest does not know"}));
  EXPECT_TRUE(says(message([](Manifest& m) {
                     m.tables[1].rows = 2;
                     for (StreamCut& cut : m.layouts[0]) {
                       cut.rule.rows.end = std::min<std::int64_t>(
                           cut.rule.rows.end, m.tables[static_cast<std::size_t>(cut.table)].rows);
                     }
                   }),
                   {"has row 2 of rows.b, which has 2 rows"}));
  EXPECT_TRUE(says(message([](Manifest& m) { m.tables[0].ids = RowIds::kRaw; }), {"damaged"}));
  EXPECT_TRUE(says(message([](Manifest& m) {
                     m.tables[0].ids = RowIds::kRaw;
                     m.tables[0].rows = 0;
                   }),
                   {"have raw ids"}));
  EXPECT_TRUE(says(message([](Manifest& m) { m.layouts[0].clear(); }), {"cover 0 of"}));
  EXPECT_TRUE(
      says(message([](Manifest& m) { m.layouts[0].push_back(m.layouts[0][0]); }), {"overlap"}));
  EXPECT_TRUE(says(message([](Manifest& m) { m.segments[0].prefix = "../x"; }),
                   {"not a name of segments"}));
  EXPECT_TRUE(
      says(message([](Manifest& m) { m.segments.push_back(m.segments[0]); }), {"listed twice"}));
  EXPECT_TRUE(
      says(message([](Manifest& m) { m.segments[0].files.push_back(m.segments[0].files[0]); }),
           {"damaged"}));
}

/// A manifest with everything that version 4 has.
Manifest of_version_4() {
  Manifest manifest;
  manifest.metadata.lineage.job_id = 5;
  manifest.metadata.lineage.save_number = 2;
  manifest.files = {{"rank-0000.bin", 16}, {"rank-0001.bin", 24}, {"rank-0002.bin", 24}};
  StoredItem& item = manifest.items.emplace_back();
  item = {"dense.a", "residual", DType::kFloat32, 8, 2, {}};
  for (std::int64_t k = 0; k < 3; ++k) {
    const Range rows = piece(8, 3, k);
    item.blocks.push_back({.file = k,
                           .row_begin = rows.begin,
                           .row_end = rows.end,
                           .col_end = 2,
                           .chunk_rows = rows.size(),
                           .checksums = {static_cast<std::uint64_t>(k)}});
  }
  manifest.tables = {{.parameter = "rows.a",
                      .rows = 10,
                      .has_all_rows = true,
                      .initial = {"uniform", 3, 0.1F, 0.5F},
                      .items = {{"weight", DType::kFloat32, 32}, {"sum", DType::kFloat32, 1}},
                      .streams = {{{0, 16}, DType::kSplitBFloat16}, {{16, 32}, DType::kFloat32}}}};
  manifest.layouts = {
      {{0, 0, {.rows = {0, 10}, .cols = {0, 16}, .first_rank = 0, .rank_step = 2, .count = 4}},
       {0,
        1,
        {.rows = {0, 10},
         .cols = {16, 32},
         .first_rank = 1,
         .rank_step = 2,
         .count = 4,
         .by = CutBy::kModulo}}}};
  manifest.segments = {{"0123456789abcdef-1-0", 0, 10, 0, {{0, 0, 4096}, {1, 0, 8192}}},
                       {"0123456789abcdef-2-0", 0, 2, 1, {{1, 5, 4096}}}};
  return manifest;
}

TEST(RowManifest, IsTheSameReadBack) {
  const Manifest manifest = of_version_4();
  const std::string text = manifest_to_json(manifest);
  EXPECT_EQ(manifest_from_json(text, "m"), manifest);
  EXPECT_NE(text.find(R"("by": "range")"), std::string::npos) << "the item's blocks are a rule";
  EXPECT_EQ(text.find("blocks"), std::string::npos) << text;
}

TEST(RowManifest, EveryFieldIsChecked) {
  const Json good = [] {
    Json json = Json::parse(manifest_to_json(of_version_4()));
    json.erase("checksum");
    return json;
  }();
  const std::vector<Json> strange = {nullptr,
                                     true,
                                     -1,
                                     1.5,
                                     "x",
                                     Json::array(),
                                     Json::object(),
                                     9223372036854775807LL,
                                     18446744073709551615ULL,
                                     1 << 20,
                                     "0 0 4096 1",
                                     1e300};
  int refused = 0;
  int accepted = 0;
  for (const char* member : {"items", "tables", "layouts", "segments"}) {
    walk(good.at(member), Json::json_pointer(), [&](const Json::json_pointer& below) {
      const Json::json_pointer at = Json::json_pointer(std::string("/") + member) / below;
      for (const Json& value : strange) {
        Json bad = good;
        bad[at] = value;
        const std::string message =
            checkpoint_error([&] { manifest_from_json(seal_json(bad.dump(1)), "m"); });
        ASSERT_TRUE(says(message, {"NO ERROR", "damaged"})) << at << " = " << value;
        ++(message == "NO ERROR" ? accepted : refused);
      }
      if (good.at(at.parent_pointer()).is_object()) {
        Json bad = good;
        bad.at(at.parent_pointer()).erase(at.back());
        EXPECT_TRUE(says(checkpoint_error([&] { manifest_from_json(seal_json(bad.dump(1)), "m"); }),
                         {"missing", "damaged"}))
            << at;
      }
    });
  }
  EXPECT_GT(refused, 800);
  EXPECT_LT(accepted, 100) << "texts, and numbers of rows, ranks and bytes";
}

/// What a manifest of a regular cut has at most; docs/checkpoint_format.md has the same.
std::int64_t most_bytes(std::int64_t tables, std::int64_t cuts, std::int64_t segments) {
  return 4096 + 1024 * tables + 384 * cuts + 48 * segments;
}

/// 856 tables, half cut over all of 4,096 ranks and half over the eight of a host, a fourth by
/// columns too, with a full save of four segments a rank and the longest chain.
TEST(RowManifest, Of4096RanksAnd856TablesHasAFewMegabytes) {
  constexpr std::int64_t kManyRanks = 4096;
  constexpr std::int64_t kTables = 856;
  Manifest manifest;
  manifest.metadata.lineage.job_id = 5;
  manifest.metadata.lineage.save_number = 2;
  manifest.metadata.ranks = kManyRanks;
  RowLayout layout;
  for (std::int64_t t = 0; t < kTables; ++t) {
    StoredTable table{.parameter = fmt::format("tables.a_table_with_a_long_name_{:04}", t),
                      .rows = 1'000'000'000 + t,
                      .initial = {"uniform", 0xfedcba9876543210ULL, 0.0001F, 0.1F},
                      .items = {{"weight", DType::kFloat32, 128},
                                {"exp_avg", DType::kFloat32, 128},
                                {"exp_avg_sq", DType::kFloat32, 128}},
                      .streams = {}};
    const std::int64_t columns = t % 4 == 0 ? 4 : 1;
    const std::int64_t ranks = (t % 2 == 0 ? kManyRanks : 8) / columns;
    std::vector<RankBlock> blocks;
    for (std::int64_t c = 0; c < columns; ++c) {
      table.streams.push_back({piece(128, columns, c), DType::kSplitBFloat16});
      for (std::int64_t r = 0; r < ranks; ++r) {
        const RowSet rows =
            t % 3 == 0 ? RowSet(r, table.rows, ranks) : RowSet(piece(table.rows, ranks, r));
        blocks.push_back({r * columns + c + (t % 2) * 8 * (t % 512), rows, piece(128, columns, c)});
      }
    }
    for (const CutRule& rule : rules_of(blocks)) {
      const auto stream = std::find_if(table.streams.begin(), table.streams.end(),
                                       [&](const RowStream& one) { return one.cols == rule.cols; });
      layout.push_back({t, stream - table.streams.begin(), rule});
    }
    manifest.tables.push_back(std::move(table));
  }
  const auto cuts = static_cast<std::int64_t>(layout.size());
  EXPECT_LE(cuts, 2 * kTables) << "rules, and no line per rank";
  manifest.layouts.push_back(std::move(layout));
  const SaveOptions options;
  std::int64_t segments = 0;
  for (std::int64_t s = 0; s <= options.increment_count; ++s) {
    SegmentSet& set = manifest.segments.emplace_back();
    set.prefix = fmt::format("0123456789abcdef-{}-fedcba9876543210", 1000 + s);
    for (std::int64_t i = 0; i < (s == 0 ? options.writers : 1) * kManyRanks; ++i) {
      set.files.push_back({i % kManyRanks, i / kManyRanks, 1'073'741'824});
    }
    segments += static_cast<std::int64_t>(set.files.size());
  }
  const std::string text = manifest_to_json(manifest);
  const auto bytes = static_cast<std::int64_t>(text.size());
  RecordProperty("bytes", std::to_string(bytes));
  EXPECT_LE(bytes, most_bytes(kTables, cuts, segments));
  EXPECT_GE(bytes, most_bytes(kTables, cuts, segments) / 2) << "the formula is of this manifest";
  EXPECT_LE(most_bytes(kTables, cuts, segments), std::int64_t{16} << 20);
  EXPECT_EQ(manifest_from_json(text, "m"), manifest);
}

/// Random cuts of random owners: rules say the same as the list.
TEST(CutRules, SayTheSameAsTheBlocks) {
  std::mt19937 random(3);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
  };
  int regular = 0;
  for (int round = 0; round < 500; ++round) {
    const std::int64_t count = draw(1, 12);
    const std::int64_t rows = draw(1, 40);
    const std::int64_t columns = draw(1, 3);
    const bool by_step = draw(0, 1) == 0;
    const std::int64_t step = draw(1, 2);
    std::vector<RankBlock> blocks;
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t cuts = by_step ? std::min(count, rows) : count;
      for (std::int64_t i = 0; i < cuts; ++i) {
        const RowSet own = by_step ? RowSet(i, rows, cuts) : RowSet(piece(rows, cuts, i));
        blocks.push_back({i * step + c, own, piece(12, columns, c)});
      }
    }
    if (draw(0, 3) == 0) {
      std::swap(blocks.front().rank, blocks.back().rank);
    }
    const auto rules = rules_of(blocks);
    std::vector<RankBlock> expanded;
    for (const CutRule& rule : rules) {
      ASSERT_TRUE(rule.is_sound());
      for (std::int64_t i = 0; i < rule.count; ++i) {
        if (rule.block(i).rows.size() > 0) {
          expanded.push_back(rule.block(i));
        }
      }
    }
    std::erase_if(blocks, [](const RankBlock& block) { return block.rows.size() == 0; });
    EXPECT_TRUE(
        std::is_permutation(expanded.begin(), expanded.end(), blocks.begin(), blocks.end()));
    regular += std::cmp_equal(rules.size(), columns) ? 1 : 0;
  }
  EXPECT_GT(regular, 250);
  EXPECT_LT(regular, 500);
}

}  // namespace
}  // namespace weft::checkpoint
