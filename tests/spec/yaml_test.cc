// Reading, writing, expansion, overrides, hashes.
#include "weft/spec/yaml.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/spec/small_config.h"
#include "weft/base/error.h"
#include "weft/spec/describe.h"

namespace weft::spec {
namespace {

Config parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "test.yaml", overrides);
}

std::string error_of_text(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse(text, overrides);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Yaml, ReadsWhatItSays) {
  const Config config = parse(small_yaml());
  EXPECT_EQ(config.seed, 7U);
  EXPECT_EQ(config.batch_size, 64);
  EXPECT_EQ(config.data.synthetic.samples, 1000);
  ASSERT_EQ(config.dense_features.size(), 2U);
  EXPECT_EQ(config.dense_features[1].transform, DenseTransform::kLog);
  EXPECT_EQ(config.model.bottom_mlp, (std::vector<std::int64_t>{16, 8}));
}

TEST(Yaml, FillsDefaultsThatNameOtherKeys) {
  const Config config = parse(small_yaml());
  EXPECT_EQ(config.sparse_features[1].column, "C2");
  EXPECT_EQ(config.sparse_features[1].table, "C2");
  EXPECT_EQ(config.sparse_features[1].salt, "C2");
  EXPECT_EQ(config.dense_features[0].column, "d1");
  EXPECT_EQ(config.tasks.size(), 1U);
  EXPECT_EQ(table_index(config, config.sparse_features[2]), 2);
}

TEST(Yaml, WritingAndReadingAgain) {
  Config config = parse(small_yaml());
  config.data.read_ahead = 5;
  config.train.timeout_s = 0.1;
  config.tables[1].optimizer.learning_rate = 1.0 / 3.0;
  config.tables[1].optimizer.type = SparseOptimizerKind::kAdam;
  config.seed = 18446744073709551615ULL;
  config.data.eval_path = {"odd: \"name\"\\ # é", "true", "12", "-", "a\nb\t\x01"};
  const std::string text = to_yaml(config);
  const Config again = parse(text);
  EXPECT_EQ(to_yaml(again), text);
  EXPECT_EQ(again.data.eval_path, config.data.eval_path);
  EXPECT_EQ(again.tables[1].optimizer, config.tables[1].optimizer);
  EXPECT_EQ(again.seed, config.seed);
  EXPECT_EQ(config_hash(again), config_hash(config));
}

TEST(Yaml, CommentedFormReadsTheSame) {
  const Config config = parse(small_yaml());
  const std::string text = to_commented_yaml(config);
  EXPECT_EQ(to_yaml(parse(text)), to_yaml(config));
  EXPECT_NE(text.find("# Samples per step over all ranks together.\n"
                      "# (integer; unit: samples; range: at least 1; default: 2048)\n"
                      "batch_size: 64\n"),
            std::string::npos)
      << text.substr(0, 600);
}

TEST(Yaml, NumberedNamesExpandAndListsAreDealt) {
  const Config config = parse(small_yaml());
  ASSERT_EQ(config.tables.size(), 3U);
  EXPECT_EQ(config.tables[0].name, "C1");
  EXPECT_EQ(config.tables[2].name, "C3");
  EXPECT_EQ(config.tables[1].num_embeddings, 50);
  EXPECT_EQ(config.tables[1].embedding_dim, 8);
}

TEST(Yaml, BracesInOtherFieldsBecomeTheNumber) {
  const Config config = parse(changed("sparse_features:\n  - name: C{1..3}",
                                      "sparse_features:\n  - name: f{1..3}_x\n    column: C{}\n"
                                      "    table: 'C{}'"));
  EXPECT_EQ(config.sparse_features[2].name, "f3_x");
  EXPECT_EQ(config.sparse_features[2].column, "C3");
  EXPECT_EQ(config.sparse_features[2].table, "C3");
}

TEST(Yaml, ListsInNestedSectionsAreDealt) {
  const Config config = parse(changed("    embedding_dim: 8",
                                      "    embedding_dim: 8\n    optimizer:\n"
                                      "      learning_rate: [1, 2, 3]"));
  EXPECT_EQ(config.tables[2].optimizer.learning_rate, 3.0);
}

TEST(Yaml, ListOfAnotherLengthIsRefused) {
  EXPECT_EQ(error_of_text(changed("num_embeddings: [100, 50, 10]", "num_embeddings: [100, 50]")),
            "test.yaml:19:21: a list of 2 cannot be dealt over the 3 entries that the name stands "
            "for");
}

TEST(Yaml, RangesThatFallOrAreHugeAreRefused) {
  EXPECT_NE(error_of_text(changed("tables:\n  - name: C{1..3}", "tables:\n  - name: C{3..1}"))
                .find("test.yaml:18:11: the range in 'C{3..1}' must rise"),
            std::string::npos);
  EXPECT_NE(
      error_of_text(changed("tables:\n  - name: C{1..3}", "tables:\n  - name: C{1..999999999}"))
          .find("at most 65536 entries"),
      std::string::npos);
}

TEST(Yaml, TablesInheritTheSharedOptimizerKeyByKey) {
  const Config config =
      parse(changed("    embedding_dim: 8", "    embedding_dim: 8\n    optimizer: {type: adam}") +
            "sparse_optimizer:\n  learning_rate: 0.5\n  eps: 0.001\n");
  EXPECT_EQ(config.tables[0].optimizer.type, SparseOptimizerKind::kAdam);
  EXPECT_EQ(config.tables[0].optimizer.learning_rate, 0.5);
  EXPECT_EQ(config.tables[0].optimizer.eps, 0.001);
  EXPECT_EQ(config.sparse_optimizer.type, SparseOptimizerKind::kRowWiseAdagrad);
}

TEST(Yaml, PathIsATextOrAList) {
  const std::string text =
      changed("format: synthetic", "format: criteo\n  path: a.txt\n  eval_path: [b, c]");
  const std::string criteo = text.substr(0, text.find("dense_features")) +
                             "dense_features: [{name: I1}]\nmodel: {type: dcnv2, top_mlp: [4]}\n";
  const Config config = parse(criteo);
  EXPECT_EQ(config.data.path, std::vector<std::string>{"a.txt"});
  EXPECT_EQ(config.data.eval_path, (std::vector<std::string>{"b", "c"}));
}

TEST(Yaml, OverridesReachEveryKindOfKey) {
  const Config config = parse(
      small_yaml(), {"train.steps=10", "tables.C1.num_embeddings=1000", "tables.2.embedding_dim=8",
                     "model.top_mlp=[32, 16]", "sparse_optimizer.learning_rate=0.25",
                     "tasks.click.weight=2", "tables.C2.optimizer.learning_rate=0.75",
                     "numerics.target=avx2", "data.shuffle.enabled=false", "seed = 9"});
  EXPECT_EQ(config.train.steps, 10);
  EXPECT_EQ(config.tables[0].num_embeddings, 1000);
  EXPECT_EQ(config.model.top_mlp, (std::vector<std::int64_t>{32, 16}));
  EXPECT_EQ(config.tables[0].optimizer.learning_rate, 0.25);
  EXPECT_EQ(config.tables[1].optimizer.learning_rate, 0.75);
  EXPECT_EQ(config.tasks[0].weight, 2.0);
  EXPECT_EQ(config.numerics.target, Target::kAvx2);
  EXPECT_FALSE(config.data.shuffle.enabled);
  EXPECT_EQ(config.seed, 9U);
}

TEST(Yaml, LaterOverridesWinAndMayReplaceWholeLists) {
  const Config config = parse(small_yaml(), {"seed=1", "seed=2",
                                             "tables=[{name: 'C{1..3}', num_embeddings: [7, 8, 9], "
                                             "embedding_dim: 8}]",
                                             "tables.C3.num_embeddings=5"});
  EXPECT_EQ(config.seed, 2U);
  ASSERT_EQ(config.tables.size(), 3U);
  EXPECT_EQ(config.tables[1].num_embeddings, 8);
  EXPECT_EQ(config.tables[2].num_embeddings, 5);
}

TEST(Yaml, WrongOverridesNameThemselves) {
  EXPECT_EQ(error_of_text(small_yaml(), {"train.stesp=10"}),
            "--set train.stesp=10: train.stesp: unknown key; did you mean 'steps'?");
  EXPECT_EQ(error_of_text(small_yaml(), {"trian.steps=10"}),
            "--set trian.steps=10: trian: unknown key; did you mean 'train'?");
  EXPECT_EQ(error_of_text(small_yaml(), {"tables.C9.embedding_dim=8"}),
            "--set tables.C9.embedding_dim=8: there is no entry 'C9'; did you mean 'C1'?");
  EXPECT_EQ(error_of_text(small_yaml(), {"tables.7.embedding_dim=8"}),
            "--set tables.7.embedding_dim=8: there is no entry 7: the list has 3");
  EXPECT_EQ(error_of_text(small_yaml(), {"train.steps=ten"}),
            "--set train.steps=ten: train.steps: expected an integer, found 'ten'");
  EXPECT_EQ(error_of_text(small_yaml(), {"train.steps="}),
            "--set train.steps=: train.steps: expected an integer, found the text \"\"");
  EXPECT_EQ(error_of_text(small_yaml(), {"seed.x=1"}),
            "--set seed.x=1: there is nothing below '7' that could be called 'x'");
  EXPECT_EQ(error_of_text(small_yaml(), {"train..steps=1"}),
            "--set train..steps=1: the path has an empty part");
  EXPECT_EQ(error_of_text(small_yaml(), {"train.steps"}),
            "--set train.steps: an override is written path=value, such as train.steps=10");
  EXPECT_EQ(error_of_text(small_yaml(), {"mesh.sync_state=true"}),
            "--set mesh.sync_state=true: mesh.sync_state: this key is gone: replicas' optimizer "
            "state is always averaged; remove the key");
  EXPECT_EQ(error_of_text(small_yaml(), {"batch_size=0"}),
            "--set batch_size=0: batch_size: must be at least 1 samples, is 0");
}

TEST(Yaml, HashCoversWhatDecidesWeightsOnly) {
  const std::uint64_t hash = config_hash(parse(small_yaml()));
  for (const char* same :
       {"train.steps=10", "data.read_ahead=7", "train.log_every=3", "train.timeout_s=5",
        "train.device=check", "train.overlap=false", "tables.C1.sharding=row_wise",
        "numerics.parts=16", "data.synthetic.eval_samples=5"}) {
    EXPECT_EQ(config_hash(parse(small_yaml(), {same})), hash) << same;
  }
  for (const char* different :
       {"seed=8", "batch_size=65", "tables.C1.num_embeddings=101",
        "sparse_optimizer.learning_rate=0.02", "model.top_mlp=[17]", "data.shuffle.enabled=false",
        "train.on_non_finite=skip", "sparse_features.C1.salt=x", "data.synthetic.samples=999"}) {
    EXPECT_NE(config_hash(parse(small_yaml(), {different})), hash) << different;
  }
}

TEST(Yaml, AYoungerKeyChangesNoHashUntilItIsSet) {
  // As a build without the section `pipeline` has it, and checkpoints of that.
  constexpr std::uint64_t kBefore = 0x39e4563ed2ad4e77;
  EXPECT_EQ(config_hash(parse(small_yaml())), kBefore);
  EXPECT_EQ(config_hash(parse(small_yaml(), {"pipeline.cluster_parts=0"})), kBefore);
  const std::uint64_t two = config_hash(parse(small_yaml(), {"pipeline.cluster_parts=2"}));
  EXPECT_NE(two, kBefore);
  EXPECT_NE(two, config_hash(parse(small_yaml(), {"pipeline.cluster_parts=4"})));
  EXPECT_NE(to_yaml(parse(small_yaml())).find("\n  cluster_parts: 0\n"), std::string::npos)
      << "ranks compare the whole text";
}

TEST(Yaml, AliasesAreFollowed) {
  const Config config = parse(
      changed("cardinality: [100, 50, 10]", "cardinality: &sizes [4, 5, 6]").replace(0, 0, "") +
      "sparse_optimizer: &shared {eps: 0.5}\n");
  EXPECT_EQ(config.data.synthetic.columns[2].cardinality, 6);
}

TEST(Plan, RoundTripAndHash) {
  Plan plan{.version = 1,
            .ranks = 2,
            .parts = 8,
            .tables = {{.table = "a",
                        .sharding = Sharding::kRowWise,
                        .shards = {{.rank = 0, .rows = {0, 5}, .cols = {0, 16}},
                                   {.rank = 1, .rows = {5, 9}, .cols = {0, 16}}}},
                       {.table = "b", .sharding = Sharding::kTableWise, .shards = {}}}};
  const std::string text = plan_to_yaml(plan);
  EXPECT_EQ(plan_from_yaml(text, "plan.yaml"), plan) << text;
  const std::uint64_t hash = plan_hash(plan);
  plan.hosts = {0, 1};
  EXPECT_EQ(plan_from_yaml(plan_to_yaml(plan), "plan.yaml"), plan);
  EXPECT_NE(plan_hash(plan), hash);
  plan.hosts.clear();
  plan.tables[0].shards.edit([](auto& shards) { shards[1].rank = 0; });
  EXPECT_NE(plan_hash(plan), hash);
}

TEST(Plan, FormsOfCollectivesArePartOfIt) {
  Plan plan{.ranks = 4, .tables = {}};
  const std::uint64_t flat = plan_hash(plan);
  plan.collectives.vectors = CollectiveForm::kHierarchical;
  EXPECT_EQ(plan_from_yaml(plan_to_yaml(plan), "plan.yaml"), plan);
  EXPECT_NE(plan_hash(plan), flat);
  plan.collectives.dense = CollectiveForm::kRelayed;
  EXPECT_EQ(plan_from_yaml(plan_to_yaml(plan), "plan.yaml"), plan);
  const std::string header = "version: 1\nranks: 4\nparts: 8\ntables: []\n";
  EXPECT_THROW(plan_from_yaml(header + "collectives: {ids: relayed}\n", "plan.yaml"), Error);
  const Plan old = plan_from_yaml("version: 1\nranks: 4\nparts: 8\ntables: []\n", "plan.yaml");
  EXPECT_EQ(old.collectives, CollectiveForms{});
}

TEST(Plan, TheSyncThatWasChosenIsPartOfIt) {
  Plan plan{.ranks = 2, .groups = 2, .tables = {}};
  const std::uint64_t hash = plan_hash(plan);
  EXPECT_NE(plan_to_yaml(plan).find("sync: configured\nsync_every: 0\n"), std::string::npos);
  EXPECT_EQ(plan_from_yaml(plan_to_yaml(plan), "plan.yaml"), plan);
  plan.sync = SyncForm::kTouched;
  plan.sync_every = 4;
  EXPECT_EQ(plan_from_yaml(plan_to_yaml(plan), "plan.yaml"), plan);
  EXPECT_NE(plan_hash(plan), hash);
  const Plan old = plan_from_yaml("version: 1\nranks: 4\nparts: 8\ntables: []\n", "plan.yaml");
  EXPECT_EQ(old.sync, SyncForm::kAuto);
  // A job has what it asks for, else the plan's, else a dense sync after every step.
  const Mesh open{.groups = 0, .sync = SyncForm::kAuto, .sync_every = 0, .moment_scale = 3.0};
  EXPECT_EQ(mesh_of(open, plan).groups, 2);
  EXPECT_EQ(mesh_of(open, plan).sync, SyncForm::kTouched);
  EXPECT_EQ(mesh_of(open, plan).sync_every, 4);
  EXPECT_EQ(mesh_of(open, plan).moment_scale, 3.0);
  EXPECT_EQ(mesh_of({.groups = 2, .sync_every = 8}, plan).sync, SyncForm::kDense);
  EXPECT_EQ(mesh_of({.groups = 2, .sync_every = 8}, plan).sync_every, 8);
  EXPECT_EQ(mesh_of(open, old).groups, 1);
  EXPECT_EQ(mesh_of(open, old).sync, SyncForm::kDense);
  EXPECT_EQ(mesh_of(open, old).sync_every, 1);
  EXPECT_EQ(mesh_of(open, old).moment_scale, 0.0) << "nothing is averaged";
}

TEST(Plan, RowsInSteps) {
  Plan plan{.tables = {{.table = "a",
                        .sharding = Sharding::kRowWise,
                        .shards = {{.rank = 1, .rows = {0, 9, 2}, .cols = {0, 16}},
                                   {.rank = 0, .rows = {1, 9, 2}, .cols = {0, 16}}}}}};
  const std::string text = plan_to_yaml(plan);
  EXPECT_NE(text.find("rows: [1, 9, 2]"), std::string::npos) << text;
  EXPECT_EQ(plan_from_yaml(text, "plan.yaml"), plan);
  const std::uint64_t hash = plan_hash(plan);
  plan.tables[0].shards.edit([](auto& shards) { shards[0].rows.step = 3; });
  EXPECT_NE(plan_hash(plan), hash);
}

TEST(Plan, WhereBagsAreAddedIsPartOfIt) {
  Plan plan{.tables = {{.table = "a", .sharding = Sharding::kRowWise, .shards = {}}}};
  const std::uint64_t hash = plan_hash(plan);
  plan.tables[0].pooled_at = PooledAt::kSample;
  const std::string text = plan_to_yaml(plan);
  EXPECT_NE(text.find("pooled_at: sample"), std::string::npos) << text;
  EXPECT_EQ(plan_from_yaml(text, "plan.yaml"), plan);
  EXPECT_NE(plan_hash(plan), hash);
  const Plan old = plan_from_yaml(
      "version: 1\nranks: 1\nparts: 8\ntables: [{table: a, sharding: row_wise, shards: []}]\n",
      "plan.yaml");
  EXPECT_EQ(old.tables[0].pooled_at, PooledAt::kOwner);
}

TEST(Plan, HotRowsAreRanges) {
  Plan plan{.tables = {{.table = "a", .sharding = Sharding::kRowWise, .shards = {}}}};
  const std::uint64_t hash = plan_hash(plan);
  plan.tables[0].hot = {{0, 100}, {512, 513}};
  const std::string text = plan_to_yaml(plan);
  EXPECT_NE(text.find("head: [[0, 100], [512, 513]]"), std::string::npos) << text;
  EXPECT_EQ(plan_from_yaml(text, "plan.yaml"), plan);
  EXPECT_NE(plan_hash(plan), hash);
  const auto error = [](const std::string& ranges) -> std::string {
    try {
      plan_from_yaml(
          "version: 1\nranks: 1\nparts: 8\ntables:\n- table: a\n  head: " + ranges + "\n",
          "plan.yaml");
    } catch (const Error& failure) {
      return failure.what();
    }
    return "no error";
  };
  EXPECT_EQ(error("3"),
            "plan.yaml:6:9: tables.a.head: expected a list of ranges such as [[0, 100], "
            "[512, 513]], found '3'");
  EXPECT_EQ(error("[[0, 2], [3]]"),
            "plan.yaml:6:18: tables.a.head.1: expected two integers [begin, end], found a list of "
            "1");
  EXPECT_EQ(error("[[-1, 3]]"), "plan.yaml:6:9: tables.a.head: must be at least 0, is -1");
}

/// They decide no bit, so plans of before keep their hash, and a plan with others has it too.
TEST(Plan, CachesAreInTheFileAndNotInTheHash) {
  Plan plan{.ranks = 2,
            .tables = {{.table = "a",
                        .sharding = Sharding::kRowWise,
                        .shards = {{.rank = 0, .rows = {0, 5}, .cols = {0, 16}},
                                   {.rank = 1, .rows = {5, 9}, .cols = {0, 16}}}}}};
  const std::uint64_t hash = plan_hash(plan);
  EXPECT_EQ(hash, 6027869451000645659U) << "of a build that knew no caches";
  EXPECT_FALSE(has_caches(plan));
  plan.tables[0].caches = {4'000'000'000'000, 1};
  EXPECT_TRUE(has_caches(plan));
  const std::string text = plan_to_yaml(plan);
  EXPECT_NE(text.find("caches: [4000000000000, 1]"), std::string::npos) << text;
  EXPECT_EQ(plan_from_yaml(text, "plan.yaml"), plan);
  EXPECT_EQ(plan_hash(plan), hash);
  drop_caches(plan);
  EXPECT_EQ(plan_from_yaml(plan_to_yaml(plan), "plan.yaml"), plan);
  const auto error = [](const std::string& caches) -> std::string {
    try {
      plan_from_yaml(
          "version: 1\nranks: 1\nparts: 8\ntables:\n- table: a\n  caches: " + caches + "\n",
          "plan.yaml");
    } catch (const Error& failure) {
      return failure.what();
    }
    return "no error";
  };
  EXPECT_EQ(error("[1, -1]"), "plan.yaml:6:11: tables.a.caches: must be at least 0 bytes, is -1");
  EXPECT_EQ(error("[x]"), "plan.yaml:6:12: tables.a.caches.0: expected an integer, found 'x'");
}

TEST(Plan, GroupsOfATableArePartOfIt) {
  Plan plan{.ranks = 2,
            .groups = 4,
            .tables = {{.table = "a", .sharding = Sharding::kRowWise, .shards = {}}}};
  EXPECT_EQ(plan.groups_of(plan.tables[0]), 4);
  EXPECT_EQ(plan.most_ranks(), 2);
  const std::uint64_t hash = plan_hash(plan);
  plan.tables[0].groups = 2;
  EXPECT_EQ(plan.ranks_of(plan.tables[0]), 4);
  EXPECT_EQ(plan.most_ranks(), 4);
  EXPECT_EQ(plan_from_yaml(plan_to_yaml(plan), "plan.yaml"), plan);
  EXPECT_NE(plan_hash(plan), hash);
  const Plan old = plan_from_yaml(
      "version: 1\nranks: 1\nparts: 8\ntables: [{table: a, sharding: row_wise, shards: []}]\n",
      "plan.yaml");
  EXPECT_EQ(old.tables[0].groups, 0);
}

TEST(Plan, WithoutHostsIsOfOne) {
  const Plan plan = plan_from_yaml("version: 1\nranks: 2\nparts: 8\ntables: []\n", "plan.yaml");
  EXPECT_EQ(plan.hosts, std::vector<std::int64_t>{});
}

TEST(Plan, BadTextIsNamed) {
  const auto message = [](const std::string& text) {
    try {
      plan_from_yaml(text, "plan.yaml");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message(""), "plan.yaml: holds no plan");
  EXPECT_EQ(message("version: 1\nranks: 0\nparts: 8\ntables: []\n"),
            "plan.yaml:2:8: ranks: must be 1 to 65536, is 0");
  EXPECT_EQ(message("version: 1\nranks: 2\nparts: 8\n"), "plan.yaml: the key 'tables' is missing");
  EXPECT_EQ(message("version: 1\nranks: 1\nparts: 8\ntables: [{table: a, sharding: table_wise, "
                    "shards: [{rank: 0, rows: [0], cols: [0, 1]}]}]\n"),
            "plan.yaml:4:68: tables.a.shards.0.rows: expected two integers [begin, end], or three "
            "[begin, end, step], found a list of 1");
  EXPECT_EQ(message("version: 1\nranks: 1\nparts: 8\ntables: [{table: a, sharding: row_wise, "
                    "shards: [{rank: 0, rows: [0, 9, 0], cols: [0, 1]}]}]\n"),
            "plan.yaml:4:66: tables.a.shards.0.rows: the step from row to row must be at least 1, "
            "is 0");
}

TEST(Plan, WhatIsNotResolvedIsRefusedWhereItStands) {
  const auto message = [](const std::string& lines) {
    try {
      plan_from_yaml("version: 1\nranks: 1\nparts: 8\n" + lines, "plan.yaml");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message("layout: auto\ntables: []\n"),
            "plan.yaml:4:9: layout: 'auto' is none of local_all_to_all, local_all_reduce");
  EXPECT_EQ(message("layout: local_all_reduce\ntables: []\n"), "no error");
  EXPECT_EQ(message("tables:\n- table: a\n  sharding: auto\n").substr(0, 61),
            "plan.yaml:6:13: tables.a.sharding: 'auto' is none of data_par");
}

TEST(Plan, WhatIsLeftOutIsNoBlock) {
  const auto message = [](const std::string& lines) {
    try {
      plan_from_yaml("version: 1\nranks: 1\nparts: 8\n" + lines, "plan.yaml");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string no_value = ": has no value; give one or remove it";
  const auto missing = [](const std::string& where, const std::string& key) {
    return where + ": the key '" + key + "' is missing";
  };
  EXPECT_EQ(message("tables:\n"), "plan.yaml:4:1: tables" + no_value);
  EXPECT_EQ(message("collectives:\ntables: []\n"), "plan.yaml:4:1: collectives" + no_value);
  EXPECT_EQ(message("collectives: {ids: flat}\ntables: []\n"), "no error");
  EXPECT_EQ(message("tables:\n-\n"), "plan.yaml:5:1: tables.0" + no_value);
  EXPECT_EQ(message("tables:\n- sharding: row_wise\n  shards: []\n"),
            missing("plan.yaml:5:3: tables.0", "table"));
  EXPECT_EQ(message("tables:\n- table: a\n  shards: []\n"),
            missing("plan.yaml:5:3: tables.a", "sharding"));
  EXPECT_EQ(message("tables:\n- table: a\n  sharding: row_wise\n"),
            missing("plan.yaml:5:3: tables.a", "shards"));
  const std::string table = "tables:\n- table: a\n  sharding: row_wise\n  shards:";
  EXPECT_EQ(message(table + "\n"), "plan.yaml:7:3: tables.a.shards" + no_value);
  EXPECT_EQ(message(table + "\n  - {rank: 0, rows: [0, 3], cols: [0, 1]}\n"), "no error");
  EXPECT_EQ(message(table + "\n  -\n"), "plan.yaml:8:3: tables.a.shards.0" + no_value);
  const std::string shard = "plan.yaml:8:5: tables.a.shards.0";
  EXPECT_EQ(message(table + "\n  - {rank: 0, cols: [0, 1]}\n"), missing(shard, "rows"));
  EXPECT_EQ(message(table + "\n  - {rank: 0, rows: [0, 1]}\n"), missing(shard, "cols"));
  EXPECT_EQ(message(table + "\n  - {rows: [0, 1], cols: [0, 1]}\n"), missing(shard, "rank"));
}

}  // namespace
}  // namespace weft::spec
