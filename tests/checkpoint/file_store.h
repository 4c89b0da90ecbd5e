/// Files below rows of tables, as a store on disks has them, that come when they are asked for: so
/// a test says which rows lie where, and each run makes the same calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/io/file_system.h"
#include "weft/io/process.h"
#include "weft/rowfile/name_stream.h"
#include "weft/rowfile/segment_reader.h"
#include "weft/rowfile/segment_writer.h"
#include "weft/tensor/row_files.h"

namespace weft::checkpoint {

/// The store of one rank. Its files are in a directory of its own, and go with it.
class FileStore final : public RowFiles {
 public:
  FileStore(io::FileSystem& files, std::string directory)
      : files_(files), directory_(std::move(directory)) {
    if (const auto error = io::make_directories(files_, directory_)) {
      fail(ErrorCode::kCheckpoint, "'{}': {}", directory_, error.message());
    }
    for (const std::string& name : files_.list(directory_).names) {
      static_cast<void>(files_.remove(io::join(directory_, name)));
    }
  }

  ~FileStore() override {
    for (const Stored& one : stored_) {
      static_cast<void>(files_.remove(one.file.path));
    }
  }

  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  /// The number of the stream, under which rows come.
  std::size_t add(const RowFileStream& stream) {
    streams_.push_back(stream);
    return streams_.size() - 1;
  }

  /// Takes a row, which lies in the file of the next seal.
  void write(std::size_t stream, std::int64_t row, std::vector<std::byte> packed) {
    const std::scoped_lock lock(mutex_);
    waiting_.push_back({stream, row, std::move(packed)});
  }

  /// Moves the rows of the oldest file that hold to a new one. Not while a seal is waited for.
  void clean() {
    const std::scoped_lock lock(mutex_);
    if (stored_.empty()) {
      return;
    }
    std::vector<Entry> moved;
    const rowfile::SegmentReader reader(files_, stored_.front().file.path, ErrorCode::kCheckpoint);
    reader.for_each_row([&](const rowfile::GroupRows& rows) {
      const std::size_t stream = rows.group.stream - 1;
      const auto row_bytes = static_cast<std::size_t>(streams_[stream].row_bytes);
      for (std::size_t i = 0; i < rows.group.ids.size(); ++i) {
        const auto row = static_cast<std::int64_t>(rows.group.ids[i]);
        const auto* const bytes = rows.rows.data() + i * row_bytes;
        if (last_.at({stream, row}) == stored_.front().number) {
          std::erase_if(moved,
                        [&](const Entry& one) { return one.stream == stream && one.row == row; });
          moved.push_back({stream, row, {bytes, bytes + row_bytes}});
        }
      }
    });
    put(moved, true);
    static_cast<void>(files_.remove(stored_.front().file.path));
    stored_.erase(stored_.begin());
  }

  [[nodiscard]] std::vector<RowFileStream> streams() const override { return streams_; }

  [[nodiscard]] std::int64_t new_bytes() const override {
    const std::scoped_lock lock(mutex_);
    std::int64_t bytes = 0;
    for (const Stored& one : stored_) {
      bytes += one.number > marked_ ? one.file.bytes : 0;
    }
    for (const Entry& entry : waiting_) {
      bytes += std::ssize(entry.packed);
    }
    return bytes;
  }

  [[nodiscard]] std::unique_ptr<RowSeal> make_seal() override {
    return std::make_unique<FileSeal>(*this);
  }

  /// The rule that the next seals leave out: they do not say that rows have moved.
  bool denies_moves = false;

 private:
  struct Entry {
    std::size_t stream;
    std::int64_t row;
    std::vector<std::byte> packed;
  };

  struct Stored {
    RowFile file;
    std::int64_t number = 0;
    bool is_moved = false;
  };

  class FileSeal final : public RowSeal {
   public:
    explicit FileSeal(FileStore& store) : store_(store) {
      const std::scoped_lock lock(store_.mutex_);
      has_moved_ = std::any_of(
          store_.stored_.begin(), store_.stored_.end(),
          [&](const Stored& one) { return one.is_moved && one.number > store_.marked_; });
    }

    /// Rows that are not in a file yet go back.
    ~FileSeal() override {
      const std::scoped_lock lock(store_.mutex_);
      store_.waiting_.insert(store_.waiting_.begin(), entries_.begin(), entries_.end());
    }

    FileSeal(const FileSeal&) = delete;
    FileSeal& operator=(const FileSeal&) = delete;

    [[nodiscard]] bool has_moved_rows() const override {
      return has_moved_ && !store_.denies_moves;
    }

    void begin() override {
      const std::scoped_lock lock(store_.mutex_);
      entries_ = std::exchange(store_.waiting_, {});
      before_ = store_.marked_;
      last_ = store_.numbers_ + 1;  // of the file that the entries will have
      ++store_.numbers_;
    }

    void mark() override {
      const std::scoped_lock lock(store_.mutex_);
      store_.marked_ = last_;
    }

    const std::vector<RowFile>& wait() override {
      const std::scoped_lock lock(store_.mutex_);
      if (!entries_.empty()) {
        store_.put(entries_, false, last_);
        entries_.clear();
      }
      listed_.clear();
      for (const Stored& one : store_.stored_) {
        if (one.number <= last_) {
          listed_.push_back(one.file);
          listed_.back().is_new = one.number > before_;
        }
      }
      return listed_;
    }

   private:
    FileStore& store_;
    bool has_moved_ = false;
    std::vector<Entry> entries_;
    std::int64_t before_ = 0;
    std::int64_t last_ = 0;
    std::vector<RowFile> listed_;
  };

  void put(const std::vector<Entry>& entries, bool is_moved, std::int64_t number = 0) {
    if (entries.empty()) {
      return;
    }
    number = number == 0 ? ++numbers_ : number;
    const std::string name = fmt::format("{:016x}-{}.seg", io::random_id(), number);
    const std::string path = io::join(directory_, name);
    std::vector<rowfile::Stream> streams = {rowfile::name_stream(name)};
    for (const RowFileStream& stream : streams_) {
      streams.push_back({stream.key, stream.row_bytes});
    }
    rowfile::SegmentWriter writer(files_, path, streams, ErrorCode::kCheckpoint);
    for (const Entry& entry : entries) {
      const auto id = static_cast<rowfile::RowId>(entry.row);
      writer.append(entry.stream + 1, std::span(&id, 1), entry.packed);
    }
    const std::int64_t bytes = writer.bytes();
    writer.seal();
    for (const Entry& entry : entries) {
      last_[{entry.stream, entry.row}] = number;
    }
    stored_.push_back({{path, bytes, writer.rows(), streams.front().key, false}, number, is_moved});
  }

  io::FileSystem& files_;
  const std::string directory_;
  std::vector<RowFileStream> streams_;
  mutable std::mutex mutex_;  // of what follows
  std::vector<Entry> waiting_;
  std::vector<Stored> stored_;
  std::int64_t numbers_ = 0;  ///< of files
  std::int64_t marked_ = 0;   ///< files of greater numbers are new
  std::map<std::pair<std::size_t, std::int64_t>, std::int64_t> last_;  ///< where a row holds
};

}  // namespace weft::checkpoint
