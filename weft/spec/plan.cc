#include "weft/spec/plan.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/spec/parse.h"

namespace weft::spec {

std::int64_t column_cut(const Codecs& codecs) {
  const bool grouped =
      is_grouped(codecs.forward) || is_grouped(codecs.backward) || is_grouped(codecs.sync);
  return grouped ? std::lcm(kColumnBlock, codecs.group_size) : kColumnBlock;
}

std::int64_t most_column_shards(const Codecs& codecs, const Table& table) {
  const std::int64_t cut = column_cut(codecs);
  return (table.embedding_dim + cut - 1) / cut;
}

namespace {

/// `at`: where the message points.
void require_value(const Node& node, const std::string& path, const Node& at) {
  if (node.kind == Node::Kind::kNull) {
    fail_at(at, "{}: has no value; give one or remove it", path);
  }
}

/// Of an entry of `list`; an empty one has no place of its own.
void require_keys(const Node& list,
                  const Node& map,
                  const std::string& path,
                  std::initializer_list<std::string_view> keys) {
  require_value(map, path, list);
  for (const std::string_view key : keys) {
    const NodePtr value = map.find(key);
    if (value == nullptr) {
      fail_at(map, "{}: the key '{}' is missing", path, key);
    }
    require_value(*value, fmt::format("{}.{}", path, key), *value);
  }
}

/// A block that is not said is none, not that of a default. After types are known.
void require_blocks(const Node& root) {
  if (const NodePtr forms = root.find("collectives")) {
    require_value(*forms, "collectives", *forms);
  }
  const NodePtr tables = root.find("tables");
  require_value(*tables, "tables", *tables);
  for (std::size_t t = 0; t < tables->items.size(); ++t) {
    const Node& table = *tables->items[t];
    const NodePtr name = table.find("table");
    const std::string path = entry_path("tables", name == nullptr ? "" : name->text, t);
    require_keys(*tables, table, path, {"table", "sharding", "shards"});
    const NodePtr shards = table.find("shards");
    for (std::size_t i = 0; i < shards->items.size(); ++i) {
      require_keys(*shards, *shards->items[i], fmt::format("{}.shards.{}", path, i),
                   {"rank", "rows", "cols"});
    }
  }
}

// A shard for each rank and block of columns, of one table; and of tens of thousands of such
// tables. A text of a few bytes for each rank must not ask for more memory than there is.
constexpr std::size_t kMostShards = std::size_t{1} << 20;
constexpr std::size_t kMostShardsOfAll = std::size_t{1} << 26;

/// Of each entry for several shards; one for a single shard is looked at with the whole plan.
void require_sound_rules(const Node& root, const Plan& plan) {
  const NodePtr tables = root.find("tables");
  std::size_t all = 0;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const std::vector<CutRule>& rules = plan.tables[t].shards.rules();
    const NodePtr shards = tables->items[t]->find("shards");
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (rules[i].count > 1 && !rules[i].is_sound()) {
        fail_at(*shards->items[i],
                "{}.shards.{}: rows [{}, {}) step {} and columns [{}, {}) are not to be shared by "
                "{} ranks; give rows and columns that are not empty, of step 1",
                entry_path("tables", plan.tables[t].table, t), i, rules[i].rows.begin,
                rules[i].rows.end, rules[i].rows.step, rules[i].cols.begin, rules[i].cols.end,
                rules[i].count);
      }
    }
    const std::size_t count = plan.tables[t].shards.size();
    all += count;
    if (count > kMostShards || all > kMostShardsOfAll) {
      fail_at(
          *tables->items[t],
          "{}: {} shards, {} with those of the tables before; a table may have {} and a plan {}",
          entry_path("tables", plan.tables[t].table, t), count, all, kMostShards, kMostShardsOfAll);
    }
  }
}

}  // namespace

bool has_caches(const Plan& plan) {
  return std::any_of(plan.tables.begin(), plan.tables.end(),
                     [](const TablePlan& table) { return !table.caches.empty(); });
}

void drop_caches(Plan& plan) {
  for (TablePlan& table : plan.tables) {
    table.caches.clear();
  }
}

Mesh mesh_of(const Mesh& asked, const Plan& plan) {
  Mesh mesh = asked;
  if (mesh.groups == 0) {
    mesh.groups = plan.groups;
  }
  if (mesh.sync == SyncForm::kAuto) {
    mesh.sync = plan.sync == SyncForm::kAuto ? SyncForm::kDense : plan.sync;
  }
  if (mesh.sync_every == 0) {
    mesh.sync_every = plan.sync_every == 0 ? 1 : plan.sync_every;
  }
  if (!mesh.averages() && mesh.moment_scale > 1.0) {
    mesh.moment_scale = 0.0;
  }
  return mesh;
}

Pipeline pipeline_of(const Pipeline& asked, const Plan& plan) {
  if (asked.schedule != PipelineSchedule::kAuto) {
    return asked;
  }
  if (plan.pipeline.schedule != PipelineSchedule::kAuto) {
    Pipeline pipeline = plan.pipeline;
    pipeline.cluster_parts = asked.cluster_parts;
    return pipeline;
  }
  Pipeline pipeline = asked;
  pipeline.schedule = PipelineSchedule::kSync;
  return pipeline;
}

std::int64_t shared_cache_bytes(const Tiers& asked, const Plan& plan) {
  return asked.cache_bytes > 0 ? asked.cache_bytes : plan.cache_bytes;
}

Plan plan_from_yaml(const std::string& text, const std::string& file) {
  const NodePtr root = parse_tree(text, std::make_shared<Origin>(Origin{.name = file}));
  if (root->kind == Node::Kind::kNull) {
    fail(ErrorCode::kConfig, "{}: holds no plan", file);
  }
  Plan plan;
  Places places;
  const auto body = [&](Visitor& visitor) { visit(visitor, plan); };
  bind_tree(root, body, places);
  for (const char* key : {"version", "ranks", "parts", "tables"}) {
    if (root->find(key) == nullptr) {
      fail(ErrorCode::kConfig, "{}: the key '{}' is missing", file, key);
    }
  }
  check_bounds(body, places);
  require_blocks(*root);
  require_sound_rules(*root, plan);
  for (TablePlan& table : plan.tables) {
    table.shards = Shards(table.shards.list());
  }
  return plan;
}

}  // namespace weft::spec
