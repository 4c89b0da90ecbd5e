// What must agree between keys. Each check names the path to change.
#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/text.h"
#include "weft/spec/columns.h"
#include "weft/spec/describe.h"
#include "weft/spec/parse.h"
#include "weft/spec/plan.h"
#include "weft/spec/yaml.h"

namespace weft::spec {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Checker {
 public:
  Checker(const Config& config, const Places& places)
      : config_(config), places_(places), known_(known_columns(config.data)) {
    for (const Table& table : config.tables) {
      tables_.emplace(table.name, &table);
    }
    if (known_.has_value()) {
      categorical_.insert(known_->categorical.begin(), known_->categorical.end());
    }
  }

  void run() {
    check_names();
    check_data();
    check_dense_features();
    check_sparse_features();
    check_tasks();
    check_tables();
    check_model();
    check_schedule();
    check_run();
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(const std::string& path,
                           fmt::format_string<Args...> format,
                           Args&&... args) const {
    throw Error(ErrorCode::kConfig, fmt::format("{}{}: {}", where_of(places_, path), path,
                                                fmt::format(format, std::forward<Args>(args)...)));
  }

  template <typename T>
  void check_list_names(const std::string& list, const std::vector<T>& entries) const {
    std::unordered_set<std::string> seen;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::string& name = entries[i].name;
      const std::string path = entry_path(list, name, i);
      if (name.empty()) {
        refuse(path, "has no name; add 'name: ...'");
      }
      if (!is_name(name)) {
        refuse(path,
               "'{}' cannot be a name: use letters, digits, '_' and '-', not digits alone, at most "
               "128",
               name);
      }
      if (!seen.insert(name).second) {
        refuse(path, "the name '{}' is taken by an earlier entry of {}", name, list);
      }
    }
  }

  void check_names() const {
    check_list_names("data.synthetic.columns", config_.data.synthetic.columns);
    check_list_names("dense_features", config_.dense_features);
    check_list_names("sparse_features", config_.sparse_features);
    check_list_names("tasks", config_.tasks);
    check_list_names("tables", config_.tables);
  }

  // ---- data --------------------------------------------------------------------------------

  void check_data() const {
    const DataConfig& data = config_.data;
    switch (data.format) {
      case DataFormat::kSynthetic:
        return check_synthetic();
      case DataFormat::kMovielens:
        return check_movielens();
      case DataFormat::kCriteo:
      case DataFormat::kWeft:
        break;
    }
    if (data.path.empty()) {
      refuse("data.path", "names no file; set the files to train on");
    }
    check_no_empty("data.path", data.path);
    check_no_empty("data.eval_path", data.eval_path);
    if (data.eval_fraction > 0 && !data.eval_path.empty()) {
      refuse("data.eval_fraction", "has no effect beside data.eval_path; remove one of them");
    }
    if (data.eval_fraction > 0 && data.format == DataFormat::kCriteo) {
      refuse(
          "data.eval_fraction",
          "format criteo is read in sequence, so its last part is not known; set data.eval_path, "
          "or convert the log with 'weft data convert'");
    }
  }

  void check_no_empty(const std::string& path, const std::vector<std::string>& files) const {
    if (contains(files, "")) {
      refuse(path, "has an empty file name");
    }
  }

  void check_synthetic() const {
    const DataConfig& data = config_.data;
    for (std::size_t i = 0; i < data.synthetic.columns.size(); ++i) {
      const SyntheticColumn& column = data.synthetic.columns[i];
      const std::string path = entry_path("data.synthetic.columns", column.name, i);
      if (column.min_length > column.max_length) {
        refuse(path + ".min_length", "{} is more than max_length {}; raise max_length",
               column.min_length, column.max_length);
      }
    }
    if (data.eval_fraction > 0) {
      refuse("data.eval_fraction",
             "format synthetic generates its own evaluation set; set data.synthetic.eval_samples");
    }
    if (!data.path.empty() || !data.eval_path.empty()) {
      log_warning("data.path and data.eval_path are not read by format synthetic");
    }
  }

  void check_movielens() const {
    const DataConfig& data = config_.data;
    if (data.path.size() != 1 || data.path[0].empty()) {
      refuse("data.path",
             "format movielens takes one folder, that of ratings.csv and movies.csv; {} are set",
             data.path.size());
    }
    if (!data.eval_path.empty() || data.eval_fraction > 0) {
      refuse(data.eval_path.empty() ? "data.eval_fraction" : "data.eval_path",
             "format movielens always evaluates on its last tenth by time; remove this key");
    }
  }

  void check_column(const std::string& path,
                    const std::string& column,
                    const std::vector<std::string>& known,
                    std::string_view kind) const {
    if (!contains(known, column)) {
      refuse(path, "the data have no {} column '{}'; {}", kind, column, suggestion(column, known));
    }
  }

  // ---- features ----------------------------------------------------------------------------

  void check_dense_features() const {
    for (const DenseFeature& feature : config_.dense_features) {
      const std::string path = "dense_features." + feature.name;
      if (known_.has_value()) {
        check_column(path + ".column", feature.column, known_->dense, "dense");
      }
      if (feature.transform != DenseTransform::kStandard &&
          (feature.mean != 0.0 || feature.scale != 1.0)) {
        refuse(path, "mean and scale are those of transform standard; set it or remove them");
      }
    }
  }

  void check_sparse_features() const {
    if (config_.sparse_features.empty() && config_.dense_features.empty()) {
      refuse("sparse_features", "a model needs at least one feature");
    }
    for (const SparseFeature& feature : config_.sparse_features) {
      const std::string path = "sparse_features." + feature.name;
      if (find_table(feature.table) == nullptr) {
        refuse(path + ".table", "there is no table '{}' for this feature; {}", feature.table,
               config_.tables.empty() ? "add it under tables"
                                      : suggestion(feature.table, table_names()));
      }
      if (known_.has_value() && !categorical_.contains(feature.column)) {
        check_column(path + ".column", feature.column, known_->categorical, "categorical");
      }
      check_mapping(feature, path);
      check_pooling(feature, path);
    }
  }

  void check_mapping(const SparseFeature& feature, const std::string& path) const {
    if (feature.min_count > 1 && feature.mapping != IdMapping::kVocabulary) {
      refuse(path + ".min_count", "counts ids of mapping vocabulary; set that or remove this key");
    }
    if (!feature.salt.empty() && feature.mapping != IdMapping::kHash) {
      refuse(path + ".salt", "belongs to mapping hash; set that or remove this key");
    }
  }

  void check_pooling(const SparseFeature& feature, const std::string& path) const {
    if (feature.weighted && feature.pooling != Pooling::kSum) {
      refuse(path + ".weighted",
             "per-id weights go with pooling sum only; a mean or a sequence with weights is not "
             "defined here");
    }
    if (feature.weighted && known_.has_value() && !contains(known_->weighted, feature.column)) {
      refuse(path + ".weighted", "the ids of column '{}' carry no weights", feature.column);
    }
    if (feature.pooling != Pooling::kNone) {
      if (!feature.target.empty()) {
        refuse(path + ".target", "is for sequences; set 'pooling: none' or remove this key");
      }
      return;
    }
    if (!feature.target.empty()) {
      check_target(feature, path + ".target");
    } else if (config_.model.sequence == SequencePooling::kAttention) {
      refuse(path,
             "a sequence needs 'target', the pooled feature that it is attended with (or set "
             "'model.sequence: mean')");
    }
  }

  void check_target(const SparseFeature& feature, const std::string& path) const {
    std::vector<std::string> names;
    const SparseFeature* target = nullptr;
    for (const SparseFeature& other : config_.sparse_features) {
      names.push_back(other.name);
      target = other.name == feature.target ? &other : target;
    }
    if (target == nullptr) {
      refuse(path, "there is no sparse feature '{}'; {}", feature.target,
             suggestion(feature.target, names));
    }
    if (target->pooling == Pooling::kNone) {
      refuse(path, "'{}' is a sequence itself; a target must be pooled (sum or mean)",
             feature.target);
    }
    const Table* own = find_table(feature.table);
    const Table* other = find_table(target->table);
    if (own != nullptr && other != nullptr && own->embedding_dim != other->embedding_dim) {
      refuse(path,
             "'{}' has embedding_dim {} (table {}), the sequence has {} (table {}); they must be "
             "equal",
             feature.target, other->embedding_dim, other->name, own->embedding_dim, own->name);
    }
  }

  void check_tasks() const {
    if (config_.tasks.empty()) {
      refuse("tasks", "at least one label is needed");
    }
    for (const Task& task : config_.tasks) {
      const std::string path = "tasks." + task.name;
      if (task.column.empty()) {
        refuse(path + ".column", "names no column");
      }
      if (!known_.has_value()) {
        continue;
      }
      check_column(path + ".column", task.column, known_->labels, "label");
      if (!task.weight_column.empty()) {
        std::vector<std::string> columns = known_->dense;
        columns.insert(columns.end(), known_->sample_weights.begin(), known_->sample_weights.end());
        check_column(path + ".weight_column", task.weight_column, columns, "numeric");
      }
    }
  }

  // ---- tables ------------------------------------------------------------------------------

  [[nodiscard]] const Table* find_table(const std::string& name) const {
    const auto found = tables_.find(name);
    return found == tables_.end() ? nullptr : found->second;
  }

  [[nodiscard]] std::vector<std::string> table_names() const {
    std::vector<std::string> names;
    for (const Table& table : config_.tables) {
      names.push_back(table.name);
    }
    return names;
  }

  void check_tables() const {
    std::unordered_set<std::string> read;
    for (const SparseFeature& feature : config_.sparse_features) {
      read.insert(feature.table);
    }
    for (const Table& table : config_.tables) {
      const std::string path = "tables." + table.name;
      check_placement(table, path);
      check_optimizer(table.optimizer, path + ".optimizer");
      if (!read.contains(table.name)) {
        log_warning("{}tables.{}: no feature reads this table", where_of(places_, path),
                    table.name);
      }
    }
    check_optimizer(config_.sparse_optimizer, "sparse_optimizer");
  }

  /// Keys of tables whose rows are cut.
  void check_cut_rows(const Table& table, const std::string& path) const {
    if (table.sharding == Sharding::kRowWise || table.sharding == Sharding::kTableRowWise ||
        table.sharding == Sharding::kGridShard) {
      return;
    }
    constexpr const char* kGoesWith =
        "goes with sharding row_wise, table_row_wise or grid_shard; set one of them or remove this "
        "key";
    if (table.row_split != RowSplit::kRange) {
      refuse(path + ".row_split", "{}", kGoesWith);
    }
    if (table.pooled_at == PooledAt::kSample && table.sharding != Sharding::kAuto &&
        table.hot_rows == 0) {
      refuse(path + ".pooled_at", "{}", kGoesWith);
    }
  }

  void check_hot_rows(const Table& table, const std::string& path) const {
    if (table.hot_rows == 0) {
      return;
    }
    if (table.hot_rows >= table.num_embeddings) {
      refuse(path,
             "{} hot rows leave none of the table's {} rows for its shards; set fewer, or sharding "
             "data_parallel instead of this key",
             table.hot_rows, table.num_embeddings);
    }
    if (table.sharding == Sharding::kDataParallel ||
        (table.allow.size() == 1 && table.allow.front() == "data_parallel")) {
      refuse(path,
             "data_parallel has all rows on every rank; set another sharding or remove this key");
    }
    const SparseFeature* first = nullptr;  // that reads it
    for (const SparseFeature& feature : config_.sparse_features) {
      if (feature.table != table.name) {
        continue;
      }
      first = first == nullptr ? &feature : first;
      if ((feature.mapping == IdMapping::kVocabulary) !=
          (first->mapping == IdMapping::kVocabulary)) {
        refuse(path,
               "feature {} numbers rows by a vocabulary and feature {} does not, so nobody counts "
               "both; map both alike or remove this key",
               feature.mapping == IdMapping::kVocabulary ? feature.name : first->name,
               feature.mapping == IdMapping::kVocabulary ? first->name : feature.name);
      }
    }
  }

  void check_placement(const Table& table, const std::string& path) const {
    if (table.rank >= 0 && table.sharding != Sharding::kTableWise &&
        table.sharding != Sharding::kAuto) {
      refuse(path + ".rank",
             "one owner goes with sharding table_wise; set that or remove this key");
    }
    check_host(table, path + ".host");
    check_allowed(table, path + ".allow");
    check_hot_rows(table, path + ".hot_rows");
    check_cut_rows(table, path);
    check_groups(table, path + ".groups");
    check_memory(table, path + ".memory");
    if (table.column_shards > 0 && table.sharding != Sharding::kColumnWise &&
        table.sharding != Sharding::kTableColumnWise && table.sharding != Sharding::kGridShard) {
      refuse(path + ".column_shards",
             "goes with sharding column_wise, table_column_wise or grid_shard; set one of them or "
             "remove this key");
    }
    const std::int64_t most = most_column_shards(config_.codecs, table);
    if (table.column_shards > most) {
      refuse(
          path + ".column_shards",
          "{} shards are too many: columns are cut at multiples of {}{}, so embedding_dim {} has "
          "at most {}",
          table.column_shards, column_cut(config_.codecs),
          column_cut(config_.codecs) > kColumnBlock ? " (of 16 and of codecs.group_size)" : "",
          table.embedding_dim, most);
    }
  }

  void check_groups(const Table& table, const std::string& path) const {
    if (table.groups == 0) {
      return;
    }
    const std::int64_t all = config_.mesh.groups;
    if (all == 0) {
      refuse(path,
             "{} groups of a mesh whose number is left to a search (mesh.groups: 0); set "
             "mesh.groups, or 0 here",
             table.groups);
    }
    if (all % table.groups != 0) {
      refuse(path, "{} groups do not divide the {} of mesh.groups; set {}, or 0 for all",
             table.groups, all, nearest_divisors(table.groups, all));
    }
    if (table.sharding == Sharding::kDataParallel ||
        (table.allow.size() == 1 && table.allow.front() == "data_parallel")) {
      refuse(path, "data_parallel has all rows on every rank of every group; remove this key");
    }
  }

  void check_memory(const Table& table, const std::string& path) const {
    const TableMemory& memory = table.memory;
    if (memory.ways != 8 && memory.ways != 32) {
      refuse(path + ".ways", "a set of the cache has 8 or 32 slots, not {}", memory.ways);
    }
    if (memory.tier == MemoryTier::kDense) {
      return;
    }
    if (memory.tier == MemoryTier::kSsd && config_.tiers.directories.empty()) {
      refuse(path + ".tier", "ssd needs a folder for rows; set tiers.directories");
    }
  }

  void check_allowed(const Table& table, const std::string& path) const {
    const std::vector<std::string> schemes(kAllowable.begin(), kAllowable.end());
    for (const std::string& scheme : table.allow) {
      if (!contains(schemes, scheme)) {
        refuse(path, "a search does not choose '{}'; {}", scheme, suggestion(scheme, schemes));
      }
    }
    if (!table.allow.empty() && table.sharding != Sharding::kAuto) {
      refuse(path, "goes with sharding auto; set that or remove this key");
    }
    if (!table.allow.empty() && (table.rank >= 0 || table.host >= 0)) {
      refuse(path,
             "the {} is given, and with it the scheme, table_wise; remove one of the two, or set "
             "sharding",
             table.rank >= 0 ? "rank" : "host");
    }
  }

  void check_host(const Table& table, const std::string& path) const {
    const bool one_host =
        table.sharding == Sharding::kAuto || table.sharding == Sharding::kTableWise ||
        table.sharding == Sharding::kTableRowWise || table.sharding == Sharding::kTableColumnWise;
    if (table.host >= 0 && !one_host) {
      refuse(path,
             "one host goes with sharding table_wise, table_row_wise or table_column_wise; set one "
             "of them or remove this key");
    }
    if (table.host >= 0 && table.rank >= 0) {
      refuse(path, "the rank is given, and with it the host; remove one of the two");
    }
  }

  void check_optimizer(const SparseOptimizer& optimizer, const std::string& path) const {
    if (optimizer.weight_decay > 0 && optimizer.weight_decay_mode == WeightDecayMode::kNone) {
      refuse(path + ".weight_decay",
             "{} has no effect with weight_decay_mode none; set l2 or "
             "decoupled",
             optimizer.weight_decay);
    }
  }

  // ---- model and run -----------------------------------------------------------------------

  void check_model() const {
    const Model& model = config_.model;
    if (config_.dense_features.empty() && !model.bottom_mlp.empty()) {
      refuse("model.bottom_mlp", "there are no dense features for it; remove it or declare some");
    }
    if (model.type == ModelKind::kDcnv2) {
      return;
    }
    const std::int64_t dim = interaction_dim();
    check_vectors(dim);
    if (!model.bottom_mlp.empty() && dim > 0 && model.bottom_mlp.back() != dim) {
      refuse("model.bottom_mlp",
             "ends with {}, but the vectors it meets have {} values; end it with {}",
             model.bottom_mlp.back(), dim, dim);
    }
  }

  /// What the interaction needs to have something to do.
  void check_vectors(std::int64_t dim) const {
    const bool dlrm = config_.model.type == ModelKind::kDlrm;
    if (!dlrm && config_.sparse_features.empty()) {
      refuse("sparse_features", "a deepfm model needs at least one");
    }
    if (dlrm && !config_.dense_features.empty() && config_.model.bottom_mlp.empty()) {
      refuse(
          "model.bottom_mlp",
          "the dense features meet the embeddings as one vector; end the MLP with its {} values, "
          "such as [64, {}]",
          dim, dim);
    }
    if (dlrm && config_.sparse_features.size() + (config_.dense_features.empty() ? 0 : 1) < 2) {
      refuse("model.type",
             "dlrm needs two vectors to interact (the dense features make one); declare more "
             "features");
    }
  }

  /// The dimension of all feature vectors in the interaction, 0 where there are none.
  [[nodiscard]] std::int64_t interaction_dim() const {
    if (config_.model.projection_dim > 0) {
      return config_.model.projection_dim;
    }
    const Table* first = nullptr;
    for (const SparseFeature& feature : config_.sparse_features) {
      const Table* table = find_table(feature.table);
      if (first == nullptr) {
        first = table;
      } else if (table->embedding_dim != first->embedding_dim) {
        refuse(
            "tables." + table->name + ".embedding_dim",
            "table {} has {} values per row and table {} has {}; a {} model needs one dimension: "
            "set model.projection_dim to project the others to it",
            table->name, table->embedding_dim, first->name, first->embedding_dim,
            config_.model.type == ModelKind::kDlrm ? "dlrm" : "deepfm");
      }
    }
    return first == nullptr ? 0 : first->embedding_dim;
  }

  void check_schedule() const {
    const Schedule& schedule = config_.schedule;
    if (schedule.type == ScheduleKind::kPolynomial && schedule.decay_steps == 0) {
      refuse("schedule.decay_steps", "a polynomial decay needs its length in steps");
    }
    if (schedule.type == ScheduleKind::kConstant &&
        (schedule.decay_steps > 0 || schedule.decay_start > 0)) {
      refuse(schedule.decay_steps > 0 ? "schedule.decay_steps" : "schedule.decay_start",
             "has no effect with type constant; set 'type: polynomial' or remove it");
    }
    if (schedule.type == ScheduleKind::kPolynomial &&
        schedule.decay_start < schedule.warmup_steps) {
      refuse("schedule.decay_start", "{} lies inside the warm-up of {} steps", schedule.decay_start,
             schedule.warmup_steps);
    }
  }

  [[nodiscard]] bool has_eval_data() const {
    const DataConfig& data = config_.data;
    switch (data.format) {
      case DataFormat::kSynthetic:
        return data.synthetic.eval_samples > 0;
      case DataFormat::kMovielens:
        return true;
      case DataFormat::kCriteo:
      case DataFormat::kWeft:
        break;
    }
    return !data.eval_path.empty() || data.eval_fraction > 0;
  }

  void check_mesh() const {
    const Mesh& mesh = config_.mesh;
    if (mesh.moment_scale > 0.0 && mesh.moment_scale < 1.0) {
      refuse("mesh.moment_scale",
             "{} would divide the learning rate of rows away; set 1 for none, 0 for the number of "
             "groups, or more than 1",
             mesh.moment_scale);
    }
    if (mesh.moment_scale > 1.0 && !mesh.may_average()) {
      refuse("mesh.moment_scale",
             "{} is for replicas that are averaged, and with {} there are none; set 0 or remove it",
             mesh.moment_scale, mesh.groups == 1 ? "groups 1" : "sync gradients");
    }
    if (mesh.sync == SyncForm::kGradients && mesh.sync_every > 1) {
      refuse("mesh.sync_every", "{} with sync gradients, which never lets replicas part; set 1",
             mesh.sync_every);
    }
    const CodecFormat format = config_.codecs.sync;
    if (format != CodecFormat::kFp32 && !mesh.averages()) {
      const std::string_view why = mesh.sync == SyncForm::kGradients ? "sync gradients there are"
                                   : mesh.groups == 0                ? "groups 0 there may be"
                                                                     : "groups 1 there are";
      refuse("codecs.sync",
             "{} is for replicas that are averaged, and with {} none; set fp32 or remove it, or "
             "train with mesh.groups of 2 or more and mesh.sync dense or touched",
             to_string(format), why);
    }
    const std::int64_t every = config_.train.eval_every;
    if (!mesh.syncs_after(every)) {
      const std::int64_t below = every / mesh.sync_every * mesh.sync_every;
      refuse("train.eval_every",
             "{} is no multiple of the {} steps of mesh.sync_every, and replicas are equal at "
             "syncs only; set {}{}",
             every, mesh.sync_every, below == 0 ? "" : fmt::format("{} or ", below),
             below + mesh.sync_every);
    }
  }

  void check_run() const {
    if (config_.train.eval_every > 0 && !has_eval_data()) {
      refuse("train.eval_every", "there is no evaluation data; set {}, or 0",
             config_.data.format == DataFormat::kSynthetic ? "data.synthetic.eval_samples"
                                                           : "data.eval_path");
    }
    check_mesh();
    if (config_.pipeline.cluster_parts == 1) {
      refuse("pipeline.cluster_parts",
             "a run of 1 part leaves every sample in its part; set 2 or more, or 0");
    }
    const std::vector<std::string> stages(kSkippable.begin(), kSkippable.end());
    for (const std::string& stage : config_.debug.skip) {
      if (!contains(stages, stage)) {
        refuse("debug.skip", "no step has a stage '{}'; {}", stage, suggestion(stage, stages));
      }
    }
  }

  const Config& config_;
  const Places& places_;
  std::optional<KnownColumns> known_;
  std::unordered_map<std::string, const Table*> tables_;
  std::unordered_set<std::string> categorical_;  ///< as known_ has them
};

}  // namespace

void fill_defaults(Config& config) {
  for (DenseFeature& feature : config.dense_features) {
    if (feature.column.empty()) {
      feature.column = feature.name;
    }
  }
  for (SparseFeature& feature : config.sparse_features) {
    if (feature.column.empty()) {
      feature.column = feature.name;
    }
    if (feature.table.empty()) {
      feature.table = feature.name;
    }
    if (feature.salt.empty() && feature.mapping == IdMapping::kHash) {
      feature.salt = feature.table;
    }
  }
}

void validate_at(const Config& config, const Places& places) {
  Config complete = config;
  fill_defaults(complete);
  check_bounds([&](Visitor& visitor) { visit(visitor, complete); }, places);
  Checker(complete, places).run();
}

void validate(const Config& config) {
  validate_at(config, {});
}

bool has_tables_on_disks(const Config& config) {
  return std::any_of(config.tables.begin(), config.tables.end(),
                     [](const Table& table) { return table.memory.tier == MemoryTier::kSsd; });
}

std::int64_t table_index(const Config& config, const SparseFeature& feature) {
  const std::string& name = feature.table.empty() ? feature.name : feature.table;
  for (std::size_t i = 0; i < config.tables.size(); ++i) {
    if (config.tables[i].name == name) {
      return static_cast<std::int64_t>(i);
    }
  }
  fail(ErrorCode::kConfig, "sparse_features.{}.table: there is no table '{}'", feature.name, name);
}

}  // namespace weft::spec
