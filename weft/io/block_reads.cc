#include "weft/io/block_reads.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/io/numbered_files.h"
#include "weft/io/process.h"

namespace weft::io {

std::int32_t NumberedFiles::add(const std::string& path, OpenMode mode) {
  WEFT_CHECK(reads(mode));
  Opened opened = files_.open(path, mode);
  if (opened.error) {
    const int number = opened.error.value();
    const bool too_many = number == EMFILE || number == ENFILE;
    fail(too_many ? ErrorCode::kResource : ErrorCode::kIo, "cannot open '{}' to read it: {}{}",
         path, opened.error.message(),
         too_many
             ? fmt::format(": this process may have {} files open; raise the limit (ulimit -n), "
                           "or make the files larger and fewer",
                           open_file_limits().soft)
             : "");
  }
  auto added = std::make_unique<NumberedFile>(NumberedFile{path, std::move(opened.file)});
  const std::scoped_lock lock(mutex_);
  if (free_.empty()) {
    slots_.push_back(std::move(added));
    return static_cast<std::int32_t>(slots_.size()) - 1;
  }
  const std::int32_t number = free_.back();
  free_.pop_back();
  slots_[at(number)] = std::move(added);
  return number;
}

void NumberedFiles::remove(std::int32_t number) {
  std::unique_ptr<NumberedFile> removed;  // closed behind the lock
  const std::scoped_lock lock(mutex_);
  removed = std::exchange(slots_.at(at(number)), nullptr);
  WEFT_CHECK(removed != nullptr, "file {}", number);
  free_.push_back(number);
}

const NumberedFile& NumberedFiles::get(std::int32_t number) const {
  const std::scoped_lock lock(mutex_);
  WEFT_CHECK(0 <= number && at(number) < slots_.size() && slots_[at(number)] != nullptr, "file {}",
             number);
  return *slots_[at(number)];
}

ReadEnd read_rest(const NumberedFile& file, const BlockRead& read, std::int64_t got) {
  // Past the page cache only whole blocks can be read.
  got -= got % kBlockAlignment;
  while (got < read.bytes) {
    std::int64_t count = 0;
    const std::error_code error = file.file->read(
        read.offset + got, static_cast<std::byte*>(read.data) + got, read.bytes - got, count);
    if (error) {
      return {.error = error};
    }
    if (got + count < read.bytes && count % kBlockAlignment != 0) {
      // A file system may cut a read anywhere; only a read that gets nothing more says the end.
      const std::int64_t whole = count - count % kBlockAlignment;
      if (whole == 0) {
        return {.met_end = true};
      }
      count = whole;
    }
    if (count == 0) {
      return {.met_end = true};
    }
    got += count;
  }
  return {};
}

void FirstFault::note(std::int64_t order,
                      const NumberedFile& file,
                      const BlockRead& read,
                      const ReadEnd& end) {
  if (!message_.empty() && order_ < order) {
    return;
  }
  order_ = order;
  message_ = fmt::format("cannot read {} bytes at offset {} of '{}': {}: check the disk",
                         read.bytes, read.offset, file.path,
                         end.met_end ? std::string("the file ends before") : end.error.message());
}

void FirstFault::throw_and_forget() {
  if (!message_.empty()) {
    throw Error(ErrorCode::kIo, std::exchange(message_, {}));
  }
}

void check_aligned(const BlockRead& read) {
  WEFT_CHECK(read.offset >= 0 && read.bytes > 0 && read.offset % kBlockAlignment == 0 &&
                 read.bytes % kBlockAlignment == 0 &&
                 reinterpret_cast<std::uintptr_t>(read.data) % at(kBlockAlignment) == 0,
             "a read of {} bytes at {} is not of whole blocks", read.bytes, read.offset);
}

std::unique_ptr<BlockReads> make_block_reads(FileSystem& files, const BlockReadsOptions& options) {
  WEFT_CHECK(options.depth >= 1 && options.threads >= 1, "depth {}, {} threads", options.depth,
             options.threads);
  if (options.method != ReadMethod::kThreads) {
    std::string why;
    if (auto ring = make_ring_reads(files, options, why)) {
      return ring;
    }
    if (options.method == ReadMethod::kRing) {
      fail(ErrorCode::kIo, "io_uring cannot be used here: {}; let reads go through threads", why);
    }
  }
  return make_threaded_reads(files, options);
}

}  // namespace weft::io
