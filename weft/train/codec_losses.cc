#include "weft/train/codec_losses.h"

#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "weft/base/log.h"

namespace weft::train {

CodecReport sum_losses(Engine& engine, const spec::Config& config, Summary& summary) {
  constexpr std::size_t kCounts = 4;
  std::vector<std::int64_t> counts;
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    const auto losses = engine.embeddings().codec_losses(static_cast<std::int64_t>(t));
    counts.insert(counts.end(), {losses.forward.non_finite, losses.forward.saturated,
                                 losses.backward.non_finite, losses.backward.saturated});
  }
  const sharding::CodecLosses dense = engine.codec_report().dense;
  const sharding::SyncLosses sync = engine.codec_report().sync;
  counts.insert(counts.end(), {dense.non_finite, dense.saturated, sync.codec.non_finite,
                               sync.codec.saturated, sync.kept});
  engine.run_stage([&](Context& ctx) {
    engine.control_comm().all_reduce(ctx, counts.data(), static_cast<std::int64_t>(counts.size()));
  });
  CodecReport total;
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    const std::int64_t* const of = counts.data() + kCounts * t;
    const sharding::TableLosses losses{.forward = {.non_finite = of[0], .saturated = of[1]},
                                       .backward = {.non_finite = of[2], .saturated = of[3]}};
    if (losses != sharding::TableLosses{}) {
      summary.codec_losses.emplace_back(config.tables[t].name, losses);
      total.table = total.table < 0 ? static_cast<std::int64_t>(t) : total.table;
    }
    total.losses.forward += losses.forward;
    total.losses.backward += losses.backward;
  }
  const std::int64_t* const of_dense = counts.data() + kCounts * config.tables.size();
  total.dense = {.non_finite = of_dense[0], .saturated = of_dense[1]};
  summary.dense_codec_losses = total.dense;
  total.sync = {.codec = {.non_finite = of_dense[2], .saturated = of_dense[3]},
                .kept = of_dense[4]};
  summary.sync_codec_losses = total.sync;
  return total;
}

void warn_of_losses(const spec::Config& config,
                    const CodecReport& now,
                    const CodecReport& before,
                    std::string_view when) {
  if (now.losses != before.losses) {
    const auto& [forward, backward] = now.losses;
    log_warning(
        "codecs, {}: cut off as too large {} numbers of vectors ({}) and {} of gradients ({}); not "
        "finite {} and {}; first in table {}. A wider format loses none (docs/codecs.md)",
        when, forward.saturated - before.losses.forward.saturated, to_string(config.codecs.forward),
        backward.saturated - before.losses.backward.saturated, to_string(config.codecs.backward),
        forward.non_finite - before.losses.forward.non_finite,
        backward.non_finite - before.losses.backward.non_finite,
        config.tables[static_cast<std::size_t>(now.table)].name);
  }
  if (now.dense != before.dense) {
    log_warning(
        "codecs, {}: cut off as too large {} numbers of sums of dense gradients ({}); not finite "
        "{}. A wider format loses none (docs/codecs.md)",
        when, now.dense.saturated - before.dense.saturated, to_string(config.codecs.dense),
        now.dense.non_finite - before.dense.non_finite);
  }
  if (now.sync != before.sync) {
    log_warning(
        "codecs, {}: of syncs of replica groups ({}): cut off as too large {} numbers; not finite "
        "{}; left as they were at the sync before, as they would not be finite, or be negative "
        "moments, {}. A wider format, or smaller codecs.group_size, loses fewer (docs/2d.md)",
        when, to_string(config.codecs.sync), now.sync.codec.saturated - before.sync.codec.saturated,
        now.sync.codec.non_finite - before.sync.codec.non_finite, now.sync.kept - before.sync.kept);
  }
}

}  // namespace weft::train
