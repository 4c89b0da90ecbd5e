#include "weft/train/mesh.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/embedding/row_marks.h"
#include "weft/optim/sparse.h"

namespace weft::train {
namespace {

/// Nothing where `json` is not what to_json() writes.
std::optional<MomentScale> parse_scale(const nlohmann::json& json) {
  MomentScale parsed;
  const nlohmann::json& scale = json.is_object() ? json.value("scale", nlohmann::json()) : json;
  if (!scale.is_number() || !(scale.get<double>() > 0.0)) {
    return std::nullopt;
  }
  parsed.scale = scale.get<double>();
  if (!json.is_object()) {
    return parsed;
  }
  std::int64_t end = 0;
  for (const auto& range : json.value("unscaled_rows", nlohmann::json::array())) {
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_integer() ||
        !range[1].is_number_integer()) {
      return std::nullopt;
    }
    const Range rows{range[0].get<std::int64_t>(), range[1].get<std::int64_t>()};
    if (rows.begin < end || rows.end < rows.begin) {
      return std::nullopt;
    }
    parsed.unscaled.push_back(rows);
    end = rows.end;
  }
  return parsed;
}

}  // namespace

std::unique_ptr<comm::Communicator> order_by_position(comm::Communicator& world,
                                                      const spec::Plan& plan) {
  if (plan.groups == 1 || plan.layout != spec::MeshLayout::kLocalAllReduce) {
    return nullptr;
  }
  const std::int64_t position =
      spec::mesh_position(plan.layout, plan.groups, plan.ranks, world.rank());
  return world.split(0, static_cast<int>(position), "mesh");
}

void check_checkpoint_interval(const spec::Mesh& mesh, std::int64_t every) {
  if (mesh.syncs_after(every)) {
    return;
  }
  const std::int64_t below = every / mesh.sync_every * mesh.sync_every;
  fail(ErrorCode::kConfig,
       "--checkpoint-every {} is no multiple of the {} steps of mesh.sync_every, and replicas are "
       "equal at syncs only; give {}{}",
       every, mesh.sync_every, below == 0 ? "" : fmt::format("{} or ", below),
       below + mesh.sync_every);
}

std::string describe_groups(const spec::Plan& plan) {
  return plan.layout == spec::MeshLayout::kLocalAllReduce
             ? fmt::format("rank r of the world is in group r mod {}", plan.groups)
             : fmt::format("rank r of the world is in group r / {}", plan.ranks);
}

std::string describe_lost_ranks(const spec::Plan& plan,
                                std::span<const int> lost,
                                const std::string& checkpoint) {
  std::set<std::int64_t> groups;
  std::string names;
  for (const int rank : lost) {
    const std::int64_t position =
        spec::mesh_position(plan.layout, plan.groups, plan.ranks, std::int64_t{rank});
    const std::int64_t group = position / plan.ranks;
    groups.insert(group);
    names += fmt::format("{}rank {} (group {})", names.empty() ? "" : ", ", rank, group);
  }
  const std::int64_t left = plan.groups - std::ssize(groups);
  const std::string how = checkpoint.empty() ? "there is no checkpoint: start anew"
                                             : fmt::format("resume with --resume {}", checkpoint);
  return fmt::format("Lost: {}; whole replica groups: {} of {}{}", names, left, plan.groups,
                     left == 0 ? fmt::format("; {} on the ranks there are", how)
                               : fmt::format("; {} on their {} with mesh.groups={}", how,
                                             counted(left * plan.ranks, "rank"), left));
}

double MomentScale::of(std::int64_t row) const {
  const auto after = std::upper_bound(
      unscaled.begin(), unscaled.end(), row,
      [](std::int64_t wanted, const Range& range) { return wanted < range.begin; });
  return after != unscaled.begin() && row < std::prev(after)->end ? 1.0 : scale;
}

MomentScales moment_scales(const spec::Config& config, const spec::Plan& plan) {
  MomentScales scales;
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    const double scale = config.mesh.merged(plan.groups_of(plan.tables[t])).resolved_moment_scale();
    if (scale != 1.0 && plan.tables[t].sharding != spec::Sharding::kDataParallel &&
        optim::has_scaled_moment(config.tables[t].optimizer)) {
      scales[config.tables[t].name] = {.scale = scale, .unscaled = plan.tables[t].hot};
    }
  }
  return scales;
}

void to_json(nlohmann::json& json, const MomentScale& scale) {
  if (scale.unscaled.empty()) {
    json = scale.scale;
    return;
  }
  auto rows = nlohmann::json::array();
  for (const Range& range : scale.unscaled) {
    rows.push_back({range.begin, range.end});
  }
  json = {{"scale", scale.scale}, {"unscaled_rows", std::move(rows)}};
}

MomentScales saved_moment_scales(const std::string& extra_json) {
  MomentScales scales;
  const auto extra = nlohmann::json::parse(extra_json, nullptr, false);
  if (extra.is_discarded() && !extra_json.empty()) {
    fail(ErrorCode::kCheckpoint,
         "the checkpoint's figures are no JSON, so that the scales of its moments are not known; "
         "resume from another one");
  }
  if (extra.is_object() && extra.contains("moment_scales")) {
    for (const auto& [table, json] : extra["moment_scales"].items()) {
      const std::optional<MomentScale> scale = parse_scale(json);
      if (!scale) {
        fail(
            ErrorCode::kCheckpoint,
            "the checkpoint's moment_scales of table {} is {}, not a positive number, nor one with "
            "ascending ranges of rows; resume from another one",
            table, json.dump());
      }
      scales[table] = *scale;
    }
  }
  return scales;
}

namespace {

/// Rows that are rescaled at a time.
constexpr std::int64_t kRescaledRows = 4096;

/// Of rows that exist, where the others' sums are 0 and stay so. All state of Adagrad is sums.
void rescale_existing(RowState& rows, const MomentScale& from, const MomentScale& to) {
  const RowState::Shape shape = rows.row_shape();
  embedding::RowMarks existing(shape.rows.size());  // a walk lets nobody write
  std::vector<std::int64_t> numbers;
  rows.for_each_row(StateRows::kExisting, [&](std::span<const std::int64_t> some) {
    numbers.clear();
    for (const std::int64_t row : some) {
      if (from.of(row) != to.of(row)) {
        numbers.push_back(shape.rows.index(row));
      }
    }
    existing.set(numbers);
  });
  std::vector<std::byte> packed;
  std::vector<float> sums(static_cast<std::size_t>(shape.packed.state_bytes) / sizeof(float));
  const auto rescale = [&](std::span<const std::int64_t> some) {
    packed.resize(some.size() * static_cast<std::size_t>(shape.packed.bytes()));
    rows.read_rows(some, packed.data());
    std::byte* next = packed.data() + shape.packed.state_offset();
    for (const std::int64_t row : some) {
      std::memcpy(sums.data(), next, sums.size() * sizeof(float));
      for (float& sum : sums) {
        sum = static_cast<float>(sum * to.of(row) / from.of(row));
      }
      std::memcpy(next, sums.data(), sums.size() * sizeof(float));
      next += shape.packed.bytes();
    }
    rows.write_rows(some, packed.data());
  };
  existing.for_each([&](std::span<const std::int64_t> some) {
    for (std::size_t first = 0; first < some.size(); first += kRescaledRows) {
      numbers.clear();
      for (const std::int64_t row :
           some.subspan(first, std::min<std::size_t>(kRescaledRows, some.size() - first))) {
        numbers.push_back(shape.rows.row(row));
      }
      rescale(numbers);
    }
  });
}

}  // namespace

void rescale_moments(embedding::TableShard& shard, const MomentScale& from, const MomentScale& to) {
  constexpr std::int64_t kRows = kRescaledRows;
  const bool has_sums = optim::has_scaled_moment(shard.table().optimizer);
  RowState& listed = *shard.row_sink();
  if (has_sums && from != to && listed.is_sparse() &&
      listed.row_shape().initial.accumulator == 0.0F) {
    rescale_existing(listed, from, to);
    return;
  }
  const std::vector<StateItem> items = shard.state_items();
  std::vector<float> values;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].kind != "sum" || from == to) {
      continue;
    }
    const RowSet held = items[i].held();
    const std::int64_t cols = items[i].col_end - items[i].col_begin;
    for (std::int64_t first = 0; first < held.size(); first += kRows) {
      const std::int64_t rows = std::min(kRows, held.size() - first);
      values.resize(static_cast<std::size_t>(rows * cols));
      shard.read_state(i, held.row(first), rows, values.data());
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t row = held.row(first + r);
        const double before = from.of(row);
        const double after = to.of(row);
        float* const sums = values.data() + r * cols;
        for (std::int64_t c = 0; c < cols && before != after; ++c) {
          sums[c] = static_cast<float>(sums[c] * after / before);
        }
      }
      shard.write_state(i, held.row(first), rows, items[i].col_begin, items[i].col_end,
                        values.data());
    }
  }
}

}  // namespace weft::train
