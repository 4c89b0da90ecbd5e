// Which checkpoint is meant, and what is in it.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/manifest_check.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kMaxNameBytes = 256;

bool is_complete(io::FileSystem& files, const std::string& directory) {
  return kind_of(files, join(directory, kManifestName)) != io::Kind::kMissing;
}

/// By save number; steps and names decide where these are equal or not known.
using Age = std::pair<std::int64_t, StepName>;

/// Of `from` and all that has it in its line, the one of the greatest save number.
Found newest_descendant(io::FileSystem& files,
                        const Found& from,
                        const std::vector<Found>& complete) {
  std::map<std::uint64_t, std::vector<std::pair<Found, Heading>>> children;  // by parent's id
  bool alone = true;
  for (const Found& one : complete) {
    const auto heading = one.name > from.name ? try_heading(files, one.directory) : std::nullopt;
    if (heading) {
      children[heading->lineage.parent_id].emplace_back(one, *heading);
      alone = false;
    }
  }
  if (alone) {
    return from;
  }
  const Heading heading = read_heading(files, from.directory);
  Found newest = from;
  Age age{heading.lineage.save_number, from.name};
  std::vector<std::uint64_t> open{heading.id};
  std::set<std::uint64_t> seen{0};  // no parent
  while (!open.empty()) {
    const std::uint64_t id = open.back();
    open.pop_back();
    if (!seen.insert(id).second) {
      continue;
    }
    for (const auto& [child, child_heading] : children[id]) {
      open.push_back(child_heading.id);
      const Age child_age{child_heading.lineage.save_number, child.name};
      if (child_age > age) {
        age = child_age;
        newest = child;
      }
    }
  }
  return newest;
}

/// Without `latest`.
Found newest_by_number(io::FileSystem& files,
                       const std::string& parent,
                       const std::vector<Found>& complete) {
  std::map<std::uint64_t, std::pair<Age, Found>> newest;  // of each job
  for (const Found& one : complete) {
    const Lineage lineage = read_heading(files, one.directory).lineage;
    const Age age{lineage.save_number, one.name};
    const auto [place, is_new] = newest.try_emplace(lineage.job_id, age, one);
    if (!is_new && age > place->second.first) {
      place->second = {age, one};
    }
  }
  if (newest.size() > 1) {
    newest.erase(0);  // of versions that knew no job: what other jobs went on from
  }
  if (newest.size() > 1) {
    std::string names;
    for (const auto& [job, one] : newest) {
      names += fmt::format(" '{}' of job {:016x}", one.second.directory, job);
    }
    fail(ErrorCode::kCheckpoint,
         "'{}' has checkpoints of {} jobs and no file '{}' that says which is meant; the newest "
         "are{}: give one of them",
         parent, newest.size(), kLatestName, names);
  }
  return newest.begin()->second.second;
}

}  // namespace

Heading read_heading(io::FileSystem& files, const std::string& directory) {
  const std::string file = join(directory, kManifestName);
  const std::string text = load_file(files, file, kMaxManifestBytes);
  Heading heading;
  const Manifest manifest = decode_manifest(text, file);
  heading.step = manifest.metadata.step;
  heading.lineage = manifest.metadata.lineage;
  for (const SegmentSet& set : manifest.segments) {
    heading.prefixes.push_back(set.prefix);
  }
  heading.id = manifest_id(text, file);
  return heading;
}

std::optional<Heading> try_heading(io::FileSystem& files, const std::string& directory) {
  try {
    return read_heading(files, directory);
  } catch (const Error& error) {
    log_warning("left aside: {}", error.what());
    return std::nullopt;
  }
}

std::optional<Found> named_by(io::FileSystem& files,
                              const std::string& parent,
                              std::string_view file,
                              const std::vector<Found>& complete) {
  const std::string path = join(parent, file);
  if (kind_of(files, path) != io::Kind::kFile) {
    return std::nullopt;
  }
  std::string name = load_file(files, path, kMaxNameBytes);
  if (name.ends_with('\n')) {
    name.pop_back();
  } else if (file == kNextName) {
    return std::nullopt;  // cut by a crash
  }
  const auto parsed = parse_step_name(name);
  const auto found = std::find_if(complete.begin(), complete.end(),
                                  [&](const Found& one) { return parsed && one.name == *parsed; });
  return found == complete.end() ? std::nullopt : std::optional(*found);
}

std::optional<Found> newest_of(io::FileSystem& files, const std::string& parent) {
  const std::vector<Found> complete = list_complete(files, parent);
  if (complete.empty()) {
    return std::nullopt;
  }
  if (const auto next = named_by(files, parent, kNextName, complete)) {
    return next;
  }
  if (const auto latest = named_by(files, parent, kLatestName, complete)) {
    return newest_descendant(files, *latest, complete);
  }
  return newest_by_number(files, parent, complete);
}

std::vector<std::string> list_checkpoints(const std::string& parent, io::FileSystem& files) {
  std::vector<std::string> out;
  for (const Found& one : list_complete(files, parent)) {
    out.push_back(one.directory);
  }
  return out;
}

std::string find_checkpoint(const std::string& path, io::FileSystem& files) {
  if (is_complete(files, path)) {
    return path;
  }
  const auto newest = newest_of(files, path);
  if (!newest) {
    fail(ErrorCode::kCheckpoint,
         "there is no checkpoint in '{}': neither '{}' nor a directory 'step-*' with one; give the "
         "directory that a job's checkpoints were written to, or one of them",
         path, kManifestName);
  }
  return newest->directory;
}

Manifest read_manifest(const std::string& path, io::FileSystem& files) {
  const std::string file = join(find_checkpoint(path, files), kManifestName);
  return manifest_from_json(load_file(files, file, kMaxManifestBytes), file);
}

std::string read_blob(const std::string& path, const std::string& name, io::FileSystem& files) {
  const std::string directory = find_checkpoint(path, files);
  const Manifest manifest = read_manifest(directory, files);
  for (const BlobFile& blob : manifest.blobs) {
    if (blob.name == name) {
      const std::string file = join(directory, blob.file);
      std::string bytes = load_file(files, file, blob.bytes);
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
