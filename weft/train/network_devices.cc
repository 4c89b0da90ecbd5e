#include "weft/train/network_devices.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace weft::train {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::string line;
  std::ifstream in(path);
  std::getline(in, line);
  return line;
}

/// What a folder has; nothing where it cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    found.push_back(at->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Names of devices that this process has open: through their verbs, or of Omni-Path by its driver.
std::set<std::string> open_devices(const fs::path& root) {
  constexpr std::string_view kVerbs = "uverbs";
  constexpr std::string_view kOmniPath = "hfi1_";
  std::set<std::string> names;
  for (const fs::path& file : entries(root / "proc/self/fd")) {
    std::error_code error;
    const std::string target = fs::read_symlink(file, error).filename().string();
    if (target.starts_with(kVerbs)) {
      names.insert(first_line(root / "sys/class/infiniband_verbs" / target / "ibdev"));
    } else if (target.starts_with(kOmniPath)) {
      names.insert(target);
    }
  }
  return names;
}

/// By the driver where it says more than the link does.
std::string kind_of(const fs::path& device, const std::string& link_layer) {
  std::error_code error;
  const std::string driver = fs::read_symlink(device / "device/driver", error).filename().string();
  if (driver == "efa") {
    return "EFA";
  }
  if (driver == "hfi1") {
    return "Omni-Path";
  }
  return link_layer == "Ethernet" ? "RoCE" : "InfiniBand";
}

}  // namespace

std::vector<FastDevice> fast_devices(const std::string& root) {
  const fs::path base = root.empty() ? fs::path("/") : fs::path(root);
  const std::set<std::string> open = open_devices(base);
  std::vector<FastDevice> devices;
  for (const fs::path& folder : entries(base / "sys/class/infiniband")) {
    const std::string name = folder.filename().string();
    FastDevice device{.name = name, .kind = {}, .bits_per_s = 0.0, .is_open = open.contains(name)};
    for (const fs::path& port : entries(folder / "ports")) {
      if (first_line(port / "state").find("ACTIVE") == std::string::npos) {
        continue;
      }
      device.kind = kind_of(folder, first_line(port / "link_layer"));
      // "400 Gb/sec (4X NDR)"
      const double rate = 1e9 * std::strtod(first_line(port / "rate").c_str(), nullptr);
      device.bits_per_s = std::max(device.bits_per_s, rate);
    }
    if (!device.kind.empty()) {
      devices.push_back(device);
    }
  }
  return devices;
}

std::string describe(const FastDevice& device) {
  return device.bits_per_s > 0.0 ? fmt::format("{} ({}, {:.4g} Gb/s)", device.name, device.kind,
                                               device.bits_per_s / 1e9)
                                 : fmt::format("{} ({})", device.name, device.kind);
}

}  // namespace weft::train
