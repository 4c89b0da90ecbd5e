// What lies between the reader's batch and the lookup, and between lookup and model and back: each
// exchange as a share of the rate at which this machine copies memory.
//
// Work is the bytes that a rank must read and write at least: an id that is sent is narrowed (8
// read, 1, 2 or 4 written) and widened; a vector or gradient of another rank is read once and
// written once; of bags that are added at the sample every id's vector is read, and every bag's
// written; a sum is added from every rank's partial sum and copied to every other rank. What a rank
// serves for itself is no work: with one rank only the check of the ids is left, which reads them,
// and what is done at the sample. Under mpirun the ranks are its processes, else threads.
//
// What the exchanges of ids, vectors and gradients send is counted and must be, to the byte, what
// docs/sharding.md says; the benchmark ends with an error where it is not.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/base/philox.h"
#include "weft/comm/local/local.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/planner/place.h"
#include "weft/sharding/input_dist.h"
#include "weft/sharding/output_dist.h"

namespace weft::bench {
namespace {

struct Options {
  std::string out;
  int rounds = 5;
  double budget_s = 0.1;  // of one measurement
  int threads = 0;        // of a rank; 0: as many as cores, shared by the ranks
  bool quick = false;     // tiny sizes, whose figures say nothing
};

/// One batch as a job of the benchmark suite has it.
struct Shape {
  std::string name;
  std::int64_t batch = 0;  ///< global
  std::int64_t dim = 0;
  std::vector<std::int64_t> lengths;  ///< of the bags of each feature
  spec::Sharding sharding = spec::Sharding::kTableWise;
  spec::RowSplit row_split = spec::RowSplit::kRange;
  spec::PooledAt pooled_at = spec::PooledAt::kAuto;
};

std::vector<Shape> make_shapes(bool quick) {
  const std::vector<std::int64_t> single(26, 1);
  const std::vector<std::int64_t> multi = {3, 2, 1, 2, 6, 1, 1,  1,   1,  7,  3, 8, 1,
                                           6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1};
  using spec::Sharding;
  Shape kaggle{.name = "dlrm_kaggle", .batch = 16384, .dim = 16, .lengths = single};
  Shape mlperf{.name = "dcnv2_mlperf", .batch = 4096, .dim = 128, .lengths = multi};
  if (quick) {
    kaggle.batch = mlperf.batch = 64;
  }
  std::vector<Shape> shapes;
  const auto add = [&](Shape shape, const std::string& what, Sharding sharding) -> Shape& {
    shape.name += what;
    shape.sharding = sharding;
    return shapes.emplace_back(std::move(shape));
  };
  add(kaggle, "", Sharding::kTableWise);
  add(kaggle, ", row_wise", Sharding::kRowWise);
  add(mlperf, "", Sharding::kTableWise);
  add(mlperf, ", row_wise", Sharding::kRowWise);
  add(mlperf, ", row_wise modulo", Sharding::kRowWise).row_split = spec::RowSplit::kModulo;
  add(mlperf, ", row_wise at samples", Sharding::kRowWise).pooled_at = spec::PooledAt::kSample;
  add(mlperf, ", column_wise", Sharding::kColumnWise);
  add(mlperf, ", grid_shard", Sharding::kGridShard);
  return shapes;
}

spec::Config make_config(const Shape& shape) {
  spec::Config config;
  for (std::size_t f = 0; f < shape.lengths.size(); ++f) {
    spec::Table table;
    table.name = "t" + std::to_string(f);
    table.num_embeddings = 100'000;
    table.embedding_dim = shape.dim;
    table.sharding = shape.sharding;
    table.row_split = shape.row_split;
    table.pooled_at = shape.pooled_at;
    config.tables.push_back(table);
    spec::SparseFeature feature;
    feature.name = feature.column = "f" + std::to_string(f);
    feature.table = table.name;
    config.sparse_features.push_back(feature);
  }
  return config;
}

/// Grids are two cuts of rows and as many of columns as two ranks can have: more than the planner
/// makes of one host of two ranks.
spec::Plan make_plan(const spec::Config& config, std::int64_t ranks) {
  spec::Plan plan = planner::make_plan(config, ranks);
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    spec::TablePlan& table = plan.tables[t];
    if (table.sharding != spec::Sharding::kGridShard) {
      continue;
    }
    const std::int64_t columns = std::min<std::int64_t>(2, ranks);
    const std::int64_t width = config.tables[t].embedding_dim / columns;
    std::vector<spec::Shard> shards;
    for (std::int64_t r = 0; r < 2; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        shards.push_back({.rank = (columns * r + c + static_cast<std::int64_t>(t)) % ranks,
                          .rows = piece(config.tables[t].num_embeddings, 2, r),
                          .cols = {c * width, (c + 1) * width}});
      }
    }
    table.shards = std::move(shards);
  }
  planner::check_plan(plan, config);
  return plan;
}

KeyedJaggedTensor make_batch(const Shape& shape, std::int64_t size, std::uint64_t seed) {
  KeyedJaggedTensor batch;
  batch.batch = size;
  batch.offsets.push_back(0);
  for (std::size_t f = 0; f < shape.lengths.size(); ++f) {
    batch.keys.push_back("f" + std::to_string(f));
    for (std::int64_t b = 0; b < size; ++b) {
      for (std::int64_t i = 0; i < shape.lengths[f]; ++i) {
        const auto word =
            philox(seed + f, static_cast<std::uint64_t>(b), static_cast<std::uint64_t>(i))[0];
        batch.values.push_back(word % 100'000);
      }
      batch.offsets.push_back(static_cast<std::int64_t>(batch.values.size()));
    }
  }
  return batch;
}

/// Measures on all ranks at once; the figures are of rank 0.
class Bench {
 public:
  Bench(const Options& options, comm::Communicator& world, Device& device)
      : options_(options),
        world_(world),
        context_{.device = &device, .pool = &device.pool()},
        from_(device),
        to_(device) {}

  [[nodiscard]] Context& context() { return context_; }

  /// One repetition of one figure: `bytes` that the rank moves in `body`.
  void measure(const std::string& name,
               const std::string& shape,
               std::int64_t bytes,
               const std::function<void()>& body) {
    const double limit = bytes == 0 ? 0.0 : copy_rate(bytes);
    const double seconds = best_of(body);
    add(name, shape, bytes, seconds, limit);
  }

  [[nodiscard]] const std::vector<Figure>& figures() const { return figures_; }

 private:
  /// Seconds of the shortest pass; all ranks make as many.
  double best_of(const std::function<void()>& body) {
    const auto timed = [&] {
      world_.barrier(context_);
      const auto begin = std::chrono::steady_clock::now();
      body();
      return seconds_since(begin);
    };
    // Memory that was not touched for a while is slow at first.
    double best = std::min({timed(), timed(), timed()});
    std::int64_t passes = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(options_.budget_s / std::max(best, 1e-7)), 3, 2000);
    world_.broadcast(context_, &passes, sizeof(passes), 0);
    for (std::int64_t i = 0; i < passes; ++i) {
      best = std::min(best, timed());
    }
    return best;
  }

  /// Bytes per second of reading and writing `bytes` in all from end to end, with all threads.
  double copy_rate(std::int64_t bytes) {
    const std::int64_t half = std::max<std::int64_t>(bytes / 2, 4096);
    from_.resize(half);
    to_.resize(half);
    std::memset(from_.as<void>(), 1, static_cast<std::size_t>(half));
    const std::int64_t threads = context_.pool->threads();
    const double seconds = best_of([&] {
      context_.pool->parallel_for(threads, [&](std::int64_t thread) {
        const Range own = piece(half, threads, thread);
        std::memcpy(to_.as<std::byte>() + own.begin, from_.as<std::byte>() + own.begin,
                    static_cast<std::size_t>(own.size()));
      });
    });
    return 2.0 * static_cast<double>(half) / seconds;
  }

  void add(const std::string& name,
           const std::string& shape,
           std::int64_t bytes,
           double seconds,
           double limit) {
    const std::map<std::string, std::string> parameters = {
        {"shape", shape},
        {"ranks", fmt::format("{} {}", world_.size(), comm::launched_by_mpi() ? "mpi" : "local")},
        {"threads", std::to_string(context_.pool->threads())}};
    const auto is_it = [&](const Figure& figure) {
      return figure.name == name && figure.parameters == parameters;
    };
    auto figure = std::find_if(figures_.begin(), figures_.end(), is_it);
    if (figure == figures_.end()) {
      Figure fresh;
      fresh.name = name;
      fresh.parameters = parameters;
      figures_.push_back(std::move(fresh));
      figure = figures_.end() - 1;
    }
    if (bytes == 0) {
      figure->unit = "us";
      figure->better = Better::kLower;
      figure->values.push_back(seconds * 1e6);
      return;
    }
    figure->unit = "GB/s";
    figure->values.push_back(static_cast<double>(bytes) / seconds / 1e9);
    figure->limit = figure->limit.value_or(Limit{"copy", {}});
    figure->limit->values.push_back(limit / 1e9);
  }

  const Options& options_;
  comm::Communicator& world_;
  Context context_;
  Buffer from_, to_;
  std::vector<Figure> figures_;
};

/// What a rank asks of a slot, counted in its batch (docs/sharding.md).
struct Asked {
  std::int64_t ids = 0;        ///< sent; of a fetched table (row, subtree) pairs
  std::int64_t ids_bytes = 0;  ///< with lengths
  std::int64_t vectors = 0;    ///< that come back
  std::int64_t gradients = 0;  ///< that go out
};

/// A rank's batch, and what it asks for.
class Sample {
 public:
  Sample(const Shape& shape, const sharding::Routing& routing, std::int64_t rank)
      : routing_(routing),
        batch_(make_batch(shape,
                          routing.own_samples(shape.batch, rank).size(),
                          static_cast<std::uint64_t>(rank) * 1000)) {
    const std::vector<Range> nodes = routing.nodes(rank);
    subtrees_ = static_cast<std::int64_t>(nodes.size());
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      for (std::int64_t part = nodes[n].begin; part < nodes[n].end; ++part) {
        const Range of_part = part_samples(shape.batch, routing.parts, part);
        subtree_.insert(subtree_.end(), static_cast<std::size_t>(of_part.size()), n);
      }
    }
  }

  [[nodiscard]] const KeyedJaggedTensor& batch() const { return batch_; }

  [[nodiscard]] Asked asked(const sharding::Slot& slot) const {
    return slot.path == sharding::Path::kUniqueRows ? asked_rows(slot) : asked_bags(slot);
  }

 private:
  [[nodiscard]] Asked asked_bags(const sharding::Slot& slot) const {
    const JaggedView bags = batch_.feature(slot.feature);
    Asked asked;
    std::int64_t longest = 0;
    std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t b = 0; b < bags.batch(); ++b) {
      std::int64_t ids = 0;
      for (std::int64_t i = 0; i < bags.length(b); ++i) {
        ids += slot.rows.contains(id(bags, b, i)) ? 1 : 0;
      }
      asked.ids += ids;
      asked.vectors += ids > 0 ? 1 : 0;
      longest = std::max(longest, ids);
      shortest = std::min(shortest, ids);
    }
    asked.gradients = asked.vectors;
    const bool is_split = slot.path == sharding::Path::kSplitBags;
    const std::int64_t length_bytes = longest == shortest ? 0 : longest <= 0xff ? 1 : 2;
    const std::int64_t bag_bytes = bags.batch() <= 256 ? 1 : 2;
    asked.ids_bytes =
        slot.id_bytes * asked.ids + (is_split && 2 * asked.ids * bag_bytes <= bags.batch()
                                         ? bag_bytes * asked.ids
                                         : length_bytes * bags.batch());
    return asked;
  }

  [[nodiscard]] Asked asked_rows(const sharding::Slot& slot) const {
    const sharding::RowFetch& fetch = routing_.fetches[static_cast<std::size_t>(slot.fetch)];
    std::vector<std::pair<std::int64_t, std::size_t>> pairs;
    for (const std::int64_t f : fetch.features) {
      const JaggedView bags = batch_.feature(f);
      for (std::int64_t b = 0; b < bags.batch(); ++b) {
        for (std::int64_t i = 0; i < bags.length(b); ++i) {
          if (slot.rows.contains(id(bags, b, i))) {
            pairs.emplace_back(id(bags, b, i), subtree_[static_cast<std::size_t>(b)]);
          }
        }
      }
    }
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    const auto count = static_cast<std::int64_t>(pairs.size());
    Asked asked{.ids = count,
                .ids_bytes = 8 * subtrees_ + slot.id_bytes * count,
                .vectors = 0,
                .gradients = count};
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      asked.vectors += i == 0 || pairs[i].first != pairs[i - 1].first ? 1 : 0;
    }
    return asked;
  }

  [[nodiscard]] static std::int64_t id(const JaggedView& bags, std::int64_t b, std::int64_t i) {
    return bags.values[static_cast<std::size_t>(bags.offsets[static_cast<std::size_t>(b)] + i)];
  }

  const sharding::Routing& routing_;
  KeyedJaggedTensor batch_;
  std::int64_t subtrees_ = 0;
  std::vector<std::size_t> subtree_;  // of each sample
};

/// What a rank sends to others, and moves.
struct Travel {
  std::int64_t sent_ids_bytes = 0;
  std::int64_t served_ids_bytes = 0;
  std::int64_t served_ids = 0;
  std::int64_t served_bags = 0;
  std::int64_t sent_vector_bytes = 0;
  std::int64_t sent_gradient_bytes = 0;
  std::int64_t moved_vector_bytes = 0;    ///< of others, or of the own shard of a split feature
  std::int64_t moved_gradient_bytes = 0;  ///< of others, or into sums of a fetched table
  std::int64_t pooled_bytes = 0;          ///< read and written where bags are added at the sample
};

class ExchangeBench {
 public:
  ExchangeBench(Bench& bench, const Shape& shape, comm::Communicator& world, Device& device)
      : bench_(bench),
        shape_(shape),
        world_(world),
        config_(make_config(shape)),
        plan_(make_plan(config_, world.size())),
        routing_(config_, plan_),
        ids_(world.duplicate("ids")),
        vectors_(world.duplicate("vectors")),
        paths_(config_, routing_, world.rank()),
        input_(paths_, *ids_, device),
        output_(paths_, *vectors_),
        ids_step_(routing_, world.rank(), 8),
        vectors_step_(output_.make_step(config_, device, {}, nullptr)),
        own_(shape, routing_, world.rank()),
        travel_(travels()) {}

  void run() {
    Context& ctx = bench_.context();
    const std::vector<std::byte> control(8);
    const KeyedJaggedTensor& batch = own_.batch();
    const sharding::BatchView view{
        .sparse = batch, .step = 1, .global_size = shape_.batch, .sample_ids = {}};
    const auto counts = [&] { input_.exchange_counts(ctx, ids_step_, view, control); };
    const auto ids = [&] { input_.exchange_ids(ctx, ids_step_); };
    const auto forward = [&] { output_.forward(ctx, ids_step_, *vectors_step_, 0); };
    const auto backward = [&] { output_.backward(ctx, ids_step_, *vectors_step_, 0); };
    counts();
    check_sent("ids", *ids_, travel_.sent_ids_bytes, ids);
    output_.prepare(ids_step_, *vectors_step_);
    sharding::OutputDist::clear_grown(ctx, *vectors_step_);
    check_sent("vectors", *vectors_, travel_.sent_vector_bytes, forward);
    check_sent("gradients", *vectors_, travel_.sent_gradient_bytes, backward);
    const auto all_ids = static_cast<std::int64_t>(batch.values.size());
    bench_.measure("check and pack ids", shape_.name, 8 * all_ids + travel_.sent_ids_bytes, counts);
    bench_.measure("exchange of ids", shape_.name,
                   travel_.served_ids_bytes + 8 * (travel_.served_ids + travel_.served_bags), ids);
    bench_.measure("output dist", shape_.name,
                   2 * travel_.moved_vector_bytes + travel_.pooled_bytes, forward);
    bench_.measure("gradient dist", shape_.name,
                   2 * travel_.moved_gradient_bytes + travel_.pooled_bytes, backward);
  }

 private:
  /// Over `comm`, by one call of `exchange`.
  void check_sent(const std::string& what,
                  const comm::Communicator& comm,
                  std::int64_t expected,
                  const std::function<void()>& exchange) const {
    const std::int64_t before = comm.traffic().total().bytes;
    exchange();
    const std::int64_t sent = comm.traffic().total().bytes - before;
    if (sent != expected) {
      fail(ErrorCode::kInternal, "{}: rank {} of {} sends {} bytes of {}, and should send {}",
           shape_.name, world_.rank(), world_.size(), sent, what, expected);
    }
  }

  [[nodiscard]] Travel travels() const {
    Travel travel;
    const std::int64_t rank = world_.rank();
    for (std::int64_t r = 0; r < routing_.ranks; ++r) {
      if (r == rank) {
        add_asked(own_, travel);
      } else {
        add_served(Sample(shape_, routing_, r), r, travel);
      }
    }
    for (const sharding::RowFetch& fetch : routing_.fetches) {
      for (const std::int64_t f : fetch.features) {
        const JaggedView bags = own_.batch().feature(f);
        travel.pooled_bytes += 4 * fetch.dim * (bags.num_values() + bags.batch());
      }
    }
    return travel;
  }

  /// What this rank asks of every other, and of itself where that is moved.
  void add_asked(const Sample& own, Travel& travel) const {
    for (std::int64_t r = 0; r < routing_.ranks; ++r) {
      const auto slots = routing_.slots_of(r);
      for (std::size_t j = 0; j < slots.size(); ++j) {
        const sharding::SlotAddress address{r, static_cast<std::int64_t>(j)};
        if (routing_.path(address, world_.rank()) == sharding::Path::kInPlace) {
          continue;
        }
        const Asked asked = own.asked(slots[j]);
        travel.moved_vector_bytes += 4 * asked.vectors * slots[j].dim();
        if (r != world_.rank()) {
          travel.sent_ids_bytes += asked.ids_bytes;
          travel.sent_gradient_bytes += 4 * asked.gradients * slots[j].dim();
        } else if (slots[j].path == sharding::Path::kUniqueRows) {
          travel.moved_gradient_bytes += 4 * asked.gradients * slots[j].dim();
        }
      }
    }
  }

  /// What another rank asks of this one.
  void add_served(const Sample& other, std::int64_t rank, Travel& travel) const {
    for (const sharding::Slot& slot : routing_.slots_of(world_.rank())) {
      const Asked asked = other.asked(slot);
      travel.served_ids += asked.ids;
      travel.served_ids_bytes += asked.ids_bytes;
      travel.served_bags += slot.path == sharding::Path::kUniqueRows
                                ? 0
                                : routing_.own_samples(shape_.batch, rank).size();
      travel.sent_vector_bytes += 4 * asked.vectors * slot.dim();
      travel.moved_gradient_bytes += 4 * asked.gradients * slot.dim();
    }
  }

  Bench& bench_;
  const Shape& shape_;
  comm::Communicator& world_;
  spec::Config config_;
  spec::Plan plan_;
  sharding::Routing routing_;
  std::unique_ptr<comm::Communicator> ids_, vectors_;
  sharding::Paths paths_;
  sharding::InputDist input_;
  sharding::OutputDist output_;
  sharding::InputStep ids_step_;
  std::unique_ptr<sharding::OutputStep> vectors_step_;
  Sample own_;
  Travel travel_;
};

/// The exchange itself, and the sum of the dense parameters' gradients.
void run_collectives(Bench& bench, bool quick, comm::Communicator& world, Device& device) {
  const std::int64_t size = quick ? 1 : 32;
  const std::int64_t run_bytes = size << 20;
  const std::int64_t ranks = world.size();
  Buffer from(device, run_bytes);
  Buffer to(device, run_bytes);
  std::fill_n(from.as<std::byte>(), run_bytes, std::byte{1});
  bench.measure("exchange of runs", fmt::format("{} MiB", size), 2 * run_bytes, [&] {
    world.all_to_all(bench.context(), from.as<void>(), to.as<void>(), run_bytes / ranks);
  });
  const std::int64_t count = (quick ? std::int64_t{1} : std::int64_t{16}) << 20;
  comm::OrderedAllReduce reduce(world, device, std::max<std::int64_t>(8, ranks), count);
  const std::vector<std::uint8_t> present(static_cast<std::size_t>(reduce.num_partials()), 1);
  std::fill_n(reduce.partial(0), reduce.num_partials() * count, 0.0F);
  const std::int64_t slice = 4 * count / ranks;
  // Of its slice a rank reads every rank's term and writes the sum; the other slices are copied.
  const std::int64_t bytes = ranks == 1 ? 0 : (ranks + 1) * slice + 2 * (ranks - 1) * slice;
  bench.measure("sum of dense gradients", fmt::format("{} Mi", count >> 20), bytes,
                [&] { reduce.run(bench.context(), present); });
}

std::vector<Figure> run_ranks(const Options& options, comm::Communicator& world, int threads) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = threads});
  Bench bench(options, world, *device);
  const std::vector<Shape> shapes = make_shapes(options.quick);
  std::vector<std::unique_ptr<ExchangeBench>> exchanges;
  for (const Shape& shape : shapes) {
    exchanges.push_back(std::make_unique<ExchangeBench>(bench, shape, world, *device));
  }
  for (int round = 0; round < options.rounds; ++round) {
    run_collectives(bench, options.quick, world, *device);
    for (const auto& exchange : exchanges) {
      exchange->run();
    }
  }
  return bench.figures();
}

int threads_of(const Options& options, int ranks) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return options.threads > 0 ? options.threads : std::max(1, cores / ranks);
}

void run(const Options& options) {
  std::vector<Figure> figures;
  bool first = true;
  if (comm::launched_by_mpi()) {
    comm::MpiSession session({});
    session.run([&](comm::Communicator& world) {
      figures = run_ranks(options, world, threads_of(options, world.size()));
      first = world.rank() == 0;
    });
  } else {
    for (const int ranks : {1, 2}) {
      comm::run_local(ranks, {}, [&](comm::Communicator& world) {
        std::vector<Figure> own = run_ranks(options, world, threads_of(options, ranks));
        if (world.rank() == 0) {
          figures.insert(figures.end(), own.begin(), own.end());
        }
      });
    }
  }
  if (first) {
    fmt::print("{}", to_text(figures));
  }
  if (first && !options.out.empty()) {
    write_json(options.out, "dist", figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments(
      "Measures the exchanges of a step against the rate of memory copies");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--rounds", options.rounds, "Repetitions").within(1, 1000);
  arguments.add("--probe-seconds", options.budget_s, "How long one measurement takes");
  arguments.add("--threads", options.threads, "Of each rank; 0: cores / ranks");
  arguments.add_flag("--quick", options.quick, "Tiny sizes, whose figures say nothing");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dist_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
