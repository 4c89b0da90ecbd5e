// Names inside a directory of checkpoints, and what is complete there.
#include <algorithm>
#include <charconv>
#include <map>
#include <system_error>

#include <fmt/core.h>

#include "weft/checkpoint/file.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

constexpr std::string_view kStepPrefix = "step-";
/// Of the older copy, in the exchange of earlier versions without an atomic one.
constexpr std::string_view kAside = ".tmp.old";

/// Digits only, as many as there are.
std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool good = error == std::errc{} && end == text.data() + text.size() && number >= 0 &&
                    !text.empty() && text.front() != '-';
  return good ? std::optional(number) : std::nullopt;
}

bool has_manifest(io::FileSystem& files, const std::string& directory) {
  return kind_of(files, join(directory, kManifestName)) != io::Kind::kMissing;
}

}  // namespace

std::string step_name(const StepName& name) {
  const std::string plain = fmt::format("{}{:08}", kStepPrefix, name.step);
  return name.copy == 1 ? plain : fmt::format("{}.{}", plain, name.copy);
}

std::optional<StepName> parse_step_name(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) {
    return std::nullopt;
  }
  name.remove_prefix(kStepPrefix.size());
  const std::size_t dot = name.find('.');
  const auto step = parse_number(name.substr(0, dot));
  if (!step || name.substr(0, dot).size() < 8) {
    return std::nullopt;
  }
  if (dot == std::string_view::npos) {
    return StepName{*step, 1};
  }
  const auto copy = parse_number(name.substr(dot + 1));
  if (!copy || *copy < 2 || name[dot + 1] == '0') {
    return std::nullopt;
  }
  return StepName{*step, *copy};
}

std::string unfinished_name(std::string_view name, std::uint64_t job_id) {
  return fmt::format("{}.{:016x}{}", name, job_id, kUnfinished);
}

bool is_unfinished(std::string_view name) {
  return (name.ends_with(kUnfinished) || name.ends_with(kAside)) &&
         parse_step_name(name.substr(0, name.find('.')));
}

std::vector<Found> list_complete(io::FileSystem& files, const std::string& parent) {
  std::map<StepName, std::string> found;
  for (const std::string& name : list_directory(files, parent)) {
    const auto plain = parse_step_name(name);
    if (plain && has_manifest(files, join(parent, name))) {
      found[*plain] = join(parent, name);
    } else if (name.ends_with(kAside)) {
      // Names are sorted: step-N, if there is one, has been seen.
      const std::string step = name.substr(0, name.size() - kAside.size());
      const auto replaced = parse_step_name(step);
      const std::string unfinished = step + std::string(kUnfinished);
      for (const std::string& copy : {join(parent, unfinished), join(parent, name)}) {
        if (replaced && !found.contains(*replaced) && has_manifest(files, copy)) {
          found[*replaced] = copy;
        }
      }
    }
  }
  std::vector<Found> out;
  for (const auto& [name, directory] : found) {
    out.push_back({directory, name});
  }
  return out;
}

}  // namespace weft::checkpoint
