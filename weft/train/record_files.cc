#include "weft/train/record_files.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "weft/base/error.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdvice = "check space and permissions";

/// An open file; closing it may say that what was written is lost.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}

  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }

  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int number() const { return number_; }

  bool write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(number_, text.data(), text.size());
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written <= 0) {
        return false;
      }
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
  }

  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

[[noreturn]] void fail_to_write(const std::string& path, int reason, std::string_view advice) {
  fail(ErrorCode::kIo, "cannot write {}: {}; {}", path, std::strerror(reason), advice);
}

/// Whether a line of a file of JSON lines stays.
bool stays(const std::string& line, std::int64_t step) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) {
    return false;
  }
  const auto found = json.find("step");
  return found == json.end() || !found->is_number() ||
         found->get<double>() <= static_cast<double>(step);
}

}  // namespace

AppendFile::AppendFile(std::string path, std::string advice)
    : path_(std::move(path)), advice_(std::move(advice)) {
}

void AppendFile::append(std::string_view record) {
  Descriptor file(path_, O_WRONLY | O_CREAT | O_APPEND);
  struct stat status{};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) {
    fail_to_write(path_, errno, advice_);
  }
  const bool is_regular = S_ISREG(status.st_mode);
  if (is_regular && torn_at_ >= 0 && torn_at_ < status.st_size) {
    if (::ftruncate(file.number(), torn_at_) != 0) {
      fail_to_write(path_, errno, advice_);
    }
    status.st_size = torn_at_;
  }
  torn_at_ = -1;
  if (file.write(record) && file.close()) {
    return;
  }
  const int reason = errno;
  if (is_regular) {
    torn_at_ = ::truncate(path_.c_str(), status.st_size) == 0 ? -1 : status.st_size;
  }
  fail_to_write(path_, reason, advice_);
}

void make_record_folder(const std::string& folder, const std::string& option) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0) {
    error = {errno, std::generic_category()};
  }
  if (error) {
    fail(ErrorCode::kIo, "cannot write to {} {}: {}; name a folder of your own", option, folder,
         error.message());
  }
}

void replace_file(const fs::path& path, std::string_view text) {
  std::error_code unknown;
  const fs::file_type type = fs::status(path, unknown).type();
  const std::string target =
      type == fs::file_type::regular ? fs::canonical(path, unknown).string() : path.string();
  const std::string beside = target + ".tmp";
  const bool is_file = type == fs::file_type::regular || type == fs::file_type::not_found;
  if (is_file) {
    Descriptor file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    if (file.number() >= 0) {
      if (file.write(text) && file.close() && std::rename(beside.c_str(), target.c_str()) == 0) {
        return;
      }
      const int reason = errno;
      ::unlink(beside.c_str());
      fail_to_write(path.string(), reason, kAdvice);
    }
  }
  // A device, a pipe, or a file in a folder that takes no new ones.
  Descriptor file(target, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.number() < 0 || !file.write(text) || !file.close()) {
    fail_to_write(path.string(), errno, kAdvice);
  }
}

std::int64_t trim_lines(const fs::path& path, std::int64_t step) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return 0;
  }
  const fs::path kept = path.string() + ".tmp";
  std::ofstream out(kept, std::ios::binary | std::ios::trunc);
  std::int64_t gone = 0;
  for (std::string line; std::getline(in, line);) {
    if (!in.eof() && stays(line, step)) {  // at the end: without an end of line
      out << line << '\n';
    } else {
      ++gone;
    }
  }
  out.close();
  std::error_code error;
  if (!out) {
    error = {errno, std::generic_category()};
  } else if (gone > 0) {
    fs::rename(kept, path, error);
  }
  std::error_code ignored;
  fs::remove(kept, ignored);
  if (error) {
    fail_to_write(path.string(), error.value(), kAdvice);
  }
  return gone;
}

}  // namespace weft::train
