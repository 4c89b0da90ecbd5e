/// Configurations as YAML. The struct of config.h is the schema: keys, types, ranges, meanings and
/// defaults are stated once, in describe_data.cc and describe_job.cc. Reading, writing, checking
/// and documentation all walk that description.
///
/// Every error is Error(kConfig) and reads "FILE:LINE:COLUMN: path.of.the.key: what is wrong and
/// what to do"; a value that came from an override has "--set path=value" in place of FILE:LINE.
/// No input crashes: size, nesting and the number of entries are limited.
/// docs/configuration.md shows how entries are expanded and overridden.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "weft/base/error.h"
#include "weft/spec/config.h"

namespace weft::spec {

/// Who has written a configuration. That decides about keys and words that are gone
/// (docs/adr/0013-knobs-that-are-gone.md).
enum class WrittenBy {
  kUser,          ///< each is refused
  kEarlierBuild,  ///< which wrote all keys: read over where it says what all jobs have now
};

/// A key or word that is gone, of an earlier build, with which no job can go on any more.
class GoneKeyError : public Error {
 public:
  using Error::Error;
};

/// Reads a file, expands its entries, applies the overrides ("path=value") in order, fills in the
/// defaults and validates.
Config load_config(const std::string& path,
                   std::span<const std::string> overrides = {},
                   WrittenBy writer = WrittenBy::kUser);

/// The same from text; `name` stands for the file in messages.
Config parse_config(const std::string& text,
                    const std::string& name,
                    std::span<const std::string> overrides = {},
                    WrittenBy writer = WrittenBy::kUser);

/// Every value, one spelling: parse_config(to_yaml(c)) gives c again, and equal configurations give
/// equal text.
std::string to_yaml(const Config& config);

/// As to_yaml, with the meaning, unit, range and default of every key as a comment above it (in a
/// list, above the keys of its first entry).
std::string to_commented_yaml(const Config& config);

/// Checks every range and everything that must agree between keys, as if fill_defaults() had run.
/// Warns through the log of tables no feature reads.
void validate(const Config& config);

/// Sets what is left empty and means "as another key": column, table and salt of features, column
/// of dense features.
void fill_defaults(Config& config);

/// Hash of what decides the weights after a given step, apart from what is compared by itself: the
/// plan (sharding, parts), the agreed target, and the fingerprint of the data. Left out are
/// therefore data.path, eval data, placement, numerics, train.* except on_non_finite, and
/// read_ahead. Before step 0 ranks must agree on all of to_yaml(), since they act in step.
std::uint64_t config_hash(const Config& config);

}  // namespace weft::spec
