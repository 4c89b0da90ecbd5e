#include "weft/train/memory_limits.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include <sys/stat.h>
#include <unistd.h>

#include "weft/base/hash.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

/// At least this is no limit: v1 says "none" by the largest multiple of a page.
constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;

std::optional<std::int64_t> limit_of(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) {
    return kUnlimited;
  }
  return error == std::errc() && at != text.data() && value >= 0 ? std::optional(value)
                                                                 : std::nullopt;
}

/// The number that a file begins with; none for "max".
std::optional<std::int64_t> read_number(const fs::path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return limit_of(word);
}

/// Lines of a name, perhaps a colon, and a number.
std::map<std::string, std::int64_t> read_numbers(const fs::path& path) {
  std::map<std::string, std::int64_t> values;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::string value;
    words >> name >> value;
    if (const auto parsed = limit_of(value)) {
      values[name.substr(0, name.find(':'))] = *parsed;
    }
  }
  return values;
}

std::int64_t value_of(const std::map<std::string, std::int64_t>& values, const char* name) {
  const auto found = values.find(name);
  return found == values.end() ? 0 : found->second;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) {
    parts.push_back(part);
  }
  return parts;
}

void add_host(const std::string& root, std::vector<MemoryLimit>& limits) {
  constexpr std::int64_t kUnit = 1024;
  const auto info = read_numbers(root + "/proc/meminfo");
  if (info.contains("MemAvailable")) {
    limits.push_back(
        {.id = hash_string("host"),
         .name = "the host (memory available and free swap)",
         .left = kUnit * (value_of(info, "MemAvailable") + value_of(info, "SwapFree"))});
  }
}

/// The soft limit of the address space, which counts all that is mapped.
void add_address_space(const std::string& root, std::vector<MemoryLimit>& limits) {
  constexpr std::string_view kName = "Max address space";
  std::ifstream file(root + "/proc/self/limits");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kName)) {
      continue;
    }
    std::istringstream words(line.substr(kName.size()));
    std::string soft;
    words >> soft;
    const auto limit = limit_of(soft);
    const auto pages = read_number(root + "/proc/self/statm");
    if (limit && *limit < kUnlimited && pages) {
      limits.push_back(
          {.id = hash_combine(hash_string("process"), static_cast<std::uint64_t>(getpid())),
           .name = "the address space of a process (ulimit -v)",
           .left = *limit - *pages * sysconf(_SC_PAGESIZE)});
    }
  }
}

/// Where a hierarchy of cgroups is mounted, and which of its folders that is.
struct Mount {
  std::string point;
  std::string root;
};

/// That of version 2, or of version 1 with the memory controller. Spaces in paths are not looked
/// for: such a mount is not found.
std::optional<Mount> find_mount(const std::string& root, int version) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t dash = line.find(" - ");
    const std::vector<std::string> before = split(line.substr(0, dash), ' ');
    if (dash == std::string::npos || before.size() < 5) {
      continue;
    }
    const std::vector<std::string> after = split(line.substr(dash + 3), ' ');
    const std::string type = version == 1 ? "cgroup" : "cgroup2";
    if (after.size() < 3 || after[0] != type) {
      continue;
    }
    const std::vector<std::string> options = split(after[2], ',');
    if (version == 2 || std::find(options.begin(), options.end(), "memory") != options.end()) {
      return Mount{.point = before[4], .root = before[3]};
    }
  }
  return std::nullopt;
}

/// The cgroup of this process in that hierarchy; none: it has none there.
std::optional<std::string> find_cgroup(const std::string& root, int version) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::vector<std::string> controllers =
        split(line.substr(first + 1, second - first - 1), ',');
    const bool of_memory =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    if (version == 1 ? of_memory : line.starts_with("0::")) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

/// `cgroup` below the mount: a container sees its own cgroup, or a folder above it, as the root.
std::string below_mount(const Mount& mount, const std::string& cgroup) {
  if (cgroup.find("..") != std::string::npos) {
    return "";
  }
  if (mount.root == "/") {
    return cgroup == "/" ? "" : cgroup;
  }
  const bool inside = cgroup == mount.root || cgroup.starts_with(mount.root + "/");
  return inside ? cgroup.substr(mount.root.size()) : "";
}

/// What a cgroup leaves, if it limits.
std::optional<std::int64_t> left_in(const fs::path& folder, int version) {
  const auto limit = read_number(folder / (version == 2 ? "memory.max" : "memory.limit_in_bytes"));
  const auto used =
      read_number(folder / (version == 2 ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit || *limit >= kUnlimited) {
    return std::nullopt;
  }
  const auto stat = read_numbers(folder / "memory.stat");
  const std::int64_t files =
      version == 2 ? value_of(stat, "inactive_file") + value_of(stat, "active_file")
                   : value_of(stat, "total_inactive_file") + value_of(stat, "total_active_file");
  return *limit - std::max<std::int64_t>(0, used.value_or(0) - files);
}

/// Equal for all who see this folder, through whichever mount.
std::uint64_t id_of(const fs::path& folder) {
  struct stat status{};
  if (::stat(folder.c_str(), &status) != 0) {
    return hash_string(folder.string());
  }
  return hash_combine(static_cast<std::uint64_t>(status.st_dev),
                      static_cast<std::uint64_t>(status.st_ino));
}

/// In version 1 a cgroup limits those below it only where it says so.
bool limits_below(const fs::path& folder, int version) {
  return version == 2 || read_number(folder / "memory.use_hierarchy").value_or(1) != 0;
}

void add_cgroups(const std::string& root, int version, std::vector<MemoryLimit>& limits) {
  const auto mount = find_mount(root, version);
  const auto cgroup = find_cgroup(root, version);
  if (!mount || !cgroup) {
    return;
  }
  std::string below = below_mount(*mount, *cgroup);
  for (bool holds = true; holds;) {
    const fs::path folder = root + mount->point + below;
    if (const auto left = left_in(folder, version)) {
      limits.push_back({.id = id_of(folder),
                        .name = "cgroup " + (below.empty() ? std::string("/") : below),
                        .left = *left});
    }
    if (below.empty()) {
      return;
    }
    below.resize(below.rfind('/'));
    holds = limits_below(root + mount->point + below, version);
  }
}

}  // namespace

std::vector<MemoryLimit> memory_limits(const std::string& root) {
  std::vector<MemoryLimit> limits;
  add_host(root, limits);
  add_address_space(root, limits);
  add_cgroups(root, 2, limits);
  add_cgroups(root, 1, limits);
  for (MemoryLimit& limit : limits) {
    limit.left = std::max<std::int64_t>(0, limit.left);
  }
  return limits;
}

}  // namespace weft::train
