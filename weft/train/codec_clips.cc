#include "weft/train/codec_clips.h"

#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "weft/base/log.h"

namespace weft::train {

CodecReport sum_clips(Engine& engine, const spec::Config& config, Summary& summary) {
  constexpr std::size_t kCounts = 4;
  std::vector<std::int64_t> counts;
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    const auto clips = engine.codec_clips(static_cast<std::int64_t>(t));
    counts.insert(counts.end(), {clips.forward.non_finite, clips.forward.clipped,
                                 clips.backward.non_finite, clips.backward.clipped});
  }
  const kernels::CodecClips dense = engine.codec_report().dense;
  const sharding::SyncClips sync = engine.codec_report().sync;
  counts.insert(counts.end(), {dense.non_finite, dense.clipped, sync.codec.non_finite,
                               sync.codec.clipped, sync.kept});
  engine.run_stage([&](Context& ctx) {
    engine.control_comm().all_reduce(ctx, counts.data(), static_cast<std::int64_t>(counts.size()));
  });
  CodecReport total;
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    const std::int64_t* const of = counts.data() + kCounts * t;
    const sharding::TableClips clips{.forward = {.non_finite = of[0], .clipped = of[1]},
                                     .backward = {.non_finite = of[2], .clipped = of[3]}};
    if (clips != sharding::TableClips{}) {
      summary.codec_clips.emplace_back(config.tables[t].name, clips);
      total.table = total.table < 0 ? static_cast<std::int64_t>(t) : total.table;
    }
    total.clips.forward += clips.forward;
    total.clips.backward += clips.backward;
  }
  const std::int64_t* const of_dense = counts.data() + kCounts * config.tables.size();
  total.dense = {.non_finite = of_dense[0], .clipped = of_dense[1]};
  summary.dense_codec_clips = total.dense;
  total.sync = {.codec = {.non_finite = of_dense[2], .clipped = of_dense[3]}, .kept = of_dense[4]};
  summary.sync_codec_clips = total.sync;
  return total;
}

void warn_of_clips(const spec::Config& config,
                   const CodecReport& now,
                   const CodecReport& before,
                   std::string_view when) {
  if (now.clips != before.clips) {
    const auto& [forward, backward] = now.clips;
    log_warning(
        "codecs, {}: cut off as too large {} numbers of vectors ({}) and {} of gradients ({}); not "
        "finite {} and {}; first in table {}. A wider format loses none (docs/codecs.md)",
        when, forward.clipped - before.clips.forward.clipped, to_string(config.codecs.forward),
        backward.clipped - before.clips.backward.clipped, to_string(config.codecs.backward),
        forward.non_finite - before.clips.forward.non_finite,
        backward.non_finite - before.clips.backward.non_finite,
        config.tables[static_cast<std::size_t>(now.table)].name);
  }
  if (now.dense != before.dense) {
    log_warning(
        "codecs, {}: cut off as too large {} numbers of sums of dense gradients ({}); not finite "
        "{}. A wider format loses none (docs/codecs.md)",
        when, now.dense.clipped - before.dense.clipped, to_string(config.codecs.dense),
        now.dense.non_finite - before.dense.non_finite);
  }
  if (now.sync != before.sync) {
    log_warning(
        "codecs, {}: of syncs of replica groups ({}): cut off as too large {} numbers; not finite "
        "{}; left as they were at the sync before, as they would not be finite, or be negative "
        "moments, {}. A wider format, or smaller codecs.group_size, loses fewer (docs/2d.md)",
        when, to_string(config.codecs.sync), now.sync.codec.clipped - before.sync.codec.clipped,
        now.sync.codec.non_finite - before.sync.codec.non_finite, now.sync.kept - before.sync.kept);
  }
}

}  // namespace weft::train
