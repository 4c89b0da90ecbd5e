// The build without MPI.
#include "weft/base/error.h"
#include "weft/comm/mpi/mpi.h"

namespace weft::comm {

struct MpiSession::Impl {};

namespace {

[[noreturn]] void refuse() {
  fail(ErrorCode::kConfig,
       "this build of Weft has no MPI; configure with -DWEFT_ENABLE_MPI=ON, or run ranks as "
       "threads with --ranks N");
}

}  // namespace

bool mpi_available() {
  return false;
}

MpiSession::MpiSession(const MpiOptions& /*options*/) {
  refuse();
}

MpiSession::~MpiSession() = default;

Communicator& MpiSession::world() {
  refuse();
}

void MpiSession::run(const std::function<void(Communicator& world)>& /*body*/) {
  refuse();
}

void MpiSession::finish() {
  refuse();
}

std::string MpiSession::current_activity() const {
  return {};
}

}  // namespace weft::comm
