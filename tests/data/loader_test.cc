#include "weft/data/loader.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/data/data_support.h"

namespace weft::data {
namespace {

using Ids = std::vector<std::int64_t>;

enum class Access { kRandom, kSequential };

/// `size` samples whose one id and dense value are the sample's number. Checks the calls it gets.
class CountingSource final : public Source {
 public:
  CountingSource(std::int64_t size, Access access, std::int64_t bad_sample = -1)
      : size_(size), access_(access), bad_sample_(bad_sample) {
    schema_.labels = {"label"};
    schema_.dense = {"x"};
    schema_.categorical = {{"id"}};
  }

  [[nodiscard]] const Schema& schema() const override { return schema_; }

  [[nodiscard]] std::string describe() const override { return "counting"; }

  std::int64_t load(std::int64_t first, std::int64_t count) override {
    WEFT_CHECK(first >= first_ || first == 0, "load({}) after load({})", first, first_);
    first_ = first;
    end_ = std::min(size_, first + count);
    met_the_end_ |= first + count > size_;
    return std::clamp<std::int64_t>(size_ - first, 0, count);
  }

  void read(std::span<const std::int64_t> sample_ids, RawBlock& out) override {
    out.reset(schema_);
    out.categorical[0].offsets.push_back(0);
    for (const std::int64_t id : sample_ids) {
      WEFT_CHECK(id >= first_ && id < end_, "sample {} outside [{}, {})", id, first_, end_);
      if (id == bad_sample_) {
        fail(ErrorCode::kData, "sample {} is bad", id);
      }
      out.sample_ids.push_back(id);
      out.dense[0].push_back(static_cast<float>(id));
      out.labels[0].push_back(static_cast<float>(id % 2));
      out.categorical[0].ids.push_back(id);
      out.categorical[0].offsets.push_back(out.categorical[0].offsets.back() + 1);
    }
    out.size = static_cast<std::int64_t>(sample_ids.size());
  }

  void select(std::span<const std::string>) override {}

  [[nodiscard]] bool random_access() const override { return access_ == Access::kRandom; }

  [[nodiscard]] std::int64_t size() const override {
    return access_ == Access::kRandom || met_the_end_ ? size_ : -1;
  }

  [[nodiscard]] std::uint64_t fingerprint() const override { return 0; }

 private:
  Schema schema_;
  std::int64_t size_;
  Access access_;
  std::int64_t bad_sample_;
  std::int64_t first_ = 0;
  std::int64_t end_ = 0;
  bool met_the_end_ = false;
};

spec::Config counting_config() {
  spec::Config config;
  config.seed = 7;
  config.sparse_features.resize(1);
  config.sparse_features[0].name = "id";
  config.sparse_features[0].mapping = spec::IdMapping::kIdentity;
  config.tables.resize(1);
  config.tables[0].name = "id";
  config.tables[0].num_embeddings = 1 << 20;
  config.dense_features.resize(1);
  config.dense_features[0].name = "x";
  return config;
}

Loader make_loader(std::int64_t size, Access access, const LoaderOptions& options) {
  static const Vocabularies none;
  return {std::make_unique<CountingSource>(size, access), counting_config(), none, options};
}

/// (epoch, step, sample ids) of every global batch, put together from all ranks.
struct GlobalBatch {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  Ids ids;
  ReaderPosition after;

  friend bool operator==(const GlobalBatch&, const GlobalBatch&) = default;
};

std::vector<GlobalBatch> global_batches(std::int64_t size,
                                        Access access,
                                        LoaderOptions options,
                                        std::int64_t ranks) {
  std::vector<GlobalBatch> out;
  options.ranks = ranks;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    options.rank = rank;
    Loader loader = make_loader(size, access, options);
    Batch batch;
    for (std::size_t k = 0; loader.next(batch); ++k) {
      if (rank == 0) {
        out.push_back({batch.epoch, batch.step,
                       Ids(static_cast<std::size_t>(batch.global_size), -1), loader.position()});
      }
      WEFT_CHECK(k < out.size() && out[k].after == loader.position());
      batch.sparse.validate();
      for (std::int64_t i = 0; i < batch.size(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        WEFT_CHECK(batch.sparse.values[at] == batch.sample_ids[at] &&
                   batch.dense[at] == static_cast<float>(batch.sample_ids[at]));
        out[k].ids[static_cast<std::size_t>(batch.positions.begin + i)] = batch.sample_ids[at];
      }
    }
  }
  return out;
}

Ids all_ids(const std::vector<GlobalBatch>& batches, std::int64_t epoch) {
  Ids ids;
  for (const GlobalBatch& batch : batches) {
    if (batch.epoch == epoch) {
      ids.insert(ids.end(), batch.ids.begin(), batch.ids.end());
    }
  }
  return ids;
}

Ids sorted(Ids ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

Ids counting(std::int64_t size) {
  Ids ids(static_cast<std::size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

LoaderOptions small_options() {
  LoaderOptions options;
  options.batch_size = 32;
  options.window = 50;
  options.epochs = 2;
  return options;
}

TEST(Loader, WithoutShufflingKeepsTheOrder) {
  LoaderOptions options = small_options();
  options.shuffle = false;
  for (const Access access : {Access::kRandom, Access::kSequential}) {
    const auto batches = global_batches(100, access, options, 1);
    ASSERT_EQ(batches.size(), 8U);
    EXPECT_EQ(batches[3].ids, (Ids{96, 97, 98, 99}));
    EXPECT_EQ(all_ids(batches, 0), counting(100));
    EXPECT_EQ(all_ids(batches, 1), counting(100));
  }
}

TEST(Loader, ShufflesInsideWindowsAndAnewEachEpoch) {
  const auto batches = global_batches(120, Access::kSequential, small_options(), 1);
  const Ids first = all_ids(batches, 0);
  EXPECT_EQ(sorted(first), counting(120));
  EXPECT_EQ(sorted(Ids(first.begin(), first.begin() + 50)), counting(50));
  EXPECT_NE(first, counting(120));
  EXPECT_NE(Ids(first.begin() + 100, first.end()), Ids(first.begin(), first.begin() + 20));
  EXPECT_NE(all_ids(batches, 1), first);
  EXPECT_EQ(sorted(all_ids(batches, 1)), counting(120));
}

TEST(Loader, SamplesOfAnEpochAreKnownOnceTheirEndWasMet) {
  const auto known = [](Access access, std::int64_t batch_size) {
    LoaderOptions options = small_options();
    options.batch_size = batch_size;
    Loader loader = make_loader(100, access, options);
    Ids found;
    Batch batch;
    while (loader.next(batch)) {
      found.push_back(loader.epoch_samples());
    }
    found.push_back(loader.epoch_samples());
    return found;
  };
  EXPECT_EQ(known(Access::kSequential, 32), (Ids{-1, -1, -1, 100, 100, 100, 100, 100, 100}));
  EXPECT_EQ(known(Access::kSequential, 50), (Ids{-1, -1, 100, 100, 100}));
  EXPECT_EQ(known(Access::kRandom, 50), (Ids{100, 100, 100, 100, 100}));
}

TEST(Loader, AStartBehindTheEndIsRefused) {
  for (const Access access : {Access::kRandom, Access::kSequential}) {
    for (const bool shuffle : {true, false}) {
      LoaderOptions options = small_options();
      options.shuffle = shuffle;
      for (const std::int64_t start : {101, 149, 150, 151, 100000}) {
        options.start = {0, start};
        Loader loader = make_loader(100, access, options);
        Batch batch;
        expect_error(ErrorCode::kData, {"at sample " + std::to_string(start), "has 100"},
                     [&] { loader.next(batch); });
      }
      options.start = {0, 100};  // the end of an epoch
      const auto batches = global_batches(100, access, options, 1);
      ASSERT_EQ(batches.size(), 4U);
      EXPECT_EQ(batches.front().epoch, 1);
    }
  }
}

TEST(Loader, WindowZeroIsAllWhereAccessIsRandom) {
  LoaderOptions options = small_options();
  options.window = 0;
  const Ids ids = all_ids(global_batches(1000, Access::kRandom, options, 1), 0);
  EXPECT_GT(*std::max_element(ids.begin(), ids.begin() + 32), 500);
}

TEST(Loader, SeedDecidesTheOrder) {
  const auto order = [](std::uint64_t seed) {
    spec::Config config = counting_config();
    config.seed = seed;
    const Vocabularies none;
    Loader loader(std::make_unique<CountingSource>(100, Access::kRandom), config, none,
                  LoaderOptions{});
    Batch batch;
    loader.next(batch);
    return batch.sample_ids;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(Loader, EveryNumberOfRanksSeesTheSameGlobalBatches) {
  LoaderOptions options = small_options();
  for (const Access access : {Access::kRandom, Access::kSequential}) {
    const auto expected = global_batches(117, access, options, 1);
    for (const std::int64_t ranks : {2, 3, 4, 5, 8}) {
      EXPECT_EQ(global_batches(117, access, options, ranks), expected) << ranks;
    }
  }
}

TEST(Loader, ARankWithoutSamplesGetsAnEmptyBatch) {
  LoaderOptions options = small_options();
  options.epochs = 1;
  options.ranks = 5;
  options.rank = 0;
  Loader loader = make_loader(2, Access::kRandom, options);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.global_size, 2);
  EXPECT_EQ(batch.size(), 0);
  EXPECT_EQ(batch.sparse.offsets, Ids{0});
  EXPECT_FALSE(loader.next(batch));
  EXPECT_FALSE(loader.next(batch));
}

TEST(Loader, TakesWeightsLabelsAndFirstStep) {
  LoaderOptions options = small_options();
  options.first_step = 40;
  Loader loader = make_loader(100, Access::kRandom, options);
  Batch batch;
  loader.next(batch);
  EXPECT_EQ(batch.step, 40);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(batch.labels[i], static_cast<float>(batch.sample_ids[i] % 2));
    EXPECT_EQ(batch.label_weights[i], 1.0F);
  }
}

TEST(Loader, ErrorsArriveAfterTheBatchesBefore) {
  LoaderOptions options = small_options();
  options.shuffle = false;
  const Vocabularies none;
  Loader loader(std::make_unique<CountingSource>(1000, Access::kSequential, 70), counting_config(),
                none, options);
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_TRUE(loader.next(batch));
  for (int i = 0; i < 2; ++i) {
    expect_error(ErrorCode::kData, {"sample 70 is bad"}, [&] { loader.next(batch); });
  }
}

TEST(Loader, AnEmptySourceIsAnError) {
  for (const Access access : {Access::kRandom, Access::kSequential}) {
    Loader loader = make_loader(0, access, small_options());
    Batch batch;
    expect_error(ErrorCode::kData, {"counting", "no samples"}, [&] { loader.next(batch); });
  }
}

TEST(Loader, EndsWhileItReadsAhead) {
  LoaderOptions options = small_options();
  options.epochs = 0;
  options.read_ahead = 4;
  for (int i = 0; i < 20; ++i) {
    Loader loader = make_loader(1000, Access::kSequential, options);
    Batch batch;
    for (int k = 0; k < i; ++k) {
      loader.next(batch);
    }
  }
}

TEST(Loader, ReusesTheMemoryOfItsBatches) {
  LoaderOptions options = small_options();
  options.epochs = 0;
  options.read_ahead = 2;
  Loader loader = make_loader(96, Access::kRandom, options);
  Batch batch;
  std::set<const void*> seen;
  for (int k = 0; k < 30; ++k) {
    loader.next(batch);
    seen.insert(batch.dense.data());
  }
  EXPECT_EQ(seen.size(), 3U);  // two in the ring and the caller's
}

TEST(Loader, RefusesOptionsOutOfRange) {
  LoaderOptions options = small_options();
  options.batch_size = 0;
  expect_error(ErrorCode::kConfig, {"batch_size 0"},
               [&] { make_loader(10, Access::kRandom, options); });
  options = small_options();
  options.start.sample = -1;
  expect_error(ErrorCode::kConfig, {"sample -1"},
               [&] { make_loader(10, Access::kRandom, options); });
}

TEST(LoaderOptions, FollowTheConfiguration) {
  spec::Config config;
  config.batch_size = 77;
  config.train.epochs = 3;
  config.data.shuffle.window = 5;
  config.data.read_ahead = 4;
  LoaderOptions options = LoaderOptions::train(config, 1, 2, 8);
  EXPECT_EQ(std::tuple(options.rank, options.ranks, options.parts, options.epochs,
                       options.batch_size, options.window, options.read_ahead),
            (std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                        std::int64_t, std::int64_t>(1, 2, 8, 3, 77, 5, 4)));
  EXPECT_TRUE(options.shuffle);
  config.train.steps = 10;
  EXPECT_EQ(LoaderOptions::train(config, 0, 1, 8).epochs, 0);
  options = LoaderOptions::eval(config, 0, 1, 8);
  EXPECT_EQ(options.epochs, 1);
  EXPECT_FALSE(options.shuffle);
}

TEST(Loader, CriteoOverRanksAndWindows) {
  const TemporaryFolder folder;
  spec::Config config;
  config.data.format = spec::DataFormat::kCriteo;
  config.data.path = {folder.write("a.txt", criteo_text(0, 333)),
                      folder.write("b.txt", criteo_text(333, 500))};
  config.sparse_features.resize(1);
  config.sparse_features[0].name = "C1";
  config.sparse_features[0].mapping = spec::IdMapping::kModulo;
  config.tables.resize(1);
  config.tables[0].name = "C1";
  config.tables[0].num_embeddings = 1000;
  const Vocabularies none;
  LoaderOptions options = small_options();
  options.batch_size = 100;
  options.window = 64;
  options.ranks = 3;
  std::vector<std::map<std::int64_t, int>> seen(2);
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    Loader loader(open_source(config, Split::kTrain), config, none, options);
    Batch batch;
    while (loader.next(batch)) {
      EXPECT_EQ(batch.sparse.values, batch.sample_ids);
      for (const std::int64_t id : batch.sample_ids) {
        ++seen[static_cast<std::size_t>(batch.epoch)][id];
      }
    }
    EXPECT_EQ(loader.position(), (ReaderPosition{1, 833}));
  }
  for (const auto& epoch : seen) {
    EXPECT_EQ(epoch.size(), 833U);
    for (const auto& [id, times] : epoch) {
      EXPECT_EQ(times, 1) << id;
    }
  }
}

LoaderOptions any_options() {
  LoaderOptions options;
  options.batch_size = *rc::gen::inRange<std::int64_t>(1, 40);
  options.window = *rc::gen::inRange<std::int64_t>(0, 60);
  options.shuffle = *rc::gen::arbitrary<bool>();
  options.epochs = *rc::gen::inRange<std::int64_t>(1, 4);
  options.read_ahead = *rc::gen::inRange<std::int64_t>(1, 4);
  return options;
}

RC_GTEST_PROP(LoaderProperty, EveryEpochHoldsEverySampleOnce, ()) {
  const LoaderOptions options = any_options();
  const auto size = *rc::gen::inRange<std::int64_t>(1, 200);
  const auto ranks = *rc::gen::inRange<std::int64_t>(1, 6);
  const auto batches = global_batches(size, Access::kRandom, options, 1);
  RC_ASSERT(global_batches(size, Access::kRandom, options, ranks) == batches);
  if (options.window > 0 || !options.shuffle) {
    RC_ASSERT(global_batches(size, Access::kSequential, options, ranks) == batches);
  }
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    RC_ASSERT(sorted(all_ids(batches, epoch)) == counting(size));
  }
  for (const GlobalBatch& batch : batches) {
    const auto full = static_cast<std::size_t>(options.batch_size);
    RC_ASSERT(batch.ids.size() == full || batch.after.sample == size);
  }
}

RC_GTEST_PROP(LoaderProperty, ResumingGivesWhatWouldHaveFollowed, ()) {
  LoaderOptions options = any_options();
  const auto size = *rc::gen::inRange<std::int64_t>(1, 200);
  const auto access = *rc::gen::element(Access::kRandom, Access::kSequential);
  const auto batches = global_batches(size, access, options, 1);
  const auto stop = *rc::gen::inRange<std::size_t>(0, batches.size());
  options.start = batches[stop].after;
  options.first_step = batches[stop].step + 1;
  const std::vector<GlobalBatch> rest(batches.begin() + static_cast<std::ptrdiff_t>(stop) + 1,
                                      batches.end());
  RC_ASSERT(global_batches(size, access, options, 2) == rest);
}

}  // namespace
}  // namespace weft::data
