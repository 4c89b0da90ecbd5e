// Rows that all ranks hold: the update of data_parallel tables, with partial sums gathered by all
// ranks and with sums made by the rows' owners (weft/sharding/owned_sums.h), turn by turn on the
// same ranks. Ranks are threads, or the processes of mpirun.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/base/philox.h"
#include "weft/comm/local/local.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/planner/place.h"
#include "weft/sharding/sharded_embeddings.h"
#include "weft/tensor/stream.h"

namespace weft::bench {
namespace {

using layout::RowSums;
using sharding::BatchView;
using sharding::ShardedEmbeddings;
using sharding::ShardedEmbeddingsOptions;
using sharding::SparseStep;

struct Options {
  std::string out;
  int rounds = 20;
  bool quick = false;
  std::vector<int> ranks = {2, 3, 4, 8, 16};
  std::int64_t tables = 8;
  std::vector<std::int64_t> rows = {100, 4000};
  std::int64_t samples = 512;  // of a rank
  std::vector<std::int64_t> dims = {16, 128};
};

struct Shape {
  int ranks = 1;
  std::int64_t tables = 1;
  std::int64_t rows = 1;
  std::int64_t samples = 1;
  std::int64_t dim = 1;
};

spec::Config config_of(const Shape& shape) {
  spec::Config config;
  config.seed = 1;
  for (std::int64_t t = 0; t < shape.tables; ++t) {
    spec::Table& table = config.tables.emplace_back();
    table.name = fmt::format("t{}", t);
    table.num_embeddings = shape.rows;
    table.embedding_dim = shape.dim;
    table.sharding = spec::Sharding::kDataParallel;
    table.optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
    spec::SparseFeature& feature = config.sparse_features.emplace_back();
    feature.name = feature.column = fmt::format("f{}", t);
    feature.table = table.name;
  }
  return config;
}

KeyedJaggedTensor batch_of(const spec::Config& config, std::int64_t rows, Range positions) {
  KeyedJaggedTensor batch;
  batch.batch = positions.size();
  batch.offsets.push_back(0);
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    batch.keys.push_back(config.sparse_features[f].name);
    for (std::int64_t p = positions.begin; p < positions.end; ++p) {
      const auto draw = philox(f, static_cast<std::uint64_t>(p), 5);
      batch.values.push_back(static_cast<std::int64_t>(draw[0] % static_cast<std::uint64_t>(rows)));
      batch.offsets.push_back(static_cast<std::int64_t>(batch.values.size()));
    }
  }
  return batch;
}

/// One rank's tables in one of the forms.
class Job {
 public:
  Job(comm::Communicator& world, const Shape& shape, RowSums sums)
      : config_(config_of(shape)),
        plan_(planner::make_plan(config_, {.ranks = world.size(), .hosts = {}})),
        device_(make_device({.kind = DeviceKind::kCpu, .threads = 1})),
        stream_(device_->make_stream({.name = "bench", .is_inline = true})) {
    plan_.parts = world.size();
    tables_.emplace(config_, plan_, world, *device_, ShardedEmbeddingsOptions{.row_sums = sums});
    step_ = tables_->make_step();
    size_ = shape.samples * world.size();
    batch_ =
        batch_of(config_, shape.rows, rank_samples(size_, plan_.parts, world.size(), world.rank()));
  }

  /// Seconds of an update.
  double update() {
    const BatchView view{
        .sparse = batch_, .step = ++number_, .global_size = size_, .sample_ids = {}};
    const std::vector<std::byte> control(8);
    stage([&](Context& ctx) { tables_->exchange_counts(ctx, *step_, view, control); });
    stage([&](Context& ctx) { tables_->exchange_ids(ctx, *step_); });
    stage([&](Context& ctx) { tables_->lookup(ctx, *step_); });
    stage([&](Context& ctx) { tables_->output_dist(ctx, *step_); });
    const Matrix<float>& gradients = step_->gradients().pooled;
    for (std::int64_t b = 0; b < gradients.rows; ++b) {
      std::fill_n(gradients.row(b), gradients.cols, 0.001F);
    }
    stage([&](Context& ctx) { tables_->coalesce(ctx, *step_); });
    stage([&](Context& ctx) { tables_->grad_dist(ctx, *step_); });
    const std::int64_t before = tables_->vector_traffic().total().bytes;
    const auto begin = std::chrono::steady_clock::now();
    stage([&](Context& ctx) {
      tables_->update(ctx, *step_,
                      {.learning_rate_factor = 1.0, .step = number_, .seed = config_.seed});
    });
    const double seconds = seconds_since(begin);
    sent_ = tables_->vector_traffic().total().bytes - before;
    return seconds;
  }

  /// Bytes of the last update.
  [[nodiscard]] std::int64_t sent() const { return sent_; }

 private:
  void stage(const Stage& body) {
    stream_->enqueue(body);
    stream_->synchronize();
  }

  spec::Config config_;
  spec::Plan plan_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::optional<ShardedEmbeddings> tables_;
  std::unique_ptr<SparseStep> step_;
  KeyedJaggedTensor batch_;
  std::int64_t size_ = 0;
  std::int64_t number_ = 0;
  std::int64_t sent_ = 0;
};

/// Seconds of the slowest rank, by form, and the bytes of rank 0.
struct Times {
  std::vector<double> seconds[2];
  std::int64_t bytes[2] = {0, 0};
};

Times measure(comm::Communicator& world, const Shape& shape, int rounds) {
  Job gathered(world, shape, RowSums::kGathered);
  Job owned(world, shape, RowSums::kOwned);
  Times times;
  Context ctx;
  for (int round = -2; round < rounds; ++round) {  // the first touch of memory is slow
    for (const int turn : {0, 1}) {
      const int form = (turn + round + 2) % 2;
      Job& job = form == 0 ? gathered : owned;
      world.barrier(ctx);
      double seconds = job.update();
      std::vector<double> all(static_cast<std::size_t>(world.size()));
      world.all_gather(ctx, &seconds, all.data(), 8);
      if (round >= 0) {
        times.seconds[form].push_back(*std::max_element(all.begin(), all.end()) * 1e3);
      }
      times.bytes[form] = job.sent();
    }
  }
  return times;
}

void add_figures(const Shape& shape, const Times& times, std::vector<Figure>& figures) {
  for (const int form : {0, 1}) {
    const std::map<std::string, std::string> parameters = {
        {"form", form == 0 ? "gathered" : "owned"},
        {"ranks", std::to_string(shape.ranks)},
        {"rows", std::to_string(shape.rows)},
        {"D", std::to_string(shape.dim)}};
    figures.push_back({.name = "update",
                       .parameters = parameters,
                       .unit = "ms",
                       .better = Better::kLower,
                       .values = times.seconds[form],
                       .limit = {}});
    figures.push_back({.name = "sent",
                       .parameters = parameters,
                       .unit = "bytes",
                       .better = Better::kLower,
                       .values = {static_cast<double>(times.bytes[form])},
                       .limit = {}});
  }
}

template <typename Run>
void for_each_shape(const Options& options, int ranks, const Run& run) {
  for (const std::int64_t rows : options.rows) {
    for (const std::int64_t dim : options.dims) {
      run(Shape{.ranks = ranks,
                .tables = options.tables,
                .rows = rows,
                .samples = options.samples,
                .dim = dim});
    }
  }
}

void finish(const Options& options, const std::vector<Figure>& figures) {
  fmt::print("{}", to_text(figures));
  if (!options.out.empty()) {
    write_json(options.out, "row_sums", figures);
  }
}

void run(const Options& options) {
  std::vector<Figure> figures;
  for (const int ranks : options.ranks) {
    for_each_shape(options, ranks, [&](const Shape& shape) {
      comm::run_local(ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
        const Times times = measure(world, shape, options.rounds);
        if (world.rank() == 0) {
          add_figures(shape, times, figures);
        }
      });
    });
  }
  finish(options, figures);
}

void run_under_mpi(const Options& options) {
  comm::MpiSession session({});
  session.run([&](comm::Communicator& world) {
    std::vector<Figure> figures;
    for_each_shape(options, world.size(), [&](const Shape& shape) {
      add_figures(shape, measure(world, shape, options.rounds), figures);
    });
    if (world.rank() == 0) {
      finish(options, figures);
    }
  });
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments(
      "Measures the update of rows that all ranks hold, gathered and by owners");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--rounds", options.rounds, "Repetitions").within(1, 10000);
  arguments.add("--ranks", options.ranks, "Ranks as threads").within(2, 256);
  arguments.add("--tables", options.tables, "Tables").positive();
  arguments.add("--rows", options.rows, "Rows of a table").positive();
  arguments.add("--samples", options.samples, "Samples of a rank").positive();
  arguments.add("--dim", options.dims, "Columns").positive();
  arguments.add_flag("--quick", options.quick, "Tiny sizes, whose figures say nothing");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  if (options.quick) {
    options.ranks = {2, 9};
    options.rows = {50};
    options.samples = 8;
    options.dims = {8};
    options.rounds = 1;
  }
  try {
    if (weft::comm::launched_by_mpi()) {
      weft::bench::run_under_mpi(options);
    } else {
      weft::bench::run(options);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "row_sums_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
