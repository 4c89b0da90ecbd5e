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

namespace weft::data {

/// Writes beside the file's place, synchronises, then renames: what WeftWriter promises. One thread
/// at a time.
class WeftOutput {
 public:
  WeftOutput(std::string path, const Schema& schema, std::map<std::string, std::string> metadata);
  ~WeftOutput();
  WeftOutput(const WeftOutput&) = delete;
  WeftOutput& operator=(const WeftOutput&) = delete;

  void write(const layout::EncodedBlock& block);

  /// False behind finish().
  [[nodiscard]] bool open() const { return file_ != nullptr; }

  /// Writes footer and trailer and gives the file its name.
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
