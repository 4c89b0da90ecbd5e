// Messages and bytes of one training step, counted by parts of the step on ranks as threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/base/parts.h"
#include "weft/base/philox.h"
#include "weft/base/step_part.h"
#include "weft/comm/local/local.h"
#include "weft/data/batch.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"
#include "weft/trace/recorder.h"
#include "weft/train/engine.h"

namespace weft::train {

/// How ids are made.
enum class IdKind {
  kDealt,  ///< sample p has row p mod E: every sum that the planner expects is exact
  kDrawn,  ///< drawn evenly: it is right on average
};

/// The samples of a rank: `max_length` ids in every bag of a feature, dense values and labels
/// alike.
inline data::Batch make_batch(const spec::Config& config,
                              const spec::Plan& plan,
                              std::int64_t rank,
                              IdKind ids) {
  data::Batch batch;
  batch.global_size = config.batch_size;
  batch.positions = rank_samples(config.batch_size, plan.parts, plan.world(), rank);
  const auto size = static_cast<std::size_t>(batch.size());
  batch.sparse.batch = batch.size();
  batch.sparse.offsets.push_back(0);
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    const spec::SparseFeature& feature = config.sparse_features[f];
    batch.sparse.keys.push_back(feature.name);
    const std::int64_t rows =
        config.tables[static_cast<std::size_t>(spec::table_index(config, feature))].num_embeddings;
    for (std::int64_t p = batch.positions.begin; p < batch.positions.end; ++p) {
      for (std::int64_t i = 0; i < config.data.synthetic.columns[f].max_length; ++i) {
        const auto draw = philox(f, static_cast<std::uint64_t>(p), static_cast<std::uint64_t>(i));
        batch.sparse.values.push_back(ids == IdKind::kDealt ? p % rows : draw[0] % rows);
        batch.sparse.weights.push_back(1.0F);
      }
      batch.sparse.offsets.push_back(static_cast<std::int64_t>(batch.sparse.values.size()));
    }
  }
  for (std::int64_t p = batch.positions.begin; p < batch.positions.end; ++p) {
    batch.sample_ids.push_back(p);
  }
  batch.dense.assign(size * config.dense_features.size(), 0.5F);
  batch.labels.assign(size * config.tasks.size(), 1.0F);
  batch.label_weights.assign(size * config.tasks.size(), 1.0F);
  return batch;
}

/// What a rank sent to others.
struct Sent {
  std::int64_t exchanges = 0;
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
  std::int64_t cross_host_messages = 0;

  void add(const trace::Collective& one) {
    ++exchanges;
    messages += one.messages;
    bytes += one.bytes;
    cross_host_messages += one.cross_host_messages;
  }
};

/// Of one rank and step.
struct StepTraffic {
  std::array<Sent, kStepParts> parts;  ///< by StepPart
  Sent all;

  [[nodiscard]] const Sent& of(StepPart part) const {
    return parts[static_cast<std::size_t>(part)];
  }
};

/// The part in which a span ran: that of the innermost span around it, which ends later.
inline std::size_t part_around(std::span<const trace::Span> spans, std::size_t inner) {
  for (std::size_t i = inner + 1; i < spans.size(); ++i) {
    const auto found = std::find(kStepPartNames.begin(), kStepPartNames.end(), spans[i].name);
    if (found != kStepPartNames.end() && spans[i].begin_ns <= spans[inner].begin_ns &&
        spans[i].end_ns >= spans[inner].end_ns) {
      return static_cast<std::size_t>(found - kStepPartNames.begin());
    }
  }
  return kStepParts;
}

/// [ranks] the traffic of a training step. Where the plan has hosts, ranks pass for theirs.
inline std::vector<StepTraffic> step_traffic(const spec::Config& config,
                                             const spec::Plan& plan,
                                             IdKind ids) {
  const std::int64_t ranks = plan.world();
  std::vector<StepTraffic> traffic(static_cast<std::size_t>(ranks));
  const std::vector<int> hosts(plan.hosts.begin(), plan.hosts.end());
  comm::run_local(static_cast<int>(ranks), {.timeout_s = 60, .hosts = hosts},
                  [&](comm::Communicator& world) {
                    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
                    trace::Recorder recorder;
                    Engine engine(config, plan, world, *device, {.recorder = &recorder});
                    recorder.start();
                    const data::Batch batch = make_batch(config, plan, world.rank(), ids);
                    engine.train_step({.batch = batch, .step = 1});
                    engine.run_stage([](Context&) {});  // behind a sync beside the step
                    recorder.stop();
                    StepTraffic& own = traffic[static_cast<std::size_t>(world.rank())];
                    for (const trace::Track& track : recorder.tracks()) {
                      const auto spans = track.spans();
                      for (std::size_t i = 0; i < spans.size(); ++i) {
                        if (spans[i].collective < 0) {
                          continue;
                        }
                        own.all.add(track.collective(spans[i]));
                        if (const std::size_t part = part_around(spans, i); part < kStepParts) {
                          own.parts[part].add(track.collective(spans[i]));
                        }
                      }
                    }
                  });
  return traffic;
}

}  // namespace weft::train
