/// Plain values that describe a training job. Everything a run depends on is here; code executes
/// what these values say. Each has a YAML form of the same spelling (spec/yaml.h) and a described
/// default, range, unit and meaning (describe_data.cc and describe_job.cc in spec/, from which
/// docs/parameters.md is generated).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/codec_format.h"
#include "weft/base/row_draws.h"
#include "weft/base/sparse_optimizer.h"
#include "weft/spec/memory.h"
#include "weft/spec/mesh.h"
#include "weft/spec/pipeline.h"

namespace weft::spec {

// ---- data ----------------------------------------------------------------------------------

/// Formats of click logs: generated ones, Criteo's text, the MovieLens folder, files of `weft data
/// convert` (docs/data.md).
enum class DataFormat { kSynthetic, kCriteo, kMovielens, kWeft };

/// One generated categorical column.
struct SyntheticColumn {
  std::string name;
  std::int64_t cardinality = 1000;  ///< distinct ids
  double zipf = 1.05;               ///< exponent of the popularity law, 0 = uniform
  std::int64_t min_length = 1;      ///< ids per sample, uniform in [min_length, max_length]
  std::int64_t max_length = 1;
  double missing = 0.0;        ///< probability of an empty bag
  double repeat = 0.0;         ///< probability that the ids are those of the sample's visitor
  double teacher_scale = 1.0;  ///< weight of this column in the planted teacher
  bool weighted = false;       ///< every id carries a weight, uniform in [0.5, 1.5)
};

/// A generated click log: dense columns d1, d2, ..., these categorical columns, and a label that a
/// planted teacher decides.
struct SyntheticConfig {
  /// Bounds of the keys, which the generator and the description of the keys share.
  static constexpr double kMaxSignal = 100.0;
  static constexpr std::int64_t kMaxIds = std::int64_t{1} << 36;  ///< of a column, and visitors
  static constexpr std::int64_t kMaxLength = 65536;               ///< ids of a bag

  std::int64_t samples = 2'000'000;
  std::int64_t eval_samples = 200'000;
  std::int64_t dense_columns = 13;
  std::int64_t visitors = 100'000;  ///< repeat visitors share ids
  double base_rate = 0.25;          ///< mean label
  double signal = 1.0;              ///< scale of the teacher's logit; larger = lower best NE
  std::vector<SyntheticColumn> columns;
};

/// The order of the training samples; seed and epoch decide it.
struct ShuffleConfig {
  bool enabled = true;
  std::int64_t window = 0;  ///< samples permuted together; 0 = all (random-access formats) or 65536
};

/// The training and evaluation data, and how they are read. Paths are absolute, or relative to the
/// working directory.
struct DataConfig {
  DataFormat format = DataFormat::kSynthetic;
  std::vector<std::string> path;       ///< files, globs, or the folder (movielens)
  std::vector<std::string> eval_path;  ///< evaluation files; empty: see eval_fraction
  double eval_fraction = 0.0;          ///< last fraction held out for evaluation (format weft)
  std::int64_t max_samples = 0;        ///< 0 = all
  std::int64_t max_eval_samples = 0;   ///< 0 = all
  std::int64_t read_ahead = 2;         ///< batches prepared ahead by the reader's thread
  ShuffleConfig shuffle;
  SyntheticConfig synthetic;
};

// ---- features ------------------------------------------------------------------------------

/// Transforms of dense values; DenseFeature has their formulas.
enum class DenseTransform { kNone, kLog, kStandard };

/// kLog: x <= 0 or missing -> 0, otherwise ln(1 + x). kStandard: (x - mean) / scale.
struct DenseFeature {
  std::string name;
  std::string column;  ///< default: name
  DenseTransform transform = DenseTransform::kNone;
  double missing = 0.0;  ///< value of a missing entry, after the transform
  double mean = 0.0;
  double scale = 1.0;
};

/// Mappings from ids of the data to rows of a table.
enum class IdMapping {
  kHash,        ///< row = mix64(id ^ hash_string(salt)) mod num_embeddings
  kModulo,      ///< row = id mod num_embeddings (ids as unsigned)
  kIdentity,    ///< row = id; out of range is an error
  kVocabulary,  ///< row by frequency rank in the training data, row 0 for rare and unknown ids
};

enum class Pooling { kSum, kMean, kNone };  ///< kNone: a sequence, one vector per id

/// One sparse feature: the column with its ids, how they become rows, and how the rows of a bag
/// become one vector.
struct SparseFeature {
  std::string name;
  std::string column;  ///< default: name
  std::string table;   ///< default: name
  IdMapping mapping = IdMapping::kHash;
  std::string salt;  ///< of the hash; default: the table's name, so that features share rows
  std::int64_t min_count = 1;  ///< vocabulary: rarer ids go to the out-of-vocabulary row
  Pooling pooling = Pooling::kSum;
  bool weighted = false;        ///< per-id weights from the column multiply the rows (sum only)
  std::int64_t max_length = 0;  ///< keep the first max_length ids; 0 = all
  std::string target;  ///< sequence features: the pooled one-id feature attended with (DIN)
};

/// One label. With several, each loss is divided by its own sum of weights, then added.
struct Task {
  std::string name = "click";
  std::string column = "label";
  std::string weight_column;  ///< weight per sample; empty = 1
  double weight = 1.0;        ///< of this task's loss
};

// ---- tables --------------------------------------------------------------------------------

/// Forms of weight decay, of touched rows only. kL2 adds weight_decay x row to the gradient,
/// kDecoupled shrinks the row by learning rate x weight_decay.
enum class WeightDecayMode { kNone, kL2, kDecoupled };

/// The optimizer of a table's rows; its type uses the fields that its formula has
/// (weft/kernels/sparse_update.h).
struct SparseOptimizer {
  SparseOptimizerKind type = SparseOptimizerKind::kRowWiseAdagrad;
  double learning_rate = 0.01;
  double eps = 1e-8;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double initial_accumulator = 0.0;
  double weight_decay = 0.0;
  WeightDecayMode weight_decay_mode = WeightDecayMode::kNone;
  double max_norm = 0.0;  ///< of a row after the update; 0 = none

  friend bool operator==(const SparseOptimizer&, const SparseOptimizer&) = default;
};

/// Types of rows in memory. fp16 and bf16 rows are rounded stochastically on update; split_bf16 is
/// fp32 in two halves, of which lookups read the upper one.
enum class RowDType { kFp32, kFp16, kBf16, kSplitBf16 };
/// Rules of first values (weft/kernels/initial_values.h); kNormal has the deviation init_scale.
enum class TableInit {
  kUniform,
  kNormal,
  kZero
};  ///< kUniform: U(-s, s), s = init_scale or 1/sqrt(rows)

/// Schemes by which a table is spread over ranks (docs/sharding.md).
enum class Sharding {
  kAuto,
  kDataParallel,
  kTableWise,
  kRowWise,
  kColumnWise,
  kTableRowWise,     ///< rows over the ranks of one host
  kTableColumnWise,  ///< columns over the ranks of one host
  kGridShard,        ///< columns over hosts, rows over ranks of each
};

/// Which rows a cut of rows has: kRange: rows that follow each other; kModulo: of n cuts the k-th
/// has rows k, k + n, k + 2n, ..., which spreads rows that are near each other and asked for alike.
enum class RowSplit { kRange, kModulo };

/// Schemes that a search for a plan may choose of a table with sharding auto.
inline constexpr std::array<std::string_view, 7> kAllowable = {
    "data_parallel",  "table_wise",        "row_wise",  "column_wise",
    "table_row_wise", "table_column_wise", "grid_shard"};

/// Where the rows of a pooled bag are added, of a table whose rows are cut. kOwner: by the shards
/// that hold them, whose partial sums travel. kSample: by the rank of the sample, in the order of
/// the bag; each row that the rank's samples ask for travels once. kAuto: where a search for a plan
/// finds the step shorter, else kOwner; never in a plan.
enum class PooledAt { kOwner, kSample, kAuto };

/// One table: the shape, type and first values of its rows, where they may lie, and their
/// optimizer.
struct Table {
  std::string name;
  std::int64_t num_embeddings = 0;  ///< E, rows
  std::int64_t embedding_dim = 0;   ///< D
  RowDType dtype = RowDType::kFp32;
  TableInit init = TableInit::kUniform;
  double init_scale = 0.0;  ///< 0 = 1/sqrt(num_embeddings)
  Sharding sharding = Sharding::kAuto;
  std::vector<std::string> allow;  ///< of kAllowable, for a search with a cluster; empty: all
  std::int64_t rank = -1;          ///< table_wise: the owner; -1 = placed by the planner
  std::int64_t host = -1;          ///< its owner's, or owners'; -1 = placed by the planner
  RowSplit row_split = RowSplit::kRange;
  PooledAt pooled_at = PooledAt::kAuto;
  std::int64_t hot_rows = 0;       ///< most frequent rows that every rank has a copy of
  std::int64_t column_shards = 0;  ///< most cuts of columns; 0 = a rank or (grid) host each
  std::int64_t groups = 0;         ///< K replica groups, a divisor of mesh.groups; 0 = mesh.groups
  TableMemory memory;              ///< where rows lie
  SparseOptimizer optimizer;       ///< default: the job's `sparse_optimizer`
};

// ---- model ---------------------------------------------------------------------------------

/// Dense models, by how features meet: dots, low-rank cross layers, a factorization machine
/// (docs/models.md).
enum class ModelKind { kDlrm, kDcnv2, kDeepFm };
/// Types of the operands of dense products; weights, sums and the gradients of weights are fp32.
enum class Compute { kFp32, kBf16 };
enum class SequencePooling { kAttention, kMean };  ///< how a sequence feature becomes one vector

/// The dense model.
struct Model {
  ModelKind type = ModelKind::kDlrm;
  std::vector<std::int64_t> bottom_mlp;  ///< hidden widths and output of the dense features' MLP
  std::vector<std::int64_t> top_mlp;     ///< hidden widths; the output layer of tasks is added
  std::int64_t cross_layers = 3;         ///< dcnv2
  std::int64_t cross_rank = 64;          ///< dcnv2, low rank
  std::int64_t projection_dim =
      0;  ///< dlrm, deepfm: tables of other dims are projected to it; 0 = refuse
  SequencePooling sequence = SequencePooling::kAttention;
  std::vector<std::int64_t> attention_mlp = {32};
  Compute compute = Compute::kFp32;
};

/// Optimizers of the dense model; weft/optim/dense.h has their formulas.
enum class DenseOptimizerKind { kSgd, kAdagrad, kAdam };

/// The optimizer of the dense model; its type uses the fields that its formula has.
struct DenseOptimizer {
  DenseOptimizerKind type = DenseOptimizerKind::kAdam;
  double learning_rate = 0.001;
  double eps = 1e-8;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double initial_accumulator = 0.0;
  double weight_decay = 0.0;  ///< L2
  double clip_norm = 0.0;     ///< global norm of the dense gradient; 0 = none
};

/// Courses of the learning rates after the warm-up.
enum class ScheduleKind { kConstant, kPolynomial };

/// Multiplies every learning rate. Linear warm-up from 0 over warmup_steps, constant until
/// decay_start, then (1 - progress)^power down to final_factor at decay_start + decay_steps.
struct Schedule {
  ScheduleKind type = ScheduleKind::kConstant;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_start = 0;
  std::int64_t decay_steps = 0;
  double power = 2.0;
  double final_factor = 0.0;
};

// ---- running -------------------------------------------------------------------------------

/// Codecs of lists of ids that may travel in ascending order.
enum class IdCodec {
  kNarrow,  ///< in the bytes that the largest possible one takes
  kPacked,  ///< sorted, as packed differences (weft/kernels/packed_ids.h)
};

/// Codecs of vectors on their way to the samples, of their gradients on the way back, of sums of
/// dense gradients, and of what averaged replicas have changed by.
struct Codecs {
  CodecFormat forward = CodecFormat::kFp32;
  CodecFormat backward = CodecFormat::kFp32;
  CodecFormat dense = CodecFormat::kFp32;
  CodecFormat sync = CodecFormat::kFp32;
  std::int64_t group_size = 128;  ///< columns that share a scale, in formats of 8 and 4 bits
  IdCodec ids = IdCodec::kNarrow;
  CodecRounding rounding = CodecRounding::kNearest;
  bool error_feedback = true;  ///< what `dense` and `sync` lose is added the next time
};

/// Answers to a loss or gradient that is not finite on some rank: all ranks stop in that step, or
/// all leave it out.
enum class OnNonFinite { kStop, kSkip };
/// Devices on which a job runs (weft/tensor/device.h).
enum class DeviceChoice { kCpu, kCheck, kCuda };

/// The run: its length, when it evaluates and logs, what it waits for, its device.
struct Train {
  std::int64_t steps = 0;  ///< 0 = by epochs
  std::int64_t epochs = 1;
  std::int64_t eval_every = 0;   ///< steps; 0 = at the end only
  std::int64_t log_every = 100;  ///< steps per window of the training figures
  OnNonFinite on_non_finite = OnNonFinite::kStop;
  std::int64_t max_skipped = 100;  ///< of kSkip: more skipped steps than trained ones end the job
  bool overlap = true;             ///< dense all-reduce beside the embedding backward
  double timeout_s = 300.0;        ///< of every wait for another rank
  DeviceChoice device = DeviceChoice::kCpu;
};

/// Limits of the kernels' instruction set; kAuto is the lowest common one of the ranks.
enum class Target {
  kAuto,
  kSse4,
  kAvx2,
  kAvx512,
  kAvx512Bf16,
  kAmx
};  ///< instruction sets, lowest first

/// The choices that decide the bits of equal training (docs/numerics.md).
struct Numerics {
  std::int64_t parts = 0;      ///< P of the rule of parts; 0 = max(8, ranks)
  std::int64_t row_draws = 0;  ///< the number of a DrawRule; 0 = the newest, or the checkpoint's
  Target target = Target::kAuto;

  /// Returns the rule that row_draws means; 0 as a new job has it.
  [[nodiscard]] DrawRule draw_rule() const {
    return row_draws == 0 ? kNewestDrawRule : static_cast<DrawRule>(row_draws);
  }
};

/// How exchanges reach other hosts; auto = as planned for a cluster, else flat.
enum class Collectives { kAuto, kFlat, kHierarchical };

/// Stages that a step can leave out, to see what it takes without them.
inline constexpr std::array<std::string_view, 4> kSkippable = {"lookup", "exchange", "dense",
                                                               "update"};

/// Switches for diagnosis.
struct Debug {
  std::vector<std::string> skip;  ///< of kSkippable; with any the job trains nothing
};

/// A training job; its members are the outermost keys of its YAML form.
struct Config {
  std::int64_t version = 1;
  std::uint64_t seed = 1;
  std::int64_t batch_size = 2048;  ///< the global batch, in samples
  DataConfig data;
  std::vector<DenseFeature> dense_features;
  std::vector<SparseFeature> sparse_features;
  std::vector<Task> tasks = {Task{}};
  std::vector<Table> tables;
  SparseOptimizer sparse_optimizer;  ///< default of every table
  DenseOptimizer dense_optimizer;
  Schedule schedule;
  Model model;
  Train train;
  Mesh mesh;
  Pipeline pipeline;
  Tiers tiers;
  Codecs codecs;
  Numerics numerics;
  Collectives collectives = Collectives::kAuto;
  Debug debug;
};

/// Returns the spelling in YAML: "table_wise".
std::string_view to_string(Sharding sharding);

/// Index of the table a feature reads. Valid after validate().
std::int64_t table_index(const Config& config, const SparseFeature& feature);

/// Whether rows of some table are kept on disks.
bool has_tables_on_disks(const Config& config);

}  // namespace weft::spec
