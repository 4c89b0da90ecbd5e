/// How many ids of hashed features share a row of their table, which a model cannot tell apart.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/data/id_counter.h"
#include "weft/data/source.h"
#include "weft/spec/config.h"

namespace weft::data {

/// Above this share of a table's ids that share a row there is a warning.
inline constexpr double kManyShared = 0.2;

/// A table that features of mapping hash read.
struct HashedTable {
  std::string table;
  std::int64_t rows = 0;
  std::int64_t distinct = 0;  ///< ids, those of features with equal salts counted once
  bool exact = true;    ///< otherwise `distinct` is an estimate and `shared` is expected of it
  double shared = 0.0;  ///< share of the distinct ids whose row another one has too
};

/// The expected share of `distinct` ids, hashed to `rows` rows, that share one.
double expected_shared(std::int64_t distinct, std::int64_t rows);

/// Of each table of the configuration with hashed features whose columns the data have; ids after
/// max_length count too. `counter` gives the ids of a column of the schema. Memory: 24 bytes per
/// distinct id of one table at a time. Cost: they are sorted.
std::vector<HashedTable> hashed_tables(
    const spec::Config& config,
    const Schema& schema,
    const std::function<const IdCounter&(std::int64_t column)>& counter);

/// What to say where more than kManyShared share a row, and what helps; empty otherwise.
std::string warning_of(const HashedTable& table);

}  // namespace weft::data
