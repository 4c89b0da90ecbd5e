// The sparse part of a step over a cache in which every row has a slot, by parts, beside the same
// part over rows that lie in order: what the cache adds per id.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "weft/base/at.h"
#include "weft/base/thread_pool.h"
#include "weft/data/zipf.h"
#include "weft/kernels/coalesce.h"
#include "weft/kernels/distinct_rows.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/kernels/initial_values.h"
#include "weft/kernels/sparse_update.h"
#include "weft/optim/sparse.h"
#include "weft/storage/memory_backing.h"
#include "weft/storage/row_cache.h"

namespace weft::bench {
namespace {

struct Options {
  std::string out;
  int rounds = 25;
  std::int64_t tables = 8;
  std::int64_t rows = 400'000;
  std::int64_t batch = 4096;
  std::vector<std::int64_t> lengths = {1};
  std::vector<std::int64_t> ways = {8, 32};
  std::vector<double> zipf = {0.0, 1.05};
  std::int64_t dim = 64;
};

/// Of the thread, so that what else runs on the machine counts less.
double now() {
  std::timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// One table twice: rows in their order, and rows in a cache that holds all of them.
class Pair {
 public:
  Pair(Device& device, const spec::Table& table, const layout::CacheShape& shape)
      : table_(table),
        store_(device, table, table.num_embeddings, table.embedding_dim),
        below_(store_.row_bytes()),
        cache_(device,
               {.table = table,
                .rows = table.num_embeddings,
                .cols = table.embedding_dim,
                .shape = shape},
               below_,
               [](Context& ctx, const kernels::RowTable& rows, auto numbers, auto slots) {
                 const kernels::InitialRows job{.table = rows,
                                                .rows = {0, std::ssize(numbers)},
                                                .numbers = numbers.data(),
                                                .slots = slots.data(),
                                                .state_floats = 1};
                 kernels::set_initial_rows(ctx, std::span(&job, 1));
               }),
        batch_(cache_.make_batch()),
        dense_runs_(device),
        tier_runs_(device),
        distinct_(device),
        slots_(device) {}

  spec::Table table_;
  storage::RowStore store_;
  storage::MemoryBacking below_;
  storage::RowCache cache_;
  std::unique_ptr<storage::ResidentRows> batch_;
  kernels::RunBuffers dense_runs_, tier_runs_;
  kernels::DistinctBuffers distinct_;
  kernels::DistinctRows rows_;
  Buffer slots_;
  std::vector<std::int64_t> ids_;
  kernels::Bags bags_;
  kernels::RowRuns runs_;
};

class Case {
 public:
  Case(const Options& options, std::int64_t length, std::int64_t ways, double zipf)
      : options_(options),
        length_(length),
        parameters_{{"L", std::to_string(length)},
                    {"ways", std::to_string(ways)},
                    {"ids", zipf == 0.0 ? "uniform" : fmt::format("zipf {}", zipf)},
                    {"D", std::to_string(options.dim)}},
        sampler_(options.rows, zipf) {
    spec::Table table;
    table.name = "clicks";
    table.num_embeddings = options.rows;
    table.embedding_dim = options.dim;
    table.optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
    const layout::CacheShape shape =
        layout::cache_shape(options.rows + options.rows / 4, ways, 1.0 / 32.0);
    for (std::int64_t b = 0; b <= options.batch; ++b) {
      offsets_.push_back(b * length);
      parts_.push_back(static_cast<std::int32_t>(b * 8 / options.batch));
    }
    vectors_.resize(at(options.tables * options.batch * options.dim), 0.25F);
    for (std::int64_t t = 0; t < options.tables; ++t) {
      pairs_.push_back(std::make_unique<Pair>(*device_, table, shape));
      scatters_.emplace_back(static_cast<std::uint64_t>(options.rows),
                             static_cast<std::uint64_t>(t));
      fill(*pairs_.back());
    }
  }

  std::vector<Figure> run() {
    step();
    values_.clear();
    for (int round = 0; round < options_.rounds; ++round) {
      step();
    }
    std::vector<Figure> figures;
    for (const std::string& name : order_) {
      figures.push_back({.name = name,
                         .parameters = parameters_,
                         .unit = name.starts_with("all") ? "x" : "ns/id",
                         .better = Better::kLower,
                         .values = values_[name],
                         .limit = {}});
    }
    return figures;
  }

 private:
  /// Brings all rows into the cache, and touches those of the other store.
  void fill(Pair& pair) {
    const kernels::InitialRows job{
        .table = pair.store_.view(), .rows = {0, options_.rows}, .state_floats = 1};
    kernels::set_initial_rows(ctx_, std::span(&job, 1));
    constexpr std::int64_t kPiece = 50000;
    for (std::int64_t begin = 0; begin < options_.rows; begin += kPiece) {
      std::vector<std::int64_t> ids;
      for (std::int64_t i = begin; i < std::min(begin + kPiece, options_.rows); ++i) {
        ids.push_back(i);
      }
      const std::int64_t offsets[] = {0, std::ssize(ids)};
      const kernels::Bags bags{ids.data(), offsets, nullptr, 1};
      pair.batch_->fetch(ctx_, std::span(&bags, 1));
      pair.batch_->fetch_late(ctx_);
      pair.batch_->release(storage::Release::kUpdated);
    }
  }

  void draw() {
    for (std::size_t t = 0; t < pairs_.size(); ++t) {
      Pair& pair = *pairs_[t];
      pair.ids_.resize(at(options_.batch * length_));
      for (std::int64_t& id : pair.ids_) {
        id = static_cast<std::int64_t>(scatters_[t](sampler_(words_)));
      }
      pair.bags_ = {pair.ids_.data(), offsets_.data(), nullptr, options_.batch};
    }
  }

  /// Runs `body` for all tables and notes its time per id.
  double part(const std::string& name, const std::function<void(Pair&, std::int64_t)>& body) {
    const double start = now();
    for (std::size_t t = 0; t < pairs_.size(); ++t) {
      body(*pairs_[t], static_cast<std::int64_t>(t));
    }
    const double ids =
        static_cast<double>(options_.batch * length_) * static_cast<double>(pairs_.size());
    const double each = (now() - start) / ids * 1e9;
    note(name, each);
    return each;
  }

  void note(const std::string& name, double value) {
    if (values_[name].empty() && std::find(order_.begin(), order_.end(), name) == order_.end()) {
      order_.push_back(name);
    }
    values_[name].push_back(value);
  }

  void look_up(const kernels::RowTable& table, const kernels::Bags& bags, std::int64_t t) {
    const kernels::BagLookup job{.weights = table.weights,
                                 .weight_stride = table.weight_stride,
                                 .dtype = table.dtype,
                                 .cols = options_.dim,
                                 .bags = bags,
                                 .pooled = true,
                                 .out = vectors(t),
                                 .out_stride = options_.dim};
    kernels::embedding_bag(ctx_, std::span(&job, 1));
  }

  void coalesce(const kernels::Bags& bags, kernels::RunBuffers& to, Pair& pair, std::int64_t t) {
    const kernels::GradientBlock block{.bags = bags,
                                       .pooled = true,
                                       .grads = vectors(t),
                                       .grad_stride = options_.dim,
                                       .parts = parts_.data()};
    const kernels::CoalesceJob job{.blocks = std::span(&block, 1),
                                   .rows = options_.rows,
                                   .parts = 8,
                                   .buffers = &to,
                                   .runs = &pair.runs_};
    kernels::coalesce(ctx_, std::span(&job, 1));
  }

  void update(const kernels::RowTable& table, const kernels::RowRuns& runs, Pair& pair) {
    kernels::SparseUpdate job;
    job.table = table;
    job.parts = 8;
    job.runs = runs;
    job.params = optim::update_params(pair.table_.optimizer, 1.0, 1);
    kernels::update_rows(ctx_, std::span(&job, 1));
  }

  float* vectors(std::int64_t t) { return vectors_.data() + t * options_.batch * options_.dim; }

  /// A fresh batch, first over one, then over the other.
  void step() {
    draw();
    double dense =
        part("lookup", [&](Pair& p, std::int64_t t) { look_up(p.store_.view(), p.bags_, t); });
    dense +=
        part("coalesce", [&](Pair& p, std::int64_t t) { coalesce(p.bags_, p.dense_runs_, p, t); });
    dense += part("update", [&](Pair& p, std::int64_t) { update(p.store_.view(), p.runs_, p); });
    draw();  // rows that no near cache holds
    part("distinct rows alone", [&](Pair& p, std::int64_t) {
      const kernels::DistinctJob job{.lists = std::span(&p.bags_, 1),
                                     .rows = options_.rows,
                                     .buffers = &p.distinct_,
                                     .distinct = &p.rows_};
      kernels::find_distinct_rows(ctx_, std::span(&job, 1));
    });
    part("ids to slots alone", [&](Pair& p, std::int64_t) {  // of slots that none has looked up
      const kernels::PlaceSlots job{.count = p.rows_.num_ids,
                                    .places = p.rows_.places,
                                    .slots = p.rows_.rows,
                                    .out = p.slots_.resize_for<std::int64_t>(p.rows_.num_ids)};
      kernels::slots_of_places(ctx_, std::span(&job, 1));
    });
    const double ahead = part(
        "fetch", [&](Pair& p, std::int64_t) { p.batch_->fetch(ctx_, std::span(&p.bags_, 1)); });
    double tier = part("cached lookup", [&](Pair& p, std::int64_t t) {
      p.batch_->fetch_late(ctx_);
      look_up(p.cache_.view(), p.batch_->resolve(0, p.bags_), t);
    });
    tier += part("cached coalesce",
                 [&](Pair& p, std::int64_t t) { coalesce(p.bags_, p.tier_runs_, p, t); });
    tier += part("rows to slots", [&](Pair& p, std::int64_t) {
      p.runs_.slots = p.batch_->resolve(ctx_, {p.runs_.rows, at(p.runs_.num_rows)}).data();
    });
    tier +=
        part("cached update", [&](Pair& p, std::int64_t) { update(p.cache_.view(), p.runs_, p); });
    tier += part("release",
                 [&](Pair& p, std::int64_t) { p.batch_->release(storage::Release::kUpdated); });
    note("all over dense, fetch in the step", (tier + ahead) / dense);
    note("all over dense, fetch ahead", tier / dense);
  }

  const Options& options_;
  std::int64_t length_;
  std::map<std::string, std::string> parameters_;
  std::unique_ptr<Device> device_ = make_device({});
  Context ctx_{.device = device_.get(), .pool = &device_->pool(), .native_stream = nullptr};
  data::ZipfSampler sampler_;
  data::WordStream words_{1};
  std::vector<data::Scatter> scatters_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int32_t> parts_;
  std::vector<float> vectors_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::map<std::string, std::vector<double>> values_;
  std::vector<std::string> order_;
};

void run(const Options& options) {
  std::vector<Figure> figures;
  for (const std::int64_t length : options.lengths) {
    for (const double zipf : options.zipf) {
      for (const std::int64_t ways : options.ways) {
        const std::vector<Figure> some = Case(options, length, ways, zipf).run();
        fmt::print("{}", to_text(some));
        std::fflush(stdout);
        figures.insert(figures.end(), some.begin(), some.end());
      }
    }
  }
  if (!options.out.empty()) {
    write_json(options.out, "cache", figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments(
      "Measures lookup and update over a cache that holds all rows, beside rows in order");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--rounds", options.rounds, "Repetitions of every shape").within(1, 10000);
  arguments.add("--tables", options.tables, "Tables").positive();
  arguments.add("--rows", options.rows, "Rows of a table").positive();
  arguments.add("--batch", options.batch, "Samples").positive();
  arguments.add("--dim", options.dim, "Columns").positive();
  arguments.add("--length", options.lengths, "Ids of a bag").positive();
  arguments.add("--ways", options.ways, "Of a set").one_of({8, 32});
  arguments.add("--zipf", options.zipf, "Exponent of the ids' law; 0: uniform").not_negative();
  bool quick = false;
  arguments.add_flag("--quick", quick, "One small shape");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  if (quick) {
    options = {.out = options.out,
               .rounds = 1,
               .tables = 1,
               .rows = 2000,
               .batch = 64,
               .ways = {32},
               .zipf = {1.05}};
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cache_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
