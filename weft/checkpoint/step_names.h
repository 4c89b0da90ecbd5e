/// Private to checkpoint/: the names inside a directory of checkpoints.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/checkpoint/manifest.h"
#include "weft/io/file_system.h"

namespace weft::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kLatestName = "latest";
/// The name that `latest` gets when the checkpoint in hand is complete. Where it is, it counts.
inline constexpr std::string_view kNextName = "next";
inline constexpr std::string_view kLockName = "lock";
inline constexpr std::string_view kUnfinished = ".tmp";

/// A longer manifest is none.
inline constexpr std::int64_t kMaxManifestBytes = std::int64_t{4} << 30;

using io::join;

/// A step, and which of the checkpoints of it in one directory.
struct StepName {
  std::int64_t step = 0;
  std::int64_t copy = 1;

  friend auto operator<=>(const StepName&, const StepName&) = default;
};

/// step-00000100, step-00000100.2
std::string step_name(const StepName& name);

/// What such a name says.
std::optional<StepName> parse_step_name(std::string_view name);

/// step-00000100.JOB.tmp
std::string unfinished_name(std::string_view name, std::uint64_t job_id);

/// Whether a name is of what a save has not finished, or of what is being removed.
bool is_unfinished(std::string_view name);

/// A complete checkpoint of a directory.
struct Found {
  std::string directory;
  StepName name;
};

/// The complete ones below `parent`, by ascending name. One of another name is what is left where
/// an earlier version of Weft was interrupted while it replaced a step (step-N.tmp.old): of its two
/// copies the new one.
std::vector<Found> list_complete(io::FileSystem& files, const std::string& parent);

/// What a manifest says of its job, and its id.
struct Heading {
  std::uint64_t id = 0;
  std::int64_t step = 0;
  Lineage lineage;
  std::vector<std::string> prefixes = {};  ///< of the segments it names
};

/// Throws Error(kCheckpoint).
Heading read_heading(io::FileSystem& files, const std::string& directory);

/// The same; nothing, and a warning, where it cannot be read.
std::optional<Heading> try_heading(io::FileSystem& files, const std::string& directory);

/// The newest of a directory, by `next`, else by `latest` and what has descended from it, else by
/// save numbers. None where there is no complete one. Throws Error(kCheckpoint) where several jobs
/// have checkpoints there and nothing says which is meant.
std::optional<Found> newest_of(io::FileSystem& files, const std::string& parent);

/// The complete checkpoint that a file with its name names, else nothing.
std::optional<Found> named_by(io::FileSystem& files,
                              const std::string& parent,
                              std::string_view file,
                              const std::vector<Found>& complete);

}  // namespace weft::checkpoint
