/// What a Google Benchmark program of this folder needs to write the common form of results.
///
///     void lookup(benchmark::State& state) {
///       Fixture fixture(state.range(0));
///       const double limit = fixture.limits.random_rows_per_s(...);   // measured just before
///       for (auto _ : state) { fixture.run(); }
///       bench::report_rate(state, {rows, "rows/s", "gather", limit});
///     }
///     BENCHMARK(lookup)->ArgName("dim")->Arg(16)->Arg(128)->UseRealTime();
///
///     int main(int argc, char** argv) { return bench::run_kernels("embedding", argc, argv); }
#pragma once

#include <cstdint>
#include <string>

#include <benchmark/benchmark.h>

namespace weft::bench {

/// Of one repetition.
struct Rate {
  double work = 0.0;       ///< of one iteration, e.g. rows
  std::string unit;        ///< e.g. "rows/s"
  std::string limit_name;  ///< empty: none
  double limit = 0.0;      ///< in `unit`
};

void report_rate(benchmark::State& state, const Rate& rate);

/// `bytes`, or a small part of them in a run with --quick.
std::int64_t bytes_of_run(std::int64_t bytes);

/// How long one probe of a limit measures, or hardly at all in a run with --quick.
double probe_seconds();

/// Bytes of rows that a benchmark of random rows should lie in: more than any cache holds, or a few
/// in a run with --quick.
std::int64_t row_memory_bytes();

/// main() of a program: runs its benchmarks with the flags of Google Benchmark, by default five
/// repetitions in random order, prints them, and writes them to the file of --out FILE. --quick
/// only shows that everything runs. Returns the exit code. Limits are those of each repetition,
/// measured where the benchmark's function says.
int run_kernels(const std::string& program, int argc, char** argv);

}  // namespace weft::bench
