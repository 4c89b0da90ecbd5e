#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host_layout.h"
#include "weft/planner/place.h"

namespace weft::planner {
namespace {

using spec::PooledAt;
using spec::Shard;
using spec::Sharding;

/// `instead`: what the key would have to be.
[[noreturn]] void refuse(std::string_view key,
                         std::string_view wanted,
                         std::string_view found,
                         std::string_view instead) {
  fail(ErrorCode::kConfig,
       "{} is {} in the configuration and the plan has {}; set {}, or make a new plan", key, wanted,
       found, instead);
}

std::string_view to_string(PooledAt pooled_at) {
  return pooled_at == PooledAt::kSample ? "sample" : "owner";
}

/// Keys of one table that say what its plan must be. Defaults say nothing: row_split: range too.
class TablePins {
 public:
  TablePins(const spec::Table& table, const spec::TablePlan& plan, const spec::Plan& whole)
      : table_(table), plan_(plan), whole_(whole) {}

  void check() const {
    check_sharding();
    check_allow();
    check_place();
    check_cuts();
    check_pooled_at();
    check_hot_rows();
  }

 private:
  [[nodiscard]] std::string key(std::string_view name) const {
    return fmt::format("tables.{}.{}", table_.name, name);
  }

  [[nodiscard]] std::int64_t host(const Shard& shard) const {
    return whole_.hosts.empty() ? 0 : whole_.hosts[static_cast<std::size_t>(shard.rank)];
  }

  void check_sharding() const {
    if (table_.sharding != Sharding::kAuto && table_.sharding != plan_.sharding) {
      refuse(key("sharding"), to_string(table_.sharding), to_string(plan_.sharding),
             fmt::format("{} or auto", to_string(plan_.sharding)));
    }
  }

  void check_allow() const {
    const std::vector<std::string>& allow = table_.allow;
    const auto allows = [&](std::string_view scheme) {
      return std::find(allow.begin(), allow.end(), scheme) != allow.end();
    };
    const bool stays_whole = plan_.sharding == Sharding::kTableWise && may_be_whole(table_);
    if (!allow.empty() && !stays_whole && !allows(to_string(plan_.sharding))) {
      refuse(key("allow"), fmt::format("[{}]", fmt::join(allow, ", ")), to_string(plan_.sharding),
             fmt::format("{} among them", to_string(plan_.sharding)));
    }
  }

  void check_place() const {
    for (const Shard& shard : plan_.shards) {
      if (table_.rank >= 0 && shard.rank != table_.rank) {
        refuse(key("rank"), std::to_string(table_.rank), fmt::format("a shard on {}", shard.rank),
               "that or -1");
      }
      if (table_.host >= 0 && host(shard) != table_.host) {
        refuse(key("host"), std::to_string(table_.host),
               fmt::format("a shard on rank {} of host {}", shard.rank, host(shard)), "that or -1");
      }
    }
  }

  [[nodiscard]] bool rows_are_cut() const {
    return plan_.sharding != Sharding::kDataParallel && !plan_.shards.empty() &&
           plan_.shards.front().rows != plan_.shards.back().rows;
  }

  /// Requires a plan that is a grid of blocks.
  [[nodiscard]] std::int64_t column_cuts() const {
    return std::count_if(plan_.shards.begin(), plan_.shards.end(), [this](const Shard& shard) {
      return shard.rows == plan_.shards.front().rows;
    });
  }

  void check_cuts() const {
    if (table_.row_split == spec::RowSplit::kModulo && rows_are_cut() &&
        plan_.shards.front().rows.step == 1) {
      refuse(key("row_split"), "modulo", "ranges of rows", "range");
    }
    if (table_.column_shards > 0 && column_cuts() > table_.column_shards) {
      refuse(key("column_shards"), std::to_string(table_.column_shards),
             fmt::format("{} cuts of columns", column_cuts()),
             fmt::format("{} or 0", column_cuts()));
    }
  }

  /// Of a table that the planner may leave whole, sample is for where it does not.
  void check_pooled_at() const {
    const bool counts =
        table_.pooled_at == PooledAt::kOwner ||
        (table_.pooled_at == PooledAt::kSample && (rows_are_cut() || !plan_.hot.empty()));
    if (counts && table_.pooled_at != plan_.pooled_at) {
      refuse(key("pooled_at"), to_string(table_.pooled_at), to_string(plan_.pooled_at),
             fmt::format("{} or auto", to_string(plan_.pooled_at)));
    }
  }

  /// The plan has fewer hot rows where fewer rows ever occurred.
  void check_hot_rows() const {
    std::int64_t rows = 0;
    for (const Range& range : plan_.hot) {
      rows += range.size();
    }
    if (table_.hot_rows > 0 && (rows == 0 || rows > table_.hot_rows)) {
      refuse(key("hot_rows"), std::to_string(table_.hot_rows),
             rows == 0 ? "no hot rows" : fmt::format("{} hot rows", rows), fmt::format("{}", rows));
    }
  }

  const spec::Table& table_;
  const spec::TablePlan& plan_;
  const spec::Plan& whole_;
};

/// Through relays only where hosts have several ranks; of dense gradients the hosts of all groups
/// count, which a plan of several does not name.
void check_collectives(const spec::Plan& plan, spec::Collectives asked) {
  if (asked == spec::Collectives::kAuto) {
    return;
  }
  const HostLayout hosts(std::vector<int>(plan.hosts.begin(), plan.hosts.end()));
  const auto wanted = asked == spec::Collectives::kFlat ? spec::CollectiveForm::kFlat
                                                        : spec::CollectiveForm::kHierarchical;
  const auto check = [&](std::string_view purpose, spec::CollectiveForm form) {
    const bool is_flat = form == spec::CollectiveForm::kFlat;
    if (asked == spec::Collectives::kFlat ? !is_flat : is_flat && !hosts.is_flat()) {
      refuse("collectives", to_string(wanted), fmt::format("{}: {}", purpose, to_string(form)),
             "auto");
    }
  };
  check("ids", plan.collectives.ids);
  check("vectors", plan.collectives.vectors);
  if (plan.groups == 1 || asked == spec::Collectives::kFlat) {
    check("dense", plan.collectives.dense);
  }
}

}  // namespace

bool may_be_whole(const spec::Table& table) {
  return table.allow != std::vector<std::string>{"data_parallel"};
}

void check_pins(const spec::Plan& plan, const spec::Config& config) {
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    TablePins(config.tables[t], plan.tables[t], plan).check();
  }
  check_collectives(plan, config.collectives);
}

}  // namespace weft::planner
