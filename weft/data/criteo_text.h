/// Private to data/: the text of a range of lines of a run of files.
///
///   text    margin | line | line | .. | line | bytes not yet cut into lines | margin
///                  starts_[0]            starts_.back()                    used_
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/thread_pool.h"
#include "weft/base/work_progress.h"
#include "weft/data/byte_stream.h"
#include "weft/data/criteo.h"

namespace weft::data {

class CriteoText {
 public:
  explicit CriteoText(std::vector<std::string> files);

  /// Lines [first, first + count) become readable; returns how many of them exist. As
  /// Source::load(). Throws Error(kData) for a line that is too long, a file without a line, and
  /// what open_bytes() says.
  std::int64_t load(std::int64_t first, std::int64_t count);

  /// load() reads and cuts by ranges of bytes on this pool; null: on its own thread.
  void use(ThreadPool* pool) { pool_ = pool; }

  /// As Source::report_to().
  void report_to(WorkProgress* progress) { progress_ = progress; }

  /// The loaded lines are [first(), end()).
  [[nodiscard]] std::int64_t first() const { return first_; }

  [[nodiscard]] std::int64_t end() const { return first_ + lines(); }

  /// A loaded line without its end; CriteoDecoder's margins around it are readable.
  [[nodiscard]] std::string_view line(std::int64_t sample) const {
    const auto index = static_cast<std::size_t>(sample - first_);
    const std::size_t begin = starts_[index];
    std::size_t end = starts_[index + 1] - 1;
    end -= end > begin && text()[end - 1] == '\r' ? 1 : 0;
    return {text() + begin, end - begin};
  }

  /// File and line of a sample that has been loaded.
  [[nodiscard]] LinePlace place(std::int64_t sample) const;

  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }

  /// Lines of all files; -1 until their end has been seen.
  [[nodiscard]] std::int64_t total() const { return total_; }

 private:
  [[nodiscard]] std::int64_t lines() const { return static_cast<std::int64_t>(starts_.size()) - 1; }

  [[nodiscard]] char* text() const { return text_.get() + kMargin; }

  void rewind();
  void drop_before(std::int64_t first);
  bool read_more(std::int64_t wanted_lines);
  std::size_t read_bytes(std::size_t bytes);
  void reserve(std::size_t bytes);
  void cut_lines();
  void find_ends(std::size_t begin, std::size_t end, std::vector<std::size_t>& starts) const;
  bool add_starts(const std::vector<std::size_t>& starts);
  bool open_next();

  static constexpr std::size_t kMargin = 64;

  std::vector<std::string> files_;
  ThreadPool* pool_ = nullptr;
  WorkProgress* progress_ = nullptr;
  std::unique_ptr<ByteStream> stream_;    ///< of file file_first_.size() - 1
  std::vector<std::int64_t> file_first_;  ///< first sample of each file opened so far
  std::int64_t total_ = -1;

  std::unique_ptr<char[]> text_;     ///< not filled with zeros, unlike a vector
  std::size_t capacity_ = 0;         ///< without margins
  std::vector<std::size_t> starts_;  ///< of the loaded lines, and where the next begins
  std::size_t used_ = 0;
  std::size_t searched_ = 0;                     ///< no line end in [starts_.back(), searched_)
  bool too_long_ = false;                        ///< the line at starts_.back() is
  std::int64_t first_ = 0;                       ///< sample of the first loaded line
  std::vector<std::vector<std::size_t>> found_;  ///< starts in each range of bytes
};

}  // namespace weft::data
