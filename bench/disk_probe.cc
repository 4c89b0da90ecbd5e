#include "bench/disk_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>

#include <sys/resource.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/io/file_system.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kBatchBlocks = 2048;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

Spent now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto wall = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration<double>(wall).count(),
          seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

void check_written(const std::string& path, const std::error_code& error) {
  if (error) {
    fail(ErrorCode::kIo, "cannot write '{}': {}", path, io::describe_write_error(error));
  }
}

}  // namespace

Stopwatch::Stopwatch() : begin_(now()) {
}

Spent Stopwatch::spent() const {
  const Spent end = now();
  return {end.wall_s - begin_.wall_s, end.cpu_s - begin_.cpu_s};
}

RandomBlocks::RandomBlocks(const std::vector<std::string>& paths,
                           const io::BlockReadsOptions& options)
    : memory_(static_cast<std::byte*>(
          std::aligned_alloc(at(io::kBlockAlignment), at(2 * kBatchBlocks * io::kBlockAlignment)))),
      reads_(io::make_block_reads(io::real_file_system(), options)) {
  WEFT_CHECK(memory_ != nullptr);
  for (const std::string& path : paths) {
    files_.push_back({reads_->add(path, io::OpenMode::kReadDirect), blocks_});
    blocks_ += io::real_file_system().status(path).bytes / io::kBlockAlignment;
  }
  WEFT_CHECK(blocks_ > 0);
}

Spent RandomBlocks::read(std::int64_t blocks) {
  const std::unique_ptr<std::byte, FreeMemory> memory(static_cast<std::byte*>(
      std::aligned_alloc(at(io::kBlockAlignment), at(2 * kBatchBlocks * io::kBlockAlignment))));
  WEFT_CHECK(memory != nullptr);
  const std::array batches = {reads_->make_batch(), reads_->make_batch()};
  std::vector<io::BlockRead> list(at(kBatchBlocks));
  const Stopwatch watch;
  for (std::int64_t done = 0, turn = 0; done < blocks; done += kBatchBlocks, turn = 1 - turn) {
    list.resize(at(std::min(kBatchBlocks, blocks - done)));
    std::byte* data = memory_.get() + turn * kBatchBlocks * io::kBlockAlignment;
    for (io::BlockRead& read : list) {
      const auto block =
          static_cast<std::int64_t>(mix64(++draws_) % static_cast<std::uint64_t>(blocks_));
      const auto behind = std::upper_bound(
          files_.begin(), files_.end(), block,
          [](std::int64_t wanted, const File& file) { return wanted < file.first_block; });
      const File& file = *std::prev(behind);
      read = {file.number, (block - file.first_block) * io::kBlockAlignment, io::kBlockAlignment,
              data};
      data += io::kBlockAlignment;
    }
    batches[at(turn)]->wait();
    batches[at(turn)]->begin(list);
  }
  for (const auto& batch : batches) {
    batch->wait();
  }
  return watch.spent();
}

Spent write_file_once(const std::string& path, std::int64_t bytes) {
  constexpr std::int64_t kWriteBytes = 1 << 20;
  const std::vector<std::byte> piece(at(kWriteBytes), std::byte{0x5a});
  io::FileSystem& files = io::real_file_system();
  const Stopwatch watch;
  const io::Opened opened = files.open(path, io::OpenMode::kReplace);
  check_written(path, opened.error);
  for (std::int64_t done = 0; done < bytes;) {
    check_written(path, io::write_all(*opened.file, piece.data(), kWriteBytes, done));
  }
  check_written(path, opened.file->sync());
  const Spent spent = watch.spent();
  static_cast<void>(files.remove(path));
  return spent;
}

}  // namespace weft::bench
