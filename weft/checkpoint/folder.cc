#include "weft/checkpoint/folder.h"

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/step_names.h"
#include "weft/io/process.h"

namespace weft::checkpoint {
namespace {

std::string last_part(const std::string& path) {
  const std::size_t end = path.find_last_not_of('/');
  const std::size_t slash = end == std::string::npos ? end : path.rfind('/', end);
  return slash == std::string::npos ? path.substr(0, end + 1) : path.substr(slash + 1, end - slash);
}

std::string job_label(std::uint64_t job_id) {
  return fmt::format("job {:016x}", job_id);
}

[[noreturn]] void fail_busy(const std::string& directory, const io::Holder& holder) {
  const std::string who =
      holder.nonce == 0
          ? "a process that has not said its name"
          : fmt::format("process {} on host '{}', {}", holder.process.pid, holder.process.host,
                        holder.label.empty() ? "which has not begun" : holder.label);
  throw FolderBusy(
      ErrorCode::kCheckpoint,
      fmt::format(
          "another job writes checkpoints to '{}': {}; wait until it has ended, or end it, or give "
          "another directory. The lock goes with its process: no file has to be removed",
          directory, who));
}

std::vector<std::string> prefixes_of(const std::string& manifest_text) {
  std::vector<std::string> prefixes;
  for (const SegmentSet& set : decode_manifest(manifest_text, "the manifest").segments) {
    prefixes.push_back(set.prefix);
  }
  return prefixes;
}

std::string list_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

}  // namespace

Folder::Folder(const FolderOptions& options)
    : files_(options.files != nullptr ? *options.files : io::real_file_system()),
      directory_(options.directory) {
  made_ = kind_of(files_, directory_) == io::Kind::kMissing;
  create_directories(files_, directory_);
  const std::string path = join(directory_, kLockName);
  io::TakenLock taken = io::LockFile::take(files_, {path, options.timeout_s, options.on_wait});
  if (taken.error == std::error_code(EAGAIN, std::generic_category())) {
    fail_busy(directory_, taken.holder);
  }
  if (taken.error) {
    fail(ErrorCode::kCheckpoint, "cannot write to the directory for checkpoints '{}': {}",
         directory_, io::describe_write_error(taken.error));
  }
  lock_ = std::move(taken.lock);
}

Folder::~Folder() {
  lock_.reset();
  if (made_) {
    static_cast<void>(files_.remove(directory_));  // not while there is anything in it
  }
}

std::string Folder::newest() const {
  const auto found = newest_of(files_, directory_);
  return found ? found->directory : "";
}

void Folder::start_job() {
  const std::vector<Found> complete = list_complete(files_, directory_);
  if (!complete.empty()) {
    fail(ErrorCode::kCheckpoint,
         "'{}' has {} of another training, the last of step {}, and this job would begin a new "
         "one: go on with --resume auto or --resume {}, or give another --checkpoint directory, or "
         "remove what is there",
         directory_,
         complete.size() == 1 ? "a checkpoint" : fmt::format("{} checkpoints", complete.size()),
         complete.back().name.step, directory_);
  }
  next_ = {.job_id = io::random_id(), .save_number = 1, .parent_name = "", .parent_id = 0};
  lock_->set_label(job_label(next_.job_id));
}

void Folder::resume_job(const std::string& checkpoint, const std::function<void()>& on_read) {
  const std::string directory = find_checkpoint(checkpoint, files_);
  const Heading from = read_heading(files_, directory);
  next_ = {.job_id = from.lineage.job_id != 0 ? from.lineage.job_id : io::random_id(),
           .save_number = from.lineage.save_number + 1,
           .parent_name = last_part(directory),
           .parent_id = from.id};
  lock_->set_label(job_label(next_.job_id));
  if (from.lineage.job_id != 0) {
    const auto all = known(on_read);
    std::set<std::uint64_t> line{from.id};  // which may lie in another directory than its parents
    for (const Known& one : line_of(all, from.lineage.parent_id)) {
      line.insert(one.id);
    }
    say_what_is_left_behind(line);
  }
}

/// Those of the job that are not of the line that it goes on with; known() has read them.
void Folder::say_what_is_left_behind(const std::set<std::uint64_t>& line) const {
  std::vector<std::string> names;
  for (const Known& one : outside_of(line)) {
    names.push_back(last_part(one.directory));
  }
  if (!names.empty()) {
    log_info(
        "resume: this leaves behind {} of '{}', written by the same job and not of the line that "
        "it goes on with; with --checkpoint-keep they are removed once that line has as many",
        list_names(names), directory_);
  }
}

void Folder::check_held() const {
  const io::Hold hold = lock_->hold();
  if (hold == io::Hold::kHeld) {
    return;
  }
  const std::string path = join(directory_, kLockName);
  // Where the whole directory is missing, its file system may come back.
  if (hold == io::Hold::kUnknown || kind_of(files_, directory_) == io::Kind::kMissing) {
    fail(ErrorCode::kCheckpoint,
         "it cannot be seen whether the lock '{}' is still this job's, and nothing is written to "
         "'{}' without it: look at that file system",
         path, directory_);
  }
  fail(ErrorCode::kLockLost,
       "the lock of '{}' is no longer this job's: '{}' was removed, or another job has taken it "
       "because this one stood still; nothing is written there: look which job is to go on",
       directory_, path);
}

/// Brings the names to where an interrupted save would have brought them.
void Folder::repair() {
  const std::vector<Found> complete = list_complete(files_, directory_);
  for (const Found& one : complete) {
    const std::string plain = join(directory_, step_name(one.name));
    if (one.directory != plain) {
      rename_file(files_, one.directory, plain);
      sync_directory(files_, directory_);
    }
  }
  if (named_by(files_, directory_, kNextName, complete)) {
    rename_file(files_, join(directory_, kNextName), join(directory_, kLatestName));
    sync_directory(files_, directory_);
  }
}

std::string Folder::begin(std::int64_t step, const std::function<void()>& on_removed) {
  check_held();
  if (next_.job_id == 0) {
    const std::string before = newest();
    if (before.empty()) {
      start_job();
    } else {
      resume_job(before);
    }
  }
  repair();
  // Whoever made them is gone, or they are this job's: the lock is held.
  for (const std::string& name : list_directory(files_, directory_)) {
    const std::string path = join(directory_, name);
    if (!is_unfinished(name)) {
      continue;
    }
    if (const auto error = io::remove_all(files_, path, on_removed)) {
      log_warning("cannot remove '{}', which a save has left unfinished: {}", path,
                  error.message());
    }
  }
  prefix_.clear();
  sweep(on_removed);
  const std::string unfinished =
      join(directory_, unfinished_name(step_name({step, 1}), next_.job_id));
  make_directory(files_, unfinished);
  return unfinished;
}

/// The name of the step, or with .2, .3, ... where it is taken, by whatever it is.
std::string Folder::free_name(std::int64_t step) const {
  StepName name{step, 1};
  while (kind_of(files_, join(directory_, step_name(name))) != io::Kind::kMissing) {
    ++name.copy;
  }
  return step_name(name);
}

std::string Folder::commit(const std::string& unfinished,
                           std::int64_t step,
                           const std::string& manifest_text) {
  check_held();
  const std::string manifest = join(unfinished, kManifestName);
  if (!prefix_.empty()) {
    sync_directory(files_, join(directory_, kRowsName));
  }
  create_file(files_, manifest, manifest_text);
  sync_directory(files_, unfinished);
  const std::string name = free_name(step);
  const std::string final = join(directory_, name);
  const std::string next = join(directory_, kNextName);
  // From here on the name in `next` counts as soon as there is such a checkpoint, so that one
  // rename makes it complete and the newest. The sync keeps the two in this order.
  create_file(files_, next, name + "\n");
  sync_directory(files_, directory_);
  rename_file(files_, unfinished, final);
  try {
    sync_directory(files_, directory_);
  } catch (...) {
    static_cast<void>(files_.rename(final, unfinished));
    throw;
  }
  std::error_code error = files_.rename(next, join(directory_, kLatestName));
  if (!error) {
    error = files_.sync_directory(directory_);
  }
  if (error) {  // the next save does it, and until then `next` counts
    log_warning("cannot write '{}': {}; '{}' is complete nevertheless",
                join(directory_, kLatestName), error.message(), final);
  }
  const Known saved{final, next_, manifest_id(manifest_text, manifest), prefixes_of(manifest_text)};
  read_[final] = saved;
  prefix_.clear();
  newest_id_ = saved.id;
  next_.parent_name = name;
  next_.parent_id = saved.id;
  ++next_.save_number;
  return final;
}

void Folder::discard(const std::string& unfinished) noexcept {
  try {
    if (lock_->is_held()) {
      static_cast<void>(io::remove_all(files_, unfinished));
      discard_rows();
      if (!named_by(files_, directory_, kNextName, list_complete(files_, directory_))) {
        static_cast<void>(io::remove_all(files_, join(directory_, kNextName)));
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): what stays is removed by the next save
  }
}

/// All complete checkpoints of the directory whose manifest can be read, by id.
std::map<std::uint64_t, Folder::Known> Folder::known(const std::function<void()>& on_read) {
  std::map<std::string, Known> read;
  std::map<std::uint64_t, Known> out;
  for (const Found& one : list_complete(files_, directory_)) {
    const auto before = read_.find(one.directory);
    Known now;
    if (before != read_.end()) {
      now = before->second;
    } else if (const auto heading = try_heading(files_, one.directory)) {
      now = {one.directory, heading->lineage, heading->id, heading->prefixes};
    } else {
      continue;
    }
    read[one.directory] = now;
    out[now.id] = now;
    if (on_read) {
      on_read();
    }
  }
  read_ = std::move(read);
  return out;
}

/// The line that ends with checkpoint `id`, the newest first, as far as it is in `all`.
std::vector<Folder::Known> Folder::line_of(const std::map<std::uint64_t, Known>& all,
                                           std::uint64_t id) {
  std::vector<Known> line;
  std::set<std::uint64_t> seen;
  for (auto at = all.find(id); at != all.end() && seen.insert(at->first).second;
       at = all.find(at->second.lineage.parent_id)) {
    line.push_back(at->second);
  }
  return line;
}

/// The job's that known() has read and that are not of `line`, by ascending name.
std::vector<Folder::Known> Folder::outside_of(const std::set<std::uint64_t>& line) const {
  std::vector<Known> out;
  for (const auto& [directory, one] : read_) {
    if (one.lineage.job_id == next_.job_id && !line.contains(one.id)) {
      out.push_back(one);
    }
  }
  std::sort(out.begin(), out.end(), [](const Known& a, const Known& b) {
    return parse_step_name(last_part(a.directory)) < parse_step_name(last_part(b.directory));
  });
  return out;
}

void Folder::prune(std::int64_t keep, const std::function<void()>& on_removed) noexcept {
  try {
    if (keep <= 0 || newest_id_ == 0) {
      return;
    }
    check_held();
    const std::vector<Known> running = line_of(known(), newest_id_);
    const auto count = static_cast<std::int64_t>(running.size());
    if (count < keep) {
      return;
    }
    std::set<std::uint64_t> line;
    for (const Known& one : running) {
      line.insert(one.id);
    }
    std::vector<Known> old = outside_of(line);
    old.insert(old.end(), running.rbegin(), running.rend() - keep);  // the oldest goes first
    remove(old, line, on_removed);
  } catch (const std::exception& error) {
    log_warning("old checkpoints stay: {}", error.what());
  }
}

/// Each gets an unfinished name first, and that on the disk, so that a half-removed one never looks
/// complete. Those that are not of the running line are named.
void Folder::remove(const std::vector<Known>& old,
                    const std::set<std::uint64_t>& line,
                    const std::function<void()>& on_removed) {
  std::vector<std::string> renamed;
  std::vector<std::string> left_behind;
  for (const Known& one : old) {
    const std::string unfinished =
        join(directory_, unfinished_name(last_part(one.directory), next_.job_id));
    if (const auto error = files_.rename(one.directory, unfinished)) {
      log_warning("cannot remove the old checkpoint '{}': {}; it stays", one.directory,
                  error.message());
    } else {
      renamed.push_back(unfinished);
      has_renamed_ = true;
      if (!line.contains(one.id)) {
        left_behind.push_back(last_part(one.directory));
      }
    }
  }
  if (renamed.empty()) {
    return;
  }
  if (!left_behind.empty()) {
    log_info(
        "checkpoint: this removes {} of '{}', written by the same job and not of the line that it "
        "goes on with, which has as many as --checkpoint-keep asks for",
        list_names(left_behind), directory_);
  }
  sync_directory(files_, directory_);
  has_renamed_ = false;
  for (const std::string& path : renamed) {
    if (const auto error = io::remove_all(files_, path, on_removed)) {
      log_warning("cannot remove '{}': {}; the next save tries again", path, error.message());
    }
  }
}

}  // namespace weft::checkpoint
