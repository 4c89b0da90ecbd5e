#include "weft/checkpoint/manifest.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "weft/checkpoint/cover.h"
#include "weft/checkpoint/manifest_check.h"

namespace weft::checkpoint {
namespace {

/// One name inside the directory, so that a manifest cannot lead out of it.
bool is_plain_name(std::string_view name) {
  const bool known = std::all_of(name.begin(), name.end(), [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  return known && !name.empty() && name.size() <= 200 && name.front() != '.';
}

std::string find_name_fault(const Manifest& manifest) {
  std::set<std::string> files;
  std::set<std::string> blobs;
  const auto check = [&](const std::string& name) -> std::string {
    if (!is_plain_name(name) || name == "manifest.json") {
      return fmt::format("'{}' is not a name of a file of a checkpoint", name);
    }
    return files.insert(name).second ? "" : fmt::format("file '{}' is listed twice", name);
  };
  for (const DataFile& file : manifest.files) {
    if (auto fault = check(file.name); !fault.empty()) {
      return fault;
    }
  }
  for (const BlobFile& blob : manifest.blobs) {
    if (auto fault = check(blob.file); !fault.empty()) {
      return fault;
    }
    if (!blobs.insert(blob.name).second) {
      return fmt::format("blob '{}' is listed twice", blob.name);
    }
  }
  return "";
}

bool is_range(std::int64_t begin, std::int64_t end, std::int64_t size) {
  return 0 <= begin && begin < end && end <= size;
}

/// One block by itself. The item's own size is known to fit 64 bits.
std::string find_block_fault(const Manifest& manifest,
                             const StoredItem& item,
                             const StoredBlock& block) {
  if (!is_range(block.row_begin, block.row_end, item.rows) ||
      !is_range(block.col_begin, block.col_end, item.cols)) {
    return fmt::format("rows [{}, {}) columns [{}, {}) are not a block of {} x {}", block.row_begin,
                       block.row_end, block.col_begin, block.col_end, item.rows, item.cols);
  }
  if (block.row_step > item.rows) {
    return fmt::format("rows in steps of {} of {}", block.row_step, item.rows);
  }
  if (block.file < 0 || block.file >= static_cast<std::int64_t>(manifest.files.size())) {
    return fmt::format("file {} of {} files", block.file, manifest.files.size());
  }
  const DataFile& file = manifest.files[static_cast<std::size_t>(block.file)];
  const std::int64_t bytes = block_bytes(item, block);
  if (block.offset < 0 || block.offset > file.bytes || bytes > file.bytes - block.offset) {
    return fmt::format("{} bytes at offset {} lie outside '{}' of {} bytes", bytes, block.offset,
                       file.name, file.bytes);
  }
  const std::int64_t rows = block.rows().size();
  if (block.chunk_rows < 1 || block.chunk_rows > rows ||
      (block.chunk_rows > 1 && block.chunk_rows * block_row_bytes(item, block) > kChunkBytes)) {
    return fmt::format("chunks of {} rows in a block of {} rows of {} bytes", block.chunk_rows,
                       rows, block_row_bytes(item, block));
  }
  const std::int64_t chunks = (rows - 1) / block.chunk_rows + 1;
  if (chunks != static_cast<std::int64_t>(block.checksums.size())) {
    return fmt::format("{} checksums for {} chunks", block.checksums.size(), chunks);
  }
  return "";
}

std::string find_item_fault(const Manifest& manifest, const StoredItem& item) {
  const MatrixSize size{item.rows, item.cols, size_of(item.dtype)};
  if (item.rows < 0 || item.cols < 0 || area_bytes(size) < 0) {
    return fmt::format("a matrix of {} x {} {}", item.rows, item.cols, to_string(item.dtype));
  }
  std::vector<Rect> rects;
  for (const StoredBlock& block : item.blocks) {
    if (auto fault = find_block_fault(manifest, item, block); !fault.empty()) {
      return fault;
    }
    rects.push_back({block.rows(), {block.col_begin, block.col_end}});
  }
  return find_cover_fault(std::move(rects), size);
}

/// Every byte of every data file belongs to exactly one block, so that a checksum guards it.
std::string find_file_fault(const Manifest& manifest) {
  using Span = std::pair<std::int64_t, std::int64_t>;
  std::vector<std::vector<Span>> spans(manifest.files.size());
  for (const StoredItem& item : manifest.items) {
    for (const StoredBlock& block : item.blocks) {
      spans[static_cast<std::size_t>(block.file)].emplace_back(block.offset,
                                                               block_bytes(item, block));
    }
  }
  for (std::size_t f = 0; f < spans.size(); ++f) {
    std::sort(spans[f].begin(), spans[f].end());
    std::int64_t at = 0;
    for (const auto& [offset, bytes] : spans[f]) {
      if (offset != at) {
        return fmt::format("file '{}': a block begins at offset {} where {} was expected",
                           manifest.files[f].name, offset, at);
      }
      at += bytes;
    }
    if (at != manifest.files[f].bytes) {
      return fmt::format("file '{}': {} bytes of blocks in {} bytes", manifest.files[f].name, at,
                         manifest.files[f].bytes);
    }
  }
  return "";
}

}  // namespace

std::string item_name(const std::string& parameter, const std::string& kind) {
  return fmt::format("{} {}", parameter, kind);
}

std::string find_fault(const Manifest& manifest) {
  if (auto fault = find_name_fault(manifest); !fault.empty()) {
    return fault;
  }
  std::set<std::pair<std::string, std::string>> names;
  for (const StoredItem& item : manifest.items) {
    const std::string name = item_name(item.parameter, item.kind);
    if (!names.emplace(item.parameter, item.kind).second) {
      return fmt::format("item {} is listed twice", name);
    }
    if (auto fault = find_item_fault(manifest, item); !fault.empty()) {
      return fmt::format("item {}: {}", name, fault);
    }
  }
  if (auto fault = find_file_fault(manifest); !fault.empty()) {
    return fault;
  }
  return find_row_fault(manifest);
}

}  // namespace weft::checkpoint
