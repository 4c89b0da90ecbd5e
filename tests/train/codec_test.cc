// Jobs whose vectors and gradients travel encoded: one hash over ranks and threads where no bag is
// split, a quality near that of fp32, and a report of what did not fit.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/base/log.h"

namespace weft::train {
namespace {

std::vector<std::string> exchanged(const std::string& forward,
                                   const std::string& backward,
                                   std::vector<std::string> overrides = {}) {
  overrides.push_back("codecs.forward=" + forward);
  overrides.push_back("codecs.backward=" + backward);
  overrides.emplace_back("codecs.group_size=16");
  return overrides;
}

TEST(Codecs, OneHashOverRanksThreadsAndColumnShards) {
  const Summary plain = train_on(1, job_options(make_job()));
  for (const auto& [forward, backward] : std::vector<std::pair<std::string, std::string>>{
           {"fp8_e4m3", "fp8_e5m2"}, {"int8", "int8"}, {"fp16", "bf16"}}) {
    const Summary expected = train_on(1, job_options(make_job(exchanged(forward, backward))));
    EXPECT_NE(expected.weights_hash, plain.weights_hash) << forward;
    for (const char* sharding : {"table_wise", "column_wise"}) {
      for (const int ranks : {1, 2, 3, 4}) {
        JobOptions options =
            job_options(make_job(exchanged(forward, backward, all_tables("sharding", sharding))));
        options.threads = ranks == 2 ? 3 : 1;
        expect_same(train_on(ranks, options), expected,
                    forward + " " + sharding + " on " + std::to_string(ranks) + " ranks");
      }
    }
  }
}

TEST(Codecs, OneHashWithStochasticRounding) {
  const auto drawn = [](const std::string& forward, const std::string& backward,
                        std::vector<std::string> more = {}) {
    more.emplace_back("codecs.rounding=stochastic");
    return job_options(make_job(exchanged(forward, backward, more)));
  };
  for (const auto& [forward, backward] : std::vector<std::pair<std::string, std::string>>{
           {"fp8_e4m3", "fp8_e5m2"}, {"int8", "int8"}, {"bf16", "bf16"}}) {
    const Summary expected = train_on(1, drawn(forward, backward));
    const Summary nearest = train_on(1, job_options(make_job(exchanged(forward, backward))));
    EXPECT_NE(expected.weights_hash, nearest.weights_hash) << forward;
    for (const char* sharding : {"table_wise", "column_wise"}) {
      for (const int ranks : {2, 5, 8}) {
        JobOptions options = drawn(forward, backward, all_tables("sharding", sharding));
        options.threads = ranks == 2 ? 3 : 1;
        options.config.train.overlap = ranks != 5;
        expect_same(train_on(ranks, options), expected,
                    forward + " " + sharding + " on " + std::to_string(ranks) + " ranks");
      }
    }
    EXPECT_NE(train_on(1, drawn(forward, backward, {"seed=4"})).weights_hash,
              expected.weights_hash);
  }
}

TEST(Codecs, Fp32IsTheUncodedRun) {
  expect_same(train_on(3, job_options(make_job(exchanged("fp32", "fp32", {"codecs.dense=fp32"})))),
              train_on(3, job_options(make_job())), "fp32");
}

TEST(Codecs, PackedIdsAreTheRunOfNarrowOnes) {
  std::vector<std::string> job = all_tables("sharding", "row_wise");
  for (const std::string& one : all_tables("pooled_at", "sample")) {
    job.push_back(one);
  }
  const Summary expected = train_on(1, job_options(make_job(job)));
  job.emplace_back("codecs.ids=packed");
  for (const int ranks : {2, 3, 4}) {
    expect_same(train_on(ranks, job_options(make_job(job))), expected,
                std::to_string(ranks) + " ranks");
  }
}

TEST(Codecs, DenseGradientsGiveTheSameBitsTwice) {
  const auto run = [](const std::string& dense, int ranks, int threads, bool overlap,
                      const std::vector<int>& hosts = {}) {
    JobOptions options =
        job_options(make_job(exchanged("fp32", "fp32", {"codecs.dense=" + dense})));
    options.config.train.overlap = overlap;
    options.config.collectives =
        hosts.empty() ? spec::Collectives::kAuto : spec::Collectives::kHierarchical;
    options.threads = threads;
    return train_on(ranks, options, hosts);
  };
  const Summary plain = run("fp32", 3, 1, true);
  for (const std::string dense : {"int8", "fp8_e5m2", "bf16"}) {
    const Summary expected = run(dense, 3, 1, true);
    EXPECT_NE(expected.weights_hash, plain.weights_hash) << dense;
    expect_same(run(dense, 3, 3, false), expected, dense);
    const Summary staged = run(dense, 3, 1, true, {0, 0, 1});
    EXPECT_NE(staged.weights_hash, expected.weights_hash) << "another order of roundings";
    EXPECT_NE(staged.plan_hash, expected.plan_hash);
    expect_same(run(dense, 3, 3, false, {0, 0, 1}), staged, dense + " on two hosts");
  }
  expect_same(run("int8", 1, 1, true), plain, "one rank sends nothing");
}

TEST(Codecs, SplitBagsGiveTheSameBitsTwice) {
  const auto job = [](int threads, const char* overlap) {
    JobOptions options =
        job_options(make_job(exchanged("int8", "fp8_e5m2", all_tables("sharding", "row_wise"))));
    options.config.train.overlap = std::string(overlap) == "on";
    options.threads = threads;
    return train_on(4, options);
  };
  expect_same(job(3, "off"), job(1, "on"), "row_wise");
}

/// NE of an evaluation of a job that learns something.
double evaluated_ne(const std::string& forward,
                    const std::string& backward,
                    const std::vector<std::string>& others = {}) {
  std::vector<std::string> overrides = exchanged(forward, backward, others);
  overrides.insert(overrides.end(), {"data.synthetic.samples=12000", "batch_size=128",
                                     "data.synthetic.eval_samples=4000", "train.log_every=50"});
  return train_on(2, job_options(make_job(overrides))).eval->tasks.front().ne;
}

TEST(Codecs, QualityIsNearThatOfFp32) {
  const double plain = evaluated_ne("fp32", "fp32");
  EXPECT_LT(plain, 0.999) << "nothing was learned: the test shows nothing";
  EXPECT_NEAR(evaluated_ne("int8", "int8"), plain, 0.003);
  EXPECT_NEAR(evaluated_ne("fp8_e4m3", "fp8_e5m2"), plain, 0.005);
  EXPECT_NEAR(evaluated_ne("fp16", "bf16"), plain, 0.001);
  EXPECT_NEAR(evaluated_ne("int8", "int8", {"codecs.rounding=stochastic"}), plain, 0.005);
  EXPECT_NEAR(evaluated_ne("fp32", "fp32", {"codecs.dense=int8"}), plain, 0.003);
  EXPECT_NEAR(evaluated_ne("fp32", "fp32", {"codecs.dense=fp8_e5m2"}), plain, 0.005);
}

/// The number behind some words of a warning.
std::int64_t number_behind(const std::string& warning, std::string_view words, std::size_t from) {
  const std::size_t place = warning.find(words, from);
  EXPECT_NE(place, std::string::npos) << warning;
  return place == std::string::npos ? -1 : std::stoll(warning.substr(place + words.size()));
}

/// Numbers of vectors and of gradients that warnings say were cut off.
std::pair<std::int64_t, std::int64_t> cut_off(const std::vector<std::string>& warnings) {
  std::pair<std::int64_t, std::int64_t> sum;
  for (const std::string& warning : warnings) {
    sum.first += number_behind(warning, "too large ", 0);
    sum.second += number_behind(warning, ") and ", warning.find("numbers of vectors"));
  }
  return sum;
}

std::pair<std::int64_t, std::int64_t> cut_off(const Summary& summary) {
  std::pair<std::int64_t, std::int64_t> sum;
  for (const auto& [table, clips] : summary.codec_clips) {
    sum.first += clips.forward.clipped;
    sum.second += clips.backward.clipped;
  }
  return sum;
}

/// Gradients of about 1e6, which fp16 cuts off.
spec::Config saturating_job(int steps, int log_every) {
  spec::Config config = make_job(exchanged("fp32", "fp16"));
  config.tasks[0].weight = 1e9;
  config.train.steps = steps;
  config.train.log_every = log_every;
  return config;
}

TEST(Codecs, EveryLossIsWarnedOfOnce) {
  for (const int log_every : {1, 2, 3, 100}) {
    const Warnings warnings("codecs");
    const Summary summary = train_on(2, job_options(saturating_job(5, log_every)));
    EXPECT_GT(cut_off(summary).second, 0);
    EXPECT_EQ(cut_off(warnings.all()), cut_off(summary)) << "windows of " << log_every;
    ASSERT_FALSE(warnings.all().empty());
    EXPECT_NE(warnings.all().back().find("up to step 5"), std::string::npos)
        << warnings.all().back();
  }
}

/// Rows beyond fp16's largest number.
spec::Config large_rows(std::vector<std::string> overrides) {
  spec::Config config = make_job(exchanged("fp16", "fp32", std::move(overrides)));
  for (spec::Table& table : config.tables) {
    table.init_scale = 1e5;
  }
  return config;
}

TEST(Codecs, LossesOfEvaluationsAreWarnedOf) {
  // Trained on nothing: what is lost is lost in the evaluation at the end.
  spec::Config config = large_rows({"train.steps=1", "train.log_every=1"});
  const Warnings of_training("codecs");
  const Summary trained = train_on(2, job_options(config));
  EXPECT_GT(cut_off(trained).first, 0);
  EXPECT_EQ(cut_off(of_training.all()), cut_off(trained));
  ASSERT_EQ(of_training.all().size(), 2U) << "one of the step, one of the evaluation behind it";
}

TEST(Codecs, AnEvaluationAloneWarnsToo) {
  const auto evaluate = [](const spec::Config& config) {
    Summary summary;
    comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
      const Summary own = run_eval(world, job_options(config));
      if (world.rank() == 0) {
        summary = own;
      }
    });
    return summary;
  };
  {
    const Warnings warnings("codecs");
    const Summary summary = evaluate(large_rows({}));
    EXPECT_GT(cut_off(summary).first, 0);
    EXPECT_EQ(cut_off(warnings.all()), cut_off(summary));
    ASSERT_EQ(warnings.all().size(), 1U);
    EXPECT_NE(warnings.all().front().find("of the evaluation"), std::string::npos);
    EXPECT_NE(to_json(summary).find("\"saturated\": "), std::string::npos);
  }
  const Warnings none("codecs");
  EXPECT_TRUE(evaluate(make_job(exchanged("fp16", "fp32"))).codec_clips.empty());
  EXPECT_TRUE(none.all().empty());
}

TEST(Codecs, WhatDoesNotFitIsWarnedOfAndSummed) {
  std::vector<std::string> warnings;
  Summary summary;
  {
    const Warnings kept("codecs");
    summary = train_on(2, job_options(saturating_job(4, 2)));
    warnings = kept.all();
  }
  ASSERT_FALSE(summary.codec_clips.empty());
  EXPECT_GT(summary.codec_clips.front().second.backward.clipped, 0);
  EXPECT_EQ(summary.codec_clips.front().second.forward, kernels::CodecClips{});
  EXPECT_EQ(summary.dense_codec_clips, kernels::CodecClips{});
  EXPECT_NE(to_json(summary).find("\"saturated\": "), std::string::npos);
  ASSERT_FALSE(warnings.empty());
  EXPECT_NE(warnings.front().find("fp16"), std::string::npos) << warnings.front();
  EXPECT_NE(warnings.front().find("table "), std::string::npos) << warnings.front();
}

TEST(Codecs, DenseGradientsThatDoNotFitAreWarnedOfAndSummed) {
  spec::Config config = make_job(exchanged("fp32", "fp32", {"train.steps=4", "codecs.dense=fp16"}));
  config.tasks[0].weight = 1e9;
  Summary summary;
  std::vector<std::string> warnings;
  {
    const Warnings kept("codecs");
    summary = train_on(2, job_options(config));
    warnings = kept.all();
  }
  EXPECT_TRUE(summary.codec_clips.empty());
  EXPECT_GT(summary.dense_codec_clips.clipped, 0);
  EXPECT_EQ(summary.dense_codec_clips.non_finite, 0);
  ASSERT_FALSE(warnings.empty());
  EXPECT_NE(warnings.front().find("dense gradients (fp16)"), std::string::npos) << warnings.front();
}

TEST(Codecs, DenseGradientsThatAreNotFiniteEndTheJob) {
  spec::Config config = make_job(exchanged("fp32", "fp32", {"codecs.dense=int8"}));
  config.tasks[0].weight = 1e30;
  config.dense_optimizer.learning_rate = 1e20;
  config.dense_optimizer.type = spec::DenseOptimizerKind::kSgd;
  config.dense_optimizer.clip_norm = 0.0;
  try {
    train_on(2, job_options(config));
    FAIL() << "the run succeeded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNonFinite) << error.what();
  }
}

TEST(Codecs, VectorsThatAreNotFiniteEndTheJob) {
  // Rows of about 3e38, whose sums are infinite: of "seen" and "tags", before anything is encoded.
  for (const char* forward : {"fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4"}) {
    for (const char* rounding : {"nearest", "stochastic"}) {
      spec::Config config = make_job(
          exchanged(forward, "fp32",
                    {std::string("codecs.rounding=") + rounding, "data.synthetic.eval_samples=0"}));
      for (spec::Table& table : config.tables) {
        table.init_scale = 3.3e38;
      }
      try {
        train_on(2, job_options(config));
        FAIL() << forward << ": the run succeeded";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNonFinite) << error.what();
        EXPECT_NE(std::string(error.what()).find("step 1: "), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("nothing was updated"), std::string::npos);
      }
      config.train.on_non_finite = spec::OnNonFinite::kSkip;
      config.train.steps = 3;
      const Summary skipped = train_on(2, job_options(config));
      EXPECT_EQ(skipped.skipped_steps, 3) << forward;
      std::int64_t non_finite = 0;
      for (const auto& [table, clips] : skipped.codec_clips) {
        non_finite += clips.forward.non_finite;
      }
      EXPECT_GT(non_finite, 0) << forward << ", " << rounding;
    }
  }
}

}  // namespace
}  // namespace weft::train
