// Data, features and tasks.
#include <array>
#include <string_view>

#include "weft/spec/walk.h"

namespace weft::spec {
namespace {

// Spellings, in the order of the enumerators.
constexpr std::array<std::string_view, 4> kDataFormats = {"synthetic", "criteo", "movielens",
                                                          "weft"};
constexpr std::array<std::string_view, 3> kDenseTransforms = {"none", "log", "standard"};
constexpr std::array<std::string_view, 4> kIdMappings = {"hash", "modulo", "identity",
                                                         "vocabulary"};
constexpr std::array<std::string_view, 3> kPoolings = {"sum", "mean", "none"};

}  // namespace

void walk(Visitor& v, SyntheticColumn& c) {
  v.value({.name = "name",
           .meaning = "Column name; `C{1..26}` stands for 26 columns.",
           .default_text = "required"},
          &c.name);
  v.value({.name = "cardinality",
           .meaning = "Distinct ids.",
           .unit = "ids",
           .bounds = at_least(1, static_cast<double>(SyntheticConfig::kMaxIds))},
          &c.cardinality);
  v.value({.name = "zipf",
           .meaning = "Exponent of the popularity law of the ids; 0 draws them uniformly.",
           .bounds = at_least(0, 10)},
          &c.zipf);
  v.value({.name = "min_length",
           .meaning = "Shortest bag; lengths are uniform from min_length to max_length.",
           .unit = "ids",
           .bounds = at_least(1, static_cast<double>(SyntheticConfig::kMaxLength))},
          &c.min_length);
  v.value({.name = "max_length",
           .meaning = "Longest bag.",
           .unit = "ids",
           .bounds = at_least(1, static_cast<double>(SyntheticConfig::kMaxLength))},
          &c.max_length);
  v.value({.name = "missing", .meaning = "Probability of an empty bag.", .bounds = at_least(0, 1)},
          &c.missing);
  v.value({.name = "repeat",
           .meaning = "Probability that the ids are those of the sample's visitor, seen before.",
           .bounds = at_least(0, 1)},
          &c.repeat);
  v.value({.name = "teacher_scale",
           .meaning = "Weight of this column in the planted teacher.",
           .bounds = at_least(0, 1000)},
          &c.teacher_scale);
  v.value({.name = "weighted", .meaning = "Every id carries a weight, uniform in [0.5, 1.5)."},
          &c.weighted);
}

void walk(Visitor& v, SyntheticConfig& c) {
  v.value({.name = "samples",
           .meaning = "Training samples generated.",
           .unit = "samples",
           .bounds = at_least(1)},
          &c.samples);
  v.value({.name = "eval_samples",
           .meaning = "Evaluation samples generated, from the same teacher.",
           .unit = "samples",
           .bounds = at_least(0),
           .decides_weights = false},
          &c.eval_samples);
  v.value({.name = "dense_columns",
           .meaning = "Dense columns, called d1, d2, ...",
           .unit = "columns",
           .bounds = at_least(0, kMaxWidth)},
          &c.dense_columns);
  v.value({.name = "visitors",
           .meaning = "Repeat visitors, whose samples share ids (see `repeat`).",
           .unit = "visitors",
           .bounds = at_least(1, static_cast<double>(SyntheticConfig::kMaxIds))},
          &c.visitors);
  v.value({.name = "base_rate",
           .meaning = "Mean label.",
           .bounds = {.min = 0, .max = 1, .above_min = true, .below_max = true}},
          &c.base_rate);
  v.value({.name = "signal",
           .meaning = "Scale of the teacher's logit; the larger, the lower the best possible NE.",
           .bounds = at_least(0, SyntheticConfig::kMaxSignal)},
          &c.signal);
  list(v, {.name = "columns", .meaning = "Generated categorical columns."}, c.columns, kExpands);
}

void walk(Visitor& v, ShuffleConfig& c) {
  v.value({.name = "enabled", .meaning = "Shuffle the training samples, by the seed and epoch."},
          &c.enabled);
  v.value({.name = "window",
           .meaning = "Samples permuted together; 0 = all where the format has random access "
                      "(synthetic, movielens, weft), otherwise 65536.",
           .unit = "samples",
           .bounds = at_least(0)},
          &c.window);
}

void walk(Visitor& v, DataConfig& c) {
  v.value({.name = "format",
           .meaning = "How the data is read: generated, Criteo's logs (plain, .gz, .zst), the "
                      "MovieLens folder, or files of `weft data convert`."},
          choice(c.format, kDataFormats));
  v.value({.name = "path",
           .meaning = "Training data: one or a list of files or globs; for movielens the folder. "
                      "Relative to the working directory.",
           .decides_weights = false},
          &c.path);
  v.value({.name = "eval_path",
           .meaning = "Evaluation data, as `path`; empty: see eval_fraction.",
           .decides_weights = false},
          &c.eval_path);
  v.value({.name = "eval_fraction",
           .meaning = "Last fraction of `path` held out for evaluation, where eval_path is empty "
                      "(format weft; movielens always holds out its last tenth by time).",
           .bounds = {.min = 0, .max = 1, .below_max = true}},
          &c.eval_fraction);
  v.value({.name = "max_samples",
           .meaning = "Read no more training samples than this; 0 = all.",
           .unit = "samples",
           .bounds = at_least(0)},
          &c.max_samples);
  v.value({.name = "max_eval_samples",
           .meaning = "Evaluate on no more samples than this; 0 = all.",
           .unit = "samples",
           .bounds = at_least(0),
           .decides_weights = false},
          &c.max_eval_samples);
  v.value({.name = "read_ahead",
           .meaning = "Batches that the reader's thread prepares ahead.",
           .unit = "batches",
           .bounds = at_least(1, 1024),
           .decides_weights = false},
          &c.read_ahead);
  section(v, {.name = "shuffle", .meaning = "Order of the training samples."}, c.shuffle);
  section(v,
          {.name = "synthetic",
           .meaning = "The generated click log; used where format is synthetic, and by "
                      "`weft data generate`."},
          c.synthetic);
}

void walk(Visitor& v, DenseFeature& c) {
  v.value({.name = "name",
           .meaning = "Feature name; `I{1..13}` stands for 13 features.",
           .default_text = "required"},
          &c.name);
  v.value(
      {.name = "column", .meaning = "Column of the data.", .default_text = "the feature's name"},
      &c.column);
  v.value({.name = "transform",
           .meaning = "none; log: ln(1 + x), 0 where x <= 0; standard: (x - mean) / scale."},
          choice(c.transform, kDenseTransforms));
  v.value({.name = "missing",
           .meaning = "Value of a missing entry, after the transform.",
           .bounds = real()},
          &c.missing);
  v.value({.name = "mean", .meaning = "Of transform standard.", .bounds = real()}, &c.mean);
  v.value({.name = "scale", .meaning = "Of transform standard.", .bounds = above(0)}, &c.scale);
}

void walk(Visitor& v, SparseFeature& c) {
  v.value({.name = "name",
           .meaning = "Feature name; `C{1..26}` stands for 26 features.",
           .default_text = "required"},
          &c.name);
  v.value(
      {.name = "column", .meaning = "Column of the data.", .default_text = "the feature's name"},
      &c.column);
  v.value({.name = "table",
           .meaning = "Embedding table looked up; several features may share one.",
           .default_text = "the feature's name"},
          &c.table);
  v.value({.name = "mapping",
           .meaning = "From id to row. hash: mix64(id ^ XXH3(salt)) mod num_embeddings; modulo: id "
                      "mod num_embeddings; identity: the id, out of range is an error; vocabulary: "
                      "by frequency in the training data, row 0 for rare and unknown ids."},
          choice(c.mapping, kIdMappings));
  v.value({.name = "salt",
           .meaning = "Text mixed into the hash: features of one table map equal ids to equal rows "
                      "where their salts are equal, and apart where they differ.",
           .default_text = "the table's name where mapping is hash"},
          &c.salt);
  v.value({.name = "min_count",
           .meaning = "Vocabulary: ids seen less often go to row 0.",
           .unit = "occurrences",
           .bounds = at_least(1)},
          &c.min_count);
  v.value({.name = "pooling",
           .meaning = "How the rows of a bag become one vector; none: a sequence, one vector per "
                      "id."},
          choice(c.pooling, kPoolings));
  v.value({.name = "weighted",
           .meaning = "Per-id weights of the column multiply the rows (pooling sum only)."},
          &c.weighted);
  v.value({.name = "max_length",
           .meaning = "Keep the first ids of longer bags; 0 = all.",
           .unit = "ids",
           .bounds = at_least(0, 0x1.0p20)},
          &c.max_length);
  v.value({.name = "target",
           .meaning = "Sequence features: the pooled feature of one id that the sequence is "
                      "attended with (model.sequence attention)."},
          &c.target);
}

void walk(Visitor& v, Task& c) {
  v.value({.name = "name", .meaning = "Task name."}, &c.name);
  v.value({.name = "column", .meaning = "Column of the label, 0 or 1."}, &c.column);
  v.value({.name = "weight_column",
           .meaning = "Column with a weight per sample; empty: every weight is 1."},
          &c.weight_column);
  v.value({.name = "weight", .meaning = "Of this task's loss in the sum.", .bounds = above(0)},
          &c.weight);
}

}  // namespace weft::spec
