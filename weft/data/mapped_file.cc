#include "weft/data/mapped_file.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft/base/error.h"

namespace weft::data {
namespace {

void close_if_open(int descriptor) {
  if (descriptor >= 0) {
    ::close(descriptor);
  }
}

}  // namespace

/// An element of a list that the handler walks: it is never taken out, only used again.
struct MappedFile::Range {
  std::atomic<std::uintptr_t> begin{0};  // 0: of no file
  std::atomic<std::uintptr_t> end{0};    // of its last page
  std::atomic<bool> lost{false};
  Range* next = nullptr;
};

/// The handler of SIGBUS, made with the first mapping and left until the process ends.
class BusErrors {
 public:
  static BusErrors& get() {
    static BusErrors errors;
    return errors;
  }

  MappedFile::Range* add(std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    MappedFile::Range* range = first_.load();
    while (range != nullptr && range->begin.load() != 0) {
      range = range->next;
    }
    if (range == nullptr) {
      range = new MappedFile::Range;
      range->next = first_.load();
      first_.store(range);
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
    range->lost = false;
    range->end = (begin + bytes.size() + page_ - 1) / page_ * page_;
    range->begin = begin;  // last: from here on the handler finds it
    return range;
  }

  static void remove(MappedFile::Range* range) { range->begin = 0; }

  [[nodiscard]] static std::uint64_t lost_pages() { return lost_pages_.load(); }

 private:
  BusErrors() {
    struct sigaction action{};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before_);
  }

  /// Calls nothing but mmap(), sigaction() and the handler that was there before.
  static void handle(int signal, siginfo_t* info, void* context) {
    const int kept = errno;
    const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
    for (MappedFile::Range* range = first_.load(); range != nullptr; range = range->next) {
      const std::uintptr_t end = range->end.load();
      if (range->begin.load() == 0 || at < range->begin.load() || at >= end) {
        continue;
      }
      range->lost = true;
      ++lost_pages_;
      const std::uintptr_t page = at / page_ * page_;
      if (mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
        errno = kept;
        return;
      }
    }
    if ((before_.sa_flags & SA_SIGINFO) != 0) {
      before_.sa_sigaction(signal, info, context);
    } else if (before_.sa_handler != SIG_DFL && before_.sa_handler != SIG_IGN) {
      before_.sa_handler(signal);
    } else {
      sigaction(SIGBUS, &before_, nullptr);  // the access is made again, and ends the process
    }
    errno = kept;
  }

  static inline std::atomic<MappedFile::Range*> first_{nullptr};
  static inline std::atomic<std::uint64_t> lost_pages_{0};
  static inline const auto page_ = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  static inline struct sigaction before_{};

  std::mutex mutex_;
};

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
    const std::string reason = std::strerror(errno);
    close_if_open(descriptor);
    fail(ErrorCode::kData, "cannot read weft file '{}': {}; check data.path", path, reason);
  }
  if (!S_ISREG(status.st_mode)) {
    close_if_open(descriptor);
    fail(ErrorCode::kData, "weft file '{}' is not a regular file; check data.path", path);
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  const std::string reason = data == MAP_FAILED ? std::strerror(errno) : "";
  close_if_open(descriptor);
  if (data == MAP_FAILED) {
    fail(ErrorCode::kData, "cannot map weft file '{}' ({} bytes): {}", path, size, reason);
  }
  bytes_ = {static_cast<const std::byte*>(data), size};
  device_ = status.st_dev;
  inode_ = status.st_ino;
  size_ = status.st_size;
  changed_ = status.st_mtim;
  if (size > 0) {
    range_ = BusErrors::get().add(bytes_);
  }
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    BusErrors::remove(range_);
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

void MappedFile::check() const {
  if (range_ != nullptr && range_->lost.load()) {
    fail(ErrorCode::kData,
         "weft file '{}' had {} bytes when it was opened and was cut, or became unreadable, while "
         "it was read; leave data as they are while a job runs, and write new ones beside them",
         path_, bytes_.size());
  }
}

std::uint64_t MappedFile::lost_pages() {
  return BusErrors::lost_pages();
}

MappedFile::Change MappedFile::find_change() {
  struct stat status{};
  if (::stat(path_.c_str(), &status) != 0 || status.st_dev != device_ || status.st_ino != inode_) {
    return Change::kReplaced;
  }
  if (status.st_size < static_cast<off_t>(bytes_.size())) {
    fail(ErrorCode::kData,
         "weft file '{}' had {} bytes when it was opened and has {} now; leave data as they are "
         "while a job runs, and write new ones beside them",
         path_, bytes_.size(), status.st_size);
  }
  const bool same = status.st_size == size_ && status.st_mtim.tv_sec == changed_.tv_sec &&
                    status.st_mtim.tv_nsec == changed_.tv_nsec;
  size_ = status.st_size;
  changed_ = status.st_mtim;
  return same ? Change::kNone : Change::kWritten;
}

}  // namespace weft::data
