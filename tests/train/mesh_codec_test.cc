// Jobs on a mesh of replica groups whose syncs travel encoded.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/base/log.h"

namespace weft::train {
namespace {

/// Two groups, groups of 16 columns, some tables of 16 bits and some cut.
std::vector<std::string> coded(const std::string& format, const std::vector<std::string>& more) {
  return joined({"mesh.groups=2", "codecs.sync=" + format, "codecs.group_size=16"}, more);
}

TEST(MeshCodec, FormsLayoutsAndDevicesGiveTheSameBits) {
  const std::vector<std::string> tables = {
      "mesh.sync_every=2", "tables.item.sharding=column_wise", "tables.few.sharding=data_parallel",
      "tables.tags.dtype=bf16", "tables.rare.dtype=split_bf16"};
  const std::pair<const char*, const char*> jobs[] = {{"row_wise_adagrad", "bf16"},
                                                      {"adam", "int8"},
                                                      {"row_wise_adagrad", "int4"},
                                                      {"adam", "fp8_e4m3"}};
  for (const auto& [optimizer, format] : jobs) {
    const std::vector<std::string> job =
        joined(coded(format, tables), {std::string("sparse_optimizer.type=") + optimizer});
    const Summary expected = train_on(6, job_options(make_job(job)));
    for (const char* more : {"mesh.sync=touched", "mesh.layout=local_all_reduce",
                             "train.device=check", "train.overlap=false"}) {
      expect_same(train_on(6, job_options(make_job(joined(job, {more})))), expected,
                  std::string(format) + ", " + optimizer + ", " + more);
    }
    JobOptions threads = job_options(make_job(joined(job, {"mesh.sync=touched"})));
    threads.threads = 3;
    expect_same(train_on(6, threads), expected, "threads");
    EXPECT_NE(train_on(6, job_options(make_job(joined(job, {"codecs.sync=fp32"})))).weights_hash,
              expected.weights_hash)
        << "nothing was encoded";
  }
}

TEST(MeshCodec, CutsOfColumnsChangeNoBit) {
  for (const char* optimizer : {"adagrad", "row_wise_adam"}) {
    const std::vector<std::string> job =
        coded("int8", {std::string("sparse_optimizer.type=") + optimizer});
    const Summary expected =
        train_on(4, job_options(make_job(joined(job, all_tables("sharding", "table_wise")))));
    expect_same(
        train_on(4, job_options(make_job(joined(job, all_tables("sharding", "column_wise"))))),
        expected, optimizer);
  }
}

TEST(MeshCodec, QualityIsNearThatOfFp32) {
  const auto loss = [](const std::string& format) {
    return train_on(4, job_options(make_job(coded(format, {"train.epochs=3"}))))
        .eval->tasks.front()
        .log_loss;
  };
  const double expected = loss("fp32");
  for (const char* format : {"bf16", "int8"}) {
    EXPECT_NEAR(loss(format), expected, 0.02) << format;
  }
}

TEST(MeshCodec, ResumesWithTheSameBits) {
  Warnings warnings("rounded away");
  for (const char* sync : {"dense", "touched"}) {
    for (const char* format : {"int8", "int4"}) {
      const JobOptions whole = job_options(
          make_job(coded(format, {std::string("mesh.sync=") + sync, "sparse_optimizer.type=adam",
                                  "tables.item.sharding=column_wise", "tables.tags.dtype=bf16"})));
      const Summary expected = train_on(4, whole);
      const TemporaryFolder folder;
      JobOptions first = whole;
      first.config.train.steps = 4;
      first.checkpoint_dir = folder.path();
      train_on(4, first);
      JobOptions rest = whole;
      rest.resume = folder.path();
      expect_same(train_on(4, rest), expected, std::string(sync) + ", " + format);
      EXPECT_TRUE(warnings.take().empty());
    }
  }
}

// A checkpoint stores hot rows into the shards that cover them, which is no change of theirs.
TEST(MeshCodec, HotRowsResumeWithTheSameBits) {
  const TemporaryFolder plans;
  const std::vector<std::string> job =
      coded("int8", {"sparse_optimizer.type=adagrad", "sparse_optimizer.initial_accumulator=0.1"});
  for (const char* sync : {"dense", "touched"}) {
    const JobOptions whole =
        with_hot_rows(job_options(make_job(joined(job, {std::string("mesh.sync=") + sync}))), 4,
                      {2, 60}, plans.path());
    const Summary expected = train_on(4, whole);
    const TemporaryFolder folder;
    JobOptions first = whole;
    first.config.train.steps = 4;
    first.checkpoint_dir = folder.path();
    train_on(4, first);
    JobOptions rest = whole;
    rest.resume = folder.path();
    expect_same(train_on(4, rest), expected, sync);
  }
}

TEST(MeshCodec, ResidualsOfOtherMeshesAndCodecsAreDroppedWithAWarning) {
  Warnings warnings("syncs of replica groups had rounded away");
  const TemporaryFolder folder;
  JobOptions first = job_options(make_job(coded("int8", {"train.steps=4"})));
  first.checkpoint_dir = folder.path();
  train_on(4, first);
  const auto resume = [&](int ranks, const std::vector<std::string>& job) {
    JobOptions rest = job_options(make_job(joined(job, {"train.steps=6"})));
    rest.resume = folder.path();
    return train_on(ranks, rest).steps;
  };
  EXPECT_EQ(resume(4, coded("int4", {})), 2);
  const std::vector<std::string> of_codec = warnings.take();
  ASSERT_EQ(of_codec.size(), 1U);
  EXPECT_NE(of_codec.front().find("it is of int8 in groups of 16, mesh of 2 local_all_to_all "
                                  "groups of 2 ranks"),
            std::string::npos)
      << of_codec.front();
  EXPECT_EQ(resume(4, coded("int8", {"mesh.groups=4"})), 2);
  EXPECT_EQ(warnings.take().size(), 1U);
  EXPECT_EQ(resume(4, coded("int8", {"mesh.moment_scale=1"})), 2);
  EXPECT_EQ(warnings.take().size(), 1U) << "sums are multiples of another c, and what they lost";
  EXPECT_EQ(resume(4, coded("int8", {})), 2);
  EXPECT_EQ(warnings.take().size(), 0U);
  EXPECT_EQ(resume(2, {}), 2);
  const std::vector<std::string> none = warnings.take();
  ASSERT_EQ(none.size(), 1U);
  EXPECT_NE(none.front().find("this run has none"), std::string::npos) << none.front();
}

TEST(MeshCodec, WhatDoesNotFitIsWarnedOfAndSummed) {
  spec::Config config =
      make_job(coded("fp16", {"train.steps=1", "sparse_optimizer.type=sgd", "train.log_every=1",
                              "data.synthetic.eval_samples=0"}));
  for (spec::Table& table : config.tables) {
    table.optimizer.learning_rate = 1e12;  // changes beyond fp16's largest number
  }
  Warnings warnings("of syncs of replica groups (fp16)");
  const Summary summary = train_on(4, job_options(config));
  EXPECT_GT(summary.sync_codec_clips.codec.clipped, 0);
  EXPECT_FALSE(warnings.take().empty());
  EXPECT_NE(to_json(summary).find("\"sync_codec_losses\""), std::string::npos);
}

}  // namespace
}  // namespace weft::train
