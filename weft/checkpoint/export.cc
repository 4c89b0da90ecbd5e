#include "weft/checkpoint/export.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/manifest.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/checkpoint/step_names.h"
#include "weft/io/process.h"

namespace weft::checkpoint {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";

/// A tensor, and which bytes of an item it has.
struct Tensor {
  enum class Content { kRows, kIds };

  TensorInfo info;
  std::size_t item = 0;
  Content content = Content::kRows;
};

using Shard = std::vector<Tensor>;

/// Dense parameters are called "dense.top.0.weight" or "dense.top.0.bias" already, tables
/// "tables.C1".
std::string base_name(const ItemInfo& item) {
  return item.kind == "weight" ? item.parameter : item.parameter + "." + item.kind;
}

/// The weights of a table are called alike whether all rows are stored or some are listed.
std::string rows_name(const ItemInfo& item) {
  const bool is_named = item.parameter.ends_with(".weight") || item.parameter.ends_with(".bias");
  return item.kind != "weight" || is_named ? base_name(item) : base_name(item) + ".weight";
}

std::vector<Tensor> tensors_of(const ItemSource& source, ExportItems wanted) {
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < source.items().size(); ++i) {
    const ItemInfo& item = source.items()[i];
    if (wanted == ExportItems::kWeights && item.kind != "weight") {
      continue;
    }
    if (item.form == RowForm::kListed) {
      out.push_back({{base_name(item) + ".ids", DType::kInt64, {item.stored_rows}},
                     i,
                     Tensor::Content::kIds});
    }
    out.push_back({{rows_name(item), item.dtype, {item.stored_rows, item.cols}}, i});
  }
  std::set<std::string> names{"__metadata__"};
  for (const Tensor& tensor : out) {
    if (!names.insert(tensor.info.name).second) {
      fail(ErrorCode::kCheckpoint, "cannot export {}: there are two tensors of the name '{}'",
           item_name(source.items()[tensor.item].parameter, source.items()[tensor.item].kind),
           tensor.info.name);
    }
  }
  return out;
}

/// Tensors in their order, cut into files. In a file the widest elements come first, so that every
/// tensor begins at a multiple of its element.
std::vector<Shard> cut_into_shards(std::vector<Tensor> tensors, std::int64_t shard_bytes) {
  std::vector<Shard> shards(1);
  std::int64_t bytes = 0;
  for (Tensor& tensor : tensors) {
    const std::int64_t own = tensor.info.bytes();
    if (!shards.back().empty() && own > shard_bytes - bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += own;
    shards.back().push_back(std::move(tensor));
  }
  for (Shard& shard : shards) {
    std::stable_sort(shard.begin(), shard.end(), [](const Tensor& a, const Tensor& b) {
      return size_of(a.info.dtype) > size_of(b.info.dtype);
    });
  }
  return shards;
}

void write_tensor(const ItemSource& source, const Tensor& tensor, ExportedFile& file) {
  const std::int64_t begin = file.bytes();
  source.for_each_rows(tensor.item, [&](const StoredRows& rows) {
    file.write(tensor.content == Tensor::Content::kIds ? std::as_bytes(rows.ids) : rows.bytes);
  });
  WEFT_CHECK(file.bytes() - begin == tensor.info.bytes(), "tensor {} has {} bytes, not {}",
             tensor.info.name, file.bytes() - begin, tensor.info.bytes());
}

/// A text as a file, on the disk when it returns.
void write_text(io::FileSystem& files, const std::string& path, const std::string& text) {
  ExportedFile file(files, path);
  file.write(std::as_bytes(std::span(text)));
  file.finish();
}

Exported write_shards(const ItemSource& source,
                      const ExportOptions& options,
                      io::FileSystem& files,
                      const std::string& directory) {
  const std::vector<Shard> shards =
      cut_into_shards(tensors_of(source, options.items), options.shard_bytes);
  Exported out;
  nlohmann::json weight_map = nlohmann::json::object();
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    std::vector<TensorInfo> infos;
    for (const Tensor& tensor : shards[s]) {
      infos.push_back(tensor.info);
    }
    const std::string header = safetensors_header(infos, options.metadata);
    ExportedFile file(files, join(directory, name));
    file.write(std::as_bytes(std::span(header)));
    for (const Tensor& tensor : shards[s]) {
      write_tensor(source, tensor, file);
      weight_map[tensor.info.name] = name;
      ++out.tensors;
      out.bytes += tensor.info.bytes();
    }
    file.finish();
    ++out.files;
  }
  nlohmann::json about = options.metadata;
  about["total_size"] = out.bytes;
  const nlohmann::json index{{"metadata", std::move(about)}, {"weight_map", std::move(weight_map)}};
  write_text(files, join(directory, kIndexName), index.dump(2) + "\n");
  return out;
}

/// The directory that has the name of `path` in it.
std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".")
                                    : path.substr(0, std::max<std::size_t>(slash, 1));
}

void check_is_free(io::FileSystem& files, const std::string& directory) {
  const io::Kind kind = kind_of(files, directory);
  if (kind == io::Kind::kMissing) {
    return;
  }
  const bool is_empty = kind == io::Kind::kDirectory && list_directory(files, directory).empty();
  if (!is_empty) {
    fail(
        ErrorCode::kUsage,
        "'{}' exists and is not an empty folder, and nothing is overwritten: give an empty folder, "
        "or a new name",
        directory);
  }
}

}  // namespace

Exported export_safetensors(const ItemSource& source, const ExportOptions& options) {
  io::FileSystem& files = options.files != nullptr ? *options.files : io::real_file_system();
  const std::size_t last = options.directory.find_last_not_of('/');
  if (last == std::string::npos || options.shard_bytes < 1) {
    fail(ErrorCode::kUsage, "an export to '{}' in files of {} bytes", options.directory,
         options.shard_bytes);
  }
  const std::string directory = options.directory.substr(0, last + 1);
  check_is_free(files, directory);
  const std::string parent = parent_of(directory);
  check_export("create the folder", parent, io::make_directories(files, parent));
  const std::string unfinished = fmt::format("{}.{:016x}.tmp", directory, io::random_id());
  check_export("create the folder", unfinished, files.make_directory(unfinished));
  try {
    const Exported out = write_shards(source, options, files, unfinished);
    check_export("write to disk the folder", unfinished, files.sync_directory(unfinished));
    check_is_free(files, directory);
    check_export("rename the finished export to", directory, files.rename(unfinished, directory));
    if (const auto error = files.sync_directory(parent)) {
      static_cast<void>(files.rename(directory, unfinished));
      check_export("write to disk the folder", parent, error);
    }
    return out;
  } catch (...) {
    static_cast<void>(io::remove_all(files, unfinished));
    throw;
  }
}

}  // namespace weft::checkpoint
