// From text to batches, on one thread or as many as are said: conversion of Criteo text, plain and
// compressed, vocabularies, and the loader over both formats.
//
// Limits: text against what nobody can leave out, which is to copy it from the system, to find its
// line ends with memchr, and to copy the result back; gzip against zlib alone; batches in the order
// of the file, or shuffled within a window, against copying their bytes (what is read plus what is
// written); batches of a log that is shuffled as a whole against reading as many cache lines at
// random places of memory, since nothing lies beside what is wanted.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>

#include <zlib.h>

#include "bench/click_text.h"
#include "bench/kernel_main.h"
#include "bench/limits.h"
#include "bench/timing.h"
#include "weft/data/loader.h"
#include "weft/data/weft_format.h"
#include "weft/tensor/device.h"

namespace weft::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kMega = 1e6;
constexpr std::int64_t kBatch = 2048;
constexpr std::int64_t kBatchesPerIteration = 64;
constexpr double kProbeSeconds = 0.05;

/// Files of the run, removed at its end. In memory where the system has such a folder, so that no
/// disk is measured.
class Files {
 public:
  static Files& get() {
    static Files files;
    return files;
  }

  /// Text of the log in memory, and the same as a file.
  const std::string& text() {
    if (text_.empty()) {
      text_ = click_text(lines());
    }
    return text_;
  }

  std::string text_file() {
    return made("log.txt",
                [&](const std::string& path) { std::ofstream(path, std::ios::binary) << text(); });
  }

  std::string gzip_file() {
    return made("log.gz", [&](const std::string& path) {
      const gzFile file = gzopen(path.c_str(), "wb6");
      gzwrite(file, text().data(), static_cast<unsigned>(text().size()));
      gzclose(file);
    });
  }

  /// The text so many times over, in weft format.
  std::string weft_file(std::int64_t times) {
    return made("log-" + std::to_string(times) + ".weft", [&](const std::string& path) {
      spec::Config config = criteo();
      config.data.path.assign(static_cast<std::size_t>(times), text_file());
      data::write_weft(*data::open_source(config, data::Split::kTrain), path);
    });
  }

  /// A generated log in weft format.
  std::string generated_file(const spec::Config& config) {
    return made("generated.weft", [&](const std::string& path) {
      data::write_weft(*data::open_source(config, data::Split::kTrain), path);
    });
  }

  /// Where a conversion may write.
  [[nodiscard]] std::string scratch() const { return (folder_ / "out.weft").string(); }

  static spec::Config criteo() {
    spec::Config config;
    config.data.format = spec::DataFormat::kCriteo;
    config.data.path = {get().text_file()};
    return config;
  }

  static std::int64_t lines() { return row_memory_bytes() / 8192; }

 private:
  Files() {
    const fs::path memory = "/dev/shm";
    const fs::path root = fs::is_directory(memory) ? memory : fs::temp_directory_path();
    std::string name = (root / "weft_data_bench_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }

  ~Files() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  template <typename Make>
  std::string made(const std::string& name, const Make& make) {
    const std::string path = (folder_ / name).string();
    if (!fs::exists(path)) {
      make(path);
    }
    return path;
  }

  fs::path folder_;
  std::string text_;
};

double per_second(std::size_t bytes, double seconds) {
  return static_cast<double>(bytes) / kMega / seconds;
}

/// MB/s of finding the line ends of the text, in memory, on one thread.
double memchr_rate() {
  const std::string& text = Files::get().text();
  std::size_t lines = 0;
  const double seconds = median_pass_s(kProbeSeconds, [&] {
    const char* at = text.data();
    const char* const end = at + text.size();
    while (const void* found = std::memchr(at, '\n', static_cast<std::size_t>(end - at))) {
      at = static_cast<const char*>(found) + 1;
      ++lines;
    }
  });
  benchmark::DoNotOptimize(lines);
  return per_second(text.size(), seconds);
}

Limits& limits() {
  static const std::unique_ptr<Device> device =
      make_device({.kind = DeviceKind::kCpu, .threads = 1});
  static Limits made(*device,
                     {.memory_bytes = row_memory_bytes(), .budget_s = kProbeSeconds, .align = {}});
  return made;
}

/// MB/s of copying the text, finding its line ends, and copying `out_bytes` per byte of text, on
/// `threads` threads of this thread's speed.
double text_limit(double out_bytes, std::int64_t threads) {
  const double copy = limits().copy_bytes_per_s(std::int64_t{1} << 26) / kMega;
  return static_cast<double>(threads) / (1.0 / memchr_rate() + 2.0 * (1.0 + out_bytes) / copy);
}

/// MB/s of text that zlib makes of the compressed file, on one thread.
double zlib_rate() {
  const std::string path = Files::get().gzip_file();
  std::string buffer(1 << 20, '\0');
  const double seconds = median_pass_s(kProbeSeconds, [&] {
    const gzFile file = gzopen(path.c_str(), "rb");
    gzbuffer(file, 1 << 18);
    while (gzread(file, buffer.data(), static_cast<unsigned>(buffer.size())) > 0) {
    }
    gzclose(file);
  });
  return per_second(Files::get().text().size(), seconds);
}

void report_text(benchmark::State& state, const std::string& limit_name, double limit) {
  report_rate(state, {.work = static_cast<double>(Files::get().text().size()) / kMega,
                      .unit = "MB/s of text",
                      .limit_name = limit_name,
                      .limit = limit});
}

/// `weft data convert` on state.range(0) threads.
void convert_from(benchmark::State& state, const std::string& path) {
  spec::Config config = Files::criteo();
  config.data.path = {path};
  ThreadPool pool(static_cast<int>(state.range(0)));
  const auto source = data::open_source(config, data::Split::kTrain);
  for (auto _ : state) {
    data::write_weft(*source, Files::get().scratch(),
                     {.samples = -1, .pool = &pool, .progress = {}});
  }
}

void convert(benchmark::State& state) {
  const double out = static_cast<double>(fs::file_size(Files::get().weft_file(1))) /
                     static_cast<double>(Files::get().text().size());
  const double limit = text_limit(out, state.range(0));
  convert_from(state, Files::get().text_file());
  report_text(state, "copy, memchr, copy", limit);
}

void convert_gzip(benchmark::State& state) {
  const double limit = zlib_rate();
  convert_from(state, Files::get().gzip_file());
  report_text(state, "zlib, one thread", limit);
}

/// Text to columns, all lines of it, without writing anything.
void decode(benchmark::State& state) {
  const double limit = text_limit(0.0, 1);
  const auto source = data::open_source(Files::criteo(), data::Split::kTrain);
  data::RawBlock block;
  std::vector<std::int64_t> ids;
  for (auto _ : state) {
    std::int64_t first = 0;
    while (const std::int64_t loaded = source->load(first, 16384)) {
      ids.resize(static_cast<std::size_t>(loaded));
      std::iota(ids.begin(), ids.end(), first);
      source->read(ids, block);
      first += loaded;
    }
  }
  report_text(state, "copy, memchr", limit);
}

/// 26 features of the Criteo columns, hashed, and logarithms of the 13 counts.
spec::Config kaggle_config(spec::IdMapping mapping) {
  spec::Config config;
  for (std::size_t i = 0; i < kKaggleRows.size(); ++i) {
    spec::SparseFeature& feature = config.sparse_features.emplace_back();
    feature.name = "C" + std::to_string(i + 1);
    feature.mapping = mapping;
    spec::Table& table = config.tables.emplace_back();
    table.name = feature.name;
    table.num_embeddings = kKaggleRows[i];
  }
  for (std::size_t i = 1; i <= 13; ++i) {
    spec::DenseFeature& feature = config.dense_features.emplace_back();
    feature.name = "I" + std::to_string(i);
    feature.transform = spec::DenseTransform::kLog;
  }
  config.batch_size = kBatch;
  return config;
}

void vocabularies(benchmark::State& state) {
  const double limit = text_limit(0.0, state.range(0));
  spec::Config config = kaggle_config(spec::IdMapping::kVocabulary);
  config.data = Files::criteo().data;
  ThreadPool pool(static_cast<int>(state.range(0)));
  const auto source = data::open_source(config, data::Split::kTrain);
  for (auto _ : state) {
    benchmark::DoNotOptimize(data::build_vocabularies(*source, config, &pool));
  }
  report_text(state, "copy, memchr", limit);
}

/// The columns of MLPerf's DCNv2: 214 ids per sample.
spec::Config mlperf_config() {
  constexpr std::array<std::int64_t, 26> kLengths = {3, 2, 1, 2, 6, 1, 1,  1,   1,  7,  3, 8, 1,
                                                     6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1};
  constexpr std::array<std::int64_t, 26> kRows = {
      40000000, 39060,    17295,    7424,     20265,  3,     7122, 1543, 63,
      40000000, 3067956,  405282,   10,       2209,   11938, 155,  4,    976,
      14,       40000000, 40000000, 40000000, 590152, 12973, 108,  36};
  spec::Config config = kaggle_config(spec::IdMapping::kModulo);
  config.data.format = spec::DataFormat::kSynthetic;
  config.data.synthetic.samples = Files::lines() / 4;
  config.data.synthetic.dense_columns = 13;
  for (std::size_t i = 0; i < kLengths.size(); ++i) {
    spec::SyntheticColumn& column = config.data.synthetic.columns.emplace_back();
    column.name = config.sparse_features[i].name;
    column.cardinality = config.tables[i].num_embeddings = kRows[i];
    column.min_length = column.max_length = kLengths[i];
    config.dense_features[std::min<std::size_t>(i, 12)].name =
        "d" + std::to_string(std::min<std::size_t>(i, 12) + 1);
  }
  return config;
}

/// What the loader moves per sample: bytes of the file and of the batch.
double bytes_per_sample(const std::string& file, std::int64_t samples, const data::Batch& batch) {
  const std::size_t made = batch.sparse.values.size() * 8 + batch.sparse.offsets.size() * 8 +
                           batch.dense.size() * 4 + batch.labels.size() * 8;
  return static_cast<double>(made) / static_cast<double>(batch.size()) +
         static_cast<double>(fs::file_size(file)) / static_cast<double>(samples);
}

struct Loading {
  std::int64_t samples = 0;  // in the file
  std::int64_t window = 0;   // of the shuffle
  std::int64_t lines = 0;    // of the cache that a random sample meets; 0: samples lie together
};

/// Batches of one loader, whose one thread does everything, behind an epoch that verifies
/// checksums.
void load(benchmark::State& state, const spec::Config& config, const Loading& loading) {
  const data::Vocabularies none;
  data::LoaderOptions options;
  options.batch_size = kBatch;
  options.epochs = 0;
  options.window = loading.window;
  data::Loader loader(data::open_source(config, data::Split::kTrain), config, none, options);
  data::Batch batch;
  while (batch.epoch == 0) {
    loader.next(batch);
  }
  const double limit =
      loading.lines > 0
          ? limits().random_rows_per_s(64, RowAccess::kGather) / static_cast<double>(loading.lines)
          : limits().copy_bytes_per_s(std::int64_t{1} << 23) /
                bytes_per_sample(config.data.path.front(), loading.samples, batch);
  for (auto _ : state) {
    for (std::int64_t i = 0; i < kBatchesPerIteration; ++i) {
      loader.next(batch);
    }
  }
  report_rate(state, {.work = static_cast<double>(kBatchesPerIteration * kBatch) / kMega,
                      .unit = "Msample/s",
                      .limit_name = loading.lines > 0 ? "random lines" : "copy",
                      .limit = limit / kMega});
}

spec::Config weft_config(spec::Config config, const std::string& path) {
  config.data.format = spec::DataFormat::kWeft;
  config.data.path = {path};
  return config;
}

void load_kaggle(benchmark::State& state) {
  load(state, weft_config(kaggle_config(spec::IdMapping::kHash), Files::get().weft_file(1)),
       {.samples = Files::lines(), .window = 65536, .lines = 0});
}

/// A log that no cache holds, in the order of one permutation of all of it. A random sample meets a
/// line of each of its 40 columns, and one of offsets in the 12 whose ids may be missing.
void load_kaggle_shuffled(benchmark::State& state) {
  constexpr std::int64_t kTimes = 12;
  load(state, weft_config(kaggle_config(spec::IdMapping::kHash), Files::get().weft_file(kTimes)),
       {.samples = kTimes * Files::lines(), .window = 0, .lines = 52});
}

void load_mlperf(benchmark::State& state) {
  const spec::Config config = mlperf_config();
  const std::string path = Files::get().generated_file(config);
  load(state, weft_config(config, path),
       {.samples = config.data.synthetic.samples, .window = 65536, .lines = 0});
}

/// Batches from the text itself: every sample is parsed once per epoch.
void load_text(benchmark::State& state) {
  spec::Config config = kaggle_config(spec::IdMapping::kHash);
  config.data = Files::criteo().data;
  load(state, config, {.samples = Files::lines(), .window = 65536, .lines = 0});
}

void threads(benchmark::internal::Benchmark* benchmark) {
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  benchmark->ArgName("threads")->UseRealTime()->Unit(benchmark::kMillisecond)->Arg(1);
  if (cores > 1) {
    benchmark->Arg(cores);
  }
}

BENCHMARK(convert)->Apply(threads);
BENCHMARK(convert_gzip)->Apply(threads);
BENCHMARK(decode)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(vocabularies)->Apply(threads);
BENCHMARK(load_kaggle)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(load_kaggle_shuffled)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(load_mlperf)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(load_text)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_kernels("data", argc, argv);
}
