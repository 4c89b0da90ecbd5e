/// Private to data/: a weft file being written, block by encoded block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/data/source.h"
#include "weft/data/weft_layout.h"
#include "weft/io/file_system.h"

namespace weft::data {

/// Writes beside the file's place, synchronises, then renames: what WeftWriter promises. The name
/// beside it is each writer's own, so that of several who write the same path the last one's file
/// stays, whole. One thread at a time. `files` must outlive it.
class WeftOutput {
 public:
  WeftOutput(std::string path,
             const Schema& schema,
             std::map<std::string, std::string> metadata,
             io::FileSystem& files = io::real_file_system());
  ~WeftOutput();
  WeftOutput(const WeftOutput&) = delete;
  WeftOutput& operator=(const WeftOutput&) = delete;

  void write(const layout::EncodedBlock& block);

  /// False after finish().
  [[nodiscard]] bool open() const { return file_ != nullptr; }

  /// Writes footer and trailer and gives the file its name. When it returns, bytes and name are on
  /// the disk.
  void finish();

 private:
  class File;

  std::map<std::string, std::string> metadata_;
  std::unique_ptr<File> file_;
  std::vector<std::byte> index_;  // the footer's entries so far
  std::int64_t blocks_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace weft::data
