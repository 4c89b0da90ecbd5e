/// Private to checkpoint/: files in the safetensors format, written from front to back.
///
///   u64 bytes of the header, little-endian
///   header: JSON, {NAME: {"dtype": "F32", "shape": [rows, cols], "data_offsets": [begin, end]}},
///           with spaces behind it up to a multiple of 8 bytes
///   data: the tensors' bytes one after the other; offsets count from its begin
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "weft/io/file_system.h"
#include "weft/tensor/dtype.h"

namespace weft::checkpoint {

/// A tensor of a file, before its bytes are there.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;

  [[nodiscard]] std::int64_t bytes() const;
};

/// "F32"; there is one for every type of a checkpoint.
std::string_view safetensors_dtype(DType dtype);

/// The bytes that come before the data. Throws Error(kCheckpoint) where a name is not UTF-8.
std::string safetensors_header(const std::vector<TensorInfo>& tensors,
                               const std::map<std::string, std::string>& metadata);

/// A new file. Every failure is an Error(kIo) that names it.
class ExportedFile {
 public:
  ExportedFile(io::FileSystem& files, std::string path);

  void write(std::span<const std::byte> bytes);

  /// Returns when the bytes are on the disk.
  void finish();

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::string path_;
  std::unique_ptr<io::File> file_;
  std::int64_t bytes_ = 0;
};

/// Throws Error(kIo) where there is an error, saying what was attempted and what to do.
void check_export(const char* what, const std::string& path, const std::error_code& error);

}  // namespace weft::checkpoint
