/// Limits of memory that hold for this process, as the system says them.
///
/// Read are, below a root folder that tests replace by a made-up one: what the host has left
/// (/proc/meminfo: MemAvailable and free swap), of every memory cgroup from that of the process up
/// to the root its limit and what is used of it (v2: memory.max, memory.current; v1:
/// memory.limit_in_bytes, memory.usage_in_bytes, upwards while memory.use_hierarchy says so), and
/// the limit of the address space (/proc/self/limits, as `ulimit -v` sets it). Pages of files that
/// a cgroup could give back do not count as used. What cannot be read does not limit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::train {

/// A limit that holds for this process, alone or together with others of its host.
struct MemoryLimit {
  std::uint64_t id = 0;   ///< equal for processes of one host that share this limit
  std::string name;       ///< for messages, e.g. "cgroup /jobs/7"
  std::int64_t left = 0;  ///< bytes that may still be taken
};

/// All that are below infinity. `root` stands before every path; empty = the system. Cost: some ten
/// small files. Never throws for what is missing or malformed.
std::vector<MemoryLimit> memory_limits(const std::string& root = "");

}  // namespace weft::train
