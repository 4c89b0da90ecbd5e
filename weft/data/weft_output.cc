#include "weft/data/weft_output.h"

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/io/process.h"

namespace weft::data {
namespace {

/// The folder of a file; "." for a name alone.
std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

/// The file under a name of its own beside its place, until it is published.
class WeftOutput::File {
 public:
  File(std::string path, io::FileSystem& files)
      : files_(files),
        path_(std::move(path)),
        temporary_(fmt::format("{}.{:016x}.partial", path_, io::random_id())) {
    io::Opened opened = files_.open(temporary_, io::OpenMode::kExclusive);
    if (opened.error) {
      fail(ErrorCode::kIo, "cannot create '{}': {}; does its folder exist and may you write there?",
           temporary_, opened.error.message());
    }
    file_ = std::move(opened.file);
  }

  ~File() {
    file_.reset();
    if (!has_name_) {
      // The failure is said already, or nobody wants the file.
      static_cast<void>(files_.remove(temporary_));
    }
  }

  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] std::uint64_t size() const { return static_cast<std::uint64_t>(size_); }

  void write(std::span<const std::byte> bytes) {
    if (const auto error = io::write_all(*file_, bytes.data(), std::ssize(bytes), size_)) {
      fail(ErrorCode::kIo, "cannot write '{}' after {} bytes: {}", temporary_, size_,
           io::describe_write_error(error));
    }
  }

  void publish() {
    if (const auto error = file_->sync()) {
      fail(ErrorCode::kIo, "cannot synchronise '{}': {}", temporary_,
           io::describe_write_error(error));
    }
    // A file system on another machine may say as late as here that bytes are lost.
    if (const auto error = file_->close()) {
      fail(ErrorCode::kIo, "cannot close '{}': {}", temporary_, io::describe_write_error(error));
    }
    if (const auto error = files_.rename(temporary_, path_)) {
      fail(ErrorCode::kIo, "cannot rename '{}' to '{}': {}", temporary_, path_,
           io::describe_write_error(error));
    }
    has_name_ = true;
    const std::error_code error = files_.sync_directory(folder_of(path_));
    // A folder that may be written to and not read cannot be synchronised by this user.
    if (error && error != io::error_of(EACCES)) {
      fail(ErrorCode::kIo,
           "'{}' is complete, but its folder cannot be synchronised, so a crash of the machine may "
           "still take its name: {}",
           path_, io::describe_write_error(error));
    }
  }

 private:
  io::FileSystem& files_;
  std::string path_;
  std::string temporary_;
  std::unique_ptr<io::File> file_;
  std::int64_t size_ = 0;
  bool has_name_ = false;
};

WeftOutput::WeftOutput(std::string path,
                       const Schema& schema,
                       std::map<std::string, std::string> metadata,
                       io::FileSystem& files)
    : metadata_(std::move(metadata)) {
  const std::vector<std::byte> header = layout::encode_header(schema);
  file_ = std::make_unique<File>(std::move(path), files);
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
