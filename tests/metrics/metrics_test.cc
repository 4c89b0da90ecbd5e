#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/metrics/auc.h"
#include "weft/metrics/binary.h"
#include "weft/metrics/score_window.h"
#include "weft/metrics/throughput.h"

namespace weft::metrics {
namespace {

struct Sample {
  float score;
  float label;
  float weight;
};

/// The definition, pair by pair.
double plain_auc(const std::vector<Sample>& samples) {
  std::int64_t twice = 0;
  std::int64_t pairs = 0;
  for (const Sample& p : samples) {
    for (const Sample& n : samples) {
      if (p.label == 1.0F && n.label == 0.0F && p.weight > 0.0F && n.weight > 0.0F) {
        twice += p.score > n.score ? 2 : (p.score == n.score ? 1 : 0);
        ++pairs;
      }
    }
  }
  return static_cast<double>(twice) / static_cast<double>(2 * pairs);
}

/// The steps of auc.h with the exchanges done in memory; sample i is on rank i % ranks.
double auc_over_ranks(const std::vector<Sample>& samples, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<AucSamples> local(count);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    local[i % count].add(samples[i].score, samples[i].label, samples[i].weight);
  }
  std::vector<std::int64_t> merged(static_cast<std::size_t>(kAucBins));
  for (const AucSamples& one : local) {
    const auto bins = one.histogram();
    std::transform(bins.begin(), bins.end(), merged.begin(), merged.begin(), std::plus<>());
  }
  const auto splitters = auc_splitters(merged, ranks);
  EXPECT_TRUE(std::is_sorted(splitters.begin(), splitters.end()));
  std::vector<AucExchange> sent;
  for (const AucSamples& one : local) {
    sent.push_back(one.partition(splitters));
  }
  std::vector<AucRange> ranges;
  for (std::size_t r = 0; r < count; ++r) {
    std::vector<std::uint32_t> keys;
    std::vector<AucCounts> counts;
    for (const AucExchange& from : sent) {
      auto begin = from.keys.begin();
      for (std::size_t p = 0; p < r; ++p) {
        begin += from.counts[p].positives + from.counts[p].negatives;
      }
      keys.insert(keys.end(), begin, begin + from.counts[r].positives + from.counts[r].negatives);
      counts.push_back(from.counts[r]);
    }
    ranges.push_back(count_range(keys, counts));
  }
  return auc(ranges);
}

std::vector<Sample> random_samples(std::uint32_t seed, int count, float step) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<Sample> out;
  for (int i = 0; i < count; ++i) {
    const float score = std::round(normal(random) / step) * step;
    const float label = normal(random) < score ? 1.0F : 0.0F;
    out.push_back({score, label, static_cast<float>(random() % 4)});
  }
  return out;
}

TEST(Auc, KeysOrderAsScores) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::array<float, 9> ascending = {-inf, -3.0F, -1e-40F, -0.0F, 1e-40F,
                                          0.5F, 1.0F,  3e38F,   inf};
  for (std::size_t i = 1; i < ascending.size(); ++i) {
    EXPECT_LT(auc_key(ascending[i - 1]), auc_key(ascending[i])) << ascending[i];
  }
  EXPECT_EQ(auc_key(-0.0F), auc_key(0.0F));
}

TEST(Auc, WhatHasNoOrderIsCountedApart) {
  AucSamples samples;
  EXPECT_THROW(samples.add(1.0F, 0.5F, 1.0F), Error);
  EXPECT_NO_THROW(samples.add(std::nanf(""), 0.5F, 0.0F));
  EXPECT_EQ(samples.not_numbers(), 0) << "of weight 0";
  samples.add(1.0F, 1.0F, 1.0F);
  samples.add(0.0F, 0.0F, 1.0F);
  EXPECT_EQ(auc(samples), 1.0);
  samples.add(std::nanf(""), 1.0F, 1.0F);
  EXPECT_EQ(samples.size(), 2);
  EXPECT_EQ(samples.not_numbers(), 1);
  EXPECT_TRUE(std::isnan(auc(samples)));
  samples.clear();
  EXPECT_EQ(samples.not_numbers(), 0);
}

std::vector<float> column(const std::vector<Sample>& samples, float Sample::* member) {
  std::vector<float> values;
  for (const Sample& sample : samples) {
    values.push_back(sample.*member);
  }
  return values;
}

/// Step `step` of a training, this rank's share of `batch` samples.
std::vector<Sample> step_of(std::uint32_t step, int batch, int rank, int ranks) {
  const std::vector<Sample> all = random_samples(step, batch, 1e-3F);
  const auto cut = [&](int r) { return all.begin() + batch * r / ranks; };
  return {cut(rank), cut(rank + 1)};
}

TEST(ScoreWindow, KeepsTheNewestWholeStepsOnAnyNumberOfRanks) {
  constexpr int kBatch = 50;
  constexpr std::int64_t kMost = 220;  // four steps of 50
  constexpr std::uint32_t kSteps = 1003;
  std::vector<Sample> newest;
  for (std::uint32_t step = kSteps - 4; step < kSteps; ++step) {
    const std::vector<Sample> samples = step_of(step, kBatch, 0, 1);
    newest.insert(newest.end(), samples.begin(), samples.end());
  }
  for (const int ranks : {1, 2, 3}) {
    std::vector<std::uint32_t> keys;
    std::vector<AucCounts> counts;
    for (int rank = 0; rank < ranks; ++rank) {
      ScoreWindow window(1, kBatch, kMost);
      EXPECT_EQ(window.most_steps(), 4);
      for (std::uint32_t step = 0; step < kSteps; ++step) {
        const std::vector<Sample> samples = step_of(step, kBatch, rank, ranks);
        window.add_step(column(samples, &Sample::score), column(samples, &Sample::label),
                        column(samples, &Sample::weight));
        ASSERT_LE(window.held(), 2 * kMost / ranks + kBatch) << "step " << step;
      }
      const AucExchange kept = window.samples().at(0).partition({});
      EXPECT_LE(window.held(), kMost);
      keys.insert(keys.end(), kept.keys.begin(), kept.keys.end());
      counts.push_back(kept.counts.at(0));
    }
    const AucRange range = count_range(keys, counts);
    EXPECT_EQ(auc(std::array{range}), plain_auc(newest)) << ranks << " ranks";
  }
}

TEST(ScoreWindow, HasEveryTaskAndAtLeastOneStep) {
  ScoreWindow window(2, 1000, 10);
  EXPECT_EQ(window.most_steps(), 1);
  window.add_step(std::array{1.0F, 9.0F, 2.0F, 8.0F}, std::array{0.0F, 0.0F, 1.0F, 1.0F},
                  std::array{1.0F, 1.0F, 1.0F, 1.0F});
  EXPECT_EQ(auc(window.samples()[0]), 1.0);
  EXPECT_EQ(auc(window.samples()[1]), 0.0);
  window.add_step(std::array{3.0F, 7.0F}, std::array{1.0F, 1.0F}, std::array{1.0F, 0.0F});
  EXPECT_EQ(window.samples()[0].size(), 1);
  EXPECT_EQ(window.samples()[1].size(), 0) << "of weight 0";
  window.clear();
  EXPECT_EQ(window.held(), 0);
}

TEST(ScoreWindow, BoundsAWindowOfAnyLength) {
  // train.log_every far above what is kept: 2^22 samples of the global batch.
  EXPECT_EQ(kWindowScores, 4194304);
  EXPECT_EQ(ScoreWindow(1, 65536).most_steps(), 64);
}

TEST(Auc, EqualsTheDefinitionOnAnyNumberOfRanks) {
  for (const float step : {1e-4F, 0.25F, 1.0F, 8.0F}) {
    for (const int count : {2, 3, 17, 400}) {
      auto samples = random_samples(static_cast<std::uint32_t>(count), count, step);
      samples[0] = {0.5F, 1.0F, 1.0F};
      samples[1] = {0.5F, 0.0F, 1.0F};
      const double expected = plain_auc(samples);
      for (int ranks = 1; ranks <= 8; ++ranks) {
        EXPECT_EQ(std::bit_cast<std::uint64_t>(auc_over_ranks(samples, ranks)),
                  std::bit_cast<std::uint64_t>(expected))
            << "step " << step << " samples " << count << " ranks " << ranks;
      }
    }
  }
}

TEST(Auc, UndefinedWithOneClass) {
  EXPECT_TRUE(std::isnan(auc_over_ranks({{1.0F, 1.0F, 1.0F}, {2.0F, 1.0F, 1.0F}}, 3)));
  EXPECT_TRUE(std::isnan(auc_over_ranks({{1.0F, 1.0F, 1.0F}, {2.0F, 0.0F, 0.0F}}, 3)));
  EXPECT_TRUE(std::isnan(auc_over_ranks({}, 2)));
}

TEST(Auc, CountsBeyond64Bits) {
  // 2 PN = 2^123. Every positive of the upper range beats every negative of the lower one.
  AucRange low;
  low.negatives = std::int64_t{1} << 61;
  AucRange high;
  high.positives = std::int64_t{1} << 61;
  EXPECT_EQ(auc(std::array{low, high}), 1.0);
  EXPECT_EQ(auc(std::array{high, low}), 0.0);
  AucRange tied;
  tied.positives = tied.negatives = std::int64_t{1} << 61;
  tied.twice_wins_high = std::uint64_t{1} << 58;  // PN = 2^122
  EXPECT_EQ(auc(std::array{tied}), 0.5);
}

TEST(Auc, RangesAreBalanced) {
  const auto samples = random_samples(5, 20000, 1e-4F);
  AucSamples state;
  for (const Sample& s : samples) {
    state.add(s.score, s.label, 1.0F);
  }
  const int ranks = 8;
  const auto exchange = state.partition(auc_splitters(state.histogram(), ranks));
  for (const AucCounts& counts : exchange.counts) {
    EXPECT_NEAR(static_cast<double>(counts.positives + counts.negatives), 2500.0, 100.0);
  }
}

TEST(Binary, EqualsScikitLearn) {
  std::ifstream file(WEFT_SOURCE_DIR "/tests/golden/metrics.json");
  const auto golden = nlohmann::json::parse(file);
  ASSERT_GE(golden["cases"].size(), 5U);
  for (const auto& test : golden["cases"]) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const auto logits = test["logits"].get<std::vector<float>>();
    const auto labels = test["labels"].get<std::vector<float>>();
    const auto weights = test["weights"].get<std::vector<float>>();
    const BinarySums sums = sum_samples(logits, labels, weights);
    EXPECT_NEAR(sums.log_loss(), test["log_loss"].get<double>(), 1e-12);
    EXPECT_NEAR(sums.ne(), test["ne"].get<double>(), 1e-12);
    EXPECT_NEAR(sums.calibration(), test["calibration"].get<double>(), 1e-12);
    EXPECT_NEAR(sums.label_mean(), test["label_mean"].get<double>(), 1e-15);
    AucSamples samples;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      samples.add(logits[i], labels[i], weights[i]);
    }
    EXPECT_NEAR(auc(samples), test["auc"].get<double>(), 1e-14);
  }
}

TEST(Binary, LossIsStableForLargeLogits) {
  BinarySums sums;
  sums.add(800.0F, 0.0F, 1.0F);
  EXPECT_EQ(sums.loss, 800.0);
  EXPECT_EQ(sums.prediction, 1.0);
  sums.add(-800.0F, 0.0F, 1.0F);
  EXPECT_EQ(sums.loss, 800.0);
  sums.add(-800.0F, 1.0F, 0.5F);
  EXPECT_EQ(sums.loss, 1200.0);
  BinarySums small;
  small.add(40.0F, 1.0F, 1.0F);
  EXPECT_NEAR(small.loss / std::exp(-40.0), 1.0, 1e-12);
}

TEST(Binary, NonFiniteLogitsStayVisible) {
  for (const float logit : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    BinarySums sums;
    sums.add(logit, 0.0F, 1.0F);
    EXPECT_FALSE(std::isfinite(sums.loss)) << logit;
  }
}

TEST(Binary, UndefinedFiguresAreNan) {
  BinarySums sums;
  EXPECT_TRUE(std::isnan(sums.ne()) && std::isnan(sums.log_loss()) &&
              std::isnan(sums.calibration()));
  sums.add(0.0F, 0.0F, 1.0F);
  EXPECT_TRUE(std::isnan(sums.ne()) && std::isnan(sums.calibration()));
  EXPECT_NEAR(sums.log_loss(), std::log(2.0), 1e-15);
  BinarySums ones;
  ones.add(0.3F, 1.0F, 0.3F);
  ones.add(0.3F, 1.0F, 0.7F);
  EXPECT_TRUE(std::isnan(ones.ne()));
}

TEST(Binary, PartsGoUpTheTree) {
  // Five parts, the third without samples: ((p0 + p1) + p3) + p4.
  std::array<BinarySums, 5> parts{};
  const std::array<double, 5> losses = {1e16, 1.0, 0.0, 1.0, 3.0};
  for (std::size_t p = 0; p < 5; ++p) {
    parts[p].count = p == 2 ? 0 : 1;
    parts[p].loss = losses[p];
  }
  EXPECT_EQ(sum_parts(parts).loss, ((1e16 + 1.0) + 1.0) + 3.0);
  EXPECT_EQ(sum_parts(parts).count, 4);
  EXPECT_EQ(sum_parts({}).count, 0);
}

TEST(Throughput, WindowAndLifetime) {
  using std::chrono::seconds;
  Throughput rate(seconds(100), seconds(10));
  EXPECT_EQ(rate.lifetime(), 0.0);
  EXPECT_EQ(rate.window(), 0.0);
  for (int i = 1; i <= 20; ++i) {
    rate.add(seconds(100 + i), 50);
  }
  EXPECT_DOUBLE_EQ(rate.lifetime(), 50.0);
  for (int i = 21; i <= 30; ++i) {
    rate.add(seconds(100 + i), 500);
  }
  EXPECT_DOUBLE_EQ(rate.window(), 500.0);
  EXPECT_DOUBLE_EQ(rate.lifetime(), (20 * 50.0 + 10 * 500.0) / 30.0);
  EXPECT_EQ(rate.samples(), 6000);
  rate.add(seconds(190), 600);  // one long step is the window
  EXPECT_DOUBLE_EQ(rate.window(), 10.0);
}

TEST(Throughput, ShortStepsAreRememberedTogether) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  Throughput rate(seconds(0), seconds(10));
  for (int i = 1; i <= 20000; ++i) {  // of a millisecond; the second half is ten times as fast
    rate.add(milliseconds(i), i <= 10000 ? 1 : 10);
  }
  EXPECT_NEAR(rate.window(), 10000.0, 10000.0 / 64);
  for (int i = 20001; i <= 21000; ++i) {
    rate.add(milliseconds(i), 10);
  }
  EXPECT_DOUBLE_EQ(rate.window(), 10000.0);
  EXPECT_DOUBLE_EQ(rate.lifetime(), (10000.0 + 11000 * 10.0) / 21.0);
}

}  // namespace
}  // namespace weft::metrics
