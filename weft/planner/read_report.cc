#include "weft/planner/read_report.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/at.h"
#include "weft/base/text.h"
#include "weft/cost/fetch.h"
#include "weft/layout/tables.h"
#include "weft/planner/cache_division.h"

namespace weft::planner {
namespace {

using nlohmann::json;

constexpr std::size_t kMostRead = 40;  // tables that are shown

/// Of a step, of all shards of a table on disks.
struct TableReads {
  std::int64_t table = 0;
  double bytes = 0.0;  ///< of caches
  double rows = 0.0;
  double missed = 0.0;
  double blocks = 0.0;
  double most_blocks = 0.0;  ///< on one rank

  [[nodiscard]] double hit_rate() const { return rows > 0.0 ? 1.0 - missed / rows : 1.0; }
};

/// What the tables read, and the rank that reads most.
struct StepReads {
  std::vector<TableReads> tables;  ///< those on disks, in their order
  TableReads all;
};

StepReads reads_of(const std::vector<ShardTier>& tiers) {
  StepReads reads;
  std::map<std::int64_t, double> of_ranks;  // blocks
  std::map<std::int64_t, double> of_table;  // those of the table in hand
  for (const ShardTier& tier : tiers) {
    if (tier.tier != spec::MemoryTier::kSsd) {
      continue;
    }
    if (reads.tables.empty() || reads.tables.back().table != tier.table) {
      reads.tables.push_back({.table = tier.table});
      of_table.clear();
    }
    for (TableReads* const sum : {&reads.tables.back(), &reads.all}) {
      sum->bytes += static_cast<double>(tier.given_bytes);
      sum->rows += tier.step_rows;
      sum->missed += tier.missed;
      sum->blocks += tier.blocks;
    }
    double& own = of_table[tier.rank] += tier.blocks;
    reads.tables.back().most_blocks = std::max(reads.tables.back().most_blocks, own);
    double& all = of_ranks[tier.rank] += tier.blocks;
    reads.all.most_blocks = std::max(reads.all.most_blocks, all);
  }
  return reads;
}

/// Of the same plan with so much memory for caches, divided as `division` says.
StepReads reads_with(const PlanReport& report,
                     std::int64_t cache_bytes,
                     spec::CacheDivision division) {
  spec::Config config = report.config;
  spec::Plan plan = report.result.best().plan;
  (config.tiers.cache_bytes > 0 ? config.tiers.cache_bytes : plan.cache_bytes) = cache_bytes;
  config.tiers.division = division;
  spec::drop_caches(plan);
  const HotUses hot_uses(config, report.workload);
  if (divides_by_curves(config, report.workload, plan)) {
    divide_caches(config, report.workload, hot_uses, plan);
  }
  return reads_of(shard_tiers(config, report.workload, plan, hot_uses));
}

/// What the job has for caches on each rank.
std::int64_t shared_bytes(const PlanReport& report) {
  return spec::shared_cache_bytes(report.config.tiers, report.result.best().plan);
}

/// With caches divided by bytes; without tables where the plan has them so.
StepReads reads_by_bytes(const PlanReport& report) {
  return spec::has_caches(report.result.best().plan)
             ? reads_with(report, shared_bytes(report), spec::CacheDivision::kBytes)
             : StepReads{};
}

/// Of all tables, with a fourth to four times the memory for caches that the job has.
std::vector<std::pair<std::int64_t, TableReads>> reads_by_memory(const PlanReport& report) {
  std::vector<std::pair<std::int64_t, TableReads>> all;
  const spec::Config& config = report.config;
  if (std::any_of(config.tables.begin(), config.tables.end(), layout::shares_cache)) {
    for (const std::int64_t sixteenths : {4, 8, 16, 32, 64}) {
      const std::int64_t bytes = shared_bytes(report) / 16 * sixteenths;
      all.emplace_back(bytes, reads_with(report, bytes, config.tiers.division).all);
    }
  }
  return all;
}

/// Seconds of a disk; 0 where the cluster gives no rate.
double seconds_of(const PlanReport& report, double blocks) {
  return cost::disk_s(report.cluster, {.blocks = blocks});
}

std::string read_columns(const PlanReport& report, const TableReads& reads) {
  return fmt::format("{:>10} {:>5.1f} % {:>9.0f} {:>9.0f} {:>8}",
                     format_estimated_bytes(reads.bytes), 100.0 * reads.hit_rate(), reads.missed,
                     reads.blocks,
                     report.cluster.disk.read_blocks.value > 0.0
                         ? fmt::format("{:.3f}", to_ms(seconds_of(report, reads.most_blocks)))
                         : "-");
}

json to_value(const PlanReport& report, const TableReads& reads) {
  return {{"bytes", reads.bytes},   {"rows", reads.rows},
          {"misses", reads.missed}, {"hit_rate", reads.hit_rate()},
          {"blocks", reads.blocks}, {"read_s", seconds_of(report, reads.most_blocks)}};
}

}  // namespace

void write_reads(TextLines& text, const PlanReport& report, const std::vector<ShardTier>& tiers) {
  const StepReads reads = reads_of(tiers);
  const StepReads by_bytes = reads_by_bytes(report);
  text.line("");
  text.line(
      "Reads of a step by all shards of a table; ms: of the disk of the rank that reads most{}",
      by_bytes.tables.empty() ? "" : "; right: caches by bytes");
  const std::string heads =
      fmt::format("{:>10} {:>7} {:>9} {:>9} {:>8}", "caches", "hits", "misses", "blocks", "ms");
  text.line("{:<20} {}{}", "", heads, by_bytes.tables.empty() ? "" : " |" + heads);
  const auto line = [&](std::string_view name, const TableReads& one, const TableReads* other) {
    text.line("{:<20} {}{}", name, read_columns(report, one),
              other == nullptr ? "" : " |" + read_columns(report, *other));
  };
  const std::size_t shown = std::min(kMostRead, reads.tables.size());
  for (std::size_t i = 0; i < shown; ++i) {
    line(report.config.tables[at(reads.tables[i].table)].name, reads.tables[i],
         by_bytes.tables.empty() ? nullptr : &by_bytes.tables[i]);
  }
  if (shown < reads.tables.size()) {
    text.line("... {} more", reads.tables.size() - shown);
  }
  line("all", reads.all, by_bytes.tables.empty() ? nullptr : &by_bytes.all);
  for (const auto& [bytes, other] : reads_by_memory(report)) {
    line(fmt::format("all, of {}", format_estimated_bytes(static_cast<double>(bytes))), other,
         nullptr);
  }
}

void add_reads(json& out, const PlanReport& report, const std::vector<ShardTier>& tiers) {
  const StepReads reads = reads_of(tiers);
  const StepReads by_bytes = reads_by_bytes(report);
  if (reads.tables.empty()) {
    return;
  }
  out["reads"] = to_value(report, reads.all);
  out["reads"]["division"] = by_bytes.tables.empty() ? "bytes" : "curves";
  out["reads"]["tables"] = json::array();
  for (std::size_t i = 0; i < reads.tables.size(); ++i) {
    json table = to_value(report, reads.tables[i]);
    table["table"] = report.config.tables[at(reads.tables[i].table)].name;
    if (!by_bytes.tables.empty()) {
      table["by_bytes"] = to_value(report, by_bytes.tables[i]);
    }
    out["reads"]["tables"].push_back(std::move(table));
  }
  if (!by_bytes.tables.empty()) {
    out["reads"]["by_bytes"] = to_value(report, by_bytes.all);
  }
  out["reads"]["by_memory"] = json::array();
  for (const auto& [bytes, other] : reads_by_memory(report)) {
    json with = to_value(report, other);
    with["cache_bytes"] = bytes;
    out["reads"]["by_memory"].push_back(std::move(with));
  }
}

}  // namespace weft::planner
