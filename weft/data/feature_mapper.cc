#include "weft/data/feature_mapper.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/text.h"

namespace weft::data {
namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

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

/// The transformed value of a present entry.
float transform(const spec::DenseFeature& feature, float raw) {
  const auto x = static_cast<double>(raw);
  switch (feature.transform) {
    case spec::DenseTransform::kNone:
      break;
    case spec::DenseTransform::kLog:
      return x > 0 ? static_cast<float>(std::log1p(x)) : 0.0F;
    case spec::DenseTransform::kStandard:
      return static_cast<float>((x - feature.mean) / feature.scale);
  }
  return raw;
}

}  // namespace

std::uint64_t hash_salt(std::string_view table) {
  return hash_string(table);
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
  if (f.weighted && !schema.categorical[index(feature.column)].weighted) {
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
  feature.salt = hash_salt(feature.table);
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
  sparse.values.clear();
  sparse.weights.clear();
  sparse.offsets.assign(1, 0);
  for (std::size_t f = 0; f < sparse_.size(); ++f) {
    const Sparse& feature = sparse_[f];
    const RawBlock::Bags& bags = block.categorical[index(feature.column)];
    const std::size_t first = sparse.values.size();
    for (std::int64_t s = 0; s < block.size; ++s) {
      const std::int64_t begin = bags.offsets[index(s)];
      std::int64_t end = bags.offsets[index(s + 1)];
      if (feature.max_length > 0) {
        end = std::min(end, begin + feature.max_length);
      }
      sparse.values.insert(sparse.values.end(), bags.ids.begin() + begin, bags.ids.begin() + end);
      if (feature.weighted) {
        sparse.weights.insert(sparse.weights.end(), bags.weights.begin() + begin,
                              bags.weights.begin() + end);
      }
      sparse.offsets.push_back(static_cast<std::int64_t>(sparse.values.size()));
    }
    if (weighted_) {
      sparse.weights.resize(sparse.values.size(), 1.0F);
      check_weights(feature, first, block, sparse);
    }
    map_ids(feature, first, block, sparse);
  }
}

void FeatureMapper::map_ids(const Sparse& feature,
                            std::size_t first,
                            const RawBlock& block,
                            KeyedJaggedTensor& sparse) const {
  const std::span<std::int64_t> ids = std::span(sparse.values).subspan(first);
  const auto rows = static_cast<std::uint64_t>(feature.rows);
  switch (feature.mapping) {
    case spec::IdMapping::kHash:
      for (std::int64_t& id : ids) {
        id = hash_row(id, feature.salt, feature.rows);
      }
      break;
    case spec::IdMapping::kModulo:
      for (std::int64_t& id : ids) {
        id = static_cast<std::int64_t>(static_cast<std::uint64_t>(id) % rows);
      }
      break;
    case spec::IdMapping::kIdentity:
      for (const std::int64_t& id : ids) {
        if (static_cast<std::uint64_t>(id) >= rows) {
          const auto at = first + static_cast<std::size_t>(&id - ids.data());
          fail(ErrorCode::kData,
               "{}, sample {}: feature '{}' holds id {}, but table '{}' has rows [0, {}) and the "
               "mapping is identity; enlarge num_embeddings or map by hash or vocabulary",
               source_name_, sample_of(at, block, sparse), feature.name, id, feature.table,
               feature.rows);
        }
      }
      break;
    case spec::IdMapping::kVocabulary:
      for (std::int64_t& id : ids) {
        id = feature.vocabulary->row(id);
      }
      break;
  }
}

std::int64_t FeatureMapper::sample_of(std::size_t value,
                                      const RawBlock& block,
                                      const KeyedJaggedTensor& sparse) {
  const auto next = std::upper_bound(sparse.offsets.begin(), sparse.offsets.end(),
                                     static_cast<std::int64_t>(value));
  const std::int64_t bag = next - sparse.offsets.begin() - 1;
  return block.sample_ids[index(bag % block.size)];
}

void FeatureMapper::check_weights(const Sparse& feature,
                                  std::size_t first,
                                  const RawBlock& block,
                                  const KeyedJaggedTensor& sparse) const {
  for (std::size_t i = first; i < sparse.weights.size(); ++i) {
    if (!std::isfinite(sparse.weights[i])) {
      fail(ErrorCode::kData,
           "{}, sample {}: feature '{}' has an id of weight {}; it must be finite", source_name_,
           sample_of(i, block, sparse), feature.name, sparse.weights[i]);
    }
  }
}

void FeatureMapper::map_dense(const RawBlock& block, Batch& out) const {
  const std::size_t width = dense_.size();
  out.dense.resize(index(block.size) * width);
  for (std::size_t d = 0; d < width; ++d) {
    const spec::DenseFeature& feature = dense_[d].feature;
    const std::vector<float>& column = block.dense[index(dense_[d].column)];
    const auto missing = static_cast<float>(feature.missing);
    for (std::size_t s = 0; s < column.size(); ++s) {
      const float raw = column[s];
      const float value = std::isnan(raw) ? missing : transform(feature, raw);
      if (!std::isfinite(value)) {
        fail(ErrorCode::kData,
             "{}, sample {}: dense feature '{}' is {} (from {}); it must be finite or missing",
             source_name_, block.sample_ids[s], feature.name, value, raw);
      }
      out.dense[s * width + d] = value;
    }
  }
}

void FeatureMapper::map_tasks(const RawBlock& block, Batch& out) const {
  const std::size_t width = tasks_.size();
  const auto column_of = [&block](const FloatColumn& column) -> const std::vector<float>& {
    return column.label >= 0 ? block.labels[index(column.label)] : block.dense[index(column.dense)];
  };
  out.labels.resize(index(block.size) * width);
  out.label_weights.assign(index(block.size) * width, 1.0F);
  for (std::size_t t = 0; t < width; ++t) {
    const Task& task = tasks_[t];
    const std::vector<float>& labels = column_of(task.label);
    for (std::size_t s = 0; s < labels.size(); ++s) {
      if (labels[s] != 0.0F && labels[s] != 1.0F) {
        fail(ErrorCode::kData,
             "{}, sample {}: the label of task '{}' (column '{}') is {}; a label "
             "is 0 or 1",
             source_name_, block.sample_ids[s], task.name, task.label.name, labels[s]);
      }
      out.labels[s * width + t] = labels[s];
    }
    if (task.weight.name.empty()) {
      continue;
    }
    const std::vector<float>& weights = column_of(task.weight);
    for (std::size_t s = 0; s < weights.size(); ++s) {
      if (!std::isfinite(weights[s]) || weights[s] < 0.0F) {
        fail(ErrorCode::kData,
             "{}, sample {}: the weight of task '{}' (column '{}') is {}; it must be finite and "
             "not negative",
             source_name_, block.sample_ids[s], task.name, task.weight.name, weights[s]);
      }
      out.label_weights[s * width + t] = weights[s];
    }
  }
}

}  // namespace weft::data
