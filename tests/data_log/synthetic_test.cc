// The generated click log: the same whatever the order, with the laws its configuration states.

#include "weft/data/synthetic.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/data/click_log.h"
#include "weft/data/zipf.h"
#include "weft/spec/walk.h"

namespace weft::data {
namespace {

spec::DataConfig small_config() {
  spec::DataConfig config;
  config.synthetic.samples = 3000;
  config.synthetic.eval_samples = 500;
  config.synthetic.dense_columns = 3;
  config.synthetic.visitors = 50;
  spec::SyntheticColumn plain;
  plain.name = "plain";
  spec::SyntheticColumn bag;
  bag.name = "bag";
  bag.min_length = 1;
  bag.max_length = 4;
  bag.missing = 0.25;
  spec::SyntheticColumn visit;
  visit.name = "visit";
  visit.cardinality = 1'000'000;
  visit.repeat = 1.0;
  config.synthetic.columns = {plain, bag, visit};
  return config;
}

std::vector<std::int64_t> iota(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

RawBlock read(Source& source, const std::vector<std::int64_t>& ids) {
  RawBlock block;
  source.read(ids, block);
  return block;
}

std::vector<std::int64_t> bag_of(const RawBlock::Bags& bags, std::size_t sample) {
  return {bags.ids.begin() + bags.offsets[sample], bags.ids.begin() + bags.offsets[sample + 1]};
}

bool same_float(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

void expect_same_sample(const RawBlock& a, std::size_t i, const RawBlock& b, std::size_t j) {
  for (std::size_t column = 0; column < a.categorical.size(); ++column) {
    EXPECT_EQ(bag_of(a.categorical[column], i), bag_of(b.categorical[column], j));
  }
  for (std::size_t column = 0; column < a.dense.size(); ++column) {
    EXPECT_TRUE(same_float(a.dense[column][i], b.dense[column][j]));
  }
  EXPECT_EQ(a.labels[0][i], b.labels[0][j]);
}

TEST(Synthetic, SampleDependsOnItsIdOnly) {
  const auto one = open_synthetic(small_config(), 7, Split::kTrain);
  const auto two = open_synthetic(small_config(), 7, Split::kTrain);
  const RawBlock all = read(*one, iota(0, 3000));
  // Another source, another order, pieces that straddle the generator's chunks.
  std::vector<std::int64_t> ids = iota(0, 3000);
  std::reverse(ids.begin(), ids.end());
  const RawBlock back = read(*two, ids);
  for (std::size_t i = 0; i < 3000; ++i) {
    expect_same_sample(all, i, back, 2999 - i);
  }
  const RawBlock piece = read(*two, {1023, 5, 1024, 5});
  expect_same_sample(all, 1023, piece, 0);
  expect_same_sample(all, 5, piece, 1);
  expect_same_sample(all, 1024, piece, 2);
  expect_same_sample(all, 5, piece, 3);
}

TEST(Synthetic, EvaluationSamplesFollowTrainingSamples) {
  spec::DataConfig longer = small_config();
  longer.synthetic.samples = 3500;
  const auto train = open_synthetic(longer, 7, Split::kTrain);
  const auto eval = open_synthetic(small_config(), 7, Split::kEval);
  EXPECT_EQ(eval->size(), 500);
  const RawBlock a = read(*train, iota(3000, 500));
  const RawBlock b = read(*eval, iota(0, 500));
  for (std::size_t i = 0; i < 500; ++i) {
    expect_same_sample(a, i, b, i);
  }
}

TEST(Synthetic, ContentIsOfTheStreamAndNotOfItsLength) {
  const spec::DataConfig config = small_config();
  const auto content = [](const spec::DataConfig& data, std::uint64_t seed) {
    return fingerprint_of(open_synthetic(data, seed, Split::kTrain)->content(9));
  };
  const std::uint64_t base = content(config, 7);
  EXPECT_NE(content(config, 8), base);
  spec::DataConfig longer = config;
  longer.synthetic.samples += 100;
  longer.synthetic.eval_samples += 100;
  EXPECT_EQ(content(longer, 7), base);
  EXPECT_NE(open_synthetic(longer, 7, Split::kTrain)->fingerprint(),
            open_synthetic(config, 7, Split::kTrain)->fingerprint());
  spec::DataConfig other = config;
  other.synthetic.signal += 0.5;
  EXPECT_NE(content(other, 7), base);
}

TEST(Synthetic, SeedAndLimitsCount) {
  spec::DataConfig config = small_config();
  const auto one = open_synthetic(config, 7, Split::kTrain);
  const auto two = open_synthetic(config, 8, Split::kTrain);
  EXPECT_NE(one->fingerprint(), two->fingerprint());
  EXPECT_NE(read(*one, iota(0, 100)).categorical[0].ids,
            read(*two, iota(0, 100)).categorical[0].ids);
  config.max_samples = 10;
  const auto few = open_synthetic(config, 7, Split::kTrain);
  EXPECT_EQ(few->size(), 10);
  EXPECT_EQ(few->load(8, 5), 2);
  EXPECT_EQ(few->load(10, 5), 0);
  EXPECT_EQ(read(*few, {}).size, 0);
}

/// Logs of one seed share what they draw from while one of them is open. Those that are opened at
/// once, beside one of another seed, give what a log that is alone gives.
TEST(Synthetic, LogsThatAreOpenAtOnceAreThoseThatAreAlone) {
  constexpr std::size_t kLogs = 4;
  const auto labels_and_ids = [](std::uint64_t seed) {
    const RawBlock block = read(*open_synthetic(small_config(), seed, Split::kTrain), iota(0, 400));
    return std::pair(block.labels[0], block.categorical[1].ids);
  };
  const auto alone = labels_and_ids(7);
  const auto other = labels_and_ids(8);
  ASSERT_NE(alone, other);
  std::vector<std::unique_ptr<Source>> open(kLogs);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kLogs; ++i) {
    threads.emplace_back(
        [&, i] { open[i] = open_synthetic(small_config(), i == 1 ? 8 : 7, Split::kTrain); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t i = 0; i < kLogs; ++i) {
    const RawBlock block = read(*open[i], iota(0, 400));
    EXPECT_EQ(std::pair(block.labels[0], block.categorical[1].ids), i == 1 ? other : alone) << i;
  }
}

TEST(Synthetic, SelectionAndOtherColumnsChangeNothing) {
  const auto all = open_synthetic(small_config(), 7, Split::kTrain);
  const auto some = open_synthetic(small_config(), 7, Split::kTrain);
  const std::vector<std::string> names = {"bag", "d2", "label"};
  some->select(names);
  const RawBlock a = read(*all, iota(0, 2000));
  const RawBlock b = read(*some, iota(0, 2000));
  EXPECT_EQ(a.categorical[1].ids, b.categorical[1].ids);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_TRUE(std::equal(a.dense[1].begin(), a.dense[1].end(), b.dense[1].begin(), same_float));
  EXPECT_TRUE(b.categorical[0].ids.empty());
  EXPECT_TRUE(b.dense[0].empty());
  spec::DataConfig more = small_config();
  more.synthetic.columns.insert(more.synthetic.columns.begin(), spec::SyntheticColumn{"new"});
  const auto wider = open_synthetic(more, 7, Split::kTrain);
  EXPECT_EQ(read(*wider, iota(0, 2000)).categorical[2].ids, a.categorical[1].ids);
}

TEST(Synthetic, WeightsLeaveTheLawsAsTheyAre) {
  spec::DataConfig config = small_config();
  config.synthetic.columns[1].weighted = true;
  const auto weighted = open_synthetic(config, 7, Split::kTrain);
  EXPECT_TRUE(weighted->schema().categorical[1].weighted);
  const RawBlock a = read(*open_synthetic(small_config(), 7, Split::kTrain), iota(0, 2000));
  const RawBlock b = read(*weighted, iota(0, 2000));
  EXPECT_EQ(a.categorical[1].ids, b.categorical[1].ids);
  EXPECT_TRUE(b.categorical[0].weights.empty());
  ASSERT_EQ(b.categorical[1].weights.size(), b.categorical[1].ids.size());
  const auto [least, most] =
      std::minmax_element(b.categorical[1].weights.begin(), b.categorical[1].weights.end());
  EXPECT_GE(*least, 0.5F);
  EXPECT_LT(*most, 1.5F);
  EXPECT_NE(a.labels, b.labels);  // the teacher sees them
}

TEST(Synthetic, LengthsMissingAndVisitors) {
  const auto source = open_synthetic(small_config(), 3, Split::kTrain);
  const RawBlock block = read(*source, iota(0, 3000));
  std::vector<double> lengths(5, 0.0);
  std::set<std::int64_t> visits;
  for (std::size_t i = 0; i < 3000; ++i) {
    lengths[bag_of(block.categorical[1], i).size()] += 1.0 / 3000;
    visits.insert(bag_of(block.categorical[2], i).front());
    EXPECT_EQ(bag_of(block.categorical[0], i).size(), 1U);
  }
  EXPECT_NEAR(lengths[0], 0.25, 0.04);
  for (std::size_t length = 1; length <= 4; ++length) {
    EXPECT_NEAR(lengths[length], 0.75 / 4, 0.04);
  }
  // Every bag is its visitor's, so there are no more of them than visitors.
  EXPECT_LE(visits.size(), 50U);
  EXPECT_GE(visits.size(), 20U);
  const auto missing = std::count_if(block.dense[0].begin(), block.dense[0].end(),
                                     [](float value) { return std::isnan(value); });
  EXPECT_NEAR(static_cast<double>(missing) / 3000, 0.05, 0.02);
}

TEST(Synthetic, BaseRateAndBestNeAreThoseOfTheLabels) {
  spec::DataConfig config = small_config();
  config.synthetic.samples = 60'000;
  config.synthetic.base_rate = 0.2;
  config.synthetic.signal = 1.5;
  const auto source = open_synthetic(config, 5, Split::kTrain);
  const RawBlock block = read(*source, iota(0, 60'000));
  ClickLog log(config.synthetic, 5);
  std::vector<double> p;
  log.probabilities(0, 60'000, p);
  double loss = 0.0;
  double mean = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const bool click = block.labels[0][i] > 0.5F;
    loss -= std::log(click ? p[i] : 1.0 - p[i]) / 60'000;
    mean += (click ? 1.0 : 0.0) / 60'000;
  }
  EXPECT_NEAR(mean, 0.2, 0.01);
  const double entropy = -mean * std::log(mean) - (1.0 - mean) * std::log(1.0 - mean);
  ASSERT_TRUE(source->bayes_ne().has_value());
  EXPECT_NEAR(*source->bayes_ne(), loss / entropy, 0.01);
  EXPECT_LT(*source->bayes_ne(), 0.85);
  config.synthetic.signal = 0.0;
  EXPECT_NEAR(*open_synthetic(config, 5, Split::kEval)->bayes_ne(), 1.0, 1e-9);
}

/// Largest permitted values by key, as the description of the keys says.
class BoundsOf final : public spec::Visitor {
 public:
  explicit BoundsOf(std::map<std::string_view, double>& most) : most_(most) {}

  void value(const spec::Field& field, const spec::Value& /*value*/) override {
    most_[field.name] = field.bounds.max;
  }

  void section(const spec::Field& /*field*/, const std::function<void(Visitor&)>& body) override {
    body(*this);
  }

  void list(const spec::Field& /*field*/, const spec::ListAccess& access) override {
    access.visit_default(*this);
  }

 private:
  std::map<std::string_view, double>& most_;
};

TEST(Synthetic, GeneratesWhatValidationAllowsAndNoMore) {
  const auto generates = [](auto change) {
    spec::SyntheticConfig config = small_config().synthetic;
    change(config);
    try {
      ClickLog(config, 1);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  for (const int beyond : {0, 1}) {
    EXPECT_NE(generates([&](auto& c) { c.signal = c.kMaxSignal + beyond; }), beyond) << "signal";
    EXPECT_NE(generates([&](auto& c) { c.visitors = c.kMaxIds + beyond; }), beyond) << "visitors";
    EXPECT_NE(generates([&](auto& c) { c.columns[0].cardinality = c.kMaxIds + beyond; }), beyond)
        << "cardinality";
  }
  // One bound each: that of the description is that of the generator.
  std::map<std::string_view, double> most;
  BoundsOf bounds(most);
  spec::SyntheticConfig config = small_config().synthetic;
  spec::walk(bounds, config);
  EXPECT_EQ(most.at("signal"), spec::SyntheticConfig::kMaxSignal);
  EXPECT_EQ(most.at("visitors"), static_cast<double>(spec::SyntheticConfig::kMaxIds));
  EXPECT_EQ(most.at("cardinality"), static_cast<double>(spec::SyntheticConfig::kMaxIds));
  EXPECT_EQ(most.at("max_length"), static_cast<double>(spec::SyntheticConfig::kMaxLength));
}

TEST(Synthetic, OddShapesAreGenerated) {
  spec::DataConfig config;
  config.synthetic.samples = 10;
  config.synthetic.eval_samples = 0;
  config.synthetic.dense_columns = 0;
  const auto bare = open_synthetic(config, 1, Split::kTrain);
  EXPECT_EQ(read(*bare, iota(0, 10)).labels[0].size(), 10U);
  EXPECT_FALSE(open_synthetic(config, 1, Split::kEval)->bayes_ne().has_value());
  spec::SyntheticColumn one;
  one.name = "one";
  one.cardinality = 1;
  spec::SyntheticColumn never;
  never.name = "never";
  never.missing = 1.0;
  spec::SyntheticColumn empty;
  empty.name = "empty";
  empty.min_length = 0;
  empty.max_length = 0;
  spec::SyntheticColumn huge;
  huge.name = "huge";
  huge.cardinality = ZipfSampler::kMaxRanks;
  huge.zipf = 0.0;
  config.synthetic.columns = {one, never, empty, huge};
  const RawBlock block = read(*open_synthetic(config, 1, Split::kTrain), iota(0, 10));
  EXPECT_EQ(block.categorical[0].ids, std::vector<std::int64_t>(10, 0));
  EXPECT_TRUE(block.categorical[1].ids.empty());
  EXPECT_TRUE(block.categorical[2].ids.empty());
  EXPECT_EQ(block.categorical[3].ids.size(), 10U);
}

TEST(Synthetic, RefusesWhatItCannotGenerate) {
  const auto refused = [](auto change) {
    spec::DataConfig config = small_config();
    change(config.synthetic);
    try {
      open_synthetic(config, 1, Split::kTrain);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kConfig;
    }
    return false;
  };
  EXPECT_TRUE(refused([](auto& c) { c.columns[0].cardinality = 0; }));
  EXPECT_TRUE(refused([](auto& c) { c.columns[0].zipf = -1.0; }));
  EXPECT_TRUE(refused([](auto& c) { c.columns[0].max_length = 0; }));
  EXPECT_TRUE(refused([](auto& c) { c.columns[0].missing = 1.5; }));
  EXPECT_TRUE(refused([](auto& c) { c.base_rate = 1.0; }));
  EXPECT_TRUE(refused([](auto& c) { c.visitors = 0; }));
}

// Chi-square of observed ranks against probability(), ranks of one class where `last` is not below.
double chi_square(std::int64_t n, double exponent, std::uint64_t last) {
  const ZipfSampler sampler(n, exponent);
  constexpr int kDraws = 200'000;
  std::vector<double> observed(last + 1, 0.0);
  WordStream words(99);
  for (int i = 0; i < kDraws; ++i) {
    observed[std::min(sampler(words), last)] += 1.0;
  }
  double rest = 1.0;
  double sum = 0.0;
  for (std::uint64_t rank = 0; rank < last; ++rank) {
    const double expected = kDraws * sampler.probability(rank);
    rest -= sampler.probability(rank);
    sum += (observed[rank] - expected) * (observed[rank] - expected) / expected;
  }
  const double expected = std::max(kDraws * rest, 1e-9);
  return sum + (observed[last] - expected) * (observed[last] - expected) / expected;
}

TEST(Zipf, FrequenciesFollowTheLaw) {
  // A chi-square of k degrees of freedom has mean k and deviation sqrt(2 k): six deviations.
  const auto bound = [](double k) { return k + 6.0 * std::sqrt(2.0 * k); };
  EXPECT_LT(chi_square(1000, 1.05, 999), bound(999));
  EXPECT_LT(chi_square(1'000'000, 1.2, 2000), bound(2000));
  EXPECT_LT(chi_square(100'000'000, 1.0, 500), bound(500));
  EXPECT_LT(chi_square(300, 0.0, 299), bound(299));
  EXPECT_LT(chi_square(40, 3.0, 12), bound(12));
  EXPECT_LT(chi_square(2, 1.0, 1), bound(1));
}

TEST(Zipf, RanksStayInRange) {
  for (const std::int64_t n : {1, 2, 33, 65, 1'000'003}) {
    const ZipfSampler sampler(n, 0.5);
    WordStream words(1);
    for (int i = 0; i < 2000; ++i) {
      EXPECT_LT(sampler(words), static_cast<std::uint64_t>(n));
    }
  }
}

TEST(Scatter, IsABijectionThatSeparatesNeighbours) {
  for (const std::uint64_t n : {1, 2, 3, 7, 64, 1000, 4097}) {
    for (const std::uint64_t key : {1, 2, 3}) {
      const Scatter scatter(n, key);
      std::set<std::uint64_t> seen;
      for (std::uint64_t i = 0; i < n; ++i) {
        EXPECT_LT(scatter(i), n);
        seen.insert(scatter(i));
      }
      EXPECT_EQ(seen.size(), n);
    }
  }
  // Places of neighbouring ranks are as far apart as random ones: n / 3 on average.
  const std::uint64_t n = 1'000'000;
  const Scatter scatter(n, 17);
  double distance = 0.0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    distance +=
        std::abs(static_cast<double>(scatter(i + 1)) - static_cast<double>(scatter(i))) / 1000;
  }
  EXPECT_NEAR(distance / static_cast<double>(n), 1.0 / 3.0, 0.08);
}

}  // namespace
}  // namespace weft::data
