/// Private to comm/mpi: whether a host has the ports that messages over TCP need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::comm {

/// Ports that the kernel gives to sockets which connect: those of one address of a host.
struct PortRange {
  std::int64_t first = 0;
  std::int64_t last = 0;

  [[nodiscard]] std::int64_t count() const { return last - first + 1; }
};

/// Reads the range as /proc/sys/net/ipv4/ip_local_port_range has it: two numbers. Nothing where the
/// text is something else.
std::optional<PortRange> read_port_range(std::string_view text);

/// Returns the range of this host, if it says one.
std::optional<PortRange> local_port_range();

/// The job as one host sees it.
struct PortNeed {
  int here = 1;       ///< ranks on this host
  int elsewhere = 0;  ///< ranks on others
};

/// Open MPI binds the socket of a connection before it connects, so each takes a port of its own of
/// the address. Returns what is wrong where this host may connect to more ranks than there are
/// ports: which limit it is, what is needed at most, and what to do.
std::optional<std::string> port_shortage(const PortNeed& need, const PortRange& range);

/// Each rank of a host listens on a port of btl_tcp_port_range_v4 and _v6, where a job narrows
/// them. `range` and `here` are the texts of that setting and of the number of ranks on this host,
/// as Open MPI's environment has them; null where it has none. Returns what is wrong where there
/// are fewer ports than ranks.
std::optional<std::string> listening_shortage(const char* range, const char* here);

}  // namespace weft::comm
