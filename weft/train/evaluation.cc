#include "weft/train/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/train/next_batch.h"

namespace weft::train {
namespace {

/// A model whose outputs are not numbers has no figures.
void say_not_numbers(const spec::Config& config,
                     const TaskFigures& task,
                     const GlobalAuc& found,
                     int rank) {
  if (found.not_numbers == 0) {
    return;
  }
  const std::string what = fmt::format(
      "evaluation: {} of {} logits of task '{}' are NaN, and so are its figures; lower the "
      "learning rate, or go on from an earlier checkpoint",
      found.not_numbers, task.samples, task.task);
  if (config.train.on_non_finite == spec::OnNonFinite::kStop) {
    fail(ErrorCode::kNonFinite, "{}; train.on_non_finite: skip only warns of it", what);
  }
  if (rank == 0) {
    log_warning("{}", what);
  }
}

}  // namespace

GlobalAuc auc_over_ranks(comm::Communicator& comm,
                         Context& ctx,
                         const metrics::AucSamples& samples) {
  std::vector<std::int64_t> histogram = samples.histogram();
  histogram.push_back(samples.not_numbers());
  comm.all_reduce(ctx, histogram.data(), static_cast<std::int64_t>(histogram.size()));
  const std::int64_t not_numbers = histogram.back();
  histogram.pop_back();
  if (not_numbers > 0) {
    return {.auc = std::nan(""), .not_numbers = not_numbers};
  }
  const auto splitters = metrics::auc_splitters(histogram, comm.size());
  const metrics::AucExchange out = samples.partition(splitters);
  std::vector<metrics::AucCounts> counts(at(comm.size()));
  comm.all_to_all(ctx, out.counts.data(), counts.data(), sizeof(metrics::AucCounts));
  std::vector<std::int64_t> send_bytes;
  std::vector<std::int64_t> recv_bytes;
  std::int64_t received = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    send_bytes.push_back(4 * (out.counts[r].positives + out.counts[r].negatives));
    recv_bytes.push_back(4 * (counts[r].positives + counts[r].negatives));
    received += recv_bytes.back();
  }
  std::vector<std::uint32_t> keys(at(received / 4));
  comm.all_to_all_v(ctx, {.send = out.keys.data(),
                          .send_bytes = send_bytes,
                          .recv = keys.data(),
                          .recv_bytes = recv_bytes});
  const metrics::AucRange own = metrics::count_range(keys, counts);
  std::vector<metrics::AucRange> ranges(at(comm.size()));
  comm.all_gather(ctx, &own, ranges.data(), sizeof(own));
  return {.auc = metrics::auc(ranges)};
}

std::optional<EvalFigures> evaluate(Engine& engine,
                                    data::Loader& loader,
                                    const spec::Config& config,
                                    const EvaluationWatch& watch) {
  const auto start = std::chrono::steady_clock::now();
  const auto tasks = config.tasks.size();
  std::vector<metrics::BinarySums> sums(tasks);
  std::vector<metrics::AucSamples> scores(tasks);
  EvalFigures result;
  data::Batch batch;
  Activity activity{.phase = Phase::kEvaluating,
                    .total = std::max<std::int64_t>(0, loader.source().size())};
  while (next_batch(loader, engine.control_comm(), batch)) {
    const StepOutcome outcome = engine.eval_step(
        {.batch = batch, .step = batch.step, .stop = watch.stop != nullptr && watch.stop->load()});
    if (outcome.stop) {
      return std::nullopt;
    }
    result.codecs += outcome.report.codecs;
    activity.done += batch.global_size;
    if (watch.on_activity) {
      watch.on_activity(activity);
    }
    const std::vector<float>& logits = engine.logits();
    for (std::size_t t = 0; t < tasks; ++t) {
      sums[t].merge(outcome.report.sums.total()[t]);
    }
    for (std::size_t i = 0; i < logits.size(); ++i) {
      scores[i % tasks].add(logits[i], batch.labels[i], batch.label_weights[i]);
    }
  }
  result.bayes_ne = loader.source().bayes_ne();
  for (std::size_t t = 0; t < tasks; ++t) {
    TaskFigures task = figures(config.tasks[t].name, sums[t]);
    GlobalAuc found;
    engine.run_stage(
        [&](Context& ctx) { found = auc_over_ranks(engine.control_comm(), ctx, scores[t]); });
    task.auc = found.auc;
    say_not_numbers(config, task, found, engine.control_comm().rank());
    result.tasks.push_back(std::move(task));
  }
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace weft::train
