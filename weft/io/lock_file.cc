#include "weft/io/lock_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <sstream>
#include <utility>

#include <fmt/core.h>

namespace weft::io {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::int64_t kMaxBytes = 4096;

/// How often a holder changes its file, and one that waits looks at it.
Seconds beat_interval(double timeout_s) {
  return Seconds(std::clamp(timeout_s / 10, 0.01, 10.0));
}

template <typename Number>
void read_number(const std::string& text, int base, Number& value) {
  Number read = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, read, base);
  if (error == std::errc() && stop == end) {
    value = read;
  }
}

void read_seconds(const std::string& text, double& value) {
  double read = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), read);
  if (error == std::errc() && stop == text.data() + text.size() && read >= 0 && read < 1e9) {
    value = read;
  }
}

/// From lines "key value"; what cannot be read stays empty.
Holder parse_holder(const std::string& text) {
  Holder holder;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const std::size_t space = line.find(' ');
    const std::string key = line.substr(0, space);
    const std::string value = space == std::string::npos ? "" : line.substr(space + 1);
    if (key == "host") {
      holder.process.host = value;
    } else if (key == "boot") {
      holder.process.boot = value;
    } else if (key == "space") {
      holder.process.space = value;
    } else if (key == "pid") {
      read_number(value, 10, holder.process.pid);
    } else if (key == "start") {
      read_number(value, 10, holder.process.start);
    } else if (key == "timeout") {
      read_seconds(value, holder.timeout_s);
    } else if (key == "label") {
      holder.label = value;
    } else if (key == "nonce") {
      read_number(value, 16, holder.nonce);
    }
  }
  return holder;
}

/// The text of a lock's file; empty where it cannot be read.
std::string read_text(FileSystem& files, const std::string& path) {
  std::string text;
  return read_file(files, path, kMaxBytes, text) ? std::string() : text;
}

enum class Found { kFree, kRuns, kGone, kUnknown };

/// What the lock's file says of its holder; waits for a heartbeat where nothing else tells. With
/// kUnknown `error` says why the file could not be looked at.
Found look(FileSystem& files,
           const LockOptions& options,
           std::string& text,
           std::error_code& error) {
  text = read_text(files, options.path);
  const auto begin = Clock::now();
  for (;;) {
    const Status status = files.status(options.path);
    if (status.error) {
      error = status.error;
      return Found::kUnknown;
    }
    if (status.kind == Kind::kMissing) {
      return Found::kFree;
    }
    const Holder holder = parse_holder(text);
    const Presence presence = presence_of(holder.process);
    if (presence != Presence::kUnknown) {
      return presence == Presence::kRuns ? Found::kRuns : Found::kGone;
    }
    if (options.patience == Patience::kTakeItToRun) {
      return Found::kRuns;
    }
    if (Clock::now() - begin > Seconds(std::max(options.timeout_s, holder.timeout_s))) {
      return Found::kGone;
    }
    if (options.on_wait) {
      options.on_wait();
    }
    std::this_thread::sleep_for(beat_interval(options.timeout_s) / 2);
    const std::string now = read_text(files, options.path);
    if (now != text && !now.empty()) {
      if (!text.empty()) {
        text = now;
        return Found::kRuns;
      }
      text = now;
    }
  }
}

/// The file that is a lock where the file system has none.
std::string linked_path(const std::string& path) {
  return path + ".held";
}

/// The holder's own name of it.
std::string private_name(const std::string& linked, std::uint64_t nonce) {
  return fmt::format("{}.{:016x}", linked, nonce);
}

/// Takes the file of a gone holder away, unless another process was faster and it is its file.
void take_away(FileSystem& files,
               const std::string& path,
               const std::string& seen,
               std::uint64_t nonce) {
  const std::string aside = fmt::format("{}.gone-{:016x}", path, nonce);
  if (files.rename(path, aside)) {
    return;
  }
  if (read_text(files, aside) == seen) {
    const Holder gone = parse_holder(seen);
    static_cast<void>(files.remove(private_name(path, gone.nonce)));
  } else {
    static_cast<void>(files.link(aside, path));
  }
  static_cast<void>(files.remove(aside));
}

}  // namespace

LockFile::LockFile(FileSystem& files, std::string path, double timeout_s)
    : files_(files), path_(std::move(path)), own_{this_process(), "", timeout_s, random_id()} {
}

TakenLock LockFile::take(FileSystem& files, const LockOptions& options) {
  std::unique_ptr<LockFile> own(new LockFile(files, options.path, options.timeout_s));
  Locked locked = files.lock(options.path);
  switch (locked.outcome) {
    case LockOutcome::kHeld:
      own->lock_ = std::move(locked.lock);
      // Only for messages: the lock holds without it.
      static_cast<void>(own->write_content(options.path, OpenMode::kReplace));
      return {std::move(own), {}, {}};
    case LockOutcome::kBusy:
      return {nullptr, parse_holder(read_text(files, options.path)), error_of(EAGAIN)};
    case LockOutcome::kUnsupported:
      break;
    case LockOutcome::kFailed:
      return {nullptr, {}, locked.error};
  }
  TakenLock taken = own->take_by_link(options);
  if (!taken.error) {
    LockFile& lock = *own;
    lock.heart_ = std::thread([&lock] { lock.beat(); });
    taken.lock = std::move(own);
  }
  return taken;
}

TakenLock LockFile::take_by_link(const LockOptions& options) {
  const std::string path = linked_path(path_);
  if (const auto error = write_content(private_path(), OpenMode::kExclusive)) {
    return {nullptr, {}, error};
  }
  for (;;) {
    std::error_code error = files_.link(private_path(), path);
    if (!error) {
      linked_ = true;
      return {};
    }
    std::string text;
    const Found found =
        error == error_of(EEXIST)
            ? look(files_, {path, own_.timeout_s, options.on_wait, options.patience}, text, error)
            : Found::kUnknown;
    if (found == Found::kRuns || found == Found::kUnknown) {
      static_cast<void>(files_.remove(private_path()));
      return {nullptr, parse_holder(text), found == Found::kRuns ? error_of(EAGAIN) : error};
    }
    if (found == Found::kGone) {
      take_away(files_, path, text, own_.nonce);
    }
  }
}

LockFile::~LockFile() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (heart_.joinable()) {
    heart_.join();
  }
  if ((lock_ || linked_) && is_held()) {
    static_cast<void>(files_.remove(lock_ ? path_ : linked_path(path_)));
  }
  if (linked_) {
    static_cast<void>(files_.remove(private_path()));
  }
}

void LockFile::set_label(const std::string& label) {
  {
    const std::scoped_lock lock(mutex_);
    own_.label = label;
  }
  if (is_held()) {
    static_cast<void>(write_content(lock_ ? path_ : private_path(), OpenMode::kReplace));
  }
}

Hold LockFile::hold() const {
  if (lock_) {
    if (lock_->is_current()) {
      return Hold::kHeld;
    }
    if (files_.status(path_).error) {
      return Hold::kUnknown;
    }
    // The first look may have failed for an instant.
    return lock_->is_current() ? Hold::kHeld : Hold::kLost;
  }
  const std::string path = linked_path(path_);
  // While the holder changes the file it is empty for an instant.
  constexpr int kAttempts = 20;
  for (int i = 0; i < kAttempts; ++i) {
    const std::uint64_t nonce = parse_holder(read_text(files_, path)).nonce;
    if (nonce == own_.nonce) {
      return Hold::kHeld;
    }
    if (nonce != 0) {
      return Hold::kLost;
    }
    const Status status = files_.status(path);
    if (status.error) {
      return Hold::kUnknown;
    }
    if (status.kind == Kind::kMissing) {
      return Hold::kLost;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Hold::kUnknown;
}

std::string LockFile::private_path() const {
  return private_name(linked_path(path_), own_.nonce);
}

std::string LockFile::content() const {
  const ProcessName& p = own_.process;
  return fmt::format(
      "host {}\nboot {}\nspace {}\npid {}\nstart {}\ntimeout {}\nlabel {}\nbeat {}\nnonce "
      "{:016x}\n",
      p.host, p.boot, p.space, p.pid, p.start, own_.timeout_s, own_.label, beats_, own_.nonce);
}

std::error_code LockFile::write_content(const std::string& path, OpenMode mode) {
  const std::scoped_lock lock(mutex_);
  ++beats_;
  return write_file(files_, path, content(), mode);
}

/// Through the second name, so that a lock taken over by another process is left alone.
void LockFile::beat() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, beat_interval(own_.timeout_s), [this] { return ending_; })) {
    ++beats_;
    static_cast<void>(write_file(files_, private_path(), content()));
  }
}

}  // namespace weft::io
