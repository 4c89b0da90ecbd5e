// Safetensors files, read back by what the format's own description says.
#include "weft/checkpoint/export.h"

#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/segment_chain.h"
#include "tests/checkpoint/tool_state.h"
#include "tests/io/faulty_file_system.h"
#include "weft/checkpoint/file.h"

namespace weft::checkpoint {
namespace {

using Json = nlohmann::json;
using io::FaultyFileSystem;
using io::Verdict;
using What = io::Verdict::What;

struct ReadTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
  std::string file;
  std::int64_t begin = 0;
};

using ReadTensors = std::map<std::string, ReadTensor>;

/// The tensors of one file, all of whose bytes must belong to one.
void read_safetensors(const std::string& name, const std::string& text, ReadTensors& out) {
  ASSERT_GE(text.size(), 8U);
  std::uint64_t header = 0;
  for (int i = 7; i >= 0; --i) {
    header = header << 8 | static_cast<unsigned char>(text[static_cast<std::size_t>(i)]);
  }
  EXPECT_EQ(header % 8, 0U);
  ASSERT_LE(header + 8, text.size());
  const Json json = Json::parse(text.substr(8, header));
  EXPECT_EQ(text[8], '{');
  std::map<std::int64_t, std::int64_t> spans;
  for (const auto& [key, value] : json.items()) {
    if (key == "__metadata__") {
      EXPECT_EQ(value.at("step"), "7");
      continue;
    }
    const auto begin = value.at("data_offsets")[0].get<std::int64_t>();
    const auto end = value.at("data_offsets")[1].get<std::int64_t>();
    ReadTensor tensor{value.at("dtype"), value.at("shape"),
                      text.substr(8 + header + static_cast<std::size_t>(begin),
                                  static_cast<std::size_t>(end - begin)),
                      name, begin};
    EXPECT_EQ(std::ssize(tensor.bytes), end - begin);
    EXPECT_TRUE(out.emplace(key, std::move(tensor)).second) << key;
    if (begin < end) {
      EXPECT_TRUE(spans.emplace(begin, end).second);
    }
  }
  std::int64_t at = 0;
  for (const auto& [begin, end] : spans) {
    EXPECT_EQ(begin, at);
    at = end;
  }
  EXPECT_EQ(static_cast<std::size_t>(at) + 8 + header, text.size());
}

/// All tensors of an exported folder; the index must name them all, and all files be in it.
ReadTensors read_export(const std::string& directory,
                        io::FileSystem& files = io::real_file_system()) {
  const auto text_of = [&](const std::string& name) {
    return load_file(files, directory + "/" + name, 1 << 30);
  };
  const Json index = Json::parse(text_of("model.safetensors.index.json"));
  std::set<std::string> names;
  for (const auto& [tensor, file] : index.at("weight_map").items()) {
    names.insert(file.get<std::string>());
  }
  EXPECT_EQ(files.list(directory).names.size(), names.size() + 1);
  ReadTensors tensors;
  for (const std::string& name : names) {
    read_safetensors(name, text_of(name), tensors);
  }
  EXPECT_EQ(index.at("weight_map").size(), tensors.size());
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(index.at("weight_map").at(name), tensor.file);
    bytes += std::ssize(tensor.bytes);
  }
  EXPECT_EQ(index.at("metadata").at("total_size"), bytes);
  return tensors;
}

std::string text_of_bytes(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ExportOptions export_options(const std::string& directory) {
  return {.directory = directory, .metadata = {{"step", "7"}}};
}

TEST(Export, AllTypesByTheirNames) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  const std::vector<std::pair<Matrix, std::string>> matrices = {
      {{"tables.a", "weight", DType::kFloat32, 13, 20}, "tables.a.weight"},
      {{"tables.a", "sum", DType::kFloat32, 13, 1}, "tables.a.sum"},
      {{"tables.b", "weight", DType::kBFloat16, 1, 33}, "tables.b.weight"},
      {{"tables.h", "weight", DType::kFloat16, 3, 5}, "tables.h.weight"},
      {{"dense.top.0.weight", "weight", DType::kFloat32, 7, 5}, "dense.top.0.weight"},
      {{"dense.top.0.bias", "weight", DType::kFloat32, 1, 7}, "dense.top.0.bias"},
      {{"dense.top.0.bias", "exp_avg", DType::kFloat64, 1, 7}, "dense.top.0.bias.exp_avg"},
      {{"tables.c", "weight", DType::kUInt8, 40, 3}, "tables.c.weight"},
      {{"tables.i", "weight", DType::kInt32, 4, 3}, "tables.i.weight"},
      {{"tables.d", "weight", DType::kInt64, 0, 4}, "tables.d.weight"}};
  std::vector<Matrix> plain;
  for (const auto& [m, name] : matrices) {
    plain.push_back(m);
  }
  save_all(save_options(one.path(), 10), plain, 3, 3);
  const CheckpointReader reader(one.path());
  for (const std::int64_t shard_bytes :
       {std::int64_t{1}, std::int64_t{150}, std::int64_t{1200}, std::int64_t{4} << 30}) {
    ExportOptions options = export_options(fmt::format("{}/below/{}", other.path(), shard_bytes));
    options.shard_bytes = shard_bytes;
    const Exported exported = export_safetensors(reader, options);
    const ReadTensors tensors = read_export(options.directory);
    EXPECT_EQ(exported.tensors, std::ssize(matrices));
    ASSERT_EQ(tensors.size(), matrices.size());
    std::map<std::string, std::pair<std::int64_t, int>> files;  // bytes and tensors
    for (const auto& [m, name] : matrices) {
      ASSERT_TRUE(tensors.contains(name)) << name;
      const ReadTensor& tensor = tensors.at(name);
      EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{m.rows, m.cols}));
      EXPECT_EQ(tensor.bytes,
                text_of_bytes(expected_bytes({m.parameter, m.kind, m.dtype, m.rows, m.cols})));
      EXPECT_EQ(tensor.begin % size_of(m.dtype), 0) << name;
      files[tensor.file].first += std::ssize(tensor.bytes);
      ++files[tensor.file].second;
    }
    EXPECT_EQ(std::ssize(files), exported.files);
    for (const auto& [name, file] : files) {
      EXPECT_TRUE(file.first <= shard_bytes || file.second == 1 || shard_bytes == 1) << name;
    }
    EXPECT_EQ(files.begin()->first,
              fmt::format("model-00001-of-{:05}.safetensors", exported.files));
  }
  EXPECT_EQ(read_export(other.path() + "/below/1").at("tables.b.weight").dtype, "BF16");
}

TEST(Export, WeightsOnly) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_all(save_options(one.path(), 10), small_matrices(), 3, 3);
  ExportOptions options = export_options(other.path());  // which exists, and is empty
  options.items = ExportItems::kWeights;
  export_safetensors(CheckpointReader(one.path()), options);
  std::set<std::string> names;
  for (const auto& [name, tensor] : read_export(other.path())) {
    names.insert(name);
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"dense.top.0.weight", "tables.a.weight", "tables.b.weight",
                                   "tables.c.weight", "tables.d.weight"}));
}

TEST(Export, ListedRowsHaveTheirNumbers) {
  const TemporaryDirectory other;
  const Matrix weight{"tables.a", "weight", DType::kBFloat16, 50, 3};
  const Matrix sum{"tables.a", "sum", DType::kFloat32, 50, 1};
  const std::vector<std::int64_t> ids{0, 3, 4, 8, 20, 21, 49};
  MemoryItems items;
  items.add(weight, ids);
  items.add(sum, {3});
  items.add({"tables.b", "weight", DType::kFloat32, 2, 3}, {0, 1});
  export_safetensors(items, export_options(other.path() + "/x/"));
  const ReadTensors tensors = read_export(other.path() + "/x");
  EXPECT_EQ(tensors.size(), 5U);
  EXPECT_EQ(tensors.at("tables.a.ids").dtype, "I64");
  EXPECT_EQ(tensors.at("tables.a.ids").shape, std::vector<std::int64_t>{7});
  EXPECT_EQ(tensors.at("tables.a.ids").bytes,
            std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8));
  EXPECT_EQ(tensors.at("tables.a.weight").shape, (std::vector<std::int64_t>{7, 3}));
  EXPECT_EQ(tensors.at("tables.a.weight").bytes, text_of_bytes(items.rows(0).bytes));
  EXPECT_EQ(tensors.at("tables.a.sum.ids").bytes, std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(tensors.at("tables.a.sum").bytes, text_of_bytes(items.rows(1).bytes));
  EXPECT_EQ(tensors.at("tables.b.weight").shape, (std::vector<std::int64_t>{2, 3}));
}

/// Returns the tensors that an export of a chain has of its newest checkpoint's tables.
ReadTensors expected_tensors(const CheckpointReader& reader,
                             const std::vector<Table>& tables,
                             const Versions& versions) {
  ReadTensors tensors;
  for (std::size_t i = reader.block_items(); i < reader.items().size(); ++i) {
    const ItemInfo& item = reader.items()[i];
    const Table& table = *std::find_if(
        tables.begin(), tables.end(), [&](const Table& one) { return one.name == item.parameter; });
    const CopiedRows rows = expected_rows(table, item, versions, true, kAllRows);
    const auto count = std::ssize(rows.ids);
    const std::string name = item.parameter + (item.kind == "weight" ? ".weight" : "." + item.kind);
    tensors[name].shape = {count, item.cols};
    tensors[name].bytes = text_of_bytes(rows.bytes);
    if (count < table.rows) {
      const std::string ids = item.kind == "weight" ? item.parameter + ".ids" : name + ".ids";
      tensors[ids].shape = {count};
      tensors[ids].bytes = std::string(reinterpret_cast<const char*>(rows.ids.data()),
                                       rows.ids.size() * sizeof(rows.ids[0]));
    }
  }
  return tensors;
}

/// Tensors that an export lacks, or has with another shape or other bytes.
std::vector<std::string> wrong_tensors(const ReadTensors& exported, const ReadTensors& expected) {
  std::vector<std::string> wrong;
  for (const auto& [name, tensor] : expected) {
    const auto found = exported.find(name);
    if (found == exported.end() || found->second.shape != tensor.shape ||
        found->second.bytes != tensor.bytes) {
      wrong.push_back(name);
    }
  }
  return wrong;
}

/// Chains over several jobs whose stores' files were linked, and are gone: the newest row of each,
/// as an export of the same rows that were all written. Control: rows of a save too few.
TEST(Export, OfLinkedFilesHasTheNewestRows) {
  std::uint32_t seed = 900;
  const std::vector<Table> tables = small_tables();
  int linked = 0;
  for (const int ranks : {1, 2, 3}) {
    FaultyFileSystem files;
    std::vector<Leg> legs = {{++seed, ranks, Holding::kSparse, 4, true},
                             {++seed, 4 - ranks, Holding::kSparse, 3, true}};
    const Versions versions = save_chain("/ck", tables, legs, &files);
    const CheckpointReader reader("/ck", {.files = &files});
    for (const SegmentSet& set : reader.manifest().segments) {
      for (const SegmentFile& file : set.files) {
        linked += file.key != 0 ? 1 : 0;
      }
    }
    ExportOptions options = export_options("/out");
    options.files = &files;
    options.shard_bytes = 4000;
    export_safetensors(reader, options);
    const ReadTensors exported = read_export("/out", files);
    const ReadTensors expected = expected_tensors(reader, tables, versions);
    EXPECT_EQ(wrong_tensors(exported, expected), std::vector<std::string>{})
        << ranks << " ranks, seed " << seed;
    EXPECT_GT(expected.size(), 2 * tables.size()) << "no table is sparse";
    // The same state, all of whose rows have been written.
    legs[0].in_files = legs[1].in_files = false;
    save_chain("/copied", tables, legs, &files);
    options.directory = "/out_of_copied";
    export_safetensors(CheckpointReader("/copied", {.files = &files}), options);
    const ReadTensors copied = read_export("/out_of_copied", files);
    EXPECT_EQ(wrong_tensors(exported, copied), std::vector<std::string>{});
    EXPECT_EQ(exported.size(), copied.size());
    // The control.
    --legs[1].saves;
    const Versions before = save_chain("/before", tables, legs, &files);
    EXPECT_GT(wrong_tensors(exported, expected_tensors(reader, tables, before)).size(), 0U);
  }
  EXPECT_GT(linked, 20);
}

template <typename Action>
std::string error_text(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return "NO ERROR";
}

TEST(Export, RefusesWhatItWouldOverwriteOrConfuse) {
  const TemporaryDirectory other;
  MemoryItems items;
  items.add({"tables.a", "weight", DType::kFloat32, 2, 3}, {0, 1});
  set_file_bytes(other.path() + "/file", "x");
  for (const std::string& path : {other.path(), other.path() + "/file"}) {
    EXPECT_TRUE(says(error_text([&] { export_safetensors(items, export_options(path)); }),
                     {"usage: '" + path + "' exists and is not an empty folder"}));
  }
  EXPECT_EQ(file_bytes(other.path() + "/file"), "x");
  for (const std::string& path : {std::string(), std::string("///")}) {
    EXPECT_TRUE(says(error_text([&] { export_safetensors(items, export_options(path)); }),
                     {"usage: an export to"}));
  }
  items.add({"tables.a.weight", "weight", DType::kFloat32, 2, 3}, {0, 1});
  EXPECT_TRUE(
      says(error_text([&] { export_safetensors(items, export_options(other.path() + "/new")); }),
           {"checkpoint: cannot export tables.a.weight weight: there are two tensors of the name "
            "'tables.a.weight'"}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(other.path()), {}), 1);
}

TEST(Export, DamageLeavesNothing) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  save_all(save_options(one.path(), 10), small_matrices(), 1, 1);
  const std::string file = one.path() + "/step-00000010/rank-0000.bin";
  std::string bytes = file_bytes(file);
  bytes.back() ^= 1;
  set_file_bytes(file, bytes);
  EXPECT_TRUE(says(error_text([&] {
                     export_safetensors(CheckpointReader(one.path()),
                                        export_options(other.path() + "/new"));
                   }),
                   {"checkpoint: '" + file + "' has changed"}));
  EXPECT_TRUE(std::filesystem::is_empty(other.path()));
}

bool try_export(FaultyFileSystem& files) {
  MemoryItems items;
  items.add({"tables.a", "weight", DType::kFloat32, 7, 3}, {0, 1, 2, 3, 4, 5, 6});
  items.add({"tables.b", "weight", DType::kFloat32, 9, 3}, {0, 4, 8});
  ExportOptions options = export_options("/a/b/out");
  options.shard_bytes = 90;
  options.files = &files;
  try {
    export_safetensors(items, options);
    return true;
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kIo || error.code() == ErrorCode::kCheckpoint)
        << error.what();
    return false;
  }
}

/// Whatever fails, or wherever it ends, the folder is whole or not there.
TEST(Export, IsWholeOrNotThere) {
  FaultyFileSystem counted;
  counted.set_hook([](const io::Call&) { return Verdict{}; });
  ASSERT_TRUE(try_export(counted));
  const std::vector<io::Call> calls = counted.calls();
  EXPECT_GT(calls.size(), 20U);
  int refused = 0;
  for (const io::Call& failing : calls) {
    for (const bool ends : {false, true}) {
      FaultyFileSystem files;
      files.set_hook([&](const io::Call& call) {
        const bool fails = ends ? call.index >= failing.index : call.index == failing.index;
        return fails ? Verdict{What::kFail, ENOSPC} : Verdict{};
      });
      const bool done = try_export(files);
      refused += done ? 0 : 1;
      files.set_hook({});
      if (ends) {
        files.crash(io::Survival::kNothing);
      }
      const std::vector<std::string> names = files.list("/a/b").names;
      if (done || files.status("/a/b/out").kind == io::Kind::kDirectory) {
        EXPECT_EQ(read_export("/a/b/out", files).size(), 3U) << failing.path;
        EXPECT_EQ(names.size(), 1U);
      } else if (!ends) {
        EXPECT_TRUE(names.empty()) << failing.path << " leaves " << names.front();
      }
      EXPECT_TRUE(done || ends || names.empty());
    }
  }
  EXPECT_GT(refused, 40);
}

/// Negative control: without any one sync a crash loses something.
TEST(Export, WithoutAnyOneSyncSomethingIsLost) {
  FaultyFileSystem counted;
  counted.set_hook([](const io::Call&) { return Verdict{}; });
  ASSERT_TRUE(try_export(counted));
  int syncs = 0;
  for (const io::Call& call : counted.calls()) {
    if (call.kind != io::CallKind::kSync && call.kind != io::CallKind::kSyncDirectory) {
      continue;
    }
    FaultyFileSystem files;
    files.set_hook([&](const io::Call& now) {
      return now.index == call.index ? Verdict{What::kIgnore} : Verdict{};
    });
    EXPECT_TRUE(try_export(files));
    files.set_hook({});
    files.crash(io::Survival::kNothing);
    const auto reads = [&] {
      for (const char* name :
           {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
            "model.safetensors.index.json"}) {
        if (load_file(files, io::join("/a/b/out", name), 1 << 20).empty()) {
          fail(ErrorCode::kCheckpoint, "'{}' is empty", name);
        }
      }
    };
    EXPECT_NE(checkpoint_error(reads), "NO ERROR") << "without the sync of " << call.path;
    ++syncs;
  }
  EXPECT_GE(syncs, 5) << "two files, the index, their folder, the folder above it";
}

}  // namespace
}  // namespace weft::checkpoint
