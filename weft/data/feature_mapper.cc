#include "weft/data/feature_mapper.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/text.h"
#include "weft/data/grow.h"
#include "weft/data/modulus.h"

namespace weft::data {
namespace {

std::vector<std::string> categorical_names(const Schema& schema) {
  std::vector<std::string> names;
  for (const Schema::Categorical& column : schema.categorical) {
    names.push_back(column.name);
  }
  return names;
}

std::vector<std::string> float_names(const Schema& schema) {
  std::vector<std::string> names = schema.labels;
  names.insert(names.end(), schema.dense.begin(), schema.dense.end());
  return names;
}

constexpr std::size_t kLogs = 16384;    ///< 64 KiB; nearly all of Criteo's counts are below
constexpr std::size_t kDenseTile = 64;  ///< samples whose dense features stay in the first cache

float exact_log(float raw) {
  return raw > 0 ? static_cast<float>(std::log1p(static_cast<double>(raw))) : 0.0F;
}

bool is_label(float value) {
  return value == 0.0F || value == 1.0F;
}

bool is_weight(float value) {
  return std::isfinite(value) && value >= 0.0F;
}

/// Index of the first value that is not as it should be, values.size() where all are.
template <typename Good>
std::size_t first_bad(const std::vector<float>& values, const Good& good) {
  bool all = true;
  for (const float value : values) {
    all &= good(value);
  }
  return all ? values.size()
             : static_cast<std::size_t>(std::find_if_not(values.begin(), values.end(), good) -
                                        values.begin());
}

/// Id of the sample in whose bag the value at `at` of a feature lies.
std::int64_t sample_of(std::ptrdiff_t at,
                       const RawBlock& block,
                       std::span<const std::int64_t> offsets) {
  const auto next = std::upper_bound(offsets.begin(), offsets.end(), offsets.front() + at);
  return block.sample_ids[static_cast<std::size_t>(next - offsets.begin() - 1)];
}

}  // namespace

std::uint64_t hash_salt(std::string_view text) {
  return hash_string(text);
}

std::int64_t hash_row(std::int64_t id, std::uint64_t salt, std::int64_t num_embeddings) {
  return static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(id) ^ salt) %
                                   static_cast<std::uint64_t>(num_embeddings));
}

FeatureMapper::FeatureMapper(const spec::Config& config,
                             const Schema& schema,
                             const Vocabularies& vocabularies,
                             std::string source_name)
    : source_name_(std::move(source_name)) {
  check_vocabularies(vocabularies, config);
  for (const spec::SparseFeature& feature : config.sparse_features) {
    add_sparse(config, schema, feature, vocabularies);
  }
  for (const spec::DenseFeature& feature : config.dense_features) {
    const std::string& column = feature.column.empty() ? feature.name : feature.column;
    const std::int64_t found = schema.dense_index(column);
    if (found < 0) {
      fail(ErrorCode::kConfig, "dense feature '{}': the data have no dense column '{}'; {}",
           feature.name, column, suggestion(column, schema.dense));
    }
    dense_.push_back({feature, found});
    columns_.push_back(column);
  }
  const auto find_float = [&](const spec::Task& task, const std::string& name) {
    const FloatColumn column = {name, schema.label_index(name), schema.dense_index(name)};
    if (column.label < 0 && column.dense < 0) {
      fail(ErrorCode::kConfig, "task '{}': the data have no label or dense column '{}'; {}",
           task.name, name, suggestion(name, float_names(schema)));
    }
    columns_.push_back(name);
    return column;
  };
  for (std::size_t i = 0; i < kLogs; ++i) {
    logs_.push_back(exact_log(static_cast<float>(i)));
  }
  for (const spec::Task& task : config.tasks) {
    Task& mapped = tasks_.emplace_back();
    mapped.name = task.name;
    mapped.label = find_float(task, task.column);
    if (!task.weight_column.empty()) {
      mapped.weight = find_float(task, task.weight_column);
    }
  }
}

void FeatureMapper::add_sparse(const spec::Config& config,
                               const Schema& schema,
                               const spec::SparseFeature& f,
                               const Vocabularies& vocabularies) {
  Sparse feature;
  feature.name = f.name;
  const std::string& column = f.column.empty() ? f.name : f.column;
  feature.table = f.table.empty() ? f.name : f.table;
  feature.column = schema.categorical_index(column);
  if (feature.column < 0) {
    fail(ErrorCode::kConfig, "feature '{}': the data have no categorical column '{}'; {}", f.name,
         column, suggestion(column, categorical_names(schema)));
  }
  if (f.weighted && !schema.categorical[at(feature.column)].weighted) {
    fail(
        ErrorCode::kConfig,
        "feature '{}' is weighted, but column '{}' of the data has no weights; set weighted: false",
        f.name, column);
  }
  const auto table = std::find_if(config.tables.begin(), config.tables.end(),
                                  [&](const spec::Table& t) { return t.name == feature.table; });
  if (table == config.tables.end() || table->num_embeddings < 1) {
    fail(ErrorCode::kConfig, "feature '{}': there is no table '{}' with rows", f.name,
         feature.table);
  }
  feature.mapping = f.mapping;
  feature.weighted = f.weighted;
  feature.max_length = f.max_length;
  feature.rows = table->num_embeddings;
  feature.salt = hash_salt(f.salt.empty() ? feature.table : f.salt);
  feature.vocabulary = vocabularies.find(feature.table);
  weighted_ = weighted_ || f.weighted;
  columns_.push_back(column);
  keys_.push_back(f.name);
  sparse_.push_back(std::move(feature));
}

void FeatureMapper::map(const RawBlock& block, Batch& out) const {
  out.sample_ids = block.sample_ids;
  map_sparse(block, out);
  map_dense(block, out);
  map_tasks(block, out);
}

void FeatureMapper::map_sparse(const RawBlock& block, Batch& out) const {
  KeyedJaggedTensor& sparse = out.sparse;
  if (sparse.keys != keys_) {
    sparse.keys = keys_;
  }
  sparse.batch = block.size;
  const std::size_t samples = at(block.size);
  std::size_t most = 0;
  for (const Sparse& feature : sparse_) {
    most += block.categorical[at(feature.column)].ids.size();
  }
  sparse.offsets.resize(sparse_.size() * samples + 1);
  resize_with_room(sparse.values, most);
  resize_with_room(sparse.weights, weighted_ ? most : 0);
  sparse.offsets[0] = 0;
  for (std::size_t f = 0; f < sparse_.size(); ++f) {
    const std::span offsets = std::span(sparse.offsets).subspan(f * samples, samples + 1);
    const std::size_t first = at(offsets.front());
    Bags bags{offsets, std::span(sparse.values).subspan(first),
              weighted_ ? std::span(sparse.weights).subspan(first) : std::span<float>()};
    map_bags(sparse_[f], block, bags);
  }
  const std::size_t values = at(sparse.offsets.back());
  sparse.values.resize(values);
  sparse.weights.resize(weighted_ ? values : 0);
}

/// One feature's bags, cut to max_length, with rows instead of ids.
void FeatureMapper::map_bags(const Sparse& feature, const RawBlock& block, Bags& out) const {
  const RawBlock::Bags& bags = block.categorical[at(feature.column)];
  const std::size_t samples = at(block.size);
  const std::int64_t base = out.offsets[0];
  if (feature.max_length == 0) {
    for (std::size_t s = 0; s < samples; ++s) {
      out.offsets[s + 1] = base + bags.offsets[s + 1];
    }
    map_ids(feature, bags.ids, out.values);
    std::copy(bags.weights.begin(), feature.weighted ? bags.weights.end() : bags.weights.begin(),
              out.weights.begin());
  } else {
    for (std::size_t s = 0; s < samples; ++s) {
      const std::size_t begin = at(bags.offsets[s]);
      const std::size_t length =
          at(std::min(bags.offsets[s + 1] - bags.offsets[s], feature.max_length));
      const std::size_t first = at(out.offsets[s] - base);
      map_ids(feature, std::span(bags.ids).subspan(begin, length), out.values.subspan(first));
      if (feature.weighted) {
        std::copy_n(bags.weights.begin() + bags.offsets[s], length,
                    out.weights.begin() + static_cast<std::ptrdiff_t>(first));
      }
      out.offsets[s + 1] = out.offsets[s] + static_cast<std::int64_t>(length);
    }
  }
  const std::size_t values = at(out.offsets[samples] - base);
  out.values = out.values.first(values);
  if (!out.weights.empty()) {
    out.weights = out.weights.first(values);
    if (!feature.weighted) {
      std::fill(out.weights.begin(), out.weights.end(), 1.0F);
    }
    check_weights(feature, block, out);
  }
  if (feature.mapping == spec::IdMapping::kIdentity) {
    check_identity(feature, block, out);
  }
}

void FeatureMapper::map_ids(const Sparse& feature,
                            std::span<const std::int64_t> ids,
                            std::span<std::int64_t> rows) const {
  switch (feature.mapping) {
    case spec::IdMapping::kHash: {
      const Modulus modulus(static_cast<std::uint64_t>(feature.rows));
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::uint64_t hash = mix64(static_cast<std::uint64_t>(ids[i]) ^ feature.salt);
        rows[i] = static_cast<std::int64_t>(modulus(hash));
      }
      break;
    }
    case spec::IdMapping::kModulo: {
      const Modulus modulus(static_cast<std::uint64_t>(feature.rows));
      for (std::size_t i = 0; i < ids.size(); ++i) {
        rows[i] = static_cast<std::int64_t>(modulus(static_cast<std::uint64_t>(ids[i])));
      }
      break;
    }
    case spec::IdMapping::kIdentity:
      std::copy(ids.begin(), ids.end(), rows.begin());
      break;
    case spec::IdMapping::kVocabulary:
      feature.vocabulary->rows_of(ids, rows);
      break;
  }
}

void FeatureMapper::check_identity(const Sparse& feature,
                                   const RawBlock& block,
                                   const Bags& bags) const {
  const auto rows = static_cast<std::uint64_t>(feature.rows);
  const auto bad = std::find_if(bags.values.begin(), bags.values.end(), [rows](std::int64_t id) {
    return static_cast<std::uint64_t>(id) >= rows;
  });
  if (bad != bags.values.end()) {
    fail(ErrorCode::kData,
         "{}, sample {}: feature '{}' holds id {}, but table '{}' has rows [0, {}) and the "
         "mapping is identity; enlarge num_embeddings or map by hash or vocabulary",
         source_name_, sample_of(bad - bags.values.begin(), block, bags.offsets), feature.name,
         *bad, feature.table, feature.rows);
  }
}

void FeatureMapper::check_weights(const Sparse& feature,
                                  const RawBlock& block,
                                  const Bags& bags) const {
  const auto bad = std::find_if(bags.weights.begin(), bags.weights.end(),
                                [](float weight) { return !std::isfinite(weight); });
  if (bad != bags.weights.end()) {
    fail(ErrorCode::kData, "{}, sample {}: feature '{}' has an id of weight {}; it must be finite",
         source_name_, sample_of(bad - bags.weights.begin(), block, bags.offsets), feature.name,
         *bad);
  }
}

void FeatureMapper::map_dense(const RawBlock& block, Batch& out) const {
  const std::size_t width = dense_.size();
  const std::size_t samples = at(block.size);
  out.dense.resize(samples * width);
  bool good = true;
  for (std::size_t first = 0; first < samples; first += kDenseTile) {
    const std::size_t count = std::min(kDenseTile, samples - first);
    float* const tile = out.dense.data() + first * width;
    for (std::size_t d = 0; d < width; ++d) {
      const std::vector<float>& column = block.dense[at(dense_[d].column)];
      map_dense_column(d, std::span(column).subspan(first, count), tile + d);
    }
    for (std::size_t i = 0; i < count * width; ++i) {
      good &= std::isfinite(tile[i]);
    }
  }
  if (!good) {
    fail_dense(block, out);
  }
}

/// `out` has a value every dense_.size() places.
void FeatureMapper::map_dense_column(std::size_t column,
                                     std::span<const float> raw,
                                     float* out) const {
  const spec::DenseFeature& feature = dense_[column].feature;
  const auto missing = static_cast<float>(feature.missing);
  const std::size_t width = dense_.size();
  switch (feature.transform) {
    case spec::DenseTransform::kNone:
      for (std::size_t i = 0; i < raw.size(); ++i) {
        out[i * width] = std::isnan(raw[i]) ? missing : raw[i];
      }
      break;
    case spec::DenseTransform::kLog:
      for (std::size_t i = 0; i < raw.size(); ++i) {
        const float value = log_of(raw[i]);
        out[i * width] = std::isnan(raw[i]) ? missing : value;
      }
      break;
    case spec::DenseTransform::kStandard:
      for (std::size_t i = 0; i < raw.size(); ++i) {
        const double x = raw[i];
        const auto value = static_cast<float>((x - feature.mean) / feature.scale);
        out[i * width] = std::isnan(raw[i]) ? missing : value;
      }
      break;
  }
}

/// 0 for a missing value.
float FeatureMapper::log_of(float raw) const {
  // Without branches but one that is rarely taken: whether a value is missing or zero cannot be
  // foreseen.
  const bool inside = raw > 0.0F && raw < static_cast<float>(kLogs);
  const auto at = static_cast<std::int32_t>(inside ? raw : 0.0F);
  if (raw > 0.0F && static_cast<float>(at) != raw) [[unlikely]] {
    return exact_log(raw);
  }
  return logs_[static_cast<std::size_t>(at)];
}

/// Names the first value that is not finite, in the order of features, then samples.
void FeatureMapper::fail_dense(const RawBlock& block, const Batch& out) const {
  const std::size_t width = dense_.size();
  for (std::size_t d = 0; d < width; ++d) {
    for (std::size_t s = 0; s < at(block.size); ++s) {
      if (!std::isfinite(out.dense[s * width + d])) {
        fail(ErrorCode::kData,
             "{}, sample {}: dense feature '{}' is {} (from {}); it must be finite or missing",
             source_name_, block.sample_ids[s], dense_[d].feature.name, out.dense[s * width + d],
             block.dense[at(dense_[d].column)][s]);
      }
    }
  }
  fail(ErrorCode::kInternal, "a dense feature is not finite, but none was found");
}

void FeatureMapper::map_tasks(const RawBlock& block, Batch& out) const {
  const std::size_t width = tasks_.size();
  const auto column_of = [&block](const FloatColumn& column) -> const std::vector<float>& {
    return column.label >= 0 ? block.labels[at(column.label)] : block.dense[at(column.dense)];
  };
  out.labels.resize(at(block.size) * width);
  out.label_weights.assign(at(block.size) * width, 1.0F);
  for (std::size_t t = 0; t < width; ++t) {
    const Task& task = tasks_[t];
    const std::vector<float>& labels = column_of(task.label);
    if (const std::size_t bad = first_bad(labels, is_label); bad < labels.size()) {
      fail(ErrorCode::kData,
           "{}, sample {}: the label of task '{}' (column '{}') is {}; a label "
           "is 0 or 1",
           source_name_, block.sample_ids[bad], task.name, task.label.name, labels[bad]);
    }
    for (std::size_t s = 0; s < labels.size(); ++s) {
      out.labels[s * width + t] = labels[s];
    }
    if (task.weight.name.empty()) {
      continue;
    }
    const std::vector<float>& weights = column_of(task.weight);
    if (const std::size_t bad = first_bad(weights, is_weight); bad < weights.size()) {
      fail(ErrorCode::kData,
           "{}, sample {}: the weight of task '{}' (column '{}') is {}; it must be finite and "
           "not negative",
           source_name_, block.sample_ids[bad], task.name, task.weight.name, weights[bad]);
    }
    for (std::size_t s = 0; s < weights.size(); ++s) {
      out.label_weights[s * width + t] = weights[s];
    }
  }
}

}  // namespace weft::data
