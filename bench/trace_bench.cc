// What recording a span costs: on, and where nothing is recorded; beside reading the clock twice.
#include <cstdint>

#include "bench/kernel_main.h"
#include "bench/timing.h"
#include "weft/trace/recorder.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kSpans = 1 << 14;

/// Seconds of reading the clock twice.
double two_readings() {
  return median_pass_s(0.05,
                       [] {
                         for (std::int64_t i = 0; i < 2 * kSpans; ++i) {
                           benchmark::DoNotOptimize(trace::now_ns());
                         }
                       }) /
         static_cast<double>(kSpans);
}

void record(benchmark::State& state, bool on) {
  const double limit = two_readings();
  for (auto _ : state) {
    state.PauseTiming();
    trace::Recorder recorder(kSpans);
    trace::Track& track = recorder.make_track("compute", trace::TrackKind::kStream);
    if (on) {
      recorder.start();
    }
    state.ResumeTiming();
    for (std::int64_t i = 0; i < kSpans; ++i) {
      const trace::Scope scope(&track, "lookup", trace::Kind::kLookup);
      benchmark::ClobberMemory();
    }
  }
  report_rate(state, {.work = static_cast<double>(kSpans) / 1e6,
                      .unit = "Mspan/s",
                      .limit_name = "two readings of the clock",
                      .limit = 1e-6 / limit});
}

BENCHMARK_CAPTURE(record, on, true)->UseRealTime();
BENCHMARK_CAPTURE(record, off, false)->UseRealTime();

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_kernels("trace", argc, argv);
}
