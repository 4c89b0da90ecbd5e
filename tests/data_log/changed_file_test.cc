// Weft files that change while they are mapped: every read ends, in bounds, and what is found out
// is an error that names the file.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/data/loader.h"
#include "weft/data/vocabulary.h"
#include "weft/data/weft_format.h"
#include "weft/spec/yaml.h"

namespace weft::data {
namespace {

namespace fs = std::filesystem;

// Every form of a column: single ids with and without missing ones, several, weighted.
constexpr const char* kJob = R"(
version: 1
batch_size: 64
data:
  format: synthetic
  synthetic:
    samples: 40000
    dense_columns: 2
    columns:
      - {name: a, cardinality: 100000}
      - {name: b, cardinality: 300, missing: 0.3}
      - {name: c, cardinality: 70000, min_length: 1, max_length: 9, missing: 0.2}
      - {name: d, cardinality: 100, min_length: 1, max_length: 5, weighted: true}
dense_features: [{name: "d{1..2}"}]
sparse_features: [{name: a}, {name: b}, {name: c}, {name: d}]
tables:
  - {name: a, num_embeddings: 50, embedding_dim: 4}
  - {name: b, num_embeddings: 50, embedding_dim: 4}
  - {name: c, num_embeddings: 50, embedding_dim: 4}
  - {name: d, num_embeddings: 50, embedding_dim: 4}
model: {type: dlrm, bottom_mlp: [4], top_mlp: [4]}
)";

class ChangedFile : public testing::Test {
 protected:
  ChangedFile() {
    std::string pattern = (fs::temp_directory_path() / "weft-changed-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    path_ = (folder_ / "log.weft").string();
    write_weft(*open_source(spec::parse_config(kJob, "job"), Split::kTrain), path_);
    set_log_sink([this](LogLevel, std::string_view text) {
      const std::lock_guard lock(mutex_);
      log_ += std::string(text) + "\n";
    });
  }

  ~ChangedFile() override {
    set_log_sink({});
    fs::remove_all(folder_);
  }

  ChangedFile(const ChangedFile&) = delete;
  ChangedFile& operator=(const ChangedFile&) = delete;

  /// All samples, in an order that jumps about.
  static void read_all(Source& source) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(source.size()));
    std::iota(ids.begin(), ids.end(), 0);
    std::reverse(ids.begin(), ids.end());
    RawBlock block;
    source.load(0, source.size());
    source.read(ids, block);
  }

  static std::string error_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kData);
      return error.what();
    }
    return "";
  }

  void overwrite(std::uint64_t from, char value) const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(from));
    file << std::string(fs::file_size(path_) - from, value);
  }

  fs::path folder_;
  std::string path_;
  std::mutex mutex_;
  std::string log_;
};

TEST_F(ChangedFile, CutWhileItIsRead) {
  const auto size = fs::file_size(path_);
  for (const bool was_read : {true, false}) {
    const auto source = open_weft({path_});
    if (was_read) {
      read_all(*source);
    }
    const std::string copy = path_ + ".copy";
    fs::copy_file(path_, copy, fs::copy_options::overwrite_existing);
    fs::resize_file(path_, 20000);
    const std::string error = error_of([&] { read_all(*source); });
    EXPECT_NE(error.find(path_ + "' had " + std::to_string(size) + " bytes"), std::string::npos)
        << error;
    EXPECT_NE(error.find("was cut"), std::string::npos) << error;
    EXPECT_EQ(error_of([&] { read_all(*source); }), error);  // and again
    EXPECT_NE(error_of([&] { source->begin_epoch(); }).find("has 20000 now"), std::string::npos);
    fs::rename(copy, path_);
    read_all(*open_weft({path_}));  // another mapping, perhaps at the same place, is whole
  }
}

TEST_F(ChangedFile, OneOfSeveralIsNamed) {
  const std::string other = path_ + ".other";
  fs::copy_file(path_, other);
  const auto whole = open_weft({path_});
  const auto both = open_weft({path_, other});
  read_all(*both);
  fs::resize_file(other, 0);
  EXPECT_NE(error_of([&] { read_all(*both); }).find(other), std::string::npos);
  EXPECT_EQ(error_of([&] { read_all(*whole); }), "");
}

TEST_F(ChangedFile, WrittenOverIsReadInBounds) {
  for (const char value : {'\0', '\xff', '\x7f', '\x01'}) {
    const auto source = open_weft({path_});
    read_all(*source);  // verified: from here on its offsets are trusted
    const std::string copy = path_ + ".copy";
    fs::copy_file(path_, copy, fs::copy_options::overwrite_existing);
    overwrite(200, value);
    read_all(*source);
    source->begin_epoch();
    EXPECT_NE(log_.find("was written to while it is in use"), std::string::npos) << log_;
    EXPECT_NE(error_of([&] { read_all(*source); }).find("checksum"), std::string::npos);
    fs::rename(copy, path_);
  }
}

TEST_F(ChangedFile, TouchedAndReplacedIsOnlySaid) {
  const auto source = open_weft({path_});
  read_all(*source);
  source->begin_epoch();
  EXPECT_EQ(log_, "");
  fs::last_write_time(path_, fs::last_write_time(path_) + std::chrono::hours(1));
  source->begin_epoch();
  EXPECT_NE(log_.find("was written to"), std::string::npos);
  read_all(*source);
  fs::rename(path_, path_ + ".old");
  for (int epoch = 0; epoch < 2; ++epoch) {
    log_.clear();
    source->begin_epoch();
    EXPECT_EQ(log_.find("was replaced or removed") != std::string::npos, epoch == 0);
    read_all(*source);
  }
}

TEST_F(ChangedFile, LoaderLooksAtEveryEpoch) {
  spec::Config config = spec::parse_config(kJob, "job");
  const Vocabularies none;
  LoaderOptions options = LoaderOptions::train(config, 0, 1, 8);
  options.epochs = 2;
  Loader loader(open_weft({path_}), config, none, options);
  Batch batch;
  loader.next(batch);
  fs::last_write_time(path_, fs::last_write_time(path_) + std::chrono::hours(1));
  while (loader.next(batch)) {
  }
  EXPECT_NE(log_.find("was written to"), std::string::npos);
}

}  // namespace
}  // namespace weft::data
