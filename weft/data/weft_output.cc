#include "weft/data/weft_output.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"

namespace weft::data {

namespace {

std::string reason() {
  return std::strerror(errno);
}

}  // namespace

// The file under its temporary name.
class WeftOutput::File {
 public:
  explicit File(std::string path) : path_(std::move(path)), temporary_(path_ + ".partial") {
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) {
      fail(ErrorCode::kIo, "cannot create '{}': {}; does its folder exist and may you write there?",
           temporary_, reason());
    }
  }

  ~File() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
      ::unlink(temporary_.c_str());
    }
  }

  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] std::uint64_t size() const { return size_; }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written < 0) {
        fail(ErrorCode::kIo, "cannot write '{}' after {} bytes: {}; is the disk full?", temporary_,
             size_, reason());
      }
      size_ += static_cast<std::uint64_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  void publish() {
    if (::fsync(descriptor_) != 0) {
      fail(ErrorCode::kIo, "cannot synchronise '{}': {}; is the disk full?", temporary_, reason());
    }
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
      fail(ErrorCode::kIo, "cannot rename '{}' to '{}': {}", temporary_, path_, reason());
    }
    ::close(std::exchange(descriptor_, -1));
    // The name is durable when its folder is; a file system that cannot say so loses nothing else.
    std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    folder = folder.empty() ? "." : folder;
    const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle >= 0) {
      ::fsync(handle);
      ::close(handle);
    }
  }

 private:
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

WeftOutput::WeftOutput(std::string path,
                       const Schema& schema,
                       std::map<std::string, std::string> metadata)
    : metadata_(std::move(metadata)) {
  const std::vector<std::byte> header = layout::encode_header(schema);
  file_ = std::make_unique<File>(std::move(path));
  file_->write(header);
}

WeftOutput::~WeftOutput() = default;

void WeftOutput::write(const layout::EncodedBlock& block) {
  WEFT_CHECK(file_ != nullptr, "a block after the end");
  layout::append(index_, static_cast<std::uint64_t>(block.samples));
  for (const layout::ColumnPlace& column : block.columns) {
    layout::append(index_, file_->size() + column.offset);
    layout::append(index_, column.bytes);
    layout::append(index_, column.checksum);
  }
  file_->write(block.bytes);
  samples_ += block.samples;
  ++blocks_;
}

void WeftOutput::finish() {
  WEFT_CHECK(file_ != nullptr, "finish twice");
  std::vector<std::byte> footer;
  layout::append(footer, static_cast<std::uint64_t>(samples_));
  layout::append(footer, static_cast<std::uint32_t>(blocks_));
  layout::append(footer, static_cast<std::uint32_t>(metadata_.size()));
  footer.insert(footer.end(), index_.begin(), index_.end());
  for (const auto& [key, value] : metadata_) {
    layout::append(footer, static_cast<std::uint32_t>(key.size()));
    layout::append(footer, static_cast<std::uint32_t>(value.size()));
    layout::append_bytes(footer, key.data(), key.size());
    layout::append_bytes(footer, value.data(), value.size());
  }
  layout::pad(footer);
  std::vector<std::byte> trailer;
  layout::append(trailer, file_->size());
  layout::append(trailer, static_cast<std::uint64_t>(footer.size()));
  layout::append(trailer, hash_bytes(footer));
  layout::append_bytes(trailer, layout::kTrailerMagic, layout::kMagicBytes);
  file_->write(footer);
  file_->write(trailer);
  file_->publish();
  file_.reset();
}

}  // namespace weft::data
