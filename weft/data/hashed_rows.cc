#include "weft/data/hashed_rows.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/data/feature_mapper.h"

namespace weft::data {
namespace {

/// Columns of the schema by the salt that their ids are hashed with.
std::map<std::string, std::vector<std::int64_t>> columns_by_salt(const spec::Config& config,
                                                                 const Schema& schema,
                                                                 const std::string& table) {
  std::map<std::string, std::vector<std::int64_t>> columns;
  for (const spec::SparseFeature& feature : config.sparse_features) {
    const std::string& own = feature.table.empty() ? feature.name : feature.table;
    const std::int64_t column =
        schema.categorical_index(feature.column.empty() ? feature.name : feature.column);
    if (feature.mapping == spec::IdMapping::kHash && own == table && column >= 0) {
      columns[feature.salt.empty() ? table : feature.salt].push_back(column);
    }
  }
  return columns;
}

void keep_distinct(std::vector<std::int64_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

/// How many of these rows are there more than once.
std::int64_t count_shared(std::vector<std::int64_t>& rows) {
  std::sort(rows.begin(), rows.end());
  std::int64_t shared = 0;
  for (auto first = rows.begin(); first != rows.end();) {
    const auto end = std::upper_bound(first, rows.end(), *first);
    shared += end - first > 1 ? end - first : 0;
    first = end;
  }
  return shared;
}

}  // namespace

double expected_shared(std::int64_t distinct, std::int64_t rows) {
  if (distinct < 2) {
    return 0.0;
  }
  if (rows == 1) {
    return 1.0;
  }
  // 1 - (1 - 1/E)^(n - 1): that none of the others has the row of an id.
  return -std::expm1(static_cast<double>(distinct - 1) *
                     std::log1p(-1.0 / static_cast<double>(rows)));
}

std::vector<HashedTable> hashed_tables(
    const spec::Config& config,
    const Schema& schema,
    const std::function<const IdCounter&(std::int64_t column)>& counter) {
  std::vector<HashedTable> tables;
  for (const spec::Table& table : config.tables) {
    const auto salts = columns_by_salt(config, schema, table.name);
    if (salts.empty()) {
      continue;
    }
    HashedTable& hashed =
        tables.emplace_back(HashedTable{.table = table.name, .rows = table.num_embeddings});
    std::vector<std::int64_t> rows;
    for (const auto& [salt, columns] : salts) {
      std::vector<std::int64_t> ids;
      std::int64_t most = 0;  // of one column: no fewer are all columns' together
      for (const std::int64_t column : columns) {
        const std::vector<std::int64_t> own = counter(column).ids();
        ids.insert(ids.end(), own.begin(), own.end());
        hashed.exact &= counter(column).exact();
        most = std::max(most, counter(column).distinct());
      }
      keep_distinct(ids);
      hashed.distinct += std::max(most, static_cast<std::int64_t>(ids.size()));
      const std::uint64_t number = hash_salt(salt);
      for (const std::int64_t id : ids) {
        rows.push_back(hash_row(id, number, table.num_embeddings));
      }
    }
    hashed.shared =
        hashed.exact && hashed.distinct > 0
            ? static_cast<double>(count_shared(rows)) / static_cast<double>(hashed.distinct)
            : expected_shared(hashed.distinct, hashed.rows);
  }
  return tables;
}

std::string warning_of(const HashedTable& table) {
  if (!(table.shared > kManyShared)) {
    return {};
  }
  const auto enough = static_cast<std::int64_t>(
      std::ceil(static_cast<double>(table.distinct) / -std::log1p(-kManyShared)));
  return fmt::format(
      "table '{}': {:.0f} % of its {}{} distinct ids are hashed to a row that another id has too "
      "({} "
      "rows): the model cannot tell them apart. Set num_embeddings to {} or more, with which about "
      "{:.0f} % share a row, or mapping: vocabulary with num_embeddings {}, with which none does",
      table.table, 100.0 * table.shared, table.exact ? "" : "about ", format_count(table.distinct),
      format_count(table.rows), enough, 100.0 * kManyShared, table.distinct + 1);
}

}  // namespace weft::data
