#include "weft/train/resume_plan.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/spec/yaml.h"

namespace weft::train {
namespace {

std::optional<std::vector<std::int64_t>> saved_hosts(const std::string& extra_json) {
  const auto extra = nlohmann::json::parse(extra_json, nullptr, false);
  if (!extra.is_object() || !extra.contains(kSavedHosts) || !extra[kSavedHosts].is_array()) {
    return std::nullopt;
  }
  std::vector<std::int64_t> hosts;
  for (const nlohmann::json& host : extra[kSavedHosts]) {
    if (!host.is_number_integer()) {
      return std::nullopt;
    }
    hosts.push_back(host.get<std::int64_t>());
  }
  return hosts;
}

/// The first key that was pinned and is left to the planner now. Other changes contradict the plan
/// or do not concern it.
std::string opened_key(const spec::Config& before, const spec::Config& now) {
  for (std::size_t t = 0; t < now.tables.size(); ++t) {
    const spec::Table& table = now.tables[t];
    const spec::Table* const saved = t < before.tables.size() ? &before.tables[t] : nullptr;
    if (saved == nullptr || saved->name != table.name) {
      continue;  // what it was called is not known
    }
    const spec::Table open;
    const auto opened = [&](auto spec::Table::* key) {
      return saved->*key != table.*key && table.*key == open.*key;
    };
    const auto named = [&](const char* key) {
      return fmt::format("tables.{}.{}", table.name, key);
    };
    if (opened(&spec::Table::sharding)) {
      return named("sharding");
    }
    if (opened(&spec::Table::allow)) {
      return named("allow");
    }
    if (opened(&spec::Table::rank)) {
      return named("rank");
    }
    if (opened(&spec::Table::host)) {
      return named("host");
    }
    if (opened(&spec::Table::row_split)) {
      return named("row_split");
    }
    if (opened(&spec::Table::pooled_at)) {
      return named("pooled_at");
    }
    if (opened(&spec::Table::column_shards)) {
      return named("column_shards");
    }
    if (opened(&spec::Table::hot_rows)) {
      return named("hot_rows");
    }
  }
  const bool collectives =
      before.collectives != now.collectives && now.collectives == spec::Collectives::kAuto;
  return collectives ? "collectives" : "";
}

}  // namespace

SavedJob saved_job(const checkpoint::Metadata& metadata, const std::string& name) {
  SavedJob saved{.plan = spec::plan_from_yaml(metadata.plan_yaml, name + ", its plan"),
                 .config = std::nullopt,
                 .hosts = saved_hosts(metadata.extra_json)};
  try {
    saved.config = spec::parse_config(metadata.config_yaml, name + ", its configuration", {},
                                      spec::WrittenBy::kEarlierBuild);
  } catch (const spec::GoneKeyError&) {
    throw;
  } catch (const Error&) {
    // Of another version: the plan alone decides.
  }
  return saved;
}

std::string why_another_plan(const SavedJob& saved,
                             const spec::Config& config,
                             const planner::RankLayout& world) {
  if (saved.plan.world() != world.ranks) {
    return fmt::format("the checkpoint's plan is for {}", counted(saved.plan.world(), "rank"));
  }
  if (saved.hosts && *saved.hosts != planner::host_numbers(world)) {
    return "ranks are on other hosts than the checkpoint's";
  }
  try {
    spec::Plan placed = saved.plan;
    spec::drop_caches(placed);  // which are no reason to place tables anew
    planner::check_plan(placed, config);
    planner::check_pins(placed, config);
  } catch (const Error& error) {
    return fmt::format("the checkpoint's plan does not fit ({})", error.what());
  }
  const std::string opened = saved.config ? opened_key(*saved.config, config) : std::string();
  return opened.empty() ? opened
                        : fmt::format("{} is open, which was not so in the checkpoint", opened);
}

}  // namespace weft::train
