#include "weft/planner/tier_report.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/at.h"
#include "weft/base/text.h"
#include "weft/layout/tables.h"
#include "weft/planner/read_report.h"
#include "weft/planner/tier_use.h"

namespace weft::planner {
namespace {

using nlohmann::json;

constexpr std::size_t kMostShown = 40;

std::vector<ShardTier> tiers_of(const PlanReport& report) {
  return shard_tiers(report.config, report.workload, report.result.best().plan,
                     HotUses(report.config, report.workload));
}

const spec::Table& table_of(const PlanReport& report, const ShardTier& tier) {
  return report.config.tables[at(tier.table)];
}

/// Of memory, of a slot: its row with gaps, and of a cache what says which row it has.
double bytes_of_slot(const ShardTier& tier) {
  return tier.slot_bytes / static_cast<double>(tier.cache.slots());
}

/// Of memory, of a row that exists: where it lies.
double bytes_of_place(const ShardTier& tier) {
  return tier.existing > 0.0 ? tier.place_bytes / tier.existing : 0.0;
}

/// Of memory that a row takes while it has a slot.
double memory_of_row(const PlanReport& report, const ShardTier& tier) {
  if (tier.tier == spec::MemoryTier::kSsd) {
    return bytes_of_slot(tier);
  }
  const layout::RowGeometry row =
      layout::row_geometry(table_of(report, tier), tier.rows, tier.cols);
  const bool together =
      layout::row_layout(table_of(report, tier).optimizer) == layout::RowLayout::kInterleaved;
  return static_cast<double>(row.weight_stride + (together ? 0 : row.rest_stride));
}

/// One shard of each table: the one that needs most of a cache, or has most rows.
std::vector<ShardTier> largest_of_tables(const std::vector<ShardTier>& all) {
  std::vector<ShardTier> largest;
  for (const ShardTier& tier : all) {
    if (largest.empty() || largest.back().table != tier.table) {
      largest.push_back(tier);
    } else if (tier.fewest_bytes > largest.back().fewest_bytes ||
               (tier.fewest_bytes == largest.back().fewest_bytes &&
                tier.existing > largest.back().existing)) {
      largest.back() = tier;
    }
  }
  return largest;
}

std::string on_disk(const ShardTier& tier) {
  return tier.tier == spec::MemoryTier::kSsd
             ? fmt::format("{:.1f}", stored_row_bytes(tier.row_bytes))
             : "-";
}

std::string id_on_disk(const ShardTier& tier) {
  return tier.tier == spec::MemoryTier::kSsd
             ? fmt::format("{:.1f}", stored_id_bytes(tier.row_bytes))
             : "-";
}

void write_caches(TextLines& text, const PlanReport& report, const std::vector<ShardTier>& tiers) {
  text.line("");
  text.line(
      "Caches: of each shard; the smallest that trains; of a step rows, misses, blocks of 4 KiB");
  text.line("{:<20} {:>11} {:>10} {:>11} {:>10} {:>10} {:>10} {:>7} {:>10}", "", "given", "slots",
            "smallest", "slots", "rows", "misses", "hits", "blocks");
  for (const ShardTier& tier : tiers) {
    if (tier.tier == spec::MemoryTier::kSsd) {
      text.line("{:<20} {:>11} {:>10} {:>11} {:>10} {:>10.0f} {:>10.0f} {:>5.1f} % {:>9.0f}{}",
                table_of(report, tier).name,
                format_estimated_bytes(static_cast<double>(tier.given_bytes)), tier.cache.slots(),
                format_estimated_bytes(static_cast<double>(tier.fewest_bytes)), tier.fewest_slots,
                tier.step_rows, tier.missed, 100.0 * tier.hit_rate(), tier.blocks,
                tier.cache.slots() < tier.fewest_slots ? "  too small" : "");
    }
  }
}

/// How the size of caches was chosen.
std::vector<std::string> cache_size_lines(const CacheSize& size) {
  const auto bytes = [](std::int64_t count) {
    return format_estimated_bytes(static_cast<double>(count));
  };
  return {fmt::format("Size of caches: {} on each rank at most, chosen (tiers.cache_bytes: 0). {}.",
                      bytes(size.bytes), describe(size.bound)),
          fmt::format("The smallest that train take {}; all rows {}; memory leaves {} on rank {}.",
                      bytes(size.smallest), bytes(size.all), bytes(size.left), size.rank),
          fmt::format(
              "A step reads {:.3f} ms on the rank that reads most; wanted are at most {:.0f} % of "
              "the rest, {:.3f} ms.",
              to_ms(size.read_s), 100.0 * size.share, to_ms(size.rest_s)),
          fmt::format("{:.1f} % of the {:.0f} rows of a step hit, and {:.0f} miss.",
                      100.0 * size.hit_rate(), size.step_rows, size.missed)};
}

void write_cache_size(TextLines& text, const PlanReport& report) {
  if (report.result.cache_size) {
    text.line("");
    for (const std::string& line : cache_size_lines(*report.result.cache_size)) {
      text.line("{}", line);
    }
  }
}

void add_cache_size(json& out, const PlanReport& report) {
  if (report.result.cache_size) {
    const CacheSize& size = *report.result.cache_size;
    out["cache_size"] = {{"bytes", size.bytes},
                         {"bound", std::string(to_string(size.bound))},
                         {"smallest_bytes", size.smallest},
                         {"all_rows_bytes", size.all},
                         {"left_bytes", size.left},
                         {"left_on_rank", size.rank},
                         {"read_s", size.read_s},
                         {"rest_s", size.rest_s},
                         {"share", size.share},
                         {"rows", size.step_rows},
                         {"misses", size.missed},
                         {"hit_rate", size.hit_rate()}};
  }
}

}  // namespace

void write_tiers(TextLines& text, const PlanReport& report) {
  const std::vector<ShardTier> all_tiers = tiers_of(report);
  std::vector<ShardTier> tiers = largest_of_tables(all_tiers);
  if (tiers.empty()) {
    return;
  }
  const std::size_t all = tiers.size();
  tiers.resize(std::min(kMostShown, all));
  text.line("");
  text.line(
      "Rows that are not all in memory: bytes of a row; in memory of its slot and of its place; on "
      "disks");
  text.line("{:<20} {:>5} {:>9} {:>10} {:>10} {:>10} {:>8} {:>13} {:>11} {:>11}", "", "tier", "row",
            "slot", "place", "on disks", "of id", "rows exist", "memory", "disks");
  for (const ShardTier& tier : tiers) {
    text.line("{:<20} {:>5} {:>9} {:>10.1f} {:>10.2f} {:>10} {:>8} {:>13.0f} {:>11} {:>11}",
              table_of(report, tier).name, to_string(tier.tier), tier.row_bytes,
              memory_of_row(report, tier), bytes_of_place(tier), on_disk(tier), id_on_disk(tier),
              tier.existing, format_estimated_bytes(tier.slot_bytes + tier.place_bytes),
              tier.tier == spec::MemoryTier::kSsd ? format_estimated_bytes(tier.disk_bytes) : "-");
  }
  if (all > tiers.size()) {
    text.line("... {} more", all - tiers.size());
  }
  if (std::any_of(tiers.begin(), tiers.end(),
                  [](const ShardTier& tier) { return tier.tier == spec::MemoryTier::kSsd; })) {
    text.line(
        "files take up to {} times that (tiers.space_factor), and {} beside it (two segments); of "
        "rows on their way {}",
        report.config.tiers.space_factor,
        format_estimated_bytes(2.0 * static_cast<double>(report.config.tiers.segment_bytes)),
        format_estimated_bytes(static_cast<double>(report.config.tiers.write_buffer_bytes)));
    write_caches(text, report, tiers);
    write_cache_size(text, report);
    write_reads(text, report, all_tiers);
  }
}

void add_tiers(json& out, const PlanReport& report) {
  const std::vector<ShardTier> tiers = tiers_of(report);
  if (tiers.empty()) {
    return;
  }
  add_reads(out, report, tiers);
  add_cache_size(out, report);
  out["tiers"] = json::array();
  for (const ShardTier& tier : tiers) {
    json shard = {{"table", table_of(report, tier).name},
                  {"tier", std::string(to_string(tier.tier))},
                  {"rank", tier.rank},
                  {"rows", tier.rows},
                  {"row_bytes", tier.row_bytes},
                  {"slot_bytes", memory_of_row(report, tier)},
                  {"place_bytes", bytes_of_place(tier)},
                  {"existing", tier.existing},
                  {"step_rows", tier.step_rows},
                  {"memory_bytes", tier.slot_bytes + tier.place_bytes}};
    if (tier.tier == spec::MemoryTier::kSsd) {
      shard["id_bytes"] = stored_id_bytes(tier.row_bytes);
      shard["stored_bytes"] = stored_row_bytes(tier.row_bytes);
      shard["disk_bytes"] = tier.disk_bytes;
      shard["cache"] = {{"bytes", tier.given_bytes},
                        {"slots", tier.cache.slots()},
                        {"smallest_bytes", tier.fewest_bytes},
                        {"smallest_slots", tier.fewest_slots},
                        {"misses", tier.missed},
                        {"hit_rate", tier.hit_rate()},
                        {"blocks", tier.blocks}};
    }
    out["tiers"].push_back(std::move(shard));
  }
}

void draw_tiers(HtmlPage& page, const PlanReport& report) {
  const std::vector<ShardTier> tiers = tiers_of(report);
  if (tiers.empty()) {
    return;
  }
  page.section("Rows that are not all in memory",
               "Bytes of a row, and the caches; of each table the shard that needs most.");
  if (report.result.cache_size) {
    for (const std::string& line : cache_size_lines(*report.result.cache_size)) {
      page.add("<p>{}</p>\n", HtmlPage::escaped(line));
    }
  }
  page.add(
      "<div class=\"wide\"><table><tr><th>table</th><th>tier</th><th>row</th><th>slot</th>"
      "<th>place</th><th>on disks</th><th>rows exist</th><th>cache</th><th>smallest</th>"
      "<th>rows of a step</th><th>misses</th></tr>\n");
  for (const ShardTier& tier : largest_of_tables(tiers)) {
    const bool cached = tier.tier == spec::MemoryTier::kSsd;
    const auto bytes = [&](std::int64_t count) {
      return cached ? format_estimated_bytes(static_cast<double>(count)) : std::string("-");
    };
    page.add(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.2f}</td><td>{}</td>"
        "<td>{:.0f}</td><td>{}</td><td>{}</td><td>{:.0f}</td><td>{}</td></tr>\n",
        HtmlPage::escaped(table_of(report, tier).name), to_string(tier.tier), tier.row_bytes,
        memory_of_row(report, tier), bytes_of_place(tier), on_disk(tier), tier.existing,
        bytes(tier.given_bytes), bytes(tier.fewest_bytes), tier.step_rows,
        cached ? fmt::format("{:.0f}", tier.missed) : "-");
  }
  page.add("</table></div>\n");
}

}  // namespace weft::planner
