// Rows on a disk: how fast a SegmentStore gathers the rows of a step, beside the disk's random
// reads; how fast it appends; how many rows it writes for each that changes; and RocksDB in the
// same run.
//
// The limit of a gather is the rate of random reads of 4 KiB blocks with 128 in flight, of the same
// files, measured before and behind it: a row lies in a block, and few of a step's share one. The
// limit of appending is a file of as many bytes, written and synced.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <unistd.h>

#include "bench/arguments.h"
#include "bench/disk_probe.h"
#include "bench/report.h"
#include "bench/rocks_rows.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/storage/segment_store.h"

namespace weft::bench {
namespace {

using Parameters = std::map<std::string, std::string>;

struct Options {
  std::string out;
  std::string directory = "build/bench/store";
  int rounds = 15;
  int gathers = 5;  // of a round and way
  std::int64_t rows = 5'000'000;
  std::int64_t row_bytes = 260;
  std::int64_t gathered = 4096;
  std::int64_t changed_rows = 500'000;
  std::vector<std::string> parts = {"ring", "threads", "rocks", "changes"};
  std::vector<int> depths = {1, 8, 32, 128};

  [[nodiscard]] bool wants(const char* part) const {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  }
};

constexpr int kMostInFlight = 128;

/// Bytes of a row, different from those of others.
void fill_row(std::int64_t row, std::span<std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(mix64(static_cast<std::uint64_t>(row)) >> (i % 8 * 8));
  }
}

/// Calls write(rows, packed) for all rows, a step's at a time, in a random order.
template <typename Write>
void write_all_rows(const Options& o, const Write& write) {
  std::vector<std::int64_t> order(at(o.rows));
  for (std::int64_t row = 0; row < o.rows; ++row) {
    order[at(row)] = row;
  }
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  std::vector<std::byte> packed(at(o.gathered * o.row_bytes));
  for (std::int64_t first = 0; first < o.rows; first += o.gathered) {
    const auto rows = std::span(order).subspan(at(first), at(std::min(o.gathered, o.rows - first)));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      fill_row(rows[i], std::span(packed).subspan(i * at(o.row_bytes), at(o.row_bytes)));
    }
    write(rows, packed.data());
  }
}

/// A step's rows: random ones, all different.
std::vector<std::int64_t> random_rows(const Options& o, std::mt19937_64& random) {
  std::vector<std::int64_t> rows;
  while (std::cmp_less(rows.size(), o.gathered)) {
    while (std::cmp_less(rows.size(), o.gathered)) {
      rows.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(o.rows)));
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  }
  return rows;
}

/// Fails unless these are the rows.
void check_rows(const Options& o, std::span<const std::int64_t> rows, const std::byte* packed) {
  std::vector<std::byte> should(at(o.row_bytes));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    fill_row(rows[i], should);
    if (!std::equal(should.begin(), should.end(), packed + i * should.size())) {
      fail(ErrorCode::kInternal, "row {} is not as it was written", rows[i]);
    }
  }
}

/// Values of one way to gather rows, and of its limit beside it.
struct Samples {
  std::vector<double> rows_per_s, cpu_us, limit, limit_cpu_us;
};

class Bench {
 public:
  explicit Bench(const Options& options) : o_(options) {}

  std::vector<Figure> run() {
    std::filesystem::create_directories(o_.directory);
    for (const int depth : o_.wants("ring") ? o_.depths : std::vector<int>()) {
      measure_store({.method = io::ReadMethod::kRing, .depth = depth});
    }
    for (const int threads : o_.wants("threads") ? std::vector{8, 32} : std::vector<int>()) {
      measure_store({.method = io::ReadMethod::kThreads, .depth = 2 * threads, .threads = threads});
    }
    if (o_.wants("rocks")) {
      measure_rocks();
    }
    for (const char* law : {"uniform", "zipf 1.05"}) {
      for (const double factor : {1.2, 1.3, 1.5, 2.0}) {
        if (o_.wants("changes")) {
          measure_changes(law, factor);
        }
      }
    }
    return std::move(figures_);
  }

 private:
  /// Gathers rows round by round, each between two probes of its limit.
  template <typename Gather>
  Samples gather_rounds(RandomBlocks& limit, const Gather& gather) {
    Samples samples;
    std::vector<std::byte> packed(at(o_.gathered * o_.row_bytes));
    const std::vector<std::int64_t> first = random_rows(o_, random_);
    gather(first, packed.data());
    check_rows(o_, first, packed.data());
    const double rows = static_cast<double>(o_.gathered) * o_.gathers;
    Spent before = limit.read(o_.gathered * o_.gathers);
    for (int round = 0; round < o_.rounds; ++round) {
      std::vector<std::vector<std::int64_t>> lists;
      for (int i = 0; i < o_.gathers; ++i) {
        lists.push_back(random_rows(o_, random_));
      }
      const Stopwatch watch;
      for (const auto& list : lists) {
        gather(list, packed.data());
      }
      const Spent own = watch.spent();
      samples.rows_per_s.push_back(rows / own.wall_s);
      samples.cpu_us.push_back(own.cpu_s / rows * 1e6);
      // A disk that is shared, or slows down after a burst, was neither as before nor as behind.
      const Spent behind = limit.read(o_.gathered * o_.gathers);
      samples.limit.push_back(2 * rows / (before.wall_s + behind.wall_s));
      samples.limit_cpu_us.push_back((before.cpu_s + behind.cpu_s) / (2 * rows) * 1e6);
      before = behind;
    }
    return samples;
  }

  void add_gather(const Parameters& parameters, const Samples& samples) {
    add({.name = "gather",
         .parameters = parameters,
         .unit = "rows/s",
         .better = Better::kHigher,
         .values = samples.rows_per_s,
         .limit = Limit{"random 4 KiB reads, 128 in flight", samples.limit}});
    add({.name = "gather_cpu",
         .parameters = parameters,
         .unit = "us/row",
         .better = Better::kLower,
         .values = samples.cpu_us,
         .limit = Limit{"the reads alone", samples.limit_cpu_us}});
  }

  void add(Figure figure) {
    fmt::print("{}", to_text({figure}));
    std::fflush(stdout);
    figures_.push_back(std::move(figure));
  }

  [[nodiscard]] io::BlockReadsOptions most_reads() const {
    return {.method = io::ReadMethod::kAuto, .depth = kMostInFlight, .threads = 32};
  }

  void measure_store(const io::BlockReadsOptions& reads) {
    const bool ring = reads.method == io::ReadMethod::kRing;
    if (ring && io::make_block_reads(io::real_file_system())->method() != reads.method) {
      fmt::print("io_uring cannot be used here: its figures are left out\n");
      return;
    }
    const Parameters parameters = {
        {"way", ring ? "io_uring" : "threads"},
        {"in_flight", std::to_string(ring ? reads.depth : reads.threads)},
        {"row_bytes", std::to_string(o_.row_bytes)},
        {"rows", std::to_string(o_.rows)}};
    storage::SegmentStoreOptions options;
    options.directories = {o_.directory + "/rows"};
    options.reads = reads;
    storage::SegmentStore store(io::real_file_system(), options);
    storage::RowBacking& rows = store.add_shard(
        {.key = 1, .rows = {0, o_.rows, 1}, .row_bytes = o_.row_bytes, .table = "bench"});
    const Stopwatch watch;
    write_all_rows(o_, [&](std::span<const std::int64_t> some, const std::byte* packed) {
      rows.write(some, packed);
    });
    const storage::Seal seal = store.seal();
    const double seconds = watch.spent().wall_s;
    const storage::StoreCounts counts = store.counts();
    const double bytes = static_cast<double>(counts.bytes_written) / static_cast<double>(o_.rows);
    const Spent raw = write_file_once(o_.directory + "/probe", counts.bytes_written);
    append_.push_back(static_cast<double>(o_.rows) / seconds);
    append_limit_.push_back(static_cast<double>(counts.bytes_written) / raw.wall_s / bytes);
    std::vector<std::string> paths;
    for (const storage::SealedFile& file : seal.files) {
      paths.push_back(file.path);
    }
    RandomBlocks limit(paths, most_reads());
    const auto reader = rows.make_reads();
    std::vector<std::uint8_t> found(at(o_.gathered));
    add_gather(parameters,
               gather_rounds(limit, [&](std::span<const std::int64_t> list, std::byte* packed) {
                 reader->begin(list, packed);
                 reader->wait(found);
               }));
    if (ring && reads.depth == kMostInFlight) {
      const storage::StoreCounts now = store.counts();
      add_plain("groups_per_row", parameters, "", ratio(now.groups_read, now.rows_read));
      add_plain("index_bytes_per_row", parameters, "bytes", ratio(now.index_bytes, now.rows_held));
      add_plain("disk_bytes_per_row", parameters, "bytes", bytes);
      add_append(parameters);
    }
    store.retire(seal);
  }

  static double ratio(std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  }

  void add_plain(const std::string& name,
                 const Parameters& parameters,
                 const std::string& unit,
                 double value) {
    add({.name = name,
         .parameters = parameters,
         .unit = unit,
         .better = Better::kLower,
         .values = {value},
         .limit = {}});
  }

  /// Of all stores that have been filled so far.
  void add_append(Parameters parameters) {
    parameters.erase("in_flight");
    parameters["way"] = "segments";
    add({.name = "append",
         .parameters = parameters,
         .unit = "rows/s",
         .better = Better::kHigher,
         .values = append_,
         .limit = Limit{"a file written and synced", append_limit_}});
  }

  void measure_rocks() {
    const std::string directory = o_.directory + "/rocks";
    std::filesystem::remove_all(directory);
    const auto rows = make_rocks_rows(directory, o_.row_bytes);
    if (rows == nullptr) {
      fmt::print("RocksDB is not there (librocksdb-dev): its figures are left out\n");
      return;
    }
    const Parameters common = {{"row_bytes", std::to_string(o_.row_bytes)},
                               {"rows", std::to_string(o_.rows)}};
    const Stopwatch watch;
    write_all_rows(o_, [&](std::span<const std::int64_t> some, const std::byte* packed) {
      rows->write(some, packed);
    });
    rows->compact();
    const double seconds = watch.spent().wall_s;
    Parameters parameters = common;
    parameters["way"] = "RocksDB";
    add({.name = "append",
         .parameters = parameters,
         .unit = "rows/s",
         .better = Better::kHigher,
         .values = {static_cast<double>(o_.rows) / seconds},
         .limit = {}});
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().extension() == ".sst" && entry.file_size() >= at(io::kBlockAlignment)) {
        paths.push_back(entry.path().string());
      }
    }
    RandomBlocks limit(paths, most_reads());
    for (const int threads : {1, 16}) {
      parameters["in_flight"] = std::to_string(threads);
      add_gather(parameters,
                 gather_rounds(limit, [&](std::span<const std::int64_t> list, std::byte* packed) {
                   rows->gather(list, packed, threads);
                 }));
    }
    std::filesystem::remove_all(directory);
  }

  /// Rows that are written again and again by a law, in memory: what is counted is the same there.
  void measure_changes(const std::string& law, double factor) {
    storage::SegmentStoreOptions options;
    const std::string parent = std::filesystem::exists("/dev/shm") ? "/dev/shm" : o_.directory;
    options.directories = {fmt::format("{}/weft-store-bench-{}", parent, getpid())};
    options.space_factor = factor;
    // 200 segments where all rows hold, as a table of 13 GB has.
    options.segment_bytes = std::max<std::int64_t>(o_.changed_rows * o_.row_bytes / 200, 64 << 10);
    options.write_buffer_bytes = options.segment_bytes;
    std::int64_t most_bytes = 0;
    storage::StoreCounts warm;
    storage::StoreCounts end;
    {
      storage::SegmentStore store(io::real_file_system(), options);
      storage::RowBacking& rows = store.add_shard(
          {.key = 1, .rows = {0, o_.changed_rows, 1}, .row_bytes = o_.row_bytes, .table = "bench"});
      std::vector<std::byte> packed(at(o_.gathered * o_.row_bytes));
      const Draw draw(o_.changed_rows, law == "uniform" ? 0 : 1.05);
      const auto change = [&](std::int64_t many) {
        for (std::int64_t done = 0; done < many;) {
          const std::vector<std::int64_t> list = draw.distinct(o_.gathered, random_);
          rows.write(list, packed.data());
          done += static_cast<std::int64_t>(list.size());
          const storage::StoreCounts counts = store.counts();
          most_bytes = std::max(most_bytes, counts.segment_bytes);
        }
      };
      std::vector<std::int64_t> list(at(o_.gathered));
      for (std::int64_t first = 0; first < o_.changed_rows; first += o_.gathered) {
        list.resize(at(std::min(o_.gathered, o_.changed_rows - first)));
        for (std::size_t i = 0; i < list.size(); ++i) {
          list[i] = first + static_cast<std::int64_t>(i);
        }
        rows.write(list, packed.data());
      }
      change(3 * o_.changed_rows);
      rows.drain();
      warm = store.counts();
      most_bytes = 0;
      change(2 * o_.changed_rows);
      rows.drain();
      end = store.counts();
    }
    std::filesystem::remove_all(options.directories[0]);
    const std::int64_t stored = end.rows_stored - warm.rows_stored;
    const Parameters parameters = {{"law", law}, {"factor", fmt::format("{:.1f}", factor)}};
    add_plain("rows_written_per_row_changed", parameters, "",
              ratio(stored + end.rows_moved - warm.rows_moved, stored));
    add_plain("space_of_live_rows", parameters, "", ratio(most_bytes, end.live_bytes));
  }

  /// Draws rows by a law: of weight 1 / (number + 1)^exponent, and rows of near numbers are no
  /// neighbours.
  class Draw {
   public:
    Draw(std::int64_t rows, double exponent) : sums_(at(rows)), rows_(at(rows)) {
      double sum = 0;
      for (std::size_t i = 0; i < sums_.size(); ++i) {
        sum += std::pow(static_cast<double>(i + 1), -exponent);
        sums_[i] = sum;
        rows_[i] = static_cast<std::int64_t>(i);
      }
      std::shuffle(rows_.begin(), rows_.end(), std::mt19937_64(3));
    }

    [[nodiscard]] std::vector<std::int64_t> distinct(std::int64_t draws,
                                                     std::mt19937_64& random) const {
      std::uniform_real_distribution<double> uniform(0, sums_.back());
      std::vector<std::int64_t> drawn;
      for (std::int64_t i = 0; i < draws; ++i) {
        const auto found = std::lower_bound(sums_.begin(), sums_.end(), uniform(random));
        drawn.push_back(rows_[at(found - sums_.begin())]);
      }
      std::sort(drawn.begin(), drawn.end());
      drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
      return drawn;
    }

   private:
    std::vector<double> sums_;
    std::vector<std::int64_t> rows_;
  };

  Options o_;
  std::mt19937_64 random_{7};
  std::vector<double> append_, append_limit_;
  std::vector<Figure> figures_;
};

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  bool quick = false;
  weft::bench::Arguments arguments("Measures a store of rows on a disk");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--directory", options.directory, "A folder on the disk");
  arguments.add("--rounds", options.rounds, "Repetitions").within(1, 1000);
  arguments.add("--gathers", options.gathers, "Steps of a repetition").positive();
  arguments.add("--rows", options.rows, "Rows on the disk").positive();
  arguments.add("--row-bytes", options.row_bytes, "Bytes of a row").positive();
  arguments.add("--part", options.parts, "What is measured")
      .one_of({"ring", "threads", "rocks", "changes"});
  arguments.add("--depth", options.depths, "Reads in flight of io_uring").positive();
  arguments.add_flag("--quick", quick, "Only show that everything runs");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  if (quick) {
    options.rounds = 1;
    options.gathers = 1;
    options.rows = 20'000;
    options.gathered = 512;
    options.changed_rows = 5'000;
  }
  try {
    const auto figures = weft::bench::Bench(options).run();
    if (!options.out.empty()) {
      weft::bench::write_json(options.out, "store", figures);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "store_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
