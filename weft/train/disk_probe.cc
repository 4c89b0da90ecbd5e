#include "weft/train/disk_probe.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <memory>
#include <span>
#include <vector>

#include <fcntl.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/io/block_reads.h"
#include "weft/io/file_system.h"
#include "weft/train/timing.h"

namespace weft::train {
namespace {

constexpr std::int64_t kBlock = io::kBlockAlignment;
constexpr std::int64_t kReadsOfBatch = 256;
constexpr std::int64_t kWritten = std::int64_t{1} << 20;  // at a time

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Removes a file at its end.
class ProbedFile {
 public:
  ProbedFile(io::FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}

  ~ProbedFile() { static_cast<void>(files_.remove(path_)); }

  ProbedFile(const ProbedFile&) = delete;
  ProbedFile& operator=(const ProbedFile&) = delete;

  /// Bytes that no disk can make shorter. Returns whether they are there.
  [[nodiscard]] bool write(std::int64_t bytes, std::uint64_t seed) const {
    const io::Opened opened = files_.open(path_, io::OpenMode::kReplace);
    if (opened.error) {
      return false;
    }
    std::vector<std::uint64_t> numbers(at(kWritten / 8));
    for (std::int64_t done = 0; done < bytes; done += kWritten) {
      for (std::uint64_t& number : numbers) {
        number = mix64(++seed);
      }
      std::int64_t written = 0;
      if (io::write_all(*opened.file, numbers.data(), std::min(kWritten, bytes - done), written)) {
        return false;
      }
    }
    return !opened.file->sync() && !opened.file->close();
  }

  [[nodiscard]] bool is_read_past_the_cache() const {
    const io::Opened opened = files_.open(path_, io::OpenMode::kReadDirect);
    return !opened.error && opened.file->descriptor() >= 0 &&
           (fcntl(opened.file->descriptor(), F_GETFL) & O_DIRECT) != 0;
  }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  io::FileSystem& files_;
  const std::string path_;
};

/// Blocks that are on their way together.
struct Wave {
  std::vector<std::byte> memory = std::vector<std::byte>(at((kReadsOfBatch + 1) * kBlock));
  std::vector<io::BlockRead> reads;
  std::unique_ptr<io::ReadBatch> batch;

  [[nodiscard]] std::byte* blocks() {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    return memory.data() + (at(kBlock) - address % at(kBlock)) % at(kBlock);
  }

  void begin(std::int32_t file, std::int64_t file_blocks, std::uint64_t& seed) {
    reads.clear();
    for (std::int64_t i = 0; i < kReadsOfBatch; ++i) {
      const auto block =
          static_cast<std::int64_t>(mix64(++seed) % static_cast<std::uint64_t>(file_blocks));
      reads.push_back(
          {.file = file, .offset = block * kBlock, .bytes = kBlock, .data = blocks() + i * kBlock});
    }
    batch->begin(reads);
  }

  /// Returns what no compiler can leave out.
  std::uint64_t finish() {
    batch->wait();
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i < kReadsOfBatch; ++i) {
      sum += hash_bytes(std::span(blocks() + i * kBlock, at(kBlock)));
    }
    return sum;
  }
};

DiskFigures read_blocks(const ProbedFile& file, const DiskProbeOptions& options) {
  const auto reads = io::make_block_reads(io::real_file_system());
  const std::int32_t number = reads->add(file.path(), io::OpenMode::kReadDirect);
  std::array<Wave, 2> waves;
  std::uint64_t seed = options.seed;
  for (Wave& wave : waves) {
    wave.batch = reads->make_batch();
    wave.begin(number, options.bytes / kBlock, seed);
  }
  std::int64_t blocks = 0;
  volatile std::uint64_t sum = 0;
  const auto start = std::chrono::steady_clock::now();
  const double processor = thread_seconds();
  double seconds = 0.0;
  for (std::size_t turn = 0; seconds < options.budget_s; turn = 1 - turn) {
    sum = sum + waves[turn].finish();
    blocks += kReadsOfBatch;
    waves[turn].begin(number, options.bytes / kBlock, seed);
    seconds = seconds_since(start);
  }
  const DiskFigures figures{
      .blocks_per_s = static_cast<double>(blocks) / seconds,
      .block_s = (thread_seconds() - processor) / static_cast<double>(blocks)};
  for (Wave& wave : waves) {
    wave.batch->wait();
  }
  return figures;
}

}  // namespace

DiskFigures probe_disk(const DiskProbeOptions& options) {
  const ProbedFile file(io::real_file_system(), io::join(options.folder, options.name));
  if (!file.write(options.bytes, options.seed) || !file.is_read_past_the_cache()) {
    return {};
  }
  try {
    return read_blocks(file, options);
  } catch (const Error&) {  // a disk that cannot be read has no rate
    return {};
  }
}

}  // namespace weft::train
