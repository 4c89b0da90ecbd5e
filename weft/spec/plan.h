/// The plan: who holds what. It is configuration: saved, hashed, compared on all ranks before
/// step 0, reused on resume.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/parts.h"
#include "weft/spec/config.h"

namespace weft::spec {

/// A block of a table on one rank. data_parallel: one whole shard per rank.
struct Shard {
  std::int64_t rank = 0;
  RowSet rows;  ///< a range, or of row_split modulo every n-th
  Range cols;

  friend bool operator==(const Shard&, const Shard&) = default;
};

struct TablePlan {
  std::string table;
  Sharding sharding = Sharding::kTableWise;  ///< never kAuto
  PooledAt pooled_at = PooledAt::kOwner;     ///< kSample: of cut rows alone
  std::vector<Shard> shards;                 ///< ascending by (row, column), no empty shard

  friend bool operator==(const TablePlan&, const TablePlan&) = default;
};

struct Plan {
  std::int64_t version = 1;
  std::int64_t ranks = 1;
  std::int64_t parts = 8;                ///< resolved numerics.parts
  std::vector<std::int64_t> hosts = {};  ///< [ranks] by the order of first ranks; empty: all on one
  std::vector<TablePlan> tables;         ///< in the order of Config::tables

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Columns are cut at multiples of this, so that row statistics are sums over whole blocks.
inline constexpr std::int64_t kColumnBlock = 16;

/// YAML text of a plan and back. plan_from_yaml throws Error(kConfig) with file, line and column.
std::string plan_to_yaml(const Plan& plan);
Plan plan_from_yaml(const std::string& text, const std::string& file);

/// XXH3 of the canonical text.
std::uint64_t plan_hash(const Plan& plan);

}  // namespace weft::spec
