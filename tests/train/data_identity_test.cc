// Whether a resumed job has the data of its checkpoint, and where it reads on.
#include "weft/train/data_identity.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"

namespace weft::train {
namespace {

using Ids = std::vector<std::int64_t>;

enum class Access { kRandom, kSequential };

/// Files whose samples are 0, 1, .. of one log: those of file i are sizes[i] many.
class LogSource final : public data::Source {
 public:
  LogSource(std::vector<std::int64_t> sizes, Access access)
      : sizes_(std::move(sizes)), access_(access) {
    schema_.labels = {"label"};
    schema_.categorical = {{"id"}};
    for (const std::int64_t size : sizes_) {
      size_ += size;
    }
  }

  [[nodiscard]] const data::Schema& schema() const override { return schema_; }

  [[nodiscard]] std::string describe() const override { return "log"; }

  std::int64_t load(std::int64_t first, std::int64_t count) override {
    return std::clamp<std::int64_t>(size_ - first, 0, count);
  }

  void read(std::span<const std::int64_t> sample_ids, data::RawBlock& out) override {
    out.reset(schema_);
    out.size = static_cast<std::int64_t>(sample_ids.size());
    out.sample_ids.assign(sample_ids.begin(), sample_ids.end());
    out.labels[0].assign(sample_ids.size(), 0.0F);
    out.categorical[0].offsets.assign(sample_ids.size() + 1, 0);
  }

  void select(std::span<const std::string>) override {}

  [[nodiscard]] bool random_access() const override { return access_ == Access::kRandom; }

  [[nodiscard]] std::int64_t size() const override {
    return access_ == Access::kRandom ? size_ : -1;
  }

  [[nodiscard]] std::uint64_t fingerprint() const override { return 0; }

  [[nodiscard]] std::vector<data::FileContent> content(std::int64_t most) const override {
    std::vector<data::FileContent> content;
    for (std::size_t i = 0; i < sizes_.size() && static_cast<std::int64_t>(i) < most; ++i) {
      content.push_back({"log", sizes_[i], 7});
    }
    return content;
  }

 private:
  data::Schema schema_;
  std::vector<std::int64_t> sizes_;
  Access access_;
  std::int64_t size_ = 0;
};

struct Log {
  std::vector<std::int64_t> files;
  std::int64_t window = 0;
  std::uint64_t seed = 1;
  bool shuffle = true;
  Access access = Access::kRandom;
  std::int64_t max_samples = 0;

  [[nodiscard]] std::unique_ptr<data::Source> open() const {
    auto all = std::make_unique<LogSource>(files, access);
    if (max_samples == 0) {
      return all;
    }
    return std::make_unique<data::SubrangeSource>(std::move(all), 0, max_samples);
  }

  [[nodiscard]] spec::Config config() const {
    spec::Config config;
    config.seed = seed;
    config.batch_size = 4;
    config.data.format = spec::DataFormat::kCriteo;
    config.data.max_samples = max_samples;
    config.data.shuffle = {.enabled = shuffle, .window = window};
    config.sparse_features.resize(1);
    config.sparse_features[0].name = "id";
    config.sparse_features[0].column = "id";
    config.sparse_features[0].table = "id";
    config.tables.resize(1);
    config.tables[0].name = "id";
    config.tables[0].num_embeddings = 10;
    config.tasks.resize(1);
    config.tasks[0].column = "label";
    return config;
  }
};

/// What the first epoch of a log reads, and what a checkpoint knows after each batch.
struct Epoch {
  Ids samples;
  std::vector<checkpoint::Metadata> saved;  ///< the first before any batch
};

Epoch read_epoch(const Log& log) {
  const spec::Config config = log.config();
  Reading reading = begin_reading(*log.open(), config);
  Epoch epoch;
  const auto save = [&](std::int64_t sample) {
    checkpoint::Metadata& metadata = epoch.saved.emplace_back();
    metadata.step = static_cast<std::int64_t>(epoch.saved.size()) - 1;
    metadata.sample = sample;
    metadata.data = reading.data;
  };
  save(0);
  const data::Vocabularies none;
  data::Loader loader(log.open(), config, none, data::LoaderOptions::train(config, 0, 1, 8));
  data::Batch batch;
  while (loader.next(batch) && batch.epoch == 0) {
    epoch.samples.insert(epoch.samples.end(), batch.sample_ids.begin(), batch.sample_ids.end());
    reading.data.samples = std::max(reading.data.samples, loader.epoch_samples());
    save(loader.position().sample);
  }
  return epoch;
}

/// Empty where `log` is accepted at the position of `saved` and read on from there; else the error.
std::string refusal(const checkpoint::Metadata& saved, const Log& log) {
  Reading reading = begin_reading(*log.open(), log.config());
  try {
    resume_reading(reading, {saved, "ck", ResumeData::kSame}, *log.open(), log.config());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    EXPECT_FALSE(std::string(error.what()).empty());
    return error.what();
  }
  EXPECT_EQ(reading.start.sample, saved.sample);
  return "";
}

bool begins_alike(const Ids& a, const Ids& b, std::int64_t count) {
  const auto n = static_cast<std::size_t>(count);
  return a.size() >= n && b.size() >= n &&
         std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin());
}

/// Accepted at a position exactly where, for every seed, the samples before it are those that the
/// new data have there.
void expect_exact(const Log& before, const Log& after) {
  constexpr std::uint64_t kSeeds = 12;
  std::vector<char> alike;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Log one = before;
    Log two = after;
    one.seed = two.seed = seed;
    const Epoch old_epoch = read_epoch(one);
    const Epoch new_epoch = read_epoch(two);
    alike.resize(old_epoch.saved.size(), 1);
    for (std::size_t i = 0; i < old_epoch.saved.size(); ++i) {
      const bool same =
          begins_alike(old_epoch.samples, new_epoch.samples, old_epoch.saved[i].sample);
      alike[i] = static_cast<char>(alike[i] != 0 && same);
      if (seed == kSeeds) {
        EXPECT_EQ(refusal(old_epoch.saved[i], two).empty(), alike[i] != 0)
            << "files of " << testing::PrintToString(before.files) << " and then "
            << testing::PrintToString(after.files) << ", window " << before.window
            << (before.shuffle ? "" : " in order") << ", at most " << before.max_samples << " and "
            << after.max_samples << ", at sample " << old_epoch.saved[i].sample << ": "
            << refusal(old_epoch.saved[i], two);
      }
    }
  }
}

TEST(DataIdentity, AppendedFilesAreAcceptedExactlyWhereTheOrderStays) {
  for (const Access access : {Access::kRandom, Access::kSequential}) {
    for (const std::int64_t window : {0, 5, 8, 12, 100}) {
      for (const std::int64_t size : {24, 23, 40}) {
        expect_exact({.files = {size}, .window = window, .access = access},
                     {.files = {size, 9}, .window = window, .access = access});
      }
    }
    expect_exact({.files = {23}, .shuffle = false, .access = access},
                 {.files = {23, 9}, .shuffle = false, .access = access});
    expect_exact({.files = {23}, .shuffle = false, .access = access},
                 {.files = {23, 9}, .window = 8, .access = access});
    expect_exact({.files = {23}, .window = 8, .access = access},
                 {.files = {23, 9}, .window = 12, .access = access});
  }
}

TEST(DataIdentity, AnotherPartOfTheSameFilesIsAcceptedExactlyWhereTheOrderStays) {
  for (const Access access : {Access::kRandom, Access::kSequential}) {
    for (const bool shuffle : {true, false}) {
      for (const auto& [before, after] : std::vector<std::pair<std::int64_t, std::int64_t>>{
               {0, 16}, {0, 13}, {16, 0}, {13, 0}, {13, 20}, {20, 13}, {0, 99}, {99, 0}}) {
        expect_exact({.files = {23, 9},
                      .window = 8,
                      .shuffle = shuffle,
                      .access = access,
                      .max_samples = before},
                     {.files = {23, 9},
                      .window = 8,
                      .shuffle = shuffle,
                      .access = access,
                      .max_samples = after});
      }
    }
  }
}

TEST(DataIdentity, OtherFilesAreRefused) {
  const Epoch epoch = read_epoch({.files = {23, 9}, .window = 8});
  for (const auto& files : std::vector<Ids>{{23}, {9, 23}, {23, 10}, {24, 9}, {22, 9, 1}}) {
    const std::string error = refusal(epoch.saved[2], {.files = files, .window = 8});
    EXPECT_NE(error.find("not those that the checkpoint was trained on"), std::string::npos)
        << testing::PrintToString(files) << ": " << error;
    for (const char* way : {"name the data", "--resume-data from-start", "--resume-data insist"}) {
      EXPECT_NE(error.find(way), std::string::npos) << error;
    }
  }
  EXPECT_EQ(refusal(epoch.saved[2], {.files = {23, 9}, .window = 8}), "");
}

TEST(DataIdentity, AnotherOrderIsRefusedInTheMiddleOfAnEpoch) {
  const Log before{.files = {23, 9}, .window = 8};
  const Epoch epoch = read_epoch(before);
  const std::pair<Log, const char*> others[] = {
      {{.files = {23, 9}, .window = 8, .seed = 2}, "seed was 1 and is 2"},
      {{.files = {23, 9}, .window = 5}, "mixed 8 samples at a time and now 5"},
      {{.files = {23, 9}, .window = 8, .shuffle = false}, "mixed 8 samples at a time and now 1"}};
  for (const checkpoint::Metadata& saved : epoch.saved) {
    EXPECT_EQ(refusal(saved, before), "");
    const bool between = saved.sample == 0 || saved.sample == 32;
    for (const auto& [log, why] : others) {
      const std::string text = refusal(saved, log);
      EXPECT_EQ(text.empty(), between) << saved.sample << ": " << text;
      EXPECT_TRUE(between || text.find(why) != std::string::npos) << text;
    }
  }
}

TEST(DataIdentity, ModesDecideWhereOtherDataAreRead) {
  const Epoch epoch = read_epoch({.files = {23, 9}, .window = 8});
  const checkpoint::Metadata& saved = epoch.saved[2];
  const auto start = [&](const Log& log, ResumeData mode) {
    Reading reading = begin_reading(*log.open(), log.config());
    resume_reading(reading, {saved, "ck", mode}, *log.open(), log.config());
    EXPECT_EQ(reading.same_data, log.files.front() == 23 && log.files.size() == 2);
    EXPECT_EQ(reading.data.files.size(), log.files.size());
    return reading.start.sample;
  };
  EXPECT_EQ(start({.files = {40}, .window = 8}, ResumeData::kFromStart), 0);
  EXPECT_EQ(start({.files = {40}, .window = 8}, ResumeData::kInsist), saved.sample);
  // A restart of a job that has begun the new data goes on in them.
  EXPECT_EQ(start({.files = {23, 9}, .window = 8}, ResumeData::kFromStart), saved.sample);
  // With files appended it is asked for all of them anew.
  EXPECT_EQ(start({.files = {23, 9, 1}, .window = 8}, ResumeData::kFromStart), 0);
}

/// Warnings and notes of resumes, while it lives.
class ResumeLog {
 public:
  ResumeLog() {
    set_log_sink([this](LogLevel level, std::string_view text) {
      const std::scoped_lock lock(mutex_);
      text_ += (level == LogLevel::kWarning ? "warning: " : "") + std::string(text) + "\n";
    });
  }

  ~ResumeLog() { set_log_sink(nullptr); }

  ResumeLog(const ResumeLog&) = delete;
  ResumeLog& operator=(const ResumeLog&) = delete;

  bool says(const std::string& part) {
    const std::scoped_lock lock(mutex_);
    return text_.find(part) != std::string::npos;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

/// As builds before version 3 wrote it.
void forget_data(const std::string& folder) {
  const std::string directory = checkpoint::find_checkpoint(folder);
  checkpoint::Manifest manifest = checkpoint::read_manifest(directory);
  ASSERT_TRUE(manifest.metadata.data.has_value());
  manifest.metadata.data.reset();
  std::ofstream(directory + "/manifest.json", std::ios::binary)
      << checkpoint::manifest_to_json(manifest);
}

TEST(DataIdentity, CheckpointsWithoutOneLoadWithAWarning) {
  JobOptions options = job_options(make_job({"train.steps=6"}));
  const Summary whole = train_on(2, options);
  const TemporaryFolder folder;
  JobOptions first = options;
  first.config.train.steps = 4;
  first.checkpoint_dir = folder.path();
  train_on(2, first);
  forget_data(folder.path());
  options.resume = folder.path();
  ResumeLog log;
  const Summary resumed = train_on(2, options);
  EXPECT_TRUE(log.says("warning: resume: the checkpoint was written by Weft"));
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
}

TEST(DataIdentity, CheckpointsWithoutOneHeededNoSalt) {
  JobOptions options = job_options(make_job({"train.steps=4"}));
  const TemporaryFolder folder;
  options.checkpoint_dir = folder.path();
  train_on(1, options);
  options.resume = std::exchange(options.checkpoint_dir, "");
  options.config = make_job({"train.steps=6", "sparse_features.rare.salt=other"});
  train_on(1, options);  // another mapping of ids, as asked for: a warning
  forget_data(folder.path());
  try {
    train_on(1, options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    const std::string text = error.what();
    EXPECT_NE(text.find("did not heed salts: feature rare"), std::string::npos) << text;
    EXPECT_NE(text.find("Remove the key"), std::string::npos) << text;
  }
  options.config = make_job({"train.steps=6"});
  train_on(1, options);
}

TEST(DataIdentity, MoreGeneratedSamplesAreAnotherOrderUnlessInWindows) {
  for (const char* window : {"0", "61"}) {
    const std::string shuffle = std::string("data.shuffle.window=") + window;
    const TemporaryFolder folder;
    JobOptions first = job_options(make_job({"train.steps=4", shuffle}));
    first.checkpoint_dir = folder.path();
    train_on(1, first);
    JobOptions second =
        job_options(make_job({"train.steps=9", "data.synthetic.samples=600", shuffle}));
    const Summary whole = train_on(1, second);
    second.resume = folder.path();
    if (std::string(window) == "0") {
      EXPECT_THROW(train_on(1, second), Error);
      second.config.data.synthetic.samples = 430;  // as many as there were
      EXPECT_EQ(train_on(1, second).steps, 5);
    } else {
      EXPECT_EQ(train_on(1, second).state_hash, whole.state_hash);
    }
  }
}

}  // namespace
}  // namespace weft::train
