#include "weft/data/content.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"

namespace weft::data {
namespace {

std::uint64_t word(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

/// A file that is open for reading at places.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : path_(path) {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) {
      fail(ErrorCode::kIo, "cannot open '{}': {}", path_, std::strerror(errno));
    }
  }

  ~OpenFile() { ::close(descriptor_); }

  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] std::int64_t bytes() const {
    struct stat status{};
    if (::fstat(descriptor_, &status) != 0) {
      fail(ErrorCode::kIo, "cannot look at '{}': {}", path_, std::strerror(errno));
    }
    return status.st_size;
  }

  void read(const Place& place, std::span<std::byte> out) const {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done,
                                  static_cast<off_t>(place.begin) + static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got < 0) {
        fail(ErrorCode::kIo, "cannot read '{}' at byte {}: {}", path_, place.begin,
             std::strerror(errno));
      }
      if (got == 0) {
        fail(ErrorCode::kData,
             "'{}' has become shorter while it was looked at: its bytes [{}, {}) are gone; data "
             "must not change during a job",
             path_, place.begin, place.end);
      }
      done += static_cast<std::size_t>(got);
    }
  }

 private:
  const std::string& path_;
  int descriptor_ = -1;
};

std::int64_t size_of_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) {
    fail(ErrorCode::kIo, "cannot look at '{}': {}", path, error.message());
  }
  return static_cast<std::int64_t>(bytes);
}

FileContent sample_file(const std::string& path, std::int64_t places, WorkProgress* progress) {
  FileContent content;
  content.name = std::filesystem::path(path).filename().string();
  if (places == 0) {
    content.bytes = size_of_file(path);
    return content;
  }
  const OpenFile file(path);
  content.bytes = file.bytes();
  content.fingerprint = mix64(word(content.bytes));
  std::vector<std::byte> bytes;
  for (const Place& place : choose_places(content.bytes, places)) {
    bytes.resize(static_cast<std::size_t>(place.end - place.begin));
    file.read(place, bytes);
    content.fingerprint = hash_combine(content.fingerprint, hash_bytes(bytes));
    if (progress != nullptr) {
      progress->move();
    }
  }
  return content;
}

}  // namespace

std::vector<Place> choose_places(std::int64_t bytes, std::int64_t places) {
  std::vector<Place> chosen;
  if (bytes <= kPlaceBytes * places) {
    for (std::int64_t begin = 0; begin < bytes; begin += kPlaceBytes) {
      chosen.push_back({begin, std::min(begin + kPlaceBytes, bytes)});
    }
    return chosen;
  }
  const std::int64_t last = bytes - kPlaceBytes;
  const auto draw = [bytes](std::int64_t begin, std::int64_t length, std::int64_t index) {
    const std::uint64_t random = hash_combine(mix64(word(bytes)), word(index));
    return begin + static_cast<std::int64_t>(random % word(length));
  };
  if (places == 1) {
    const std::int64_t begin = draw(0, last + 1, 0);
    return {{begin, begin + kPlaceBytes}};
  }
  for (std::int64_t i = 0; i < places; ++i) {
    std::int64_t begin = i == 0 ? 0 : last;
    if (0 < i && i < places - 1) {
      const std::int64_t run = last / (places - 2);
      begin = draw((i - 1) * run, run, i);
    }
    chosen.push_back({begin, begin + kPlaceBytes});
  }
  return chosen;
}

std::vector<FileContent> sample_files(std::span<const std::string> files,
                                      std::int64_t places,
                                      WorkProgress* progress) {
  std::vector<FileContent> content;
  const auto count = static_cast<std::int64_t>(files.size());
  const auto places_before = [&](std::int64_t file) {  // without an overflow for any count
    return file / count * places + file % count * places / count;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    content.push_back(sample_file(files[static_cast<std::size_t>(i)],
                                  places_before(i + 1) - places_before(i), progress));
    if (progress != nullptr) {
      progress->move();
    }
  }
  return content;
}

std::uint64_t fingerprint_of(std::span<const FileContent> files) {
  std::uint64_t hash = mix64(files.size());
  for (const FileContent& file : files) {
    hash = hash_combine(hash_combine(hash, word(file.bytes)), file.fingerprint);
  }
  return hash;
}

}  // namespace weft::data
