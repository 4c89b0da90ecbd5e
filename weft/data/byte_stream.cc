#include "weft/data/byte_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "weft/base/error.h"

namespace weft::data {
namespace {

/// Large enough that the system calls cost nothing beside decompression or parsing.
constexpr std::size_t kChunk = 256 * 1024;

class PlainFile final : public ByteStream {
 public:
  explicit PlainFile(std::string path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) {
      fail(ErrorCode::kIo, "cannot open '{}': {}", path_, std::strerror(errno));
    }
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);  // advice: it may be refused
  }

  ~PlainFile() override { ::close(fd_); }

  std::size_t read(char* out, std::size_t size, ThreadPool* pool) override {
    std::size_t got = 0;
    if (pool == nullptr || size < 2 * kRange) {
      got = read_at(out, size, offset_);
    } else {
      got = read_ranges(out, size, *pool);
    }
    offset_ += got;
    return got;
  }

  void rewind() { offset_ = 0; }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static constexpr std::size_t kRange = std::size_t{1} << 20;

  /// Less than `size` only at the end of the file.
  std::size_t read_at(char* out, std::size_t size, std::size_t offset) const {
    std::size_t done = 0;
    while (done < size) {
      const ssize_t got = ::pread(fd_, out + done, size - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got < 0) {
        fail(ErrorCode::kIo, "cannot read '{}': {}", path_, std::strerror(errno));
      }
      if (got == 0) {
        break;
      }
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  std::size_t read_ranges(char* out, std::size_t size, ThreadPool& pool) {
    got_.assign((size + kRange - 1) / kRange, 0);
    pool.parallel_for(static_cast<std::int64_t>(got_.size()), [&](std::int64_t index) {
      const std::size_t begin = static_cast<std::size_t>(index) * kRange;
      got_[static_cast<std::size_t>(index)] =
          read_at(out + begin, std::min(kRange, size - begin), offset_ + begin);
    });
    std::size_t total = 0;
    for (const std::size_t got : got_) {
      total += got;
      if (got < kRange) {
        break;  // the end; what a growing file has after it by now is left for the next time
      }
    }
    return total;
  }

  std::string path_;
  int fd_ = -1;
  std::size_t offset_ = 0;
  std::vector<std::size_t> got_;  ///< bytes of each range
};

/// Compressed input, a chunk at a time.
class Input {
 public:
  explicit Input(std::unique_ptr<PlainFile> file) : file_(std::move(file)), chunk_(kChunk) {}

  /// True while there are bytes; reads the next chunk where the last is used up.
  bool refill() {
    if (used_ == size_) {
      size_ = file_->read(chunk_.data(), chunk_.size(), nullptr);
      used_ = 0;
      total_ += size_;
    }
    return used_ < size_;
  }

  [[nodiscard]] char* data() { return chunk_.data() + used_; }

  [[nodiscard]] std::size_t size() const { return size_ - used_; }

  void consume(std::size_t bytes) { used_ += bytes; }

  [[nodiscard]] std::size_t offset() const { return total_ - size(); }

  [[nodiscard]] const std::string& path() const { return file_->path(); }

 private:
  std::unique_ptr<PlainFile> file_;
  std::vector<char> chunk_;
  std::size_t used_ = 0;
  std::size_t size_ = 0;
  std::size_t total_ = 0;
};

[[noreturn]] void fail_cut(const Input& input, std::string_view format) {
  fail(ErrorCode::kData,
       "'{}' is cut: its {} data end early, after {} bytes of the file; fetch or compress it again",
       input.path(), format, input.offset());
}

class GzipFile final : public ByteStream {
 public:
  explicit GzipFile(std::unique_ptr<PlainFile> file) : input_(std::move(file)) {
    // 16: a gzip header, and only that.
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) {
      fail(ErrorCode::kResource, "cannot set up zlib to read '{}'", input_.path());
    }
  }

  ~GzipFile() override { inflateEnd(&stream_); }

  std::size_t read(char* out, std::size_t size, ThreadPool* /*pool*/) override {
    const std::size_t wanted = std::min(size, kChunk);
    std::size_t produced = 0;
    while (produced == 0) {
      if (!inside_) {
        skip_zeros();  // no member begins with one
      }
      if (!input_.refill()) {
        if (inside_) {
          fail_cut(input_, "gzip");
        }
        return 0;
      }
      produced = inflate_some(out, wanted);
    }
    return produced;
  }

 private:
  void skip_zeros() {
    while (input_.refill() && *input_.data() == 0) {
      const char* const begin = input_.data();
      const char* const end = begin + input_.size();
      const auto other = std::find_if(begin, end, [](char c) { return c != 0; });
      input_.consume(static_cast<std::size_t>(other - begin));
    }
  }

  std::size_t inflate_some(char* out, std::size_t size) {
    if (!inside_) {
      inflateReset(&stream_);
      inside_ = true;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(input_.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(size);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    input_.consume(input_.size() - stream_.avail_in);
    if (status == Z_STREAM_END) {
      inside_ = false;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail(ErrorCode::kData, "'{}' is damaged near byte {} of the file (zlib: {}); fetch it again",
           input_.path(), input_.offset(), stream_.msg != nullptr ? stream_.msg : "no message");
    }
    return size - stream_.avail_out;
  }

  Input input_;
  z_stream stream_{};
  bool inside_ = false;
};

class ZstdFile final : public ByteStream {
 public:
  explicit ZstdFile(std::unique_ptr<PlainFile> file)
      : input_(std::move(file)), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) {
      fail(ErrorCode::kResource, "cannot set up zstd to read '{}'", input_.path());
    }
  }

  ~ZstdFile() override { ZSTD_freeDStream(stream_); }

  std::size_t read(char* out, std::size_t size, ThreadPool* /*pool*/) override {
    ZSTD_outBuffer target = {out, size, 0};
    while (target.pos == 0) {
      // A frame's last bytes may still wait inside zstd when the file is used up.
      const bool more = input_.refill();
      if (!more && !inside_) {
        return 0;
      }
      ZSTD_inBuffer source = {more ? input_.data() : "", more ? input_.size() : 0, 0};
      const std::size_t status = ZSTD_decompressStream(stream_, &target, &source);
      if (ZSTD_isError(status) != 0) {
        fail(ErrorCode::kData,
             "'{}' is damaged near byte {} of the file (zstd: {}); fetch it again", input_.path(),
             input_.offset(), ZSTD_getErrorName(status));
      }
      input_.consume(source.pos);
      inside_ = status != 0;
      if (!more && inside_ && target.pos == 0) {
        fail_cut(input_, "zstd");
      }
    }
    return target.pos;
  }

 private:
  Input input_;
  ZSTD_DStream* stream_;
  bool inside_ = false;
};

/// Reads another stream ahead on a thread of its own, so that decompressing and parsing go on at
/// the same time. An error arrives after the bytes before it.
class ReadAhead final : public ByteStream {
 public:
  explicit ReadAhead(std::unique_ptr<ByteStream> inner) : inner_(std::move(inner)) {
    for (Chunk& chunk : chunks_) {
      chunk.bytes.resize(kAhead);
    }
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  std::size_t read(char* out, std::size_t size, ThreadPool* /*pool*/) override {
    Chunk& chunk = chunks_[read_ % chunks_.size()];
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return read_ < filled_ || finished_; });
      if (read_ == filled_) {
        if (error_ != nullptr) {
          std::rethrow_exception(error_);
        }
        return 0;
      }
    }
    const std::size_t count = std::min(size, chunk.size - used_);
    std::memcpy(out, chunk.bytes.data() + used_, count);
    used_ += count;
    if (used_ == chunk.size) {
      used_ = 0;
      const std::lock_guard lock(mutex_);
      ++read_;
      changed_.notify_all();
    }
    return count;
  }

 private:
  static constexpr std::size_t kAhead = std::size_t{1} << 20;

  struct Chunk {
    std::vector<char> bytes;
    std::size_t size = 0;
  };

  void run(const std::stop_token& stop) {
    std::exception_ptr error;
    try {
      while (wait_for_room(stop) && fill(chunks_[filled_ % chunks_.size()])) {
        const std::lock_guard lock(mutex_);
        ++filled_;
        changed_.notify_all();
      }
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    error_ = error;
    finished_ = true;
    changed_.notify_all();
  }

  bool wait_for_room(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    return changed_.wait(lock, stop, [this] { return filled_ - read_ < chunks_.size(); }) &&
           !stop.stop_requested();
  }

  /// False where there is nothing more.
  bool fill(Chunk& chunk) {
    chunk.size = inner_->read(chunk.bytes.data(), chunk.bytes.size(), nullptr);
    return chunk.size > 0;
  }

  std::unique_ptr<ByteStream> inner_;
  std::array<Chunk, 3> chunks_;
  std::size_t used_ = 0;  ///< of the chunk being read

  std::mutex mutex_;  ///< of all below
  std::condition_variable_any changed_;
  std::size_t filled_ = 0;  ///< chunks so far
  std::size_t read_ = 0;
  bool finished_ = false;
  std::exception_ptr error_;

  std::jthread thread_;  ///< last, so that it ends before what it uses
};

/// A frame of data, or one to be skipped: pzstd begins with such a one.
bool begins_as_zstd(std::string_view start) {
  return start == "\x28\xb5\x2f\xfd" ||
         (start.size() == 4 && (start[0] & 0xf0) == 0x50 && start.substr(1) == "\x2a\x4d\x18");
}

}  // namespace

std::unique_ptr<ByteStream> open_bytes(const std::string& path) {
  auto file = std::make_unique<PlainFile>(path);
  char magic[4] = {};
  const std::size_t got = file->read(magic, sizeof magic, nullptr);
  file->rewind();
  const std::string_view start(magic, got);
  if (start.substr(0, 2) == "\x1f\x8b") {
    return std::make_unique<ReadAhead>(std::make_unique<GzipFile>(std::move(file)));
  }
  if (begins_as_zstd(start)) {
    return std::make_unique<ReadAhead>(std::make_unique<ZstdFile>(std::move(file)));
  }
  for (const std::string_view suffix : {".gz", ".zst"}) {
    if (path.ends_with(suffix)) {
      fail(ErrorCode::kData, "'{}' is not {} data although its name ends in {}; fetch it again",
           path, suffix == ".gz" ? "gzip" : "zstd", suffix);
    }
  }
  return file;
}

}  // namespace weft::data
