// The segments of a job's checkpoints: what they are called, and which of them are still named.
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/folder.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/step_names.h"
#include "weft/io/process.h"

namespace weft::checkpoint {
namespace {

/// PREFIX of PREFIX-RANK-NUMBER.rows; empty where it is another name.
std::string_view prefix_of(std::string_view name) {
  constexpr std::string_view kEnding = ".rows";
  const std::size_t number = name.rfind('-');
  if (!name.ends_with(kEnding) || number == std::string_view::npos || number == 0) {
    return {};
  }
  const std::size_t rank = name.rfind('-', number - 1);
  return rank == std::string_view::npos ? std::string_view() : name.substr(0, rank);
}

/// What the prefixes of a job begin with.
std::string beginning_of(std::uint64_t job_id) {
  return fmt::format("{:016x}-", job_id);
}

}  // namespace

std::optional<Manifest> Folder::parent() const {
  const std::string directory = join(directory_, next_.parent_name);
  const std::string file = join(directory, kManifestName);
  if (next_.parent_id == 0 || kind_of(files_, file) != io::Kind::kFile) {
    return std::nullopt;
  }
  const auto heading = try_heading(files_, directory);
  if (!heading || heading->id != next_.parent_id) {
    return std::nullopt;
  }
  return read_manifest(directory, files_);
}

std::string Folder::begin_rows() {
  const std::string rows = join(directory_, kRowsName);
  if (kind_of(files_, rows) == io::Kind::kMissing) {
    make_directory(files_, rows);
    sync_directory(files_, directory_);
  }
  // A save that is tried again, or another line of the job, has other names.
  prefix_ =
      fmt::format("{}{}-{:016x}", beginning_of(next_.job_id), next_.save_number, io::random_id());
  return prefix_;
}

/// Of the checkpoint that is being written, and the directory where it is empty then.
void Folder::discard_rows() {
  if (prefix_.empty()) {
    return;
  }
  const std::string rows = join(directory_, kRowsName);
  for (const std::string& name : list_directory(files_, rows)) {
    if (prefix_of(name) == prefix_) {
      static_cast<void>(files_.remove(join(rows, name)));
    }
  }
  static_cast<void>(files_.remove(rows));  // not while there is anything in it
  prefix_.clear();
}

void Folder::sweep(const std::function<void()>& on_removed) noexcept {
  try {
    if (next_.job_id == 0) {
      return;
    }
    bool has_own = false;
    for (const std::string& name : list_directory(files_, join(directory_, kRowsName))) {
      has_own = has_own || name.starts_with(beginning_of(next_.job_id));
    }
    if (!has_own) {
      return;
    }
    check_held();
    const auto all = known();
    if (read_.size() != list_complete(files_, directory_).size()) {
      log_warning(
          "segments of rows in '{}' stay, whoever needs them: a manifest there cannot be read",
          directory_);
      return;
    }
    std::set<std::string> named;
    for (const auto& [directory, one] : read_) {
      named.insert(one.prefixes.begin(), one.prefixes.end());
    }
    remove_segments(named, on_removed);
  } catch (const std::exception& error) {
    log_warning("old segments of rows stay: {}", error.what());
  }
}

/// The job's own but those that are named, and those of the checkpoint that is being written.
void Folder::remove_segments(const std::set<std::string>& named,
                             const std::function<void()>& on_removed) {
  const std::string rows = join(directory_, kRowsName);
  for (const std::string& name : list_directory(files_, rows)) {
    const std::string prefix(prefix_of(name));
    if (!prefix.starts_with(beginning_of(next_.job_id)) || named.contains(prefix) ||
        prefix == prefix_) {
      continue;
    }
    if (has_renamed_) {  // or a crash may bring back a checkpoint without its segments
      sync_directory(files_, directory_);
      has_renamed_ = false;
    }
    const std::string path = join(rows, name);
    if (const auto error = files_.remove(path)) {
      log_warning("cannot remove '{}', which no checkpoint names: {}; the next save tries again",
                  path, error.message());
    }
    if (on_removed) {
      on_removed();
    }
  }
}

}  // namespace weft::checkpoint
