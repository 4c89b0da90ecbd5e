#include "bench/machine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace weft::bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// The first processor's entries of /proc/cpuinfo.
std::map<std::string, std::string> cpu_info() {
  std::map<std::string, std::string> entries;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line) && !line.empty();) {
    const std::size_t colon = line.find(':');
    const std::size_t key_end = line.find_last_not_of(" \t", colon - 1);
    if (colon != std::string::npos && key_end != std::string::npos) {
      const std::size_t value = line.find_first_not_of(' ', colon + 1);
      entries[line.substr(0, key_end + 1)] = value == std::string::npos ? "" : line.substr(value);
    }
  }
  return entries;
}

/// The extensions that change which kernels run, in the order of /proc/cpuinfo.
std::vector<std::string> vector_flags(const std::string& all) {
  constexpr std::array kPrefixes = {"avx", "amx", "fma", "sse4", "asimd", "sve", "bf16"};
  std::vector<std::string> found;
  std::istringstream words(all);
  for (std::string word; words >> word;) {
    if (std::any_of(kPrefixes.begin(), kPrefixes.end(),
                    [&](const char* prefix) { return word.rfind(prefix, 0) == 0; })) {
      found.push_back(word);
    }
  }
  return found;
}

std::vector<std::string> caches() {
  std::vector<std::string> found;
  for (int i = 0; i < 8; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string size = first_line(folder + "size");
    if (!size.empty() && first_line(folder + "type") != "Instruction") {
      found.push_back(fmt::format("L{} {}", first_line(folder + "level"), size));
    }
  }
  return found;
}

std::int64_t usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores)
                                                          : sysconf(_SC_NPROCESSORS_ONLN);
}

/// "always [madvise] never" -> "madvise".
std::string chosen(const std::string& line) {
  const std::size_t begin = line.find('[');
  const std::size_t end = line.find(']');
  return begin == std::string::npos || end == std::string::npos
             ? line
             : line.substr(begin + 1, end - begin - 1);
}

}  // namespace

Machine this_machine() {
  auto info = cpu_info();
  Machine machine;
  machine.cpu = fmt::format("{} (family {}, model {}, stepping {})", info["model name"],
                            info["cpu family"], info["model"], info["stepping"]);
  machine.cores = usable_cores();
  machine.cache = caches();
  machine.flags = vector_flags(info.count("flags") != 0 ? info["flags"] : info["Features"]);
  const double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  machine.memory_gib = std::llround(bytes / static_cast<double>(std::int64_t{1} << 30));
  machine.huge_pages = chosen(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  return machine;
}

Software this_software() {
  Software software;
  utsname name{};
  if (uname(&name) == 0) {
    software.kernel = fmt::format("{} {}", name.sysname, name.release);
  }
#if defined(__clang__)
  software.compiler = "clang " __clang_version__;
#else
  software.compiler = "gcc " __VERSION__;
#endif
  const dnnl_version_t* onednn = dnnl::version();
  software.onednn = fmt::format("{}.{}.{}", onednn->major, onednn->minor, onednn->patch);
  const char* commit = std::getenv("WEFT_COMMIT");
  software.weft = fmt::format("{}{}{}", WEFT_VERSION, commit != nullptr ? " " : "",
                              commit != nullptr ? commit : "");
  return software;
}

}  // namespace weft::bench
