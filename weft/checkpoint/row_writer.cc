#include "weft/checkpoint/row_writer.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/checkpoint/step_names.h"
#include "weft/rowfile/segment_writer.h"

namespace weft::checkpoint {
namespace {

/// A thread has every n-th stripe of a shard's rows.
constexpr std::int64_t kStripeRows = 4096;
constexpr std::int64_t kBatchBytes = std::int64_t{1} << 20;
/// Of a cut, of whose shard an update waits while they are read.
constexpr std::int64_t kCutBytes = std::int64_t{1} << 18;

/// One thread's share of the rows.
class ShareWriter {
 public:
  ShareWriter(io::FileSystem& files,
              const RowWriteOptions& options,
              std::span<const RowShard> shards,
              std::int64_t share,
              std::int64_t shares)
      : files_(files), options_(options), shards_(shards), share_(share), shares_(shares) {
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

  void run(WorkProgress& progress) {
    progress_ = &progress;
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      if (shards_[s].cut != nullptr) {
        empty_cut(s);
        continue;
      }
      const std::int64_t at_once = rows_at_once(s, kBatchBytes);
      shards_[s].state->for_each_row(
          options_.which, [&](std::span<const std::int64_t> rows) { visit(s, rows, at_once); });
      flush(s);
    }
    close();
  }

  [[nodiscard]] WrittenRows take() { return std::move(written_); }

 private:
  [[nodiscard]] std::int64_t rows_at_once(std::size_t s, std::int64_t bytes) const {
    return std::max<std::int64_t>(std::min(bytes, options_.segment_bytes) / shards_[s].row_bytes(),
                                  1);
  }

  void empty_cut(std::size_t s) {
    const std::int64_t at_once = rows_at_once(s, kCutBytes);
    while (shards_[s].cut->take(at_once, taken_)) {
      append(s, taken_.numbers, taken_.packed);
      for (std::size_t other = s + 1; other < shards_.size(); ++other) {
        if (shards_[other].cut->take_copies(taken_)) {
          append(other, taken_.numbers, taken_.packed);
        }
      }
    }
  }

  void visit(std::size_t s, std::span<const std::int64_t> rows, std::int64_t at_once) {
    const RowSet& held = shards_[s].shape.rows;
    for (const std::int64_t row : rows) {
      if (held.index(row) / kStripeRows % shares_ != share_) {
        continue;
      }
      rows_.push_back(row);
      if (std::cmp_equal(rows_.size(), at_once)) {
        flush(s);
      }
    }
  }

  void flush(std::size_t s) {
    if (rows_.empty()) {
      return;
    }
    packed_.resize(rows_.size() * at(shards_[s].row_bytes()));
    shards_[s].state->read_rows(rows_, packed_.data());
    append(s, rows_, packed_);
    rows_.clear();
  }

  void append(std::size_t s,
              std::span<const std::int64_t> rows,
              std::span<const std::byte> packed) {
    ids_.assign(rows.begin(), rows.end());
    if (writer_ == nullptr) {
      open();
    }
    writer_->append(stream_of_[s], ids_, packed);
    written_.rows[s] += std::ssize(rows);
    progress_->add(std::ssize(packed));
    if (writer_->bytes() >= options_.segment_bytes) {
      close();
    }
  }

  void open() {
    file_ = {.rank = options_.rank, .number = share_ + number_++ * shares_, .bytes = 0};
    const std::string name = segment_name(options_.prefix, file_);
    streams_.front().key = name_key(name);
    writer_ = std::make_unique<rowfile::SegmentWriter>(files_, join(options_.directory, name),
                                                       streams_, ErrorCode::kCheckpoint);
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

  io::FileSystem& files_;
  const RowWriteOptions& options_;
  std::span<const RowShard> shards_;
  std::int64_t share_;
  std::int64_t shares_;
  WorkProgress* progress_ = nullptr;
  std::vector<rowfile::Stream> streams_;
  std::vector<std::size_t> stream_of_;  ///< of each shard
  std::unique_ptr<rowfile::SegmentWriter> writer_;
  std::int64_t number_ = 0;
  SegmentFile file_;
  WrittenRows written_;
  std::vector<std::int64_t> rows_;
  std::vector<rowfile::RowId> ids_;
  std::vector<std::byte> packed_;
  RowCut::Rows taken_;
};

/// Bytes of rows for several threads to write.
std::int64_t bytes_of(const RowWriteOptions& options, std::span<const RowShard> shards) {
  std::int64_t bytes = 0;
  for (const RowShard& shard : shards) {
    if (shard.cut != nullptr) {
      return 0;
    }
    bytes += count_rows(*shard.state, options.which) * shard.row_bytes();
  }
  return bytes;
}

/// Runs all shares at once, the first on the calling thread; throws the error of the lowest.
void run_all(std::vector<ShareWriter>& shares, WorkProgress& progress) {
  std::vector<std::exception_ptr> errors(shares.size());
  const auto run = [&](std::size_t i) {
    try {
      shares[i].run(progress);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < shares.size(); ++i) {
      threads.emplace_back(run, i);
    }
    run(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

}  // namespace

WrittenRows write_rows(io::FileSystem& files,
                       const RowWriteOptions& options,
                       std::span<const RowShard> shards,
                       WorkProgress& progress) {
  const std::int64_t count = std::clamp<std::int64_t>(
      bytes_of(options, shards) / options.writer_bytes, 1, std::max(options.writers, 1));
  std::vector<ShareWriter> shares;
  for (std::int64_t i = 0; i < count; ++i) {
    shares.emplace_back(files, options, shards, i, count);
  }
  run_all(shares, progress);
  WrittenRows all{.files = {}, .rows = std::vector<std::int64_t>(shards.size())};
  for (ShareWriter& share : shares) {
    const WrittenRows own = share.take();
    all.files.insert(all.files.end(), own.files.begin(), own.files.end());
    for (std::size_t s = 0; s < own.rows.size(); ++s) {
      all.rows[s] += own.rows[s];
    }
  }
  std::sort(all.files.begin(), all.files.end(),
            [](const SegmentFile& a, const SegmentFile& b) { return a.number < b.number; });
  return all;
}

}  // namespace weft::checkpoint
