#include "weft/comm/mpi/open_files.h"

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft::comm {
namespace {

// Over TCP, MPI has a socket for each peer and network interface. Hosts that have more than four
// interfaces are rare, and one that is counted too low has kUnclaimedFiles still.
constexpr std::int64_t kInterfaces = 4;

}  // namespace

std::optional<std::string> claim_sockets(io::OpenFileClaim& claim, const SocketNeed& need) {
  if (need.elsewhere == 0 || claim.set(kInterfaces * need.elsewhere) == 0) {
    return std::nullopt;
  }
  const std::int64_t files = claim.set(need.elsewhere);
  if (files == 0) {
    return std::nullopt;
  }
  return fmt::format(
      "this process may have {} files open (the hard limit of ulimit -n), and needs {}: of the "
      "job's {} on {}, {} on other hosts, with a socket to each, and {} are for its own files; "
      "raise the hard limit on every host to {} or more (ulimit -Hn, LimitNOFILE of the service "
      "that starts jobs, /etc/security/limits.conf), or start fewer ranks with more threads each",
      io::open_file_limits().hard, files, counted(need.ranks, "rank"), counted(need.hosts, "host"),
      need.elsewhere == 1 ? "1 is" : fmt::format("{} are", need.elsewhere), files - need.elsewhere,
      files);
}

}  // namespace weft::comm
