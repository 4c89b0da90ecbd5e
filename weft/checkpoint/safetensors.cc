#include "weft/checkpoint/safetensors.h"

#include <array>
#include <bit>
#include <cstring>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"

namespace weft::checkpoint {

std::int64_t TensorInfo::bytes() const {
  std::int64_t out = size_of(dtype);
  for (const std::int64_t size : shape) {
    out *= size;
  }
  return out;
}

std::string_view safetensors_dtype(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kSplitBFloat16:  // its words
      return "F32";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
    case DType::kFloat64:
      return "F64";
    case DType::kInt32:
      return "I32";
    case DType::kInt64:
      return "I64";
    case DType::kUInt8:
      return "U8";
  }
  return "";
}

std::string safetensors_header(const std::vector<TensorInfo>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json;
  json["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (const TensorInfo& tensor : tensors) {
    json[tensor.name] = {{"dtype", std::string(safetensors_dtype(tensor.dtype))},
                         {"shape", tensor.shape},
                         {"data_offsets", {at, at + tensor.bytes()}}};
    at += tensor.bytes();
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::kCheckpoint, "cannot export tensors by their names: {}", error.what());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string out(8, '\0');
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<char>((text.size() >> (8 * i)) & 0xFF);
  }
  return out + text;
}

void check_export(const char* what, const std::string& path, const std::error_code& error) {
  if (error) {
    fail(ErrorCode::kIo, "cannot {} '{}': {}", what, path, io::describe_write_error(error));
  }
}

ExportedFile::ExportedFile(io::FileSystem& files, std::string path) : path_(std::move(path)) {
  io::Opened opened = files.open(path_, io::OpenMode::kExclusive);
  check_export("create", path_, opened.error);
  file_ = std::move(opened.file);
}

void ExportedFile::write(std::span<const std::byte> bytes) {
  check_export("write", path_, io::write_all(*file_, bytes.data(), std::ssize(bytes), bytes_));
}

void ExportedFile::finish() {
  check_export("write to disk", path_, file_->sync());
  check_export("close", path_, file_->close());
}

}  // namespace weft::checkpoint
