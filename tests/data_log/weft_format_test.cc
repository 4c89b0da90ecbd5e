// The weft format: what is written is read back, and nothing damaged is read at all.

#include "weft/data/weft_format.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/data/synthetic.h"
#include "weft/data/weft_layout.h"

namespace weft::data {
namespace {

namespace fs = std::filesystem;

class WeftFormat : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "weft-format-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }

  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

  /// Of all files in the folder.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  fs::path folder_;
};

Schema full_schema() {
  Schema schema;
  schema.dense = {"price", "weight"};
  schema.categorical = {{"user", false, false}, {"genres", true, false}, {"history", true, true}};
  schema.labels = {"click", "buy"};
  return schema;
}

// A block with everything in it: missing values, empty and long bags, ids of any width and sign.
RawBlock full_block(std::int64_t size) {
  RawBlock block;
  block.reset(full_schema());
  block.size = size;
  for (RawBlock::Bags& bags : block.categorical) {
    bags.offsets.push_back(0);
  }
  std::uint64_t state = 1;
  for (std::int64_t i = 0; i < size; ++i) {
    state = mix64(state + 0x9e3779b97f4a7c15ULL);
    block.sample_ids.push_back(i);
    block.dense[0].push_back(i % 5 == 0 ? std::nanf("") : static_cast<float>(state % 1000) * 0.5F);
    block.dense[1].push_back(static_cast<float>(i));
    block.labels[0].push_back(static_cast<float>(state % 2));
    block.labels[1].push_back(static_cast<float>(i % 3 == 0));
    if (i % 4 != 0) {
      block.categorical[0].ids.push_back(static_cast<std::int64_t>(state % 70'000));
    }
    for (std::uint64_t j = 0; j < state % 4; ++j) {
      block.categorical[1].ids.push_back(static_cast<std::int64_t>(j * 7));
      block.categorical[2].ids.push_back(static_cast<std::int64_t>(mix64(state + j)));
      block.categorical[2].weights.push_back(0.25F * static_cast<float>(j));
    }
    for (RawBlock::Bags& bags : block.categorical) {
      bags.offsets.push_back(static_cast<std::int64_t>(bags.ids.size()));
    }
  }
  return block;
}

std::vector<std::int64_t> iota(std::int64_t count) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

bool same_floats(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return x == y || (std::isnan(x) && std::isnan(y));
         });
}

bool same_columns(const RawBlock& a, const RawBlock& b) {
  bool same = a.size == b.size && a.labels == b.labels && a.dense.size() == b.dense.size() &&
              a.categorical.size() == b.categorical.size();
  for (std::size_t i = 0; same && i < a.dense.size(); ++i) {
    same = same_floats(a.dense[i], b.dense[i]);
  }
  for (std::size_t i = 0; same && i < a.categorical.size(); ++i) {
    same = a.categorical[i].ids == b.categorical[i].ids &&
           a.categorical[i].offsets == b.categorical[i].offsets &&
           a.categorical[i].weights == b.categorical[i].weights;
  }
  return same;
}

RawBlock read_all(Source& source) {
  RawBlock block;
  source.read(iota(source.size()), block);
  return block;
}

void write(const std::string& path, const RawBlock& block, WeftWriterOptions options = {}) {
  WeftWriter writer(path, full_schema(), std::move(options));
  writer.append(block);
  writer.finish();
}

std::vector<std::byte> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// The message, where reading everything throws Error(kData); empty where it does not throw.
std::string message_of(const std::vector<std::byte>& bytes, RawBlock* out = nullptr) {
  try {
    const auto source = open_weft_bytes(bytes, "log.weft");
    RawBlock block = read_all(*source);
    if (out != nullptr) {
      *out = std::move(block);
    }
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData) << error.what();
    EXPECT_NE(std::string(error.what()).find("log.weft"), std::string::npos) << error.what();
    return error.what();
  }
}

TEST_F(WeftFormat, ReadsBackWhatWasWritten) {
  const RawBlock block = full_block(100);
  for (const std::int64_t block_samples : {1, 7, 100, 16384}) {
    const std::string file = path("log.weft");
    {
      WeftWriter writer(file, full_schema(), {block_samples, {}});
      // Twice, so that the writer's blocks straddle the appended ones.
      writer.append(block);
      writer.append(block);
      writer.finish();
    }
    EXPECT_EQ(names(), std::vector<std::string>{"log.weft"});
    const auto source = open_weft({file});
    EXPECT_EQ(source->schema(), full_schema());
    ASSERT_EQ(source->size(), 200);
    RawBlock out;
    source->read(iota(100), out);
    EXPECT_TRUE(same_columns(out, block));
    std::vector<std::int64_t> second = iota(100);
    std::for_each(second.begin(), second.end(), [](std::int64_t& id) { id += 100; });
    source->read(second, out);
    EXPECT_TRUE(same_columns(out, block));
    EXPECT_EQ(out.sample_ids, second);
  }
}

TEST_F(WeftFormat, AnyOrderAndAnySelection) {
  const RawBlock block = full_block(60);
  write(path("log.weft"), block, {13, {}});
  const auto source = open_weft({path("log.weft")});
  const std::vector<std::string> names = {"genres", "price"};
  source->select(names);
  const std::vector<std::int64_t> ids = {59, 0, 13, 12, 12, 40};
  RawBlock out;
  source->read(ids, out);
  EXPECT_EQ(out.sample_ids, ids);
  EXPECT_TRUE(out.categorical[0].ids.empty());
  EXPECT_TRUE(out.dense[1].empty());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto at = static_cast<std::size_t>(ids[i]);
    const RawBlock::Bags& from = block.categorical[1];
    const RawBlock::Bags& to = out.categorical[1];
    EXPECT_TRUE(std::equal(to.ids.begin() + to.offsets[i], to.ids.begin() + to.offsets[i + 1],
                           from.ids.begin() + from.offsets[at],
                           from.ids.begin() + from.offsets[at + 1]));
    EXPECT_TRUE(same_floats({out.dense[0][i]}, {block.dense[0][at]}));
  }
}

// Blocks store the same column in different widths, with offsets and without; a read meets them in
// any order.
TEST_F(WeftFormat, AnyOrderOverBlocksOfDifferentWidths) {
  RawBlock block = full_block(4000);
  std::vector<std::int64_t>& users = block.categorical[0].ids;
  for (std::size_t i = 0; i < users.size(); ++i) {
    users[i] >>= 12 * (i * 4 / users.size());
    users[i] += i < 500 ? std::int64_t{1} << 40 : 0;
  }
  // In the middle everyone has a user.
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int64_t> all;
  for (std::size_t i = 0; i < 4000; ++i) {
    const auto begin = static_cast<std::size_t>(block.categorical[0].offsets[i]);
    const auto end = static_cast<std::size_t>(block.categorical[0].offsets[i + 1]);
    if (begin < end || (i > 1000 && i < 3000)) {
      all.push_back(begin < end ? users[begin] : static_cast<std::int64_t>(i % 200));
    }
    offsets.push_back(static_cast<std::int64_t>(all.size()));
  }
  block.categorical[0].ids = all;
  block.categorical[0].offsets = offsets;
  write(path("log.weft"), block, {130, {}});
  const auto source = open_weft({path("log.weft")});
  EXPECT_TRUE(same_columns(read_all(*source), block));
  std::vector<std::int64_t> ids = iota(4000);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::swap(ids[i], ids[mix64(i) % ids.size()]);
  }
  RawBlock out;
  source->read(ids, out);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto at = static_cast<std::size_t>(ids[i]);
    for (std::size_t c = 0; c < 3; ++c) {
      const RawBlock::Bags& from = block.categorical[c];
      const RawBlock::Bags& to = out.categorical[c];
      ASSERT_TRUE(std::equal(to.ids.begin() + to.offsets[i], to.ids.begin() + to.offsets[i + 1],
                             from.ids.begin() + from.offsets[at],
                             from.ids.begin() + from.offsets[at + 1]))
          << "column " << c << ", sample " << at;
    }
    ASSERT_EQ(out.labels[0][i], block.labels[0][at]);
    const RawBlock::Bags& from = block.categorical[2];
    const RawBlock::Bags& to = out.categorical[2];
    ASSERT_TRUE(std::equal(to.weights.begin() + to.offsets[i],
                           to.weights.begin() + to.offsets[i + 1],
                           from.weights.begin() + from.offsets[at]));
  }
}

TEST_F(WeftFormat, EmptyBatchEmptyLogAndMetadata) {
  write(path("none.weft"), full_block(0));
  const auto none = open_weft({path("none.weft")});
  EXPECT_EQ(none->size(), 0);
  EXPECT_EQ(none->load(0, 10), 0);
  EXPECT_EQ(read_all(*none).categorical[1].offsets, std::vector<std::int64_t>{0});
  EXPECT_FALSE(none->bayes_ne().has_value());
  write(path("some.weft"), full_block(3), {2, {{"bayes_ne", "0.75"}, {"note", ""}}});
  EXPECT_EQ(open_weft({path("some.weft")})->bayes_ne(), 0.75);
}

TEST_F(WeftFormat, FilesFollowEachOther) {
  write(path("a.weft"), full_block(20), {6, {}});
  write(path("none.weft"), full_block(0));
  write(path("b.weft"), full_block(11));
  const auto source = open_weft({path("a.weft"), path("none.weft"), path("b.weft")});
  ASSERT_EQ(source->size(), 31);
  EXPECT_EQ(source->load(25, 100), 6);
  RawBlock out;
  source->read(std::vector<std::int64_t>{20, 0, 30}, out);
  EXPECT_EQ(out.dense[1], (std::vector<float>{0.0F, 0.0F, 10.0F}));
  const auto other = open_weft({path("b.weft"), path("none.weft"), path("a.weft")});
  EXPECT_NE(source->fingerprint(), other->fingerprint());
  // The first files of a source are those of a source of them; names do not count.
  EXPECT_EQ(fingerprint_of(source->content(1)),
            fingerprint_of(open_weft({path("a.weft")})->content(9)));
  EXPECT_EQ(source->content(9).size(), 3U);
  write(path("renamed.weft"), full_block(11));
  EXPECT_EQ(open_weft({path("renamed.weft")})->fingerprint(),
            open_weft({path("b.weft")})->fingerprint());
}

TEST_F(WeftFormat, EqualSizesWithOtherContentsDiffer) {
  RawBlock block = full_block(20);
  write(path("a.weft"), block);
  block.labels[0][7] = 1 - block.labels[0][7];
  write(path("b.weft"), block);
  ASSERT_EQ(std::filesystem::file_size(path("a.weft")), std::filesystem::file_size(path("b.weft")));
  EXPECT_NE(open_weft({path("a.weft")})->fingerprint(), open_weft({path("b.weft")})->fingerprint());
}

TEST_F(WeftFormat, FilesOfOtherColumnsAreRefused) {
  write(path("a.weft"), full_block(2));
  Schema schema = full_schema();
  schema.categorical[1].name = "tags";
  {
    WeftWriter writer(path("b.weft"), schema);
    writer.append(full_block(2));
    writer.finish();
  }
  try {
    open_weft({path("a.weft"), path("b.weft")});
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_NE(std::string(error.what()).find("'tags'"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("'genres'"), std::string::npos) << error.what();
  }
}

// The example of docs/weft_format.md, word by word; checksums apart.
TEST_F(WeftFormat, BytesAreThoseOfTheDocument) {
  Schema schema;
  schema.dense = {"p"};
  schema.categorical = {{"g", true, false}};
  schema.labels = {"y"};
  RawBlock block;
  block.reset(schema);
  block.size = 2;
  block.dense[0] = {1.5F, std::nanf("")};
  block.categorical[0].offsets = {0, 2, 2};
  block.categorical[0].ids = {3, 300};
  block.labels[0] = {1.0F, 0.0F};
  {
    WeftWriter writer(path("log.weft"), schema);
    writer.append(block);
    writer.finish();
  }
  const std::vector<std::byte> bytes = bytes_of(path("log.weft"));
  ASSERT_EQ(bytes.size(), 0xe0U);
  const std::map<std::size_t, std::uint64_t> words = {{0x08, 0x0000003800000001},
                                                      {0x10, 0x0000000100000001},
                                                      {0x18, 1},
                                                      {0x38, 0x7fc000003fc00000},
                                                      {0x40, 0x0000000200000202},
                                                      {0x48, 0x0000000200020000},
                                                      {0x50, 0x00000000012c0003},
                                                      {0x58, 0x000000003f800000},
                                                      {0x60, 2},
                                                      {0x68, 1},
                                                      {0x70, 2},
                                                      {0x78, 0x38},
                                                      {0x80, 8},
                                                      {0x90, 0x40},
                                                      {0x98, 0x18},
                                                      {0xa8, 0x58},
                                                      {0xb0, 8},
                                                      {0xc0, 0x60},
                                                      {0xc8, 0x60}};
  for (const auto& [at, word] : words) {
    EXPECT_EQ(layout::load<std::uint64_t>(bytes.data() + at), word) << "at " << at;
  }
}

TEST_F(WeftFormat, UnfinishedFilesLeaveNothing) {
  const std::string file = path("log.weft");
  {
    WeftWriter writer(file, full_schema());
    writer.append(full_block(5));
    ASSERT_EQ(names().size(), 1U);
    EXPECT_TRUE(names().front().starts_with("log.weft.")) << names().front();
    EXPECT_TRUE(names().front().ends_with(".partial")) << names().front();
  }
  EXPECT_TRUE(names().empty());
  EXPECT_THROW(WeftWriter(path("no/such/folder/log.weft"), full_schema()), Error);
  EXPECT_THROW(WeftWriter(file, full_schema(), {0, {}}), Error);
}

TEST_F(WeftFormat, MissingEmptyForeignAndNewerFilesAreNamed) {
  EXPECT_THROW(open_weft({path("absent.weft")}), Error);
  EXPECT_THROW(open_weft({path("")}), Error);
  EXPECT_THROW(open_weft({}), Error);
  std::ofstream(path("empty.weft")).close();
  try {
    open_weft({path("empty.weft")});
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("empty"), std::string::npos) << error.what();
  }
  write(path("log.weft"), full_block(10), {4, {}});
  std::vector<std::byte> bytes = bytes_of(path("log.weft"));
  bytes[0] = std::byte{'V'};
  EXPECT_NE(message_of(bytes).find("not a weft file"), std::string::npos);
  EXPECT_NE(message_of(bytes).find("weft data convert"), std::string::npos);
  bytes[0] = std::byte{'W'};
  bytes[8] = std::byte{2};
  EXPECT_NE(message_of(bytes).find("version 2"), std::string::npos);
}

TEST_F(WeftFormat, EveryCutIsNoticed) {
  write(path("log.weft"), full_block(20), {8, {}});
  const std::vector<std::byte> bytes = bytes_of(path("log.weft"));
  EXPECT_EQ(message_of(bytes), "");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(message_of({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)}), "")
        << "cut to " << length;
  }
}

TEST_F(WeftFormat, EveryFlippedByteIsNoticed) {
  const RawBlock block = full_block(20);
  write(path("log.weft"), block, {8, {{"note", "x"}}});
  std::vector<std::byte> bytes = bytes_of(path("log.weft"));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      bytes[i] ^= static_cast<std::byte>(flip);
      EXPECT_NE(message_of(bytes), "") << "byte " << i << " xor " << flip;
      bytes[i] ^= static_cast<std::byte>(flip);
    }
  }
  EXPECT_EQ(message_of(bytes), "");
}

TEST_F(WeftFormat, DamagedColumnIsNamedAndOthersStayReadable) {
  write(path("log.weft"), full_block(20), {8, {}});
  std::vector<std::byte> bytes = bytes_of(path("log.weft"));
  const std::size_t header = layout::load<std::uint32_t>(bytes.data() + 12);
  bytes[header] ^= std::byte{1};  // the first chunk: block 0 of the first dense column
  const std::string message = message_of(bytes);
  EXPECT_NE(message.find("block 0"), std::string::npos) << message;
  EXPECT_NE(message.find("'price'"), std::string::npos) << message;
  const auto source = open_weft_bytes(bytes, "log.weft");
  RawBlock out;
  EXPECT_NO_THROW(source->read(std::vector<std::int64_t>{8, 19}, out));
  const std::vector<std::string> names = {"weight", "user"};
  source->select(names);
  EXPECT_NO_THROW(source->read(iota(20), out));
}

// A footer whose checksum is right but whose numbers are not must not lead anywhere outside.
TEST_F(WeftFormat, AbsurdFootersAreRefused) {
  write(path("log.weft"), full_block(20), {8, {{"note", "x"}}});
  const std::vector<std::byte> good = bytes_of(path("log.weft"));
  const std::size_t trailer = good.size() - layout::kTrailerBytes;
  const auto footer = static_cast<std::size_t>(layout::load<std::uint64_t>(good.data() + trailer));
  int refused = 0;
  for (std::size_t i = footer; i + 4 <= trailer; i += 4) {
    for (const std::uint32_t value : {0U, 1U, 0x7fffffffU, 0xffffffffU}) {
      std::vector<std::byte> bytes = good;
      std::memcpy(bytes.data() + i, &value, sizeof(value));
      const std::uint64_t checksum = hash_bytes(std::span(bytes).subspan(footer, trailer - footer));
      std::memcpy(bytes.data() + trailer + 16, &checksum, sizeof(checksum));
      refused += message_of(bytes).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(WeftFormat, AbsurdHeadersAreRefused) {
  write(path("log.weft"), full_block(4));
  const std::vector<std::byte> good = bytes_of(path("log.weft"));
  const std::size_t length = layout::load<std::uint32_t>(good.data() + 12);
  for (std::size_t i = 12; i < length - 8; ++i) {
    for (const int value : {0x00, 0x7f, 0xff}) {
      std::vector<std::byte> bytes = good;
      bytes[i] = static_cast<std::byte>(value);
      const std::uint64_t checksum = hash_bytes(std::span(bytes).first(length - 8));
      std::memcpy(bytes.data() + length - 8, &checksum, sizeof(checksum));
      message_of(bytes);  // Error(kData) or another schema; never anything else
    }
  }
}

TEST_F(WeftFormat, AbsurdBagsAreRefused) {
  const RawBlock block = full_block(30);
  for (std::size_t column = 0; column < block.categorical.size(); ++column) {
    std::vector<std::byte> chunk;
    layout::encode_bags(block.categorical[column], block.size, chunk);
    const Schema::Categorical what = full_schema().categorical[column];
    EXPECT_NO_THROW(layout::decode_bags(chunk, block.size, what, "here"));
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      for (const int value : {0x00, 0x01, 0x10, 0x7f, 0xff}) {
        std::vector<std::byte> bytes = chunk;
        bytes[i] = static_cast<std::byte>(value);
        try {
          const layout::BagsView view = layout::decode_bags(bytes, block.size, what, "here");
          std::int64_t sum = 0;
          for (std::uint32_t j = 0; j < view.offset(30); ++j) {
            sum ^= view.id(j);
          }
          EXPECT_LE(view.count, 4 * 30U + static_cast<std::uint32_t>(sum & 0));
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kData);
        }
      }
      std::vector<std::byte> cut(chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_THROW(layout::decode_bags(cut, block.size, what, "here"), Error);
    }
  }
}

TEST_F(WeftFormat, SyntheticLogIsKeptWithItsBestNe) {
  spec::DataConfig config;
  config.synthetic.samples = 5000;
  config.synthetic.eval_samples = 3000;
  spec::SyntheticColumn bag;
  bag.name = "bag";
  bag.max_length = 3;
  bag.missing = 0.2;
  config.synthetic.columns = {bag, {"one"}};
  const auto eval = open_synthetic(config, 1, Split::kEval);
  std::int64_t reported = 0;
  EXPECT_EQ(write_weft(*eval, path("eval.weft"),
                       {.samples = -1,
                        .pool = nullptr,
                        .progress = [&](std::int64_t done, std::int64_t) { reported = done; }}),
            3000);
  EXPECT_EQ(reported, 3000);
  const auto kept = open_weft({path("eval.weft")});
  EXPECT_TRUE(same_columns(read_all(*kept), read_all(*eval)));
  EXPECT_EQ(kept->bayes_ne(), eval->bayes_ne());
  EXPECT_EQ(write_weft(*eval, path("some.weft"), {.samples = 17, .pool = nullptr, .progress = {}}),
            17);
  const auto some = open_weft({path("some.weft")});
  EXPECT_EQ(some->size(), 17);
  EXPECT_FALSE(some->bayes_ne().has_value());
}

// The folder of real data, empty where there is none.
std::string real_data(const std::string& name) {
  const char* root = std::getenv("WEFT_DATA");
  const fs::path folder =
      root != nullptr ? fs::path(root) : fs::path(WEFT_SOURCE_DIR) / ".." / "shared" / "data";
  return fs::exists(folder / name) ? (folder / name).string() : std::string();
}

// Reads `source` block by block and compares it with what was converted.
void expect_converted(const spec::Config& config, const std::string& file) {
  std::unique_ptr<Source> source = open_source(config, Split::kTrain);
  const std::int64_t samples = write_weft(*source, file);
  EXPECT_GT(samples, 0);
  const auto kept = open_weft({file});
  ASSERT_EQ(kept->size(), samples);
  source = open_source(config, Split::kTrain);
  EXPECT_EQ(kept->schema(), source->schema());
  RawBlock a;
  RawBlock b;
  constexpr std::int64_t kStep = 5000;
  for (std::int64_t first = 0; first < samples; first += kStep) {
    std::vector<std::int64_t> ids = iota(std::min(kStep, samples - first));
    std::for_each(ids.begin(), ids.end(), [&](std::int64_t& id) { id += first; });
    ASSERT_EQ(source->load(first, kStep), static_cast<std::int64_t>(ids.size()));
    source->read(ids, a);
    kept->read(ids, b);
    ASSERT_TRUE(same_columns(a, b)) << "samples from " << first;
  }
}

TEST_F(WeftFormat, ConvertsTheCriteoSample) {
  const std::string file = real_data("criteo-kaggle-sample/train.txt");
  if (file.empty()) {
    GTEST_SKIP() << "no criteo sample";
  }
  spec::Config config;
  config.data.format = spec::DataFormat::kCriteo;
  config.data.path = {file};
  expect_converted(config, path("criteo.weft"));
}

TEST_F(WeftFormat, ConvertsMovielens) {
  const std::string folder = real_data("ml-latest-small");
  if (folder.empty()) {
    GTEST_SKIP() << "no movielens folder";
  }
  spec::Config config;
  config.data.format = spec::DataFormat::kMovielens;
  config.data.path = {folder};
  expect_converted(config, path("movielens.weft"));
}

}  // namespace
}  // namespace weft::data
