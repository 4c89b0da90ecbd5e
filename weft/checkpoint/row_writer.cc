// The calling thread walks the rows of each shard once and cuts them into batches. It writes
// batches itself, and as rows add up it hands some to threads. Which batch goes to whom depends on
// the rows alone.
#include "weft/checkpoint/row_writer.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/checkpoint/step_names.h"
#include "weft/rowfile/segment_writer.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kBatchBytes = std::int64_t{1} << 20;
/// A batch of a cut is smaller, since an update of its shard waits while the batch is read.
constexpr std::int64_t kCutBytes = std::int64_t{1} << 18;
/// Batches that wait for a thread.
constexpr std::size_t kMostWaiting = 4;

/// Some rows of a shard.
struct ShardBatch {
  std::size_t shard = 0;
  std::vector<std::int64_t> rows;
};

/// The segments of one thread, one after the other.
class RowOutput {
 public:
  RowOutput(io::FileSystem& files,
            const RowWriteOptions& options,
            std::span<const RowShard> shards,
            std::int64_t thread)
      : files_(files), options_(options), shards_(shards), number_(options.first_number + thread) {
    streams_.push_back({0, 1});             // the segment's own name, without rows
    for (const RowShard& shard : shards) {  // several blocks of one table are one stream
      const rowfile::Stream stream{shard.key, shard.row_bytes()};
      const auto found = std::find(streams_.begin() + 1, streams_.end(), stream);
      stream_of_.push_back(at(found - streams_.begin()));
      if (found == streams_.end()) {
        streams_.push_back(stream);
      }
    }
    written_.rows.resize(shards.size());
  }

  /// Reads rows from the state and appends them.
  void write(const ShardBatch& batch, WorkProgress& progress) {
    const RowShard& shard = shards_[batch.shard];
    packed_.resize(batch.rows.size() * at(shard.row_bytes()));
    shard.state->read_rows(batch.rows, packed_.data());
    append(batch.shard, batch.rows, packed_, progress);
  }

  void append(std::size_t shard,
              std::span<const std::int64_t> rows,
              std::span<const std::byte> packed,
              WorkProgress& progress) {
    options_.check();
    ids_.assign(rows.begin(), rows.end());
    if (writer_ == nullptr) {
      open();
    }
    writer_->append(stream_of_[shard], ids_, packed);
    written_.rows[shard] += std::ssize(rows);
    progress.add(std::ssize(packed));
    if (writer_->bytes() >= options_.segment_bytes) {
      close();
    }
  }

  void close() {
    if (writer_ == nullptr) {
      return;
    }
    file_.bytes = writer_->bytes();
    writer_->seal();
    writer_.reset();
    written_.files.push_back(file_);
  }

  [[nodiscard]] WrittenRows take() { return std::move(written_); }

 private:
  void open() {
    file_ = {.rank = options_.rank, .number = number_, .bytes = 0};
    number_ += options_.writers;
    const std::string name = segment_name(options_.prefix, file_);
    streams_.front().key = name_key(name);
    writer_ = std::make_unique<rowfile::SegmentWriter>(files_, join(options_.directory, name),
                                                       streams_, ErrorCode::kCheckpoint);
  }

  io::FileSystem& files_;
  const RowWriteOptions& options_;
  std::span<const RowShard> shards_;
  std::int64_t number_;  ///< of the next file
  std::vector<rowfile::Stream> streams_;
  std::vector<std::size_t> stream_of_;  ///< of each shard
  std::unique_ptr<rowfile::SegmentWriter> writer_;
  SegmentFile file_;
  WrittenRows written_;
  std::vector<rowfile::RowId> ids_;
  std::vector<std::byte> packed_;
};

/// A thread that writes the batches it is given, in order.
class RowThread {
 public:
  RowThread(RowOutput segments, WorkProgress& progress)
      : segments_(std::move(segments)), progress_(progress), thread_([this] { run(); }) {}

  ~RowThread() { end(); }

  RowThread(const RowThread&) = delete;
  RowThread& operator=(const RowThread&) = delete;

  /// Waits while many wait. After an error batches are dropped.
  void give(ShardBatch batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.size() < kMostWaiting; });
    waiting_.push_back(std::move(batch));
    changed_.notify_all();
  }

  /// No batch follows; waits for those given. Throws what writing threw.
  WrittenRows finish() {
    end();
    if (error_) {
      std::rethrow_exception(error_);
    }
    return segments_.take();
  }

 private:
  void end() {
    {
      const std::scoped_lock lock(mutex_);
      is_ended_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  void run() {
    while (true) {
      ShardBatch batch;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return is_ended_ || !waiting_.empty(); });
        if (waiting_.empty()) {
          break;
        }
        batch = std::move(waiting_.front());
        waiting_.pop_front();
        changed_.notify_all();
      }
      attempt([&] { segments_.write(batch, progress_); });
    }
    attempt([this] { segments_.close(); });
  }

  template <typename Work>
  void attempt(const Work& work) {
    if (error_) {
      return;
    }
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  RowOutput segments_;
  WorkProgress& progress_;
  std::exception_ptr error_;  // of the thread, until it has ended
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ShardBatch> waiting_;
  bool is_ended_ = false;
  std::thread thread_;
};

/// All of a rank.
class RowWalk {
 public:
  RowWalk(io::FileSystem& files,
          const RowWriteOptions& options,
          std::span<const RowShard> shards,
          WorkProgress& progress)
      : files_(files),
        options_(options),
        shards_(shards),
        progress_(progress),
        own_(files, options, shards, 0) {}

  WrittenRows run() {
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      if (shards_[s].cut != nullptr) {
        empty_cut(s);
      } else {
        walk(s);
      }
    }
    own_.close();
    WrittenRows all = own_.take();
    for (const std::unique_ptr<RowThread>& writer : writers_) {
      const WrittenRows some = writer->finish();
      all.files.insert(all.files.end(), some.files.begin(), some.files.end());
      for (std::size_t s = 0; s < some.rows.size(); ++s) {
        all.rows[s] += some.rows[s];
      }
    }
    std::sort(all.files.begin(), all.files.end(),
              [](const SegmentFile& a, const SegmentFile& b) { return a.number < b.number; });
    return all;
  }

 private:
  [[nodiscard]] std::int64_t rows_at_once(std::size_t s, std::int64_t bytes) const {
    return std::max<std::int64_t>(std::min(bytes, options_.segment_bytes) / shards_[s].row_bytes(),
                                  1);
  }

  void walk(std::size_t s) {
    const std::size_t at_once = at(rows_at_once(s, kBatchBytes));
    batch_.shard = s;
    const auto take = [&](std::span<const std::int64_t> rows) {
      while (!rows.empty()) {
        const std::size_t count = std::min(rows.size(), at_once - batch_.rows.size());
        batch_.rows.insert(batch_.rows.end(), rows.begin(),
                           rows.begin() + static_cast<std::ptrdiff_t>(count));
        rows = rows.subspan(count);
        if (batch_.rows.size() == at_once) {
          hand_out();
        }
      }
    };
    if (shards_[s].list != nullptr) {
      take(*shards_[s].list);
    } else {
      shards_[s].state->for_each_row(options_.which, take);
    }
    hand_out();
  }

  /// In turn to this thread and to as many others as the bytes so far are worth.
  void hand_out() {
    if (batch_.rows.empty()) {
      return;
    }
    bytes_ += std::ssize(batch_.rows) * shards_[batch_.shard].row_bytes();
    const std::int64_t worth =
        std::clamp<std::int64_t>(bytes_ / options_.writer_bytes, 1, std::max(options_.writers, 1));
    while (std::cmp_less(writers_.size() + 1, worth)) {
      writers_.push_back(std::make_unique<RowThread>(
          RowOutput(files_, options_, shards_, std::ssize(writers_) + 1), progress_));
    }
    const auto turn = static_cast<std::size_t>(batches_++ % worth);
    if (turn == 0) {
      own_.write(batch_, progress_);
      batch_.rows.clear();
    } else {
      const std::size_t shard = batch_.shard;
      writers_[turn - 1]->give(std::exchange(batch_, ShardBatch{.shard = shard, .rows = {}}));
    }
  }

  void empty_cut(std::size_t s) {
    const std::int64_t at_once = rows_at_once(s, kCutBytes);
    while (shards_[s].cut->take(at_once, taken_)) {
      own_.append(s, taken_.numbers, taken_.packed, progress_);
      for (std::size_t other = s + 1; other < shards_.size(); ++other) {
        if (shards_[other].cut->take_copies(taken_)) {
          own_.append(other, taken_.numbers, taken_.packed, progress_);
        }
      }
    }
  }

  io::FileSystem& files_;
  const RowWriteOptions& options_;
  std::span<const RowShard> shards_;
  WorkProgress& progress_;
  RowOutput own_;
  ShardBatch batch_;
  std::int64_t batches_ = 0;
  std::int64_t bytes_ = 0;
  RowCut::Rows taken_;
  std::vector<std::unique_ptr<RowThread>> writers_;
};

}  // namespace

std::int64_t WrittenRows::all_rows() const {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

WrittenRows write_rows(io::FileSystem& files,
                       const RowWriteOptions& options,
                       std::span<const RowShard> shards,
                       WorkProgress& progress) {
  return RowWalk(files, options, shards, progress).run();
}

}  // namespace weft::checkpoint
