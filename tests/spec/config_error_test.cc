// Every kind of mistake, with the message that names it.
#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/spec/small_config.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/spec/yaml.h"

namespace weft::spec {
namespace {

struct Mistake {
  const char* from;
  const char* to;
  const char* message;
};

std::string error_of(const std::string& text, WrittenBy writer = WrittenBy::kUser) {
  try {
    parse_config(text, "test.yaml", {}, writer);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "no error";
}

void expect_named(std::initializer_list<Mistake> mistakes) {
  for (const Mistake& mistake : mistakes) {
    EXPECT_EQ(error_of(changed(mistake.from, mistake.to)), mistake.message);
  }
}

TEST(Mistakes, Syntax) {
  expect_named(
      {Mistake{"seed: 7", "seed: [7",
               "test.yaml:3:11: this is not YAML: end of sequence flow not "
               "found"},
       Mistake{"seed: 7", "sed: 7", "test.yaml:2:1: sed: unknown key; did you mean 'seed'?"},
       Mistake{"samples: 1000", "sampels: 1000",
               "test.yaml:7:5: data.synthetic.sampels: unknown key; did you mean 'samples'?"},
       Mistake{"seed: 7", "seed: 7\nseed: 8",
               "test.yaml:3:1: the key 'seed' stands twice in one section (first in line 2)"},
       Mistake{"seed: 7", "[a]: 7", "test.yaml:2:1: a key must be a word, not a list of 1"},
       Mistake{"seed: 7", "seed: !!int 7",
               "test.yaml:2:7: the tag 'tag:yaml.org,2002:int' has no meaning here; remove it"},
       Mistake{"seed: 7", "seed: 7\n---\nseed: 8",
               "test.yaml:4:1: a second document begins here; a file holds one"},
       Mistake{"version: 1\n", "", "test.yaml: the key 'version' is missing; add 'version: 1'"}});
}

TEST(Mistakes, Types) {
  expect_named(
      {Mistake{"seed: 7", "seed: -7",
               "test.yaml:2:7: seed: '-7' does not fit a 64-bit integer of this kind"},
       Mistake{"seed: 7", "seed: seven", "test.yaml:2:7: seed: expected an integer, found 'seven'"},
       Mistake{"seed: 7", "seed: '7'",
               "test.yaml:2:7: seed: expected an integer, found the text \"7\""},
       Mistake{"seed: 7", "seed:", "test.yaml:2:1: seed: has no value; give one or remove the key"},
       Mistake{"batch_size: 64", "batch_size: 64.5",
               "test.yaml:3:13: batch_size: expected an integer, found '64.5'"},
       Mistake{"batch_size: 64", "batch_size: 99999999999999999999",
               "test.yaml:3:13: batch_size: '99999999999999999999' does not fit a 64-bit integer "
               "of this kind"},
       Mistake{"batch_size: 64", "batch_size: {a: 1}",
               "test.yaml:3:13: batch_size: expected an integer, found a section"},
       Mistake{"format: synthetic", "format: sinthetic",
               "test.yaml:5:11: data.format: 'sinthetic' is none of synthetic, criteo, movielens, "
               "weft; did you mean 'synthetic'?"},
       Mistake{"bottom_mlp: [16, 8]", "bottom_mlp: 16",
               "test.yaml:22:15: model.bottom_mlp: expected a list of integers such as [64, 32], "
               "found '16'"},
       Mistake{"bottom_mlp: [16, 8]", "bottom_mlp: [16, x]",
               "test.yaml:22:20: model.bottom_mlp.1: expected an integer, found 'x'"},
       Mistake{"    dense_columns: 2", "    dense_columns: 2\n    base_rate: .nan",
               "test.yaml:9:16: data.synthetic.base_rate: '.nan' is not finite"},
       Mistake{"    dense_columns: 2", "    dense_columns: 2\n    base_rate: -.Inf",
               "test.yaml:9:16: data.synthetic.base_rate: '-.Inf' is not finite"},
       Mistake{"    dense_columns: 2", "    dense_columns: 2\n    base_rate: 1e999",
               "test.yaml:9:16: data.synthetic.base_rate: '1e999' is out of the range of a "
               "double"},
       Mistake{"model:", "train: 5\nmodel:",
               "test.yaml:21:8: train: expected a section of keys, found '5'"},
       Mistake{"model:", "train: {overlap: yes}\nmodel:",
               "test.yaml:21:18: train.overlap: expected true or false, found 'yes'"},
       Mistake{"model:", "tasks: click\nmodel:",
               "test.yaml:21:8: tasks: expected a list of entries, found 'click'"}});
}

TEST(Mistakes, Ranges) {
  expect_named(
      {Mistake{"version: 1", "version: 2", "test.yaml:1:10: version: must be 1, is 2"},
       Mistake{"batch_size: 64", "batch_size: 0",
               "test.yaml:3:13: batch_size: must be at least 1 samples, is 0"},
       Mistake{"batch_size: 64", "batch_size: -5",
               "test.yaml:3:13: batch_size: must be at least 1 samples, is -5"},
       Mistake{"batch_size: 64", "batch_size: 9999999999",
               "test.yaml:3:13: batch_size: must be at most 1073741824 samples, is 9999999999"},
       Mistake{"embedding_dim: 8", "embedding_dim: 0",
               "test.yaml:20:20: tables.C1.embedding_dim: must be 1 to 65536 values, is 0"},
       Mistake{"num_embeddings: [100, 50, 10]", "num_embeddings: [100, 0, 10]",
               "test.yaml:19:27: tables.C2.num_embeddings: must be at least 1 rows, is 0"},
       Mistake{"    num_embeddings: [100, 50, 10]\n", "",
               "test.yaml:18:11: tables.C1.num_embeddings: must be at least 1 rows, is 0"},
       Mistake{"    dense_columns: 2", "    dense_columns: 2\n    base_rate: 1",
               "test.yaml:9:16: data.synthetic.base_rate: must be 0 to 1, without the ends, is 1"},
       Mistake{"    dense_columns: 2", "    dense_columns: 2\n    signal: 100.5",
               "test.yaml:9:13: data.synthetic.signal: must be 0 to 100, is 100.5"},
       Mistake{"model:", "train: {max_skipped: 0}\nmodel:",
               "test.yaml:21:22: train.max_skipped: must be at least 1 steps, is 0"},
       Mistake{"model:", "sparse_optimizer: {learning_rate: -1}\nmodel:",
               "test.yaml:21:35: sparse_optimizer.learning_rate: must be at least 0, is -1"},
       Mistake{"model:", "sparse_optimizer: {beta1: 1}\nmodel:",
               "test.yaml:21:27: sparse_optimizer.beta1: must be 0 to 1, without 1, is 1"},
       Mistake{"model:", "sparse_optimizer: {max_norm: -1}\nmodel:",
               "test.yaml:21:30: sparse_optimizer.max_norm: must be at least 0, is -1"},
       Mistake{"top_mlp: [16]", "top_mlp: [0]",
               "test.yaml:23:12: model.top_mlp: must be 1 to 65536 values, is 0"}});
}

TEST(Mistakes, Features) {
  expect_named(
      {Mistake{"  - name: C{1..3}\ntables", "  - name: C{1..3}\n    table: C{}x\ntables",
               "test.yaml:17:12: sparse_features.C1.table: there is no table 'C1x' for this "
               "feature; did you mean 'C1'?"},
       Mistake{"  - name: C{1..3}\ntables", "  - name: C{1..4}\ntables",
               "test.yaml:16:11: sparse_features.C4.table: there is no table 'C4' for this "
               "feature; did you mean 'C1'?"},
       Mistake{"  - name: C{1..3}\ntables", "  - name: x\n    table: C1\n    column: D1\ntables",
               "test.yaml:18:13: sparse_features.x.column: the data have no categorical column "
               "'D1'; did you mean 'C1'?"},
       Mistake{"  - name: d{1..2}", "  - name: d{1..3}",
               "test.yaml:13:11: dense_features.d3.column: the data have no dense column 'd3'; did "
               "you mean 'd1'?"},
       Mistake{"  - name: C{1..3}\ntables", "  - name: C1\n  - name: C1\ntables",
               "test.yaml:17:11: sparse_features.C1: the name 'C1' is taken by an earlier entry of "
               "sparse_features"},
       Mistake{"  - name: C{1..3}\ntables", "  - column: C1\ntables",
               "test.yaml:16:5: sparse_features.0: has no name; add 'name: ...'"},
       Mistake{"  - name: C{1..3}\ntables", "  - name: a b\ntables",
               "test.yaml:16:11: sparse_features.0: 'a b' cannot be a name: use letters, digits, "
               "'_' and '-', not digits alone, at most 128"},
       Mistake{"  - name: C{1..3}\ntables",
               "  - name: C{1..3}\n    pooling: mean\n    weighted: true\ntables",
               "test.yaml:18:15: sparse_features.C1.weighted: per-id weights go with pooling sum "
               "only; a mean or a sequence with weights is not defined here"},
       Mistake{"  - name: C{1..3}\ntables", "  - name: C{1..3}\n    weighted: true\ntables",
               "test.yaml:17:15: sparse_features.C1.weighted: the ids of column 'C1' carry no "
               "weights"},
       Mistake{"  - name: C{1..3}\ntables", "  - name: C{1..3}\n    min_count: 2\ntables",
               "test.yaml:17:16: sparse_features.C1.min_count: counts ids of mapping vocabulary; "
               "set that or remove this key"},
       Mistake{"  - name: C{1..3}\ntables",
               "  - name: C{1..3}\n    mapping: modulo\n    salt: x\ntables",
               "test.yaml:18:11: sparse_features.C1.salt: belongs to mapping hash; set that or "
               "remove this key"},
       Mistake{"transform: log", "mean: 3",
               "test.yaml:13:11: dense_features.d1: mean and scale are those of transform "
               "standard; set it or remove them"},
       Mistake{"model:", "tasks: [{name: a, column: lable}]\nmodel:",
               "test.yaml:21:27: tasks.a.column: the data have no label column 'lable'; did you "
               "mean 'label'?"},
       Mistake{"model:", "tasks: [{name: a, weight_column: d9}]\nmodel:",
               "test.yaml:21:34: tasks.a.weight_column: the data have no numeric column 'd9'; did "
               "you mean 'd1'?"},
       Mistake{
           "model:", "tasks: []\nmodel:", "test.yaml:21:8: tasks: at least one label is needed"}});
}

TEST(Mistakes, Sequences) {
  expect_named(
      {Mistake{"  - name: C{1..3}\ntables", "  - name: C1\n  - name: C2\n    pooling: none\ntables",
               "test.yaml:17:11: sparse_features.C2: a sequence needs 'target', the pooled feature "
               "that it is attended with (or set 'model.sequence: mean')"},
       Mistake{"  - name: C{1..3}\ntables", "  - name: C1\n    target: C2\ntables",
               "test.yaml:17:13: sparse_features.C1.target: is for sequences; set 'pooling: none' "
               "or remove this key"},
       Mistake{"  - name: C{1..3}\ntables",
               "  - name: C1\n    pooling: none\n    target: C5\ntables",
               "test.yaml:18:13: sparse_features.C1.target: there is no sparse feature 'C5'; did "
               "you mean 'C1'?"},
       Mistake{"  - name: C{1..3}\ntables",
               "  - name: C1\n    pooling: none\n    target: C1\ntables",
               "test.yaml:18:13: sparse_features.C1.target: 'C1' is a sequence itself; a target "
               "must be pooled (sum or mean)"}});
}

TEST(Mistakes, TablesModelAndRun) {
  expect_named(
      {Mistake{"embedding_dim: 8", "embedding_dim: [8, 8, 16]",
               "test.yaml:20:27: tables.C3.embedding_dim: table C3 has 16 values per row and table "
               "C1 has 8; a dlrm model needs one dimension: set model.projection_dim to project "
               "the others to it"},
       Mistake{"embedding_dim: 8",
               "embedding_dim: 8\n    sharding: column_wise\n"
               "    column_shards: 2",
               "test.yaml:22:20: tables.C1.column_shards: 2 shards are too many: columns are cut "
               "at multiples of 16, so embedding_dim 8 has at most 1"},
       Mistake{"embedding_dim: 8", "embedding_dim: 8\n    allow: row_wise\n    rank: 0",
               "test.yaml:21:12: tables.C1.allow: the rank is given, and with it the scheme, "
               "table_wise; remove one of the two, or set sharding"},
       Mistake{"embedding_dim: 8", "embedding_dim: 8\n    allow: row_wise\n    host: 1",
               "test.yaml:21:12: tables.C1.allow: the host is given, and with it the scheme, "
               "table_wise; remove one of the two, or set sharding"},
       Mistake{"embedding_dim: 8", "embedding_dim: 8\n    column_shards: 1",
               "test.yaml:21:20: tables.C1.column_shards: goes with sharding column_wise, "
               "table_column_wise or grid_shard; set one of them or remove this key"},
       Mistake{"embedding_dim: 8",
               "embedding_dim: 8\n    sharding: table_wise\n    pooled_at: sample",
               "test.yaml:22:16: tables.C1.pooled_at: goes with sharding row_wise, table_row_wise "
               "or grid_shard; set one of them or remove this key"},
       Mistake{"embedding_dim: 8", "embedding_dim: 8\n    hot_rows: -1",
               "test.yaml:21:15: tables.C1.hot_rows: must be at least 0 rows, is -1"},
       Mistake{"embedding_dim: 8", "embedding_dim: 8\n    hot_rows: 1000",
               "test.yaml:21:15: tables.C1.hot_rows: 1000 hot rows leave none of the table's "
               "100 rows for its shards; set fewer, or sharding data_parallel instead of this key"},
       Mistake{"embedding_dim: 8", "embedding_dim: 8\n    sharding: data_parallel\n    hot_rows: 2",
               "test.yaml:22:15: tables.C1.hot_rows: data_parallel has all rows on every rank; set "
               "another sharding or remove this key"},
       Mistake{"embedding_dim: 8", "embedding_dim: 8\n    allow: data_parallel\n    hot_rows: 2",
               "test.yaml:22:15: tables.C1.hot_rows: data_parallel has all rows on every rank; set "
               "another sharding or remove this key"},
       Mistake{"embedding_dim: 8",
               "embedding_dim: 8\n    sharding: table_wise\n    pooled_at: sample\n    hot_rows: 2",
               "no error"},
       Mistake{"embedding_dim: 8", "embedding_dim: 8\n    sharding: row_wise\n    host: 0",
               "test.yaml:22:11: tables.C1.host: one host goes with sharding table_wise, "
               "table_row_wise or table_column_wise; set one of them or remove this key"},
       Mistake{"embedding_dim: 8", "embedding_dim: 8\n    rank: 1\n    host: 0",
               "test.yaml:22:11: tables.C1.host: the rank is given, and with it the host; remove "
               "one of the two"},
       Mistake{"embedding_dim: 8", "embedding_dim: 8\n    sharding: row_wise\n    rank: 0",
               "test.yaml:22:11: tables.C1.rank: one owner goes with sharding table_wise; set that "
               "or remove this key"},
       Mistake{"embedding_dim: 8", "embedding_dim: 8\n    optimizer: {weight_decay: 0.1}",
               "test.yaml:21:31: tables.C1.optimizer.weight_decay: 0.1 has no effect with "
               "weight_decay_mode none; set l2 or decoupled"},
       Mistake{"bottom_mlp: [16, 8]", "bottom_mlp: [16, 4]",
               "test.yaml:22:15: model.bottom_mlp: ends with 4, but the vectors it meets have 8 "
               "values; end it with 8"},
       Mistake{"  bottom_mlp: [16, 8]\n", "",
               "test.yaml:22:3: model.bottom_mlp: the dense features meet the embeddings as one "
               "vector; "
               "end the MLP with its 8 values, such as [64, 8]"},
       Mistake{
           "dense_features:\n  - name: d{1..2}\n    transform: log\n", "",
           "test.yaml:19:15: model.bottom_mlp: there are no dense features for it; remove it or "
           "declare some"},
       Mistake{"model:", "schedule: {type: polynomial}\nmodel:",
               "test.yaml:21:11: schedule.decay_steps: a polynomial decay needs its length in "
               "steps"},
       Mistake{"model:", "schedule: {decay_steps: 5}\nmodel:",
               "test.yaml:21:25: schedule.decay_steps: has no effect with type constant; set "
               "'type: polynomial' or remove it"},
       Mistake{"model:", "train: {eval_every: 5}\nmodel:", "no error"}});
}

TEST(Mistakes, Mesh) {
  expect_named(
      {Mistake{"seed: 7", "seed: 7\nmesh: {moment_scale: 0.5}",
               "test.yaml:3:22: mesh.moment_scale: 0.5 would divide the learning rate of "
               "rows away; set 1 for none, 0 for the number of groups, or more than 1"},
       Mistake{"seed: 7", "seed: 7\nmesh: {moment_scale: 1}", "no error"},
       Mistake{"seed: 7", "seed: 7\nmesh: {moment_scale: 4}",
               "test.yaml:3:22: mesh.moment_scale: 4 is for replicas that are averaged, "
               "and with groups 1 there are none; set 0 or remove it"},
       Mistake{"seed: 7", "seed: 7\nmesh: {groups: 2, moment_scale: 4}", "no error"},
       Mistake{"seed: 7", "seed: 7\nmesh: {groups: 2, sync: gradients, moment_scale: 1.5}",
               "test.yaml:3:50: mesh.moment_scale: 1.5 is for replicas that are averaged, "
               "and with sync gradients there are none; set 0 or remove it"},
       Mistake{"seed: 7", "seed: 7\nmesh: {groups: 0, moment_scale: 4, sync: auto}", "no error"},
       Mistake{"seed: 7", "seed: 7\nmesh: {sync_state: false}",
               "test.yaml:3:8: mesh.sync_state: this key is gone: replicas' optimizer state is "
               "always averaged; remove the key"},
       Mistake{"seed: 7", "seed: 7\nmesh: {groups: 2, own_squares: averaged}",
               "test.yaml:3:19: mesh.own_squares: this key is gone: a step's own squares always "
               "count whole; remove the key"},
       Mistake{"seed: 7", "seed: 7\nmesh: {groups: 2, sync_state: true}",
               "test.yaml:3:19: mesh.sync_state: this key is gone: replicas' optimizer state is "
               "always averaged; remove the key"},
       Mistake{"seed: 7", "seed: 7\nmesh: {groups: -1}",
               "test.yaml:3:16: mesh.groups: must be 0 to 65536 groups, is -1"},
       Mistake{"seed: 7", "seed: 7\nmesh: {groups: 2, sync_every: 0}", "no error"},
       Mistake{"seed: 7", "seed: 7\nmesh: {sync: never}",
               "test.yaml:3:14: mesh.sync: 'never' is none of auto, dense, touched, "
               "gradients"},
       Mistake{"embedding_dim: 8\n", "embedding_dim: 8\n    groups: 3\nmesh: {groups: 4}\n",
               "test.yaml:21:13: tables.C1.groups: 3 groups do not divide the 4 of "
               "mesh.groups; set 2 or 4, or 0 for all"},
       Mistake{"embedding_dim: 8\n", "embedding_dim: 8\n    groups: 8\nmesh: {groups: 4}\n",
               "test.yaml:21:13: tables.C1.groups: 8 groups do not divide the 4 of "
               "mesh.groups; set 4, or 0 for all"},
       Mistake{"embedding_dim: 8\n",
               "embedding_dim: 8\n    sharding: data_parallel\n    groups: 2\n"
               "mesh: {groups: 4}\n",
               "test.yaml:22:13: tables.C1.groups: data_parallel has all rows on every "
               "rank of every group; remove this key"},
       Mistake{"embedding_dim: 8\n", "embedding_dim: 8\n    groups: [1, 2, 4]\nmesh: {groups: 4}\n",
               "no error"}});
}

TEST(Mistakes, Codecs) {
  expect_named(
      {Mistake{"seed: 7", "seed: 7\ncodecs: {forward: fp8}",
               "test.yaml:3:19: codecs.forward: 'fp8' is none of fp32, fp16, bf16, fp8_e4m3, "
               "fp8_e5m2, int8, int4"},
       Mistake{"seed: 7", "seed: 7\ncodecs: {dense: int16}",
               "test.yaml:3:17: codecs.dense: 'int16' is none of fp32, fp16, bf16, fp8_e4m3, "
               "fp8_e5m2, int8, int4"},
       Mistake{"seed: 7", "seed: 7\ncodecs: {sync: int16}",
               "test.yaml:3:16: codecs.sync: 'int16' is none of fp32, fp16, bf16, fp8_e4m3, "
               "fp8_e5m2, int8, int4"},
       Mistake{"seed: 7", "seed: 7\ncodecs: {forward: fbgemm_fp8_143}",
               "test.yaml:3:19: codecs.forward: 'fbgemm_fp8_143' is gone; set fp8_e4m3 instead"},
       Mistake{"seed: 7", "seed: 7\ncodecs: {backward: fbgemm_fp8_152}",
               "test.yaml:3:20: codecs.backward: 'fbgemm_fp8_152' is gone; set fp8_e5m2 instead"},
       Mistake{"seed: 7", "seed: 7\ncodecs: {sync: fbgemm_int8}",
               "test.yaml:3:16: codecs.sync: 'fbgemm_int8' is gone; set int8 instead"},
       Mistake{"seed: 7", "seed: 7\ncodecs: {sync: int8}",
               "test.yaml:3:16: codecs.sync: int8 is for replicas that are averaged, and with "
               "groups 1 there are none; set fp32 or remove it, or train with mesh.groups of 2 or "
               "more and mesh.sync dense or touched"},
       Mistake{"seed: 7", "seed: 7\nmesh: {groups: 2, sync: gradients}\ncodecs: {sync: bf16}",
               "test.yaml:4:16: codecs.sync: bf16 is for replicas that are averaged, and with sync "
               "gradients there are none; set fp32 or remove it, or train with mesh.groups of 2 or "
               "more and mesh.sync dense or touched"},
       Mistake{"seed: 7", "seed: 7\nmesh: {groups: 0}\ncodecs: {sync: int8}",
               "test.yaml:4:16: codecs.sync: int8 is for replicas that are averaged, and with "
               "groups 0 there may be none; set fp32 or remove it, or train with mesh.groups of 2 "
               "or more and mesh.sync dense or touched"},
       Mistake{"seed: 7", "seed: 7\nmesh: {groups: 2}\ncodecs: {sync: fp8_e4m3}", "no error"},
       Mistake{"seed: 7", "seed: 7\nmesh: {groups: 2, sync: auto}\ncodecs: {sync: int8}",
               "no error"},
       Mistake{"seed: 7", "seed: 7\ncodecs: {error_feedback: 1}",
               "test.yaml:3:26: codecs.error_feedback: expected true or false, found '1'"},
       Mistake{"seed: 7", "seed: 7\ncodecs: {group_size: 0}",
               "test.yaml:3:22: codecs.group_size: must be 1 to 65536 columns, is 0"},
       Mistake{"seed: 7", "seed: 7\ncodecs: {ids: tight}",
               "test.yaml:3:15: codecs.ids: 'tight' is none of narrow, packed"},
       Mistake{"seed: 7", "seed: 7\ncodecs: {rounding: random}",
               "test.yaml:3:20: codecs.rounding: 'random' is none of nearest, stochastic"}});
  const std::string cut = changed("embedding_dim: 8",
                                  "embedding_dim: 64\n    sharding: column_wise\n"
                                  "    column_shards: 3");
  const auto with = [&cut](const std::string& codecs) { return error_of(cut + codecs); };
  EXPECT_EQ(with("codecs: {backward: int8, group_size: 24}\n"),
            "test.yaml:22:20: tables.C1.column_shards: 3 shards are too many: columns are cut at "
            "multiples of 48 (of 16 and of codecs.group_size), so embedding_dim 64 has at most 2");
  EXPECT_NE(with("mesh: {groups: 2}\ncodecs: {sync: int8, group_size: 24}\n")
                .find("columns are cut at multiples of 48"),
            std::string::npos);
  EXPECT_EQ(with("codecs: {backward: fp16, group_size: 24}\n").find("column_shards"),
            std::string::npos);
}

TEST(Mistakes, Data) {
  expect_named(
      {Mistake{"format: synthetic", "format: criteo",
               "test.yaml:5:3: data.path: names no file; set the files to train on"},
       Mistake{"format: synthetic", "format: criteo\n  path: a\n  eval_fraction: 0.1",
               "test.yaml:7:18: data.eval_fraction: format criteo is read in sequence, so its last "
               "part is not known; set data.eval_path, or convert the log with 'weft data "
               "convert'"},
       Mistake{"format: synthetic", "format: weft\n  path: a\n  eval_path: b\n  eval_fraction: 0.1",
               "test.yaml:8:18: data.eval_fraction: has no effect beside data.eval_path; remove "
               "one of them"},
       Mistake{"format: synthetic", "format: movielens\n  path: [a, b]",
               "test.yaml:6:9: data.path: format movielens takes one folder, that of ratings.csv "
               "and movies.csv; 2 are set"},
       Mistake{"format: synthetic", "eval_fraction: 0.1",
               "test.yaml:5:18: data.eval_fraction: format synthetic generates its own evaluation "
               "set; set data.synthetic.eval_samples"},
       Mistake{"cardinality: [100, 50, 10]", "min_length: 3",
               "test.yaml:11:21: data.synthetic.columns.C1.min_length: 3 is more than max_length "
               "1; raise max_length"},
       Mistake{"format: synthetic", "format: criteo\n  path: a",
               "test.yaml:14:11: dense_features.d1.column: the data have no dense column 'd1'; did "
               "you mean 'I1'?"}});
}

TEST(ConfigErrors, EvaluationWithoutData) {
  const std::vector<std::string> overrides = {"data.synthetic.eval_samples=0",
                                              "train.eval_every=5"};
  try {
    parse_config(small_yaml(), "test.yaml", overrides);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "--set train.eval_every=5: train.eval_every: there is no evaluation data; set "
                 "data.synthetic.eval_samples, or 0");
  }
}

TEST(ConfigErrors, KeysThatAreGoneInWhatAnEarlierBuildWrote) {
  const auto stored = [](const std::string& keys) {
    return error_of(changed("seed: 7", "seed: 7\nmesh: {" + keys + "}"), WrittenBy::kEarlierBuild);
  };
  EXPECT_EQ(stored("groups: 2, own_squares: whole, sync_state: true"), "no error");
  EXPECT_EQ(stored("sync_state: false"),
            "test.yaml:3:8: mesh.sync_state: this key is gone, and 'false' with it: replicas' "
            "optimizer state is always averaged; train anew without the key, or go on with the "
            "build that wrote it");
  EXPECT_NE(stored("sync_state: ~").find("test.yaml:3:8: mesh.sync_state: this key is gone, and"),
            std::string::npos);
  EXPECT_NE(stored("sync_status: true").find("mesh.sync_status: unknown key"), std::string::npos);
  EXPECT_EQ(error_of(changed("seed: 7", "seed: 7\ncodecs: {dense: fbgemm_int8}"),
                     WrittenBy::kEarlierBuild),
            "test.yaml:3:17: codecs.dense: 'fbgemm_int8' is gone; train anew with int8, or go on "
            "with the build that wrote it");
}

TEST(ConfigErrors, EmptyFiles) {
  for (const char* text : {"", "\n", "# only a comment\n", "---\n", "~\n", "null\n"}) {
    EXPECT_EQ(error_of(text), "test.yaml: holds no configuration; begin with 'version: 1'") << text;
  }
  EXPECT_EQ(error_of("- 1\n"),
            "test.yaml:1:1: expected keys such as 'version: 1', found a list of 1");
  EXPECT_EQ(error_of("hello\n"),
            "test.yaml:1:1: expected keys such as 'version: 1', found 'hello'");
}

TEST(ConfigErrors, NestingWithoutEnd) {
  EXPECT_NE(error_of("a: " + std::string(100, '[')).find("nested more than 32 deep"),
            std::string::npos);
  EXPECT_NE(error_of("a: " + std::string(200'000, '[')).find("test.yaml:1:"), std::string::npos);
  std::string dashes;
  for (int i = 0; i < 100; ++i) {
    dashes += "- ";
  }
  EXPECT_NE(error_of(dashes).find("nested more than 32 deep"), std::string::npos);
}

TEST(ConfigErrors, AliasesWithoutEnd) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last;
    for (int k = 0; k < 9; ++k) {
      bomb += ", " + last;
    }
    bomb += "]\n";
  }
  EXPECT_NE(error_of(bomb).find("more than 1000000 values, as its aliases unfold"),
            std::string::npos);
  std::string items = "a: [";
  for (int i = 0; i <= 1'000'000; ++i) {
    items += "0,";
  }
  EXPECT_NE(error_of(items + "]\n").find("more than 1000000 values; make it shorter"),
            std::string::npos);
  EXPECT_NE(error_of("a: &a [*a]\n").find("an alias inside its own anchor has no end"),
            std::string::npos);
  EXPECT_NE(error_of("a: *nobody\n").find("test.yaml:1:4: this is not YAML"), std::string::npos);
}

TEST(ConfigErrors, MissingFile) {
  try {
    load_config("/nowhere/job.yaml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "cannot read the configuration '/nowhere/job.yaml': No such file or "
                 "directory");
  }
}

TEST(ConfigErrors, AConfigMadeInCodeIsCheckedByPath) {
  Config config = parse_config(small_yaml(), "test.yaml");
  config.tables[1].embedding_dim = 0;
  try {
    validate(config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "tables.C2.embedding_dim: must be 1 to 65536 values, is 0");
  }
}

TEST(ConfigErrors, TableThatNoFeatureReadsIsAWarning) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view text) { lines.emplace_back(text); });
  parse_config(changed("  - name: C{1..3}\ntables", "  - name: C{1..2}\ntables"), "test.yaml");
  set_log_sink(nullptr);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0], "test.yaml:18:11: tables.C3: no feature reads this table");
}

}  // namespace
}  // namespace weft::spec
