/// Private to checkpoint/: the names inside a directory of checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kLatestName = "latest";
inline constexpr std::string_view kUnfinished = ".tmp";

/// step-00000100
std::string step_name(std::int64_t step);

/// The step of such a name.
std::optional<std::int64_t> step_of(std::string_view name);

/// Directories that a save has not finished, or that are being removed.
std::vector<std::string> list_unfinished(const std::string& parent);

/// parent/name
std::string join(const std::string& parent, std::string_view name);

}  // namespace weft::checkpoint
