// The rate at which a disk gives random blocks of 4 KiB of a file, past the page cache, by reads in
// flight: the limit of a tier of rows on it. It reads as the tier does (weft/io/block_reads.h).
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <climits>
#include <fmt/core.h>
#include <unistd.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/io/block_reads.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kBatch = 1024;  // blocks; two batches are begun at a time

struct Options {
  std::string directory = "build/bench";
  std::string out;
  std::int64_t bytes = std::int64_t{1} << 30;
  std::vector<int> depths = {128};
  int rounds = 5;
  double seconds = 0.5;  // of a round
};

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// A file of other bytes in every block, which goes with this.
class ProbedFile {
 public:
  ProbedFile(const std::string& directory, std::int64_t bytes)
      : path_(directory + "/disk_bench.blocks") {
    std::filesystem::create_directories(directory);
    constexpr std::int64_t kPiece = 1 << 20;
    std::vector<std::uint64_t> piece(at(kPiece / 8));
    const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path_.c_str(), "wb"));
    std::uint64_t draws = 0;
    bool is_written = file != nullptr;
    for (std::int64_t done = 0; is_written && done < bytes; done += kPiece) {
      for (std::uint64_t& word : piece) {
        word = mix64(++draws);
      }
      is_written = std::fwrite(piece.data(), kPiece, 1, file.get()) == 1;
    }
    if (!is_written || std::fflush(file.get()) != 0 || fsync(fileno(file.get())) != 0) {
      fail(ErrorCode::kIo, "cannot write {} bytes to '{}'", bytes, path_);
    }
    blocks_ = (bytes + kPiece - 1) / kPiece * (kPiece / io::kBlockAlignment);
  }

  ~ProbedFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  ProbedFile(const ProbedFile&) = delete;
  ProbedFile& operator=(const ProbedFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] std::int64_t blocks() const { return blocks_; }

 private:
  std::string path_;
  std::int64_t blocks_ = 0;
};

/// Blocks per second, of reads that never wait for others than those in flight.
double read_blocks(io::BlockReads& reads,
                   std::int32_t file,
                   std::int64_t blocks,
                   std::uint64_t& draws,
                   double seconds) {
  const std::unique_ptr<std::byte, FreeMemory> memory(static_cast<std::byte*>(
      std::aligned_alloc(at(io::kBlockAlignment), at(2 * kBatch * io::kBlockAlignment))));
  const std::array batches = {reads.make_batch(), reads.make_batch()};
  std::vector<io::BlockRead> list(at(kBatch));
  const auto start = std::chrono::steady_clock::now();
  std::int64_t done = 0;
  for (std::size_t turn = 0; seconds_since(start) < seconds; turn = 1 - turn, done += kBatch) {
    std::byte* data = memory.get() + static_cast<std::int64_t>(turn) * kBatch * io::kBlockAlignment;
    for (io::BlockRead& read : list) {
      const auto block =
          static_cast<std::int64_t>(mix64(++draws) % static_cast<std::uint64_t>(blocks));
      read = {file, block * io::kBlockAlignment, io::kBlockAlignment, data};
      data += io::kBlockAlignment;
    }
    batches[turn]->wait();
    batches[turn]->begin(list);
  }
  for (const auto& batch : batches) {
    batch->wait();
  }
  return static_cast<double>(done) / seconds_since(start);
}

std::vector<Figure> run(const Options& options) {
  const ProbedFile probed(options.directory, options.bytes);
  std::vector<Figure> figures;
  for (const int depth : options.depths) {
    figures.push_back({"random 4 KiB reads",
                       {{"in flight", std::to_string(depth)}},
                       "blocks/s",
                       Better::kHigher,
                       {},
                       {}});
  }
  std::uint64_t draws = 0;
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < options.depths.size(); ++i) {
      const auto reads = io::make_block_reads(io::real_file_system(), {.depth = options.depths[i]});
      const std::int32_t file = reads->add(probed.path(), io::OpenMode::kReadDirect);
      figures[i].values.push_back(
          read_blocks(*reads, file, probed.blocks(), draws, options.seconds));
    }
  }
  return figures;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  bool quick = false;
  weft::bench::Arguments arguments("Measures random reads of 4 KiB of a file");
  arguments.add("--directory", options.directory, "Where the file is made, and removed");
  arguments.add("--bytes", options.bytes, "Of the file").within(1 << 20, INT_MAX);
  arguments.add("--depth", options.depths, "Reads in flight").within(1, 4096);
  arguments.add("--rounds", options.rounds, "How often").within(1, 1000);
  arguments.add("--seconds", options.seconds, "Of a round");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add_flag("--quick", quick, "A file of 1 MiB, and one round");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  if (quick) {
    options.bytes = 1 << 20;
    options.rounds = 1;
    options.seconds = 0.01;
  }
  try {
    const auto figures = weft::bench::run(options);
    fmt::print("{}", weft::bench::to_text(figures));
    if (!options.out.empty()) {
      weft::bench::write_json(options.out, "disk", figures);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "disk_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
