// Where two checkpoints differ.
#include "weft/checkpoint/diff.h"

#include <bit>
#include <random>

#include <fmt/format.h>

#include "tests/checkpoint/tool_state.h"
#include "tests/io/faulty_file_system.h"

namespace weft::checkpoint {
namespace {

Difference compare_paths(const std::string& a, const std::string& b) {
  return compare(CheckpointReader(a), CheckpointReader(b));
}

/// Two checkpoints on a disk in memory.
struct TwoInMemory {
  io::FaultyFileSystem files;

  SaveOptions options(const char* name) { return memory_options(files, name, 10); }

  Difference compared() {
    return compare(CheckpointReader("/one", {.files = &files}),
                   CheckpointReader("/other", {.files = &files}));
  }
};

TEST(Diff, OtherCutsAreEqual) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_all(save_options(one.path(), 10), small_matrices(), 1, 3);
  save_all(save_options(other.path(), 10), small_matrices(), 7, 8);
  const Difference difference = compare_paths(one.path(), other.path());
  EXPECT_TRUE(difference.is_equal());
  EXPECT_EQ(difference.items_compared, std::ssize(small_matrices()));
  std::set<std::string> notes;
  for (const ValueDifference& note : difference.notes) {
    notes.insert(note.name);
  }
  EXPECT_EQ(notes, (std::set<std::string>{"job", "ranks"}));
  EXPECT_TRUE(says(to_text(difference, "x", "y"), {"equal: 7 items compared"}));
}

/// Elements drawn anywhere are found: their rows are counted, and the first is named.
TEST(Diff, NamesTheFirstAndCountsRows) {
  std::mt19937 random(3);
  std::uint32_t seed = 200;
  const std::vector<Matrix> matrices = small_matrices();
  for (int round = 0; round < 15; ++round) {
    std::map<std::string, std::set<std::pair<std::int64_t, std::int64_t>>> changed;  // by item
    std::set<Element> elements;
    for (unsigned n = 0; n <= random() % 6; ++n) {
      const Matrix& m = matrices[random() % (matrices.size() - 1)];  // not the empty one
      const Element element{m.parameter, m.kind,
                            static_cast<std::int64_t>(random() % static_cast<unsigned>(m.rows)),
                            static_cast<std::int64_t>(random() % static_cast<unsigned>(m.cols))};
      elements.insert(element);
      changed[m.parameter + " " + m.kind].emplace(element.row, element.col);
    }
    TwoInMemory two;
    save_all(two.options("/one"), matrices, ++seed, 1 + round % 4);
    save_changed(two.options("/other"), matrices, ++seed, 1 + round % 3, [&](MemoryState& state) {
      for (const Element& element : elements) {
        if (std::byte* const place = place_of(state, element)) {
          *place ^= std::byte{0x10};
        }
      }
    });
    const Difference difference = two.compared();
    EXPECT_TRUE(difference.metadata.empty());
    ASSERT_EQ(difference.items.size(), changed.size());
    for (const ItemDifference& item : difference.items) {
      const auto& places = changed.at(item.item);
      std::set<std::int64_t> rows;
      for (const auto& [row, col] : places) {
        rows.insert(row);
      }
      EXPECT_EQ(item.rows, std::ssize(rows));
      ASSERT_TRUE(item.first);
      EXPECT_EQ(std::pair(item.first->row, item.first->col), *places.begin());
      EXPECT_NE(item.first->a, item.first->b);
    }
  }
}

template <typename T>
std::string shown(DType dtype, T a, T b) {
  const Matrix m{"tables.a", "weight", dtype, 4, 3};
  const Element element{m.parameter, m.kind, 2, 1};
  TwoInMemory two;
  for (const auto& [name, value] : {std::pair("/one", a), std::pair("/other", b)}) {
    save_changed(two.options(name), {m}, 1, 1, [&, v = value](MemoryState& state) {
      std::memcpy(place_of(state, element), &v, sizeof v);
    });
  }
  const Difference difference = two.compared();
  return difference.is_equal() ? "equal" : to_text(difference, "A", "B");
}

TEST(Diff, ShowsBothValues) {
  const std::string where = "first difference: tables.a weight, row 2, column 1: ";
  EXPECT_TRUE(
      says(shown(DType::kFloat32, 0.5F, 0.25F), {where + "0.5 (3f000000) and 0.25 (3e800000)"}));
  EXPECT_TRUE(
      says(shown(DType::kFloat32, 0.0F, -0.0F), {where + "0 (00000000) and -0 (80000000)"}));
  EXPECT_TRUE(says(shown(DType::kBFloat16, BFloat16{0x3f80}, BFloat16{0xc000}),
                   {where + "1 (3f80) and -2 (c000)"}));
  EXPECT_TRUE(says(shown(DType::kFloat16, Float16{0x3c00}, Float16{0xc000}),
                   {where + "1 (3c00) and -2 (c000)"}));
  EXPECT_TRUE(says(shown(DType::kFloat64, 1.5, 2.5),
                   {where + "1.5 (3ff8000000000000) and 2.5 (4004000000000000)"}));
  EXPECT_TRUE(says(shown<std::int32_t>(DType::kInt32, -7, 8), {where + "-7 and 8"}));
  EXPECT_TRUE(says(shown<std::int64_t>(DType::kInt64, -7, 8), {where + "-7 and 8"}));
  EXPECT_TRUE(says(shown<std::uint8_t>(DType::kUInt8, 200, 8), {where + "200 and 8"}));
  const auto nan = std::bit_cast<float>(0x7fc00001U);
  EXPECT_EQ(shown(DType::kFloat32, nan, nan), "equal") << "bits are compared";
}

TEST(Diff, ItemsOfOneAloneAndOtherShapes) {
  const Matrix common{"tables.c", "weight", DType::kFloat32, 4, 3};
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_all(save_options(one.path(), 10),
           {{"tables.a", "weight", DType::kFloat32, 4, 3},
            {"tables.b", "weight", DType::kFloat32, 4, 3},
            common},
           1, 1);
  save_all(save_options(other.path(), 10),
           {{"tables.b", "weight", DType::kBFloat16, 4, 3},
            common,
            {"tables.b", "sum", DType::kFloat32, 4, 1}},
           1, 1);
  const Difference difference = compare_paths(one.path(), other.path());
  ASSERT_EQ(difference.items.size(), 3U);
  EXPECT_EQ(difference.items[0].item, "tables.a weight");
  EXPECT_EQ(difference.items[0].shape, "only in A: 4 x 3 fp32");
  EXPECT_EQ(difference.items[1].shape, "4 x 3 fp32 and 4 x 3 bf16");
  EXPECT_EQ(difference.items[2].item, "tables.b sum");
  EXPECT_EQ(difference.items[2].shape, "only in B: 4 x 1 fp32");
  EXPECT_EQ(difference.items_compared, 1);
}

std::string metadata_difference(const std::function<void(SaveOptions&)>& change) {
  TwoInMemory two;
  const Matrix m{"tables.a", "weight", DType::kFloat32, 4, 3};
  save_all(two.options("/one"), {m}, 1, 1);
  SaveOptions changed = two.options("/other");
  change(changed);
  save_all(changed, {m}, 1, 1);
  std::string out;
  for (const ValueDifference& value : two.compared().metadata) {
    out += fmt::format("{}: {} and {};", value.name, value.a, value.b);
  }
  return out;
}

TEST(Diff, MetadataThatDecidesResults) {
  EXPECT_EQ(metadata_difference([](SaveOptions&) {}), "");
  EXPECT_EQ(metadata_difference([](SaveOptions& o) { o.metadata.plan_hash = 8; }), "")
      << "who held what decides nothing";
  EXPECT_EQ(metadata_difference([](SaveOptions& o) { o.metadata.weft_version = "9"; }), "");
  EXPECT_EQ(metadata_difference(
                [](SaveOptions& o) { o.metadata.extra_json = R"({"best":0.5,"hosts":[0,1]})"; }),
            "");
  EXPECT_EQ(metadata_difference([](SaveOptions& o) { o.metadata.step = 11; }), "step: 10 and 11;");
  EXPECT_EQ(metadata_difference([](SaveOptions& o) { o.metadata.target = "avx3"; }),
            "target: avx2 and avx3;");
  EXPECT_EQ(metadata_difference([](SaveOptions& o) { o.metadata.parts = 4; }), "parts: 8 and 4;");
  EXPECT_EQ(metadata_difference([](SaveOptions& o) { o.metadata.row_draws = 2; }),
            "row_draws: 1 and 2;");
  EXPECT_EQ(metadata_difference([](SaveOptions& o) { o.metadata.extra_json = "{}"; }),
            "extra.best: 0.5 and none;");
  EXPECT_EQ(metadata_difference([](SaveOptions& o) { o.blobs.pop_back(); }),
            "blob empty: 0 bytes with checksum 2d06800538d394c2 and none;");
  EXPECT_TRUE(says(metadata_difference([](SaveOptions& o) {
                     o.metadata.data = DataIdentity{.format = "criteo", .files = {{5, 6}}};
                   }),
                   {"data: none and criteo, 1 files"}));
  EXPECT_TRUE(says(metadata_difference([](SaveOptions& o) { o.metadata.config_hash = 1; }),
                   {"config_hash: fedcba9876543210 and 0000000000000001"}));
}

/// Damage is not a difference.
TEST(Diff, DamageIsAnError) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_all(save_options(one.path(), 10), small_matrices(), 1, 1);
  save_all(save_options(other.path(), 10), small_matrices(), 1, 1);
  const std::string file = other.path() + "/step-00000010/rank-0000.bin";
  std::string bytes = file_bytes(file);
  bytes.back() ^= 1;
  set_file_bytes(file, bytes);
  EXPECT_TRUE(says(checkpoint_error([&] { compare_paths(one.path(), other.path()); }),
                   {"'" + file + "' has changed"}));
}

/// However many rows come at a time on either side.
TEST(Diff, WindowsNeedNotMeet) {
  const Matrix m{"tables.a", "weight", DType::kFloat32, 50, 3};
  std::vector<std::int64_t> all;
  for (std::int64_t row = 0; row < m.rows; ++row) {
    all.push_back(row);
  }
  for (const std::int64_t at_once : {1, 2, 7, 20, 100}) {
    MemoryItems a(7);
    MemoryItems b(at_once);
    a.add(m, all);
    b.add(m, all);
    for (const std::int64_t row : {5, 6, 7, 13, 14, 48, 49}) {
      b.rows(0).bytes[static_cast<std::size_t>(row * 12 + 11)] ^= std::byte{1};
    }
    Difference difference;
    compare_items(a, b, difference);
    ASSERT_EQ(difference.items.size(), 1U);
    EXPECT_EQ(difference.items[0].rows, 7);
    EXPECT_EQ(difference.items[0].rows_compared, 50);
    EXPECT_EQ(difference.items[0].first->row, 5);
    EXPECT_EQ(difference.items[0].first->col, 2);
  }
}

/// Listed rows in windows of other sizes.
TEST(Diff, ListedRowsMeetByTheirNumbers) {
  const Matrix m{"tables.a", "weight", DType::kFloat32, 50, 3};
  for (const std::int64_t at_once : {1, 2, 5, 100}) {
    MemoryItems a(3);
    MemoryItems b(at_once);
    a.add(m, {1, 3, 4, 7, 20, 21, 22, 49});
    b.add(m, {0, 3, 4, 8, 20, 21, 22});
    Difference difference;
    compare_items(a, b, difference);
    ASSERT_EQ(difference.items.size(), 1U);
    EXPECT_EQ(difference.items[0].rows_only_a, 3);
    EXPECT_EQ(difference.items[0].rows_only_b, 2);
    EXPECT_EQ(difference.items[0].rows, 5);
    EXPECT_FALSE(difference.items[0].first);
    b.rows(0).bytes[5 * 12 + 4] ^= std::byte{1};  // row 21, column 1
    difference = {};
    compare_items(a, b, difference);
    EXPECT_EQ(difference.items[0].rows, 6);
    ASSERT_TRUE(difference.items[0].first);
    EXPECT_EQ(difference.items[0].first->row, 21);
    EXPECT_EQ(difference.items[0].first->col, 1);
  }
}

}  // namespace
}  // namespace weft::checkpoint
