/// Private to data/: one weft file as it lies in memory, its header and footer verified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/data/source.h"

namespace weft::data {

/// Keeps the bytes, which must outlive it. Throws Error(kData) naming the file and what is wrong.
/// Of the footer it has a copy: where a chunk lies cannot change with the file.
class WeftFile {
 public:
  struct Block {
    std::int64_t samples;
    const std::byte* columns;  ///< the footer's entries: offset, bytes, checksum
  };

  WeftFile(std::span<const std::byte> bytes, std::string name);
  WeftFile(WeftFile&&) noexcept = default;
  WeftFile& operator=(WeftFile&&) = delete;
  WeftFile(const WeftFile&) = delete;  // blocks() points into it
  WeftFile& operator=(const WeftFile&) = delete;
  ~WeftFile() = default;

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] const Schema& schema() const { return schema_; }

  [[nodiscard]] const std::vector<Block>& blocks() const { return blocks_; }

  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The footer's checksum stands for all of it: it is of the checksums of all columns.
  [[nodiscard]] FileContent content() const;

  /// Column `column` (dense, then categorical, then labels) of a block, its checksum verified now.
  /// The file's trailer lies after it.
  [[nodiscard]] std::span<const std::byte> chunk(std::size_t block, std::size_t column) const;

  /// For messages.
  [[nodiscard]] std::string where(std::size_t block, std::size_t column) const;

 private:
  [[nodiscard]] const std::string& column_name(std::size_t column) const;
  void find_footer();
  void read_footer();
  void add_block(const std::byte* entry);
  std::span<const std::byte> read_pair(std::span<const std::byte> rest);

  std::span<const std::byte> bytes_;
  std::string name_;
  Schema schema_;
  std::size_t header_bytes_ = 0;
  std::uint64_t footer_at_ = 0;
  std::vector<std::byte> footer_;
  std::uint64_t footer_checksum_ = 0;
  std::vector<Block> blocks_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace weft::data
