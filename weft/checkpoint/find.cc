#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::int64_t kMaxManifestBytes = std::int64_t{4} << 30;

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

bool is_complete(const std::string& directory) {
  return file_exists(join(directory, kManifestName));
}

/// For messages: which others there are to resume from.
std::string others(const std::string& parent) {
  std::string text;
  for (const std::string& directory : list_checkpoints(parent)) {
    text += fmt::format(" '{}'", directory);
  }
  return text.empty() ? "there is no complete one beside it" : "complete ones are:" + text;
}

}  // namespace

std::string step_name(std::int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::optional<std::int64_t> step_of(std::string_view name) {
  std::int64_t step = 0;
  if (!name.starts_with(kStepPrefix)) {
    return std::nullopt;
  }
  name.remove_prefix(kStepPrefix.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || step < 0 || name.size() < 8) {
    return std::nullopt;
  }
  return step;
}

std::string join(const std::string& parent, std::string_view name) {
  return fmt::format("{}{}{}", parent, parent.ends_with('/') ? "" : "/", name);
}

std::vector<std::string> list_unfinished(const std::string& parent) {
  std::vector<std::string> out;
  for (const std::string& name : names_in(parent)) {
    if (name.ends_with(kUnfinished) &&
        step_of(std::string_view(name).substr(0, name.size() - kUnfinished.size()))) {
      out.push_back(join(parent, name));
    }
  }
  return out;
}

std::vector<std::string> list_checkpoints(const std::string& parent) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const std::string& name : names_in(parent)) {
    if (const auto step = step_of(name); step && is_complete(join(parent, name))) {
      found.emplace_back(*step, join(parent, name));
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> out;
  for (auto& [step, directory] : found) {
    out.push_back(std::move(directory));
  }
  return out;
}

std::string find_checkpoint(const std::string& path) {
  if (is_complete(path)) {
    return path;
  }
  const std::string latest = join(path, kLatestName);
  if (file_exists(latest)) {
    std::string name = read_file(latest, 256);
    while (name.ends_with('\n')) {
      name.pop_back();
    }
    const std::string directory = join(path, name);
    if (!step_of(name)) {
      fail(ErrorCode::kCheckpoint, "'{}' does not name a checkpoint; {}: give one of them", latest,
           others(path));
    }
    if (!is_complete(directory)) {
      fail(ErrorCode::kCheckpoint, "'{}' names '{}', which has no manifest; {}: give one of them",
           latest, directory, others(path));
    }
    return directory;
  }
  const auto complete = list_checkpoints(path);
  if (complete.empty()) {
    fail(ErrorCode::kCheckpoint,
         "there is no checkpoint in '{}': neither '{}' nor '{}' nor a directory '{}*' with a "
         "manifest; give the directory that a job's checkpoints were written to, or one of them",
         path, kManifestName, kLatestName, kStepPrefix);
  }
  return complete.back();
}

Manifest read_manifest(const std::string& path) {
  const std::string file = join(find_checkpoint(path), kManifestName);
  return manifest_from_json(read_file(file, kMaxManifestBytes), file);
}

std::string read_blob(const std::string& path, const std::string& name) {
  const std::string directory = find_checkpoint(path);
  const Manifest manifest = read_manifest(directory);
  for (const BlobFile& blob : manifest.blobs) {
    if (blob.name == name) {
      const std::string file = join(directory, blob.file);
      std::string bytes = read_file(file, blob.bytes);
      const std::uint64_t checksum = hash_string(bytes);
      if (static_cast<std::int64_t>(bytes.size()) != blob.bytes || checksum != blob.checksum) {
        fail(ErrorCode::kCheckpoint,
             "'{}' has {} bytes with checksum {:016x}, but {} bytes with {:016x} were written; "
             "restore the checkpoint from a copy or resume from another one",
             file, bytes.size(), checksum, blob.bytes, blob.checksum);
      }
      return bytes;
    }
  }
  fail(ErrorCode::kCheckpoint, "the checkpoint '{}' holds no '{}': it was written by another job",
       directory, name);
}

}  // namespace weft::checkpoint
