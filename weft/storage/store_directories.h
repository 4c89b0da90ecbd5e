// Private to storage/: the directories of a store, and the names of its files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/io/file_system.h"
#include "weft/io/lock_file.h"

namespace weft::storage {

struct SegmentStoreOptions;

/// Whether a file of this name is a store's: "rows-", 16 hexadecimal digits, "-", digits, ".seg".
bool is_segment_name(std::string_view name);

class StoreDirectories {
 public:
  /// Makes and locks them, and removes files of earlier stores.
  StoreDirectories(io::FileSystem& files, const SegmentStoreOptions& options);

  /// A path that no file has had, in the next directory. Fails where its lock is lost.
  std::string next_path();

  /// Makes all names durable.
  void sync();

 private:
  struct Directory {
    std::string path;
    std::unique_ptr<io::LockFile> lock;
  };

  io::FileSystem& files_;
  std::vector<Directory> directories_;
  std::uint64_t nonce_;
  std::uint64_t names_ = 0;
};

}  // namespace weft::storage
