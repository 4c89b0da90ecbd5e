#include "weft/comm/activity.h"

#include <utility>

#include <fmt/format.h>

namespace weft::comm {

ActivityLog::Slot::Slot(ActivityLog& log, std::string group, int rank) : log_(log) {
  const std::lock_guard lock(log_.mutex_);
  entry_ = log_.entries_.insert(log_.entries_.end(), Entry{.group = std::move(group),
                                                           .rank = rank,
                                                           .stamp = {},
                                                           .since = {},
                                                           .busy = false,
                                                           .work = nullptr});
}

ActivityLog::Slot::~Slot() {
  const std::lock_guard lock(log_.mutex_);
  log_.entries_.erase(entry_);
}

void ActivityLog::Slot::begin(const Stamp& stamp) {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(log_.mutex_);
  entry_->stamp = stamp;
  entry_->since = now;
  entry_->busy = true;
}

void ActivityLog::Slot::begin_work(const WorkProgress& work) {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(log_.mutex_);
  entry_->work = &work;
  entry_->since = now;
  entry_->busy = true;
}

void ActivityLog::Slot::end() noexcept {
  const std::lock_guard lock(log_.mutex_);
  entry_->busy = false;
  entry_->work = nullptr;
}

std::string ActivityLog::describe() const {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  std::string text;
  for (const Entry& entry : entries_) {
    if (entry.busy) {
      text += fmt::format(
          "{}rank {}: {} for {:.1f} s", text.empty() ? "" : "\n", entry.rank,
          entry.work != nullptr ? entry.work->text() : comm::describe(entry.stamp, entry.group),
          std::chrono::duration<double>(now - entry.since).count());
    }
  }
  return text.empty() ? "no collective under way" : text;
}

}  // namespace weft::comm
