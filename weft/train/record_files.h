/// How files of figures are written. A failure is an Error(kIo) that names the
/// file and the reason, and leaves no cut record behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace weft::train {

/// A file that grows by whole records. The file is opened for each, so that one whose file system
/// was gone for a while is found again. One thread at a time.
class AppendFile {
 public:
  /// `advice` ends messages. Opens nothing yet.
  AppendFile(std::string path, std::string advice);

  /// Writes after what the file has; makes it where there is none. Of a record that could not be
  /// written whole the beginning is cut off again, now or before the next one.
  void append(std::string_view record);

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string advice_;
  std::int64_t torn_at_ = -1;  // where a cut record begins; -1: there is none
};

/// Makes the folder and asks whether files can be made in it. `option` names it in messages.
void make_record_folder(const std::string& folder, const std::string& option);

/// Gives a file new contents: written beside it, then renamed, so that it is never seen cut. What
/// is no regular file (a device, a pipe), or lies in a folder that takes no new files, is written
/// to.
void replace_file(const std::filesystem::path& path, std::string_view text);

/// Rewrites a file of JSON lines without those whose "step" is beyond `step` and without what is no
/// whole JSON object: a line that a crash has cut. Returns how many lines went; a file without such
/// lines, or none at all, is left alone.
std::int64_t trim_lines(const std::filesystem::path& path, std::int64_t step);

}  // namespace weft::train
