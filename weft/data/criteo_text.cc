#include "weft/data/criteo_text.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "weft/base/error.h"
#include "weft/data/criteo_decode.h"

namespace weft::data {
namespace {

constexpr std::size_t kRange = std::size_t{1} << 20;  ///< bytes that a task reads or cuts
constexpr std::size_t kLeastRead = 256 * 1024;        ///< system calls cost nothing beside
constexpr std::size_t kMostRead = std::size_t{64} << 20;
constexpr std::size_t kLineBytes = 256;  ///< a guess, until lines have been seen
constexpr std::int64_t kSkipRun = 4096;  ///< lines read at once where none is kept

}  // namespace

CriteoText::CriteoText(std::vector<std::string> files) : files_(std::move(files)) {
  static_assert(kMargin >= CriteoDecoder::kFront && kMargin >= CriteoDecoder::kBack);
  rewind();
}

std::int64_t CriteoText::load(std::int64_t first, std::int64_t count) {
  if (first < first_) {
    WEFT_CHECK(first == 0, "load from {} after {}", first, first_);
    rewind();
  }
  drop_before(first);
  while (end() < first && read_more(std::min(first - end(), kSkipRun))) {
    drop_before(std::min(first, end()));
  }
  while (end() < first + count && read_more(first + count - end())) {
  }
  return std::clamp<std::int64_t>(end() - first, 0, count);
}

LinePlace CriteoText::place(std::int64_t sample) const {
  const auto next = std::upper_bound(file_first_.begin(), file_first_.end(), sample);
  const auto file = static_cast<std::size_t>(next - file_first_.begin()) - 1;
  return {files_[file], sample - file_first_[file] + 1};
}

void CriteoText::rewind() {
  stream_.reset();
  file_first_.clear();
  starts_.assign(1, 0);
  used_ = searched_ = 0;
  too_long_ = false;
  first_ = 0;
}

/// Forgets the lines before sample `first`; those that are not yet loaded stay.
void CriteoText::drop_before(std::int64_t first) {
  const std::int64_t count = std::min(first - first_, lines());
  if (count <= 0) {
    return;
  }
  const std::size_t bytes = starts_[static_cast<std::size_t>(count)];
  std::memmove(text(), text() + bytes, used_ - bytes);
  starts_.erase(starts_.begin(), starts_.begin() + count);
  for (std::size_t& start : starts_) {
    start -= bytes;
  }
  used_ -= bytes;
  searched_ -= bytes;
  first_ += count;
}

/// Reads about as much as `wanted_lines` more lines take and cuts it; false at the end of the last
/// file. A file's last line gets its end where that is missing.
bool CriteoText::read_more(std::int64_t wanted_lines) {
  if (too_long_) {
    const LinePlace where = place(end());
    fail(ErrorCode::kData,
         "{}:{}: the line has more than {} bytes, far more than any Criteo line; the file is "
         "damaged or of another format",
         where.file, where.line, kCriteoMaxLine);
  }
  if (stream_ == nullptr && !open_next()) {
    return false;
  }
  const auto seen = static_cast<std::size_t>(lines());
  const std::size_t mean = seen == 0 ? kLineBytes : starts_.back() / seen + 1;
  const std::size_t got = read_bytes(static_cast<std::size_t>(wanted_lines) * mean);
  if (got == 0) {
    stream_.reset();
    if (used_ > starts_.back()) {
      text()[used_++] = '\n';
    } else if (file_first_.back() == end()) {
      fail(ErrorCode::kData, "'{}' holds no line; remove it from data.path or fetch it again",
           files_[file_first_.size() - 1]);
    }
  }
  cut_lines();
  return true;
}

std::size_t CriteoText::read_bytes(std::size_t bytes) {
  const std::size_t wanted = std::clamp(bytes, kLeastRead, kMostRead);
  reserve(used_ + wanted + 1);  // and a missing line end
  const std::size_t got = stream_->read(text() + used_, wanted, pool_);
  used_ += got;
  if (progress_ != nullptr) {
    progress_->move();
  }
  return got;
}

void CriteoText::reserve(std::size_t bytes) {
  if (bytes <= capacity_) {
    return;
  }
  capacity_ = std::max(bytes, 2 * capacity_);
  auto grown = std::make_unique_for_overwrite<char[]>(capacity_ + 2 * kMargin);
  // The margins are read, never used; they hold something so that nobody reads what is undefined.
  std::memset(grown.get(), 0, kMargin);
  std::memset(grown.get() + kMargin + capacity_, 0, kMargin);
  if (text_ != nullptr) {
    std::memcpy(grown.get() + kMargin, text(), used_);
  }
  text_ = std::move(grown);
}

/// Finds the line ends in [searched_, used_), up to a line that is too long.
void CriteoText::cut_lines() {
  const std::size_t ranges = (used_ - searched_ + kRange - 1) / kRange;
  if (found_.size() < ranges) {
    found_.resize(ranges);
  }
  const auto cut_range = [&](std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    const std::size_t begin = searched_ + i * kRange;
    find_ends(begin, std::min(begin + kRange, used_), found_[i]);
  };
  if (pool_ != nullptr && ranges > 1) {
    pool_->parallel_for(static_cast<std::int64_t>(ranges), cut_range);
  } else {
    for (std::size_t i = 0; i < ranges; ++i) {
      cut_range(static_cast<std::int64_t>(i));
    }
  }
  bool good = true;
  for (std::size_t i = 0; good && i < ranges; ++i) {
    good = add_starts(found_[i]);
  }
  too_long_ = !good || used_ - starts_.back() > kCriteoMaxLine;
  searched_ = too_long_ ? starts_.back() : used_;
}

/// Where lines begin after the ends in [begin, end).
void CriteoText::find_ends(std::size_t begin,
                           std::size_t end,
                           std::vector<std::size_t>& starts) const {
  starts.clear();
  while (begin < end) {
    const char* const from = text() + begin;
    const void* const found = std::memchr(from, '\n', end - begin);
    if (found == nullptr) {
      return;
    }
    begin += static_cast<std::size_t>(static_cast<const char*>(found) - from) + 1;
    starts.push_back(begin);
  }
}

/// False before the first line that is too long.
bool CriteoText::add_starts(const std::vector<std::size_t>& starts) {
  for (const std::size_t start : starts) {
    if (start - starts_.back() > kCriteoMaxLine) {
      return false;
    }
    starts_.push_back(start);
  }
  return true;
}

bool CriteoText::open_next() {
  if (file_first_.size() == files_.size()) {
    total_ = end();
    return false;
  }
  stream_ = open_bytes(files_[file_first_.size()]);
  file_first_.push_back(end());
  return true;
}

}  // namespace weft::data
