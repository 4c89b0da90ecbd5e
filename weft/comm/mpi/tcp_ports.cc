#include "weft/comm/mpi/tcp_ports.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft::comm {
namespace {

std::optional<std::int64_t> number_of(const char* text) {
  if (text == nullptr) {
    return std::nullopt;
  }
  const std::string_view all(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), value);
  return error == std::errc() && end == all.data() + all.size() ? std::optional(value)
                                                                : std::nullopt;
}

}  // namespace

std::optional<PortRange> read_port_range(std::string_view text) {
  std::istringstream in{std::string(text)};
  PortRange range;
  in >> range.first >> range.last;
  return in && range.first > 0 && range.last >= range.first ? std::optional(range) : std::nullopt;
}

std::optional<PortRange> local_port_range() {
  std::ifstream in("/proc/sys/net/ipv4/ip_local_port_range");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return read_port_range(text);
}

std::optional<std::string> port_shortage(const PortNeed& need, const PortRange& range) {
  const std::int64_t most = std::int64_t{need.here} * need.elsewhere;
  if (most <= range.count()) {
    return std::nullopt;
  }
  return fmt::format(
      "over TCP the {} of a host may connect to {} of other hosts each, {} connections where all "
      "are made from here and about half of them as a rule, and the kernel has {} ports for them "
      "(net.ipv4.ip_local_port_range is {} to {}); a connection without a port fails with 'cannot "
      "assign requested address': set net.ipv4.ip_local_port_range to '1024 65535' on every host, "
      "start fewer ranks with more threads each, or let messages go by something else than TCP "
      "(docs/cluster.md, \"What carries messages\")",
      counted(need.here, "rank"), counted(need.elsewhere, "rank"), most, range.count(), range.first,
      range.last);
}

std::optional<std::string> listening_shortage(const char* range, const char* here) {
  const auto ports = number_of(range);
  const auto ranks = number_of(here);
  if (!ports || !ranks || *ports >= *ranks) {
    return std::nullopt;
  }
  return fmt::format(
      "{} of this host listen on a port each where messages go over TCP, and Open MPI's "
      "btl_tcp_port_range has {}: set it to {} or more",
      counted(*ranks, "rank"), *ports, *ranks);
}

}  // namespace weft::comm
