/// FeatureMapper turns raw samples into what the model reads: RawBlock -> Batch.
///
/// Ids      hash:       row = mix64(id ^ hash_string(salt)) mod num_embeddings, mix64 and
///                      hash_string as in base/hash.h. Without a `salt` of the feature's own it is
///                      the name of the table, so that features which share a table map equal ids
///                      to equal rows; features of one table with other salts map them apart.
///          modulo:     row = id mod num_embeddings, id as unsigned.
///          identity:   row = id; outside [0, num_embeddings) is an error.
///          vocabulary: row by frequency rank, 0 for rare and unknown ids (vocabulary.h).
///          A missing category is an empty bag. max_length keeps the first ids.
/// Dense    log: 0 for x <= 0, else ln(1 + x), in fp64, rounded once. standard: (x - mean) / scale.
///          A missing value becomes `missing`, after the transform; any other non-finite is an
///          error.
/// Labels   exactly 0 or 1; weights finite and >= 0. A task's columns may be labels or dense.
/// Errors   Error(kData) naming source, sample, feature, value and what to do; Error(kConfig) from
///          the constructor for a feature or task whose column the source has not.
/// Cost     one pass over ids and values; no allocation once the batch has grown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/batch.h"
#include "weft/data/source.h"
#include "weft/data/vocabulary.h"
#include "weft/spec/config.h"

namespace weft::data {

/// The number that kHash mixes into ids for the salt `text`: a feature's own, or its table's name.
std::uint64_t hash_salt(std::string_view text);

/// The row of an id under kHash.
std::int64_t hash_row(std::int64_t id, std::uint64_t salt, std::int64_t num_embeddings);

class FeatureMapper {
 public:
  /// Keeps a reference to `vocabularies`. `source_name` is for messages (Source::describe()).
  FeatureMapper(const spec::Config& config,
                const Schema& schema,
                const Vocabularies& vocabularies,
                std::string source_name);

  /// The columns it reads, for Source::select().
  [[nodiscard]] const std::vector<std::string>& columns() const { return columns_; }

  /// Fills sample_ids, sparse, dense, labels and label_weights of `out`.
  void map(const RawBlock& block, Batch& out) const;

 private:
  struct Sparse {
    std::string name;
    std::int64_t column = 0;
    spec::IdMapping mapping = spec::IdMapping::kHash;
    bool weighted = false;
    std::int64_t max_length = 0;
    std::string table;
    std::int64_t rows = 0;
    std::uint64_t salt = 0;
    const Vocabulary* vocabulary = nullptr;
  };

  struct Dense {
    spec::DenseFeature feature;
    std::int64_t column = 0;
  };

  /// A float column: one of the labels, or a dense one.
  struct FloatColumn {
    std::string name;
    std::int64_t label = -1;
    std::int64_t dense = -1;
  };

  /// The part of a KeyedJaggedTensor that one feature fills.
  struct Bags {
    std::span<std::int64_t> offsets;  ///< [samples + 1]; the first is there already
    std::span<std::int64_t> values;   ///< room for all ids of the column
    std::span<float> weights;         ///< as values, or empty
  };

  struct Task {
    std::string name;
    FloatColumn label;
    FloatColumn weight;  ///< no name: weight 1
  };

  void add_sparse(const spec::Config& config,
                  const Schema& schema,
                  const spec::SparseFeature& f,
                  const Vocabularies& vocabularies);
  void map_sparse(const RawBlock& block, Batch& out) const;
  void map_bags(const Sparse& feature, const RawBlock& block, Bags& out) const;
  void map_ids(const Sparse& feature,
               std::span<const std::int64_t> ids,
               std::span<std::int64_t> rows) const;
  void check_identity(const Sparse& feature, const RawBlock& block, const Bags& bags) const;
  void check_weights(const Sparse& feature, const RawBlock& block, const Bags& bags) const;
  void map_dense(const RawBlock& block, Batch& out) const;
  void map_dense_column(std::size_t column, std::span<const float> raw, float* out) const;
  [[noreturn]] void fail_dense(const RawBlock& block, const Batch& out) const;
  [[nodiscard]] float log_of(float raw) const;
  void map_tasks(const RawBlock& block, Batch& out) const;

  std::string source_name_;
  std::vector<std::string> columns_;
  std::vector<Sparse> sparse_;
  std::vector<Dense> dense_;
  std::vector<Task> tasks_;
  std::vector<std::string> keys_;
  std::vector<float> logs_;  ///< ln(1 + i): most logged values are small counts
  bool weighted_ = false;
};

}  // namespace weft::data
