// Lookup, coalescing and fused update of one rank's tables against the same rows merely touched:
// read once per lookup, read and written once per unique row. Defaults are one thread and the
// tables of a one-hot click log; options make bags, skew, types and optimizers vary.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/sparse_job.h"

namespace weft::bench {
namespace {

constexpr std::size_t kAhead[] = {0, 8, 32};

struct Options {
  std::string out;
  int rounds = 9;
  std::int64_t tables = 26;
  std::int64_t rows = 1'000'000;
  std::int64_t batch = 2048;
  std::vector<std::int64_t> dims = {16, 64, 128};
  std::vector<std::int64_t> lengths = {1};
  std::vector<double> zipf = {0.0};
  std::vector<std::string> dtypes = {"fp32"};
  std::vector<std::string> optimizers = {"row_wise_adagrad"};
  std::vector<std::string> kinds = {"pooled"};
  std::vector<int> threads = {1};
};

const std::map<std::string, spec::RowDType> kDTypes = {{"fp32", spec::RowDType::kFp32},
                                                       {"fp16", spec::RowDType::kFp16},
                                                       {"bf16", spec::RowDType::kBf16},
                                                       {"split_bf16", spec::RowDType::kSplitBf16}};

const std::map<std::string, SparseOptimizerKind> kOptimizers = {
    {"sgd", SparseOptimizerKind::kSgd},
    {"adagrad", SparseOptimizerKind::kAdagrad},
    {"row_wise_adagrad", SparseOptimizerKind::kRowWiseAdagrad},
    {"adam", SparseOptimizerKind::kAdam},
    {"row_wise_adam", SparseOptimizerKind::kRowWiseAdam}};

/// One shape's figures.
class Case {
 public:
  Case(const SparseShape& shape, std::map<std::string, std::string> parameters)
      : shape_(shape), parameters_(std::move(parameters)), job_(shape) {}

  std::vector<Figure> run(int rounds) {
    job_.step();  // the first touch of memory is slow
    for (int round = 0; round < rounds; ++round) {
      const SparseTimes times = job_.step();
      const auto ids = static_cast<double>(job_.num_ids());
      const auto unique = static_cast<double>(job_.num_unique());
      forward_.push_back(times.forward / ids * 1e9);
      coalesce_.push_back(times.coalesce / ids * 1e9);
      update_.push_back(times.update / unique * 1e9);
      step_.push_back(static_cast<double>(shape_.batch) /
                      (times.forward + times.coalesce + times.update));
      touch(unique);
    }
    return figures();
  }

 private:
  /// Times of one distance of prefetching.
  struct Touches {
    std::vector<double> gather, scatter, step;
  };

  void touch(double unique) {
    const auto ids = static_cast<double>(job_.num_ids());
    for (const Touched touched : {Touched::kWeights, Touched::kRows, Touched::kAll}) {
      for (std::size_t i = 0; i < std::size(kAhead); ++i) {
        const TouchTimes times = job_.touch(kAhead[i], touched);
        Touches& of = touches_[static_cast<std::size_t>(touched)][i];
        of.gather.push_back(times.gather / ids * 1e9);
        of.scatter.push_back(times.scatter / unique * 1e9);
        of.step.push_back(static_cast<double>(shape_.batch) / (times.gather + times.scatter));
      }
    }
  }

  using Values = std::vector<double> Touches::*;

  /// Adds a figure with its limit, that of the distance of prefetching which is fastest.
  void add(const std::string& name,
           const std::vector<double>& own,
           Values values,
           Touched touched) {
    const bool is_step = values == &Touches::step;
    Figure figure{.name = name,
                  .parameters = parameters_,
                  .unit = is_step ? "samples/s" : "ns/row",
                  .better = is_step ? Better::kHigher : Better::kLower,
                  .values = own,
                  .limit = {}};
    static constexpr const char* kNames[] = {"rows", "rows+state", "all bytes"};
    const auto* const touches = touches_[static_cast<std::size_t>(touched)];
    for (std::size_t i = 0; i < std::size(kAhead); ++i) {
      const Limit limit{kNames[static_cast<std::size_t>(touched)], touches[i].*values};
      const bool first = !figure.limit;
      const double share = first ? 0.0 : figure.share();
      const std::optional<Limit> before = std::exchange(figure.limit, limit);
      if (!first && figure.share() > share) {
        figure.limit = before;  // slower
      }
    }
    figures_.push_back(std::move(figure));
  }

  std::vector<Figure> figures() {
    add("forward", forward_, &Touches::gather, Touched::kWeights);
    add("forward", forward_, &Touches::gather, Touched::kAll);
    add("update", update_, &Touches::scatter, Touched::kRows);
    add("update", update_, &Touches::scatter, Touched::kAll);
    figures_.push_back({.name = "coalesce",
                        .parameters = parameters_,
                        .unit = "ns/row",
                        .better = Better::kLower,
                        .values = coalesce_,
                        .limit = {}});
    for (const Touched touched : {Touched::kWeights, Touched::kRows, Touched::kAll}) {
      add("step", step_, &Touches::step, touched);
    }
    return figures_;
  }

  SparseShape shape_;
  std::map<std::string, std::string> parameters_;
  SparseJob job_;
  std::vector<double> forward_, coalesce_, update_, step_;
  Touches touches_[3][std::size(kAhead)];  ///< by what is touched, and how far ahead
  std::vector<Figure> figures_;
};

/// Calls run(shape, parameters) for every combination.
template <typename Run>
void for_each_shape(const Options& o, const Run& run) {
  for (const std::string& dtype : o.dtypes) {
    for (const std::string& optimizer : o.optimizers) {
      for (const std::string& kind : o.kinds) {
        for (const int threads : o.threads) {
          for (const double zipf : o.zipf) {
            for (const std::int64_t length : o.lengths) {
              for (const std::int64_t dim : o.dims) {
                SparseShape shape;
                shape.tables = o.tables;
                shape.rows = o.rows;
                shape.dim = dim;
                shape.batch = o.batch;
                shape.length = length;
                shape.zipf = zipf;
                shape.dtype = kDTypes.at(dtype);
                shape.optimizer.type = kOptimizers.at(optimizer);
                shape.pooled = kind == "pooled";
                shape.threads = threads;
                run(shape, std::map<std::string, std::string>{
                               {"dtype", dtype},
                               {"optimizer", optimizer},
                               {"kind", kind},
                               {"threads", std::to_string(threads)},
                               {"ids", zipf == 0.0 ? "uniform" : fmt::format("zipf {}", zipf)},
                               {"L", std::to_string(length)},
                               {"D", std::to_string(dim)}});
              }
            }
          }
        }
      }
    }
  }
}

void run(const Options& options) {
  std::vector<Figure> figures;
  for_each_shape(
      options, [&](const SparseShape& shape, const std::map<std::string, std::string>& parameters) {
        const std::vector<Figure> of_shape = Case(shape, parameters).run(options.rounds);
        fmt::print("{}", to_text(of_shape));
        std::fflush(stdout);
        figures.insert(figures.end(), of_shape.begin(), of_shape.end());
      });
  if (!options.out.empty()) {
    write_json(options.out, "sparse", figures);
  }
}

template <typename Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) {
    names.push_back(name);
  }
  return names;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  using weft::bench::keys;
  weft::bench::Options options;
  weft::bench::Arguments arguments("Measures lookup, coalescing and update of embedding rows");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--rounds", options.rounds, "Repetitions of every shape").within(1, 10000);
  arguments.add("--tables", options.tables, "Tables").positive();
  arguments.add("--rows", options.rows, "Rows of a table").positive();
  arguments.add("--batch", options.batch, "Samples").positive();
  arguments.add("--dim", options.dims, "Columns").positive();
  arguments.add("--length", options.lengths, "Ids of a bag").positive();
  arguments.add("--zipf", options.zipf, "Exponent of the ids' law; 0: uniform").not_negative();
  arguments.add("--dtype", options.dtypes, "Of rows").one_of(keys(weft::bench::kDTypes));
  arguments.add("--optimizer", options.optimizers, "").one_of(keys(weft::bench::kOptimizers));
  arguments.add("--kind", options.kinds, "pooled or sequence").one_of({"pooled", "sequence"});
  arguments.add("--threads", options.threads, "Of the pool").positive();
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sparse_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
