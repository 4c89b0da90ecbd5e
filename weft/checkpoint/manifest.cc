#include "weft/checkpoint/manifest.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

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

/// rows x cols elements as bytes, or -1 where that does not fit.
std::int64_t area_bytes(std::int64_t rows, std::int64_t cols, DType dtype) {
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, cols, &elements) ||
      __builtin_mul_overflow(elements, size_of(dtype), &bytes)) {
    return -1;
  }
  return bytes;
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

/// All blocks of an item have one step, so only those whose rows begin alike modulo it can meet.
std::pair<std::int64_t, std::int64_t> begin_of(const StoredBlock& block) {
  return {block.row_begin % block.row_step, block.row_begin};
}

/// Of blocks in the order of begin_of(), the first that meets one before it. Those that reach into
/// the row in hand are kept by column: none of them overlap, so a new one can only meet its
/// neighbours. O(n log n).
std::string find_overlap(const std::vector<const StoredBlock*>& blocks) {
  std::map<std::int64_t, const StoredBlock*> open;            // by first column
  std::set<std::pair<std::int64_t, std::int64_t>> last_rows;  // of these: row_end, first column
  std::int64_t rest = 0;
  for (const StoredBlock* block : blocks) {
    if (begin_of(*block).first != rest) {
      rest = begin_of(*block).first;
      open.clear();
      last_rows.clear();
    }
    while (!last_rows.empty() && last_rows.begin()->first <= block->row_begin) {
      open.erase(last_rows.begin()->second);
      last_rows.erase(last_rows.begin());
    }
    const auto right = open.lower_bound(block->col_begin);
    const StoredBlock* met = nullptr;
    if (right != open.end() && right->first < block->col_end) {
      met = right->second;
    } else if (right != open.begin() && std::prev(right)->second->col_end > block->col_begin) {
      met = std::prev(right)->second;
    }
    if (met != nullptr) {
      return fmt::format(
          "two blocks overlap: rows [{}, {}) columns [{}, {}) and rows [{}, {}) columns [{}, {})",
          met->row_begin, met->row_end, met->col_begin, met->col_end, block->row_begin,
          block->row_end, block->col_begin, block->col_end);
    }
    open.emplace(block->col_begin, block);
    last_rows.emplace(block->row_end, block->col_begin);
  }
  return "";
}

/// Blocks that lie inside the matrix cover it once when none overlap and their areas add up.
std::string find_cover_fault(const StoredItem& item) {
  std::vector<const StoredBlock*> blocks;
  std::int64_t bytes = 0;
  for (const StoredBlock& block : item.blocks) {
    if (block.row_step != item.blocks.front().row_step) {
      return fmt::format("rows in steps of {} and of {}", item.blocks.front().row_step,
                         block.row_step);
    }
    blocks.push_back(&block);
    if (__builtin_add_overflow(bytes, block_bytes(item, block), &bytes)) {
      return "its blocks overlap";
    }
  }
  std::sort(blocks.begin(), blocks.end(),
            [](const auto* a, const auto* b) { return begin_of(*a) < begin_of(*b); });
  if (auto fault = find_overlap(blocks); !fault.empty()) {
    return fault;
  }
  const std::int64_t wanted = area_bytes(item.rows, item.cols, item.dtype);
  if (bytes != wanted) {
    return fmt::format("its blocks cover {} of {} bytes", bytes, wanted);
  }
  return "";
}

std::string find_item_fault(const Manifest& manifest, const StoredItem& item) {
  if (item.rows < 0 || item.cols < 0 || area_bytes(item.rows, item.cols, item.dtype) < 0) {
    return fmt::format("a matrix of {} x {} {}", item.rows, item.cols, to_string(item.dtype));
  }
  for (const StoredBlock& block : item.blocks) {
    if (auto fault = find_block_fault(manifest, item, block); !fault.empty()) {
      return fault;
    }
  }
  return find_cover_fault(item);
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
  return find_file_fault(manifest);
}

}  // namespace weft::checkpoint
