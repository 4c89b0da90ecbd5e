#include "weft/comm/mpi/sink.h"

#include <iterator>

namespace weft::comm {

void Sink::take() {
  for (int found = 1; found != 0;) {
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, &status), "MPI_Iprobe");
    if (found == 0) {
      break;
    }
    int bytes = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    Message& message = messages_.emplace_back();
    message.bytes.resize(static_cast<std::size_t>(bytes));
    check_mpi(MPI_Irecv(message.bytes.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG,
                        comm_, &message.request),
              "MPI_Irecv");
  }
  for (auto message = messages_.begin(); message != messages_.end();) {
    int arrived = 0;
    check_mpi(MPI_Test(&message->request, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    message = arrived != 0 ? messages_.erase(message) : std::next(message);
  }
}

}  // namespace weft::comm
