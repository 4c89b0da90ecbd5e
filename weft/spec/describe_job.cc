// Tables, model, optimizers, the run, and the plan.
#include <array>
#include <string_view>

#include "weft/spec/walk.h"

namespace weft::spec {
namespace {

// Spellings, in the order of the enumerators.
constexpr std::array<std::string_view, kSparseOptimizers.size()> kSparseOptimizerNames = [] {
  std::array<std::string_view, kSparseOptimizers.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = kSparseOptimizers[i].name;
  }
  return names;
}();
constexpr std::array<std::string_view, 3> kWeightDecayModes = {"none", "l2", "decoupled"};
constexpr std::array<std::string_view, 4> kRowDTypes = {"fp32", "fp16", "bf16", "split_bf16"};
constexpr std::array<std::string_view, 3> kTableInits = {"uniform", "normal", "zero"};
constexpr std::array<std::string_view, 8> kShardings = {
    "auto",        "data_parallel",  "table_wise",        "row_wise",
    "column_wise", "table_row_wise", "table_column_wise", "grid_shard"};
constexpr std::array<std::string_view, 2> kRowSplits = {"range", "modulo"};
constexpr std::array<std::string_view, 3> kPooledAt = {"owner", "sample", "auto"};
constexpr std::array<std::string_view, 2> kPooledAtOfPlans = {"owner", "sample"};
constexpr std::array<std::string_view, 3> kCutsOfPlans = {"range", "modulo", "copy"};
constexpr std::array<std::string_view, 3> kModels = {"dlrm", "dcnv2", "deepfm"};
constexpr std::array<std::string_view, 2> kComputes = {"fp32", "bf16"};
constexpr std::array<std::string_view, 2> kSequencePoolings = {"attention", "mean"};
constexpr std::array<std::string_view, 3> kDenseOptimizers = {"sgd", "adagrad", "adam"};
constexpr std::array<std::string_view, 2> kSchedules = {"constant", "polynomial"};
constexpr std::array<std::string_view, 2> kIdCodecs = {"narrow", "packed"};
constexpr std::array<std::string_view, 2> kCodecRoundings = {"nearest", "stochastic"};
constexpr std::array<std::string_view, 2> kOnNonFinites = {"stop", "skip"};
constexpr std::array<std::string_view, 3> kCollectives = {"auto", "flat", "hierarchical"};
constexpr std::array<std::string_view, 2> kCollectiveForms = {"flat", "hierarchical"};
constexpr std::array<std::string_view, 3> kDenseForms = {"flat", "hierarchical", "relayed"};
constexpr std::array<std::string_view, 3> kDevices = {"cpu", "check", "cuda"};
constexpr std::array<std::string_view, 6> kTargets = {"auto",   "sse4",        "avx2",
                                                      "avx512", "avx512_bf16", "amx"};
constexpr std::array<GoneWord, 3> kGoneCodecFormats = {
    GoneWord{.name = "fbgemm_fp8_143", .instead = "fp8_e4m3"},
    GoneWord{.name = "fbgemm_fp8_152", .instead = "fp8_e5m2"},
    GoneWord{.name = "fbgemm_int8", .instead = "int8"}};

Choice format_choice(CodecFormat& format) {
  Choice formats = choice(format, kCodecFormatNames);
  formats.gone = kGoneCodecFormats;
  return formats;
}

}  // namespace

std::string_view to_string(Sharding sharding) {
  return kShardings[static_cast<std::size_t>(sharding)];
}

void walk(Visitor& v, SparseOptimizer& c) {
  v.value({.name = "type",
           .meaning = "Runs once per touched row on its summed gradient; row_wise_* keep one "
                      "statistic per row instead of one per element."},
          choice(c.type, kSparseOptimizerNames));
  v.value({.name = "learning_rate",
           .meaning = "Multiplied by the schedule.",
           .bounds = at_least(0, kMaxReal)},
          &c.learning_rate);
  v.value({.name = "eps",
           .meaning = "Added to the square root of the statistic.",
           .bounds = at_least(1e-30, 1)},
          &c.eps);
  v.value({.name = "beta1",
           .meaning = "Adam: decay of the first moment.",
           .bounds = {.min = 0, .max = 1, .below_max = true}},
          &c.beta1);
  v.value({.name = "beta2",
           .meaning = "Adam: decay of the second moment.",
           .bounds = {.min = 0, .max = 1, .below_max = true}},
          &c.beta2);
  v.value({.name = "initial_accumulator",
           .meaning = "Adagrad: first value of the statistic.",
           .bounds = at_least(0, kMaxReal)},
          &c.initial_accumulator);
  v.value({.name = "weight_decay",
           .meaning = "Of touched rows; needs weight_decay_mode.",
           .bounds = at_least(0, kMaxReal)},
          &c.weight_decay);
  v.value({.name = "weight_decay_mode",
           .meaning = "l2: added to the gradient; decoupled: the row shrinks by learning rate × "
                      "weight_decay."},
          choice(c.weight_decay_mode, kWeightDecayModes));
  v.value({.name = "max_norm",
           .meaning = "Largest norm of a row after its update; 0 = none.",
           .bounds = at_least(0, kMaxReal)},
          &c.max_norm);
}

void walk(Visitor& v, Table& c) {
  v.value({.name = "name",
           .meaning = "Table name; `C{1..26}` stands for 26 tables.",
           .default_text = "required"},
          &c.name);
  v.value({.name = "num_embeddings",
           .meaning = "Rows E.",
           .unit = "rows",
           .bounds = at_least(1, kMaxRows),
           .default_text = "required"},
          &c.num_embeddings);
  v.value({.name = "embedding_dim",
           .meaning = "Values per row D.",
           .unit = "values",
           .bounds = at_least(1, kMaxWidth),
           .default_text = "required"},
          &c.embedding_dim);
  v.value({.name = "dtype",
           .meaning = "Of the rows in memory; fp16 and bf16 are rounded stochastically on update. "
                      "split_bf16: fp32 in two bf16-sized halves, lookups read the upper one."},
          choice(c.dtype, kRowDTypes));
  v.value({.name = "init",
           .meaning = "Initial values. uniform: in ±init_scale; normal: standard deviation "
                      "init_scale; zero."},
          choice(c.init, kTableInits));
  v.value({.name = "init_scale",
           .meaning = "Of the initial values; 0 = 1/sqrt(num_embeddings).",
           .bounds = at_least(0, 1e6)},
          &c.init_scale);
  v.value({.name = "sharding",
           .meaning = "How rows are spread over the ranks; auto lets the planner choose.",
           .decides_weights = false},
          choice(c.sharding, kShardings));
  v.value(
      {.name = "allow",
       .meaning = "Of sharding auto, without rank and host: what a plan for a cluster may choose: "
                  "data_parallel, table_wise, row_wise, column_wise, table_row_wise, "
                  "table_column_wise, grid_shard. A table that may be cut may also stay whole, "
                  "and does without a cluster.",
       .default_text = "all",
       .decides_weights = false},
      &c.allow);
  v.value({.name = "rank",
           .meaning = "table_wise: the owner; -1 = placed by the planner.",
           .bounds = at_least(-1, kMaxRanks - 1),
           .decides_weights = false},
          &c.rank);
  v.value({.name = "host",
           .meaning = "table_wise, table_row_wise, table_column_wise: the host of all its ranks, "
                      "by the order of their first ranks; -1 = placed by the planner.",
           .bounds = at_least(-1, kMaxRanks - 1),
           .decides_weights = false},
          &c.host);
  v.value({.name = "row_split",
           .meaning = "row_wise, table_row_wise, grid_shard: range: a shard has rows that follow "
                      "each other; modulo: shard k of n has rows k, k + n, k + 2n, ..., for rows "
                      "numbered by frequency.",
           .decides_weights = false},
          choice(c.row_split, kRowSplits));
  v.value({.name = "pooled_at",
           .meaning = "Where rows are cut, or hot: owner: each shard sends its partial sum of a "
                      "bag; sample: each row that a rank's samples ask for travels once and bags "
                      "are added there, for long bags that share rows; auto: what weft plan finds "
                      "shorter, without a cluster owner.",
           .decides_weights = false},
          choice(c.pooled_at, kPooledAt));
  v.value({.name = "hot_rows",
           .meaning = "Every rank has a copy of so many of the most frequent rows, the hot rows, "
                      "beside any sharding but data_parallel. Which rows, --stats says, or a "
                      "vocabulary. 0 = none, unless weft plan finds the step shorter with some.",
           .unit = "rows",
           .bounds = at_least(0, kMaxRows),
           .decides_weights = false},
          &c.hot_rows);
  v.value({.name = "column_shards",
           .meaning = "column_wise, table_column_wise, grid_shard: columns are cut into at most so "
                      "many pieces, of 16 columns at least; 0 = as many as ranks, as ranks of the "
                      "host, as hosts.",
           .unit = "shards",
           .bounds = at_least(0, kMaxWidth / kColumnBlock),
           .decides_weights = false},
          &c.column_shards);
  v.value({.name = "groups",
           .meaning = "Replica groups of this table, a divisor of mesh.groups: neighbouring groups "
                      "are merged, so that it is sharded over more ranks and has fewer replicas. "
                      "1 = over all ranks, 0 = mesh.groups.",
           .unit = "groups",
           .bounds = at_least(0, kMaxRanks)},
          &c.groups);
  section(v, {.name = "memory", .meaning = "Where its rows lie.", .decides_weights = false},
          c.memory);
  section(v,
          {.name = "optimizer",
           .meaning = "Of this table; keys not given are those of `sparse_optimizer`.",
           .default_text = "as sparse_optimizer"},
          c.optimizer);
}

void walk(Visitor& v, Model& c) {
  v.value({.name = "type",
           .meaning = "dlrm: dot interaction; dcnv2: low-rank cross layers; deepfm: factorization "
                      "machine beside an MLP."},
          choice(c.type, kModels));
  v.value({.name = "bottom_mlp",
           .meaning = "Widths of the MLP over the dense features, the last being its output "
                      "(dlrm and deepfm: the embedding dimension).",
           .unit = "values",
           .bounds = at_least(1, kMaxWidth)},
          &c.bottom_mlp);
  v.value({.name = "top_mlp",
           .meaning = "Hidden widths of the MLP over the interaction; an output per task is added.",
           .unit = "values",
           .bounds = at_least(1, kMaxWidth)},
          &c.top_mlp);
  v.value({.name = "cross_layers", .meaning = "dcnv2: layers.", .bounds = at_least(1, 64)},
          &c.cross_layers);
  v.value({.name = "cross_rank",
           .meaning = "dcnv2: rank of the weights.",
           .bounds = at_least(1, kMaxWidth)},
          &c.cross_rank);
  v.value({.name = "projection_dim",
           .meaning = "dlrm, deepfm: tables of other dimensions are projected to this one by a "
                      "linear layer; 0 = they are refused.",
           .unit = "values",
           .bounds = at_least(0, kMaxWidth)},
          &c.projection_dim);
  v.value({.name = "sequence",
           .meaning = "How a sequence feature becomes one vector: attention with its target (DIN), "
                      "or the mean."},
          choice(c.sequence, kSequencePoolings));
  v.value({.name = "attention_mlp",
           .meaning = "Hidden widths of the attention's scoring MLP.",
           .unit = "values",
           .bounds = at_least(1, kMaxWidth)},
          &c.attention_mlp);
  v.value({.name = "compute",
           .meaning = "Precision of the dense layers' products; weights are kept in fp32."},
          choice(c.compute, kComputes));
}

void walk(Visitor& v, DenseOptimizer& c) {
  v.value({.name = "type", .meaning = "Of the dense layers."}, choice(c.type, kDenseOptimizers));
  v.value({.name = "learning_rate",
           .meaning = "Multiplied by the schedule.",
           .bounds = at_least(0, kMaxReal)},
          &c.learning_rate);
  v.value({.name = "eps",
           .meaning = "Added to the square root of the statistic.",
           .bounds = at_least(1e-30, 1)},
          &c.eps);
  v.value({.name = "beta1",
           .meaning = "Adam: decay of the first moment.",
           .bounds = {.min = 0, .max = 1, .below_max = true}},
          &c.beta1);
  v.value({.name = "beta2",
           .meaning = "Adam: decay of the second moment.",
           .bounds = {.min = 0, .max = 1, .below_max = true}},
          &c.beta2);
  v.value({.name = "initial_accumulator",
           .meaning = "Adagrad: first value of the statistic.",
           .bounds = at_least(0, kMaxReal)},
          &c.initial_accumulator);
  v.value({.name = "weight_decay",
           .meaning = "L2, added to the gradient.",
           .bounds = at_least(0, kMaxReal)},
          &c.weight_decay);
  v.value({.name = "clip_norm",
           .meaning = "Largest global norm of the dense gradient; 0 = none.",
           .bounds = at_least(0, kMaxReal)},
          &c.clip_norm);
}

void walk(Visitor& v, Schedule& c) {
  v.value({.name = "type",
           .meaning = "Factor of every learning rate after the warm-up. polynomial: "
                      "(1 - progress)^power from decay_start over decay_steps, never below "
                      "final_factor."},
          choice(c.type, kSchedules));
  v.value({.name = "warmup_steps",
           .meaning = "The factor rises linearly from 0 over these.",
           .unit = "steps",
           .bounds = at_least(0)},
          &c.warmup_steps);
  v.value({.name = "decay_start",
           .meaning = "polynomial: first step of the decay.",
           .unit = "steps",
           .bounds = at_least(0)},
          &c.decay_start);
  v.value({.name = "decay_steps",
           .meaning = "polynomial: length of the decay.",
           .unit = "steps",
           .bounds = at_least(0)},
          &c.decay_steps);
  v.value({.name = "power", .meaning = "polynomial: exponent.", .bounds = at_least(0, 100)},
          &c.power);
  v.value({.name = "final_factor",
           .meaning = "polynomial: factor at the end and from then on.",
           .bounds = at_least(0, 1)},
          &c.final_factor);
}

void walk(Visitor& v, Train& c) {
  v.value({.name = "steps",
           .meaning = "Global steps to train; 0 = as many as the epochs have.",
           .unit = "steps",
           .bounds = at_least(0),
           .decides_weights = false},
          &c.steps);
  v.value({.name = "epochs",
           .meaning = "Times the training data is read, where steps is 0.",
           .unit = "epochs",
           .bounds = at_least(1),
           .decides_weights = false},
          &c.epochs);
  v.value({.name = "eval_every",
           .meaning = "Steps between evaluations; 0 = at the end only.",
           .unit = "steps",
           .bounds = at_least(0),
           .decides_weights = false},
          &c.eval_every);
  v.value({.name = "log_every",
           .meaning = "Steps per window of the training figures.",
           .unit = "steps",
           .bounds = at_least(1),
           .decides_weights = false},
          &c.log_every);
  v.value({.name = "on_non_finite",
           .meaning = "Where a loss or gradient is not finite: stop all ranks in that step, or "
                      "skip the whole step."},
          choice(c.on_non_finite, kOnNonFinites));
  v.value({.name = "max_skipped",
           .meaning = "on_non_finite skip: the job ends once so many steps have been skipped that "
                      "no later trained steps make up for, one each: so many in a row, or in the "
                      "long run more than half.",
           .unit = "steps",
           .bounds = at_least(1),
           .decides_weights = false},
          &c.max_skipped);
  v.value({.name = "overlap",
           .meaning = "Sum the dense gradients over the ranks beside the embedding backward, and "
                      "average replica groups beside the dense update and the next exchange of "
                      "ids.",
           .decides_weights = false},
          &c.overlap);
  v.value({.name = "timeout_s",
           .meaning = "Of every wait for another rank.",
           .unit = "seconds",
           .bounds = above(0, 1e6),
           .decides_weights = false},
          &c.timeout_s);
  v.value({.name = "device",
           .meaning = "Where it runs; check: the CPU with its own address space and random delays, "
                      "to find missing copies and events.",
           .decides_weights = false},
          choice(c.device, kDevices));
}

void walk(Visitor& v, Codecs& c) {
  v.value({.name = "forward",
           .meaning = "Of looked-up vectors and partial sums on their way to the samples; fp32: as "
                      "they are (docs/codecs.md)."},
          format_choice(c.forward));
  v.value({.name = "backward", .meaning = "Of their gradients on the way back."},
          format_choice(c.backward));
  v.value({.name = "dense",
           .meaning = "Of partial sums of the dense gradients and of their sums; fp32: as they "
                      "are."},
          format_choice(c.dense));
  v.value({.name = "sync",
           .meaning = "Of what rows and their optimizer state have changed by since the last sync "
                      "of replica groups that are averaged, and of the means of these changes; "
                      "fp32: rows and state as they are (docs/2d.md)."},
          format_choice(c.sync));
  v.value({.name = "group_size",
           .meaning = "Of formats of 8 and 4 bits: columns that share a scale, counted from column "
                      "0 of the row, or from the start of a rank's slice of the dense gradients. "
                      "Column shards are cut at multiples of it and of 16.",
           .unit = "columns",
           .bounds = at_least(1, kMaxWidth)},
          &c.group_size);
  v.value({.name = "ids",
           .meaning = "Of rows that are asked for where bags are added at the sample: narrow, each "
                      "in the bytes that the largest takes; packed, sorted, as packed differences "
                      "(docs/codecs.md). Other ids are narrow.",
           .decides_weights = false},
          choice(c.ids, kIdCodecs));
  v.value({.name = "rounding",
           .meaning = "Of forward and backward: to the nearest code, or stochastic: right on "
                      "average, with draws that depend on the seed, the step, the sample or row, "
                      "the feature and the column."},
          choice(c.rounding, kCodecRoundings));
  v.value({.name = "error_feedback",
           .meaning = "What the codecs of dense gradients and of syncs round away is kept and "
                      "added the next time. Takes memory."},
          &c.error_feedback);
}

void walk(Visitor& v, Numerics& c) {
  v.value({.name = "parts",
           .meaning = "Pieces of the global batch whose sums are added in a fixed order; equal "
                      "parts give equal bits on any number of ranks. 0 = max(8, ranks).",
           .unit = "parts",
           .bounds = at_least(0, kMaxRanks),
           .decides_weights = false},
          &c.parts);
  v.value({.name = "row_draws",
           .meaning = "Random bits of rows in fp16 and bf16, which updates and averages round "
                      "stochastically: 1 = a word of Philox for each element, 2 = one for two, "
                      "3 = one for two, of seven rounds instead of ten. "
                      "0 = 3, or what the checkpoint was begun with.",
           .bounds = {.min = 0, .max = 3},
           .decides_weights = false},
          &c.row_draws);
  v.value({.name = "target",
           .meaning = "Instruction set; auto = the lowest common one of the ranks. Bits are equal "
                      "at equal target.",
           .decides_weights = false},
          choice(c.target, kTargets));
}

void walk(Visitor& v, Debug& c) {
  v.value({.name = "skip",
           .meaning = "Stages that every step leaves out, to see what it takes without them: "
                      "lookup, exchange (of vectors and gradients), dense (forward and backward), "
                      "update. Such a job trains nothing: its figures mean nothing, it saves and "
                      "evaluates nothing.",
           .default_text = "none",
           .decides_weights = false},
          &c.skip);
}

void walk(Visitor& v, CutRule& c) {
  v.value({.name = "rank",
           .meaning = "Owner; of several shards that of the first.",
           .bounds = at_least(0, kMaxRanks - 1)},
          &c.first_rank);
  v.value({.name = "rows",
           .meaning = "First row, one past the last, and from row to row if not 1.",
           .bounds = at_least(0)},
          &c.rows);
  v.value({.name = "cols",
           .meaning = "First column and one past the last.",
           .bounds = at_least(0, kMaxWidth)},
          &c.cols);
  v.value({.name = "count",
           .meaning = "Ranks that share the rows, a shard each; not said of one.",
           .bounds = at_least(1, kMaxRanks),
           .unwritten = "1"},
          &c.count);
  v.value({.name = "rank_step",
           .meaning = "From one of these ranks to the next; not said if 1.",
           .bounds = at_least(0, kMaxRanks),
           .unwritten = "1"},
          &c.rank_step);
  v.value({.name = "by",
           .meaning = "How they share them. range: pieces of equal size, not said; modulo: every "
                      "count-th row; copy: each has all.",
           .unwritten = "range"},
          choice(c.by, kCutsOfPlans));
}

void walk(Visitor& v, TablePlan& c) {
  v.value({.name = "table", .meaning = "Table name."}, &c.table);
  v.value({.name = "sharding", .meaning = "As resolved; never auto."},
          resolved_choice(c.sharding, kShardings));
  v.value({.name = "pooled_at",
           .meaning = "Where bags are added; sample only of cut rows, or with hot rows."},
          choice(c.pooled_at, kPooledAtOfPlans));
  v.value({.name = "groups",
           .meaning = "Its replica groups, each of neighbouring ones; 0 = those of the plan.",
           .bounds = at_least(0, kMaxRanks)},
          &c.groups);
  v.value(
      {.name = "head",
       .meaning = "Hot rows, which every rank has a copy of: first ones, and one past the last.",
       .bounds = at_least(0, kMaxRows),
       .default_text = "none"},
      &c.hot);
  v.value({.name = "caches",
           .meaning = "Of each shard, where rows are on disks and share tiers.cache_bytes; none = "
                      "divided by the bytes of the shards.",
           .unit = "bytes",
           .bounds = at_least(0, 0x1.0p50),
           .default_text = "none",
           .decides_weights = false,
           .unwritten = "[]"},
          &c.caches);
  std::vector<CutRule> rules = c.shards.rules();
  list(v, {.name = "shards", .meaning = "Blocks, by row and column."}, rules, {.key = {}});
  c.shards = Shards::as_written(std::move(rules));
}

void walk(Visitor& v, CollectiveForms& c) {
  v.value({.name = "ids", .meaning = "Counts and ids."}, choice(c.ids, kCollectiveForms));
  v.value({.name = "vectors", .meaning = "Vectors, their gradients, row statistics."},
          choice(c.vectors, kCollectiveForms));
  v.value({.name = "dense", .meaning = "The sum of dense gradients."},
          choice(c.dense, kDenseForms));
}

std::string_view to_string(CollectiveForm form) {
  return kDenseForms[static_cast<std::size_t>(form)];
}

void visit(Visitor& v, Config& c) {
  v.value({.name = "version",
           .meaning = "Of this file's format.",
           .bounds = {.min = 1, .max = 1},
           .default_text = "required"},
          &c.version);
  v.value({.name = "seed", .meaning = "Of initial values, shuffling, rounding and generated data."},
          &c.seed);
  v.value({.name = "batch_size",
           .meaning = "Samples per step over all ranks together.",
           .unit = "samples",
           .bounds = at_least(1, 0x1.0p30)},
          &c.batch_size);
  section(v, {.name = "data", .meaning = "Click logs."}, c.data);
  list(v, {.name = "dense_features", .meaning = "Numeric inputs."}, c.dense_features, kExpands);
  list(v, {.name = "sparse_features", .meaning = "Categorical inputs."}, c.sparse_features,
       kExpands);
  list(v,
       {.name = "tasks",
        .meaning = "Labels. Each loss is divided by its own sum of weights, then added.",
        .default_text = "one, called click, of column label"},
       c.tasks, {});
  section(v, {.name = "sparse_optimizer", .meaning = "Default of every table's optimizer."},
          c.sparse_optimizer);
  list(v, {.name = "tables", .meaning = "Embedding tables."}, c.tables, kExpands);
  section(v, {.name = "model", .meaning = "The dense model."}, c.model);
  section(v, {.name = "dense_optimizer", .meaning = "Of the dense model."}, c.dense_optimizer);
  section(v, {.name = "schedule", .meaning = "Of every learning rate."}, c.schedule);
  section(v, {.name = "train", .meaning = "The run."}, c.train);
  section(v, {.name = "mesh", .meaning = "Replica groups, which each have all tables."}, c.mesh);
  section(v,
          {.name = "pipeline",
           .meaning = "What of several batches overlaps, and which samples are in the same part.",
           .unhashed = "{}"},
          c.pipeline);
  section(
      v,
      {.name = "tiers", .meaning = "Of tables whose rows lie on disks.", .decides_weights = false},
      c.tiers);
  section(v, {.name = "codecs", .meaning = "How vectors and gradients travel between ranks."},
          c.codecs);
  section(v, {.name = "numerics", .meaning = "What the bits of a result depend on."}, c.numerics);
  v.value({.name = "collectives",
           .meaning =
               "How exchanges reach other hosts: flat = every rank sends to every rank, "
               "hierarchical = inside hosts, one message for each pair of hosts, inside "
               "hosts; auto = what a plan for a cluster (--cluster) predicts to be faster; without "
               "one flat, or hierarchical above 64 ranks.",
           .decides_weights = false},
          choice(c.collectives, kCollectives));
  section(v, {.name = "debug", .meaning = "For diagnosis only."}, c.debug);
}

void visit(Visitor& v, Plan& p) {
  v.value({.name = "version",
           .meaning = "Of this file's format.",
           .bounds = {.min = 1, .max = 1},
           .default_text = "required"},
          &p.version);
  v.value({.name = "ranks",
           .meaning = "Of a replica group: the world's without groups.",
           .bounds = at_least(1, kMaxRanks)},
          &p.ranks);
  v.value({.name = "groups",
           .meaning = "Replica groups: the world has groups x ranks ranks.",
           .bounds = at_least(1, kMaxRanks)},
          &p.groups);
  v.value({.name = "layout", .meaning = "Which ranks are a group; never auto."},
          resolved_layout_choice(p.layout));
  v.value({.name = "sync",
           .meaning = "mesh.sync, where the planner chose it.",
           .default_text = "configured"},
          plan_sync_choice(p.sync));
  v.value({.name = "sync_every",
           .meaning = "mesh.sync_every, where the planner chose it; 0 = as configured.",
           .bounds = at_least(0, 0x1.0p30)},
          &p.sync_every);
  v.value(
      {.name = "parts", .meaning = "numerics.parts, resolved.", .bounds = at_least(1, kMaxRanks)},
      &p.parts);
  v.value({.name = "hosts",
           .meaning = "Host of each rank of the largest group that a table is sharded over, by the "
                      "order of their first ranks; none = all on one.",
           .bounds = at_least(0, kMaxRanks - 1),
           .default_text = "none"},
          &p.hosts);
  section(v, {.name = "collectives", .meaning = "How exchanges reach other hosts."}, p.collectives);
  v.section({.name = "pipeline",
             .meaning = "What of several batches overlaps, where the planner chose it.",
             .default_text = "as configured",
             .decides_weights = false},
            [&p](Visitor& inner) { walk_overlap(inner, p.pipeline); });
  v.value({.name = "cache_bytes",
           .meaning = "tiers.cache_bytes, where the planner chose it; 0 = as configured.",
           .unit = "bytes",
           .bounds = at_least(0, 0x1.0p50),
           .decides_weights = false,
           .unwritten = "0"},
          &p.cache_bytes);
  list(v, {.name = "tables", .meaning = "In the order of the configuration."}, p.tables,
       {.key = "table"});
}

}  // namespace weft::spec
