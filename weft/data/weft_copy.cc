// A source copied to a weft file, block by block on a pool:
//
//   load a window of blocks
//   tasks:  0          write the blocks of the window before, in order
//           1 .. n     decode and encode one block of this window each
//
// A block is a fixed range of samples, so the file is the same for any number of threads.
#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/data/weft_format.h"
#include "weft/data/weft_layout.h"
#include "weft/data/weft_output.h"

namespace weft::data {
namespace {

constexpr std::int64_t kBlockSamples = 16384;
// Of a window, per thread: with two, a thread that has written can still get its share.
constexpr std::int64_t kBlocksPerThread = 2;

// What a task needs while it runs. There are as many as tasks run at once.
struct Scratch {
  std::vector<std::int64_t> ids;
  RawBlock block;
};

class ScratchList {
 public:
  std::unique_ptr<Scratch> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      return std::make_unique<Scratch>();
    }
    std::unique_ptr<Scratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }

  void give_back(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

class Copy {
 public:
  Copy(Source& source, WeftOutput& output, ThreadPool& pool)
      : source_(source), output_(output), pool_(pool) {
    const std::int64_t blocks =
        source.concurrent_reads() ? kBlocksPerThread * pool.threads() : std::int64_t{1};
    encoded_.resize(static_cast<std::size_t>(blocks));
    before_.resize(encoded_.size());
  }

  [[nodiscard]] std::int64_t window() const {
    return static_cast<std::int64_t>(encoded_.size()) * kBlockSamples;
  }

  // Takes the loaded samples [first, first + count), at most window().
  void add(std::int64_t first, std::int64_t count) {
    const std::int64_t blocks = (count + kBlockSamples - 1) / kBlockSamples;
    pool_.parallel_for(blocks + 1, [&](std::int64_t task) {
      if (task == 0) {
        write_before();
        return;
      }
      const std::int64_t begin = (task - 1) * kBlockSamples;
      encode(first + begin, std::min(kBlockSamples, count - begin),
             encoded_[static_cast<std::size_t>(task - 1)]);
    });
    std::swap(encoded_, before_);
    filled_ = static_cast<std::size_t>(blocks);
  }

  void finish() {
    write_before();
    output_.finish();
  }

 private:
  void write_before() {
    for (std::size_t i = 0; i < filled_; ++i) {
      output_.write(before_[i]);
    }
    filled_ = 0;
  }

  void encode(std::int64_t first, std::int64_t count, layout::EncodedBlock& out) {
    std::unique_ptr<Scratch> scratch = scratch_.take();
    scratch->ids.resize(static_cast<std::size_t>(count));
    std::iota(scratch->ids.begin(), scratch->ids.end(), first);
    source_.read(scratch->ids, scratch->block);
    layout::encode_block(scratch->block, source_.schema(), out);
    scratch_.give_back(std::move(scratch));
  }

  Source& source_;
  WeftOutput& output_;
  ThreadPool& pool_;
  std::vector<layout::EncodedBlock> encoded_, before_;
  std::size_t filled_ = 0;  // of before_
  ScratchList scratch_;
};

}  // namespace

std::int64_t write_weft(Source& source, const std::string& path, const CopyOptions& options) {
  std::map<std::string, std::string> metadata = {{"source", source.describe()}};
  const bool whole =
      options.samples < 0 || (source.size() >= 0 && options.samples >= source.size());
  if (const std::optional<double> ne = whole ? source.bayes_ne() : std::nullopt) {
    metadata["bayes_ne"] = fmt::format("{}", *ne);
  }
  WeftOutput output(path, source.schema(), std::move(metadata));
  ThreadPool own(1);
  ThreadPool& pool = options.pool != nullptr ? *options.pool : own;
  const PoolUse use(source, pool);
  Copy copy(source, output, pool);
  const std::int64_t total = whole ? source.size() : options.samples;
  std::int64_t done = 0;
  while (whole || done < options.samples) {
    const std::int64_t wanted =
        whole ? copy.window() : std::min(copy.window(), options.samples - done);
    const std::int64_t got = source.load(done, wanted);
    if (got > 0) {
      copy.add(done, got);
      done += got;
    }
    if (options.progress) {
      options.progress(done, total);
    }
    if (got < wanted) {
      break;
    }
  }
  copy.finish();
  return done;
}

}  // namespace weft::data
