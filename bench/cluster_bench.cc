// This benchmark counts the partial gradients of one fetched table that clustering
// (weft/data/cluster.h) saves, and measures how long it takes. The batch of a rank is drawn with
// samples that share the rows of their user, and with such that share nothing but popular rows. Its
// parts are one clustering run, and are cut into micro-batches: each sends one partial gradient for
// every row that it reads, since it is one whole subtree of parts.
//
// Bytes are those of gradients of fp32, without their ids. The limit of bytes is those of one
// micro-batch, which no order of the samples changes.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/base/at.h"
#include "weft/data/cluster.h"
#include "weft/data/zipf.h"

namespace weft::bench {
namespace {

constexpr double kGradientBytes = 4.0 * 64;
constexpr double kMiB = 1 << 20;

struct Options {
  bool quick = false;
  int rounds = 5;
  double gbits = 25.0;
  std::string out;
};

/// A kind of sample: of its `ids` ids `shared` are its user's, and the others its own.
struct Workload {
  std::string name;
  std::int64_t ids = 40;
  std::int64_t shared = 0;
  std::int64_t per_user = 1;  ///< samples of a user in the batch, which lie anywhere in it
  std::int64_t rows = 1'000'000;
  double zipf = 1.05;
};

std::vector<Workload> workloads() {
  return {{.name = "40 ids, none shared"},
          {.name = "40 ids, 30 of the user, 4 samples each", .shared = 30, .per_user = 4},
          {.name = "200 ids, 180 of the user, 4 samples each",
           .ids = 200,
           .shared = 180,
           .per_user = 4},
          {.name = "200 ids, 180 of the user, 8 samples each",
           .ids = 200,
           .shared = 180,
           .per_user = 8}};
}

/// One rank's samples; parts are all its own.
struct Shape {
  std::int64_t samples = 2048;
  std::int64_t parts = 32;
};

spec::Config one_table(const Workload& workload) {
  spec::Config config;
  config.sparse_features.emplace_back().name = "ids";
  spec::Table& table = config.tables.emplace_back();
  table.name = "ids";
  table.num_embeddings = workload.rows;
  return config;
}

data::Batch draw(const Workload& workload, const Shape& shape, std::uint64_t seed) {
  data::WordStream words(seed);
  const data::ZipfSampler rows(workload.rows, workload.zipf);
  const std::int64_t users = std::max<std::int64_t>(1, shape.samples / workload.per_user);
  std::vector<std::vector<std::int64_t>> lists(at(users));
  for (auto& list : lists) {
    for (std::int64_t i = 0; i < workload.shared; ++i) {
      list.push_back(static_cast<std::int64_t>(rows(words)));
    }
  }
  data::Batch batch;
  batch.global_size = shape.samples;
  batch.positions = {0, shape.samples};
  std::vector<std::int64_t> values;
  for (std::int64_t s = 0; s < shape.samples; ++s) {
    batch.sample_ids.push_back(s);
    batch.labels.push_back(0.0F);
    batch.label_weights.push_back(1.0F);
    const auto& list = lists[words.next() % lists.size()];
    values.insert(values.end(), list.begin(), list.end());
    for (std::int64_t i = workload.shared; i < workload.ids; ++i) {
      values.push_back(static_cast<std::int64_t>(rows(words)));
    }
  }
  const std::vector<std::int64_t> lengths(at(shape.samples), workload.ids);
  batch.sparse = from_lengths({"ids"}, shape.samples, lengths, std::move(values));
  return batch;
}

/// Counts of rows that micro-batches of equal numbers of parts read.
struct Rows {
  double sum = 0.0;    ///< of the rows that each reads
  double first = 0.0;  ///< that the first reads, before which no step can compute
};

Rows rows_of(const data::Batch& batch, const Shape& shape, std::int64_t micro_batches) {
  Rows rows;
  const JaggedView bags = batch.sparse.feature(0);
  std::unordered_set<std::int64_t> seen;
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    const Range parts = piece(shape.parts, micro_batches, m);
    const std::int64_t begin = part_samples(shape.samples, shape.parts, parts.begin).begin;
    const std::int64_t end = part_samples(shape.samples, shape.parts, parts.end - 1).end;
    seen.clear();
    seen.insert(bags.values + bags.offsets[at(begin)], bags.values + bags.offsets[at(end)]);
    rows.sum += static_cast<double>(seen.size());
    rows.first = m == 0 ? rows.sum : rows.first;
  }
  return rows;
}

struct Series {
  std::vector<double> sum, first;

  void add(const Rows& rows) {
    sum.push_back(rows.sum);
    first.push_back(rows.first);
  }
};

/// The results, one value for each round.
struct Outcome {
  std::vector<double> once;                         ///< rows of the batch
  std::map<std::int64_t, Series> plain, clustered;  ///< by micro-batches
  std::vector<double> micros;
};

Outcome measure(const Workload& workload, const Shape& shape, const Options& options) {
  Outcome outcome;
  data::SampleClusterer clusterer(
      one_table(workload),
      {.parts = shape.parts, .cluster_parts = shape.parts, .own = {0, shape.parts}});
  data::Batch warm = draw(workload, shape, 1);
  clusterer.cluster(warm);
  for (int round = 1; round <= (options.quick ? 1 : options.rounds); ++round) {
    data::Batch batch = draw(workload, shape, 1000 + static_cast<std::uint64_t>(round));
    outcome.once.push_back(rows_of(batch, shape, 1).sum);
    for (std::int64_t n = 2; n <= shape.parts; n *= 4) {
      outcome.plain[n].add(rows_of(batch, shape, n));
    }
    const auto start = std::chrono::steady_clock::now();
    clusterer.cluster(batch);
    outcome.micros.push_back(1e6 * seconds_since(start));
    for (std::int64_t n = 2; n <= shape.parts; n *= 4) {
      outcome.clustered[n].add(rows_of(batch, shape, n));
    }
  }
  return outcome;
}

std::vector<double> to_bytes(std::vector<double> rows) {
  for (double& value : rows) {
    value *= kGradientBytes;
  }
  return rows;
}

void note(std::vector<Figure>& figures,
          const Workload& workload,
          const Shape& shape,
          const Outcome& o) {
  const std::map<std::string, std::string> where = {{"data", workload.name},
                                                    {"samples", std::to_string(shape.samples)},
                                                    {"parts", std::to_string(shape.parts)}};
  figures.push_back({"cluster", where, "us", Better::kLower, o.micros, {}});
  const auto add = [&](const char* order, const std::map<std::int64_t, Series>& all) {
    for (const auto& [n, rows] : all) {
      auto here = where;
      here["micro_batches"] = std::to_string(n);
      here["order"] = order;
      figures.push_back({"partial_gradients", here, "bytes", Better::kLower, to_bytes(rows.sum),
                         Limit{"one micro-batch", to_bytes(o.once)}});
      figures.push_back({"first_rows", here, "bytes", Better::kLower, to_bytes(rows.first), {}});
    }
  };
  add("plain", o.plain);
  add("clustered", o.clustered);
}

void print_header() {
  fmt::print("{:<42} {:>7} {:>3} {:>6} {:>6} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7} {:>7}\n", "data",
             "samples", "N", "rows", "with", "MiB once", "MiB", "with", "first", "with", "ms less",
             "us");
}

/// Rows of all micro-batches, and of the first, are shares of those of the batch.
void print(const Workload& workload, const Shape& shape, const Outcome& o, const Options& options) {
  const double once = median(o.once);
  for (const auto& [n, rows] : o.plain) {
    const Series& after = o.clustered.at(n);
    const double plain = median(rows.sum);
    const double clustered = median(after.sum);
    const double saved_bits = (plain - clustered) * kGradientBytes * 8.0;
    fmt::print(
        "{:<42} {:>7} {:>3} {:>6.2f} {:>6.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>7.2f} {:>7.2f} "
        "{:>7.3f} {:>7.0f}\n",
        workload.name, shape.samples, n, plain / once, clustered / once,
        once * kGradientBytes / kMiB, plain * kGradientBytes / kMiB,
        clustered * kGradientBytes / kMiB, median(rows.first) / once, median(after.first) / once,
        saved_bits / (options.gbits * 1e6), median(o.micros));
  }
}

std::vector<Shape> shapes(const Options& options) {
  if (options.quick) {
    return {{.samples = 64, .parts = 8}};
  }
  return {{.samples = 512}, {.samples = 2048}, {.samples = 8192}};
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  using namespace weft::bench;
  Options options;
  Arguments arguments(
      "Partial gradients of a fetched table without and with clustering, and its time");
  arguments.add_flag("--quick", options.quick, "One small batch of each kind");
  arguments.add("--rounds", options.rounds, "Batches of each kind").within(1, 1000);
  arguments.add("--gbits", options.gbits, "Link for which bytes are shown as time, Gbit/s")
      .positive();
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    std::vector<Figure> figures;
    print_header();
    for (const Workload& workload : workloads()) {
      for (const Shape& shape : shapes(options)) {
        const Outcome outcome = measure(workload, shape, options);
        print(workload, shape, outcome, options);
        note(figures, workload, shape, outcome);
      }
    }
    if (!options.out.empty()) {
      write_json(options.out, "cluster", figures);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cluster_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
